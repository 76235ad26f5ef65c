//! The local APIC of the running processor: messages to the others, its timer, the end of an interrupt.
//!
//! `processors`, `timer` and `traps` call it. Its registers lie at the same address for each processor.

use core::ptr::with_exposed_provenance_mut;

const BASE: usize = 0xfee0_0000;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const COMMAND: usize = 0x300;
const TIMER: usize = 0x320;
const TIMER_COUNT: usize = 0x380;
const TIMER_DIVIDE: usize = 0x3e0;

/// In `SPURIOUS`: the APIC works.
const ENABLED: u32 = 1 << 8;
/// In `COMMAND`: to all processors but this one, as a level.
const OTHERS: u32 = 0b11 << 18 | 1 << 14;
const INIT: u32 = 0b101 << 8;
const STARTUP: u32 = 0b110 << 8;
/// In `TIMER`: starts again by itself.
const PERIODIC: u32 = 1 << 17;
/// In `TIMER_DIVIDE`: not at all.
const BY_ONE: u32 = 0b1011;

fn write(register: usize, value: u32) {
    // Exposed provenance: a device's address, which no Rust object has.
    let register = with_exposed_provenance_mut::<u32>(BASE + register);
    // SAFETY: a register of this processor's APIC, mapped by `start.s`; the few that are written here touch no memory.
    unsafe { register.write_volatile(value) }
}

/// Lets interrupts come; those that are none get the vector `spurious`.
pub(crate) fn enable(spurious: u8) {
    write(SPURIOUS, ENABLED | u32::from(spurious));
}

/// Resets all other processors.
pub(crate) fn reset_others() {
    write(COMMAND, OTHERS | INIT);
}

/// Has all other processors, just reset, run what lies at the start of a page below 1 MiB.
pub(crate) fn start_others(page: u8) {
    write(COMMAND, OTHERS | STARTUP | u32::from(page));
}

/// Interrupts all other processors.
pub(crate) fn interrupt_others(vector: u8) {
    write(COMMAND, OTHERS | u32::from(vector));
}

/// Ends the interrupt that is being handled.
pub(crate) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Interrupts this processor every `ticks` ticks of the bus; 0: no more.
pub(crate) fn start_timer(vector: u8, ticks: u32) {
    write(TIMER_DIVIDE, BY_ONE);
    write(TIMER, PERIODIC | u32::from(vector));
    write(TIMER_COUNT, ticks);
}
