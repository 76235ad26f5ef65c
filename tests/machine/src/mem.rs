//! What compiled code calls by name and the host's target takes from libc, which is not here.
//!
//! Written with string instructions, lest the compiler make a call of the function itself out of a loop.

use core::arch::asm;
use core::ffi::{c_char, c_int};

/// Copies forward: words, then the bytes that are left.
///
/// # Safety
/// As C's `memcpy`; the two may also overlap if `to` is below `from`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: writes and reads `length` bytes, by the caller's promise; the direction flag is clear, by the ABI.
    unsafe {
        asm!(
            "rep movsq", "mov rcx, {tail}", "rep movsb",
            tail = in(reg) length % 8, inout("rcx") length / 8 => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags)
        )
    }
    to
}

/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= length {
        // SAFETY: the caller's promise; `to` is below `from`, or the two do not overlap.
        return unsafe { memcpy(to, from, length) };
    }
    let (to_last, from_last) = (to.wrapping_add(length).wrapping_sub(1), from.wrapping_add(length).wrapping_sub(1));
    // SAFETY: as for `memcpy`, from the last byte down; the direction flag is clear again afterwards. An interrupt in
    // between clears it for its handler (`traps.s`).
    unsafe {
        asm!(
            "std", "rep movsb", "cld",
            inout("rcx") length => _, inout("rdi") to_last => _, inout("rsi") from_last => _, options(nostack)
        )
    }
    to
}

/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: c_int, length: usize) -> *mut u8 {
    let word = u64::from_ne_bytes([byte as u8; 8]);
    // SAFETY: writes `length` bytes, by the caller's promise; the direction flag is clear, by the ABI.
    unsafe {
        asm!(
            "rep stosq", "mov rcx, {tail}", "rep stosb",
            tail = in(reg) length % 8, inout("rcx") length / 8 => _, inout("rdi") to => _, in("rax") word,
            options(nostack, preserves_flags)
        )
    }
    to
}

/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, length: usize) -> c_int {
    let (mut a_end, mut b_end) = (a, b);
    let differs: u8;
    // SAFETY: reads up to `length` bytes of each, by the caller's promise; the direction flag is clear, by the ABI. The
    // comparison of a register with itself is for a length of 0, for which the other instruction sets no flag.
    unsafe {
        asm!(
            "cmp ecx, ecx", "repe cmpsb", "setne {differs}",
            differs = out(reg_byte) differs, inout("rcx") length => _, inout("rsi") a_end, inout("rdi") b_end,
            options(nostack, readonly)
        )
    }
    if differs == 0 {
        return 0;
    }
    // SAFETY: the instruction has stopped behind the first byte that differs, inside both.
    unsafe { c_int::from(*a_end.sub(1)) - c_int::from(*b_end.sub(1)) }
}

/// # Safety
/// As `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, length) }
}

/// # Safety
/// As C's `strlen`.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const c_char) -> usize {
    let left: usize;
    // SAFETY: reads up to the zero, by the caller's promise; the direction flag is clear, by the ABI.
    unsafe {
        asm!(
            "repne scasb",
            inout("rcx") usize::MAX => left, inout("rdi") text => _, in("al") 0_u8, options(nostack, readonly)
        )
    }
    // The count went down once more, for the zero itself.
    usize::MAX - left - 1
}

/// The host's `core` is built to unwind, and names these two; nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::fail(format_args!("unwinding, in a program that cannot"))
}
