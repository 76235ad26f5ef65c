//! Doubly linked lists through links that the members carry.
//!
//! Written once for spans, chunks and (through [`bins`](crate::bins)) free pieces of any kind: where the links lie is the
//! [`Linked`] store's business. Lists end in `None` both ways and no member points at the list, so a list can be moved.
#![forbid(unsafe_code)]

/// The neighbours of a member.
#[derive(Clone, Copy, Debug)]
pub struct Links<I> {
    pub(crate) prev: Option<I>,
    pub(crate) next: Option<I>,
}

impl<I> Links<I> {
    pub(crate) const NONE: Self = Self { prev: None, next: None };
}

/// Where members keep the links of one kind of list.
pub trait Linked {
    /// Names a member.
    type Id: Copy + Eq;
    /// The links of `id`.
    fn links(&self, id: Self::Id) -> Links<Self::Id>;
    /// Sets the links of `id`.
    fn set_links(&self, id: Self::Id, links: Links<Self::Id>);
}

/// The list. All operations take constant time.
#[derive(Debug)]
pub struct List<I> {
    first: Option<I>,
}

impl<I: Copy + Eq> List<I> {
    pub(crate) const EMPTY: Self = Self { first: None };

    pub(crate) fn first(&self) -> Option<I> {
        self.first
    }

    pub(crate) fn insert(&mut self, store: &impl Linked<Id = I>, id: I) {
        store.set_links(id, Links { prev: None, next: self.first });
        if let Some(next) = self.first {
            store.set_links(next, Links { prev: Some(id), ..store.links(next) });
        }
        self.first = Some(id);
    }

    pub(crate) fn remove(&mut self, store: &impl Linked<Id = I>, id: I) {
        let Links { prev, next } = store.links(id);
        match prev {
            Some(prev) => store.set_links(prev, Links { next, ..store.links(prev) }),
            None => self.first = next,
        }
        if let Some(next) = next {
            store.set_links(next, Links { prev, ..store.links(next) });
        }
        store.set_links(id, Links::NONE);
    }

    /// The members in order, newest first; the list may not change meanwhile, but the member just yielded may be removed.
    pub(crate) fn iter<'a, S: Linked<Id = I>>(&self, store: &'a S) -> impl Iterator<Item = I> + use<'a, I, S> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let id = next?;
            next = store.links(id).next;
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
            self.last = store.links(id).prev;
        }
        self.list.remove(store, id);
    }

    pub(crate) fn iter<'a, S: Linked<Id = I>>(&self, store: &'a S) -> impl Iterator<Item = I> + use<'a, I, S> {
        self.list.iter(store)
    }
}
