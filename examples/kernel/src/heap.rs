//! What a kernel tells Freestone about itself: where pages come from, which processor runs, and what to do about corruption.

use core::num::NonZeroUsize;
use core::ptr::NonNull;
use freestone_core::{
    CHUNK_SIZE, ClaimLists, Contents, Context, CoreId, Fault, Mapped, PageRun, PageSource, Pages, Platform, Purged, Refused,
    SpinLock, Unsealed, WindowMap,
};
use freestone_machine::{Cpu, MAX_CPUS, Window, frames};

/// The kernel's direct map: here all physical memory is seen, which is 4 GiB at most.
const DIRECT_MAP: Window = Window::High;
const MEMORY: usize = 4 << 30;

/// The home of the kernel's heap.
pub struct Kernel;

impl Platform for Kernel {
    type Source = Frames;
    /// A cache for each processor. It needs nothing but a swap of a word; an interrupt that comes upon it misses.
    type Lists = ClaimLists<ThisCpu, MAX_CPUS>;
    /// Spins. An interrupt that comes upon its own processor inside is recognised, and served without the lock.
    type Lock = SpinLock<ThisCpu>;
    /// A table for the direct map. A kernel that maps its heap where it likes, in the lower half, takes `RadixMap`.
    type Map = WindowMap<{ DIRECT_MAP.base() }, { MEMORY / CHUNK_SIZE }>;
    /// `AddressSeal` marks freed blocks, so that most double frees are seen at once, for a few instructions each.
    type Seal = Unsealed;

    fn stop(fault: Fault) -> ! {
        panic!("{fault}")
    }
}

/// Which processor runs: one instruction in most kernels. It may be out of date when it is used, where threads can be moved.
pub struct ThisCpu;

impl CoreId for ThisCpu {
    fn core() -> usize {
        Cpu::number()
    }
}

// SAFETY: threads are not moved between processors here, so that two that are inside locks have two numbers. Where the
// scheduler may move a thread that is inside a lock, this is the thread's number, or the lock keeps the scheduler out.
unsafe impl Context for ThisCpu {
    fn id() -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(Cpu::number())
    }
}

/// Pages for the heap, from the kernel's frame allocator, seen in the direct map.
pub struct Frames;

// SAFETY: the frame allocator gives each frame to one owner; all are mapped, the first one is not among them, and the window
// does not reach the top of the address space. It declines where an interrupt comes upon it on its own processor. (Whoever takes
// frames otherwise does so with interrupts masked: see `PageSource`.)
unsafe impl PageSource for Frames {
    fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        let physical = frames::take(pages.0, align).ok()?;
        // Whoever had the frame last has left something there.
        Some(Mapped { start: NonNull::new(DIRECT_MAP.at(physical))?, contents: Contents::Unknown })
    }

    unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused> {
        let physical = run.start.addr().get() - DIRECT_MAP.base();
        frames::give(physical, run.pages.0).map_err(|_| Refused)
    }

    /// In a direct map the address is the frame: memory cannot go while its address stays.
    unsafe fn purge(&self, _: PageRun) -> Purged {
        Purged::Refused
    }
}
