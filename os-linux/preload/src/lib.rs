//! `libfreestone.so`: the C library's allocation functions on a Freestone heap, for any program, through `LD_PRELOAD`.
//!
//! Called by whatever runs in the process, libc and the dynamic linker included, from the first instructions after the
//! library was relocated to the last after the destructors. Calls [`freestone_core`]'s heap over [`freestone_linux`]'s home.
//!
//! Every exported function is a thin wrapper over the one heap; the names that C knows are never called from in here.
//!
//! | file | exports |
//! |---|---|
//! | `allocate.rs` | `malloc`, `calloc`, `realloc`, `reallocarray`, and the aligned ones |
//! | `release.rs` | `free`, `cfree`, `free_sized`, `free_aligned_sized`, C++ `operator delete`, `malloc_usable_size` |
//! | `aliases.rs` | the `__libc_` names |
//! | `inspect.rs` | `malloc_trim`, `mallopt`, `mallinfo`, `mallinfo2`, `malloc_stats`, `malloc_info` |
//! | `vfork.rs` | `vfork` |
//! | `start.rs` | nothing: fork handlers, start and end of the process |
//!
//! `operator new` is not here: it has to throw, and Rust cannot; libstdc++'s own calls `malloc` and throws by itself.
//!
//! Invariants: `A1` nothing here allocates on the way to the heap, loads lazily bound symbols, or needs `std` or
//! thread-local state, so that every call works before constructors and after destructors; `A2` `errno` is written by a
//! failing call only (the heap's system calls do not pass through libc); `A3` every block is aligned to 16 bytes at least.
//!
//! # Safety
//! The callers of exported functions are C programs; what they owe is the C standard's and the manual pages' contract: a
//! pointer that is handed in is null or a live block of this heap, is not used after it was freed, and out-pointers are
//! valid. The SAFETY comments call this "the C contract". Breaches that the heap sees stop the program.
#![no_std]

mod aliases;
mod allocate;
mod inspect;
mod release;
mod report;
mod start;
mod vfork;

use freestone_core::{AddressSeal, Heap};
use freestone_linux::{Linux, MmapPages};

// The `libc` crate names the library too, but not with its feature `std`, which other packages of one build may turn on.
#[link(name = "c")]
unsafe extern "C" {}

/// The heap of the process.
static HEAP: Heap<Linux<AddressSeal>> = Heap::new(MmapPages);

/// The alignment of every block, whatever its size (`A3`).
const ALIGN: usize = 16;

/// Sets `errno`.
#[cold]
fn set_errno(code: core::ffi::c_int) {
    // SAFETY: libc's function returns the address of the calling thread's `errno`.
    unsafe { *libc::__errno_location() = code }
}

/// Nothing here panics; what the compiler could not prove of that ends here.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    freestone_linux::report::abort()
}

// `core` is compiled to unwind and names this function, which is never called (panic = "abort"). Hidden: a Rust program that
// is linked to `libstd.so` would else take it for its own.
core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality: ud2");
