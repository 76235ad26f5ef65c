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

/// A heap that can be asked about itself while nobody else uses it.
pub trait Quiescent: Subject {
    /// Bytes of live blocks, as the heap counts them.
    fn live_bytes(&self) -> usize;

    /// The heap's walk over itself.
    ///
    /// # Safety
    /// Nobody else uses the heap during the call.
    unsafe fn check_quiescent(&self) -> Result<(), Broken>;
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

impl<P: Platform> Quiescent for Heap<P> {
    fn live_bytes(&self) -> usize {
        self.stats().live_bytes
    }

    unsafe fn check_quiescent(&self) -> Result<(), Broken> {
        // SAFETY: the caller's promise.
        unsafe { Heap::check_quiescent(self) }
    }
}

/// A heap of one thread, which no interrupt enters while it is checked.
///
/// Neither it nor its pieces can go to another thread; and whatever is asked of it in the middle of a check is a panic.
#[derive(Debug)]
pub struct Alone<H> {
    heap: H,
    /// Not `Sync`, by which this type is not either.
    checking: Cell<bool>,
}

impl<H> Alone<H> {
    /// Takes the heap in.
    pub const fn new(heap: H) -> Self {
        Self { heap, checking: Cell::new(false) }
    }

    pub(crate) fn inner(&self) -> &H {
        assert!(!self.checking.get(), "the heap is being checked");
        &self.heap
    }
}

impl<P: Platform> Alone<Heap<P>> {
    /// Its figures.
    pub fn stats(&self) -> Stats {
        self.inner().stats()
    }
}

impl<H: Subject> Subject for Alone<H> {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        self.inner().allocate(layout, fill)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, path: Path) {
        // SAFETY: the caller's promise.
        unsafe { self.inner().free(ptr, layout, path) }
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, path: Path) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().reallocate(ptr, old, new_size, path) }
    }

    fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.inner().usable_size(ptr)
    }

    fn usable(&self, ptr: NonNull<u8>, layout: Layout) -> Option<usize> {
        self.inner().usable(ptr, layout)
    }

    fn trim(&self) -> usize {
        self.inner().trim()
    }
}

impl<H: Quiescent> Audited for Alone<H> {
    type Broken = Broken;

    fn live_bytes(&self) -> usize {
        self.inner().live_bytes()
    }

    fn check(&self) -> Result<(), Broken> {
        let heap = self.inner();
        self.checking.set(true);
        // SAFETY: the heap is this value's, which is on one thread, and `inner` lets nobody in during the call.
        let result = unsafe { heap.check_quiescent() };
        self.checking.set(false);
        result
    }
}
