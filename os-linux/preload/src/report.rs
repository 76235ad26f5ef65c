//! The heap's figures as text: the report on stderr, and `malloc_info`'s XML.
//!
//! Called by `inspect.rs` and at the end of the process by `start.rs`. Formats into a buffer on the stack, so that nothing
//! is allocated and no lock of stdio is taken for stderr.

use crate::HEAP;
use crate::inspect::figures_of;
use core::ffi::CStr;
use core::fmt::{self, Write};
use freestone_core::{ClassStats, SizeClass, Stats};
use libc::FILE;

unsafe extern "C" {
    /// glibc's and musl's: the program's name without its path.
    static program_invocation_short_name: *const core::ffi::c_char;
}

/// Writes the report on stderr, all at once, so that the lines of several processes do not mix.
pub(crate) fn print(occasion: &str) {
    let mut text = Text::<2048>::new();
    // A buffer that is full cuts the report; there is nobody to tell.
    let _ = write_report(&HEAP.stats(), occasion, &mut text);
    // SAFETY: the buffer's initialised part.
    unsafe { libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.len) };
}

fn write_report(stats: &Stats, occasion: &str, out: &mut dyn Write) -> fmt::Result {
    // SAFETY: asks for the process's own id.
    let pid = unsafe { libc::getpid() };
    write!(out, "freestone: {occasion} of {} ({pid})\n{stats}", program())
}

/// One `<heap>` with a `<size>` a class in use, and the totals, in the manner of glibc's `malloc_info`.
pub(crate) fn write_xml(stats: &Stats, mut out: Stream) {
    // A stream that fails keeps its own error flag, which the caller looks at.
    let _ = write_heap(stats, &mut out);
}

fn write_heap(stats: &Stats, out: &mut dyn Write) -> fmt::Result {
    let figures = figures_of(stats);
    writeln!(out, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>")?;
    write_classes(out)?;
    writeln!(out, "</sizes>")?;
    writeln!(out, "<total type=\"fast\" count=\"{}\" size=\"{}\"/>", figures.smblks, figures.fsmblks)?;
    writeln!(out, "<total type=\"rest\" count=\"{}\" size=\"{}\"/>", figures.smblks, figures.fordblks)?;
    writeln!(out, "</heap>")?;
    writeln!(out, "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>", figures.hblks, figures.hblkhd)?;
    writeln!(out, "<system type=\"current\" size=\"{}\"/>", stats.held_bytes)?;
    writeln!(out, "<system type=\"max\" size=\"{}\"/>", stats.peak_held_bytes)?;
    writeln!(out, "<aspace type=\"total\" size=\"{}\"/>", stats.held_bytes + stats.meta_bytes)?;
    writeln!(out, "</malloc>")
}

fn write_classes(out: &mut dyn Write) -> fmt::Result {
    let mut below = 0;
    for class in SizeClass::all() {
        let ClassStats { live, cached, .. } = HEAP.class_stats(class);
        let (from, to) = (below + 1, class.size());
        below = to;
        if live + cached > 0 {
            let (total, used) = (cached * to, live * to);
            writeln!(
                out,
                "  <size from=\"{from}\" to=\"{to}\" total=\"{total}\" count=\"{cached}\" used=\"{used}\" live=\"{live}\"/>"
            )?;
        }
    }
    Ok(())
}

fn program() -> &'static str {
    // SAFETY: libc sets the pointer, to a string that stays, before it runs the program.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return "?";
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("?")
}

/// Text in a buffer of `N` bytes.
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// A C stream.
pub(crate) struct Stream(*mut FILE);

impl Stream {
    /// # Safety
    /// `file` is an open stream, as long as the value lives.
    pub(crate) const unsafe fn new(file: *mut FILE) -> Self {
        Self(file)
    }
}

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: an open stream, by the promise of `new`. Stdio may allocate its buffer; no lock of the heap is held.
        let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if written == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
