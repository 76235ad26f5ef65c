//! A timer a processor, which interrupts it again and again. Kernels call it to see what an allocator does in interrupts;
//! [`stepping`](crate::stepping) calls the same handler.
//!
//! It comes when it likes, but QEMU lets it in between groups of instructions only.

use crate::{apic, traps};
use core::sync::atomic::{AtomicPtr, Ordering};

/// What interrupts all processors.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what is called on the processor that is interrupted, with interrupts off.
pub fn set_handler(handler: fn()) {
    // Release pairs with the Acquire in `tick`: what the handler reads is there before it is called.
    HANDLER.store(handler as *mut (), Ordering::Release);
}

/// Interrupts the running processor every `ticks` ticks (nanoseconds in QEMU), or as soon as QEMU gets to it.
pub fn start(ticks: u32) {
    apic::start_timer(traps::TIMER, ticks);
}

/// No more. One interrupt may still come.
pub fn stop() {
    apic::start_timer(traps::TIMER, 0);
}

/// An interrupt.
pub(crate) fn tick() {
    // Acquire pairs with the Release in `set_handler`.
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: stored by `set_handler` only, from a function of this type.
        let handler = unsafe { core::mem::transmute::<*mut (), fn()>(handler) };
        handler();
    }
}
