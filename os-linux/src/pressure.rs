//! Pressure: whether the memory that this process's control group may use is nearly used up. Called by the page heap, through
//! `Platform::is_short`, before it maps and now and then when pages come back; calls `cgroup.rs`, `clock.rs` and `conf.rs`.
//!
//! A group beyond its limit is slowed down and then loses a process, so a heap that keeps free pages does better to give them
//! back before that. Short is a group that uses more than nine tenths of its limit, until it uses less than 17/20: what the
//! heap gives back at once does not end the shortage by itself.
//!
//! **When files are read.** Never by a program that takes less than 4 MiB. Then once, to find the group; where none has a
//! limit, never again. Else at most every four milliseconds, if a 256th of the limit has been mapped or has come back since,
//! and at most every second if less. A sandbox that punishes opening a file does not go together with that: `cgroup=off`.
//!
//! No lock is taken here, and nothing but atomics is shared: several heaps may ask at once. What a race costs is a look too
//! many, or one too few for a few milliseconds.

use crate::cgroup::Group;
use crate::{clock, conf};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use freestone_core::Pages;

/// Bytes that the heaps of a process map before the group is looked for.
const FIRST: usize = 4 << 20;

/// Milliseconds between two looks, at least: the clock's tick is no shorter.
const SOONEST: u64 = 4;

/// Milliseconds after which a look is due however little has happened.
const LATEST: u64 = 1000;

/// The process's group, once it is found.
struct Place {
    state: AtomicU8,
    group: UnsafeCell<Group>,
}

const UNKNOWN: u8 = 0;
const SOUGHT: u8 = 1;
const NONE: u8 = 2;
const FOUND: u8 = 3;

// SAFETY: the group is written by the one context that changed the state from `UNKNOWN`, and read when that says `FOUND`.
unsafe impl Sync for Place {}

static PLACE: Place = Place { state: AtomicU8::new(UNKNOWN), group: UnsafeCell::new(Group::NONE) };

/// What is known of the group; all relaxed, as each figure stands for itself.
struct Figures {
    /// The limit when it was last looked at.
    limit: AtomicUsize,
    /// Bytes mapped or come back since.
    moved: AtomicUsize,
    looked_ms: AtomicU64,
    is_short: AtomicBool,
}

static FIGURES: Figures = Figures {
    limit: AtomicUsize::new(0),
    moved: AtomicUsize::new(0),
    looked_ms: AtomicU64::new(0),
    is_short: AtomicBool::new(false),
};

/// See [`Platform::is_short`](freestone_core::Platform::is_short).
pub(crate) fn is_short(moved: Pages) -> bool {
    if PLACE.state.load(Ordering::Relaxed) == NONE || conf::get().is_none_or(|conf| conf.cgroup == conf::Cgroup::Off) {
        return false;
    }
    let moved = FIGURES.moved.fetch_add(moved.bytes(), Ordering::Relaxed).saturating_add(moved.bytes());
    if moved >= FIRST {
        PLACE.seek();
    }
    PLACE.group().is_some_and(|group| FIGURES.are_short(group, clock::now_ms(), moved))
}

impl Place {
    /// Looks for the group, if nobody has.
    fn seek(&self) {
        let taken = self.state.compare_exchange(UNKNOWN, SOUGHT, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        // SAFETY: this context changed the state, so it alone is here, and nobody reads before `FOUND`.
        let found = unsafe { &mut *self.group.get() }.find();
        // Release pairs with the Acquire in `group`.
        self.state.store(if found.is_some() { FOUND } else { NONE }, Ordering::Release);
    }

    fn group(&self) -> Option<&Group> {
        // Acquire pairs with the Release in `seek`: the group is seen whole.
        // SAFETY: found, so it is never written again.
        (self.state.load(Ordering::Acquire) == FOUND).then(|| unsafe { &*self.group.get() })
    }
}

impl Figures {
    /// Whether the group is short, by a new look if that is due.
    fn are_short(&self, group: &Group, now_ms: Option<u64>, moved: usize) -> bool {
        let since = now_ms.map(|now| now.saturating_sub(self.looked_ms.load(Ordering::Relaxed)));
        if is_due(self.limit.load(Ordering::Relaxed), moved, since) {
            self.moved.store(0, Ordering::Relaxed);
            self.looked_ms.store(now_ms.unwrap_or(0), Ordering::Relaxed);
            self.look(group);
        }
        self.is_short.load(Ordering::Relaxed)
    }

    fn look(&self, group: &Group) {
        let limit = group.limit().unwrap_or(usize::MAX);
        let most = enough(limit, self.is_short.load(Ordering::Relaxed));
        let is_short = group.used(most).is_some_and(|used| used > most);
        self.limit.store(limit, Ordering::Relaxed);
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}

/// Whether a look is due after so many bytes and milliseconds. Without a clock, bytes alone have to tell.
fn is_due(limit: usize, moved: usize, since_ms: Option<u64>) -> bool {
    match since_ms {
        Some(passed) => passed >= LATEST || (passed >= SOONEST && moved >= limit / 256),
        None => moved >= limit / 64,
    }
}

/// The most that a group with that limit uses without being short.
fn enough(limit: usize, was_short: bool) -> usize {
    if was_short { limit - limit / 20 * 3 } else { limit - limit / 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_by_time_and_amount() {
        let limit = 256 << 20;
        for (moved, since, expected) in [
            (usize::MAX, Some(SOONEST - 1), false),
            (1 << 20, Some(SOONEST), true),
            ((1 << 20) - 1, Some(SOONEST), false),
            ((1 << 20) - 1, Some(LATEST - 1), false),
            (1, Some(LATEST), true),
            (4 << 20, None, true),
            ((4 << 20) - 1, None, false),
        ] {
            assert_eq!(is_due(limit, moved, since), expected, "{moved} bytes, {since:?} ms");
        }
        // The first look, with no limit known and the clock far on.
        assert!(is_due(0, 0, Some(1 << 40)));
    }

    #[test]
    fn a_shortage_begins_at_nine_tenths_and_ends_lower() {
        assert_eq!((enough(1000, false), enough(1000, true)), (900, 850));
        assert!(enough(usize::MAX, false) > 1 << 63 && enough(0, true) == 0);
    }
}
