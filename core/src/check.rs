//! The heap checker: walks everything a heap holds and executes the numbered invariants of the files it walks through.
//!
//! For tests and for a suspicion: the time is in proportion to the heap. It needs the heap to itself.

use crate::chain::{Chain, word_block, word_count};
use crate::chunk::{ChunkRef, InAll, InBin, InDirty};
use crate::claim::CLAIMED;
use crate::heap::Heap;
use crate::page_bits::PageBits;
use crate::page_heap::PageHeap;
use crate::page_map::PageMap;
use crate::platform::{CoreLists, PageSource, Platform};
use crate::size_class::SizeClass;
use crate::slab::Slab;
use crate::span::{InList, Kind, SpanRef};
use crate::sync::LinkCell;
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use crate::units::{CHUNK_PAGES, Pages};
use core::fmt;
use core::ptr::NonNull;

/// A broken invariant, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The invariant's number and what it says.
    pub invariant: &'static str,
    /// An address in the part that is broken, or 0.
    pub address: usize,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken near {:#x}: {}", self.address, self.invariant)
    }
}

pub(crate) fn ensure(holds: bool, invariant: &'static str, address: usize) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { invariant, address }) }
}

pub(crate) fn no_fault(broken: Option<&'static str>, address: usize) -> Result<(), Broken> {
    broken.map_or(Ok(()), |invariant| Err(Broken { invariant, address }))
}

impl<P: Platform> Heap<P> {
    /// Checks every invariant. `&mut` is the proof that nobody else is in the heap.
    pub fn check(&mut self) -> Result<(), Broken> {
        // SAFETY: `&mut self`.
        unsafe { self.check_quiescent() }
    }

    /// As [`check`](Self::check), for a heap in a `static`.
    ///
    /// # Safety
    /// No other context uses the heap during the call.
    pub unsafe fn check_quiescent(&self) -> Result<(), Broken> {
        let (mut found, mut shelved) = (Walk::default(), 0);
        if let Some(pages) = self.spans.back.pages() {
            self.check_pages(&pages, &mut found)?;
        }
        for class in SizeClass::all() {
            self.check_partial(class, &found)?;
            // SAFETY: the caller's promise.
            let cached = unsafe { self.check_cached(class)? };
            let out = self.spans.central(class).counts.out.load(Relaxed);
            ensure(out == found.out[class.index()] && cached <= out, "E1: the objects outside spans are counted", 0)?;
            shelved += self.spans.central(class).shelf.blocks() * class.size();
        }
        ensure(self.spans.shelved.load(Relaxed) == shelved, "E2: the bytes on the shelves are counted", 0)?;
        self.check_slabs()
    }

    fn check_pages(&self, pages: &PageHeap, found: &mut Walk) -> Result<(), Broken> {
        no_fault(pages.bins.broken(&InBin), 0)?;
        for chunk in pages.all.iter(&InAll) {
            self.check_chunk(chunk, found)?;
        }
        for span in pages.huge.iter(&InList) {
            let named = self.spans.back.ground.map.get(span.start().addr().get()).span();
            ensure(named == Some(span), "M1: the page map names a live block's first page", span.start().addr().get())?;
            self.check_key(span.start().addr().get())?;
            found.live += span.run().pages.0;
            found.mapped += span.run().pages.0;
        }
        for span in pages.idle.iter(&InList) {
            let named = self.spans.back.ground.map.get(span.start().addr().get()).span();
            ensure(
                named.is_none() && span.kind.get() == Kind::Huge,
                "G2: the page map names no idle mapping",
                span.start().addr().get(),
            )?;
            self.check_key(span.start().addr().get())?;
            let is_before = |other: SpanRef| other.run().start.addr().get() == span.run().end();
            let is_apart = !P::Source::JOINS || !pages.idle.iter(&InList).any(is_before);
            ensure(is_apart, "G3: no two idle mappings are neighbours", span.start().addr().get())?;
            found.idle += 1;
            found.dirty += span.run().pages.0;
            found.mapped += span.run().pages.0;
        }
        let counts = pages.counts;
        ensure(counts.idle == found.idle, "G1: idle mappings are counted", 0)?;
        ensure(counts.dirty == found.dirty, "P1: dirty pages are counted", 0)?;
        let listed = pages.with_dirty.iter(&InDirty).filter(|chunk| !chunk.dirty().is_empty()).count();
        let all_listed = pages.with_dirty.iter(&InDirty).count() == listed && listed == found.with_dirty;
        ensure(all_listed, "P2: the dirty list holds the chunks with dirty free pages", 0)?;
        ensure(pages.bins.iter(&InBin).count() == found.with_room, "P3: the bins hold the chunks with a free page", 0)?;
        ensure(counts.empty == found.empty, "P4: empty chunks are counted", 0)?;
        ensure(counts.live == found.live, "P5: live pages are counted", 0)?;
        ensure(counts.mapped == found.mapped, "P5: mapped pages are counted", 0)
    }

    fn check_chunk(&self, chunk: ChunkRef, found: &mut Walk) -> Result<(), Broken> {
        let start = chunk.run(0..1).start.addr().get();
        no_fault(chunk.broken(), start)?;
        found.mapped += CHUNK_PAGES;
        found.live += chunk.live().count();
        found.dirty += chunk.dirty().count();
        found.with_dirty += usize::from(!chunk.dirty().is_empty());
        found.empty += usize::from(chunk.is_empty());
        found.with_room += usize::from(chunk.longest() > 0);
        let mut page = 0;
        while page < CHUNK_PAGES {
            page = self.check_page(chunk, page, found)?;
        }
        (0..CHUNK_PAGES).try_for_each(|page| self.check_key(start + Pages(page).bytes()))
    }

    fn check_key(&self, address: usize) -> Result<(), Broken> {
        ensure(self.spans.back.ground.map.is_sound(address), "M4: a page's key is that of the span which has it", address)
    }

    /// Checks the span that begins at `page`, or the free page there; returns the page behind it.
    fn check_page(&self, chunk: ChunkRef, page: usize, found: &mut Walk) -> Result<usize, Broken> {
        let (map, run) = (&self.spans.back.ground.map, chunk.run(page..page + 1));
        let address = run.start.addr().get();
        let entry = map.get(address);
        let is_live = chunk.live().runs().any(|live| live.contains(&page));
        let Some(span) = entry.span() else {
            ensure(!is_live, "P6: a live page belongs to a span", address)?;
            return Ok(page + 1);
        };
        let numbers = chunk.numbers(span.run());
        let covers = is_live && numbers.start == page && chunk.live().contains(PageBits::of(numbers.clone()));
        ensure(covers && span.chunk.get() == Some(chunk), "P6: a span covers live pages of its chunk", address)?;
        ensure(entry.class() == span.class(), "M1: the page map names a span's class", address)?;
        for inside in 1..span.run().pages.0 {
            let named = map.get(address + Pages(inside).bytes()).span();
            let expected = span.class().map(|_| span);
            ensure(
                named == expected,
                "M1: the page map names each page of a class span, and the first of a block",
                address,
            )?;
        }
        if let Some(class) = span.class() {
            no_fault(span.broken(class), address)?;
            found.out[class.index()] += span.out();
            found.partial[class.index()] += usize::from(span.has_object(class));
        }
        Ok(numbers.end)
    }

    fn check_partial(&self, class: SizeClass, found: &Walk) -> Result<(), Broken> {
        let Some(partial) = self.spans.central(class).partial.enter_while(|| true) else { return Ok(()) };
        let belongs = |span: &SpanRef| span.class() == Some(class) && span.has_object(class);
        let listed = partial.iter().filter(belongs).count();
        let complete = listed == partial.iter().count() && listed == found.partial[class.index()];
        ensure(complete, "S5: the partial lists hold the spans that have an object", 0)?;
        ensure(partial.is_filed(class), "S6: a partial span is in the list that its number of objects names", 0)
    }

    /// Walks the class's chains in core lists and on the shelf; returns the objects of spans among their blocks.
    ///
    /// # Safety
    /// No other context uses the heap.
    unsafe fn check_cached(&self, class: SizeClass) -> Result<usize, Broken> {
        let lists = &self.cache.lists;
        let heads = (0..lists.cores()).filter_map(|core| Some(lists.slab(core)?.slot(class).head.load(Acquire)));
        let mut blocks = 0;
        for word in heads.chain(self.spans.central(class).shelf.words()) {
            let mut word = if word == CLAIMED { 0 } else { word };
            while let Some(block) = word_block(word) {
                blocks += usize::from(self.check_block(class, block)? == Cached::Object);
                // SAFETY: a block in a list starts with its link, and nobody else is in the heap.
                let next = unsafe { block.cast::<LinkCell>().as_ref().get() };
                let counts_down = word_count(next) + 1 == word_count(word);
                ensure(counts_down, "C1: a word's count is the number of blocks reached from it", block.addr().get())?;
                word = next;
            }
            ensure(word == Chain::EMPTY.into_word(), "C1: a chain ends in the empty word", word)?;
        }
        Ok(blocks)
    }

    fn check_block(&self, class: SizeClass, block: NonNull<u8>) -> Result<Cached, Broken> {
        let address = block.addr().get();
        let span = self.spans.back.ground.map.get(address).span();
        let cached = span.and_then(|span| match span.class() {
            Some(found) => (found == class && span.is_free(class, address) == Some(false)).then_some(Cached::Object),
            None => (span.is_rescued() && span.start() == block).then_some(Cached::Rescued),
        });
        cached.ok_or(Broken { invariant: "F2: a cached block is of its list's class, and out of its span", address })
    }

    fn check_slabs(&self) -> Result<(), Broken> {
        let lists = &self.cache.lists;
        let allotted = |slab: &Slab<SizeClass>| {
            SizeClass::all().map(|c| usize::from(slab.slot(c).limit.load(Relaxed)) * c.size()).sum::<usize>()
        };
        let sound =
            |slab: &Slab<SizeClass>| slab.allotted.load(Relaxed) == allotted(slab) && allotted(slab) <= P::CORE_BUDGET;
        let all = (0..lists.cores()).filter_map(|core| lists.slab(core)).all(sound);
        ensure(all, "F1: a core's lists together stay within its budget", 0)
    }
}

/// What a cached block is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cached {
    /// An object of a span.
    Object,
    /// Made for an interrupt, and freed by its layout since.
    Rescued,
}

/// What the walk through the chunks has met.
struct Walk {
    mapped: usize,
    live: usize,
    dirty: usize,
    with_dirty: usize,
    empty: usize,
    with_room: usize,
    idle: usize,
    out: [usize; SizeClass::INDEXES],
    partial: [usize; SizeClass::INDEXES],
}

impl Default for Walk {
    fn default() -> Self {
        let none = [0; SizeClass::INDEXES];
        Self { mapped: 0, live: 0, dirty: 0, with_dirty: 0, empty: 0, with_room: 0, idle: 0, out: none, partial: none }
    }
}

/// Each invariant is broken by hand once, and must be named.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_map::Entry;
    use crate::row::{Home, Row};
    use crate::units::{PAGE_SIZE, PageRun};
    use core::alloc::Layout;

    const CLASS: SizeClass = SizeClass::of(100, 1).unwrap();

    /// A heap with something in every part: cached and live objects, a run, dirty pages, a huge block and an idle mapping.
    fn furnished() -> Heap<Home> {
        let row = Row::new();
        row.keeps.set(true);
        let heap = row.heap();
        for (size, keep) in [(100, true), (100, false), (400_000, true), (300_000, false), (3 << 20, true), (3 << 19, false)]
        {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let block = heap.allocate(layout).unwrap();
            if !keep {
                // SAFETY: allocated a line above, with that layout.
                unsafe { heap.deallocate(block, layout) };
            }
        }
        heap
    }

    /// What the checker says after `breach`: the number of an invariant.
    fn named_after(breach: impl FnOnce(&mut Heap<Home>)) -> &'static str {
        let mut heap = furnished();
        assert_eq!(heap.check(), Ok(()));
        breach(&mut heap);
        heap.check().expect_err("the breach is not seen").invariant.split(':').next().unwrap_or_default()
    }

    fn pages(heap: &mut Heap<Home>) -> &mut PageHeap {
        heap.spans.back.pages_mut().0
    }

    #[test]
    fn counts_that_are_off_are_named() {
        assert_eq!(named_after(|heap| pages(heap).counts.dirty += 1), "P1");
        assert_eq!(named_after(|heap| pages(heap).counts.empty += 1), "P4");
        assert_eq!(named_after(|heap| pages(heap).counts.live += 1), "P5");
        assert_eq!(named_after(|heap| pages(heap).counts.mapped += 1), "P5");
        assert_eq!(named_after(|heap| pages(heap).counts.idle += 1), "G1");
        assert_eq!(named_after(|heap| _ = heap.spans.central(CLASS).counts.out.fetch_add(1, Relaxed)), "E1");
        let misallot = |heap: &mut Heap<Home>| {
            heap.cache.lists.slab(0).unwrap().allotted.fetch_add(1, Relaxed);
        };
        assert_eq!(named_after(misallot), "F1");
    }

    #[test]
    fn bytes_on_shelves_are_counted() {
        let layout = Layout::from_size_align(CLASS.size(), 1).unwrap();
        let shelve = |heap: &mut Heap<Home>| {
            for block in [(); 1000].map(|()| heap.allocate(layout).unwrap()) {
                // SAFETY: allocated above, with that layout.
                unsafe { heap.deallocate(block, layout) };
            }
            assert!(heap.spans.central(CLASS).shelf.blocks() > 0, "nothing is shelved: the test tests nothing");
            assert_eq!(heap.check(), Ok(()));
        };
        let miscount = |heap: &mut Heap<Home>| {
            shelve(heap);
            heap.spans.shelved.fetch_sub(CLASS.size(), Relaxed);
        };
        assert_eq!(named_after(miscount), "E2");
    }

    #[test]
    fn what_is_missing_in_a_list_is_named() {
        let unlist_dirty = |heap: &mut Heap<Home>| {
            let pages = pages(heap);
            let chunk = pages.with_dirty.oldest().unwrap();
            pages.with_dirty.remove(&InDirty, chunk);
        };
        let unfile = |heap: &mut Heap<Home>| {
            let pages = pages(heap);
            let chunk = pages.all.first().unwrap();
            pages.bins.remove(&InBin, chunk);
        };
        let unlist_span = |heap: &mut Heap<Home>| {
            let mut partial = heap.spans.central(CLASS).partial.enter_while(|| true).unwrap();
            let span = partial.fullest().unwrap();
            partial.remove(span);
        };
        assert_eq!(named_after(unlist_dirty), "P2");
        assert_eq!(named_after(unfile), "P3");
        assert_eq!(named_after(unlist_span), "S5");
    }

    #[test]
    fn entries_that_are_wrong_are_named() {
        let set = |heap: &mut Heap<Home>, page: usize, entry: Entry| {
            let span = heap.spans.central(CLASS).partial.enter_while(|| true).unwrap().fullest().unwrap();
            assert!(heap.spans.back.ground.map.set(span.start().addr().get() + page * PAGE_SIZE, entry));
        };
        assert_eq!(named_after(|heap| set(heap, 0, Entry::NONE)), "P6");
        assert_eq!(named_after(|heap| set(heap, 1, Entry::NONE)), "M1");
        let forget_huge = |heap: &mut Heap<Home>| {
            let span = pages(heap).huge.first().unwrap();
            assert!(heap.spans.back.ground.map.set(span.start().addr().get(), Entry::NONE));
        };
        let name_idle = |heap: &mut Heap<Home>| {
            let span = pages(heap).idle.oldest().unwrap();
            assert!(heap.spans.back.ground.map.set(span.start().addr().get(), Entry::new(span)));
        };
        assert_eq!(named_after(forget_huge), "M1");
        assert_eq!(named_after(name_idle), "G2");
    }

    #[test]
    fn keys_without_a_span_are_named() {
        let leave_key = |heap: &mut Heap<Home>, at: fn(&mut Heap<Home>) -> PageRun| {
            let span = heap.spans.central(CLASS).partial.enter_while(|| true).unwrap().fullest().unwrap();
            let address = at(heap).start.addr().get();
            let map = &heap.spans.back.ground.map;
            let entry = map.get(address);
            assert!(map.set(address, Entry::new(span)) && map.behind().set(address, entry));
        };
        let free = |heap: &mut Heap<Home>| {
            let chunk = pages(heap).all.first().unwrap();
            let free = (!chunk.live()).runs().next().unwrap();
            chunk.run(free)
        };
        assert_eq!(named_after(|heap| leave_key(heap, free)), "M4");
        assert_eq!(named_after(|heap| leave_key(heap, |heap| pages(heap).huge.first().unwrap().run())), "M4");
        assert_eq!(named_after(|heap| leave_key(heap, |heap| pages(heap).idle.oldest().unwrap().run())), "M4");
        let wrong_key = |heap: &mut Heap<Home>| {
            let span = heap.spans.central(CLASS).partial.enter_while(|| true).unwrap().fullest().unwrap();
            let (run, map) = (span.run(), &heap.spans.back.ground.map);
            let last = run.part(Pages(run.pages.0 - 1), Pages(1)).start.addr().get();
            let entry = map.get(last);
            span.kind.set(Kind::Objects(SizeClass::of(200, 1).unwrap()));
            assert!(map.set(last, Entry::new(span)) && map.behind().set(last, entry));
            span.kind.set(Kind::Objects(CLASS));
        };
        assert_eq!(named_after(wrong_key), "M4");
    }

    #[test]
    fn idle_neighbours_are_named() {
        let split_idle = |heap: &mut Heap<Home>| {
            let (pages, ground) = heap.spans.back.pages_mut();
            let (idle, rest) = (pages.idle.oldest().unwrap(), pages.meta.span(&ground.source).unwrap());
            let run = idle.run();
            let piece = run.part(Pages(100), Pages(run.pages.0 - 100));
            rest.describe(Kind::Huge, piece, piece.start);
            idle.set_run(run.part(Pages(0), Pages(100)));
            pages.idle.insert(&InList, rest);
            pages.counts.idle += 1;
        };
        assert_eq!(named_after(split_idle), "G3");
    }
}
