//! Freeze: a heap around a fork. Every lock is entered before the process is copied, and left in both processes.
//!
//! Called by a home's fork handlers; calls the locks and the lists' own freeze. What may wait for what is in
//! [`lock`](crate::lock) (`L1`, `L2`).

use crate::heap::Heap;
use crate::platform::{CoreLists, Entry, Lock, Platform, Side};
use crate::size_class::SizeClass;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The locks: a central list each class (index 0 unused), then the page heap.
const LOCKS: usize = SizeClass::INDEXES + 1;
const FREEZE_WORDS: usize = LOCKS.div_ceil(64);

/// Which locks were this context's before [`Heap::freeze`].
pub(crate) struct Frozen {
    /// Bit n: the n-th lock.
    mine: [AtomicU64; FREEZE_WORDS],
}

impl Frozen {
    pub(crate) const NEW: Self = Self { mine: [const { AtomicU64::new(0) }; FREEZE_WORDS] };
}

impl<P: Platform> Heap<P> {
    /// Before a fork: enters every lock, so that no other context is inside when memory is copied.
    ///
    /// Backs off where a lock is busy: two contexts that each hold one and wait for the other's would not come free. Others
    /// that need a lock meanwhile do not wait for it (`L2`). Two interrupts that each came upon a lock and both fork may
    /// still wait for each other for ever: a fork cannot do without.
    pub fn freeze(&self) {
        // First, so that a thief that holds the lists' lock does not wait for a lock that this context may be inside.
        // Relaxed: see `is_frozen`.
        self.spans.back.frozen.fetch_add(1, Relaxed);
        loop {
            self.cache.lists.freeze();
            let Err(busy) = self.try_freeze() else { return };
            self.cache.lists.thaw(Side::Parent);
            let lock = self.lock(busy);
            lock.enter();
            // SAFETY: entered above.
            unsafe { lock.leave() };
        }
    }

    /// After a fork, in the parent and in the child: leaves every lock.
    ///
    /// # Safety
    /// The calling context, or the one it was forked from, has called [`freeze`](Self::freeze), and this is the first `thaw`
    /// since.
    pub unsafe fn thaw(&self, side: Side) {
        match side {
            // Relaxed: see `is_frozen`.
            Side::Parent => _ = self.spans.back.frozen.fetch_sub(1, Relaxed),
            // Whoever else was about to fork is not here.
            Side::Child => self.spans.back.frozen.store(0, Relaxed),
        }
        // SAFETY: `freeze` entered all of them.
        unsafe { self.leave_locks_below(LOCKS) };
        self.cache.lists.thaw(side);
        self.after_slow_path();
    }

    fn lock(&self, n: usize) -> &P::Lock {
        match self.spans.centrals.get(n) {
            Some(central) => central.partial.lock(),
            None => self.spans.back.lock(),
        }
    }

    /// Enters every lock, or none: then says which one is busy. A lock that this context is inside already (it forks in a
    /// signal handler) stays as it is, in both processes.
    fn try_freeze(&self) -> Result<(), usize> {
        for n in 0..LOCKS {
            let (word, bit) = (&self.frozen.mine[n / 64], 1 << (n % 64));
            // Relaxed: written and read by the context that is inside the lock.
            match self.lock(n).try_enter() {
                Entry::Got => _ = word.fetch_and(!bit, Relaxed),
                Entry::Mine => _ = word.fetch_or(bit, Relaxed),
                Entry::Busy => {
                    // SAFETY: the locks below were entered by this loop.
                    unsafe { self.leave_locks_below(n) };
                    return Err(n);
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// The locks below `n` were entered by `try_freeze` in this context or the one it was forked from.
    unsafe fn leave_locks_below(&self, n: usize) {
        for n in (0..n).rev() {
            if self.frozen.mine[n / 64].load(Relaxed) >> (n % 64) & 1 == 0 {
                // SAFETY: entered, and not inside before.
                unsafe { self.lock(n).leave() };
            }
        }
    }
}
