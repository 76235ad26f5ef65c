//! An allocator under test, as [`crate::heap`] sees it. [`crate::peers`] implements it for each.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// An allocator over one arena, used by one thread.
///
/// No layout has size 0.
///
/// # Safety
/// A block that it returns lies within the arena, has the size and alignment asked for, shares no byte with another live block,
/// and keeps its contents until it is given back.
pub unsafe trait Peer: Sized {
    /// A heap that has no memory yet. It is not moved between [`open`](Self::open) and its end.
    fn empty() -> Self;

    /// Gives the heap its arena. Called once, before any other method.
    ///
    /// # Safety
    /// The arena is writable, and nobody else uses it as long as the heap or a block of it is used.
    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>);

    /// Allocates; `None`: refused.
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>>;

    /// Frees.
    ///
    /// # Safety
    /// The block is live, of this heap, and has this layout.
    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout);

    /// Changes the size of a block; `None`: refused, the block is as it was. What `GlobalAlloc` does by default, for peers that
    /// have nothing better.
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate); `new_size` is not 0 and, rounded up to the alignment, within `isize::MAX`.
    #[inline]
    unsafe fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller answers for the new size, and the alignment is one of a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let moved = self.allocate(new_layout)?;
        // SAFETY: two live blocks share no byte, and each is at least as long as the shorter size. The old one goes back as the
        // caller got it.
        unsafe {
            moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
            self.deallocate(block, layout);
        }
        Some(moved)
    }
}

/// How a heap that is reached through [`GlobalAlloc`] begins.
///
/// # Safety
/// As for [`Peer`], of the blocks that the [`GlobalAlloc`] returns.
pub unsafe trait Begin: GlobalAlloc {
    /// A heap that has no memory yet.
    fn empty() -> Self;

    /// Gives it the arena, `len` bytes from `start`.
    ///
    /// # Safety
    /// As for [`Peer::open`].
    unsafe fn begin(&self, start: *mut u8, len: usize);
}

/// A heap that is reached through [`GlobalAlloc`].
pub struct Global<H>(H);

// SAFETY: `Begin` promises the same of the blocks that it returns.
unsafe impl<H: Begin> Peer for Global<H> {
    fn empty() -> Self {
        Self(H::empty())
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        // SAFETY: handed on.
        unsafe { self.0.begin(arena.as_ptr().cast(), arena.len()) }
    }

    #[inline]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: no layout has size 0.
        NonNull::new(unsafe { self.0.alloc(layout) })
    }

    #[inline]
    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: handed on.
        unsafe { self.0.dealloc(block.as_ptr(), layout) }
    }

    #[inline]
    unsafe fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: handed on.
        NonNull::new(unsafe { self.0.realloc(block.as_ptr(), layout, new_size) })
    }
}
