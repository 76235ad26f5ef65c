//! A home for unit tests of the page heap and the checker: one core, one thread, and a source whose runs lie in a row.
//!
//! Called by the tests beside the code; calls the standard allocator.

extern crate std;

use crate::claim_lists::{ClaimLists, CoreId};
use crate::fault::Fault;
use crate::heap::Heap;
use crate::keyed_map::KeyedMap;
use crate::lock::{Context, SpinLock};
use crate::page_map::RadixMap;
use crate::platform::{Contents, Mapped, PageSource, Platform, Purged, Refused};
use crate::seal::Unsealed;
use crate::units::{CHUNK_SIZE, PAGE_SIZE, PageRun, Pages};
use core::alloc::Layout;
use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::alloc::alloc_zeroed;
use std::boxed::Box;

/// Maps one run behind the other, each once: they count as joined. Nothing is used again.
pub(crate) struct Row {
    start: NonNull<u8>,
    used: Cell<usize>,
    /// Whether it refuses to map.
    pub(crate) is_full: Cell<bool>,
    /// Whether it refuses to unmap.
    pub(crate) keeps: Cell<bool>,
}

const BYTES: usize = 32 << 20;

impl Row {
    /// A row that lives as long as the program.
    pub(crate) fn new() -> &'static Self {
        let layout = Layout::from_size_align(BYTES, CHUNK_SIZE).unwrap();
        // SAFETY: not of size 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        let no = || Cell::new(false);
        Box::leak(Box::new(Self { start, used: Cell::new(0), is_full: no(), keeps: no() }))
    }

    /// A heap on it.
    pub(crate) fn heap(&'static self) -> Heap<Home> {
        Heap::new(self)
    }
}

// SAFETY: a run is memory of the row that was in no run before, and stays for good; one thread uses a row.
unsafe impl PageSource for &'static Row {
    const JOINS: bool = true;

    fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        let from = self.used.get().next_multiple_of(align);
        let to = from.checked_add(pages.bytes()).filter(|to| *to <= BYTES && !self.is_full.get())?;
        self.used.set(to);
        // SAFETY: inside the row.
        let start = unsafe { self.start.byte_add(from) };
        Some(Mapped { start, contents: Contents::Zeroed })
    }

    unsafe fn unmap(&self, _: PageRun) -> Result<(), Refused> {
        if self.keeps.get() { Err(Refused) } else { Ok(()) }
    }

    unsafe fn purge(&self, _: PageRun) -> Purged {
        Purged::Refused
    }
}

/// The home.
pub(crate) struct Home;

// SAFETY: one thread uses a heap.
unsafe impl Context for Home {
    fn id() -> NonZeroUsize {
        NonZeroUsize::MIN
    }
}

impl CoreId for Home {
    fn core() -> usize {
        0
    }
}

impl Platform for Home {
    type Source = &'static Row;
    type Lists = ClaimLists<Self, 1>;
    type Lock = SpinLock<Self>;
    /// A quarter of the window lies above the first mapping: all that follows in the row.
    type Map = KeyedMap<RadixMap, { 4 * BYTES / PAGE_SIZE }>;
    type Seal = Unsealed;
    fn stop(fault: Fault) -> ! {
        panic!("{fault}")
    }
}
