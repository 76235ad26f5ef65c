//! Address space from the system for a test source: a page that is closed cannot be touched without a crash.
//!
//! `home` calls it; it calls the system.

use crate::source::Backing;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::AtomicU8;
use freestone_core::{PAGE_SIZE, PageRun, Pages};
use std::vec::Vec;

/// A stretch of reserved address space, given back when dropped.
#[derive(Debug)]
pub struct Reserve(PageRun);

// SAFETY: a reserve is owned address space.
unsafe impl Send for Reserve {}
// SAFETY: its methods change protections of runs that their callers own.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// Reserves `pages` pages.
    pub fn new(pages: Pages) -> Self {
        // SAFETY: a new mapping at a place of the system's choice touches nobody's memory.
        let start = unsafe { place(null_mut(), pages, libc::PROT_NONE) };
        let start = start.expect("address space for a test");
        Self(PageRun { start, pages })
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // SAFETY: the run was mapped by `new`, and nobody uses it any more.
        unsafe { libc::munmap(self.0.start.as_ptr().cast(), self.0.pages.bytes()) };
    }
}

// SAFETY: the region is this value's own; `open` maps fresh memory over a run, `close` an inaccessible mapping.
unsafe impl Backing for Reserve {
    fn region(&self) -> PageRun {
        self.0
    }

    fn open(&self, run: PageRun) -> bool {
        // SAFETY: the run lies in the reserve and its owner asks for it.
        unsafe { place(run.start.as_ptr(), run.pages, libc::PROT_READ | libc::PROT_WRITE) }.is_some()
    }

    fn close(&self, run: PageRun) {
        // SAFETY: as for `open`.
        let closed = unsafe { place(run.start.as_ptr(), run.pages, libc::PROT_NONE) };
        assert!(closed.is_some(), "the system refused to close {run:x?}");
    }
}

/// Maps anonymous pages at `at`, replacing what is there, or anywhere if it is null.
///
/// # Safety
/// Nobody uses what is there.
unsafe fn place(at: *mut u8, pages: Pages, protection: i32) -> Option<NonNull<u8>> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: the caller vouches for the place.
    let start = unsafe { libc::mmap(at.cast(), pages.bytes(), protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// Zero states for `pages` pages, which live as long as the program.
pub fn states(pages: Pages) -> &'static [AtomicU8] {
    let mut states = Vec::new();
    states.resize_with(pages.0, || AtomicU8::new(0));
    states.leak()
}

const _: () = assert!(PAGE_SIZE == 4096, "the system's page");
