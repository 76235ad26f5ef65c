//! What glibc's programs ask an allocator about itself: its figures, and to give memory back.
//!
//! Called by programs, at any time. Calls the heap's statistics and `report.rs`. The figures are the heap's own and true:
//!
//! | `mallinfo2` | here |
//! |---|---|
//! | `arena` | bytes mapped for blocks, but for huge ones |
//! | `hblks`, `hblkhd` | huge blocks (each a mapping of its own) and their bytes |
//! | `uordblks` | bytes in live blocks, but for huge ones |
//! | `fordblks` | the rest of `arena`: free, cached by cores, or unused in a span |
//! | `keepcost` | free bytes that are resident: what a trim can give back |
//! | `ordblks`, `smblks`, `fsmblks`, `usmblks` | free blocks and their bytes in the cores' caches; no maximum is kept |

use crate::HEAP;
use crate::report::{self, Stream};
use core::ffi::c_int;
use freestone_core::Stats;
use libc::{EINVAL, FILE, mallinfo, mallinfo2};

/// Gives back what is free, the cores' caches included. `_pad` is glibc's wish to keep some at the top of its one heap.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(_pad: usize) -> c_int {
    (HEAP.trim() > 0).into()
}

/// Takes glibc's parameters and obeys none: each tunes a mechanism that this heap does not have.
#[unsafe(no_mangle)]
extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    const KNOWN: [c_int; 9] = [
        libc::M_MXFAST,
        libc::M_TRIM_THRESHOLD,
        libc::M_TOP_PAD,
        libc::M_MMAP_THRESHOLD,
        libc::M_MMAP_MAX,
        libc::M_CHECK_ACTION,
        libc::M_PERTURB,
        libc::M_ARENA_TEST,
        libc::M_ARENA_MAX,
    ];
    KNOWN.contains(&parameter).into()
}

#[unsafe(export_name = "mallinfo2")]
extern "C" fn figures() -> mallinfo2 {
    figures_of(&HEAP.stats())
}

/// As `mallinfo2`, in fields of 32 bits: what does not fit reads as the greatest that does.
#[unsafe(export_name = "mallinfo")]
extern "C" fn narrow_figures() -> mallinfo {
    let wide = figures();
    mallinfo {
        arena: narrow(wide.arena),
        ordblks: narrow(wide.ordblks),
        smblks: narrow(wide.smblks),
        hblks: narrow(wide.hblks),
        hblkhd: narrow(wide.hblkhd),
        usmblks: narrow(wide.usmblks),
        fsmblks: narrow(wide.fsmblks),
        uordblks: narrow(wide.uordblks),
        fordblks: narrow(wide.fordblks),
        keepcost: narrow(wide.keepcost),
    }
}

#[unsafe(no_mangle)]
extern "C" fn malloc_stats() {
    report::print("malloc_stats");
}

/// Writes the figures as XML, in the manner of glibc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_info(options: c_int, file: *mut FILE) -> c_int {
    if options != 0 {
        return EINVAL;
    }
    // SAFETY: the C contract: an open stream.
    let stream = unsafe { Stream::new(file) };
    report::write_xml(&HEAP.stats(), stream);
    0
}

/// The table in the file's head.
pub(crate) fn figures_of(stats: &Stats) -> mallinfo2 {
    let arena = stats.held_bytes.saturating_sub(stats.huge_bytes);
    let used = stats.live_bytes.saturating_sub(stats.huge_bytes);
    let cached = stats.classes.cached;
    mallinfo2 {
        arena,
        ordblks: cached,
        smblks: cached,
        hblks: stats.huge_blocks,
        hblkhd: stats.huge_bytes,
        usmblks: 0,
        fsmblks: stats.cached_bytes,
        uordblks: used,
        fordblks: arena.saturating_sub(used),
        keepcost: stats.dirty_bytes,
    }
}

fn narrow(figure: usize) -> c_int {
    c_int::try_from(figure).unwrap_or(c_int::MAX)
}
