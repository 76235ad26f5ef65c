//! The floor: a plain static free list for each size class, the least that any allocator can do.
//!
//! Not an allocator to be used, but what the pair and window workloads are divided by: one load, one store and a link an
//! operation, no threads, no foreign blocks, nothing given back. Called by [`crate::peers`]; takes its memory from [`System`].
//!
//! Invariants:
//! - `F1` one thread at a time uses it: [`crate::peers::Peer::fits`] keeps it to workloads of one thread.
//! - `F2` a list holds free blocks of its class only, each exclusively the list's, linked through their first word.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

/// The step between classes, and the alignment of every block.
const STEP: usize = 16;
/// Sizes up to 2 KiB, the largest of the window.
const CLASSES: usize = 2048 / STEP + 1;
/// What is taken from [`System`] when a list is empty.
const CHUNK: usize = 64 << 10;

struct Lists([UnsafeCell<*mut u8>; CLASSES]);

// SAFETY: by F1 no two threads are in here at once.
unsafe impl Sync for Lists {}

static LISTS: Lists = Lists([const { UnsafeCell::new(null_mut()) }; CLASSES]);

/// The free lists of the process.
pub struct Floor;

// SAFETY: by F2 a block that is handed out is nobody else's, of the class that its layout asks for, and aligned to the step.
unsafe impl GlobalAlloc for Floor {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let list = list(layout);
        // SAFETY: by F1 nobody else is at the list.
        let first = unsafe { *list };
        if first.is_null() {
            return refill(layout);
        }
        // SAFETY: by F2 the first word of a free block is its link; by F1 nobody else is at the list.
        unsafe { *list = first.cast::<*mut u8>().read() };
        first
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let list = list(layout);
        // SAFETY: the caller gives up a block of at least a step, so that it has room for the link; by F1 nobody else is here.
        unsafe {
            block.cast::<*mut u8>().write(*list);
            *list = block;
        }
    }
}

#[inline]
fn list(layout: Layout) -> *mut *mut u8 {
    LISTS.0[layout.size().div_ceil(STEP)].get()
}

/// A block out of a new chunk, whose others go to the list.
#[cold]
#[inline(never)]
fn refill(layout: Layout) -> *mut u8 {
    let size = layout.size().next_multiple_of(STEP);
    let chunk = Layout::from_size_align(CHUNK, STEP).expect("a chunk is small");
    // SAFETY: a chunk is not empty.
    let start = unsafe { System.alloc(chunk) };
    assert!(!start.is_null() && layout.align() <= STEP, "the floor serves small blocks of small alignment");
    for offset in (size..=CHUNK - size).step_by(size) {
        // SAFETY: the block lies within the chunk, is no other's, and has the size that the list is of.
        unsafe { Floor.dealloc(start.byte_add(offset), layout) };
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_freed_comes_first() {
        let layout = Layout::from_size_align(48, 8).unwrap();
        // SAFETY: the layout is not empty and every block is freed once; no other test uses this floor.
        unsafe {
            let [one, other] = [(); 2].map(|()| Floor.alloc(layout));
            assert_ne!(one, other);
            Floor.dealloc(one, layout);
            Floor.dealloc(other, layout);
            assert_eq!([Floor.alloc(layout), Floor.alloc(layout)], [other, one]);
        }
    }
}
