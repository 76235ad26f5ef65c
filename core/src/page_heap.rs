//! The page heap: the back end. Splits chunks into runs of pages and coalesces them, keeps large blocks, gives memory back.
//!
//! Called by the central lists (spans) and the heap's front (large blocks), under its lock; calls the page source and the
//! page map. Chunks lie in [`Bins`] by their longest free run, so that the fullest chunk that fits is found at once; inside a
//! chunk the shortest run that fits is taken, lowest address first, which is also where pages are warm. A block of more than
//! [`LARGEST_RUN`] gets a mapping of its own, grown and moved by the source.
//!
//! Free pages stay resident ("dirty") only up to the cap of [`keep`](crate::keep), which is enforced whenever pages come
//! back. Chunks that have become empty are given back whole. Huge blocks are in `huge.rs`,
//! scarce memory in `limits.rs`, the other parts of this type.
//!
//! Invariants: `P1` `dirty` is the number of dirty free pages in chunks plus the pages of idle huge mappings; `P2` a chunk
//! is in the dirty list exactly while it has dirty free pages; `P3` a chunk is in a bin exactly while it has a free page; `P4`
//! `empty` counts the chunks with no live page; `P5` `live` is the number of live pages, huge ones included; `P6` every
//! live page belongs to a span that the page map names, or is the inside of a large block.

use crate::bins::{Bins, bitmap_words};
use crate::chain::fits;
use crate::chunk::{ChunkRef, InAll, InBin, InDirty};
use crate::ground::{Counted, Ground};
use crate::keep::Keep;
use crate::limits::{MORE, Scarcity};
use crate::list::{Fifo, List};
use crate::meta::Meta;
use crate::page_bits::PageBits;
use crate::page_map::{Entry, PageMap};
use crate::platform::{Contents, Mapped, PageSource, Platform, Purged, Tables};
use crate::size_class::SizeClass;
use crate::span::{InList, Kind, SpanRef};
use crate::sync::RefCell;
use crate::units::{CHUNK_PAGES, CHUNK_SIZE, PAGE_SIZE, PageRun, Pages};
use core::ops::Range;
use core::ptr::NonNull;

/// The longest run that is cut out of a chunk; more gets its own mapping.
pub(crate) const LARGEST_RUN: Pages = Pages(CHUNK_PAGES / 2);

type ChunkBins = Bins<ChunkRef, [usize; bitmap_words(64)], [List<ChunkRef>; 64]>;
const _: () = assert!(ChunkBins::holds(CHUNK_PAGES));

/// The part of a fresh large block that has to be cleared where zeroes are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stale {
    /// All of it, or nothing.
    Whole(Contents),
    /// Some pages, by their numbers in the chunk; the block begins with page `first`.
    Pages { unknown: PageBits, first: usize },
}

impl Stale {
    /// The ranges of bytes to clear, in a block of `bytes`.
    pub(crate) fn ranges(self, bytes: usize) -> impl Iterator<Item = Range<usize>> {
        let (whole, pages, first) = match self {
            Self::Whole(Contents::Zeroed) => (None, PageBits::NONE, 0),
            Self::Whole(Contents::Unknown) => (Some(0..bytes), PageBits::NONE, 0),
            Self::Pages { unknown, first } => (None, unknown, first),
        };
        let offset = move |page: usize| (Pages(page - first).bytes()).min(bytes);
        whole.into_iter().chain(pages.runs().map(move |run| offset(run.start)..offset(run.end)))
    }
}

/// The page heap's data, guarded by one lock.
pub(crate) struct PageHeap {
    pub(crate) meta: Meta,
    pub(crate) bins: ChunkBins,
    pub(crate) all: List<ChunkRef>,
    pub(crate) with_dirty: Fifo<ChunkRef>,
    /// Huge blocks in use.
    pub(crate) huge: List<SpanRef>,
    /// Mappings of freed huge blocks, kept under the cap.
    pub(crate) idle: Fifo<SpanRef>,
    pub(crate) counts: Counts,
    pub(crate) keep: Keep,
    pub(crate) scarcity: Scarcity,
}

/// What the page heap holds, in pages (or blocks, or chunks).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) mapped: usize,
    pub(crate) peak: usize,
    pub(crate) live: usize,
    pub(crate) dirty: usize,
    /// Live pages in spans of objects smaller than a page.
    pub(crate) dense: usize,
    pub(crate) empty: usize,
    pub(crate) idle: usize,
    pub(crate) large_blocks: usize,
    pub(crate) large: usize,
    pub(crate) huge_blocks: usize,
    pub(crate) huge: usize,
}

/// Tables for the page map, out of the pool, for whoever is inside the page heap.
struct PoolTables<'a, S> {
    meta: RefCell<&'a mut Meta>,
    source: &'a Counted<S>,
}

impl<S: PageSource> Tables for PoolTables<'_, S> {
    fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.meta.try_borrow_mut().ok()?.table(self.source, bytes)
    }
}

/// Makes the page map say `entry` for a span of a chunk: for each page of a class span, for the first of a large block.
fn set_entries(map: &impl PageMap, span: SpanRef, entry: Entry) {
    let run = span.run();
    let named = span.class().map_or(1, |_| run.pages.0);
    for page in 0..named {
        let is_set = map.set(run.start.addr().get() + Pages(page).bytes(), entry);
        debug_assert!(is_set, "a chunk's entries are reserved when it is mapped");
    }
}

fn dense_pages(class: SizeClass, run: PageRun) -> usize {
    if class.size() < PAGE_SIZE { run.pages.0 } else { 0 }
}

impl PageHeap {
    pub(crate) const fn new(meta_block: Pages) -> Self {
        Self {
            meta: Meta::new(meta_block),
            bins: ChunkBins::EMPTY,
            all: List::EMPTY,
            with_dirty: Fifo::EMPTY,
            huge: List::EMPTY,
            idle: Fifo::EMPTY,
            counts: Counts {
                mapped: 0,
                peak: 0,
                live: 0,
                dirty: 0,
                dense: 0,
                empty: 0,
                idle: 0,
                large_blocks: 0,
                large: 0,
                huge_blocks: 0,
                huge: 0,
            },
            keep: Keep::NEW,
            scarcity: Scarcity::NONE,
        }
    }

    /// A run of at most [`LARGEST_RUN`] for `kind`, at a multiple of `align` bytes, in the page map, and what it holds.
    pub(crate) fn take<P: Platform>(
        &mut self,
        ground: &Ground<P>,
        kind: Kind,
        pages: Pages,
        align: usize,
    ) -> Option<(SpanRef, Stale)> {
        let align = align.div_ceil(PAGE_SIZE).max(1);
        let span = self.meta.span(&ground.source)?;
        let Some((chunk, first)) = self.find(ground, pages, align) else {
            self.meta.free_span(span);
            return None;
        };
        let unknown = self.take_pages(chunk, first, pages);
        let run = chunk.run(first..first + pages.0);
        span.describe(kind, run, run.start);
        span.contents.set(if unknown.is_empty() { Contents::Zeroed } else { Contents::Unknown });
        span.chunk.set(Some(chunk));
        self.enter(ground, span);
        self.slim(ground);
        Some((span, Stale::Pages { unknown, first }))
    }

    /// Puts a span into the page map and the counts.
    fn enter<P: Platform>(&mut self, ground: &Ground<P>, span: SpanRef) {
        set_entries(&ground.map, span, Entry::new(span));
        let run = span.run();
        match span.class() {
            Some(class) => self.counts.dense += dense_pages(class, run),
            None => {
                self.counts.large_blocks += 1;
                self.counts.large += run.pages.0;
            }
        }
    }

    /// Takes a span of a chunk back, of which `touched` pages were written.
    pub(crate) fn give<P: Platform>(&mut self, ground: &Ground<P>, span: SpanRef, touched: Pages) {
        set_entries(&ground.map, span, Entry::NONE);
        let (run, chunk) = (span.run(), span.chunk.get());
        match span.class() {
            Some(class) => self.counts.dense -= dense_pages(class, run),
            None => {
                self.counts.large_blocks -= 1;
                self.counts.large -= run.pages.0;
            }
        }
        self.meta.free_span(span);
        if let Some(chunk) = chunk {
            self.give_pages(chunk, run, touched);
        }
        self.note_returned(ground, run.pages);
        self.give_back_over_cap(ground);
    }

    /// A chunk and the number of its first page for a run: of resident pages in the fullest of the chunks that lately got some,
    /// else in the fullest chunk that has such a run at all; grows where none has.
    fn find<P: Platform>(&mut self, ground: &Ground<P>, pages: Pages, align: usize) -> Option<(ChunkRef, usize)> {
        let warm = self.with_dirty.iter(&InDirty).take(Self::WARM);
        let warm = warm.filter_map(|chunk| Some((chunk, chunk.find_dirty(pages.0, align)?)));
        if let Some(found) = warm.min_by_key(|(chunk, _)| chunk.longest()) {
            return Some(found);
        }
        // Any free run this long has an aligned place for the pages.
        let need = pages.0 + align - 1;
        let chunk = match self.bins.find(&InBin, need) {
            Some(chunk) => chunk,
            None => self.grow(ground)?,
        };
        Some((chunk, chunk.find(pages.0, align)?))
    }

    /// Chunks with resident free pages that are looked at.
    const WARM: usize = 4;

    fn grow<P: Platform>(&mut self, ground: &Ground<P>) -> Option<ChunkRef> {
        let chunk = self.meta.chunk(&ground.source)?;
        let Some(mapped) = self.map(ground, Pages(CHUNK_PAGES), CHUNK_SIZE) else {
            self.meta.free_chunk(chunk);
            return None;
        };
        chunk.describe(mapped.start, mapped.contents);
        self.all.insert(&InAll, chunk);
        self.bins.insert(&InBin, chunk);
        self.counts.empty += 1;
        self.mapped(CHUNK_PAGES);
        // What is resident because its neighbours were touched is dirty; where there is no room for that, small pages do.
        if self.is_large_and_dense() && self.counts.dirty + CHUNK_PAGES <= self.cap::<P>() {
            chunk.huge.set(ground.source.advise_huge(chunk.run(0..CHUNK_PAGES)));
        }
        Some(chunk)
    }

    /// Whether a new chunk will soon be full of objects smaller than a page, so that a huge page costs one fault and wastes
    /// nothing. Longer blocks do not count: how much of them is ever touched is their owners' business (140,000 blocks of
    /// 132 KiB of which nothing but links was written took 18 seconds of zeroing). As the heap grows by neighbours, so does
    /// one advised mapping; advice here and there would split mappings.
    fn is_large_and_dense(&self) -> bool {
        self.counts.dense >= Self::LARGE_HEAP && self.counts.dense >= self.counts.mapped / 8 * 7
    }

    /// Pages of small objects from which a heap counts as large (64 MiB).
    const LARGE_HEAP: usize = 32 * CHUNK_PAGES;

    /// Maps a run whose pages the page map and the links can name (`C2`), within the limits (`N1`).
    pub(crate) fn map<P: Platform>(&mut self, ground: &Ground<P>, pages: Pages, align: usize) -> Option<Mapped> {
        if !self.admits(ground, pages) {
            return None;
        }
        let mapped = ground.source.map(pages, align).or_else(|| {
            self.release_idle(ground);
            ground.source.map(pages, align)
        })?;
        let run = PageRun { start: mapped.start, pages };
        // Every page of a chunk gets an entry, of a longer mapping only the first.
        if fits(run.start.addr().get(), run.end()) && self.reserve(ground, run.part(Pages(0), pages.min(Pages(CHUNK_PAGES))))
        {
            return Some(mapped);
        }
        // SAFETY: just mapped, and nobody has it. A refusal leaves the run to the source.
        let _ = unsafe { ground.source.unmap(run) };
        None
    }

    /// Tables for the page map.
    pub(crate) fn tables<'a, S: PageSource>(&'a mut self, source: &'a Counted<S>) -> impl Tables + use<'a, S> {
        PoolTables { meta: RefCell::new(&mut self.meta), source }
    }

    pub(crate) fn reserve<P: Platform>(&mut self, ground: &Ground<P>, run: PageRun) -> bool {
        ground.map.reserve(run.start.addr().get(), run.pages, &self.tables(&ground.source))
    }

    fn take_pages(&mut self, chunk: ChunkRef, first: usize, pages: Pages) -> PageBits {
        if chunk.sleeps() {
            chunk.wake();
            self.counts.dirty += CHUNK_PAGES;
            self.with_dirty.insert(&InDirty, chunk);
            self.keep.wanted(CHUNK_PAGES);
        }
        self.counts.empty -= usize::from(chunk.is_empty());
        self.bins.remove(&InBin, chunk);
        let change = chunk.take(first..first + pages.0);
        if chunk.longest() > 0 {
            self.bins.insert(&InBin, chunk);
        }
        if change.dirty > 0 && chunk.dirty().is_empty() {
            self.with_dirty.remove(&InDirty, chunk);
        }
        self.counts.dirty -= change.dirty;
        self.counts.live += pages.0;
        self.keep.wanted(pages.0 - change.dirty);
        change.unknown
    }

    fn give_pages(&mut self, chunk: ChunkRef, run: PageRun, touched: Pages) {
        let was_dirty = !chunk.dirty().is_empty();
        if chunk.longest() > 0 {
            self.bins.remove(&InBin, chunk);
        }
        let change = chunk.give(chunk.numbers(run), touched);
        self.bins.insert(&InBin, chunk);
        if !was_dirty && change.dirty > 0 {
            self.with_dirty.insert(&InDirty, chunk);
        }
        self.counts.dirty += change.dirty;
        self.counts.live -= run.pages.0;
        self.counts.empty += usize::from(chunk.is_empty());
    }

    pub(crate) fn mapped(&mut self, pages: usize) {
        self.counts.mapped += pages;
        self.counts.peak = self.counts.peak.max(self.counts.mapped);
    }

    /// Makes a large block `pages` long where it stands: shorter always, longer into free pages behind it.
    pub(crate) fn resize<P: Platform>(&mut self, ground: &Ground<P>, span: SpanRef, pages: Pages) -> Result<(), ()> {
        let (run, chunk) = (span.run(), span.chunk.get().ok_or(())?);
        let numbers = chunk.numbers(run);
        if pages.0 > run.pages.0 {
            let more = numbers.end..numbers.start + pages.0;
            let free = more.end <= CHUNK_PAGES && (!chunk.live()).contains(PageBits::of(more.clone()));
            if !free || pages > LARGEST_RUN {
                return Err(());
            }
            self.take_pages(chunk, more.start, Pages(more.len()));
        } else if pages.0 < run.pages.0 {
            let tail = chunk.run(numbers.start + pages.0..numbers.end);
            self.give_pages(chunk, tail, tail.pages);
        }
        self.counts.large = self.counts.large + pages.0 - run.pages.0;
        span.set_run(PageRun { start: run.start, pages });
        self.give_back_over_cap(ground);
        Ok(())
    }

    /// Gives memory back until the dirty pages are under the cap.
    pub(crate) fn give_back_over_cap<P: Platform>(&mut self, ground: &Ground<P>) {
        if self.counts.dirty > Keep::LEAST {
            self.keep.tick(P::now_ms(), self.counts.dirty);
        }
        let cap = self.cap::<P>();
        while self.counts.dirty > cap {
            // An eighth more, so that not every free is over the cap again.
            if self.give_back_oldest(ground, self.counts.dirty - cap + MORE.max(cap / 8)) == 0 {
                break;
            }
        }
        let empty = if self.keep.churns(self.counts.live) { Self::MOST_ASLEEP } else { cap.div_ceil(CHUNK_PAGES) + 1 };
        while self.counts.empty > empty {
            let Some(chunk) = self.bins.find(&InBin, CHUNK_PAGES) else { break };
            if !self.unmap_chunk(ground, chunk) {
                break;
            }
        }
        ground.set_held(self.counts.mapped.min(2 * (self.counts.live + self.counts.dirty)));
    }

    /// Where the heap would take more than ever before: gives back free pages that did not fit.
    pub(crate) fn slim<P: Platform>(&mut self, ground: &Ground<P>) {
        ground.set_held(self.counts.mapped.min(2 * (self.counts.live + self.counts.dirty)));
        self.press(ground);
        loop {
            let wanted = self.keep.over_peak(self.counts.live, self.counts.dirty);
            let given = if wanted > 0 { self.give_back_oldest(ground, wanted) } else { 0 };
            if given == 0 {
                break;
            }
            self.keep.slimmed(given);
        }
        self.keep.note_peak(self.counts.live, self.counts.dirty);
    }

    /// Gives back the oldest idle huge mapping (or as much of it as is wanted), or dirty runs of the chunk that has had some the
    /// longest, which goes whole where it is empty. Returns pages.
    pub(crate) fn give_back_oldest<P: Platform>(&mut self, ground: &Ground<P>, wanted: usize) -> usize {
        // A refused mapping stays idle, and must not keep the chunks from their turn.
        if let Some(pages) = self.idle.oldest().map(|span| self.unmap_idle(ground, span, wanted)).filter(|pages| *pages > 0)
        {
            return pages;
        }
        let Some(chunk) = self.with_dirty.oldest() else { return 0 };
        let dirty = chunk.dirty().count();
        if chunk.is_empty() && self.keep.churns(self.counts.live) && self.put_to_sleep(ground, chunk) {
            self.keep.gave_back(dirty);
        } else if !(chunk.is_empty() && self.unmap_chunk(ground, chunk)) {
            let given = self.purge_chunk(ground, chunk, wanted);
            self.keep.gave_back(given);
            return given;
        }
        dirty
    }

    /// Gives the memory of an empty chunk back and keeps its addresses, for a heap that will want it again: then by huge pages,
    /// if the source has them, which come and go at a tenth of the price.
    fn put_to_sleep<P: Platform>(&mut self, ground: &Ground<P>, chunk: ChunkRef) -> bool {
        let (whole, dirty) = (chunk.run(0..CHUNK_PAGES), chunk.dirty().count());
        // SAFETY: no page of the chunk is live, so nobody uses it.
        if unsafe { ground.source.purge(whole) } != Purged::Zeroed {
            return false;
        }
        chunk.purged(0..CHUNK_PAGES, Contents::Zeroed);
        self.counts.dirty -= dirty;
        self.with_dirty.remove(&InDirty, chunk);
        if !chunk.huge.get() {
            chunk.huge.set(ground.source.advise_huge(whole));
        }
        true
    }

    /// Empty chunks that a heap which churns may keep the addresses of.
    const MOST_ASLEEP: usize = 64;

    /// Gives back dirty runs of a chunk, as many as make `wanted` pages. Returns pages.
    fn purge_chunk<P: Platform>(&mut self, ground: &Ground<P>, chunk: ChunkRef, wanted: usize) -> usize {
        let mut given = 0;
        for pages in chunk.dirty().runs() {
            if given >= wanted {
                break;
            }
            given += pages.len();
            // SAFETY: free pages of a chunk that this source mapped.
            let contents = match unsafe { ground.source.purge(chunk.run(pages.clone())) } {
                Purged::Zeroed => Contents::Zeroed,
                // Refused memory stays resident whatever we do: it counts as clean, or we would ask again at each free.
                Purged::Unknown | Purged::Refused => Contents::Unknown,
            };
            chunk.purged(pages, contents);
        }
        self.counts.dirty -= given;
        if chunk.dirty().is_empty() {
            self.with_dirty.remove(&InDirty, chunk);
        }
        given
    }

    fn unmap_chunk<P: Platform>(&mut self, ground: &Ground<P>, chunk: ChunkRef) -> bool {
        // SAFETY: no page of the chunk is live, so nobody uses it.
        if unsafe { ground.source.unmap(chunk.run(0..CHUNK_PAGES)) }.is_err() {
            return false;
        }
        let dirty = chunk.dirty().count();
        if dirty > 0 {
            self.with_dirty.remove(&InDirty, chunk);
        }
        self.bins.remove(&InBin, chunk);
        self.all.remove(&InAll, chunk);
        self.meta.free_chunk(chunk);
        self.counts.dirty -= dirty;
        self.counts.mapped -= CHUNK_PAGES;
        self.counts.empty -= 1;
        self.keep.gave_back(dirty);
        true
    }

    /// Unmaps what is idle: huge mappings and empty chunks. For the moment when the source has no more.
    pub(crate) fn release_idle<P: Platform>(&mut self, ground: &Ground<P>) {
        while let Some(span) = self.idle.oldest() {
            if self.unmap_idle(ground, span, usize::MAX) == 0 {
                break;
            }
        }
        while self.counts.empty > 0 {
            let Some(chunk) = self.bins.find(&InBin, CHUNK_PAGES) else { break };
            if !self.unmap_chunk(ground, chunk) {
                break;
            }
        }
    }

    /// Pages that are mapped, and those of them that are live or free and resident.
    pub(crate) fn footprint(&self) -> (usize, usize) {
        (self.counts.mapped, self.counts.live + self.counts.dirty)
    }

    /// Gives back everything that is free.
    pub(crate) fn trim<P: Platform>(&mut self, ground: &Ground<P>) {
        self.release_idle(ground);
        while let Some(chunk) = self.with_dirty.oldest() {
            self.purge_chunk(ground, chunk, usize::MAX);
        }
        self.keep.reset();
    }

    /// Gives back every mapping, live or not.
    ///
    /// # Safety
    /// Nobody uses the heap or a block of it any more.
    pub(crate) unsafe fn unmap_all<P: Platform>(&mut self, ground: &Ground<P>) {
        for chunk in self.all.iter(&InAll) {
            // SAFETY: mapped by this source, and nobody uses it, by the caller's promise.
            let _ = unsafe { ground.source.unmap(chunk.run(0..CHUNK_PAGES)) };
        }
        let idle = self.idle.iter(&InList);
        // A rescued block's descriptor lies in the run that is unmapped: the iterator has read its links by then.
        for span in self.huge.iter(&InList).chain(idle) {
            // SAFETY: as above.
            let _ = unsafe { ground.source.unmap(span.run()) };
        }
        // SAFETY: descriptors and tables go last; nobody uses them, by the caller's promise.
        unsafe { self.meta.unmap_all(&ground.source) };
    }
}
