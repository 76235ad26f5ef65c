//! What must be free, by the live blocks alone: an oracle of what a heap over regions may refuse.
//!
//! A region heap promises good fit (see `bins.rs` of the core): exact to 15 granules, then by bins, eight a doubling, of
//! which the one that a request falls in is looked at for a few blocks; some more are looked at for an alignment. What that
//! promise says must be served, must be served. Written anew here, from the words of the promise.
#![forbid(unsafe_code)]

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Range;
use freestone_core::Grain;
use std::vec::Vec;

/// Free blocks that a search looks at in the bin that a request falls in.
const PROBES: usize = 8;
/// Free blocks, from that bin on, whose own padding it looks at.
const CANDIDATES: usize = 32;

/// The free runs of a heap on which nothing is cached or queued, in the order of their addresses.
#[derive(Debug)]
pub struct Gaps<G> {
    runs: Vec<Range<usize>>,
    grain: PhantomData<G>,
}

impl<G: Grain> Gaps<G> {
    /// Between the `live` blocks in `wholes`, the parts of the regions that are for blocks.
    pub fn between(wholes: &[Range<usize>], live: impl Iterator<Item = Range<usize>>) -> Self {
        let mut live: Vec<_> = live.collect();
        live.sort_by_key(|block| block.start);
        let runs = wholes.iter().flat_map(|whole| {
            let inside = || live.iter().filter(|block| whole.contains(&block.start));
            let ends = [whole.start].into_iter().chain(inside().map(|block| block.end));
            let starts = inside().map(|block| block.start).chain([whole.end]);
            ends.zip(starts).map(|(from, to)| from..to).filter(|run| !run.is_empty())
        });
        Self { runs: runs.collect(), grain: PhantomData }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(Range::len).sum()
    }

    /// Whether a heap may say that this is its longest free block: it is as long as one in the bin of the longest.
    pub fn may_report(&self, largest: usize) -> bool {
        let bins = || self.usable().map(|run| bin(run.len() / G::GRANULE));
        let longest = self.usable().map(Range::len).max().unwrap_or(0);
        largest <= longest && bins().max().is_none_or(|last| bin(largest / G::GRANULE) == last)
    }

    /// Whether a heap that keeps its promise serves a request for a block of `layout`.
    pub fn must_serve(&self, layout: Layout) -> bool {
        let granules = G::granules(layout.size());
        if layout.align() > G::GRANULE {
            self.must_serve_aligned(granules, layout.align())
        } else {
            self.must_find(granules)
        }
    }

    /// Whether the block at `block` can become `layout`, which is longer, with what is free around it: where it is, or
    /// further left, but no further than it must, and over its old end (else contents that are not moved yet would lie in
    /// what is free).
    pub fn must_grow(&self, block: Range<usize>, layout: Layout) -> bool {
        let beside = |at: usize, left: bool| self.runs.iter().find(|run| if left { run.end == at } else { run.start == at });
        let from = beside(block.start, true).map_or(block.start, |run| run.start);
        let to = beside(block.end, false).map_or(block.end, |run| run.end);
        let bytes = crate::regions::rounded::<G>(layout);
        let start = (to - bytes).min(block.start) & !(layout.align() - 1);
        start >= from && start + bytes >= block.end
    }

    /// Runs that are long enough to be found.
    fn usable(&self) -> impl Iterator<Item = &Range<usize>> {
        self.runs.iter().filter(|run| run.len() >= G::SMALLEST)
    }

    fn must_find(&self, granules: usize) -> bool {
        let lengths = || self.usable().map(|run| run.len() / G::GRANULE);
        let in_bin = || lengths().filter(|length| bin(*length) == bin(granules));
        let in_reach = in_bin().count() <= PROBES && in_bin().any(|length| length >= granules);
        in_reach || lengths().any(|length| bin(length) > bin(granules))
    }

    /// The candidates are looked at for their own padding, then one that is long enough for any.
    fn must_serve_aligned(&self, granules: usize, align: usize) -> bool {
        let candidates = || self.usable().filter(|run| bin(run.len() / G::GRANULE) >= bin(granules));
        let fits = |run: &Range<usize>| run.start.next_multiple_of(align) + granules * G::GRANULE <= run.end;
        let in_reach = candidates().count() <= CANDIDATES && candidates().any(fits);
        in_reach || self.must_find(granules + align / G::GRANULE - 1)
    }
}

/// Which lengths are alike to a search: each by itself to 15, then eight steps a doubling.
fn bin(granules: usize) -> (u32, usize) {
    if granules < 16 { (0, granules) } else { (granules.ilog2(), granules >> (granules.ilog2() - 3)) }
}
