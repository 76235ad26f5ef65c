//! The allocator as a Rust program built with fat LTO has it: by call, and inlined. `tests/golden.rs` builds this library and
//! counts the instructions of its functions; nothing runs them.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::asm;
use freestone_linux::Freestone;
use std::alloc::handle_alloc_error;

/// Allocates, where the caller alone knows the layout.
///
/// # Safety
/// `size` and `align` make a layout, and `size` is not 0.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn golden_alloc(size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { Freestone.alloc(Layout::from_size_align_unchecked(size, align)) }
}

/// Frees, where the caller alone knows the layout.
///
/// # Safety
/// `block` is live, and [`golden_alloc`] made it by the same `size` and `align`.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn golden_dealloc(block: *mut u8, size: usize, align: usize) {
    // SAFETY: the caller's promise.
    unsafe { Freestone.dealloc(block, Layout::from_size_align_unchecked(size, align)) }
}

/// Allocates 64 bytes and frees them, both known to the optimizer, as a `Box` does it.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn golden_pair_64() {
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: the size is not 0.
    let mut block = unsafe { Freestone.alloc(layout) };
    if block.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: no instruction at all, the pointer comes back as it was. It stands for the use of the block.
    unsafe { asm!("/* {0} */", inout(reg) block, options(nostack, preserves_flags)) };
    // SAFETY: the block is live, of this layout, and not used again.
    unsafe { Freestone.dealloc(block, layout) }
}
