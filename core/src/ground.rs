//! The ground that the page heap stands on: the page source, counted, and the page map.

use crate::limits::DrainWish;
use crate::page_map::PageMap;
use crate::platform::{Mapped, PageSource, Place, Platform, Purged, Refused};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::units::{PAGE_SIZE, PageRun, Pages};
use core::ptr::NonNull;

/// Source and map of one heap.
pub(crate) struct Ground<P: Platform> {
    pub(crate) source: Counted<P::Source>,
    pub(crate) map: P::Map,
    /// Pages mapped for blocks, or twice those that are live or dirty where that is less, as the page heap says whenever it has
    /// taken or got back a run.
    held: AtomicUsize,
    pub(crate) drain: DrainWish,
}

impl<P: Platform> Ground<P> {
    pub(crate) const fn new(source: P::Source) -> Self {
        Self { source: Counted::new(source), map: P::Map::NEW, held: AtomicUsize::new(0), drain: DrainWish::NONE }
    }

    /// What caches are measured by, in bytes. Without a lock: a figure, a little late.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed) * PAGE_SIZE
    }

    pub(crate) fn set_held(&self, pages: usize) {
        self.held.store(pages, Relaxed);
    }
}

/// A page source whose calls are counted (Relaxed: figures for people, no edge hangs on them).
#[derive(Debug)]
pub(crate) struct Counted<S> {
    source: S,
    maps: AtomicUsize,
    unmaps: AtomicUsize,
    purges: AtomicUsize,
    remaps: AtomicUsize,
    refused: AtomicUsize,
    advices: AtomicUsize,
}

/// Calls to the page source; on Linux each is a system call (a map at a great alignment, up to three).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceStats {
    /// Runs mapped.
    pub maps: usize,
    /// Runs unmapped.
    pub unmaps: usize,
    /// Runs purged.
    pub purges: usize,
    /// Runs resized or moved.
    pub remaps: usize,
    /// Calls of all four kinds that the source refused.
    pub refused: usize,
    /// Runs for which the source took the advice of huge pages.
    pub advices: usize,
}

impl<S: PageSource> Counted<S> {
    pub(crate) const fn new(source: S) -> Self {
        const ZERO: AtomicUsize = AtomicUsize::new(0);
        Self { source, maps: ZERO, unmaps: ZERO, purges: ZERO, remaps: ZERO, refused: ZERO, advices: ZERO }
    }

    pub(crate) fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        let mapped = self.source.map(pages, align);
        self.count(&self.maps, mapped.is_some());
        mapped
    }

    pub(crate) fn map_sparse(&self, pages: Pages) -> Option<Mapped> {
        let mapped = self.source.map_sparse(pages);
        self.count(&self.maps, mapped.is_some());
        mapped
    }

    /// # Safety
    /// As for [`PageSource::unmap`].
    pub(crate) unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused> {
        // SAFETY: the caller's promise, passed on.
        let unmapped = unsafe { self.source.unmap(run) };
        self.count(&self.unmaps, unmapped.is_ok());
        unmapped
    }

    /// # Safety
    /// As for [`PageSource::purge`].
    pub(crate) unsafe fn purge(&self, run: PageRun) -> Purged {
        // SAFETY: the caller's promise, passed on.
        let purged = unsafe { self.source.purge(run) };
        self.count(&self.purges, purged != Purged::Refused);
        purged
    }

    /// # Safety
    /// As for [`PageSource::remap`].
    pub(crate) unsafe fn remap(&self, run: PageRun, to: Pages, place: Place) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise, passed on.
        let start = unsafe { self.source.remap(run, to, place) };
        self.count(&self.remaps, start.is_some());
        start
    }

    /// Whether the source takes the advice.
    pub(crate) fn advise_huge(&self, run: PageRun) -> bool {
        let is_taken = self.source.advise_huge(run).is_ok();
        self.advices.fetch_add(usize::from(is_taken), Relaxed);
        is_taken
    }

    fn count(&self, done: &AtomicUsize, was_done: bool) {
        let counter = if was_done { done } else { &self.refused };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn stats(&self) -> SourceStats {
        let [maps, unmaps, purges, remaps, refused, advices] =
            [&self.maps, &self.unmaps, &self.purges, &self.remaps, &self.refused, &self.advices]
                .map(|counter| counter.load(Relaxed));
        SourceStats { maps, unmaps, purges, remaps, refused, advices }
    }
}
