//! An allocator over an arena, and its live blocks in slots: written when they are made, read before they go.
//!
//! The only file that calls an allocator. Called by [`crate::trace`], [`crate::fill`] and [`crate::attack`].
//!
//! Invariants:
//! - `H1` a block in a slot is live and came from the heap's peer with the layout that it names: only [`Heap::allocate`] and
//!   [`Heap::resize`] make one, it is not `Copy`, it stays in the slots, and giving it back consumes it.
//! - `H2` its first and its last byte were written.

use crate::peer::Peer;
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// A live block.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

/// A place for a block.
pub type Slot = Option<Block>;

impl Block {
    #[inline(always)]
    fn write(&mut self, tag: u8) {
        // SAFETY: by H1 the block is live and nobody else's; it is not empty, so both bytes are within it.
        unsafe {
            self.start.write(tag);
            self.start.byte_add(self.layout.size() - 1).write(!tag);
        }
    }

    /// What was written to the byte at `index`, the first or the last.
    #[inline(always)]
    fn read(&self, index: usize) -> u64 {
        // SAFETY: by H1 the block is live; by H2 both bytes were written.
        u64::from(unsafe { self.start.byte_add(index).read() })
    }
}

/// An allocator over an arena, with its live blocks.
pub struct Heap<'a, P> {
    peer: &'a mut P,
    slots: &'a mut [Slot],
    tag: u8,
    sum: u64,
    refused: u64,
}

impl<'a, P: Peer> Heap<'a, P> {
    /// A heap over `arena`; whatever the slots held is forgotten.
    pub fn open(place: &'a mut MaybeUninit<P>, arena: &'a mut [MaybeUninit<u8>], slots: &'a mut [Slot]) -> Self {
        slots.fill_with(|| None);
        let peer = place.write(P::empty());
        // SAFETY: both are borrowed for as long as this heap, and the peer's blocks, live.
        unsafe { peer.open(NonNull::from_mut(arena)) };
        Self { peer, slots, tag: 0, sum: 0, refused: 0 }
    }

    /// Allocates into the slot, which is empty. `false`: refused.
    #[inline]
    pub fn allocate(&mut self, slot: usize, layout: Layout) -> bool {
        debug_assert!(self.slots[slot].is_none());
        assert!(layout.size() > 0);
        let Some(start) = allocate(self.peer, layout) else { return self.refuse() };
        self.put(slot, Block { start, layout });
        true
    }

    /// Frees what is in the slot, if anything is.
    #[inline]
    pub fn free(&mut self, slot: usize) {
        let Some(block) = self.slots[slot].take() else { return };
        self.add(block.read(0) + 3 * block.read(block.layout.size() - 1));
        deallocate(self.peer, block);
    }

    /// Changes the size of what is in the slot. `false`: refused, or nothing is there.
    #[inline]
    pub fn resize(&mut self, slot: usize, size: usize) -> bool {
        let Some(block) = self.slots[slot].take() else { return false };
        let old = block.layout.size();
        match reallocate(self.peer, block, size) {
            Ok(block) => {
                let last = if old <= size { block.read(old - 1) } else { 0 };
                self.add(block.read(0) + 3 * last);
                self.put(slot, block);
                true
            }
            Err(block) => {
                self.slots[slot] = Some(block);
                self.refuse()
            }
        }
    }

    /// Exchanges the contents of two slots.
    pub fn swap(&mut self, a: usize, b: usize) {
        self.slots.swap(a, b);
    }

    /// Frees everything, in the order of the slots.
    pub fn free_all(&mut self) {
        (0..self.slots.len()).for_each(|slot| self.free(slot));
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The address of what is in the slot.
    pub fn address(&self, slot: usize) -> Option<usize> {
        self.slots[slot].as_ref().map(|block| block.start.addr().get())
    }

    /// The sum of the sizes that were asked for and are live.
    pub fn live_bytes(&self) -> usize {
        self.slots.iter().flatten().map(|block| block.layout.size()).sum()
    }

    /// A sum over what was read: the same for allocators that kept what they were given and refused nothing.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The number of requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    #[inline(always)]
    fn put(&mut self, slot: usize, mut block: Block) {
        block.write(self.tag);
        self.tag = self.tag.wrapping_add(1);
        self.slots[slot] = Some(block);
    }

    #[inline(always)]
    fn add(&mut self, value: u64) {
        self.sum = self.sum.wrapping_mul(5).wrapping_add(value);
    }

    #[cold]
    fn refuse(&mut self) -> bool {
        self.refused += 1;
        false
    }
}

/// What `__rust_alloc` is in a default release build: a call, behind which the layout is not known.
#[inline(never)]
fn allocate<P: Peer>(peer: &mut P, layout: Layout) -> Option<NonNull<u8>> {
    peer.allocate(layout)
}

/// What `__rust_dealloc` is.
#[inline(never)]
fn deallocate<P: Peer>(peer: &mut P, block: Block) {
    // SAFETY: by H1 the block is live, of this peer and layout; it is consumed here.
    unsafe { peer.deallocate(block.start, block.layout) }
}

/// What `__rust_realloc` is. `Err`: refused, the block comes back.
#[inline(always)]
fn reallocate<P: Peer>(peer: &mut P, block: Block, size: usize) -> Result<Block, Block> {
    #[inline(never)]
    fn call<P: Peer>(peer: &mut P, block: &Block, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: by H1 the block is live, of this peer and layout; the callee's caller gives it up if this succeeds, and has
        // checked the size.
        unsafe { peer.reallocate(block.start, block.layout, size) }
    }
    let layout = Layout::from_size_align(size, block.layout.align()).expect("sizes are far below isize::MAX");
    assert!(size > 0);
    match call(peer, &block, size) {
        Some(start) => Ok(Block { start, layout }),
        None => Err(block),
    }
}
