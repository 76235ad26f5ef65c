//! The only import of atomics, cells and `spin`, and the seam at which loom takes their place.
//!
//! Everything shared goes through here: [`atomic`], the cell in which a free block keeps its link (loom is blind to
//! raw pointer fields, not to cells), and the function `order`, which lets a model test weaken one named ordering and so
//! show that it is needed. In a normal build `order` is the identity, and the cell is `UnsafeCell`.

#[cfg(not(loom))]
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom::sync::atomic;

use atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use core::cell::{Cell, RefCell, UnsafeCell};
#[cfg(not(loom))]
pub(crate) use spin::relax::{RelaxStrategy, Spin};

/// Counts one, and returns the count. Not in one step: a locked addition waits until the stores before it are done, which after a run of frees are
/// links in cold blocks, and costs as much as the rest of a miss of single blocks. Where contexts race, the figure is too low.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn note(counter: &atomic::AtomicUsize) -> usize {
    let count = counter.load(Ordering::Relaxed).wrapping_add(1);
    counter.store(count, Ordering::Relaxed);
    count
}

/// A happens-before edge of the lock-free parts, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Edge {
    ClaimAcquire,
    ClaimRelease,
    ShelfAcquire,
    ShelfRelease,
    QueueAcquire,
    QueueRelease,
}

/// The ordering of one side of `edge`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn order(_edge: Edge, ordering: Ordering) -> Ordering {
    ordering
}

#[cfg(loom)]
pub(crate) use weak::order;

/// Stores to a word that others swap meanwhile.
///
/// Loom may put a store before a swap that had already read what the store replaces, which no machine does (a swap follows
/// what it read at once). Among swaps it keeps the order, so the model swaps, too.
#[inline(always)]
pub(crate) fn store_over_swaps(word: &atomic::AtomicUsize, value: usize, ordering: Ordering) {
    #[cfg(not(loom))]
    word.store(value, ordering);
    #[cfg(loom)]
    word.swap(value, ordering);
}

/// The model build: one edge can be weakened for the length of a model.
#[cfg(loom)]
pub(crate) mod weak {
    use super::{Edge, Ordering};
    use std::boxed::Box;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static RUNNING: Mutex<()> = Mutex::new(());
    static WEAKENED: Mutex<Option<Edge>> = Mutex::new(None);

    fn weakened() -> MutexGuard<'static, Option<Edge>> {
        WEAKENED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn order(edge: Edge, ordering: Ordering) -> Ordering {
        if *weakened() == Some(edge) { Ordering::Relaxed } else { ordering }
    }

    /// Explores `model` with nothing weakened, which must pass, and with each of `edges` relaxed, which must fail.
    pub(crate) fn explore(edges: &[Edge], model: fn()) {
        let _one_at_a_time = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        loom::model(model);
        for edge in edges {
            *weakened() = Some(*edge);
            std::panic::set_hook(Box::new(|_| {}));
            let explored = catch_unwind(AssertUnwindSafe(|| loom::model(model)));
            let _ = std::panic::take_hook();
            *weakened() = None;
            assert!(explored.is_err(), "the model does not notice that {edge:?} is relaxed");
        }
    }
}

/// The first word of a free block: its link.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct LinkCell(#[cfg(not(loom))] UnsafeCell<usize>, #[cfg(loom)] loom::cell::UnsafeCell<usize>);

impl LinkCell {
    #[cfg(loom)]
    pub(crate) fn new(word: usize) -> Self {
        Self(loom::cell::UnsafeCell::new(word))
    }

    /// # Safety
    /// Nobody writes the cell at the same time.
    #[inline(always)]
    pub(crate) unsafe fn get(&self) -> usize {
        #[cfg(not(loom))]
        // SAFETY: no concurrent writer, by the caller's promise.
        return unsafe { *self.0.get() };
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.0.with(|word| unsafe { *word });
    }

    /// # Safety
    /// Nobody reads or writes the cell at the same time.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, word: usize) {
        #[cfg(not(loom))]
        // SAFETY: no concurrent access, by the caller's promise.
        unsafe {
            *self.0.get() = word;
        }
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        self.0.with_mut(|cell| unsafe { *cell = word });
    }
}

/// A figure of the `counters` build, which costs nothing in any other.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct HitCounter(#[cfg(feature = "counters")] atomic::AtomicUsize);

#[cfg(not(loom))]
impl HitCounter {
    #[cfg(feature = "counters")]
    pub(crate) const ZERO: Self = Self(atomic::AtomicUsize::new(0));
    #[cfg(not(feature = "counters"))]
    pub(crate) const ZERO: Self = Self();

    #[inline(always)]
    pub(crate) fn count(&self) {
        #[cfg(feature = "counters")]
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// `None` in a build that does not count.
    pub(crate) fn get(&self) -> Option<usize> {
        #[cfg(feature = "counters")]
        return Some(self.0.load(Ordering::Relaxed));
        #[cfg(not(feature = "counters"))]
        None
    }
}
