//! Doubly linked lists through links that the members carry.
//!
//! Written once for spans, chunks and (through [`bins`](crate::bins)) free pieces of any kind: where the links lie is the
//! [`Linked`] store's business. Lists end in `None` both ways and no member points at the list, so a list can be moved.
#![forbid(unsafe_code)]

/// The neighbours of a member, for stores that keep them in a [`Cell`].
#[derive(Clone, Copy, Debug)]
pub struct Links<I> {
    pub(crate) prev: Option<I>,
    pub(crate) next: Option<I>,
}

impl<I> Links<I> {
    pub(crate) const NONE: Self = Self { prev: None, next: None };
}

/// Where members keep the links of one kind of list. What the links of a member are that is in no list does not matter.
pub trait Linked {
    /// Names a member.
    type Id: Copy + Eq;
    /// The member before `id`, which is newer.
    fn prev(&self, id: Self::Id) -> Option<Self::Id>;
    /// The member behind `id`.
    fn next(&self, id: Self::Id) -> Option<Self::Id>;
    /// Sets [`prev`](Self::prev).
    fn set_prev(&self, id: Self::Id, prev: Option<Self::Id>);
    /// Sets [`next`](Self::next).
    fn set_next(&self, id: Self::Id, next: Option<Self::Id>);
}

/// Implements [`Linked`] for the store `$store` whose members `$id` have their links in the field `$field`, a cell.
macro_rules! linked_by {
    ($store:ty, $id:ty, $field:ident) => {
        impl crate::list::Linked for $store {
            type Id = $id;
            fn prev(&self, id: $id) -> Option<$id> {
                id.$field.get().prev
            }
            fn next(&self, id: $id) -> Option<$id> {
                id.$field.get().next
            }
            fn set_prev(&self, id: $id, prev: Option<$id>) {
                id.$field.set(crate::list::Links { prev, ..id.$field.get() });
            }
            fn set_next(&self, id: $id, next: Option<$id>) {
                id.$field.set(crate::list::Links { next, ..id.$field.get() });
            }
        }
    };
}
pub(crate) use linked_by;

/// The list. All operations take constant time.
#[derive(Clone, Copy, Debug)]
pub struct List<I> {
    first: Option<I>,
}

impl<I: Copy + Eq> List<I> {
    pub(crate) const EMPTY: Self = Self { first: None };

    pub(crate) fn first(&self) -> Option<I> {
        self.first
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, store: &impl Linked<Id = I>, id: I) {
        store.set_prev(id, None);
        store.set_next(id, self.first);
        if let Some(next) = self.first {
            store.set_prev(next, Some(id));
        }
        self.first = Some(id);
    }

    /// Takes a member out; whether others are left.
    #[inline(always)]
    pub(crate) fn remove(&mut self, store: &impl Linked<Id = I>, id: I) -> bool {
        let (prev, next) = (store.prev(id), store.next(id));
        if let Some(next) = next {
            store.set_prev(next, prev);
        }
        match prev {
            Some(prev) => store.set_next(prev, next),
            None => self.first = next,
        }
        prev.is_some() || next.is_some()
    }

    /// Puts `to`, which is in no list, into the place of `from`.
    #[inline(always)]
    pub(crate) fn replace(&mut self, store: &impl Linked<Id = I>, from: I, to: I) {
        let (prev, next) = (store.prev(from), store.next(from));
        store.set_prev(to, prev);
        store.set_next(to, next);
        if let Some(next) = next {
            store.set_prev(next, Some(to));
        }
        match prev {
            Some(prev) => store.set_next(prev, Some(to)),
            None => self.first = Some(to),
        }
    }

    /// Takes the newest member.
    #[inline(always)]
    pub(crate) fn pop(&mut self, store: &impl Linked<Id = I>) -> Option<I> {
        let first = self.first?;
        let next = store.next(first);
        if let Some(next) = next {
            store.set_prev(next, None);
        }
        self.first = next;
        Some(first)
    }

    /// The members in order, newest first; the list may not change meanwhile, but the member just yielded may be removed.
    pub(crate) fn iter<'a, S: Linked<Id = I>>(&self, store: &'a S) -> impl Iterator<Item = I> + use<'a, I, S> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let id = next?;
            next = store.next(id);
            Some(id)
        })
    }
}

/// A list whose oldest member is known, too.
#[derive(Debug)]
pub(crate) struct Fifo<I> {
    list: List<I>,
    last: Option<I>,
}

impl<I: Copy + Eq> Fifo<I> {
    pub(crate) const EMPTY: Self = Self { list: List::EMPTY, last: None };

    pub(crate) fn oldest(&self) -> Option<I> {
        self.last
    }

    pub(crate) fn insert(&mut self, store: &impl Linked<Id = I>, id: I) {
        self.last.get_or_insert(id);
        self.list.insert(store, id);
    }

    pub(crate) fn remove(&mut self, store: &impl Linked<Id = I>, id: I) {
        if self.last == Some(id) {
            self.last = store.prev(id);
        }
        self.list.remove(store, id);
    }

    pub(crate) fn iter<'a, S: Linked<Id = I>>(&self, store: &'a S) -> impl Iterator<Item = I> + use<'a, I, S> {
        self.list.iter(store)
    }
}
