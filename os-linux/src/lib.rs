//! Freestone for Linux programs: the home of the core's heap in a process.
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOCATOR: freestone_linux::Freestone = freestone_linux::Freestone;
//! # fn main() {}
//! ```
//!
//! [`Freestone`] is the process's heap for Rust programs; [`LinuxHeap`] is the same as a value, of which there may be several
//! and which frees all it holds when dropped. The preload library (`os-linux/preload`) is the process's heap for all others.
//!
//! What [`Linux`] supplies to the core, in the order of dependency:
//! - `sys`: system calls without libc, which programs interpose and which sets `errno`. [`report`]: lines on standard error.
//! - [`conf`]: `FREESTONE_CONF`, read once, when libc knows the environment.
//! - `clock`: the kernel's clock, without libc. `cgroup` and `pressure`: whether the process's control group has nearly used up
//!   its memory. `huge_pages`: whether there are any. [`MmapPages`]: pages. [`FutexLock`]: a lock that knows its owner and sleeps.
//! - [`LinuxLists`]: the per-core lists. A list operation is one restartable sequence (`sections`) on the area that libc has
//!   registered, or on our own ([`rseq`]); where the kernel has none, or is told not to, it is a claim by swap
//!   (`thread_lists`). `mode` decides which, once in a process. The lists of all cores lie in a row, the `board`.
//! - [`fork`]: handlers that leave a working heap in the child.
//!
//! **A shared library that may be unloaded** (a plugin with [`Freestone`] as its global allocator) has to be linked with
//! `-Wl,-z,nodelete`: threads may be inside its sections, and the kernel reads the descriptors of these, when `dlclose` comes.
//!
//! Nothing here allocates, panics or calls a libc function that may, in the middle of an allocation; libc is asked
//! for the auxiliary vector and, once, for a thread key and fork handlers. Only x86-64 so far: the sections, the thread
//! pointer and the system calls are its assembly.
#![no_std]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
compile_error!(
    "freestone-linux supports x86-64 Linux only: its restartable sequences and system calls are written in that assembly"
);

mod board;
mod cgroup;
mod clock;
pub mod conf;
pub mod fork;
mod huge_pages;
mod lists;
mod lock;
mod mmap;
mod mode;
mod pressure;
pub mod report;
pub mod rseq;
mod sections;
mod sys;
mod thread_lists;

pub use lists::LinuxLists;
pub use lock::FutexLock;
pub use mmap::MmapPages;
pub use mode::{Mode, mode};

use core::alloc::{GlobalAlloc, Layout};
use core::any::TypeId;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use freestone_core::{Fault, Heap, KeyedMap, Limits, Pages, Platform, RadixMap, Seal, Unsealed};

/// The home of a heap in a Linux process; `S` is how cached blocks are marked.
#[derive(Debug)]
pub struct Linux<S>(PhantomData<fn() -> S>);

/// A heap of a Linux process, as a value: `LinuxHeap::new(MmapPages)`.
///
/// A fork of a threaded program finds such a heap as it is at that moment; one that has to work in the child, and is not
/// [`Freestone`]'s, is registered by [`fork::guard`].
pub type LinuxHeap = Heap<Linux<Unsealed>>;

impl<S: Seal> Platform for Linux<S> {
    type Source = MmapPages;
    type Lists = LinuxLists;
    type Lock = FutexLock;
    /// Keys for 16 GiB: a table of 32 MiB of addresses, out of the block of the heap's own data.
    type Map = KeyedMap<RadixMap, { 4 << 20 }>;
    type Seal = S;

    /// 40 MiB, of which only what is touched costs memory: page map, board and first descriptors by one system call. Where the
    /// process may map less than 32 times that, a short block; and less than a GiB, no keys.
    const META_BLOCK: Pages = Pages(10 << 10);

    fn now_ms() -> Option<u64> {
        clock::now_ms()
    }

    /// As `FREESTONE_CONF` says; none until it is read.
    fn limits() -> Limits {
        conf::limits()
    }

    fn is_short(moved: Pages) -> bool {
        pressure::is_short(moved)
    }

    fn ready() -> bool {
        // The seal tells whose heap this is: unsealed ones are Rust's, and bring the fork handlers of `Freestone`'s with them.
        if TypeId::of::<S>() == TypeId::of::<Unsealed>() {
            guard_freestone();
            // Rust code runs after libc knows the environment; none now means there is none (`clearenv`).
            conf::process_started();
        }
        conf::get().is_some()
    }

    fn stop(fault: Fault) -> ! {
        report::report(format_args!("{fault}"));
        report::abort()
    }
}

static HEAP: LinuxHeap = Heap::new(MmapPages);

/// The process's heap as a global allocator. All values of this type are the same heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Freestone;

impl Freestone {
    /// The heap behind it, for statistics, trimming and checks.
    pub fn heap() -> &'static LinuxHeap {
        &HEAP
    }
}

// SAFETY: one static heap.
unsafe impl fork::ProcessHeap for Freestone {
    type Home = Linux<Unsealed>;
    fn heap() -> &'static LinuxHeap {
        &HEAP
    }

    fn mask() -> &'static AtomicU64 {
        static MASK: AtomicU64 = AtomicU64::new(0);
        &MASK
    }
}

fn guard_freestone() {
    static GUARDED: AtomicBool = AtomicBool::new(false);
    // Relaxed: the exchange only picks the one that registers; what registering allocates finds it done.
    if !GUARDED.load(Ordering::Relaxed) && !GUARDED.swap(true, Ordering::Relaxed) {
        fork::guard::<Freestone>();
    }
}

// SAFETY: the heap's own implementation, called for the one static heap.
unsafe impl GlobalAlloc for Freestone {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        unsafe { HEAP.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { HEAP.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        unsafe { HEAP.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        unsafe { HEAP.realloc(ptr, layout, new_size) }
    }
}
