//! Locks at work: [`Guarded`] couples a home's lock with what it protects, [`SpinLock`] is the lock of homes without a
//! scheduler.
//!
//! Locks are taken downward only: central lists, then the page heap, then whatever the source has. An interrupt (a signal
//! handler) may come upon a context that is inside one; it must then not wait for any lock whose holder may be waiting for
//! that one. Hence two rules. `L1`: a context waits for a lock only while it is inside no deeper one and
//! no peer (two interrupts that came upon two central lists, and each want the other's, would wait for ever). `L2`: nobody
//! waits for a context that forks: it holds every lock and waits for locks of others (libc's), one of which the interrupted
//! context may be inside. Who may not wait is served from a mapping of its own, and leaves a free to the holder.
//!
//! The rules see one heap. Where interrupts on several cores use several heaps whose locks spin, each core may be inside one heap
//! and wait, in an interrupt, for the other: then interrupts use one of the heaps, or the locks mask them or are not waited for.

use crate::platform::{Entry, Lock};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{RelaxStrategy, Spin, UnsafeCell};
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ops::{Deref, DerefMut};

/// A value behind a home's [`Lock`].
#[derive(Debug)]
pub(crate) struct Guarded<L, T> {
    lock: L,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and a `Lock` admits one context at a time.
unsafe impl<L: Lock, T: Send> Sync for Guarded<L, T> {}

impl<L: Lock, T> Guarded<L, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: L::NEW, value: UnsafeCell::new(value) }
    }

    /// Enters. `None` where this context is inside already, or another one is and `may_wait` says not to wait for it; asked
    /// before each wait, however often that is interrupted.
    pub(crate) fn enter_while(&self, may_wait: impl Fn() -> bool) -> Option<Guard<'_, L, T>> {
        loop {
            match self.lock.try_enter() {
                Entry::Got => return Some(Guard { owner: self }),
                Entry::Busy if may_wait() => self.lock.wait(),
                Entry::Busy | Entry::Mine => return None,
            }
        }
    }

    pub(crate) fn is_mine(&self) -> bool {
        self.lock.is_mine()
    }

    pub(crate) fn lock(&self) -> &L {
        &self.lock
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// The right to use a [`Guarded`] value; leaves the lock when dropped.
pub(crate) struct Guard<'a, L: Lock, T> {
    owner: &'a Guarded<L, T>,
}

impl<L: Lock, T> Deref for Guard<'_, L, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only inside the lock, which admits one context.
        unsafe { &*self.owner.value.get() }
    }
}

impl<L: Lock, T> DerefMut for Guard<'_, L, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`; `&mut self` makes it the only borrow.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<L: Lock, T> Drop for Guard<'_, L, T> {
    fn drop(&mut self) {
        // SAFETY: this guard entered the lock, and leaves it once.
        unsafe { self.owner.lock.leave() }
    }
}

/// Names the context (thread, core) that runs, for [`SpinLock`].
///
/// # Safety
/// Two contexts that may be inside locks at the same time and are not nested interrupts of each other never get the same id.
/// (So where a scheduler may take the core from a thread that is inside, the id is the thread's, not the core's.)
pub unsafe trait Context: 'static {
    /// The id of the running context.
    fn id() -> NonZeroUsize;
}

/// A spin lock that knows its owner, for homes without a scheduler to sleep in. The word is 0, or the owner's id.
#[derive(Debug)]
pub struct SpinLock<C> {
    owner: AtomicUsize,
    context: PhantomData<fn() -> C>,
}

/// Looks at a taken lock before whoever waits is asked again whether he may.
const SPINS: usize = 100;

// SAFETY: the word changes from 0 to an id by one compare-exchange, and back only by the owner: one context at a time.
unsafe impl<C: Context> Lock for SpinLock<C> {
    const NEW: Self = Self { owner: AtomicUsize::new(0), context: PhantomData };

    fn try_enter(&self) -> Entry {
        let me = C::id().get();
        // Acquire pairs with the Release in `leave`: the last owner's writes are seen.
        match self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Entry::Got,
            Err(owner) if owner == me => Entry::Mine,
            Err(_) => Entry::Busy,
        }
    }

    fn wait(&self) {
        // By loads, which leave the word in the owner's cache; not for ever, see the contract. Relaxed: `try_enter` decides.
        for _ in 0..SPINS {
            if self.owner.load(Ordering::Relaxed) == 0 {
                return;
            }
            Spin::relax();
        }
    }

    fn is_mine(&self) -> bool {
        // Relaxed: only this context writes its own id here, and it sees its own writes.
        self.owner.load(Ordering::Relaxed) == C::id().get()
    }

    unsafe fn leave(&self) {
        // Release pairs with the Acquire in `try_enter`.
        self.owner.store(0, Ordering::Release);
    }
}
