//! A page source for heaps in this machine: page frames, seen through a window.
//!
//! The address of a page says which frame lies behind it, so nothing is mapped or unmapped in the processor's sense, and
//! memory cannot be given back while its address is kept: [`purge`](PageSource::purge) is refused, as it must be where
//! nothing happens.

use crate::frames::{self, Declined};
use crate::memory::Window;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_core::{Contents, Mapped, PageRun, PageSource, Pages, Place, Purged, Refused};

/// A share of the machine's frames. Heaps use a reference to one that lives as long as they do.
#[derive(Debug)]
pub struct FrameSource {
    window: Window,
    limit: AtomicUsize,
    /// Relaxed: a count, by which nothing is reached.
    out: AtomicUsize,
}

impl FrameSource {
    /// At most `limit` pages, seen through `window`.
    pub const fn new(window: Window, limit: Pages) -> Self {
        Self { window, limit: AtomicUsize::new(limit.0), out: AtomicUsize::new(0) }
    }

    /// Pages that are out now.
    pub fn pages_out(&self) -> Pages {
        Pages(self.out.load(Relaxed))
    }

    /// From now on at most `limit` pages; those that are out stay out.
    pub fn limit_to(&self, limit: Pages) {
        self.limit.store(limit.0, Relaxed);
    }

    fn physical(&self, run: PageRun) -> usize {
        run.start.addr().get() - self.window.base()
    }

    /// Takes frames by `take`, unless there would be more out than may be.
    fn count_out<T>(&self, pages: Pages, take: impl FnOnce() -> Result<T, Declined>) -> Option<T> {
        let sum = |out: usize| out.checked_add(pages.0).filter(|sum| *sum <= self.limit.load(Relaxed));
        self.out.fetch_update(Relaxed, Relaxed, sum).ok()?;
        let taken = take().ok();
        if taken.is_none() {
            self.out.fetch_sub(pages.0, Relaxed);
        }
        taken
    }

    fn give(&self, run: PageRun) -> Result<(), Refused> {
        frames::give(self.physical(run), run.pages.0).map_err(|_| Refused)?;
        self.out.fetch_sub(run.pages.0, Relaxed);
        Ok(())
    }

    /// Adds `more` pages behind the run, all zero.
    fn grow(&self, run: PageRun, more: Pages) -> Option<()> {
        let behind = self.physical(run) + run.pages.bytes();
        self.count_out(more, || frames::take_at(behind, more.0))?;
        // SAFETY: frames that were free until now, just taken.
        unsafe { self.window.at(behind).write_bytes(0, more.bytes()) };
        Some(())
    }
}

// SAFETY: frames are free or out once (F1), all of them mapped, writable, neither frame 0 nor at the top of a window;
// `frames` lets several processors in, and declines a call that comes upon another one of its own processor.
unsafe impl PageSource for &'static FrameSource {
    fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        let start = self.count_out(pages, || frames::take(pages.0, align))?;
        Some(Mapped { start: NonNull::new(self.window.at(start))?, contents: Contents::Unknown })
    }

    unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused> {
        self.give(run)
    }

    unsafe fn purge(&self, _: PageRun) -> Purged {
        Purged::Refused
    }

    unsafe fn remap(&self, run: PageRun, to: Pages, _: Place) -> Option<NonNull<u8>> {
        match to.0.checked_sub(run.pages.0) {
            Some(more) => self.grow(run, Pages(more))?,
            None => self.give(run.part(to, Pages(run.pages.0 - to.0))).ok()?,
        }
        Some(run.start)
    }
}
