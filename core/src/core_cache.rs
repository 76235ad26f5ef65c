//! CoreCache: the front end. Steers the per-core lists: what they may hold, when they are filled, emptied and stolen.
//!
//! A hit is the backend's business alone ([`CoreLists`]). This file is what happens at a miss. Capacity follows need: a list
//! whose misses come in turn from above (full) and below (empty) is too short and grows by a batch; one that misses on one
//! side only passes blocks through, and caching more would not help. All lists of a core share one budget in bytes. When it
//! is spent, a clock hand takes room from lists that have not missed for a round, and a look at one other core now and then
//! empties the lists of a core that has stood still.
//!
//! After TCMalloc's per-CPU caches (Google, 2017), with the resizing in the misses instead of a background thread.
//! Invariants: `F1` a slab's `allotted` is the sum of its limits in bytes, and at most the budget; `F2` a block in a list is of
//! the list's class and is out of its span.
#![forbid(unsafe_code)]

use crate::chain::{Block, Chain};
use crate::platform::{Backend, Contents, CoreLists, Shortage, Taken};
use crate::size_class::SizeClass;
use crate::slab::{Slab, Slot};
use crate::sync::HitCounter;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The lists of a heap, and their figures by class.
pub(crate) struct CoreCache<L> {
    pub(crate) lists: L,
    pub(crate) counts: [Counts; SizeClass::INDEXES],
    budget: usize,
}

/// Figures of one class (Relaxed: nothing hangs on them).
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) pops: HitCounter,
    pub(crate) pushes: HitCounter,
    pub(crate) misses_under: AtomicUsize,
    pub(crate) misses_over: AtomicUsize,
}

/// Which way a list missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Miss {
    /// A pop found it empty.
    Under = 1,
    /// A push found it full.
    Over = 2,
}

/// Lists that the clock hand asks at a time.
const HAND_STEPS: usize = 16;
/// Misses of a core between two looks at another.
const LOOK_EVERY: u32 = 256;
/// The most blocks in a list.
const MOST_BLOCKS: usize = 8192;

impl<L: CoreLists> CoreCache<L> {
    pub(crate) const fn new(budget: usize) -> Self {
        const NONE: Counts = Counts {
            pops: HitCounter::ZERO,
            pushes: HitCounter::ZERO,
            misses_under: AtomicUsize::new(0),
            misses_over: AtomicUsize::new(0),
        };
        Self { lists: L::NEW, counts: [NONE; SizeClass::INDEXES], budget }
    }

    #[inline(always)]
    pub(crate) fn pop(&self, class: SizeClass) -> Option<Block> {
        let block = self.lists.pop(class)?;
        self.counts[class.index()].pops.count();
        Some(block)
    }

    #[inline(always)]
    pub(crate) fn push(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        self.lists.push(class, block)?;
        self.counts[class.index()].pushes.count();
        Ok(())
    }

    /// A block after a miss, and some more for the list.
    pub(crate) fn refill(&self, class: SizeClass, back: &impl Backend) -> Result<(Block, Contents), Shortage> {
        // The miss may have been an interrupted section, not an empty list.
        if let Some(block) = self.pop(class) {
            return Ok((block, Contents::Unknown));
        }
        let room = self.missed(class, Miss::Under, back);
        let Taken { mut chain, first } = back.take(class, room.clamp(1, class.batch()))?;
        let block = chain.pop().ok_or(Shortage::Exhausted)?;
        if !chain.is_empty()
            && let Err(chain) = self.lists.put_chain(class, chain)
        {
            back.give(class, chain);
        }
        Ok((block, first))
    }

    /// Takes a block after a miss; a batch goes to the back with it where the list is full.
    pub(crate) fn overflow(&self, class: SizeClass, block: Block, back: &impl Backend) {
        let Err(block) = self.push(class, block) else { return };
        let room = self.missed(class, Miss::Over, back);
        let Err(block) = (if room > 0 { self.push(class, block) } else { Err(block) }) else { return };
        let mut chain = self.lists.take_all(class);
        chain.push(block);
        let surplus = chain.split(class.batch());
        if !chain.is_empty()
            && let Err(chain) = self.lists.put_chain(class, chain)
        {
            back.give(class, chain);
        }
        back.give(class, surplus);
    }

    /// Empties the lists of all cores that can be reached.
    pub(crate) fn drain(&self, back: &impl Backend) {
        for core in 0..self.lists.cores() {
            // A core that cannot be reached keeps what it has.
            let _ = self.lists.steal(core, &mut |class, chain| back.give(class, chain));
        }
        // This core's lists can always be taken, unless it has none.
        for class in SizeClass::all() {
            let chain = self.lists.take_all(class);
            if !chain.is_empty() {
                back.give(class, chain);
            }
        }
    }

    /// Notes a miss and steers; returns how many blocks the list may now hold.
    fn missed(&self, class: SizeClass, miss: Miss, back: &impl Backend) -> usize {
        let counts = &self.counts[class.index()];
        let counter = if miss == Miss::Under { &counts.misses_under } else { &counts.misses_over };
        counter.fetch_add(1, Relaxed);
        let Some(core) = self.lists.current() else { return 0 };
        let Some(slab) = self.lists.slab(core) else { return 0 };
        let slot = slab.slot(class);
        slot.recent.store(1, Relaxed);
        let last = slot.last_miss.swap(miss as u8, Relaxed);
        let first_or_alternating = slot.limit.load(Relaxed) == 0 || (last != 0 && last != miss as u8);
        if first_or_alternating {
            self.grow(slab, class, back);
        }
        if slab.misses.fetch_add(1, Relaxed) % LOOK_EVERY == LOOK_EVERY - 1 {
            self.look_at_another(core, back);
        }
        slot.limit.load(Relaxed).into()
    }

    /// Lets the list of `class` hold a batch more, if the budget has room or can get it.
    fn grow(&self, slab: &Slab, class: SizeClass, back: &impl Backend) {
        let slot = slab.slot(class);
        let (limit, step) = (slot.limit.load(Relaxed), class.batch());
        if usize::from(limit) + step > MOST_BLOCKS || !self.allot(slab, class, step * class.size(), back) {
            return;
        }
        // Another thread of this core may have been here in between: then the room goes back (F1).
        if slot.limit.compare_exchange(limit, limit + step as u16, Relaxed, Relaxed).is_err() {
            slab.allotted.fetch_sub(step * class.size(), Relaxed);
        }
    }

    fn allot(&self, slab: &Slab, class: SizeClass, bytes: usize, back: &impl Backend) -> bool {
        let within = |allotted: usize| Some(allotted + bytes).filter(|sum| *sum <= self.budget);
        for _ in 0..HAND_STEPS {
            if slab.allotted.fetch_update(Relaxed, Relaxed, within).is_ok() {
                return true;
            }
            let index = slab.hand.fetch_add(1, Relaxed) % SizeClass::COUNT + 1;
            let idle = SizeClass::from_index(index).filter(|idle| *idle != class);
            if let Some(idle) = idle {
                self.shrink_idle(slab, idle, back);
            }
        }
        false
    }

    /// Takes a batch's room from a list that has not missed since the hand's last round.
    fn shrink_idle(&self, slab: &Slab, class: SizeClass, back: &impl Backend) {
        let slot = slab.slot(class);
        let limit = slot.limit.load(Relaxed);
        if slot.recent.swap(0, Relaxed) != 0 || limit == 0 {
            return;
        }
        let less = limit.min(class.batch() as u16);
        if slot.limit.compare_exchange(limit, limit - less, Relaxed, Relaxed).is_ok() {
            slab.allotted.fetch_sub(usize::from(less) * class.size(), Relaxed);
            self.give_surplus(slab, slot, class, back);
        }
    }

    /// Gives back what a list of this core holds above its limit.
    fn give_surplus(&self, slab: &Slab, slot: &Slot, class: SizeClass, back: &impl Backend) {
        let surplus = slab.blocks(class).saturating_sub(slot.limit.load(Relaxed).into());
        if surplus == 0 {
            return;
        }
        let mut chain = self.lists.take_all(class);
        let front = chain.split(surplus);
        for part in [chain, front] {
            match self.lists.put_chain(class, part) {
                Ok(()) => {}
                Err(part) if part.is_empty() => {}
                Err(part) => back.give(class, part),
            }
        }
    }

    /// Empties the lists of another core if it has not missed since the last look.
    fn look_at_another(&self, core: usize, back: &impl Backend) {
        let cores = self.lists.cores().max(1);
        let mine = self.lists.slab(core).map_or(0, |slab| slab.misses.load(Relaxed));
        // Each look goes to the next core, this one left out.
        let other = (core + 1 + (mine / LOOK_EVERY) as usize % cores.saturating_sub(1).max(1)) % cores;
        let Some(slab) = self.lists.slab(other).filter(|_| other != core) else { return };
        let misses = slab.misses.load(Relaxed);
        if slab.seen.swap(misses, Relaxed) == misses {
            let _ = self.lists.steal(other, &mut |class, chain: Chain| back.give(class, chain));
        }
    }
}
