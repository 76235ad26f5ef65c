//! The functions that hand out blocks.
//!
//! Called by programs. Calls the heap. Sizes above `PTRDIFF_MAX`, products that overflow and a heap without memory all end
//! in a null pointer and `ENOMEM`; size 0 gives a block of its own, which is freed like any other.

use crate::release::release;
use crate::{ALIGN, HEAP, set_errno};
use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use freestone_core::PAGE_SIZE;
use libc::{EINVAL, ENOMEM};

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    serve_common(size)
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    serve_zeroed(count, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the C contract.
    unsafe { resize(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the C contract.
        Some(bytes) => unsafe { resize(block, bytes) },
        None => refuse(ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the C contract.
    unsafe { serve_to(out, align, size) }
}

/// `size` need not be a multiple of `align`, as in glibc.
#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if align.is_power_of_two() { serve(size, align.max(ALIGN)) } else { refuse(EINVAL) }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    serve_rounding(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    serve(size, PAGE_SIZE)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    serve_pages(size)
}

/// Sizes up to this are served by a table look-up and one list.
const COMMON: usize = 4096;

/// A block of `size` bytes for `malloc`: a hit of the core's list here, all else out of line.
#[inline(always)]
pub(crate) fn serve_common(size: usize) -> *mut c_void {
    if size <= COMMON {
        // SAFETY: a power of two, and a size that does not overflow when rounded up to it.
        let layout = unsafe { Layout::from_size_align_unchecked(size, ALIGN) };
        if let Some(block) = HEAP.allocate_cached(layout) {
            return block.as_ptr().cast();
        }
    }
    serve_any(size)
}

#[inline(never)]
fn serve_any(size: usize) -> *mut c_void {
    serve(size, ALIGN)
}

/// A block of `size` bytes, aligned to `align`, a power of two.
pub(crate) fn serve(size: usize, align: usize) -> *mut c_void {
    handed_out(layout(size, align).and_then(|layout| HEAP.allocate(layout)))
}

pub(crate) fn serve_zeroed(count: usize, size: usize) -> *mut c_void {
    let layout = count.checked_mul(size).and_then(|bytes| layout(bytes, ALIGN));
    handed_out(layout.and_then(|layout| HEAP.allocate_zeroed(layout)))
}

/// An alignment that is no power of two is rounded up to one, as in glibc; one that has none above it is invalid.
pub(crate) fn serve_rounding(align: usize, size: usize) -> *mut c_void {
    match align.max(ALIGN).checked_next_power_of_two() {
        Some(align) => serve(size, align),
        None => refuse(EINVAL),
    }
}

/// Whole pages.
pub(crate) fn serve_pages(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_SIZE) {
        Some(bytes) => serve(bytes, PAGE_SIZE),
        None => refuse(ENOMEM),
    }
}

/// Answers with an error number and leaves `errno` alone; `out` is written on success only.
///
/// # Safety
/// `out` is valid for a write.
pub(crate) unsafe fn serve_to(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return EINVAL;
    }
    let Some(block) = layout(size, align.max(ALIGN)).and_then(|layout| HEAP.allocate(layout)) else { return ENOMEM };
    // SAFETY: the caller's promise.
    unsafe { *out = block.as_ptr().cast() };
    0
}

/// glibc's `realloc`: null allocates, size 0 frees and answers null, a failure keeps the block.
///
/// # Safety
/// `block` is null or a live block of this heap.
#[inline(always)]
pub(crate) unsafe fn resize(block: *mut c_void, size: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast()) else { return serve(size, ALIGN) };
    if size == 0 {
        // SAFETY: the caller's promise.
        unsafe { release(block) };
        return null_mut();
    }
    // SAFETY: the caller's promise.
    handed_out(layout(size, ALIGN).and_then(|layout| unsafe { HEAP.resize(old, layout) }))
}

/// `None` above `PTRDIFF_MAX`.
#[inline(always)]
fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size, align).ok()
}

#[inline(always)]
fn handed_out(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => refuse(ENOMEM),
    }
}

#[cold]
#[inline(never)]
fn refuse(code: c_int) -> *mut c_void {
    set_errno(code);
    null_mut()
}
