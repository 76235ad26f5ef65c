//! The functions that take blocks back, and the one that measures them.
//!
//! Called by programs. Calls the heap, which looks the address up in its page map; null is taken and ignored. None of them
//! touches `errno` (`A2`). What is no live block of this heap stops the program with one line on stderr.

use crate::{ALIGN, HEAP};
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;
use freestone_core::FaultKind;

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the C contract.
    unsafe { release(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the C contract.
    unsafe { release(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    // SAFETY: the C contract.
    unsafe { release_checked(block, ALIGN, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(block: *mut c_void, align: usize, size: usize) {
    // SAFETY: the C contract.
    unsafe { release_checked(block, align.max(ALIGN), size) }
}

/// 0 for null, and for what is not of this heap.
#[unsafe(no_mangle)]
extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    NonNull::new(block.cast()).and_then(|block| HEAP.usable_size(block)).unwrap_or(0)
}

/// # Safety
/// `block` is null or a live block of this heap, and is not used afterwards.
#[inline(always)]
pub(crate) unsafe fn release(block: *mut c_void) {
    if let Some(block) = NonNull::new(block.cast()) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.free(block) }
    }
}

/// The block is found by its address; size and alignment are only checked against it.
///
/// # Safety
/// As for [`release`].
unsafe fn release_checked(block: *mut c_void, align: usize, size: usize) {
    let Some(found) = NonNull::new(block.cast()) else { return };
    match Layout::from_size_align(size, align) {
        // SAFETY: the caller's promise.
        Ok(layout) => unsafe { HEAP.free_sized(found, layout) },
        // No block has such a layout; the address alone decides.
        // SAFETY: the caller's promise.
        Err(_) => unsafe { HEAP.free(found) },
    }
}

/// Exports [`release`] under the mangled names of `operator delete`.
///
/// The pointer is the first argument of every form; the others (size, alignment, `nothrow`) are not checked: programs delete
/// objects through a base class of another size, which is wrong and yet works everywhere.
///
/// `operator new` is not ours, so it may be that of a library which brings both (another allocator that the program is linked
/// to): a block that is not of this heap goes to the next function of the same name, with its arguments. The C++ library's
/// calls `free`, which then says what is wrong.
macro_rules! operator_delete {
    ($($name:ident = $symbol:literal,)*) => {$(
        #[unsafe(export_name = $symbol)]
        unsafe extern "C" fn $name(block: *mut c_void, second: usize, third: usize) {
            let Some(found) = NonNull::new(block.cast()) else { return };
            // SAFETY: the C++ standard's contract, which is C's.
            match unsafe { HEAP.try_free(found) } {
                Ok(()) => {}
                // SAFETY: the symbol is that of an `operator delete`; the block is not of this heap.
                Err(FaultKind::Foreign) => unsafe { pass_on(concat!($symbol, "\0"), block, second, third) },
                // SAFETY: as above; this stops the program.
                Err(_) => unsafe { release(block) },
            }
        }
    )*};
}

/// # Safety
/// `name` ends with a zero byte and is that of an `operator delete`; `block` came from the program's `operator new`. The other
/// arguments are what came in their registers, whether the form has them or not.
#[cold]
#[inline(never)]
unsafe fn pass_on(name: &str, block: *mut c_void, second: usize, third: usize) {
    // SAFETY: looks a name up; no lock of the heap is held, so the dynamic linker may allocate.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    if next.is_null() {
        // SAFETY: stops the program, since the block is none of this heap.
        return unsafe { release(block) };
    }
    // SAFETY: a function of that name takes a pointer and at most two words, all in registers.
    let next: unsafe extern "C" fn(*mut c_void, usize, usize) = unsafe { core::mem::transmute(next) };
    // SAFETY: the caller's promise.
    unsafe { next(block, second, third) }
}

operator_delete! {
    delete = "_ZdlPv",
    delete_array = "_ZdaPv",
    delete_sized = "_ZdlPvm",
    delete_array_sized = "_ZdaPvm",
    delete_nothrow = "_ZdlPvRKSt9nothrow_t",
    delete_array_nothrow = "_ZdaPvRKSt9nothrow_t",
    delete_aligned = "_ZdlPvSt11align_val_t",
    delete_array_aligned = "_ZdaPvSt11align_val_t",
    delete_sized_aligned = "_ZdlPvmSt11align_val_t",
    delete_array_sized_aligned = "_ZdaPvmSt11align_val_t",
    delete_aligned_nothrow = "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    delete_array_aligned_nothrow = "_ZdaPvSt11align_val_tRKSt9nothrow_t",
}
