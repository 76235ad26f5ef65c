//! A freestanding x86-64 machine in QEMU: what a kernel needs below it to test and measure Freestone, and nothing else.
//!
//! A kernel is a `no_std` binary for the host's own target (`x86_64-unknown-linux-gnu`), built by plain stable Rust:
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! freestone_machine::entry!(main);
//!
//! fn main() {
//!     freestone_machine::println!("{} processors", freestone_machine::cpus());
//! }
//! ```
//!
//! with the build script that `build.rs` here shows, and `./boot target/release/the-kernel` runs it. It succeeds when `main`
//! returns; a panic or an exception that nobody expects is a line on the serial port and a failure. Files, from the first
//! instruction on:
//!
//! ```text
//!   start.s      long mode, page tables, stacks         processors.rs  starts the others, runs a function on all
//!   cpu.rs       which processor runs                   traps.rs       every vector has a handler; traps.s its entries
//!   memory.rs    what there is, the kernel's words      apic.rs        messages between processors, timer
//!   frames.rs    free page frames, one bit each         timer.rs       interrupts again and again
//!   source.rs    a heap's page source out of them       stepping.rs    interrupts between any two instructions
//!   serial.rs    lines to the serial port               lock.rs        being inside a lock
//!                                                       mem.rs         `memcpy` and its kin
//! ```
//!
//! It is for QEMU: it asks QEMU's devices how many processors there are and ends through one. Memory above 4 GiB is left
//! alone.
#![no_std]

pub mod cpu;
pub mod frames;
pub mod memory;
pub mod serial;
pub mod source;
pub mod stepping;
pub mod timer;

mod apic;
mod lock;
mod mem;
mod processors;
mod traps;

pub use cpu::{Cpu, MAX_CPUS};
pub use memory::{Window, word, words};
pub use processors::{cpus, run_on_all};
pub use source::FrameSource;

use core::arch::global_asm;
use core::fmt;
use core::panic::PanicInfo;
use x86_64::instructions::port::Port;
use x86_64::instructions::{hlt, interrupts};

global_asm!(
    include_str!("start.s"),
    max_cpus = const MAX_CPUS,
    trampoline = const processors::TRAMPOLINE,
    options(att_syntax)
);

/// Makes a function of no arguments the kernel's main function.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "Rust" fn freestone_machine_main() {
            let main: fn() = $main;
            main()
        }
    };
}

/// How a run ends: what QEMU's `isa-debug-exit` is told, which makes `2 n + 1` of it (33 and 35).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Exit {
    /// All is well.
    Success = 16,
    /// It is not.
    Failure = 17,
}

/// Ends the run.
pub fn exit(exit: Exit) -> ! {
    // SAFETY: the device ends QEMU; on a machine without it nothing happens.
    unsafe { Port::new(0xf4).write(exit as u32) }
    loop {
        interrupts::disable();
        hlt();
    }
}

/// Ends the run with failure and a line that says why.
pub fn fail(why: fmt::Arguments<'_>) -> ! {
    println!("FAILED on cpu {}: {why}", Cpu::number());
    exit(Exit::Failure)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    fail(format_args!("{info}"))
}

/// The life of the first processor.
#[unsafe(no_mangle)]
extern "C" fn machine_start(info: usize) -> ! {
    // By `entry!`, with this signature.
    unsafe extern "Rust" {
        safe fn freestone_machine_main();
    }
    cpu::init(0);
    traps::init();
    memory::init(info);
    frames::init();
    memory::close_page_0();
    processors::start();
    freestone_machine_main();
    exit(Exit::Success)
}
