//! Freestone's own columns. Called by [`crate::heap`] through [`Peer`].

use crate::peer::{Begin, Global, Peer};
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use freestone_bare::{Bare, Cache, Cached, Grain, NoCache, NoLock, OneCore, OneThread, Region, RegionHeap, StaticRegion};
use freestone_core::BlockHeap;

/// The promise of the heaps here.
pub struct Alone;

// SAFETY: the heaps are values, each of which one thread makes, uses and gives up; there are no interrupts.
unsafe impl OneThread for Alone {}

/// A heap as firmware has it, of the grain `G` and with the cache `C`; the lock is a flag.
pub type Firmware<G, C = NoCache> = Global<RegionHeap<Bare<NoLock<Alone>, G, C>>>;

/// Up to 4 blocks of each length up to 32 granules.
pub type Few = Cached<OneCore, 1, 32, 4>;

// SAFETY: the contract of `GlobalAlloc`, which the heap implements, over the region that it was given.
unsafe impl<G: Grain, C: Cache<G>> Begin for RegionHeap<Bare<NoLock<Alone>, G, C>> {
    fn empty() -> Self {
        Self::new(StaticRegion::NONE)
    }

    unsafe fn begin(&self, start: *mut u8, len: usize) {
        // SAFETY: the caller gives the arena away.
        unsafe { self.init(Region::new(start, len)) }.expect("the grain is one for arenas of this size");
    }
}

/// The block heap for those who have it to themselves: no lock, no cache, no queue.
pub struct Blocks<G: Grain>(BlockHeap<G>);

// SAFETY: the block heap's own contract, over the region that it was given.
unsafe impl<G: Grain> Peer for Blocks<G> {
    fn empty() -> Self {
        Self(BlockHeap::new())
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        // SAFETY: the caller gives the arena away.
        unsafe { self.0.add(Region::new(arena.as_ptr().cast(), arena.len())) }
            .expect("the grain is one for arenas of this size");
    }

    #[inline]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.allocate(layout)
    }

    #[inline]
    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the block is one of this heap, with this layout.
        unsafe { self.0.deallocate(block, layout) }.expect("the block is live");
    }

    #[inline]
    unsafe fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the block is one of this heap, with this layout.
        if unsafe { self.0.resize(block, layout, new_size) }.expect("the block is live") {
            return Some(block);
        }
        // SAFETY: as above.
        unsafe { self.move_to(block, layout, new_size) }
    }
}

impl<G: Grain> Blocks<G> {
    /// Moves a block that has to grow, at last into its own free neighbours.
    ///
    /// # Safety
    /// As for [`Peer::reallocate`].
    unsafe fn move_to(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller answers for the new size, and the alignment is one of a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if let Some(moved) = self.allocate(new_layout) {
            // SAFETY: two live blocks, the new one longer; then the old one goes back as the caller got it.
            unsafe {
                moved.copy_from_nonoverlapping(block, layout.size());
                self.deallocate(block, layout);
            }
            return Some(moved);
        }
        // SAFETY: the block is one of this heap, with this layout.
        let to = unsafe { self.0.slide(block, layout, new_size)? };
        // SAFETY: both places lie inside the block as it is now.
        unsafe { to.copy_from(block, layout.size()) };
        Some(to)
    }
}
