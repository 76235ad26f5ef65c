//! [`FutexLock`]: the lock of the slow paths, which knows its owner and sleeps. Called by the core through
//! [`Lock`] and by `lists.rs`; calls `sys.rs`.
//!
//! ```text
//!   word   0            nobody is inside
//!          owner        the owner's thread pointer, an even number
//!          owner | 1    the same, and somebody may be asleep
//! ```
//!
//! One 64-bit word, changed by single instructions, so that a signal handler that comes right after the exchange finds its own
//! thread in it. The kernel compares its low half before it lets a thread sleep: the half holds the mark, and a thread that
//! falls asleep on another owner's marked word is woken by that owner.
//! Invariants: `L1` whoever sleeps has seen the word marked; `L2` who takes a marked word away wakes every sleeper.
//!
//! All of them, and not one: the one may be interrupted before it enters, by a signal handler that waits for a second lock
//! whose holder is another sleeper of this one. The wake-up would be spent and nobody inside (found by `heap_stress`, which
//! hung on it).

use crate::sys;
use core::sync::atomic::{AtomicUsize, Ordering};
use freestone_core::{Entry, Lock};

const MARK: usize = 1;
/// Looks at a taken lock before going to sleep: about the time of one system call.
const LOOKS: u32 = 60;
/// The longest sleep at a time, in seconds and nanoseconds: 5 ms.
const NAP: [i64; 2] = [0, 5_000_000];
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 128 | 1;

/// A lock that knows its owner and sleeps while it waits.
#[derive(Debug)]
pub struct FutexLock {
    word: AtomicUsize,
}

// SAFETY: the word changes from 0 to an owner by one compare-exchange, and back only by that owner; it names the owner from
// that exchange on.
unsafe impl Lock for FutexLock {
    const NEW: Self = Self { word: AtomicUsize::new(0) };

    #[inline]
    fn try_enter(&self) -> Entry {
        let me = sys::thread_pointer();
        // Acquire pairs with the Release in `leave`: what the last owner wrote is seen.
        match self.word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Entry::Got,
            Err(word) if word & !MARK == me => Entry::Mine,
            Err(_) => Entry::Busy,
        }
    }

    fn wait(&self) {
        for _ in 0..LOOKS {
            // Relaxed: only a hint whether an attempt is worth it.
            if self.word.load(Ordering::Relaxed) == 0 {
                return;
            }
            core::hint::spin_loop();
        }
        self.sleep();
    }

    fn is_mine(&self) -> bool {
        // Relaxed: only this thread writes its own pointer here, and it sees its own writes.
        self.word.load(Ordering::Relaxed) & !MARK == sys::thread_pointer()
    }

    #[inline]
    unsafe fn leave(&self) {
        // Release pairs with the Acquire of the next entry.
        if self.word.swap(0, Ordering::Release) & MARK != 0 {
            self.wake_all();
        }
    }
}

impl FutexLock {
    /// Sleeps while somebody is inside, but not longer than a nap.
    #[cold]
    fn sleep(&self) {
        // Relaxed, here and below: the mark publishes nothing; the kernel's own lock orders the sleeper and the waker (`L1`).
        let word = self.word.load(Ordering::Relaxed);
        let mark = || self.word.compare_exchange(word, word | MARK, Ordering::Relaxed, Ordering::Relaxed);
        if word == 0 || mark().is_err() {
            return;
        }
        let (half, nap) = ((word | MARK) & 0xffff_ffff, NAP);
        // SAFETY: the kernel only reads the word and the time.
        let _ = unsafe { sys::call(sys::FUTEX, [self.address(), FUTEX_WAIT_PRIVATE, half, (&raw const nap).addr(), 0, 0]) };
    }

    #[cold]
    fn wake_all(&self) {
        // SAFETY: the kernel uses the address as a name only.
        let _ = unsafe { sys::call(sys::FUTEX, [self.address(), FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0]) };
    }

    /// Of the word's low half, on a little-endian machine.
    fn address(&self) -> usize {
        self.word.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::cell::UnsafeCell;
    use core::sync::atomic::AtomicU32;
    use std::thread;

    struct Shared {
        lock: FutexLock,
        value: UnsafeCell<(u64, u64)>,
    }
    // SAFETY: the value is used inside the lock only.
    unsafe impl Sync for Shared {}

    impl Shared {
        /// Counts one up in two steps; on every third call it only tries. The entries it got.
        fn count(&self, n: u64) -> u64 {
            if !n.is_multiple_of(3) {
                self.lock.enter();
            } else if self.lock.try_enter() != Entry::Got {
                return 0;
            }
            assert!(self.lock.is_mine());
            assert_eq!(self.lock.try_enter(), Entry::Mine);
            // SAFETY: inside the lock.
            let (a, b) = unsafe { &mut *self.value.get() };
            *a += 1;
            if n.is_multiple_of(64) {
                thread::yield_now();
            }
            *b += 1;
            assert_eq!(a, b);
            // SAFETY: inside.
            unsafe { self.lock.leave() };
            1
        }
    }

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let shared = &Shared { lock: FutexLock::NEW, value: UnsafeCell::new((0, 0)) };
        let count_all = || (0..40_000).map(|n| shared.count(n)).sum::<u64>();
        let entries: u64 = thread::scope(|scope| {
            let threads: std::vec::Vec<_> = (0..8).map(|_| scope.spawn(count_all)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // SAFETY: the threads are gone.
        assert_eq!(unsafe { *shared.value.get() }, (entries, entries));
        assert_eq!(shared.lock.try_enter(), Entry::Got, "left free, with no mark");
    }

    static LOCK: FutexLock = FutexLock::NEW;
    static SEEN: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

    extern "C" fn handler(_: i32) {
        let entry = LOCK.try_enter();
        if entry == Entry::Got {
            // SAFETY: entered just above.
            unsafe { LOCK.leave() };
        }
        SEEN[entry as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_signal_handler_finds_its_own_thread_inside() {
        // SAFETY: the handler is async-signal-safe; the signal is sent to this thread only.
        unsafe { libc::signal(libc::SIGUSR2, handler as *const () as usize) };
        let raise = || {
            // SAFETY: raises a handled signal.
            unsafe { libc::raise(libc::SIGUSR2) };
        };
        LOCK.enter();
        raise();
        // SAFETY: inside.
        unsafe { LOCK.leave() };
        raise();
        LOCK.enter();
        thread::scope(|scope| scope.spawn(raise).join().unwrap());
        // SAFETY: inside.
        unsafe { LOCK.leave() };
        let seen = SEEN.each_ref().map(|n| n.load(Ordering::Relaxed));
        assert_eq!((seen[Entry::Got as usize], seen[Entry::Mine as usize], seen[Entry::Busy as usize]), (1, 1, 1));
    }

    #[test]
    fn a_thread_that_sleeps_is_woken() {
        let lock = FutexLock::NEW;
        lock.enter();
        thread::scope(|scope| {
            let sleepers: std::vec::Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        lock.enter();
                        // SAFETY: inside.
                        unsafe { lock.leave() };
                    })
                })
                .collect();
            while lock.word.load(Ordering::Relaxed) & MARK == 0 {
                thread::yield_now();
            }
            // SAFETY: inside.
            unsafe { lock.leave() };
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        });
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
    }
}
