//! Locks of region heaps: the home's part that says what happens when two contexts want the heap at once.
//!
//! A context is a core (or a thread) with everything that interrupts it. Three answers are possible to who finds the lock
//! taken: wait until the holder is done, be told that there is no memory, or not come at all as long as somebody is inside.
//! Take the first line that is true of your program:
//!
//! | your program | its lock |
//! |---|---|
//! | one core; interrupts may allocate or free (most firmware) | `Masked`, with the HAL's `critical-section` for one core |
//! | several cores, and a `critical-section` that covers all of them | `Masked` |
//! | a kernel or an RTOS that has a lock of its own, which masks interrupts or sleeps | `RawLock` over it |
//! | several cores, whose interrupts neither allocate nor free, or can do without | [`Spin`](crate::Spin) |
//! | one thread, whose interrupts neither allocate nor free, or can do without | [`NoLock`] |
//! | whoever allocates does so by fallible calls, and nobody may wait, on no core | [`NullOnContention`] over `Spin` or `RawLock` |
//!
//! "Can do without" and [`NullOnContention`] are to be taken literally: the allocation answers null, and **a `Box::new` or
//! `Vec::push` that gets null in an interrupt ends the program**. `try_reserve` and `GlobalAlloc::alloc` report it. A free
//! is never lost: it is queued, and whoever holds the lock next takes it back.
//!
//! With several heaps on several cores: let interrupts use one of those that spin, no more. Two cores, each inside one heap and in
//! an interrupt waiting for the other's, would wait for ever.
//!
//! Every lock here recognises its own context inside, so that a fault handler or a panic handler that allocates gets null
//! where it would otherwise hang.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use freestone_core::{Entry, Lock};

/// Whether a context is inside that nothing but nested interrupts can come upon.
///
/// Load and store are enough: an interrupt between the two enters and leaves, and what it changed is what it found.
#[derive(Debug)]
pub(crate) struct Inside(AtomicBool);

impl Inside {
    pub(crate) const NOBODY: Self = Self(AtomicBool::new(false));

    /// Enters, if nobody is inside.
    #[inline]
    pub(crate) fn enter(&self) -> Entry {
        if self.is_taken() {
            return Entry::Mine;
        }
        // Relaxed: contexts on one core see each other's writes in program order, which the fence keeps the compiler to.
        self.0.store(true, Relaxed);
        compiler_fence(SeqCst);
        Entry::Got
    }

    #[inline]
    pub(crate) fn leave(&self) {
        // What was done inside stays before the store, as in `enter`.
        compiler_fence(SeqCst);
        self.0.store(false, Relaxed);
    }

    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        // Relaxed: as in `enter`.
        self.0.load(Relaxed)
    }
}

/// The promise that [`NoLock`] rests on.
///
/// # Safety
/// One thread on one core uses the heaps that are locked by `NoLock<Self>`, besides interrupts that come upon that thread
/// and end before it goes on. (So no second core, and no scheduler that switches between threads which use them.)
pub unsafe trait OneThread: 'static {}

/// No lock, for programs of one thread. An interrupt that comes upon a call of the heap is recognised: its allocation
/// answers null, and its free is queued.
///
/// ```
/// use freestone_bare::{Heap, NoLock, OneThread, arena};
///
/// struct Firmware;
/// // SAFETY: one core, no scheduler.
/// unsafe impl OneThread for Firmware {}
///
/// static HEAP: Heap<NoLock<Firmware>> = Heap::new(arena!(16 * 1024));
/// # assert!(HEAP.warm().is_ok());
/// ```
#[derive(Debug)]
pub struct NoLock<P> {
    inside: Inside,
    promise: PhantomData<fn() -> P>,
}

// SAFETY: by the promise, whoever finds nobody inside is not interrupted by anyone who stays there, so one context at a time
// is inside; and whoever finds somebody there has interrupted him, so the flag is the owner.
unsafe impl<P: OneThread> Lock for NoLock<P> {
    const NEW: Self = Self { inside: Inside::NOBODY, promise: PhantomData };

    #[inline]
    fn try_enter(&self) -> Entry {
        self.inside.enter()
    }

    /// Nobody else is ever inside.
    fn wait(&self) {}

    fn is_mine(&self) -> bool {
        self.inside.is_taken()
    }

    #[inline]
    unsafe fn leave(&self) {
        self.inside.leave();
    }
}

/// The lock `L`, for which nobody waits: where another context is inside, an allocation answers null, and a free is queued.
///
/// For callers that can do with null; see the [table](crate::locks).
#[derive(Debug)]
pub struct NullOnContention<L>(L);

// SAFETY: who is inside is `L`'s business. `Mine` in place of `Busy` only says that the caller may not wait.
unsafe impl<L: Lock> Lock for NullOnContention<L> {
    const NEW: Self = Self(L::NEW);

    #[inline]
    fn try_enter(&self) -> Entry {
        match self.0.try_enter() {
            Entry::Busy => Entry::Mine,
            entry => entry,
        }
    }

    /// Not for heaps, which wait only where they were told `Busy`.
    fn wait(&self) {
        self.0.wait();
    }

    fn is_mine(&self) -> bool {
        self.0.is_mine()
    }

    #[inline]
    unsafe fn leave(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.leave() }
    }
}
