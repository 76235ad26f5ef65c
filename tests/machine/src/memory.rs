//! Physical memory: what the machine has, where it is seen, and the words that the kernel was started with.
//!
//! The start calls `init` with the PVH start info, and `close_page_0` when `frames` has asked for what is free.

use core::ffi::CStr;
use core::ops::Range;
use core::ptr::{self, with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use x86_64::instructions::tlb;

/// Memory that is mapped: what lies above is left alone.
pub(crate) const END: usize = 4 << 30;

/// Where physical memory is seen; both show the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// At its own addresses, as the kernel's code and statics are.
    Low,
    /// In the higher half, from `0xffff_8000_0000_0000`, as kernels of grown systems see it.
    High,
}

impl Window {
    /// The address at which physical address 0 is seen.
    pub const fn base(self) -> usize {
        match self {
            Self::Low => 0,
            Self::High => 0xffff_8000_0000_0000,
        }
    }

    /// Where the physical address is seen.
    pub fn at(self, physical: usize) -> *mut u8 {
        // Exposed provenance: memory that the machine has and no Rust object lies in, or one whose pointer `of` has exposed.
        with_exposed_provenance_mut(self.base() + physical)
    }

    /// The same byte as `low`, a pointer to a static, seen here.
    pub fn of<T>(self, low: *mut T) -> *mut T {
        self.at(low.expose_provenance()).cast()
    }
}

/// What the loader says of the machine: version 1 of the PVH start info.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    tables: u64,
    map: u64,
    map_entries: u32,
    reserved: u32,
}

/// A stretch of physical addresses.
#[repr(C)]
struct MapEntry {
    start: u64,
    length: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

static INFO: AtomicUsize = AtomicUsize::new(0);

/// Takes note of the start info at `info`. The loader left all of it below 1 MiB, which nobody else uses.
pub(crate) fn init(info: usize) {
    // Relaxed: the other processors are started later.
    INFO.store(info, Relaxed);
    assert!(start_info().magic == MAGIC && start_info().version >= 1, "no PVH start info with a memory map at {info:#x}");
}

fn start_info() -> &'static StartInfo {
    // SAFETY: the loader's promise for the address that it starts the kernel with; nobody writes it.
    unsafe { &*with_exposed_provenance(INFO.load(Relaxed)) }
}

/// The words that the kernel was started with (`-append` in QEMU).
pub fn words() -> impl Iterator<Item = &'static str> {
    let line = with_exposed_provenance::<core::ffi::c_char>(start_info().command_line as usize);
    // SAFETY: the loader's promise, where there is a line: it ends with a zero, and nobody writes it.
    let line = if line.is_null() { c"" } else { unsafe { CStr::from_ptr(line) } };
    line.to_str().unwrap_or_default().split_ascii_whitespace()
}

/// What follows `name=` among the words.
pub fn word(name: &str) -> Option<&'static str> {
    words().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The physical memory that is neither the loader's nor the kernel's. Before [`close_page_0`].
pub(crate) fn free() -> impl Iterator<Item = Range<usize>> {
    unsafe extern "C" {
        static kernel_end: u8;
    }
    let kernel = (&raw const kernel_end).addr();
    let ranges = map().iter().filter(|entry| entry.kind == RAM).map(move |entry| {
        let (start, end) = (entry.start as usize, (entry.start + entry.length) as usize);
        start.max(kernel)..end.min(END)
    });
    ranges.filter(|range| !range.is_empty())
}

fn map() -> &'static [MapEntry] {
    let info = start_info();
    let first = with_exposed_provenance(info.map as usize);
    // SAFETY: the loader's promise; nobody writes it.
    unsafe { &*ptr::slice_from_raw_parts(first, info.map_entries as usize) }
}

/// Takes page 0 away, in which the loader left the memory map: from now on a null pointer leads nowhere. Before the others
/// start.
pub(crate) fn close_page_0() {
    unsafe extern "C" {
        static mut low_table: u64;
    }
    // SAFETY: the entry of page 0 in `start.s`, which nobody else writes and only the processor reads; no object lies in the
    // page.
    unsafe { (&raw mut low_table).write_volatile(0) };
    tlb::flush_all();
}
