//! Figures: what every layer holds and has done, at no cost on a hit.
//!
//! Live bytes are not counted, they are what is out of the spans less what the caches hold. A snapshot taken while others
//! allocate is right for each figure at some moment, not for all at one.
#![forbid(unsafe_code)]

use crate::grain::Grain;
use crate::heap::Heap;
use crate::platform::{Class, CoreLists, Platform, RegionPlatform};
use crate::region_heap::RegionHeap;
use crate::size_class::SizeClass;
use crate::sync::HitCounter;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::units::PAGE_SIZE;
use core::fmt;

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
    /// Large blocks handed out so far.
    pub large_taken: usize,
    /// Large blocks freed so far.
    pub large_given: usize,
    /// Calls to the page source.
    pub source: SourceStats,
    /// Blocks made for interrupts that came upon a lock of their own context.
    pub rescued: usize,
    /// Frees that such interrupts left to the holder.
    pub queued: usize,
    /// Sums over all classes; [`Heap::class_stats`] has each (a table of them would not fit the stack of a small thread).
    pub classes: ClassStats,
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
    /// Batches given to the central list.
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

impl Stats {
    /// Calls that the core lists served; `None` in a build without `counters`.
    pub fn hits(&self) -> Option<usize> {
        Some(self.classes.pops? + self.classes.pushes?)
    }

    /// Calls that went below the core lists, those for large blocks included.
    pub fn misses(&self) -> usize {
        self.classes.misses_under + self.classes.misses_over + self.large_taken + self.large_given
    }
}

impl ClassStats {
    fn add(&mut self, other: &Self) {
        self.pops = self.pops.zip(other.pops).map(|(sum, more)| sum + more);
        self.pushes = self.pushes.zip(other.pushes).map(|(sum, more)| sum + more);
        self.misses_under += other.misses_under;
        self.misses_over += other.misses_over;
        self.refills += other.refills;
        self.drains += other.drains;
        self.shelf_hits += other.shelf_hits;
        self.spans_made += other.spans_made;
        self.spans_returned += other.spans_returned;
        self.live += other.live;
        self.cached += other.cached;
    }
}

/// A report for people, in a few lines: calls, layers from the top down, memory, calls to the source.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hits) = self.hits() {
            let calls = hits + self.misses();
            let share = (10_000 * hits as u128 / calls.max(1) as u128) as usize;
            writeln!(f, "  calls    {calls}, {}.{:02} % of them served by the cores' caches", share / 100, share % 100)?;
        }
        let sums = &self.classes;
        writeln!(f, "  misses   {} allocating, {} freeing", sums.misses_under, sums.misses_over)?;
        let (refills, shelf, drains) = (sums.refills, sums.shelf_hits, sums.drains);
        writeln!(f, "  central  {refills} refills, {shelf} of them off the shelf, {drains} drains")?;
        writeln!(f, "  spans    {} made, {} given back", sums.spans_made, sums.spans_returned)?;
        let live = (self.large_blocks + self.huge_blocks, Size(self.large_bytes + self.huge_bytes));
        writeln!(
            f,
            "  large    {} taken, {} given back, {} live of {}",
            self.large_taken, self.large_given, live.0, live.1
        )?;
        let (live, cached, dirty) = (Size(self.live_bytes), Size(self.cached_bytes), Size(self.dirty_bytes));
        writeln!(f, "  memory   {live} live, {cached} cached, {dirty} free and resident")?;
        let (held, peak, meta) = (Size(self.held_bytes), Size(self.peak_held_bytes), Size(self.meta_bytes));
        writeln!(f, "  mapped   {held}, at most {peak}, and {meta} for tables")?;
        writeln!(f, "  system   {}", self.source)
    }
}

impl fmt::Display for SourceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.maps + self.unmaps + self.purges + self.remaps + self.advices + self.refused;
        write!(f, "{calls} calls: {} map, {} unmap, {} purge, ", self.maps, self.unmaps, self.purges)?;
        write!(f, "{} remap, {} advise, {} refused", self.remaps, self.advices, self.refused)
    }
}

/// Bytes, for a reader.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..0x10_0000 => (1 << 10, "KiB"),
            0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
            _ => (1 << 30, "GiB"),
        };
        write!(f, "{}.{} {name}", self.0 / unit, self.0 % unit * 10 / unit)
    }
}

/// A snapshot of a [`RegionHeap`]. Bytes, unless a name says otherwise; blocks count by their granules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    /// In the callers' hands.
    pub live_bytes: usize,
    /// In core lists.
    pub cached_bytes: usize,
    /// Freed by interrupts that came upon the lock, and not taken back yet.
    pub queued_bytes: usize,
    /// Free in the regions.
    pub free_bytes: usize,
    /// For blocks, in all: live, cached, queued, free.
    pub held_bytes: usize,
    /// The most that was not free, region by region.
    pub peak_bytes: usize,
    /// A free block of at least this length exists. What is cached or queued is not in it.
    pub largest_free: usize,
    /// Regions.
    pub regions: usize,
    /// Calls that the core lists served; `None` in a build without `counters`.
    pub hits: Option<usize>,
    /// Allocations of a cached length that found their core's list empty, or could not use it.
    pub misses_under: usize,
    /// Frees of a cached length that found their core's list full, or could not use it.
    pub misses_over: usize,
    /// Allocations that were refused because the lock may not be waited for.
    pub refused: usize,
    /// Frees that were left to the holder of the lock for that reason.
    pub queued: usize,
}

/// A report for people, in a few lines.
impl fmt::Display for RegionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, cached, free) = (Size(self.live_bytes), Size(self.cached_bytes), Size(self.free_bytes));
        writeln!(f, "  memory   {live} live, {cached} cached, {free} free")?;
        let (held, peak, largest) = (Size(self.held_bytes), Size(self.peak_bytes), Size(self.largest_free));
        writeln!(f, "  regions  {}, {held} in all, at most {peak} in use, {largest} free in one block", self.regions)?;
        if let Some(hits) = self.hits {
            writeln!(f, "  cache    {hits} hits, {} misses", self.misses_under + self.misses_over)?;
        }
        writeln!(f, "  lock     {} refused, {} frees queued", self.refused, self.queued)
    }
}

impl<P: RegionPlatform> RegionHeap<P> {
    /// The figures now; zero where this context may not wait for the lock. Walks the lengths that are cached and the queue.
    pub fn stats(&self) -> RegionStats {
        let Some(mut stats) = self.inside(|shared| {
            // Whatever came of it: a heap without memory has no figures.
            let _ = self.built(shared);
            let blocks = shared.blocks.stats();
            RegionStats {
                queued_bytes: self.look_at_queued(shared).map(|(_, granules)| granules * P::Grain::GRANULE).sum(),
                free_bytes: blocks.free_bytes,
                held_bytes: blocks.held_bytes,
                peak_bytes: blocks.held_bytes - blocks.least_free_bytes,
                largest_free: blocks.largest_free,
                regions: blocks.regions,
                hits: HitCounter::ZERO.get(),
                refused: self.refused.load(Relaxed),
                queued: self.queued.load(Relaxed),
                ..RegionStats::default()
            }
        }) else {
            return RegionStats::default();
        };
        self.add_lists(&mut stats);
        let spent = stats.cached_bytes + stats.queued_bytes + stats.free_bytes;
        // The figures are from several moments: a difference below zero is none.
        stats.live_bytes = stats.held_bytes.saturating_sub(spent);
        stats
    }

    fn add_lists(&self, stats: &mut RegionStats) {
        let lists = &self.cache.lists;
        for class in <P::Lists as CoreLists>::Class::all() {
            let blocks: usize = (0..lists.cores()).filter_map(|core| Some(lists.slab(core)?.blocks(class))).sum();
            let counts = self.cache.counts(class);
            stats.cached_bytes += blocks * class.size();
            stats.misses_under += counts.misses_under.load(Relaxed);
            stats.misses_over += counts.misses_over.load(Relaxed);
            let hits = counts.pops.get().zip(counts.pushes.get()).map(|(pops, pushes)| pops + pushes);
            stats.hits = stats.hits.zip(hits).map(|(sum, more)| sum + more);
        }
    }
}

impl<P: Platform> Heap<P> {
    /// The figures now. Takes the page heap's lock; walks all classes and cores.
    pub fn stats(&self) -> Stats {
        let (mut classes, mut of_classes, mut cached_bytes) =
            (ClassStats { pops: HitCounter::ZERO.get(), pushes: HitCounter::ZERO.get(), ..ClassStats::default() }, 0, 0);
        for class in SizeClass::all() {
            let stats = self.class_stats(class);
            of_classes += stats.live * class.size();
            cached_bytes += stats.cached * class.size();
            classes.add(&stats);
        }
        let (counts, meta_bytes) =
            self.spans.back.pages().map_or_else(Default::default, |pages| (pages.counts, pages.meta.bytes()));
        let (large_bytes, huge_bytes) = (counts.large * PAGE_SIZE, counts.huge * PAGE_SIZE);
        Stats {
            live_bytes: of_classes + large_bytes + huge_bytes,
            cached_bytes,
            held_bytes: counts.mapped * PAGE_SIZE,
            dirty_bytes: counts.dirty * PAGE_SIZE,
            meta_bytes,
            peak_held_bytes: counts.peak * PAGE_SIZE,
            large_blocks: counts.large_blocks,
            large_bytes,
            huge_blocks: counts.huge_blocks,
            huge_bytes,
            source: self.spans.back.ground.source.stats(),
            large_taken: self.spans.back.large_taken.load(Relaxed),
            large_given: self.spans.back.large_given.load(Relaxed),
            rescued: self.spans.back.rescues.load(Relaxed),
            queued: self.spans.back.queued.load(Relaxed),
            classes,
        }
    }

    /// The figures of one class now.
    pub fn class_stats(&self, class: SizeClass) -> ClassStats {
        let (central, cache) = (self.spans.central(class), self.cache.counts(class));
        let lists = &self.cache.lists;
        let in_lists: usize = (0..lists.cores()).filter_map(|core| Some(lists.slab(core)?.blocks(class))).sum();
        let cached = in_lists + central.shelf.blocks();
        let rescued = &self.spans.back.rescued_out[class.index()];
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
            live: (figure(&central.counts.out) + figure(rescued)).saturating_sub(cached),
            cached,
        }
    }
}
