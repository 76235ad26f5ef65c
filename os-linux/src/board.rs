//! [`Board`]: the table by which a section finds the slab of the core it runs on. Called by `sections.rs` (by its layout) and
//! `lists.rs`; calls nobody.
//!
//! ```text
//!   board ─► ┌────────────┐
//!            │ empty      │ a slab of zeroes: every list reads "empty and full"
//!            ├────────────┤ ENTRIES
//!            │ entry      │ for each core: its slab's address minus the board's, wrapping;
//!            │  …         │   0 leads to `empty`: no slab, or parked
//!            ├────────────┤
//!            │ slab       │ for each core: its slab's address, for good; null: none
//!            └────────────┘
//! ```
//!
//! Invariants: `B1` nobody writes into `empty`; `B2` an entry is 0 or leads to the slab of its core; `B3` a slab, once
//! published, stays for as long as the board. Untouched parts of a board cost no memory: with up to 512 cores it is three
//! pages.

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use freestone_core::Slab;

/// Cores that a board has room for: the most that Linux for x86-64 can be built for.
pub(crate) const CORES: usize = 8192;
/// Where the entries begin.
pub(crate) const ENTRIES: usize = offset_of!(Board, entries);

/// See the [module](self). All zero is a valid board, with no slabs.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Board {
    empty: Slab,
    entries: [AtomicUsize; CORES],
    slabs: [AtomicPtr<Slab>; CORES],
}

/// The board of lists that have none of their own yet; never written, so it stays in `.bss` and untouched.
// SAFETY: all zero is a valid board.
pub(crate) static NO_SLABS: Board = unsafe { core::mem::zeroed() };

impl Board {
    /// The slab of `core`.
    #[inline(always)]
    pub(crate) fn slab(&self, core: usize) -> Option<&Slab> {
        // Acquire pairs with the Release in `publish`: the slab's zeroes are seen before its address.
        let slab = self.slabs.get(core)?.load(Ordering::Acquire);
        // SAFETY: null, or a slab that lives as long as the board (`B3`).
        unsafe { slab.as_ref() }
    }

    /// Gives `core` its slab. Only under the lock of the lists, and once for a core.
    pub(crate) fn publish(&self, core: usize, slab: NonNull<Slab>) {
        // Release pairs with the Acquire in `slab`.
        self.slabs[core].store(slab.as_ptr(), Ordering::Release);
        self.unpark(core);
    }

    /// Leads the sections of `core` to the empty slab; one that has begun already may go on until a fence.
    pub(crate) fn park(&self, core: usize) {
        // Relaxed: the fence that follows orders it.
        self.entries[core].store(0, Ordering::Relaxed);
    }

    /// Leads the sections of `core` to its slab.
    pub(crate) fn unpark(&self, core: usize) {
        // Relaxed: only under the lock of the lists, whose holder has published the slab or seen it published.
        let slab = self.slabs[core].load(Ordering::Relaxed);
        debug_assert!(!slab.is_null());
        let entry = slab.addr().wrapping_sub((&raw const *self).addr());
        // Release pairs with the load in a section (on x86-64 every load acquires): the slab is seen as it is now.
        self.entries[core].store(entry, Ordering::Release);
    }

    /// The slabs of the first `cores` cores.
    pub(crate) fn all(&self, cores: usize) -> impl Iterator<Item = &Slab> {
        (0..cores).filter_map(|core| self.slab(core))
    }
}
