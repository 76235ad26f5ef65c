//! The board: what your HAL, your runtime and your linker script bring. Replace this file; `main.rs` stays.

pub use freestone_machine::println;

use freestone_bare::Region;
use freestone_machine::{Window, frames, timer};
use x86_64::instructions::{hlt, interrupts};

/// Where the data sheet has the external RAM, and how much there is.
const EXTERNAL_RAM: usize = 0x0800_0000;
const EXTERNAL_SIZE: usize = 1 << 20;

/// Sets the memory controller up. (This machine has one memory: a part of it that nobody else gets stands in for the other.)
pub fn external_ram() -> Region {
    frames::take_at(EXTERNAL_RAM, EXTERNAL_SIZE / 4096).expect("the memory is free");
    Region::new(Window::Low.at(EXTERNAL_RAM), EXTERNAL_SIZE)
}

/// Has the timer interrupt the program ten thousand times a second.
pub fn start_ticks(handler: fn()) {
    timer::set_handler(handler);
    timer::start(100_000);
}

/// Stops the timer.
pub fn stop_ticks() {
    timer::stop();
}

/// Until the next interrupt.
pub fn sleep() {
    hlt();
}

/// What masks interrupts on this core.
struct Interrupts;

critical_section::set_impl!(Interrupts);

// SAFETY: one core, so nobody else runs while no interrupt comes; `release` undoes what its `acquire` did.
unsafe impl critical_section::Impl for Interrupts {
    unsafe fn acquire() -> bool {
        let enabled = interrupts::are_enabled();
        interrupts::disable();
        enabled
    }

    unsafe fn release(enabled: bool) {
        if enabled {
            interrupts::enable();
        }
    }
}
