//! Huge blocks: mappings of their own, grown and moved by the page source, and kept for a while after they are freed.
//!
//! The second part of the page heap, under the same lock and the same cap: the pages of an idle mapping count as dirty, and the
//! oldest idle mapping goes before any chunk is purged. A new block takes the shortest idle mapping that is long enough. Where
//! the source joins mappings ([`PageSource::JOINS`]), what is too long is cut, idle neighbours become one, and only what is
//! over the cap is given back; elsewhere a mapping serves blocks that leave a quarter of it free, at most. Blocks made without
//! the lock ([`rescue`](crate::rescue)) are adopted here, and unmapped as soon as they are freed.
//!
//! Invariants: `G1` a mapping is in `huge` while its block is live and in `idle` after that, if it is kept; `G2` the page
//! map names the first page of those in `huge` only; `G3` no two idle mappings are neighbours, where the source joins them.

use crate::ground::Ground;
use crate::page_heap::{PageHeap, Stale};
use crate::page_map::{Entry, PageMap};
use crate::platform::{Contents, PageSource, Place, Platform};
use crate::span::{InList, Kind, SpanRef};
use crate::units::{PAGE_SIZE, PageRun, Pages};

impl PageHeap {
    /// A huge block: an idle mapping that is at most a quarter too long, or a new one.
    pub(crate) fn take_huge<P: Platform>(
        &mut self,
        ground: &Ground<P>,
        pages: Pages,
        align: usize,
    ) -> Option<(SpanRef, Stale)> {
        let longest = if P::Source::JOINS { usize::MAX } else { pages.0 + pages.0 / 4 };
        let fitting = |span: &SpanRef| {
            let run = span.run();
            (pages.0..=longest).contains(&run.pages.0) && run.start.addr().get().is_multiple_of(align)
        };
        let idle = self.idle.iter(&InList).filter(fitting).min_by_key(|span| span.run().pages);
        // The page map knows the first pages of mappings: of one that was cut, perhaps not yet.
        let (span, contents) = match idle.filter(|span| self.reserve(ground, span.run().part(Pages(0), Pages(1)))) {
            Some(span) => {
                self.forget_idle(span);
                self.cut(ground, span, pages);
                (span, Contents::Unknown)
            }
            None => self.map_huge(ground, pages, align)?,
        };
        let is_set = ground.map.set(span.start().addr().get(), Entry::new(span));
        debug_assert!(is_set, "reserved when it was mapped");
        self.admit_huge(span);
        self.slim(ground);
        Some((span, Stale::Whole(contents)))
    }

    /// Makes a mapping, which is in no list, `pages` long; the rest of it is idle, if that is worth it, or where there is no
    /// memory for a descriptor, given back. What the source does not take either stays the block's: it counts as live, and
    /// comes back with it.
    fn cut<P: Platform>(&mut self, ground: &Ground<P>, span: SpanRef, pages: Pages) {
        let run = span.run();
        if !P::Source::JOINS || run.pages.0 < pages.0 + Self::PIECE {
            return;
        }
        let piece = run.part(pages, Pages(run.pages.0 - pages.0));
        if let Some(rest) = self.meta.span(&ground.source) {
            rest.describe(Kind::Huge, piece, piece.start);
            rest.chunk.set(None);
            self.add_idle(rest);
        } else if !self.unmap_piece(ground, piece) {
            return;
        }
        span.set_run(run.part(Pages(0), pages));
    }

    /// Gives a mapping that is nobody's back, or where the source joins mappings, a part of one; whether the source takes it.
    fn unmap_piece<P: Platform>(&mut self, ground: &Ground<P>, piece: PageRun) -> bool {
        // SAFETY: nobody uses the pages, which are mapped by this source; parts go only where it takes parts (`JOINS`).
        if unsafe { ground.source.unmap(piece) }.is_err() {
            return false;
        }
        self.counts.mapped -= piece.pages.0;
        self.keep.gave_back(piece.pages.0);
        true
    }

    /// Pages from which a rest is worth a descriptor.
    const PIECE: usize = 16;

    /// Counts a huge (or rescued) block that is in use.
    pub(crate) fn admit_huge(&mut self, span: SpanRef) {
        let pages = span.run().pages.0;
        self.huge.insert(&InList, span);
        self.counts.live += pages;
        if span.is_rescued() {
            self.mapped(pages);
        }
        if !span.serves_class() {
            self.counts.huge += pages;
            self.counts.huge_blocks += 1;
        }
    }

    fn map_huge<P: Platform>(&mut self, ground: &Ground<P>, pages: Pages, align: usize) -> Option<(SpanRef, Contents)> {
        let span = self.meta.span(&ground.source)?;
        let Some(mapped) = self.map(ground, pages, align.max(PAGE_SIZE)) else {
            self.meta.free_span(span);
            return None;
        };
        let run = PageRun { start: mapped.start, pages };
        span.describe(Kind::Huge, run, run.start);
        span.chunk.set(None);
        self.mapped(pages.0);
        self.keep.wanted(pages.0);
        Some((span, mapped.contents))
    }

    /// Takes a huge or rescued block back.
    pub(crate) fn give_huge<P: Platform>(&mut self, ground: &Ground<P>, span: SpanRef) {
        let run = span.run();
        ground.map.set(span.start().addr().get(), Entry::NONE);
        self.huge.remove(&InList, span);
        self.counts.live -= run.pages.0;
        if !span.serves_class() {
            self.counts.huge -= run.pages.0;
            self.counts.huge_blocks -= 1;
        }
        if span.is_rescued() {
            self.counts.mapped -= run.pages.0;
            // SAFETY: a rescued block's mapping holds nothing but the block and this descriptor, which nobody names any more.
            let _ = unsafe { ground.source.unmap(run) };
            return;
        }
        if P::Source::JOINS {
            self.join_neighbours(span);
        }
        self.add_idle(span);
        if self.counts.idle > Self::MOST_IDLE
            && let Some(oldest) = self.idle.oldest()
        {
            self.unmap_idle(ground, oldest, usize::MAX);
        }
        self.note_returned(ground, run.pages);
        self.give_back_over_cap(ground);
    }

    /// Takes the idle neighbours of a mapping, which is in no list, into it.
    fn join_neighbours(&mut self, span: SpanRef) {
        let run = span.run();
        let before = self.idle.iter(&InList).find(|idle| idle.run().end() == run.start.addr().get());
        let after = self.idle.iter(&InList).find(|idle| idle.run().start.addr().get() == run.end());
        let pages = |neighbour: Option<SpanRef>| neighbour.map_or(0, |idle| idle.run().pages.0);
        let start = before.map_or(run.start, |idle| idle.run().start);
        span.set_run(PageRun { start, pages: Pages(pages(before) + run.pages.0 + pages(after)) });
        for neighbour in before.into_iter().chain(after) {
            self.forget_idle(neighbour);
            self.meta.free_span(neighbour);
        }
    }

    fn add_idle(&mut self, span: SpanRef) {
        self.idle.insert(&InList, span);
        self.counts.idle += 1;
        self.counts.dirty += span.run().pages.0;
    }

    /// Idle huge mappings at most: each search looks at all of them.
    const MOST_IDLE: usize = 32;

    /// Makes a huge block `pages` long through the source, moved if it must and may be; contents are kept.
    pub(crate) fn remap_huge<P: Platform>(
        &mut self,
        ground: &Ground<P>,
        span: SpanRef,
        pages: Pages,
        place: Place,
    ) -> Result<(), ()> {
        let more = Pages(pages.0.saturating_sub(span.run().pages.0));
        if span.kind.get() != Kind::Huge
            || !self.admits(ground, more)
            || !ground.map.prepare_move(&self.tables(&ground.source))
        {
            return Err(());
        }
        let (old, entry) = (span.run(), Entry::new(span));
        ground.map.set(old.start.addr().get(), Entry::NONE);
        // SAFETY: the run is a whole mapping of this source, or where that joins mappings perhaps a part of one (`cut`) or several
        // (`join_neighbours`), as it may be there; its owner is the caller, who resizes it.
        let moved = unsafe { ground.source.remap(old, pages, place) };
        let run = moved.map_or(old, |start| PageRun { start, pages });
        let reserved = ground.map.finish_move(run.start.addr().get());
        debug_assert!(reserved, "`prepare_move` saw to it");
        ground.map.set(run.start.addr().get(), entry);
        span.set_run(run);
        let grown = |count: usize| count + run.pages.0 - old.pages.0;
        (self.counts.live, self.counts.huge) = (grown(self.counts.live), grown(self.counts.huge));
        self.counts.mapped -= old.pages.0;
        self.mapped(run.pages.0);
        self.press(ground);
        moved.map(|_| ()).ok_or(())
    }

    fn forget_idle(&mut self, span: SpanRef) {
        self.idle.remove(&InList, span);
        self.counts.idle -= 1;
        self.counts.dirty -= span.run().pages.0;
    }

    /// Unmaps an idle mapping, or where the source cuts mappings, about so many pages at its end. Returns the pages given back:
    /// none where the source refuses, which keeps the mapping idle.
    pub(crate) fn unmap_idle<P: Platform>(&mut self, ground: &Ground<P>, span: SpanRef, most: usize) -> usize {
        let run = span.run();
        let kept = run.pages.0.saturating_sub(most.saturating_add(Self::PIECE));
        let kept = if P::Source::JOINS && kept >= Self::PIECE { kept } else { 0 };
        let given = run.part(Pages(kept), Pages(run.pages.0 - kept));
        if !self.unmap_piece(ground, given) {
            return 0;
        }
        if kept > 0 {
            // What is left keeps its turn: it is as old as before.
            span.set_run(run.part(Pages(0), Pages(kept)));
            self.counts.dirty -= given.pages.0;
        } else {
            self.forget_idle(span);
            self.meta.free_span(span);
        }
        given.pages.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::row::{Home, Row};

    fn take(heap: &mut Heap<Home>, pages: usize) -> SpanRef {
        let (page_heap, ground) = heap.spans.back.pages_mut();
        page_heap.take_huge(ground, Pages(pages), PAGE_SIZE).expect("a huge block").0
    }

    fn give(heap: &mut Heap<Home>, span: SpanRef) {
        let (page_heap, ground) = heap.spans.back.pages_mut();
        page_heap.give_huge(ground, span);
    }

    #[test]
    fn what_is_left_of_an_idle_mapping_keeps_its_turn() {
        let mut heap = Row::new().heap();
        let blocks = [200, 300, 150].map(|pages| take(&mut heap, pages));
        give(&mut heap, blocks[0]);
        give(&mut heap, blocks[2]);
        let (page_heap, ground) = heap.spans.back.pages_mut();
        assert_eq!(page_heap.idle.oldest(), Some(blocks[0]));
        for left in [134, 68] {
            assert_eq!(page_heap.unmap_idle(ground, blocks[0], 50), 66);
            assert_eq!((page_heap.idle.oldest(), blocks[0].run().pages), (Some(blocks[0]), Pages(left)));
        }
        assert_eq!((page_heap.unmap_idle(ground, blocks[0], 68), page_heap.idle.oldest()), (68, Some(blocks[2])));
        assert_eq!(heap.check(), Ok(()));
    }

    /// A heap with an idle mapping of 400 pages and a source that has no more, so that there are no more descriptors.
    fn without_descriptors(row: &'static Row) -> Heap<Home> {
        let mut heap = row.heap();
        let block = take(&mut heap, 400);
        give(&mut heap, block);
        let (page_heap, ground) = heap.spans.back.pages_mut();
        row.is_full.set(true);
        while page_heap.meta.span(&ground.source).is_some() {}
        heap
    }

    #[test]
    fn without_a_descriptor_for_the_rest_it_is_given_back() {
        let mut heap = without_descriptors(Row::new());
        assert_eq!(take(&mut heap, 300).run().pages, Pages(300));
        let counts = heap.spans.back.pages_mut().0.counts;
        assert_eq!((counts.live, counts.mapped, counts.dirty, counts.idle), (300, 300, 0, 0));
        assert_eq!(heap.check(), Ok(()));
    }

    #[test]
    fn a_rest_that_the_source_does_not_take_is_live() {
        let row = Row::new();
        let mut heap = without_descriptors(row);
        row.keeps.set(true);
        assert_eq!(take(&mut heap, 300).run().pages, Pages(400));
        assert_eq!(heap.spans.back.pages_mut().0.counts.live, 400);
        assert_eq!(heap.check(), Ok(()));
    }
}
