//! Limits: what the page heap does when memory is scarce, because the home says how much there may be, or that little is left.
//!
//! Called by the page heap (`page_heap.rs`, `huge.rs`), of which this is the third part, under its lock; calls the home
//! ([`Platform::limits`], [`Platform::is_short`]) and gives back what the page heap has. What `keep.rs` says about free pages
//! holds as long as there is plenty; this file only ever lowers it.
//!
//! **The hard limit** bounds what is mapped for blocks. A mapping that would go beyond it is refused, after what is idle was
//! given back, as if the source had refused it: so the heap empties its caches, tries again, and answers `None`.
//! **The soft limit** bounds what may be resident: live pages and dirty ones. The closer the live pages come to it, the fewer
//! dirty ones stay; beyond it, next to none. **A shortage** ([`Platform::is_short`]) is a soft limit of 0.
//!
//! Emptying the caches takes long, and wants locks that lie above the page heap's. So it is only wished for from here
//! ([`DrainWish`]), once for each way across the soft limit and each eighth of it beyond, and once for each shortage; whoever
//! ends a slow path next fulfils it.
//!
//! Blocks made without the lock ([`rescue`](crate::rescue)) count from their adoption, and the tables of the heap do not count.
//!
//! Invariants: `N1` no mapping for blocks is made that takes more than the hard limit, but by a rescue; `N2` after pages were
//! taken or came back, no more than the larger of [`LEFT`] and what the live pages leave of the soft limit is dirty, but for
//! mappings that the source does not take back.
#![forbid(unsafe_code)]

use crate::ground::Ground;
use crate::page_heap::PageHeap;
use crate::platform::Platform;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::units::{PAGE_SIZE, Pages};

/// How much memory a heap may take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// What is live or free and resident should be no more; the heap gives back what it can to keep to it.
    pub soft: usize,
    /// What is mapped for blocks is no more, in whole pages; requests beyond are answered `None`. Small blocks take a chunk
    /// of 2 MiB at a time.
    pub hard: usize,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { soft: usize::MAX, hard: usize::MAX };
}

/// Pages that may be dirty however scarce memory is: a purge of a few pages costs as much as one of many.
const LEFT: usize = (256 << 10) / PAGE_SIZE;

/// Pages that are given back beyond what is asked: a purge of a few costs as much as one of many.
pub(crate) const MORE: usize = LEFT / 2;

/// Pages that come back between two questions whether memory is short.
const ASK_EVERY: usize = (2 << 20) / PAGE_SIZE;

/// What the page heap remembers of scarce memory.
#[derive(Debug)]
pub(crate) struct Scarcity {
    is_short: bool,
    /// Pages that came back since the last question.
    returned: usize,
    /// The highest step (see [`step`]) that a drain was wished for, or one more than the present one.
    step: usize,
}

/// Where `live` pages stand to a soft limit of `soft`: 0 up to 7/8 of it, 1 up to the limit, one more for each eighth beyond.
fn step(soft: usize, live: usize) -> usize {
    let eighth = (soft / 8).max(1);
    live.saturating_sub(soft.saturating_sub(eighth)).div_ceil(eighth)
}

impl Scarcity {
    pub(crate) const NONE: Self = Self { is_short: false, returned: 0, step: 0 };

    /// Pages that may be dirty beside `live` ones.
    fn room(&self, limits: Limits, live: usize) -> usize {
        let soft = if self.is_short { 0 } else { limits.soft / PAGE_SIZE };
        soft.saturating_sub(live).max(LEFT)
    }

    /// Notes how much is live; whether that lies further above the soft limit than before. To be further above again, it has
    /// to fall by two steps first.
    fn crosses(&mut self, soft: usize, live: usize) -> bool {
        let now = step(soft, live);
        let crosses = now > 1 && now > self.step;
        self.step = if crosses { now } else { self.step.min(now + 1) };
        crosses
    }

    /// Notes what the home says; whether a shortage begins.
    fn hear(&mut self, is_short: bool) -> bool {
        let begins = is_short && !self.is_short;
        self.is_short = is_short;
        begins
    }

    /// Notes that pages came back. Once in a while: how many did since the last time.
    fn note_returned(&mut self, pages: Pages) -> Option<Pages> {
        self.returned += pages.0;
        (self.returned >= ASK_EVERY).then(|| Pages(core::mem::take(&mut self.returned)))
    }
}

/// The page heap's wish that the caches be emptied, for whoever ends a slow path next. Relaxed throughout: what a drain finds
/// comes to it by the lists' own edges.
pub(crate) struct DrainWish(AtomicBool);

impl DrainWish {
    pub(crate) const NONE: Self = Self(AtomicBool::new(false));

    pub(crate) fn make(&self) {
        self.0.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn is_made(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Takes the wish, for one to fulfil it.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

impl PageHeap {
    /// Pages that may be dirty now.
    pub(crate) fn cap<P: Platform>(&self) -> usize {
        let live = self.counts.live;
        self.keep.cap(live).min(self.scarcity.room(P::limits(), live))
    }

    /// Before `more` pages are mapped: gives back what scarce memory asks for, and says whether they may be (`N1`).
    pub(crate) fn admits<P: Platform>(&mut self, ground: &Ground<P>, more: Pages) -> bool {
        if more == Pages(0) {
            return true;
        }
        self.ask(ground, more);
        self.press(ground);
        if !self.fits::<P>(more) {
            self.release_idle(ground);
        }
        self.fits::<P>(more)
    }

    fn fits<P: Platform>(&self, more: Pages) -> bool {
        self.counts.mapped.checked_add(more.0).is_some_and(|sum| sum <= P::limits().hard / PAGE_SIZE)
    }

    fn ask<P: Platform>(&mut self, ground: &Ground<P>, moved: Pages) {
        if self.scarcity.hear(P::is_short(moved)) {
            ground.drain.make();
        }
    }

    /// After pages were taken: gives free ones back down to what scarce memory leaves room for (`N2`).
    pub(crate) fn press<P: Platform>(&mut self, ground: &Ground<P>) {
        let (limits, live) = (P::limits(), self.counts.live);
        let room = self.scarcity.room(limits, live);
        while self.counts.dirty > room && self.give_back_oldest(ground, self.counts.dirty - room + MORE) > 0 {}
        if self.scarcity.crosses(limits.soft / PAGE_SIZE, live) {
            ground.drain.make();
        }
    }

    /// Notes that pages came back, before the cap is enforced.
    pub(crate) fn note_returned<P: Platform>(&mut self, ground: &Ground<P>, pages: Pages) {
        if let Some(moved) = self.scarcity.note_returned(pages) {
            self.ask(ground, moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFT: usize = 800;

    #[test]
    fn room_is_what_live_pages_leave_of_the_soft_limit() {
        let limits = Limits { soft: SOFT * PAGE_SIZE + PAGE_SIZE - 1, hard: usize::MAX };
        let mut scarcity = Scarcity::NONE;
        for (live, room) in [(0, 800), (700, 100), (735, 65), (736, 64), (737, 64), (800, 64), (usize::MAX, 64)] {
            assert_eq!(scarcity.room(limits, live), room, "{live} live");
        }
        assert!(scarcity.room(Limits::NONE, 1 << 40) > 1 << 50);
        assert!(scarcity.hear(true) && !scarcity.hear(true));
        assert_eq!((scarcity.room(limits, 0), scarcity.room(Limits::NONE, 0)), (LEFT, LEFT));
        assert!(!scarcity.hear(false) && scarcity.hear(true), "a second shortage begins");
    }

    #[test]
    fn each_way_across_the_soft_limit_is_one_crossing() {
        let mut scarcity = Scarcity::NONE;
        let mut crossings = |lives: &[usize]| lives.iter().filter(|live| scarcity.crosses(SOFT, **live)).count();
        assert_eq!(crossings(&[0, 400, 700, 701, 799, 800]), 0, "not above the limit");
        assert_eq!(crossings(&[801, 805, 801, 799, 805, 701, 900, 701, 801]), 1, "to and fro at the limit");
        assert_eq!(crossings(&[901, 950, 899, 901, 1000, 1001]), 2, "an eighth further, twice");
        assert_eq!(crossings(&[700, 801]), 1, "away from it and back");
        assert_eq!(crossings(&[0, 5000, 4901, 4900]), 1, "far across at once");
    }

    #[test]
    fn without_a_limit_nothing_is_crossed_and_limits_of_nothing_do_no_harm() {
        let mut scarcity = Scarcity::NONE;
        assert!(!scarcity.crosses(Limits::NONE.soft / PAGE_SIZE, 1 << 50));
        assert!(scarcity.crosses(0, 2) && !scarcity.crosses(0, 2));
    }

    #[test]
    fn the_question_comes_once_in_a_while() {
        let mut scarcity = Scarcity::NONE;
        assert_eq!(scarcity.note_returned(Pages(ASK_EVERY - 1)), None);
        assert_eq!(scarcity.note_returned(Pages(5)), Some(Pages(ASK_EVERY + 4)));
        assert_eq!(scarcity.note_returned(Pages(ASK_EVERY - 1)), None);
    }
}
