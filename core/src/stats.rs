//! Figures: what every layer holds and has done, at no cost on a hit.
//!
//! Live bytes are not counted, they are what is out of the spans less what the caches hold. A snapshot taken while others
//! allocate is right for each figure at some moment, not for all at one.
#![forbid(unsafe_code)]

use crate::heap::Heap;
use crate::platform::{CoreLists, Platform};
use crate::size_class::SizeClass;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::units::PAGE_SIZE;

pub use crate::ground::SourceStats;

/// A snapshot of a heap. Bytes, unless a name says otherwise; large blocks count by their pages.
#[derive(Clone, Debug)]
pub struct Stats {
    /// In the callers' hands: blocks of classes by their class's size, large blocks by their pages.
    pub live_bytes: usize,
    /// In core lists and on shelves.
    pub cached_bytes: usize,
    /// Mapped for blocks: live, cached, free in spans and chunks, idle.
    pub held_bytes: usize,
    /// Free pages that are still resident.
    pub dirty_bytes: usize,
    /// Mapped for the heap's own data, most of it never touched.
    pub meta_bytes: usize,
    /// The most that was ever held.
    pub peak_held_bytes: usize,
    /// Live large blocks that are runs of a chunk.
    pub large_blocks: usize,
    /// Their bytes.
    pub large_bytes: usize,
    /// Live large blocks with a mapping of their own.
    pub huge_blocks: usize,
    /// Their bytes.
    pub huge_bytes: usize,
    /// Calls to the page source.
    pub source: SourceStats,
    /// Blocks made for interrupts that came upon a lock of their own context.
    pub rescued: usize,
    /// Frees that such interrupts left to the holder.
    pub queued: usize,
    /// By class, at [`SizeClass::index`].
    pub classes: [ClassStats; SizeClass::INDEXES],
}

/// Figures of one class: blocks and events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStats {
    /// Allocations that the core lists served; `None` in a build without `counters`.
    pub pops: Option<usize>,
    /// Frees that the core lists took; `None` in a build without `counters`.
    pub pushes: Option<usize>,
    /// Allocations that found their core's list empty, or could not use it.
    pub misses_under: usize,
    /// Frees that found their core's list full, or could not use it.
    pub misses_over: usize,
    /// Chains taken from the central list.
    pub refills: usize,
    /// Chains given to the central list.
    pub drains: usize,
    /// Refills that came off the shelf.
    pub shelf_hits: usize,
    /// Spans taken from the page heap.
    pub spans_made: usize,
    /// Spans given back to it.
    pub spans_returned: usize,
    /// Blocks in the callers' hands.
    pub live: usize,
    /// Blocks in core lists and on the shelf.
    pub cached: usize,
}

impl<P: Platform> Heap<P> {
    /// The figures now. Takes the page heap's lock; walks all classes and cores.
    pub fn stats(&self) -> Stats {
        let mut classes = [ClassStats::default(); SizeClass::INDEXES];
        SizeClass::all().for_each(|class| classes[class.index()] = self.class_stats(class));
        let bytes =
            |blocks: fn(&ClassStats) -> usize| SizeClass::all().map(|c| blocks(&classes[c.index()]) * c.size()).sum();
        let (counts, meta_bytes) =
            self.spans.back.pages().map_or_else(Default::default, |pages| (pages.counts, pages.meta.bytes()));
        let (large_bytes, huge_bytes) = (counts.large * PAGE_SIZE, counts.huge * PAGE_SIZE);
        let of_classes: usize = bytes(|class| class.live);
        Stats {
            live_bytes: of_classes + large_bytes + huge_bytes,
            cached_bytes: bytes(|class| class.cached),
            held_bytes: counts.mapped * PAGE_SIZE,
            dirty_bytes: counts.dirty * PAGE_SIZE,
            meta_bytes,
            peak_held_bytes: counts.peak * PAGE_SIZE,
            large_blocks: counts.large_blocks,
            large_bytes,
            huge_blocks: counts.huge_blocks,
            huge_bytes,
            source: self.spans.back.ground.source.stats(),
            rescued: self.spans.back.rescues.load(Relaxed),
            queued: self.spans.back.queued.load(Relaxed),
            classes,
        }
    }

    fn class_stats(&self, class: SizeClass) -> ClassStats {
        let (central, cache) = (self.spans.central(class), self.cache.counts(class));
        let lists = &self.cache.lists;
        let in_lists: usize = (0..lists.cores()).filter_map(|core| Some(lists.slab(core)?.blocks(class))).sum();
        let cached = in_lists + central.shelf.blocks();
        let figure = |counter: &AtomicUsize| counter.load(Relaxed);
        ClassStats {
            pops: cache.pops.get(),
            pushes: cache.pushes.get(),
            misses_under: figure(&cache.misses_under),
            misses_over: figure(&cache.misses_over),
            refills: figure(&central.counts.refills),
            drains: figure(&central.counts.drains),
            shelf_hits: figure(&central.counts.shelf_hits),
            spans_made: figure(&central.counts.spans_made),
            spans_returned: figure(&central.counts.spans_returned),
            // The two figures are from two moments: a difference below zero is none.
            live: figure(&central.counts.out).saturating_sub(cached),
            cached,
        }
    }
}
