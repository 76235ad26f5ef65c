//! One-line messages on standard error, without allocation and without libc; and the end of the program that follows a fault.
//! Called by the configuration (`conf.rs`), by `Platform::stop`, and by the preload library for its reports.

use crate::sys;
use core::fmt::{self, Write};

const SIGABRT: usize = 6;

/// A line that is built on the stack; what does not fit is cut off.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self { bytes: [0; 512], length: 0 }
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Prints `freestone: …` and a line end on standard error, in one write.
pub fn report(message: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // A line takes every text, so neither write can fail.
    let _ = write!(line, "freestone: {message}");
    line.length = line.length.min(line.bytes.len() - 1);
    let _ = line.write_str("\n");
    sys::write_stderr(line.as_bytes());
}

/// Ends the program by SIGABRT, whatever locks are held and signals blocked. A handler of the program runs first, once.
pub fn abort() -> ! {
    raise_abort();
    // The handler returned, or the signal is ignored: now without one.
    // SAFETY: a zeroed action is the default one; 32 bytes is the kernel's structure.
    let _ = unsafe { sys::call(sys::RT_SIGACTION, [SIGABRT, [0_usize; 4].as_ptr().addr(), 0, sys::SET_BYTES, 0, 0]) };
    raise_abort();
    loop {
        // SAFETY: ends the process; reached only where a sandbox forbade the signal.
        let _ = unsafe { sys::call(sys::EXIT_GROUP, [128 + SIGABRT, 0, 0, 0, 0, 0]) };
    }
}

fn raise_abort() {
    sys::set_signal_mask(sys::SIG_UNBLOCK, 1 << (SIGABRT - 1));
    // SAFETY: none of the calls touches memory.
    unsafe {
        let (Ok(process), Ok(thread)) = (sys::call(sys::GETPID, [0; 6]), sys::call(sys::GETTID, [0; 6])) else { return };
        let _ = sys::call(sys::TGKILL, [process, thread, SIGABRT, 0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_line_cuts_what_does_not_fit() {
        let mut line = Line::new();
        for _ in 0..100 {
            write!(line, "{:#x} ", 0x1234_5678).unwrap();
        }
        assert_eq!(line.as_bytes().len(), 512);
        assert!(line.as_bytes().starts_with(b"0x12345678 0x12345678 "));
    }
}
