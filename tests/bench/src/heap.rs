//! An allocator under test as the workloads see it: blocks that are written when made and read when unmade.
//!
//! The only file through which the workloads call an allocator. Called by [`crate::workloads`].
//!
//! Invariants:
//! - `H1` a [`Block`] is live, is exclusively its owner's, and came from the allocator that its [`Tested`] borrows with the
//!   layout that it names: only [`Tested`] makes one, it is not `Copy`, and unmaking consumes it.
//! - `H2` a block's layout is at least one word and aligned to one: [`plain_layout`] and [`aligned_layout`] assert it, and
//!   nothing else makes one. Its last word need not be aligned.

use allocator_api2::alloc::{AllocError, Allocator};
use std::alloc::{GlobalAlloc, Layout};
use std::arch::asm;
use std::hint::black_box;
use std::ptr::{NonNull, null_mut};

const WORD: usize = size_of::<u64>();

/// The layout of a block of `size` bytes (at least a word), opaque to the optimizer.
pub fn layout(size: usize) -> Layout {
    black_box(plain_layout(size))
}

/// The same, known to the optimizer: for the workloads that measure the inlined case.
pub const fn plain_layout(size: usize) -> Layout {
    aligned_layout(size, WORD)
}

/// The layout of a block of `size` bytes (at least a word) at a multiple of `align` (at least a word).
pub const fn aligned_layout(size: usize, align: usize) -> Layout {
    assert!(size >= WORD && align >= WORD);
    match Layout::from_size_align(size, align) {
        Ok(layout) => layout,
        Err(_) => panic!("no power of two, or a size beyond isize::MAX"),
    }
}

/// A live block. Leaked when dropped: the process that measures ends soon.
#[must_use]
pub struct Block {
    start: NonNull<u64>,
    layout: Layout,
}

// SAFETY: by H1 a block is exclusively its owner's; the allocators under test are global ones, which take a block back on
// any thread.
unsafe impl Send for Block {}

impl Block {
    /// Writes `tag` into a word in each `step` bytes (a multiple of the word), the first word among them and not the last
    /// one.
    pub fn touch(&mut self, step: usize, tag: u64) {
        // SAFETY: by H1 each of these words is within a live block that nobody else touches; they are aligned.
        self.every(step).for_each(|word| unsafe { word.write(tag) });
    }

    /// Adds one to the first word so many times, each time in memory.
    #[inline(always)]
    pub fn stir(&mut self, times: u64) {
        let first = self.start.as_ptr();
        for _ in 0..times {
            // SAFETY: by H1 and H2 the first word is within a live block that nobody else touches, and was written.
            unsafe { first.write_volatile(first.read_volatile().wrapping_add(1)) };
        }
    }

    /// The words at the multiples of `step` that end before the last word begins.
    fn every(&self, step: usize) -> impl Iterator<Item = NonNull<u64>> + use<> {
        assert!(step.is_multiple_of(WORD));
        let start = self.start;
        let offsets = 0..(self.layout.size() + 1).saturating_sub(2 * WORD);
        // SAFETY: a word at the offset ends within the block, which by H1 is live.
        offsets.step_by(step).map(move |offset| unsafe { start.byte_add(offset) })
    }

    /// Writes `tag` into the first word, and what it is not into the last one.
    #[inline(always)]
    fn write(&mut self, tag: u64) {
        let last = self.last();
        // SAFETY: by H1 and H2 both words are within a live block that nobody else touches, and the first is aligned.
        unsafe {
            self.start.write(tag);
            last.write_unaligned(!tag);
        }
    }

    /// The sum of what [`write`](Self::write) left.
    #[inline(always)]
    fn read(&self) -> u64 {
        both(self.first(), self.word(self.layout.size() - WORD))
    }

    #[inline(always)]
    fn first(&self) -> u64 {
        // SAFETY: by H1 and H2 the word is within a live block and aligned; `write` is called before a block leaves
        // `Tested`.
        unsafe { self.start.read() }
    }

    /// The word at `offset`, which has been written.
    #[inline(always)]
    fn word(&self, offset: usize) -> u64 {
        debug_assert!(offset + WORD <= self.layout.size());
        // SAFETY: by H1 the block is live; callers name the place of a last word, where `write` was.
        unsafe { self.start.byte_add(offset).read_unaligned() }
    }

    /// The block with `tag` in it, out of the optimizer's sight.
    #[inline(always)]
    fn renewed(mut self, tag: u64) -> Self {
        self.write(tag);
        self.hidden()
    }

    /// Makes the optimizer forget what it knows of the block, so that neither it nor its words can be elided. Not
    /// `black_box`, which sends the pointer through memory: a store and a load in each pair, as much as some allocators' own
    /// work.
    #[inline(always)]
    fn hidden(self) -> Self {
        let mut start = self.start.as_ptr();
        // SAFETY: no instruction at all, the pointer comes back as it was. Without `nomem` the block counts as touched.
        unsafe { asm!("/* {0} */", inout(reg) start, options(nostack, preserves_flags)) };
        // SAFETY: it was not null and is the same.
        Self { start: unsafe { NonNull::new_unchecked(start) }, ..self }
    }

    #[inline(always)]
    fn last(&self) -> NonNull<u64> {
        // SAFETY: by H2 the offset is not negative, and it stays within the block, which by H1 is live.
        unsafe { self.start.byte_add(self.layout.size() - WORD) }
    }
}

/// An allocator under test.
pub struct Tested<'a, A>(pub &'a A);

impl<A> Clone for Tested<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Tested<'_, A> {}

impl<A: GlobalAlloc> Tested<'_, A> {
    /// Allocates through a call and writes `tag`.
    #[inline(always)]
    pub fn make(&self, layout: Layout, tag: u64) -> Block {
        Block { start: found(allocate(self.0, layout)), layout }.renewed(tag)
    }

    /// Allocates zeroed memory through a call, proves that a word in each `step` bytes and the last one are zero, and writes
    /// `tag` there.
    pub fn make_zeroed(&self, layout: Layout, step: usize, tag: u64) -> Block {
        let mut block = Block { start: found(allocate_zeroed(self.0, layout)), layout };
        // SAFETY: by H1 the words are within a live block; they are aligned, and the allocator owes that they are written.
        let found = block.every(step).fold(block.read(), |found, word| found | unsafe { word.read() });
        assert_eq!(found, 0, "memory that should be zero");
        block.touch(step, tag);
        block.renewed(tag)
    }

    /// Reallocates to `size` bytes (at least a word) through a call; reads what the old block held, after the call where the
    /// new one must have kept it, and writes `tag`.
    #[inline(always)]
    pub fn remake(&self, block: Block, size: usize, tag: u64) -> (Block, u64) {
        let old = block.layout;
        let place = old.size() - WORD;
        let last = block.word(place);
        // SAFETY: by H1 the block is live and of this allocator and layout; it is consumed here.
        let start = unsafe { reallocate(self.0, block.start.as_ptr().cast(), old, size) };
        let block = Block { start: found(start), layout: aligned_layout(size, old.align()) };
        let last = if size >= old.size() { block.word(place) } else { last };
        let sum = both(block.first(), last);
        (block.renewed(tag), sum)
    }

    /// Reads what was written and deallocates through a call.
    #[inline(always)]
    pub fn unmake(&self, block: Block) -> u64 {
        let sum = block.read();
        // SAFETY: by H1 the block is live and of this allocator and layout; it is consumed here.
        unsafe { deallocate(self.0, block.start.as_ptr().cast(), block.layout) };
        sum
    }

    /// As [`make`](Self::make), with the allocator inlined where it can be.
    #[inline(always)]
    pub fn make_inlined(&self, layout: Layout, tag: u64) -> Block {
        // SAFETY: by H2 the size is not zero.
        let start = unsafe { self.0.alloc(layout) };
        Block { start: found(start), layout }.renewed(tag)
    }

    /// As [`unmake`](Self::unmake), with the allocator inlined where it can be.
    #[inline(always)]
    pub fn unmake_inlined(&self, block: Block) -> u64 {
        let sum = block.read();
        // SAFETY: by H1 the block is live and of this allocator and layout; it is consumed here.
        unsafe { self.0.dealloc(block.start.as_ptr().cast(), block.layout) };
        sum
    }
}

// SAFETY: the allocators under test are global ones: a block stays where it is until it is freed, whatever becomes of the
// handle, and copies of a reference name the same allocator. Nothing is asked of the allocator for an empty layout.
unsafe impl<A: GlobalAlloc> Allocator for Tested<'_, A> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let empty = || null_mut::<u8>().with_addr(layout.align());
        block_of(if layout.size() == 0 { empty() } else { allocate(self.0, layout) }, layout)
    }

    #[inline]
    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: the caller's promise: the block came from `allocate` with that layout.
            unsafe { deallocate(self.0, start.as_ptr(), layout) };
        }
    }

    #[inline]
    unsafe fn grow(&self, start: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        assert_eq!(old.align(), new.align(), "a collection never changes its alignment");
        if old.size() == 0 {
            return self.allocate(new);
        }
        // SAFETY: the caller's promise: the block came from `allocate` with that layout.
        block_of(unsafe { reallocate(self.0, start.as_ptr(), old, new.size()) }, new)
    }
}

fn block_of(start: *mut u8, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(start).map(|start| NonNull::slice_from_raw_parts(start, layout.size())).ok_or(AllocError)
}

#[inline(always)]
fn both(first: u64, last: u64) -> u64 {
    first.wrapping_add(last.wrapping_mul(3))
}

#[inline(always)]
fn found(start: *mut u8) -> NonNull<u64> {
    NonNull::new(start).expect("the allocator under test is out of memory").cast()
}

/// What `__rust_alloc` is in a default release build: a call, behind which the layout is not known.
#[inline(never)]
fn allocate<A: GlobalAlloc>(a: &A, layout: Layout) -> *mut u8 {
    // SAFETY: no caller asks for an empty layout.
    unsafe { a.alloc(layout) }
}

/// What `__rust_alloc_zeroed` is in a default release build.
#[inline(never)]
fn allocate_zeroed<A: GlobalAlloc>(a: &A, layout: Layout) -> *mut u8 {
    // SAFETY: no caller asks for an empty layout.
    unsafe { a.alloc_zeroed(layout) }
}

/// What `__rust_realloc` is in a default release build.
///
/// # Safety
/// The block is live, of this allocator and layout, and given up unless the answer is null; the new size is not zero.
#[inline(never)]
unsafe fn reallocate<A: GlobalAlloc>(a: &A, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { a.realloc(start, layout, size) }
}

/// What `__rust_dealloc` is in a default release build.
///
/// # Safety
/// The block is live, of this allocator and layout, and given up.
#[inline(never)]
unsafe fn deallocate<A: GlobalAlloc>(a: &A, start: *mut u8, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe { a.dealloc(start, layout) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    const HEAP: Tested<System> = Tested(&System);

    #[test]
    fn a_block_remembers_its_tag_until_it_is_unmade() {
        let held = |size| HEAP.unmake(HEAP.make(layout(size), 7));
        assert_eq!([16, 17, 100].map(held), [both(7, !7); 3]);
        assert_eq!(held(8), both(!7, !7), "the only word is the last one");
    }

    #[test]
    fn a_remade_block_keeps_what_it_held() {
        let (grown, first) = HEAP.remake(HEAP.make(layout(24), 1), 1000, 2);
        let (shrunk, second) = HEAP.remake(grown, 17, 3);
        assert_eq!([first, second, HEAP.unmake(shrunk)], [1, 2, 3].map(|tag: u64| both(tag, !tag)));
    }

    #[test]
    fn a_zeroed_block_was_zero_and_holds_what_it_was_touched_with() {
        let block = HEAP.make_zeroed(layout(1 << 16), 4096, 5);
        assert_eq!(HEAP.unmake(block), both(5, !5));
    }

    #[test]
    fn stirring_counts_in_the_block() {
        let mut block = HEAP.make(layout(16), 5);
        block.stir(100);
        assert_eq!(HEAP.unmake(block), both(105, !5));
    }
}
