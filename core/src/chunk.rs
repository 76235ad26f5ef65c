//! Chunk: the descriptor of 2 MiB of pages. Which of them are in use, which are resident, which are known to be zero.
//!
//! ```text
//!   page        live   dirty   zero
//!   in use        1      ·       ·      dirty and zero keep what was known when the run was taken
//!   free, used    0      1       0      resident: counted by the page heap, given back above its cap
//!   free, clean   0      0       1      never touched, or purged: a fault will bring zeroes
//!   free, clean   0      0       0      purged by a source that promises nothing
//! ```
//!
//! Invariants: `K1` no page is both dirty and zero; `K2` `longest` is the length of the longest run of free pages.

use crate::bins::Pieces;
use crate::list::{Links, linked_by};
use crate::page_bits::PageBits;
use crate::platform::Contents;
use crate::sync::Cell;
use crate::units::{CHUNK_PAGES, PAGE_SIZE, PageRun, Pages};
use core::ops::{Deref, Range};
use core::ptr::NonNull;

/// The descriptor; guarded by the page heap's lock.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: Cell<NonNull<u8>>,
    live: Cell<PageBits>,
    dirty: Cell<PageBits>,
    zero: Cell<PageBits>,
    longest: Cell<usize>,
    /// Whether the source took the advice of huge pages for it: then it becomes resident as a whole.
    pub(crate) huge: Cell<bool>,
    in_bin: Cell<Links<ChunkRef>>,
    in_all: Cell<Links<ChunkRef>>,
    in_dirty: Cell<Links<ChunkRef>>,
}

/// A descriptor that outlives every user, as [`SpanRef`](crate::span::SpanRef).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkRef(NonNull<Chunk>);

// SAFETY: a reference to a chunk is used under the page heap's lock only.
unsafe impl Send for ChunkRef {}

impl ChunkRef {
    /// # Safety
    /// `chunk` points to an initialised descriptor that lives as long as the heap.
    pub(crate) unsafe fn new(chunk: NonNull<Chunk>) -> Self {
        Self(chunk)
    }
}

impl Deref for ChunkRef {
    type Target = Chunk;
    fn deref(&self) -> &Chunk {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }
}

/// Chunks by their longest free run.
pub(crate) struct InBin;
/// All chunks.
pub(crate) struct InAll;
/// Chunks with dirty pages.
pub(crate) struct InDirty;

linked_by!(InBin, ChunkRef, in_bin);
linked_by!(InAll, ChunkRef, in_all);
linked_by!(InDirty, ChunkRef, in_dirty);

impl Pieces for InBin {
    fn units(&self, id: ChunkRef) -> usize {
        id.longest.get()
    }
}

/// What taking or giving pages changed.
pub(crate) struct Change {
    /// Dirty free pages: the difference between before and after.
    pub(crate) dirty: usize,
    /// Pages that are not known to be zero.
    pub(crate) unknown: PageBits,
}

impl Chunk {
    pub(crate) fn unused() -> Self {
        Self {
            start: Cell::new(NonNull::dangling()),
            live: Cell::new(PageBits::ALL),
            dirty: Cell::new(PageBits::NONE),
            zero: Cell::new(PageBits::NONE),
            longest: Cell::new(0),
            huge: Cell::new(false),
            in_bin: Cell::new(Links::NONE),
            in_all: Cell::new(Links::NONE),
            in_dirty: Cell::new(Links::NONE),
        }
    }

    /// Makes the descriptor that of a freshly mapped chunk, all free.
    pub(crate) fn describe(&self, start: NonNull<u8>, contents: Contents) {
        self.start.set(start);
        self.huge.set(false);
        self.live.set(PageBits::NONE);
        self.dirty.set(PageBits::NONE);
        self.zero.set(if contents == Contents::Zeroed { PageBits::ALL } else { PageBits::NONE });
        self.longest.set(CHUNK_PAGES);
    }

    pub(crate) fn run(&self, pages: Range<usize>) -> PageRun {
        let whole = PageRun { start: self.start.get(), pages: Pages(CHUNK_PAGES) };
        whole.part(Pages(pages.start), Pages(pages.len()))
    }

    /// The page numbers of a run that lies in the chunk.
    pub(crate) fn numbers(&self, run: PageRun) -> Range<usize> {
        let first = (run.start.addr().get() - self.start.get().addr().get()) / PAGE_SIZE;
        first..first + run.pages.0
    }

    pub(crate) fn live(&self) -> PageBits {
        self.live.get()
    }

    /// Free pages that are resident.
    pub(crate) fn dirty(&self) -> PageBits {
        self.dirty.get().without(self.live.get())
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live.get().is_empty()
    }

    /// The first of `pages` free pages at a multiple of `align` pages: in the shortest run that has them, lowest of equals.
    pub(crate) fn find(&self, pages: usize, align: usize) -> Option<usize> {
        self.find_in(!self.live.get(), pages, align)
    }

    /// The same of free pages that are resident.
    pub(crate) fn find_dirty(&self, pages: usize, align: usize) -> Option<usize> {
        if self.longest.get() < pages { None } else { self.find_in(self.dirty(), pages, align) }
    }

    fn find_in(&self, bits: PageBits, pages: usize, align: usize) -> Option<usize> {
        let first_page = self.start.get().addr().get() / PAGE_SIZE;
        let aligned = |run: &Range<usize>| (first_page + run.start).next_multiple_of(align) - first_page;
        let fitting = bits.runs().filter(|run| aligned(run) + pages <= run.end);
        fitting.min_by_key(|run| run.len()).map(|run| aligned(&run))
    }

    /// Whether the first page that is used now makes all of it resident: it is fresh, or was given back whole.
    pub(crate) fn sleeps(&self) -> bool {
        self.huge.get() && self.live.get().is_empty() && self.dirty.get().is_empty()
    }

    /// Notes that all of it is resident.
    pub(crate) fn wake(&self) {
        self.dirty.set(PageBits::ALL);
        self.zero.set(PageBits::NONE);
    }

    /// Takes free pages into use.
    pub(crate) fn take(&self, pages: Range<usize>) -> Change {
        let bits = PageBits::of(pages);
        self.live.set(self.live.get().with(bits));
        self.measure();
        Change { dirty: (self.dirty.get() & bits).count(), unknown: bits.without(self.zero.get()) }
    }

    /// Takes pages back, the first `touched` of which were written.
    pub(crate) fn give(&self, pages: Range<usize>, touched: Pages) -> Change {
        let (bits, written) = (PageBits::of(pages.clone()), PageBits::of(pages.start..pages.start + touched.0));
        self.live.set(self.live.get().without(bits));
        self.dirty.set(self.dirty.get().with(written));
        self.zero.set(self.zero.get().without(written));
        self.measure();
        Change { dirty: (self.dirty.get() & bits).count(), unknown: bits.without(self.zero.get()) }
    }

    /// Notes that free pages were purged.
    pub(crate) fn purged(&self, pages: Range<usize>, contents: Contents) {
        let bits = PageBits::of(pages);
        self.dirty.set(self.dirty.get().without(bits));
        if contents == Contents::Zeroed {
            self.zero.set(self.zero.get().with(bits));
        }
    }

    fn measure(&self) {
        self.longest.set(self.longest_free());
    }

    fn longest_free(&self) -> usize {
        (!self.live.get()).runs().map(|run| run.len()).max().unwrap_or(0)
    }

    /// The first broken invariant, if one is.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        if !(self.dirty.get() & self.zero.get()).is_empty() {
            return Some("K1: no page is both dirty and zero");
        }
        (self.longest_free() != self.longest.get()).then_some("K2: a chunk's longest free run is known")
    }
}
