//! Blocks of a region: the words inside free ones, the boundary bitmap, and the token that a free block is.
//!
//! The only file that reads or writes the granules of a region (but for the links of cached and queued blocks: `chain`).
//! `carve` decides (find, split, join) and calls it.
//!
//! ```text
//!   a free block of n granules (slots as wide as an index)            a live block holds nothing of the heap's
//!   ┌──────┬──────┬──────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┬──────┐
//!   │ n    │ next │ prev │                               │ n    │      the shortest: 4 slots, the last of which is the second n
//!   └──────┴──────┴──────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┴──────┘
//!
//!   granule        0  1  2  3  4  5  6  7  8  9        the bitmap: set on the first and on the last granule of each free
//! block,
//!   blocks            [live ][free      ][l][f]        clear everywhere else; "is my neighbour free?" is one bit
//!   boundary bit   0  0  0  0  1  0  0  1  0  1  0
//! ```
//!
//! A block's length is what its layout says, so every remainder is a block, and nothing is kept beside a live one. A remainder
//! that is shorter than four slots (one granule of a `Fine` heap) is marked and has its two lengths, but is in no bin: its
//! neighbour takes it in when it is freed.
//!
//! Invariants: `R1` the boundary bits are those of the free blocks; `R2` both lengths of a free block say how long it is;
//! `R3` no two free blocks touch; `R4` free blocks lie inside the region; `R5` the free granules are counted; `R6` a free
//! block of four slots or more is in the bin of its length.
//!
//! Provenance: every pointer into a region is derived from the pointer by which the region came in (`origin` and the control
//! block's own address are), at an offset that is computed from granule numbers. What a caller hands in on a free is only
//! asked for its address: what the heap does to the block later, it does through the region's pointer.

use crate::bins::Pieces;
use crate::grain::{Grain, Index};
use crate::list::Linked;
use core::marker::PhantomData;
use core::ptr::NonNull;

const BITS: usize = usize::BITS as usize;

/// A free block that the holder owns: marked, with both its lengths, and in no bin.
#[must_use = "a free block that is dropped is lost to the heap"]
#[derive(Debug)]
pub(crate) struct FreeBlock {
    start: usize,
    granules: usize,
}

impl FreeBlock {
    /// The number of its first granule.
    #[inline(always)]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Its length.
    #[inline(always)]
    pub(crate) fn granules(&self) -> usize {
        self.granules
    }

    /// The number of the granule behind it.
    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        self.start + self.granules
    }
}

/// A run of granules that the holder owns: not marked, and without lengths. What a live block is to the heap.
#[must_use = "granules that are dropped are lost to the heap"]
#[derive(Debug)]
pub(crate) struct Granulated {
    pub(crate) start: usize,
    pub(crate) granules: usize,
}

/// The blocks of one region. A handle: who has it mutably, works on them.
#[derive(Debug)]
pub(crate) struct Blocks<G> {
    /// Where granule 0 would be.
    origin: *mut u8,
    bits: *mut usize,
    grain: PhantomData<G>,
}

// By hand: a derive would ask it of `G`.
impl<G> Clone for Blocks<G> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<G> Copy for Blocks<G> {}

/// Slots of a free block.
const LENGTH: usize = 0;
const NEXT: usize = 1;
const PREV: usize = 2;

impl<G: Grain> Blocks<G> {
    /// # Safety
    /// The granules from 1 on that lie at `origin` and the bits of those at `bits`, and of granule 0 and the one behind the
    /// last, are the caller's for as long as the handle is used, and satisfy `R1` and `R2`.
    #[inline(always)]
    pub(crate) unsafe fn new(origin: *mut u8, bits: *mut usize) -> Self {
        Self { origin, bits, grain: PhantomData }
    }

    /// The first byte of a granule.
    #[inline(always)]
    pub(crate) fn at(&self, granule: usize) -> *mut u8 {
        self.origin.wrapping_byte_add(granule << G::SHIFT)
    }

    /// The granule that begins at `ptr`, any number where none does.
    #[inline(always)]
    pub(crate) fn granule_at(&self, ptr: NonNull<u8>) -> usize {
        ptr.addr().get().wrapping_sub(self.origin.addr()) >> G::SHIFT
    }

    /// Whether a granule is the first or the last of a free block.
    #[inline(always)]
    pub(crate) fn is_marked(&self, granule: usize) -> bool {
        // SAFETY: the granule's bit is there (contract of `new`; callers ask for granules from 0 to the one behind the last).
        unsafe { *self.bits.add(granule / BITS) >> (granule % BITS) & 1 == 1 }
    }

    #[inline(always)]
    fn mark(&self, granule: usize) {
        // SAFETY: as for `is_marked`.
        unsafe { *self.bits.add(granule / BITS) |= 1 << (granule % BITS) }
    }

    #[inline(always)]
    fn unmark(&self, granule: usize) {
        // SAFETY: as for `is_marked`.
        unsafe { *self.bits.add(granule / BITS) &= !(1 << (granule % BITS)) }
    }

    /// The free block that begins at `start`, out of its bin by now.
    #[inline(always)]
    pub(crate) fn claim(&self, start: G::Index) -> FreeBlock {
        FreeBlock { start: start.get(), granules: self.units(start) }
    }

    /// The free block that ends right before `granule`, if there is one; it may be in a bin.
    #[inline(always)]
    pub(crate) fn left_of(&self, granule: usize) -> Option<FreeBlock> {
        self.is_marked(granule - 1).then(|| {
            let granules = self.last_length(granule);
            FreeBlock { start: granule - granules, granules }
        })
    }

    /// The free block that begins at `granule`, if there is one; it may be in a bin.
    #[inline(always)]
    pub(crate) fn right_of(&self, granule: usize) -> Option<FreeBlock> {
        self.is_marked(granule).then(|| FreeBlock { start: granule, granules: self.length(granule) })
    }

    /// Takes `granules` from the block's front (there are as many); the rest stays a free block.
    #[inline(always)]
    pub(crate) fn cut(&self, block: FreeBlock, granules: usize) -> (Granulated, Option<FreeBlock>) {
        let (start, end, cut) = (block.start, block.end(), block.start + granules);
        self.unmark(start);
        if cut == end {
            self.unmark(end - 1);
            return (Granulated { start, granules }, None);
        }
        self.mark(cut);
        (Granulated { start, granules }, Some(self.sized(cut, end - cut)))
    }

    /// Cuts `granules` (fewer than there are) off the block's front; both stay free blocks.
    pub(crate) fn part(&self, block: FreeBlock, granules: usize) -> (FreeBlock, FreeBlock) {
        let cut = block.start + granules;
        self.mark(cut - 1);
        self.mark(cut);
        (self.sized(block.start, granules), self.sized(cut, block.granules - granules))
    }

    /// Makes a free block of a run without free neighbours.
    #[inline(always)]
    pub(crate) fn release(&self, run: Granulated) -> FreeBlock {
        self.mark(run.start);
        self.mark(run.start + run.granules - 1);
        self.sized(run.start, run.granules)
    }

    /// Makes one free block of a run and the free block to its left.
    #[inline(always)]
    pub(crate) fn join_left(&self, left: &FreeBlock, run: Granulated) -> FreeBlock {
        self.unmark_end(left);
        self.mark(run.start + run.granules - 1);
        self.sized(left.start, left.granules + run.granules)
    }

    /// Makes one free block of a run and the free block to its right.
    #[inline(always)]
    pub(crate) fn join_right(&self, run: Granulated, right: &FreeBlock) -> FreeBlock {
        self.mark(run.start);
        self.unmark_start(right);
        self.sized(run.start, run.granules + right.granules)
    }

    /// Makes one free block of a run and the free blocks on both sides.
    #[inline(always)]
    pub(crate) fn join_both(&self, left: &FreeBlock, run: Granulated, right: &FreeBlock) -> FreeBlock {
        self.unmark_end(left);
        self.unmark_start(right);
        self.sized(left.start, left.granules + run.granules + right.granules)
    }

    /// Takes the mark off the last granule, which is inside of a longer block now, unless it is the first as well.
    #[inline(always)]
    fn unmark_end(&self, block: &FreeBlock) {
        if block.granules > 1 {
            self.unmark(block.end() - 1);
        }
    }

    /// Takes the mark off the first granule, unless it is the last as well.
    #[inline(always)]
    fn unmark_start(&self, block: &FreeBlock) {
        if block.granules > 1 {
            self.unmark(block.start);
        }
    }

    /// Takes the marks off a block.
    pub(crate) fn unmarked(&self, block: FreeBlock) -> Granulated {
        self.unmark(block.start);
        self.unmark(block.end() - 1);
        Granulated { start: block.start, granules: block.granules }
    }

    /// Writes both lengths.
    #[inline(always)]
    fn sized(&self, start: usize, granules: usize) -> FreeBlock {
        let length = G::Index::new(granules);
        // SAFETY: the block is free and the caller's, and has a slot at either end.
        unsafe {
            self.slot(start, LENGTH).write(length);
            self.behind(start + granules).write(length);
        }
        FreeBlock { start, granules }
    }

    #[inline(always)]
    fn length(&self, start: usize) -> usize {
        // SAFETY: a free block begins there, whose first slot is its length (R2).
        unsafe { self.slot(start, LENGTH).read() }.map_or(0, Index::get)
    }

    /// The length of the free block that ends right before `granule`.
    #[inline(always)]
    fn last_length(&self, granule: usize) -> usize {
        // SAFETY: a free block ends there, whose last slot is its length (R2).
        unsafe { self.behind(granule).read() }.map_or(0, Index::get)
    }

    #[inline(always)]
    fn slot(&self, granule: usize, slot: usize) -> *mut Option<G::Index> {
        self.at(granule).cast::<Option<G::Index>>().wrapping_add(slot)
    }

    /// The last slot before `granule`.
    #[inline(always)]
    fn behind(&self, granule: usize) -> *mut Option<G::Index> {
        self.at(granule).cast::<Option<G::Index>>().wrapping_sub(1)
    }
}

impl<G: Grain> Linked for Blocks<G> {
    type Id = G::Index;

    #[inline(always)]
    fn prev(&self, id: G::Index) -> Option<G::Index> {
        // SAFETY: `id` is in a bin or about to be: a free block of at least four slots, which is the handle's holder's.
        unsafe { self.slot(id.get(), PREV).read() }
    }

    #[inline(always)]
    fn next(&self, id: G::Index) -> Option<G::Index> {
        // SAFETY: as for `prev`.
        unsafe { self.slot(id.get(), NEXT).read() }
    }

    #[inline(always)]
    fn set_prev(&self, id: G::Index, prev: Option<G::Index>) {
        // SAFETY: as for `prev`.
        unsafe { self.slot(id.get(), PREV).write(prev) }
    }

    #[inline(always)]
    fn set_next(&self, id: G::Index, next: Option<G::Index>) {
        // SAFETY: as for `prev`.
        unsafe { self.slot(id.get(), NEXT).write(next) }
    }
}

impl<G: Grain> Pieces for Blocks<G> {
    #[inline(always)]
    fn units(&self, id: G::Index) -> usize {
        self.length(id.get())
    }
}

/// For the checker.
impl<G: Grain> Blocks<G> {
    /// Whether both lengths of the free block at `start` are equal (`R2`), given that it ends before `end`.
    pub(crate) fn lengths_agree(&self, start: usize, end: usize) -> bool {
        let granules = self.length(start);
        granules > 0 && granules <= end - start && self.last_length(start + granules) == granules
    }
}

/// For tests that plant a breach.
#[cfg(test)]
impl<G: Grain> Blocks<G> {
    pub(crate) fn flip_mark(&self, granule: usize) {
        if self.is_marked(granule) { self.unmark(granule) } else { self.mark(granule) }
    }

    pub(crate) fn flip_length(&self, start: usize) {
        // SAFETY: a free block begins there.
        unsafe { self.slot(start, LENGTH).write(G::Index::new(self.length(start) ^ 1)) }
    }
}
