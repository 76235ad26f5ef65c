//! The internal names of glibc under which some programs (old C libraries' wrappers, debuggers, language runtimes) reach the
//! allocator. A program that gets a block from one of them frees it with `free`, so they must not lead to another heap.

use crate::allocate::{resize, serve, serve_common, serve_pages, serve_rounding, serve_to, serve_zeroed};
use crate::release::release;
use core::ffi::{c_int, c_void};
use freestone_core::PAGE_SIZE;

#[unsafe(no_mangle)]
extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
    serve_common(size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    serve_zeroed(count, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the C contract.
    unsafe { resize(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_free(block: *mut c_void) {
    // SAFETY: the C contract.
    unsafe { release(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_cfree(block: *mut c_void) {
    // SAFETY: the C contract.
    unsafe { release(block) }
}

#[unsafe(no_mangle)]
extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    serve_rounding(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    serve(size, PAGE_SIZE)
}

#[unsafe(no_mangle)]
extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    serve_pages(size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the C contract.
    unsafe { serve_to(out, align, size) }
}
