//! An allocator under test as the workloads see it: blocks that are written when made and read when unmade.
//!
//! The only file that calls an allocator. Called by [`crate::workloads`].
//!
//! Invariants:
//! - `H1` a [`Block`] is live, is exclusively its owner's, and came from the allocator that its [`Tested`] borrows with the
//!   layout that it names: only [`Tested`] makes one, it is not `Copy`, and unmaking consumes it.
//! - `H2` a layout is at least two words and aligned to one: [`layout`] asserts it, and nothing else makes one.

use std::alloc::{GlobalAlloc, Layout};
use std::arch::asm;
use std::hint::black_box;
use std::ptr::NonNull;

const WORD: usize = size_of::<u64>();

/// The layout of a block of `size` bytes (a multiple of the word, at least two), opaque to the optimizer.
pub fn layout(size: usize) -> Layout {
    black_box(plain_layout(size))
}

/// The same, known to the optimizer: for the workloads that measure the inlined case.
pub const fn plain_layout(size: usize) -> Layout {
    assert!(size >= 2 * WORD && size.is_multiple_of(WORD));
    match Layout::from_size_align(size, WORD) {
        Ok(layout) => layout,
        Err(_) => panic!("a size beyond isize::MAX"),
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
    /// Writes `tag` into the first and the last word.
    #[inline(always)]
    fn write(&mut self, tag: u64) {
        let last = self.last();
        // SAFETY: by H1 and H2 both words are within a live block that nobody else touches, and aligned.
        unsafe {
            self.start.write(tag);
            last.write(!tag);
        }
    }

    /// The sum of what [`write`](Self::write) left.
    #[inline(always)]
    fn read(&self) -> u64 {
        let last = self.last();
        // SAFETY: as in `write`, which is called before a block leaves `Tested`.
        unsafe { self.start.read().wrapping_add(last.read().wrapping_mul(3)) }
    }

    /// Makes the optimizer forget what it knows of the block, so that neither it nor its words can be elided. Not `black_box`,
    /// which sends the pointer through memory: a store and a load in each pair, as much as some allocators' own work.
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
        // SAFETY: by H2 the offset is positive and stays within the block, which by H1 is live.
        unsafe { self.start.byte_add(self.layout.size() - WORD) }
    }
}

/// An allocator under test.
pub struct Tested<'a, A>(pub &'a A);

impl<A: GlobalAlloc> Tested<'_, A> {
    /// Allocates through a call and writes `tag`.
    #[inline(always)]
    pub fn make(&self, layout: Layout, tag: u64) -> Block {
        written(allocate(self.0, layout), layout, tag)
    }

    /// Reads what was written and deallocates through a call.
    #[inline(always)]
    pub fn unmake(&self, block: Block) -> u64 {
        let sum = block.read();
        deallocate(self.0, block);
        sum
    }

    /// Both at once, with the allocator inlined where it can be.
    #[inline(always)]
    pub fn make_and_unmake_inlined(&self, layout: Layout, tag: u64) -> u64 {
        // SAFETY: by H2 the size is not zero.
        let block = written(unsafe { self.0.alloc(layout) }, layout, tag);
        let sum = block.read();
        // SAFETY: by H1 the block is live and of this allocator and layout; it is consumed here.
        unsafe { self.0.dealloc(block.start.as_ptr().cast(), block.layout) };
        sum
    }
}

#[inline(always)]
fn written(start: *mut u8, layout: Layout, tag: u64) -> Block {
    let start = NonNull::new(start).expect("the allocator under test is out of memory").cast();
    let mut block = Block { start, layout };
    block.write(tag);
    block.hidden()
}

/// What `__rust_alloc` is in a default release build: a call, behind which the layout is not known.
#[inline(never)]
fn allocate<A: GlobalAlloc>(a: &A, layout: Layout) -> *mut u8 {
    // SAFETY: by H2 the size is not zero.
    unsafe { a.alloc(layout) }
}

/// What `__rust_dealloc` is in a default release build.
#[inline(never)]
fn deallocate<A: GlobalAlloc>(a: &A, block: Block) {
    // SAFETY: by H1 the block is live and of this allocator and layout; it is consumed here.
    unsafe { a.dealloc(block.start.as_ptr().cast(), block.layout) }
}
