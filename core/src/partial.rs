//! Partial: the spans of one class that have an object to give, by how full they are.
//!
//! Objects come out of the fullest spans, so that the others run empty and go back whole: what was allocated together is
//! rarely freed together, and a span is kept by its last object. In lists by quarters, as exact order is not worth its
//! upkeep. After TCMalloc's central lists (2020), which sort spans by the number of their live objects.
//!
//! Invariant: `S6` a partial span is in the list that its number of objects names.
#![forbid(unsafe_code)]

use crate::list::List;
use crate::size_class::SizeClass;
use crate::span::{InList, SpanRef};

const QUARTERS: usize = 4;

/// Guarded by the class's lock.
pub(crate) struct Partial {
    lists: [List<SpanRef>; QUARTERS],
}

/// The quarter of its objects that are out, 3 for the fullest.
fn quarter(class: SizeClass, span: SpanRef) -> u8 {
    (span.out() * QUARTERS / class.objects()).min(QUARTERS - 1) as u8
}

impl Partial {
    pub(crate) const EMPTY: Self = Self { lists: [const { List::EMPTY }; QUARTERS] };

    /// One of the fullest.
    pub(crate) fn fullest(&self) -> Option<SpanRef> {
        self.lists.iter().rev().find_map(List::first)
    }

    /// Takes in a span that is in no list.
    pub(crate) fn insert(&mut self, class: SizeClass, span: SpanRef) {
        let quarter = quarter(class, span);
        span.quarter.set(quarter);
        self.lists[usize::from(quarter)].insert(&InList, span);
    }

    /// Takes a span out.
    pub(crate) fn remove(&mut self, span: SpanRef) {
        self.lists[usize::from(span.quarter.get())].remove(&InList, span);
    }

    /// Files a span anew, some of whose objects went out or came back.
    pub(crate) fn update(&mut self, class: SizeClass, span: SpanRef) {
        if quarter(class, span) != span.quarter.get() {
            self.remove(span);
            self.insert(class, span);
        }
    }

    /// All of them; one that was handed out may be removed before the next is asked for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SpanRef> + use<> {
        self.lists.each_ref().map(|list| list.iter(&InList)).into_iter().flatten()
    }

    /// Whether each is where it belongs (`S6`).
    pub(crate) fn is_filed(&self, class: SizeClass) -> bool {
        let belongs = |(n, list): (usize, &List<SpanRef>)| {
            list.iter(&InList).all(|span| usize::from(quarter(class, span)) == n && usize::from(span.quarter.get()) == n)
        };
        self.lists.iter().enumerate().all(belongs)
    }
}
