//! Carving one region: find, split, join, grow in place.
//!
//! `block_heap` calls it with the region that a block belongs to; it calls [`bins`](crate::bins) and `block`.
//!
//! Everything is reached from the control block, which lies at the region's start: bins, then the boundary bitmap, then the
//! blocks (the drawing is in `region.rs`).
//!
//! - **take**: the newest block of the floor bin if it fits, else one of the first bin above, else one of eight of the floor
//!   bin
//!   (good fit, see `bins`). The front is handed out; the rest goes to its bin, or takes its old place where that is the same.
//! - **give**: a look at two boundary bits says which neighbours are free; they join at once.
//! - **resize**: shrinking gives the tail back; growing takes from a free right neighbour.
//! - **alignment** above the granule takes the front padding as a block of its own, so nothing is wasted; a few candidates are
//!   looked at, then a block that is long enough for any padding.
//!
//! After boundary tags (Knuth, 1.2.5) and two-level segregated fit (Masmano et al., 2004); the tags of live blocks are a
//! bitmap here.

use crate::bins::{Bins, bin_of};
use crate::block::{Blocks, FreeBlock, Granulated};
use crate::fault::FaultKind;
use crate::grain::{Grain, Index};
use crate::region::{Placement, Region, RegionError};
use core::ptr::NonNull;

/// A region's own data, at its start. The boundary bitmap follows it.
#[repr(C)]
pub(crate) struct Control<G: Grain> {
    pub(crate) bins: Bins<G::Index, G::Words, G::Lists>,
    /// Where granule 0 would be.
    origin: *mut u8,
    pub(crate) next: Option<RegionRef<G>>,
    /// The granule behind the last.
    pub(crate) end: u32,
    /// What `end` may become.
    most: u32,
    /// Free granules, and the fewest there ever were.
    pub(crate) free: u32,
    least_free: u32,
}

/// A region that is in a heap.
pub(crate) struct RegionRef<G: Grain>(NonNull<Control<G>>);

impl<G: Grain> Clone for RegionRef<G> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<G: Grain> Copy for RegionRef<G> {}

/// Figures of the regions of a heap, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockStats {
    /// Regions.
    pub regions: usize,
    /// For blocks, in all.
    pub held_bytes: usize,
    /// Free.
    pub free_bytes: usize,
    /// The fewest that were ever free, region by region.
    pub least_free_bytes: usize,
    /// A free block of at least this length exists.
    pub largest_free: usize,
}

impl<G: Grain> RegionRef<G> {
    /// # Safety
    /// The region's memory is the heap's, and `placement` is where its parts go.
    pub(crate) unsafe fn create(region: Region, placement: Placement) -> Self {
        let Placement { control, words, first, granules, most } = placement;
        let at = region.start.wrapping_byte_add(control);
        // SAFETY: control block and bitmap lie inside the region. All-zero is a control block without bins' members or
        // regions.
        unsafe { at.write_bytes(0, size_of::<Control<G>>() + words * size_of::<usize>()) };
        // SAFETY: not null, as the placement leaves the address 0 out.
        let mut created = Self(unsafe { NonNull::new_unchecked(at.cast()) });
        // What a cached block's link is turned back into is derived from this pointer (see `chain`), not from a caller's.
        let _ = region.start.expose_provenance();
        let control = created.control();
        control.origin = region.start.wrapping_byte_add(first).wrapping_byte_sub(G::GRANULE);
        control.end = 1;
        control.most = most as u32 + 1;
        created.grow(granules);
        created.control().least_free = created.control().free;
        created
    }

    /// The region's own data. Each borrow is short: none is held over a call that takes another.
    #[inline(always)]
    pub(crate) fn control(&mut self) -> &mut Control<G> {
        // SAFETY: the control block is initialised, and reached through the heap only, which the caller has.
        unsafe { self.0.as_mut() }
    }

    /// The region's blocks.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> Blocks<G> {
        let control = self.0.as_ptr();
        // SAFETY: `create` laid bits and granules out so, and they are the heap's, which the caller has.
        unsafe { Blocks::new((*control).origin, control.wrapping_add(1).cast()) }
    }

    /// The granule that `ptr` points into; `None` where that is outside of the region.
    #[inline(always)]
    pub(crate) fn granule_of(mut self, ptr: NonNull<u8>) -> Option<usize> {
        let granule = self.blocks().granule_at(ptr);
        (granule.wrapping_sub(1) < self.control().end as usize - 1).then_some(granule)
    }

    /// Whether it was made of the memory from `start` on: its control block is at the first place there that is aligned.
    pub(crate) fn starts_at(self, start: usize) -> bool {
        self.0.addr().get().checked_sub(start).is_some_and(|skip| skip <= G::GRANULE.max(align_of::<usize>()))
    }

    pub(crate) fn overlaps(mut self, start: usize, len: usize) -> bool {
        let mine = self.0.addr().get();
        let end = self.blocks().at(self.control().most as usize).addr();
        mine.wrapping_sub(start) < len || start.wrapping_sub(mine) < end.wrapping_sub(mine)
    }
}

/// What happens inside it.
impl<G: Grain> RegionRef<G> {
    /// Takes a block from the first bin that surely has one.
    #[inline(always)]
    pub(crate) fn take(mut self, granules: usize) -> Option<Granulated> {
        let blocks = self.blocks();
        let bin = self.control().bins.fitting_bin(&blocks, granules)??;
        self.take_first(bin, granules)
    }

    /// As [`take`](Self::take), and where no bin surely has one, from the first few of the floor bin; at any alignment.
    pub(crate) fn take_any(mut self, granules: usize, align: usize) -> Option<Granulated> {
        let blocks = self.blocks();
        if align > G::GRANULE {
            return self.take_aligned(granules, align);
        }
        let start = self.control().bins.find(&blocks, granules)?;
        self.control().bins.remove(&blocks, start);
        Some(self.cut(blocks.claim(start), granules))
    }

    /// Takes the front of the first block of `bin`, which is long enough. A rest that belongs into the same bin takes its
    /// place.
    #[inline(always)]
    fn take_first(mut self, bin: usize, granules: usize) -> Option<Granulated> {
        let blocks = self.blocks();
        let start = self.control().bins.first_of(bin)?;
        let (run, rest) = blocks.cut(blocks.claim(start), granules);
        match rest {
            Some(rest) if bin_of(rest.granules()) == bin => {
                let rest = G::Index::new(rest.start())?;
                self.control().bins.replace(bin, &blocks, start, rest);
            }
            rest => {
                self.control().bins.pop(bin, &blocks);
                rest.into_iter().for_each(|rest| self.file(rest));
            }
        }
        self.spend(granules);
        Some(run)
    }

    fn take_aligned(mut self, granules: usize, align: usize) -> Option<Granulated> {
        let blocks = self.blocks();
        let padding = |id: G::Index| (blocks.at(id.get()).addr().wrapping_neg() & (align - 1)) >> G::SHIFT;
        let fits = |id: &G::Index| blocks.claim(*id).granules() >= granules + padding(*id);
        let any = granules + align / G::GRANULE - 1;
        let candidate = self.control().bins.candidates(&blocks, granules).find(fits);
        let start = candidate.or_else(|| self.control().bins.find(&blocks, any))?;
        let padding = padding(start);
        self.control().bins.remove(&blocks, start);
        let mut block = blocks.claim(start);
        if padding > 0 {
            let (front, rest) = blocks.part(block, padding);
            self.file(front);
            block = rest;
        }
        Some(self.cut(block, granules))
    }

    /// Takes the front of a free block that is in no bin, and files the rest.
    #[inline(always)]
    fn cut(self, block: FreeBlock, granules: usize) -> Granulated {
        let (run, rest) = self.blocks().cut(block, granules);
        if let Some(rest) = rest {
            self.file(rest);
        }
        self.spend(granules);
        run
    }

    /// The live block at `ptr`, which lies in the granule `start`; refuses what is seen to be none.
    #[inline(always)]
    pub(crate) fn live(mut self, ptr: NonNull<u8>, start: usize, granules: usize) -> Result<Granulated, FaultKind> {
        if !ptr.addr().get().is_multiple_of(G::GRANULE) {
            return Err(FaultKind::Interior);
        }
        if granules > self.control().end as usize - start {
            return Err(FaultKind::WrongSize);
        }
        if self.blocks().is_marked(start) {
            return Err(FaultKind::DoubleFree);
        }
        Ok(Granulated { start, granules })
    }

    /// Makes a run that nobody uses a free block, together with its free neighbours.
    #[inline(always)]
    pub(crate) fn give(mut self, run: Granulated) {
        self.control().free += run.granules as u32;
        if self.blocks().is_marked(run.start - 1) || self.blocks().is_marked(run.start + run.granules) {
            return self.give_joining(run);
        }
        let block = self.blocks().release(run);
        self.file(block);
    }

    /// Out of line, so that a free without neighbours saves no registers.
    #[inline(never)]
    fn give_joining(self, run: Granulated) {
        let blocks = self.blocks();
        match (blocks.left_of(run.start), blocks.right_of(run.start + run.granules)) {
            (None, None) => self.file(blocks.release(run)),
            (Some(left), None) => self.refile(blocks.join_left(&left, run), left),
            (None, Some(right)) => self.refile(blocks.join_right(run, &right), right),
            (Some(left), Some(right)) => {
                self.unfile(&right);
                self.refile(blocks.join_both(&left, run, &right), left);
            }
        }
    }

    /// Files `whole`, of which `part` has become a part: in its place, where that is in the right bin. The part's links are
    /// where they were.
    #[inline(always)]
    fn refile(mut self, whole: FreeBlock, part: FreeBlock) {
        let bin = bin_of(whole.granules());
        // A part that is too short for a bin is alone in its number of granules.
        if bin_of(part.granules()) != bin {
            self.unfile(&part);
            self.file(whole);
        } else if whole.start() != part.start()
            && let (Some(from), Some(to)) = (G::Index::new(part.start()), G::Index::new(whole.start()))
        {
            let blocks = self.blocks();
            self.control().bins.replace(bin, &blocks, from, to);
        }
    }

    pub(crate) fn resize(self, run: Granulated, granules: usize) -> bool {
        let Granulated { start, granules: old } = run;
        if granules < old {
            self.give(Granulated { start: start + granules, granules: old - granules });
        }
        if granules <= old {
            return true;
        }
        let right = self.blocks().right_of(start + old).filter(|right| right.granules() >= granules - old);
        right.map(|right| self.grow_into(right, granules - old)).is_some()
    }

    /// Takes `granules` from a free right neighbour, which become part of the block before them.
    fn grow_into(self, right: FreeBlock, granules: usize) {
        self.unfile(&right);
        let _joined = self.cut(right, granules);
    }

    /// Moves the block's place left, into its free left neighbour and all that is free to its right, as far as it must to be
    /// `granules` long: not at all, where its right neighbour has become free meanwhile. Returns where it begins now; the
    /// contents are the caller's to move.
    pub(crate) fn slide(self, run: Granulated, granules: usize, align: usize) -> Option<NonNull<u8>> {
        let (blocks, start, end) = (self.blocks(), run.start, run.start + run.granules);
        if self.resize(Granulated { ..run }, granules) {
            return NonNull::new(blocks.at(start));
        }
        let (left, right) = (blocks.left_of(run.start)?, blocks.right_of(end));
        let latest = right.as_ref().map_or(end, FreeBlock::end).checked_sub(granules)?;
        let start = latest.checked_sub((blocks.at(latest).addr() & (align - 1)) >> G::SHIFT)?;
        // Moved further left than the old end, an aligned block would leave a gap under its own contents.
        if start < left.start() || start + granules < end {
            return None;
        }
        if let Some(right) = right
            && start + granules > end
        {
            self.grow_into(right, start + granules - end);
        }
        self.shorten(left, start);
        NonNull::new(blocks.at(start))
    }

    /// Takes the end of a free block, from the granule `from` on, which becomes part of the block behind it.
    fn shorten(self, left: FreeBlock, from: usize) {
        self.unfile(&left);
        self.spend(left.end() - from);
        let taken = if from > left.start() {
            let kept = from - left.start();
            let (kept, taken) = self.blocks().part(left, kept);
            self.file(kept);
            taken
        } else {
            left
        };
        let _joined = self.blocks().unmarked(taken);
    }

    pub(crate) fn extend(mut self, end: usize) -> Result<usize, RegionError> {
        let end = end.wrapping_sub(self.blocks().at(0).addr()) >> G::SHIFT;
        match end.checked_sub(self.control().end as usize) {
            Some(_) if end > self.control().most as usize => Err(RegionError::NotGrowable),
            Some(granules) if granules > 0 => {
                self.grow(granules);
                // The new ones were never used.
                self.control().least_free += granules as u32;
                Ok(granules * G::GRANULE)
            }
            _ => Ok(0),
        }
    }

    /// Adds granules behind the last.
    fn grow(mut self, granules: usize) {
        let start = self.control().end as usize;
        self.control().end += granules as u32;
        self.give(Granulated { start, granules });
    }

    #[inline(always)]
    fn spend(mut self, granules: usize) {
        self.control().free -= granules as u32;
        if self.control().free < self.control().least_free {
            self.control().least_free = self.control().free;
        }
    }

    #[inline(always)]
    pub(crate) fn file(mut self, block: FreeBlock) {
        if block.granules() >= G::LEAST
            && let Some(start) = G::Index::new(block.start())
        {
            let blocks = self.blocks();
            self.control().bins.insert_into(bin_of(block.granules()), &blocks, start);
        }
    }

    #[inline(always)]
    pub(crate) fn unfile(mut self, block: &FreeBlock) {
        if block.granules() >= G::LEAST
            && let Some(start) = G::Index::new(block.start())
        {
            let blocks = self.blocks();
            self.control().bins.remove_from(bin_of(block.granules()), &blocks, start);
        }
    }

    pub(crate) fn stats(mut self) -> BlockStats {
        let (blocks, control) = (self.blocks(), self.control());
        let bytes = |granules: u32| granules as usize * G::GRANULE;
        BlockStats {
            regions: 1,
            held_bytes: bytes(control.end - 1),
            free_bytes: bytes(control.free),
            least_free_bytes: bytes(control.least_free),
            largest_free: control.bins.longest(&blocks) * G::GRANULE,
        }
    }
}
