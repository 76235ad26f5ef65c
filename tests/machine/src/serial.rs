//! Lines to the serial port. Called by [`println!`](crate::println) and by everything that fails; takes one lock a line, so
//! that the lines of several processors do not mix.

use crate::cpu::Cpu;
use crate::lock::Inside;
use core::fmt::{self, Write};
use freestone_core::{Lock, SpinLock};
use x86_64::instructions::port::Port;

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = DATA + 5;
/// In the line status: the port takes a byte.
const READY: u8 = 1 << 5;

static LINE: SpinLock<Cpu> = SpinLock::NEW;

/// Prints a line. What comes upon its own processor in the middle of another one prints into it.
pub fn print_line(line: fmt::Arguments<'_>) {
    let _inside = Inside::enter(&LINE);
    // `send` does not fail, and what a value's own formatting reports is none of ours.
    let _ = writeln!(Serial, "{line}");
}

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(send);
        Ok(())
    }
}

fn send(byte: u8) {
    // SAFETY: reading the status and writing a byte of the first serial port touches no memory.
    unsafe {
        while Port::<u8>::new(LINE_STATUS).read() & READY == 0 {}
        Port::new(DATA).write(byte);
    }
}

/// Prints a line on the serial port, formatted as by `std`'s macro of this name.
#[macro_export]
macro_rules! println {
    ($($words:tt)*) => {
        $crate::serial::print_line(::core::format_args!($($words)*))
    };
}
