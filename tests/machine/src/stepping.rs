//! Interrupts by counting instructions: between any two of them, and at the same ones in each run on one processor.
//!
//! The processor traps after every instruction, and each so many-th trap calls the handler of [`timer`]. Kernels start it,
//! `traps` calls it.

use crate::cpu::{Cpu, MAX_CPUS};
use crate::timer;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// For each processor: instructions to the next interrupt, and from one to the next. Relaxed: only that processor uses them.
static NEXT: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static EVERY: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// The processor's flag for a trap after every instruction.
const TRAP_FLAG: i32 = 1 << 8;

/// Interrupts the running processor after every `instructions` instructions, those of handlers not counted; a repeated
/// string instruction counts as often as it is repeated.
pub fn start(instructions: u32) {
    let cpu = Cpu::number();
    EVERY[cpu].store(instructions, Relaxed);
    NEXT[cpu].store(instructions, Relaxed);
    // SAFETY: `trap` takes the traps. The compiler keeps values off the stack's end, as it is not told that the stack is
    // left alone.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG) }
}

/// No more, from the next instruction on.
pub fn stop() {
    // SAFETY: as above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {others}", "popfq", others = const !TRAP_FLAG) }
}

/// The trap after an instruction.
pub(crate) fn trap() {
    let cpu = Cpu::number();
    match NEXT[cpu].load(Relaxed).saturating_sub(1) {
        0 => {
            timer::tick();
            NEXT[cpu].store(EVERY[cpu].load(Relaxed), Relaxed);
        }
        left => NEXT[cpu].store(left, Relaxed),
    }
}
