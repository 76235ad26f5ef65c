//! BlockHeap: regions of bytes, cut into blocks without headers. Find, split, join, grow in place; every call in constant time.
//!
//! For memory that is given once (a firmware's arena, a kernel's early heap). `region_heap` puts a lock and a cache in front;
//! who has the heap to himself may use it directly. It calls [`bins`](crate::bins) and `block`.
//!
//! Everything is reached from the control block, which lies at the region's start: bins, then the boundary bitmap, then the
//! blocks (the drawing is in `region.rs`). The heap's own value is one pointer. Several regions are a list, each with a control
//! block of its own: they never join, adjoining or not, and a request is served by the first that can.
//!
//! - **allocate**: the newest block of the floor bin if it fits, else one of the first bin above, else one of eight of the
//!   floor bin (good fit, see `bins`). The front is handed out, the rest goes back to its bin.
//! - **deallocate**: a look at two boundary bits says which neighbours are free; they join at once.
//! - **resize**: shrinking gives the tail back; growing takes from a free right neighbour. Nothing is copied.
//! - **alignment** above the granule takes the front padding as a block of its own, so nothing is wasted; a few candidates are
//!   looked at, then a block that is long enough for any padding.
//!
//! Nothing here copies a block's contents: moving is the caller's business, outside of its lock ([`BlockHeap::widen`]).
//! After boundary tags (Knuth, 1.2.5) and two-level segregated fit (Masmano et al., 2004); the tags of live blocks are a bitmap here.

use crate::bins::{Bins, bin_of};
use crate::block::{Blocks, FreeBlock, Granulated};
use crate::fault::FaultKind;
use crate::grain::{Grain, Index};
use crate::region::{Placement, Region, RegionError, place};
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

/// A region's own data, at its start. The boundary bitmap follows it.
#[repr(C)]
pub(crate) struct Control<G: Grain> {
    pub(crate) bins: Bins<G::Index, G::Words, G::Lists>,
    /// Where granule 0 would be.
    origin: *mut u8,
    next: Option<RegionRef<G>>,
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

/// A region as it is worked on.
pub(crate) struct Carved<'h, G: Grain> {
    pub(crate) control: &'h mut Control<G>,
    pub(crate) blocks: Blocks<G>,
}

/// A heap over regions of memory; see the [module's](self) head for how it works and [`Grain`] for its instances.
///
/// All methods take constant time in the number of blocks, and time in proportion to the number of regions.
pub struct BlockHeap<G: Grain> {
    first: Option<RegionRef<G>>,
}

// SAFETY: the heap owns its regions' memory, by the contract of `add`.
unsafe impl<G: Grain> Send for BlockHeap<G> {}

/// A block that took in its free neighbours, so that its contents can be moved to `to` and it can be longer.
#[must_use = "what is widened must be settled"]
#[derive(Debug)]
pub struct Widened {
    /// Where the contents go; they overlap the old place.
    pub to: NonNull<u8>,
    /// Where it begins with its neighbours, granules before `to`, and granules in all.
    start: NonNull<u8>,
    skip: usize,
    whole: usize,
}

impl Widened {
    /// What a block of `granules` at `to` does not need.
    pub(crate) fn surplus<G: Grain>(self, granules: usize) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        let Self { start, skip, whole, to } = self;
        // Inside the region, which does not reach the address 0.
        let behind = to.as_ptr().wrapping_byte_add(granules * G::GRANULE);
        let tail = NonNull::new(behind).map(|behind| (behind, whole - skip - granules));
        [Some((start, skip)), tail].into_iter().flatten().filter(|(_, granules)| *granules > 0)
    }
}

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

impl<G: Grain> BlockHeap<G> {
    /// A heap without memory, which answers `None`.
    pub const fn new() -> Self {
        Self { first: None }
    }

    /// Adds a region, whose contents do not matter. Returns the bytes for blocks.
    ///
    /// # Safety
    /// The region's memory (up to `most`, once it is extended) is readable and writable, nobody else's, and stays so as long as the
    /// heap or a block of it is used.
    pub unsafe fn add(&mut self, region: Region) -> Result<usize, RegionError> {
        let (start, most) = (region.start.addr(), region.most.max(region.len));
        let placement = place::<G>(start, region.len, most, size_of::<Control<G>>())?;
        if self.regions().any(|other| other.overlaps(start, most)) {
            return Err(RegionError::Overlaps);
        }
        // SAFETY: the memory is the heap's by the caller's promise, and large enough by its placement.
        let added = unsafe { RegionRef::create(region, placement) };
        match self.regions().last() {
            Some(mut last) => last.open().control.next = Some(added),
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
        let mut region = self.regions().find(|region| region.starts_at(start.addr())).ok_or(RegionError::Missing)?;
        let end = start.addr().checked_add(len).ok_or(RegionError::NotGrowable)?;
        region.open().extend(end)
    }

    /// A block for `layout`, a size of 0 included, aligned to the granule at least. `None`: no memory, nothing changed.
    #[inline]
    pub fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.take(G::granules(layout.size()), layout.align())
    }

    /// As [`allocate`](Self::allocate), by a number of granules.
    #[inline(always)]
    pub(crate) fn take(&mut self, granules: usize, align: usize) -> Option<NonNull<u8>> {
        let mut next = self.first;
        while let Some(mut region) = next {
            let mut carved = region.open();
            if let Some(run) = carved.take(granules, align) {
                return NonNull::new(carved.blocks.at(run.start));
            }
            next = carved.control.next;
        }
        None
    }

    /// Takes a block back. `Err`, and nothing changed, where it is seen that there is none: a pointer outside of all regions,
    /// a block that is free already or does not fit its region. What is interior to a free block cannot be told from a live one.
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
        let mut region = self.region_of(ptr).ok_or(FaultKind::Foreign)?;
        let mut carved = region.open();
        let run = carved.live(ptr, granules)?;
        carved.give(run);
        Ok(())
    }

    /// Makes the block `new_size` bytes long where it stands: always, if that is not longer; else if what is free to its right
    /// is enough. `Ok(false)`: it is not, nothing changed. `Err`: as for [`deallocate`](Self::deallocate).
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate), but the block goes on being used, by its new size.
    #[inline]
    pub unsafe fn resize(&mut self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Result<bool, FaultKind> {
        self.change(ptr, G::granules(old.size()), G::granules(new_size))
    }

    /// As [`resize`](Self::resize), by numbers of granules.
    #[inline(always)]
    pub(crate) fn change(&mut self, ptr: NonNull<u8>, old: usize, new: usize) -> Result<bool, FaultKind> {
        let mut region = self.region_of(ptr).ok_or(FaultKind::Foreign)?;
        let mut carved = region.open();
        let run = carved.live(ptr, old)?;
        Ok(carved.resize(run, new))
    }

    /// Takes in the free neighbours of a block that no other way lets become `new_size` bytes long. The caller then copies the
    /// contents to [`Widened::to`] (the two places overlap), with no lock held, and calls [`settle`](Self::settle). `None`: that would
    /// not do either, nothing changed.
    ///
    /// # Safety
    /// As for [`resize`](Self::resize).
    pub unsafe fn widen(&mut self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Option<Widened> {
        let mut region = self.region_of(ptr)?;
        let mut carved = region.open();
        let run = carved.live(ptr, G::granules(old.size())).ok()?;
        carved.widen(run, G::granules(new_size), old.align())
    }

    /// Gives back what a widened block does not need, now that its contents are at [`Widened::to`]. The block is `new_size` bytes long.
    pub fn settle(&mut self, widened: Widened, new_size: usize) {
        for (ptr, granules) in widened.surplus::<G>(G::granules(new_size)) {
            // It is a run that this heap has just handed out.
            let _ = self.give(ptr, granules);
        }
    }

    /// Whether the heap has no region.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether `ptr` points into a region's blocks.
    pub fn owns(&self, ptr: NonNull<u8>) -> bool {
        self.region_of(ptr).is_some()
    }

    /// Figures. Constant time a region.
    pub fn stats(&self) -> BlockStats {
        self.regions().map(|mut region| region.open().stats()).fold(BlockStats::default(), |sum, region| BlockStats {
            regions: sum.regions + 1,
            held_bytes: sum.held_bytes + region.held_bytes,
            free_bytes: sum.free_bytes + region.free_bytes,
            least_free_bytes: sum.least_free_bytes + region.least_free_bytes,
            largest_free: sum.largest_free.max(region.largest_free),
        })
    }

    /// The figures of each region, in the order in which they were added.
    pub fn region_stats(&self) -> impl Iterator<Item = BlockStats> {
        self.regions().map(|mut region| region.open().stats())
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = RegionRef<G>> {
        core::iter::successors(self.first, |region| {
            let mut region = *region;
            region.open().control.next
        })
    }

    #[inline(always)]
    fn region_of(&self, ptr: NonNull<u8>) -> Option<RegionRef<G>> {
        let mut next = self.first;
        while let Some(mut region) = next {
            let carved = region.open();
            if carved.contains(carved.blocks.granule_at(ptr)) {
                return Some(region);
            }
            next = carved.control.next;
        }
        None
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

impl<G: Grain> RegionRef<G> {
    /// # Safety
    /// The region's memory is the heap's, and `placement` is where its parts go.
    unsafe fn create(region: Region, placement: Placement) -> Self {
        let Placement { control, words, first, granules, most } = placement;
        let at = region.start.wrapping_byte_add(control);
        // SAFETY: control block and bitmap lie inside the region. All-zero is a control block without bins' members or regions.
        unsafe { at.write_bytes(0, size_of::<Control<G>>() + words * size_of::<usize>()) };
        // SAFETY: not null, as the placement leaves the address 0 out.
        let mut created = Self(unsafe { NonNull::new_unchecked(at.cast()) });
        created.open().control.origin = region.start.wrapping_byte_add(first).wrapping_byte_sub(G::GRANULE);
        let mut carved = created.open();
        carved.control.end = 1;
        carved.control.most = most as u32 + 1;
        carved.grow(granules);
        carved.control.least_free = carved.control.free;
        created
    }

    /// The region, to be worked on.
    #[inline(always)]
    pub(crate) fn open(&mut self) -> Carved<'_, G> {
        let bits = self.0.as_ptr().wrapping_add(1).cast();
        // SAFETY: the control block is initialised, and reached through the heap only, which the caller has.
        let control = unsafe { self.0.as_mut() };
        // SAFETY: `create` laid bits and granules out so, and they are the heap's.
        let blocks = unsafe { Blocks::new(control.origin, bits) };
        Carved { control, blocks }
    }

    fn starts_at(mut self, start: usize) -> bool {
        let control = self.0.addr().get();
        control >= start && control - start < 2 * G::GRANULE.max(align_of::<usize>()) && !self.open().contains(start)
    }

    fn overlaps(mut self, start: usize, len: usize) -> bool {
        let mine = self.0.addr().get();
        let carved = self.open();
        let end = carved.blocks.at(carved.control.most as usize).addr();
        mine.wrapping_sub(start) < len || start.wrapping_sub(mine) < end.wrapping_sub(mine)
    }
}

impl<G: Grain> Carved<'_, G> {
    /// Whether there is a granule of this number.
    #[inline(always)]
    fn contains(&self, granule: usize) -> bool {
        granule.wrapping_sub(1) < self.control.end as usize - 1
    }

    #[inline(always)]
    fn take(&mut self, granules: usize, align: usize) -> Option<Granulated> {
        if align > G::GRANULE {
            return self.take_aligned(granules, align);
        }
        let start = self.control.bins.take(&self.blocks, granules)?;
        let block = self.blocks.claim(start);
        Some(self.cut(block, granules))
    }

    #[inline(never)]
    fn take_aligned(&mut self, granules: usize, align: usize) -> Option<Granulated> {
        let Self { control, blocks } = self;
        let padding = |id: G::Index| (blocks.at(id.get()).addr().wrapping_neg() & (align - 1)) >> G::SHIFT;
        let fits = |id: &G::Index| blocks.claim(*id).granules() >= granules + padding(*id);
        let any = granules + align / G::GRANULE - 1;
        let candidate = control.bins.candidates(blocks, granules).find(fits);
        let start = candidate.or_else(|| control.bins.find(blocks, any))?;
        let padding = padding(start);
        control.bins.remove(blocks, start);
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
    fn cut(&mut self, block: FreeBlock, granules: usize) -> Granulated {
        let (run, rest) = self.blocks.cut(block, granules);
        if let Some(rest) = rest {
            self.file(rest);
        }
        self.spend(granules);
        run
    }

    /// The live block at `ptr`, which lies in this region; refuses what is seen to be none.
    #[inline(always)]
    fn live(&self, ptr: NonNull<u8>, granules: usize) -> Result<Granulated, FaultKind> {
        let start = self.blocks.granule_at(ptr);
        if !ptr.addr().get().is_multiple_of(G::GRANULE) {
            return Err(FaultKind::Interior);
        }
        if granules > self.control.end as usize - start {
            return Err(FaultKind::WrongSize);
        }
        if self.blocks.is_marked(start) {
            return Err(FaultKind::DoubleFree);
        }
        Ok(Granulated { start, granules })
    }

    /// Makes a run that nobody uses a free block, together with its free neighbours.
    #[inline(always)]
    fn give(&mut self, run: Granulated) {
        self.control.free += run.granules as u32;
        let left = self.blocks.left_of(run.start);
        let right = self.blocks.right_of(run.start + run.granules);
        let granules = |block: &Option<FreeBlock>| block.as_ref().map_or(0, FreeBlock::granules);
        let whole = granules(&left) + run.granules + granules(&right);
        if let Some(right) = &right {
            self.unfile(right);
        }
        // A left neighbour that only grows within its bin stays where it is.
        let stays = |left: &FreeBlock| left.granules() >= G::LEAST && bin_of(left.granules()) == bin_of(whole);
        if left.as_ref().is_some_and(stays) {
            let _filed = self.blocks.join(left, run, right);
            return;
        }
        if let Some(left) = &left {
            self.unfile(left);
        }
        let block = self.blocks.join(left, run, right);
        self.file(block);
    }

    fn resize(&mut self, run: Granulated, granules: usize) -> bool {
        let Granulated { start, granules: old } = run;
        if granules < old {
            self.give(Granulated { start: start + granules, granules: old - granules });
        }
        if granules <= old {
            return true;
        }
        let right = self.blocks.right_of(start + old).filter(|right| right.granules() >= granules - old);
        right.map(|right| self.grow_into(right, granules - old)).is_some()
    }

    /// Takes `granules` from a free right neighbour, which become part of the block before them.
    fn grow_into(&mut self, right: FreeBlock, granules: usize) {
        self.unfile(&right);
        let _joined = self.cut(right, granules);
    }

    fn widen(&mut self, run: Granulated, granules: usize, align: usize) -> Option<Widened> {
        let end = run.start + run.granules;
        let (left, right) = (self.blocks.left_of(run.start), self.blocks.right_of(end));
        let from = left.as_ref().map_or(run.start, FreeBlock::start);
        let whole = right.as_ref().map_or(end, FreeBlock::end) - from;
        let skip = (self.blocks.at(from).addr().wrapping_neg() & (align - 1)) >> G::SHIFT;
        if skip + granules > whole {
            return None;
        }
        for neighbour in [left, right].into_iter().flatten() {
            self.unfile(&neighbour);
            self.spend(neighbour.granules());
            let _taken_in = self.blocks.unmarked(neighbour);
        }
        let at = |granule| NonNull::new(self.blocks.at(granule));
        Some(Widened { to: at(from + skip)?, start: at(from)?, skip, whole })
    }

    fn extend(&mut self, end: usize) -> Result<usize, RegionError> {
        // The address behind the last byte of the address space is none: the granule there is given up, as in `place`.
        let end = end.wrapping_sub(self.blocks.at(0).addr()) >> G::SHIFT;
        match end.checked_sub(self.control.end as usize) {
            Some(_) if end > self.control.most as usize => Err(RegionError::NotGrowable),
            Some(granules) if granules > 0 => {
                self.grow(granules);
                Ok(granules * G::GRANULE)
            }
            _ => Ok(0),
        }
    }

    /// Adds granules behind the last.
    fn grow(&mut self, granules: usize) {
        let start = self.control.end as usize;
        self.control.end += granules as u32;
        self.give(Granulated { start, granules });
    }

    #[inline(always)]
    fn spend(&mut self, granules: usize) {
        self.control.free -= granules as u32;
        self.control.least_free = self.control.least_free.min(self.control.free);
    }

    #[inline(always)]
    fn file(&mut self, block: FreeBlock) {
        if block.granules() >= G::LEAST
            && let Some(start) = G::Index::new(block.start())
        {
            self.control.bins.insert(&self.blocks, start);
        }
    }

    #[inline(always)]
    fn unfile(&mut self, block: &FreeBlock) {
        if block.granules() >= G::LEAST
            && let Some(start) = G::Index::new(block.start())
        {
            self.control.bins.remove(&self.blocks, start);
        }
    }

    fn stats(&self) -> BlockStats {
        let bytes = |granules: u32| granules as usize * G::GRANULE;
        BlockStats {
            regions: 1,
            held_bytes: bytes(self.control.end - 1),
            free_bytes: bytes(self.control.free),
            least_free_bytes: bytes(self.control.least_free),
            largest_free: self.control.bins.longest(&self.blocks) * G::GRANULE,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::grain::{Compact, Fine, Tiny, Wide};
    use std::boxed::Box;
    use std::vec::Vec;

    #[repr(align(64))]
    #[derive(Clone)]
    struct Line([u8; 64]);

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
        let (mut heap, _) = heap::<G>(0, 2048);
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
            let widened = heap.widen(block, layout(300, 8), 900).unwrap();
            assert_eq!(widened.to, left);
            heap.settle(widened, 900);
            heap.check().unwrap();
            assert!(heap.widen(left, layout(900, 8), 1100).is_none());
            free(&mut heap, left, layout(900, 8));
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
        let breach = |plant: fn(&mut Carved<'_, Compact>)| {
            let (mut heap, _) = heap::<Compact>(0, 2048);
            let [low, _] = [64, 64].map(|size| heap.allocate(layout(size, 8)).unwrap());
            free(&mut heap, low, layout(64, 8));
            let mut region = heap.regions().next().unwrap();
            plant(&mut region.open());
            heap.check().unwrap_err().invariant.split(':').next().unwrap()
        };
        assert_eq!(breach(|region| region.control.free += 1), "R5");
        assert_eq!(breach(|region| region.blocks.flip_mark(3)), "R1");
        assert_eq!(breach(|region| region.blocks.flip_mark(10)), "R2");
        assert_eq!(breach(|region| region.blocks.flip_length(1)), "R2");
        assert_eq!(
            breach(|region| {
                let low = region.blocks.right_of(1).unwrap();
                region.unfile(&low);
            }),
            "R6"
        );
        assert_eq!(
            breach(|region| {
                let low = region.blocks.right_of(1).unwrap();
                region.unfile(&low);
                let (front, back) = region.blocks.part(low, 4);
                region.file(front);
                region.file(back);
            }),
            "R3"
        );
    }
}
