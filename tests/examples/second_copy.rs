//! A library with a copy of the allocator of its own (case R07): what it hands out, only it can free. Loaded by
//! `tests/global.rs`.

use freestone_linux::Freestone;

#[global_allocator]
static ALLOCATOR: Freestone = Freestone;

/// A text of `len` bytes, all of them `byte`, made by this library's allocator.
#[unsafe(no_mangle)]
pub extern "C" fn make(len: usize, byte: u8) -> *mut Vec<u8> {
    Box::into_raw(Box::new(vec![byte; len]))
}

/// Where its bytes begin.
///
/// # Safety
/// `text` came from [`make`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn data(text: *const Vec<u8>) -> *const u8 {
    // SAFETY: the caller's promise.
    unsafe { (*text).as_ptr() }
}

/// Frees it.
///
/// # Safety
/// `text` came from [`make`], and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drop_it(text: *mut Vec<u8>) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(text) });
}

/// Bytes that are live in this library's heap.
#[unsafe(no_mangle)]
pub extern "C" fn live_bytes() -> usize {
    Freestone::heap().stats().live_bytes
}
