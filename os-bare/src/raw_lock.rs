//! [`RawLock`]: a lock that the program already has.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_core::{Context, Entry, Lock};
use lock_api::RawMutex;

/// A heap's lock out of a raw mutex `R`, which waits by its own means, and the hook `C` that names contexts.
///
/// `R` sees to it that no interrupt which uses the heap comes upon its holder: it masks interrupts, or no interrupt uses the
/// heap. It has no owner that could be exchanged with it, so there are a few instructions, between the exchange and the note
/// of who made it, in which an interrupt would wait for its own core for ever. ([`Spin`](crate::Spin) has no such gap, nor
/// has [`NullOnContention`](crate::NullOnContention) over this.)
///
/// ```
/// use core::num::NonZeroUsize;
/// use freestone_bare::{Context, Heap, RawLock, arena};
///
/// struct Cpu;
/// // SAFETY: this program has one core.
/// unsafe impl Context for Cpu {
///     fn id() -> NonZeroUsize {
///         NonZeroUsize::MIN
///     }
/// }
///
/// static HEAP: Heap<RawLock<spin::Mutex<()>, Cpu>> = Heap::new(arena!(16 * 1024));
/// # assert!(HEAP.warm().is_ok());
/// ```
pub struct RawLock<R, C> {
    raw: R,
    /// The id of the context inside, or 0.
    owner: AtomicUsize,
    context: PhantomData<fn() -> C>,
}

// SAFETY: `R` is a mutex, so one context at a time is inside. A context finds its own id as the owner only if it is inside
// itself: it alone writes that id, and takes it away before it leaves. In the gap that the type's documentation names an
// interrupt reads `Busy` instead of `Mine`; it would wait, and touch nothing.
unsafe impl<R: RawMutex + Send + Sync, C: Context> Lock for RawLock<R, C> {
    const NEW: Self = Self { raw: R::INIT, owner: AtomicUsize::new(0), context: PhantomData };

    fn try_enter(&self) -> Entry {
        if self.raw.try_lock() {
            // Relaxed, here and below: a context looks for its own id only, and sees its own writes.
            self.owner.store(C::id().get(), Relaxed);
            return Entry::Got;
        }
        if self.is_mine() { Entry::Mine } else { Entry::Busy }
    }

    fn wait(&self) {
        self.raw.lock();
        // SAFETY: locked just above. Whoever wants to enter tries again.
        unsafe { self.raw.unlock() }
    }

    fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == C::id().get()
    }

    unsafe fn leave(&self) {
        self.owner.store(0, Relaxed);
        // SAFETY: the caller is inside, so it locked the mutex.
        unsafe { self.raw.unlock() }
    }
}

impl<R, C> fmt::Debug for RawLock<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawLock(owner {})", self.owner.load(Relaxed))
    }
}
