//! [`Board`]: the slabs of all cores in a row, so that a section gets from its core's number to its slab by a shift. Called by
//! `sections.rs` (by its layout) and `lists.rs`; calls nobody.
//!
//! ```text
//!            ┌────────────┐
//!            │ −2, −1     │ a page each, never written: what a thread reads that is not registered leads here
//!   board ─► ├────────────┤
//!            │ core 0     │ a page for each core that the kernel may have: its slab, and whether the slab is open
//!            │ core 1     │
//!            │  …         │
//!            └────────────┘
//! ```
//!
//! A table of slabs by core would do as well, but its look-up lies on the way of every address in a section: a pair of
//! allocate and free took 3.6 ns with it, and 2.4 without.
//!
//! Invariants: `B1` a section works on a slab only while it is open, and a page of zeroes is not open; `B2` a slab, once made,
//! stays for as long as the board; `B3` every number that the kernel may put into an area has a page, so that a section needs
//! no check of it. Untouched pages cost no memory.
//!
//! `B3` rests on `sys::cores`: the kernel's affinity masks have a bit for each number that a core may ever get, which is fixed
//! when it boots, so a core that is plugged in later has its page. Whoever has a core's number in hand checks it
//! (`LinuxLists::slab`). What breaks `B3` is a process that is moved to another machine while it runs (CRIU), if that numbers its
//! cores beyond the board: such a program has to go by claims (`rseq=off`).

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use freestone_core::{PAGE_SIZE, Slab};

/// log2 of the distance between two cores' slabs.
pub(crate) const SHIFT: usize = PAGE_SIZE.ilog2() as usize;
/// Where a page says that it is open.
pub(crate) const OPEN: usize = offset_of!(Place, open);
/// Pages before that of core 0: an area may read −1, not registered, and −2, registration failed.
const BELOW: usize = 2;

/// What a core has.
#[repr(C, align(4096))]
#[derive(Debug)]
struct Place {
    slab: Slab,
    /// 0: not made, or parked.
    open: AtomicU32,
    made: AtomicBool,
}

const _: () = assert!(size_of::<Place>() == PAGE_SIZE);

/// The page of core 0, with those of the others around it. Zeroes are a valid board: no slab is made.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Board(Place);

impl Board {
    /// Bytes of a board for `cores` cores.
    pub(crate) const fn bytes(cores: usize) -> usize {
        (BELOW + cores) * PAGE_SIZE
    }

    /// # Safety
    /// `zeroes` are [`bytes`](Self::bytes) zeroed bytes, aligned to a page, for as long as the board is used.
    pub(crate) unsafe fn in_place(zeroes: NonNull<u8>) -> NonNull<Self> {
        // SAFETY: inside those bytes.
        unsafe { zeroes.byte_add(BELOW * PAGE_SIZE) }.cast()
    }

    /// # Safety
    /// The board was made for more than `core` cores.
    #[inline(always)]
    unsafe fn place(&self, core: usize) -> &Place {
        // Through the exposed address: the reference is to one page of the row.
        // SAFETY: the caller's promise.
        unsafe { &*core::ptr::with_exposed_provenance::<Place>((&raw const *self).expose_provenance()).add(core) }
    }

    /// The slab of `core`, if it was made.
    ///
    /// # Safety
    /// The board was made for more than `core` cores.
    #[inline(always)]
    pub(crate) unsafe fn slab(&self, core: usize) -> Option<&Slab> {
        // SAFETY: the caller's promise.
        let place = unsafe { self.place(core) };
        // Acquire pairs with the Release in `make`.
        place.made.load(Ordering::Acquire).then_some(&place.slab)
    }

    /// Makes the slab of `core`. Only under the lock of the lists.
    ///
    /// # Safety
    /// As for [`slab`](Self::slab).
    pub(crate) unsafe fn make(&self, core: usize) {
        // SAFETY: the caller's promise.
        let place = unsafe { self.place(core) };
        place.open.store(1, Ordering::Relaxed);
        // Release pairs with the Acquire in `slab`.
        place.made.store(true, Ordering::Release);
    }

    /// Has the sections of `core` miss; one that has begun already may go on until a fence. Only under the lock of the lists.
    ///
    /// # Safety
    /// As for [`slab`](Self::slab).
    pub(crate) unsafe fn park(&self, core: usize) {
        // Relaxed: the fence that follows orders it.
        // SAFETY: the caller's promise.
        unsafe { self.place(core) }.open.store(0, Ordering::Relaxed);
    }

    /// Lets the sections of `core` work again.
    ///
    /// # Safety
    /// As for [`slab`](Self::slab).
    pub(crate) unsafe fn unpark(&self, core: usize) {
        // Release pairs with the load in a section (on x86-64 every load acquires): the slab is seen as it is now.
        // SAFETY: the caller's promise.
        unsafe { self.place(core) }.open.store(1, Ordering::Release);
    }
}
