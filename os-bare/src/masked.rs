//! [`Masked`]: the default lock. No interrupt comes while a context is inside.

use crate::locks::Inside;
use core::cell::UnsafeCell;
use critical_section::RestoreState;
use freestone_core::{Entry, Lock};

/// A lock that is one critical section of the `critical-section` crate, from entering to leaving.
///
/// On one core that masks interrupts for the constant time that a call of the heap takes (the first one, which builds the
/// region's control block, excepted: see [`warm`](crate::RegionHeap::warm)), and never while contents are copied or zeroed.
/// On several cores the program's implementation of the critical section also keeps the other cores out, and waits for them.
///
/// What cannot be masked (a fault handler, a non-maskable interrupt) may come upon the holder: it is recognised, and gets
/// null. On several cores that is so if the critical section itself may be entered there.
#[derive(Debug)]
pub struct Masked {
    inside: Inside,
    /// What to go back to. Written between `inside.enter` and `inside.leave` only.
    before: UnsafeCell<RestoreState>,
}

// SAFETY: all fields are used inside a critical section only.
unsafe impl Sync for Masked {}

// SAFETY: a critical section, which lasts from entry to leave, admits one context and what cannot be masked, each of which
// ends before the one that it interrupts goes on. Among these the flag decides, and says who is inside, as in `NoLock`.
unsafe impl Lock for Masked {
    const NEW: Self = Self { inside: Inside::NOBODY, before: UnsafeCell::new(RestoreState::invalid()) };

    // Inline, here and below: no program that does without this lock has to have the symbols of a critical section.
    #[inline]
    fn try_enter(&self) -> Entry {
        // SAFETY: released by `leave`, or at once; whatever is entered in between is left before.
        let before = unsafe { critical_section::acquire() };
        let entry = self.inside.enter();
        match entry {
            // SAFETY: inside, where nobody else uses the cell.
            Entry::Got => unsafe { self.before.get().write(before) },
            // SAFETY: acquired just above.
            _ => unsafe { critical_section::release(before) },
        }
        entry
    }

    /// Whoever would have to wait does so when the critical section is entered.
    #[inline]
    fn wait(&self) {}

    #[inline]
    fn is_mine(&self) -> bool {
        critical_section::with(|_| self.inside.is_taken())
    }

    #[inline]
    unsafe fn leave(&self) {
        // SAFETY: the caller is inside, where nobody else uses the cell. Read before the flag lets somebody else in.
        let before = unsafe { self.before.get().read() };
        self.inside.leave();
        // SAFETY: acquired by the entry that this ends.
        unsafe { critical_section::release(before) }
    }
}
