//! Heaps over regions as subjects: the region heap, shared or alone, and the plain block heap, used as the region heap uses
//! it.
//!
//! Blocks of such heaps are named by address and layout: nothing else says how long they are. So every [`Path`] is one and
//! the same here. Scripts and tests call this; it calls the heaps.

use crate::subject::{Alone, Audited, Fill, Path, Quiescent, Subject};
use core::alloc::Layout;
use core::cell::{RefCell, RefMut};
use core::ptr::NonNull;
use freestone_core::{
    BlockHeap, Broken, Fault, FaultKind, Grain, Region, RegionError, RegionHeap, RegionPlatform, RegionStats,
};

/// A heap to which regions are added.
pub trait Regional: Subject {
    /// Granule and index width.
    type Grain: Grain;

    /// Adds a region; returns the bytes for blocks.
    ///
    /// # Safety
    /// As for [`BlockHeap::add`].
    unsafe fn add(&self, region: Region) -> Result<usize, RegionError>;

    /// Makes the region at `start` `len` bytes long; returns the bytes that this brings.
    ///
    /// # Safety
    /// As for [`BlockHeap::extend`].
    unsafe fn extend(&self, start: *mut u8, len: usize) -> Result<usize, RegionError>;

    /// Its figures.
    fn figures(&self) -> RegionStats;

    /// Whether `ptr` points into its blocks.
    fn owns(&self, ptr: NonNull<u8>) -> bool;
}

/// Bytes of a block of `layout`.
pub fn rounded<G: Grain>(layout: Layout) -> usize {
    G::granules(layout.size()) * G::GRANULE
}

impl<P: RegionPlatform> Subject for RegionHeap<P> {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        match fill {
            Fill::Any => RegionHeap::allocate(self, layout),
            Fill::Zeroed => self.allocate_zeroed(layout),
        }
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, _: Path) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(ptr, layout) }
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, _: Path) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { RegionHeap::reallocate(self, ptr, old, new_size) }
    }

    fn usable_size(&self, _: NonNull<u8>) -> Option<usize> {
        None
    }

    /// By the layout alone: to ask whether the heap owns the block would take its lock, which an interrupt may not get.
    fn usable(&self, _: NonNull<u8>, layout: Layout) -> Option<usize> {
        Some(rounded::<P::Grain>(layout))
    }

    fn trim(&self) -> usize {
        RegionHeap::trim(self)
    }
}

impl<P: RegionPlatform> Regional for RegionHeap<P> {
    type Grain = P::Grain;

    unsafe fn add(&self, region: Region) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.add_region(region) }
    }

    unsafe fn extend(&self, start: *mut u8, len: usize) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.extend_region(start, len) }
    }

    fn figures(&self) -> RegionStats {
        self.stats()
    }

    fn owns(&self, ptr: NonNull<u8>) -> bool {
        RegionHeap::owns(self, ptr) == Some(true)
    }
}

impl<P: RegionPlatform> Quiescent for RegionHeap<P> {
    fn live_bytes(&self) -> usize {
        self.stats().live_bytes
    }

    unsafe fn check_quiescent(&self) -> Result<(), Broken> {
        // SAFETY: the caller's promise.
        unsafe { RegionHeap::check_quiescent(self) }
    }
}

/// A region heap of one thread, which no interrupt enters while it is checked.
pub type AloneInRegions<P> = Alone<RegionHeap<P>>;

impl<P: RegionPlatform> AloneInRegions<P> {
    /// The heap.
    pub fn heap(&self) -> &RegionHeap<P> {
        self.inner()
    }
}

impl<H: Regional> Regional for Alone<H> {
    type Grain = H::Grain;

    unsafe fn add(&self, region: Region) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().add(region) }
    }

    unsafe fn extend(&self, start: *mut u8, len: usize) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().extend(start, len) }
    }

    fn figures(&self) -> RegionStats {
        self.inner().figures()
    }

    fn owns(&self, ptr: NonNull<u8>) -> bool {
        self.inner().owns(ptr)
    }
}

/// A block heap without lock and cache. What is seen to be no block is a panic.
#[derive(Debug, Default)]
pub struct Plain<G: Grain>(RefCell<BlockHeap<G>>);

impl<G: Grain> Plain<G> {
    /// A heap without memory.
    pub const fn new() -> Self {
        Self(RefCell::new(BlockHeap::new()))
    }

    /// The heap.
    pub fn inner(&self) -> RefMut<'_, BlockHeap<G>> {
        self.0.borrow_mut()
    }

    /// # Safety
    /// As for [`Subject::reallocate`].
    unsafe fn move_to(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        let moved = self.0.borrow_mut().allocate(new)?;
        // SAFETY: two blocks, both at least that long; then the old one is freed by its layout.
        unsafe {
            moved.copy_from_nonoverlapping(ptr, old.size().min(new.size()));
            self.free(ptr, old, Path::Layout);
        }
        Some(moved)
    }

    /// # Safety
    /// As for [`Subject::reallocate`]; the block does not become shorter.
    unsafe fn slide(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        let to = unsafe { self.0.borrow_mut().slide(ptr, old, new.size())? };
        // SAFETY: both places lie inside the block as it is now.
        unsafe { to.copy_from(ptr, old.size()) };
        Some(to)
    }
}

fn seen<T>(ptr: NonNull<u8>, result: Result<T, FaultKind>) -> T {
    result.unwrap_or_else(|kind| panic!("{}", Fault { pointer: ptr.addr().get(), kind }))
}

impl<G: Grain> Subject for Plain<G> {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        let ptr = self.0.borrow_mut().allocate(layout)?;
        if fill == Fill::Zeroed {
            // SAFETY: a fresh block of at least that size.
            unsafe { ptr.write_bytes(0, layout.size()) };
        }
        Some(ptr)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, _: Path) {
        // SAFETY: the caller's promise.
        seen(ptr, unsafe { self.0.borrow_mut().deallocate(ptr, layout) });
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, _: Path) -> Option<NonNull<u8>> {
        let new = Layout::from_size_align(new_size, old.align()).ok()?;
        // SAFETY: the caller's promise.
        if seen(ptr, unsafe { self.0.borrow_mut().resize(ptr, old, new_size) }) {
            return Some(ptr);
        }
        // SAFETY: the caller's promise; a block that becomes shorter was resized.
        unsafe { self.move_to(ptr, old, new).or_else(|| self.slide(ptr, old, new)) }
    }

    fn usable_size(&self, _: NonNull<u8>) -> Option<usize> {
        None
    }

    fn usable(&self, ptr: NonNull<u8>, layout: Layout) -> Option<usize> {
        self.owns(ptr).then(|| rounded::<G>(layout))
    }

    fn trim(&self) -> usize {
        self.0.borrow().stats().free_bytes
    }
}

impl<G: Grain> Regional for Plain<G> {
    type Grain = G;

    unsafe fn add(&self, region: Region) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.borrow_mut().add(region) }
    }

    unsafe fn extend(&self, start: *mut u8, len: usize) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.borrow_mut().extend(start, len) }
    }

    fn figures(&self) -> RegionStats {
        let stats = self.0.borrow().stats();
        RegionStats {
            live_bytes: stats.held_bytes - stats.free_bytes,
            free_bytes: stats.free_bytes,
            held_bytes: stats.held_bytes,
            peak_bytes: stats.held_bytes - stats.least_free_bytes,
            largest_free: stats.largest_free,
            regions: stats.regions,
            ..RegionStats::default()
        }
    }

    fn owns(&self, ptr: NonNull<u8>) -> bool {
        self.0.borrow().owns(ptr)
    }
}

impl<G: Grain> Audited for Plain<G> {
    type Broken = Broken;

    fn live_bytes(&self) -> usize {
        self.figures().live_bytes
    }

    fn check(&self) -> Result<(), Broken> {
        self.0.borrow().check()
    }
}
