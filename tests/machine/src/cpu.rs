//! Which processor runs: one load through the GS base, which each processor points at its own number when it starts.
//!
//! `processors` and the first start call `init`; locks and per-core lists ask [`Cpu`].

use core::arch::asm;
use core::num::NonZeroUsize;
use freestone_core::{Context, CoreId};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::GsBase;

/// The most processors that a machine may have.
pub const MAX_CPUS: usize = 8;

/// Names the running processor: the core of per-core lists, and the owner of a [`SpinLock`](freestone_core::SpinLock). A
/// handler of an interrupt has the number of the processor that it came upon.
#[derive(Clone, Copy, Debug)]
pub struct Cpu;

impl Cpu {
    /// The number of the running processor, from 0.
    #[inline(always)]
    pub fn number() -> usize {
        let number;
        // SAFETY: the GS base is the address of this processor's number since before any other Rust code ran on it. Nothing
        // moves code from one processor to another, so the number may be kept (`pure`, `nomem`).
        unsafe { asm!("mov {}, gs:[0]", out(reg) number, options(pure, nomem, nostack, preserves_flags)) }
        number
    }
}

impl CoreId for Cpu {
    #[inline(always)]
    fn core() -> usize {
        Self::number()
    }
}

// SAFETY: two processors have two numbers, and what runs on one of them at a time is nested interrupts.
unsafe impl Context for Cpu {
    #[inline(always)]
    fn id() -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(Self::number())
    }
}

static NUMBERS: [usize; MAX_CPUS] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Makes the running processor number `cpu`. The first thing that Rust code does on it.
pub(crate) fn init(cpu: usize) {
    GsBase::write(VirtAddr::from_ptr(&NUMBERS[cpu]));
}
