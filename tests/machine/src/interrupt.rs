//! Interrupts again and again, from a timer or by counting instructions. Kernels call it to see what an allocator does in
//! interrupts.
//!
//! A timer comes when it likes, but QEMU lets it in between groups of instructions only. Stepping comes between any two, and
//! at the same ones in each run on one processor: the processor traps after every instruction, and each so many-th trap is
//! an interrupt.

use crate::cpu::{Cpu, MAX_CPUS};
use crate::{apic, traps};
use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What interrupts all processors.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// For each processor: instructions to the next interrupt, and from one to the next. Relaxed: only that processor uses them.
static NEXT: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static EVERY: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// The flag of the processor that has it trap after every instruction.
const TRAP_FLAG: u64 = 1 << 8;

/// Sets what the interrupts of all processors call, on the processor that is interrupted, with interrupts off.
pub fn set_handler(handler: fn()) {
    // Release pairs with the Acquire in `come`: what the handler reads is there before it is called.
    HANDLER.store(handler as *mut (), Ordering::Release);
}

/// Interrupts the running processor every `ticks` ticks (nanoseconds in QEMU), or as soon as QEMU gets to it.
pub fn start_timer(ticks: u32) {
    apic::start_timer(traps::TIMER, ticks);
}

/// No more. One interrupt may still come.
pub fn stop_timer() {
    apic::start_timer(traps::TIMER, 0);
}

/// Interrupts the running processor after every `instructions` instructions, those of handlers not counted; a repeated
/// string instruction counts as often as it is repeated.
pub fn start_stepping(instructions: u32) {
    let cpu = Cpu::number();
    EVERY[cpu].store(instructions, Ordering::Relaxed);
    NEXT[cpu].store(instructions, Ordering::Relaxed);
    // SAFETY: a trap after every instruction is handled by `step`. The red zone is the assembler's business: it is told of
    // the stack.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG) }
}

/// No more, from the next instruction on.
pub fn stop_stepping() {
    // SAFETY: as above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {flags}", "popfq", flags = const !TRAP_FLAG as i32) }
}

/// The trap after an instruction.
pub(crate) fn step() {
    let cpu = Cpu::number();
    match NEXT[cpu].load(Ordering::Relaxed).saturating_sub(1) {
        0 => {
            come();
            NEXT[cpu].store(EVERY[cpu].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        left => NEXT[cpu].store(left, Ordering::Relaxed),
    }
}

/// An interrupt.
pub(crate) fn come() {
    // Acquire pairs with the Release in `set_handler`.
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: stored by `set_handler` only, from a function of this type.
        let handler = unsafe { core::mem::transmute::<*mut (), fn()>(handler) };
        handler();
    }
}
