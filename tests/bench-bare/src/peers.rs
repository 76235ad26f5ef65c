//! The peers, each as its users have it, but with the cheapest lock that it allows: none where the type without a lock has an
//! API of its own, else one that does nothing. Called by [`crate::heap`] through [`Peer`].
//!
//! What is not in the arena (lists and bitmaps in the heap's own value) is told by the value's size.

use crate::peer::{Begin, Global, Peer};
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use rlsf::int::BinInteger;
use talc::source::Manual;
use talc::{DefaultBinning, cell::TalcCell};

/// talc with its default binning, in its cell without a lock.
pub type Talc = Global<TalcCell<Manual, DefaultBinning>>;

// SAFETY: the contract of `GlobalAlloc`, which talc implements, over the memory that it has claimed.
unsafe impl Begin for TalcCell<Manual, DefaultBinning> {
    fn empty() -> Self {
        Self::new(Manual)
    }

    unsafe fn begin(&self, start: *mut u8, len: usize) {
        // SAFETY: the caller gives the arena away.
        unsafe { self.claim(start, len) }.expect("the arena holds talc's lists");
    }
}

/// embedded-alloc's linked list.
pub type EmbeddedList = Global<embedded_alloc::LlffHeap>;

// SAFETY: the contract of `GlobalAlloc`, which the heap implements, over the arena that it was given.
unsafe impl Begin for embedded_alloc::LlffHeap {
    fn empty() -> Self {
        Self::empty()
    }

    unsafe fn begin(&self, start: *mut u8, len: usize) {
        // SAFETY: the caller gives the arena away; the crate wants its address as a number.
        unsafe { self.init(start.expose_provenance(), len) }
    }
}

/// embedded-alloc's TLSF: rlsf with as many lists as a word has bits, on either level.
pub type EmbeddedTlsf = Global<embedded_alloc::TlsfHeap>;

// SAFETY: the contract of `GlobalAlloc`, which the heap implements, over the arena that it was given.
unsafe impl Begin for embedded_alloc::TlsfHeap {
    fn empty() -> Self {
        Self::empty()
    }

    unsafe fn begin(&self, start: *mut u8, len: usize) {
        // SAFETY: as above.
        unsafe { self.init(start.expose_provenance(), len) }
    }
}

/// The lock of embedded-alloc: nothing, since one thread uses a heap.
struct NoSection;
critical_section::set_impl!(NoSection);

// SAFETY: not a critical section at all. Only embedded-alloc's heaps enter it, and each of them stays with one thread.
unsafe impl critical_section::Impl for NoSection {
    unsafe fn acquire() -> critical_section::RawRestoreState {
        Default::default()
    }

    unsafe fn release(_: critical_section::RawRestoreState) {}
}

/// rlsf with `FL` first-level and `SL` second-level lists.
pub struct Rlsf<F, S, const FL: usize, const SL: usize>(rlsf::Tlsf<'static, F, S, FL, SL>);

/// The parameters of its documentation: blocks of up to 128 KiB where words have 64 bits.
pub type Rlsf12 = Rlsf<u16, u16, 12, 16>;
/// The same for blocks of up to 2 MiB.
pub type Rlsf16 = Rlsf<u16, u16, 16, 16>;
/// The same for blocks of up to 32 MiB.
pub type Rlsf20 = Rlsf<u32, u16, 20, 16>;

// SAFETY: rlsf's own contract, over the pool that it was given.
unsafe impl<F: BinInteger, S: BinInteger, const FL: usize, const SL: usize> Peer for Rlsf<F, S, FL, SL> {
    fn empty() -> Self {
        Self(rlsf::Tlsf::new())
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        let pool = NonNull::slice_from_raw_parts(arena.cast(), arena.len());
        // SAFETY: the caller gives the arena away.
        unsafe { self.0.insert_free_block_ptr(pool) }.expect("the arena holds a block");
    }

    #[inline]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.allocate(layout)
    }

    #[inline]
    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the block is one of this heap, with this alignment.
        unsafe { self.0.deallocate(block, layout.align()) }
    }

    #[inline]
    unsafe fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller answers for the block, and for the new size with the alignment of a layout.
        unsafe { self.0.reallocate(block, Layout::from_size_align_unchecked(new_size, layout.align())) }
    }
}

/// linked_list_allocator's heap without a lock.
pub struct LinkedList(linked_list_allocator::Heap);

// SAFETY: the crate's own contract, over the memory that it was given.
unsafe impl Peer for LinkedList {
    fn empty() -> Self {
        Self(linked_list_allocator::Heap::empty())
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        // SAFETY: the caller gives the arena away, once.
        unsafe { self.0.init(arena.as_ptr().cast(), arena.len()) }
    }

    #[inline]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.allocate_first_fit(layout).ok()
    }

    #[inline]
    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the block is one of this heap, with this layout.
        unsafe { self.0.deallocate(block, layout) }
    }
}

/// buddy_system_allocator's heap without a lock, of the order that its documentation has.
pub struct Buddy(buddy_system_allocator::Heap<33>);

// SAFETY: the crate's own contract, over the memory that it was given.
unsafe impl Peer for Buddy {
    fn empty() -> Self {
        Self(buddy_system_allocator::Heap::new())
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        // SAFETY: the caller gives the arena away; the crate wants its address as a number.
        unsafe { self.0.init(arena.as_ptr().expose_provenance(), arena.len()) }
    }

    #[inline]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.alloc(layout).ok()
    }

    #[inline]
    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the block is one of this heap, with this layout.
        unsafe { self.0.dealloc(block, layout) }
    }
}
