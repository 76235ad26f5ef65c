//! The ends of the process, and its forks: what has to be done once, outside every allocation.
//!
//! Called by the dynamic linker, through the library's tables of constructors and destructors, and by libc around `fork`.
//! Calls the heap and `freestone_linux`. The heap needs none of it to work: it serves calls before, and after.

use crate::{HEAP, report};
use core::sync::atomic::AtomicU64;
use freestone_core::{AddressSeal, Heap};
use freestone_linux::conf::{self, Report};
use freestone_linux::{Linux, fork};

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_start() {
    conf::process_started();
    // This may allocate, so it is not done from within an allocation. Among the first to be registered, the heap's handlers
    // are the last to close before a fork: those of the program find it open. Where libc has no memory for it, threads that
    // fork are on their own; there is nobody to tell.
    let _ = fork::guard::<Process>();
}

extern "C" fn at_end() {
    if conf::get().is_some_and(|conf| conf.stats == Report::AtExit) {
        report::print("heap report");
    }
}

/// Names the process's heap for the fork handlers.
struct Process;

// SAFETY: one static heap.
unsafe impl fork::ProcessHeap for Process {
    type Home = Linux<AddressSeal>;

    fn heap() -> &'static Heap<Self::Home> {
        &HEAP
    }

    fn mask() -> &'static AtomicU64 {
        static MASK: AtomicU64 = AtomicU64::new(0);
        &MASK
    }
}
