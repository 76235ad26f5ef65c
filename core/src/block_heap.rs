//! BlockHeap: regions of bytes, cut into blocks without headers. Every call in constant time.
//!
//! For memory that is given once (a firmware's arena, a kernel's early heap). `region_heap` puts a lock and a cache in front;
//! who has the heap to himself may use it directly. What happens inside a region is `carve`'s business.
//!
//! The heap's own value is one pointer: everything else lies at the start of its regions. Several regions are a list, in the
//! order in which they were added; they never join, adjoining or not, and a request is served by the first that can.
//!
//! Nothing here copies a block's contents: moving is the caller's business, outside of its lock ([`BlockHeap::slide`]).

use crate::block::Granulated;
use crate::carve::{Control, RegionRef};
use crate::fault::FaultKind;
use crate::grain::Grain;
use crate::region::{Region, RegionError, place};
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

pub use crate::carve::BlockStats;

/// A heap over regions of memory; see [`Grain`] for its instances.
///
/// All methods take constant time in the number of blocks, and time in proportion to the number of regions. A request is
/// served by the first region that can, in the order in which they were added.
///
/// # Provenance
/// Every pointer that a heap hands out, reads or writes is derived from the pointer by which its region came in, at an
/// offset that is computed from a granule's number. Of a pointer that a caller hands back only the address is used: what
/// becomes of the memory later does not depend on what that pointer was allowed to reach. (A core cache in front links
/// blocks by exposed addresses; a region's own pointer is exposed when it is added, so that what comes out of a list may
/// reach what it may reach.)
pub struct BlockHeap<G: Grain> {
    first: Option<RegionRef<G>>,
}

// SAFETY: the heap owns its regions' memory, by the contract of `add`.
unsafe impl<G: Grain> Send for BlockHeap<G> {}

impl<G: Grain> BlockHeap<G> {
    /// A heap without memory, which answers `None`.
    pub const fn new() -> Self {
        Self { first: None }
    }

    /// Adds a region, whose contents do not matter. Returns the bytes for blocks.
    ///
    /// # Safety
    /// The region's memory (up to `most`, once it is extended) is readable and writable, nobody else's, and stays so as long
    /// as the heap or a block of it is used; and `start` may reach all of it.
    pub unsafe fn add(&mut self, region: Region) -> Result<usize, RegionError> {
        let (start, most) = (region.start.addr(), region.most.max(region.len));
        let placement = place::<G>(start, region.len, most, size_of::<Control<G>>())?;
        if self.regions().any(|other| other.overlaps(start, most)) {
            return Err(RegionError::Overlaps);
        }
        // SAFETY: the memory is the heap's by the caller's promise, and large enough by its placement.
        let added = unsafe { RegionRef::create(region, placement) };
        match self.regions().last() {
            Some(mut last) => last.control().next = Some(added),
            None => self.first = Some(added),
        }
        Ok(placement.granules * G::GRANULE)
    }

    /// Makes the region at `start` `len` bytes long, where it was added with room to grow that far. Returns how many bytes for
    /// blocks that brings; what is less than a granule comes with the next call.
    ///
    /// # Safety
    /// As for [`add`](Self::add), for the memory up to `len`.
    pub unsafe fn extend(&mut self, start: *mut u8, len: usize) -> Result<usize, RegionError> {
        let region = self.regions().find(|region| region.starts_at(start.addr())).ok_or(RegionError::Missing)?;
        // As in `place`: the last granule of the address space is given up.
        let end = match start.addr().checked_add(len) {
            Some(end) => end,
            None if start.addr().wrapping_add(len) == 0 => usize::MAX,
            None => return Err(RegionError::NotGrowable),
        };
        region.extend(end)
    }

    /// A block for `layout`, a size of 0 included, aligned to the granule at least. `None`: no memory, nothing changed.
    #[inline]
    pub fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.take(G::granules(layout.size()), layout.align())
    }

    /// As [`allocate`](Self::allocate), by a number of granules.
    #[inline(always)]
    pub(crate) fn take(&mut self, granules: usize, align: usize) -> Option<NonNull<u8>> {
        if align <= G::GRANULE
            && let Some(first) = self.first
            && let Some(run) = first.take(granules)
        {
            return NonNull::new(first.blocks().at(run.start));
        }
        self.take_elsewhere(granules, align)
    }

    #[cold]
    #[inline(never)]
    fn take_elsewhere(&mut self, granules: usize, align: usize) -> Option<NonNull<u8>> {
        self.regions().find_map(|region| NonNull::new(region.blocks().at(region.take_any(granules, align)?.start)))
    }

    /// Takes a block back. `Err`, and nothing changed, where it is seen that there is none: a pointer outside of all regions,
    /// a block that is free already or does not fit its region. What is interior to a free block cannot be told from a live
    /// one.
    ///
    /// # Safety
    /// `ptr` came from this heap with this layout (or was resized to its size), and is not used any more.
    #[inline]
    pub unsafe fn deallocate(&mut self, ptr: NonNull<u8>, layout: Layout) -> Result<(), FaultKind> {
        self.give(ptr, G::granules(layout.size()))
    }

    /// As [`deallocate`](Self::deallocate), by the block's number of granules.
    #[inline(always)]
    pub(crate) fn give(&mut self, ptr: NonNull<u8>, granules: usize) -> Result<(), FaultKind> {
        let (region, run) = self.live(ptr, granules)?;
        region.give(run);
        Ok(())
    }

    /// Makes the block `new_size` bytes long where it stands: always, if that is not longer; else if what is free to its right
    /// is enough. `Ok(false)`: it is not, nothing changed. `Err`: as for [`deallocate`](Self::deallocate).
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate), but the block goes on being used, by its new size.
    #[inline]
    pub unsafe fn resize(&mut self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Result<bool, FaultKind> {
        match Layout::from_size_align(new_size, old.align()) {
            Ok(new) => self.change(ptr, G::granules(old.size()), G::granules(new.size())),
            Err(_) => Ok(false),
        }
    }

    /// As [`resize`](Self::resize), by numbers of granules.
    #[inline(always)]
    pub(crate) fn change(&mut self, ptr: NonNull<u8>, old: usize, new: usize) -> Result<bool, FaultKind> {
        let (region, run) = self.live(ptr, old)?;
        Ok(region.resize(run, new))
    }

    /// Where a block is to be that becomes shorter: in place, or, if it becomes half as long or less, in a hole that was
    /// taken for it. Then the caller moves its contents there and frees it.
    pub(crate) fn shrink(
        &mut self,
        ptr: NonNull<u8>,
        old: usize,
        new: usize,
        align: usize,
    ) -> Result<NonNull<u8>, FaultKind> {
        let (region, run) = self.live(ptr, old)?;
        // A hole of the same region, which may be the fast one.
        if new <= old / 2
            && let Some(hole) = region.take_any(new, align)
            && let Some(hole) = NonNull::new(region.blocks().at(hole.start))
        {
            return Ok(hole);
        }
        // Shorter: always done.
        let _ = region.resize(run, new);
        Ok(ptr)
    }

    /// Makes a block that no other way lets become `new_size` bytes long begin further left, in its free neighbours, and
    /// returns where. The caller then moves its contents, the old size of them, from `ptr` to there (the two places
    /// overlap), with no lock held.
    /// `None`: that would not do either, nothing changed.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    pub unsafe fn slide(&mut self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let new = Layout::from_size_align(new_size, old.align()).ok()?;
        let (region, run) = self.live(ptr, G::granules(old.size())).ok()?;
        region.slide(run, G::granules(new.size()), new.align())
    }

    /// Whether the heap has no region.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether `ptr` points into a region's blocks.
    pub fn owns(&self, ptr: NonNull<u8>) -> bool {
        self.regions().any(|region| region.granule_of(ptr).is_some())
    }

    /// Figures. Constant time a region.
    pub fn stats(&self) -> BlockStats {
        self.regions().map(|region| region.stats()).fold(BlockStats::default(), |sum, region| BlockStats {
            regions: sum.regions + 1,
            held_bytes: sum.held_bytes + region.held_bytes,
            free_bytes: sum.free_bytes + region.free_bytes,
            least_free_bytes: sum.least_free_bytes + region.least_free_bytes,
            largest_free: sum.largest_free.max(region.largest_free),
        })
    }

    /// The figures of each region, in the order in which they were added.
    pub fn region_stats(&self) -> impl Iterator<Item = BlockStats> {
        self.regions().map(|region| region.stats())
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = RegionRef<G>> {
        core::iter::successors(self.first, |region| {
            let mut region = *region;
            region.control().next
        })
    }

    /// The live block at `ptr` and its region; refuses what is seen to be none.
    #[inline(always)]
    fn live(&self, ptr: NonNull<u8>, granules: usize) -> Result<(RegionRef<G>, Granulated), FaultKind> {
        let first = self.first.ok_or(FaultKind::Foreign)?;
        match first.granule_of(ptr) {
            Some(start) => Ok((first, first.live(ptr, start, granules)?)),
            None => self.live_elsewhere(ptr, granules),
        }
    }

    #[cold]
    #[inline(never)]
    fn live_elsewhere(&self, ptr: NonNull<u8>, granules: usize) -> Result<(RegionRef<G>, Granulated), FaultKind> {
        let mut found = self.regions().filter_map(|region| Some((region, region.granule_of(ptr)?)));
        let (region, start) = found.next().ok_or(FaultKind::Foreign)?;
        Ok((region, region.live(ptr, start, granules)?))
    }
}

impl<G: Grain> Default for BlockHeap<G> {
    fn default() -> Self {
        Self::new()
    }
}

impl<G: Grain> fmt::Debug for BlockHeap<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockStats { regions, held_bytes, free_bytes, .. } = self.stats();
        write!(f, "BlockHeap({free_bytes} bytes free of {held_bytes} in {regions} regions)")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::grain::{Coarse, Compact, Fine, Tiny, Wide};
    use std::boxed::Box;
    use std::vec::Vec;

    #[repr(align(64))]
    #[derive(Clone)]
    struct Line(#[expect(dead_code, reason = "memory")] [u8; 64]);

    /// A heap over `len` bytes, `offset` bytes into an allocation that is aligned to 64.
    fn heap<G: Grain>(offset: usize, len: usize) -> (BlockHeap<G>, *mut u8) {
        let lines: &mut [Line] = Box::leak(std::vec![Line([0xc3; 64]); (offset + len).div_ceil(64)].into_boxed_slice());
        let start = lines.as_mut_ptr().cast::<u8>().wrapping_add(offset);
        let mut heap = BlockHeap::new();
        // SAFETY: the memory is leaked, and nobody else's.
        unsafe { heap.add(Region::new(start, len)) }.unwrap();
        heap.check().unwrap();
        (heap, start)
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn free<G: Grain>(heap: &mut BlockHeap<G>, ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: the test's block, which it does not use any more.
        unsafe { heap.deallocate(ptr, layout) }.unwrap();
        heap.check().unwrap();
    }

    fn every_order<G: Grain>() {
        let (mut heap, _) = heap::<G>(0, 4096);
        let before = heap.stats();
        for first in 0..4 {
            for (size, align) in [(1, 1), (8, 8), (24, 8), (100, 4), (64, 64)] {
                let blocks: Vec<_> = (0..4).map(|_| heap.allocate(layout(size, align)).unwrap()).collect();
                heap.check().unwrap();
                for n in 0..4 {
                    free(&mut heap, blocks[(first + n * 3) % 4], layout(size, align));
                }
                assert_eq!((heap.stats().free_bytes, heap.stats().largest_free), (before.free_bytes, before.largest_free));
            }
        }
    }

    #[test]
    fn blocks_split_and_join_in_every_grain() {
        every_order::<Tiny>();
        every_order::<Compact>();
        every_order::<Fine>();
        every_order::<Wide>();
        every_order::<Coarse>();
    }

    #[test]
    fn a_remainder_too_short_for_a_bin_comes_back_with_its_neighbour() {
        let (mut heap, _) = heap::<Fine>(0, 2048);
        let before = heap.stats().free_bytes;
        let blocks = [24, 16, 24, 16].map(|size| (heap.allocate(layout(size, 8)).unwrap(), layout(size, 8)));
        let [long, bar, other, end] = blocks;
        free(&mut heap, long.0, long.1);
        let short = heap.allocate(layout(16, 8)).unwrap();
        assert_eq!(short, long.0, "it fits where 24 bytes were, and leaves 8");
        heap.check().unwrap();
        free(&mut heap, bar.0, bar.1);
        free(&mut heap, other.0, other.1);
        free(&mut heap, short, layout(16, 8));
        free(&mut heap, end.0, end.1);
        assert_eq!(heap.stats().free_bytes, before);
        assert_eq!(heap.stats().largest_free, before);
    }

    #[test]
    fn a_block_grows_right_then_slides_left() {
        let (mut heap, _) = heap::<Compact>(0, 2048);
        let [left, block, right] = [400, 200, 400].map(|size| heap.allocate(layout(size, 8)).unwrap());
        let rest = heap.stats().largest_free;
        let rest = heap.allocate(layout(rest, 8)).map(|ptr| (ptr, layout(rest, 8))).unwrap();
        // SAFETY: the test's blocks, by their layouts.
        unsafe {
            assert_eq!(heap.resize(block, layout(200, 8), 208), Ok(false), "no room");
            free(&mut heap, right, layout(400, 8));
            assert_eq!(heap.resize(block, layout(200, 8), 600), Ok(true));
            assert_eq!(heap.resize(block, layout(600, 8), 300), Ok(true), "shrinks");
            free(&mut heap, left, layout(400, 8));
            assert_eq!(heap.resize(block, layout(300, 8), 900), Ok(false), "not by the right alone");
            assert_eq!(heap.slide(block, layout(300, 8), 1016), None, "1000 bytes are between the neighbours");
            let slid = heap.slide(block, layout(300, 8), 900).unwrap();
            heap.check().unwrap();
            assert_eq!(slid.addr().get(), left.addr().get() + 1000 - 904, "as little as possible of the left");
            let whole = heap.slide(slid, layout(900, 8), 1000).unwrap();
            assert_eq!(whole, left);
            free(&mut heap, left, layout(1000, 8));
        }
        free(&mut heap, rest.0, rest.1);
        assert_eq!(heap.stats().free_bytes, heap.stats().largest_free);
    }

    #[test]
    fn what_is_seen_to_be_no_block_is_refused() {
        let (mut heap, start) = heap::<Compact>(0, 2048);
        let block = heap.allocate(layout(64, 8)).unwrap();
        let second = heap.allocate(layout(64, 8)).unwrap();
        let at = |ptr: NonNull<u8>, offset: usize| NonNull::new(ptr.as_ptr().wrapping_add(offset)).unwrap();
        let cases = [
            (NonNull::new(start).unwrap(), 64, FaultKind::Foreign),
            (at(block, 1 << 20), 64, FaultKind::Foreign),
            (at(block, 3), 64, FaultKind::Interior),
            (block, 1 << 20, FaultKind::WrongSize),
        ];
        for (ptr, size, kind) in cases {
            // SAFETY: it is seen to be no block of that size, so nothing is done.
            assert_eq!(unsafe { heap.deallocate(ptr, layout(size, 8)) }, Err(kind));
        }
        free(&mut heap, block, layout(64, 8));
        // SAFETY: as above.
        assert_eq!(unsafe { heap.deallocate(block, layout(64, 8)) }, Err(FaultKind::DoubleFree));
        free(&mut heap, second, layout(64, 8));
    }

    #[test]
    fn a_planted_breach_is_seen() {
        let breach = |plant: fn(RegionRef<Compact>)| {
            let (mut heap, _) = heap::<Compact>(0, 2048);
            let [low, _] = [64, 64].map(|size| heap.allocate(layout(size, 8)).unwrap());
            free(&mut heap, low, layout(64, 8));
            plant(heap.regions().next().unwrap());
            heap.check().unwrap_err().invariant.split(':').next().unwrap()
        };
        assert_eq!(breach(|mut region| region.control().free += 1), "R5");
        assert_eq!(breach(|region| region.blocks().flip_mark(3)), "R1");
        assert_eq!(breach(|region| region.blocks().flip_mark(10)), "R2");
        assert_eq!(breach(|region| region.blocks().flip_length(1)), "R2");
        assert_eq!(
            breach(|region| {
                let low = region.blocks().right_of(1).unwrap();
                region.unfile(&low);
            }),
            "R6"
        );
        assert_eq!(
            breach(|region| {
                let low = region.blocks().right_of(1).unwrap();
                region.unfile(&low);
                let (front, back) = region.blocks().part(low, 4);
                region.file(front);
                region.file(back);
            }),
            "R3"
        );
    }
}
