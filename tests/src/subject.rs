//! What a heap must offer so that scripts can drive it. `piece` and `replay` call it; heaps implement it.

use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;
use freestone_core::{Broken, Heap, Platform, Stats};

/// A heap under test.
pub trait Subject {
    /// Allocates.
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>>;

    /// Frees.
    ///
    /// # Safety
    /// `ptr` is a live block of this heap that was allocated, or last reallocated, with `layout`.
    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, path: Path);

    /// Changes a block's size; on `None` the block is as it was.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, path: Path) -> Option<NonNull<u8>>;

    /// Bytes that the block at `ptr` may hold; `None` where it is no block of this heap, or its address alone does not tell.
    fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize>;

    /// Bytes that the live block at `ptr`, allocated or last reallocated with `layout`, may hold. What wraps a heap passes
    /// this on, too.
    fn usable(&self, ptr: NonNull<u8>, layout: Layout) -> Option<usize> {
        let _ = layout;
        self.usable_size(ptr)
    }

    /// Gives back what is not needed; returns bytes.
    fn trim(&self) -> usize;
}

/// A heap that nobody but its test uses, so that it can be asked about itself at any time.
pub trait Audited: Subject {
    /// The report of its own checker.
    type Broken: fmt::Display + fmt::Debug;

    /// Bytes of live blocks, as the heap counts them.
    fn live_bytes(&self) -> usize;

    /// The heap's walk over itself.
    fn check(&self) -> Result<(), Self::Broken>;
}

/// What an allocation asks of its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Nothing.
    Any,
    /// All zero.
    Zeroed,
}

/// By which entry a block is freed or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// With its layout, as Rust does.
    Layout,
    /// By its address, as C does.
    Address,
    /// By its address, with the layout checked.
    Checked,
}

impl<P: Platform> Subject for Heap<P> {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        match fill {
            Fill::Any => Heap::allocate(self, layout),
            Fill::Zeroed => self.allocate_zeroed(layout),
        }
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, path: Path) {
        // SAFETY: the caller vouches for `ptr` and `layout`.
        unsafe {
            match path {
                Path::Layout => self.deallocate(ptr, layout),
                Path::Address => Heap::free(self, ptr),
                Path::Checked => self.free_sized(ptr, layout),
            }
        }
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, path: Path) -> Option<NonNull<u8>> {
        // SAFETY: the caller vouches for `ptr` and `old`.
        unsafe {
            match path {
                Path::Layout => Heap::reallocate(self, ptr, old, new_size),
                Path::Address | Path::Checked => self.resize(ptr, Layout::from_size_align(new_size, old.align()).ok()?),
            }
        }
    }

    fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize> {
        Heap::usable_size(self, ptr)
    }

    fn trim(&self) -> usize {
        Heap::trim(self)
    }
}

/// A heap of one thread, which no interrupt enters while it is checked.
///
/// Neither it nor its pieces can go to another thread; and whatever is asked of it in the middle of a check is a panic.
#[derive(Debug)]
pub struct Alone<P: Platform> {
    heap: Heap<P>,
    /// Not `Sync`, by which this type is not either.
    checking: Cell<bool>,
}

impl<P: Platform> Alone<P> {
    /// Takes the heap in.
    pub const fn new(heap: Heap<P>) -> Self {
        Self { heap, checking: Cell::new(false) }
    }

    /// Its figures.
    pub fn stats(&self) -> Stats {
        self.heap().stats()
    }

    fn heap(&self) -> &Heap<P> {
        assert!(!self.checking.get(), "the heap is being checked");
        &self.heap
    }
}

impl<P: Platform> Subject for Alone<P> {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        Subject::allocate(self.heap(), layout, fill)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, path: Path) {
        // SAFETY: the caller's promise.
        unsafe { Subject::free(self.heap(), ptr, layout, path) }
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, path: Path) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { Subject::reallocate(self.heap(), ptr, old, new_size, path) }
    }

    fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.heap().usable_size(ptr)
    }

    fn trim(&self) -> usize {
        self.heap().trim()
    }
}

impl<P: Platform> Audited for Alone<P> {
    type Broken = Broken;

    fn live_bytes(&self) -> usize {
        self.stats().live_bytes
    }

    fn check(&self) -> Result<(), Broken> {
        let heap = self.heap();
        self.checking.set(true);
        // SAFETY: the heap is this value's, which is on one thread, and `heap` lets nobody in during the call.
        let result = unsafe { heap.check_quiescent() };
        self.checking.set(false);
        result
    }
}
