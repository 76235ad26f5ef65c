//! CoreCache: the front end. Steers the per-core lists: what they may hold, when they are filled, emptied and stolen.
//!
//! A hit is the backend's business alone ([`CoreLists`]). This file is what happens at a miss. Capacity follows need: a list
//! whose misses come in turn from above (full) and below (empty) is too short and doubles; one that misses on one
//! side only passes blocks through, and holds a quarter of a batch at most. All lists of a core share one budget: in bytes, or in
//! blocks where each costs one. When it is spent, a clock hand takes room from lists that have not missed for a round, and a
//! look at one other core now and then empties the lists of a core that has stood still.
//!
//! After TCMalloc's per-CPU caches (Google, 2017), with the resizing in the misses instead of a background thread.
//! Lists that exchange single blocks with a back that is quick (those of a region heap) share the budget evenly and
//! are not steered, so that a miss costs little more than the back does.
//!
//! Invariants: `F1` a slab's `allotted` is the sum of its limits by cost, and at most the budget; `F2` a block in a list is of
//! the list's class and is out of its span.
#![forbid(unsafe_code)]

use crate::batch::Batch;
use crate::chain::{Block, Chain};
use crate::platform::{Backend, Class, Contents, CoreLists, Shortage, Taken};
use crate::slab::{ListCounts, Slab, Slot};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{HitCounter, note};

/// The lists of a heap, and their figures by class.
pub(crate) struct CoreCache<L: CoreLists> {
    pub(crate) lists: L,
    counts: <L::Class as Class>::Table<ListCounts>,
    /// Of a core, all lists together; of a list, where they share evenly.
    budget: usize,
}

/// Which way a list missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Miss {
    /// A pop found it empty.
    Under = 1,
    /// A push found it full.
    Over = 2,
}

/// What a list may do after a miss.
struct Room {
    /// How many blocks it may hold.
    blocks: usize,
    /// How many to take or give: a batch, as far as the list has room; half of that room where the misses come in turn, so that
    /// the next one is as far away on either side.
    step: usize,
}

impl Room {
    const NONE: Self = Self { blocks: 0, step: 1 };
}

/// What a list may hold at first, by cost: programs use many sizes a little.
const FIRST: usize = 4096;
/// Lists that the clock hand asks at a time.
const HAND_STEPS: usize = 4;
/// Misses of a core between two looks at another.
const LOOK_EVERY: usize = 256;
/// The most blocks in a list.
const MOST_BLOCKS: usize = 32768;

/// Counts a hit, in a build that does.
#[inline(always)]
fn count<'a>(counter: impl FnOnce() -> &'a HitCounter) {
    if cfg!(feature = "counters") {
        counter().count();
    }
}

/// Takes the room of all lists of a core away.
fn forget<K: Class>(slab: &Slab<K>) {
    for class in K::all() {
        let limit = usize::from(slab.slot(class).limit.swap(0, Relaxed));
        slab.allotted.fetch_sub(limit * class.cost(), Relaxed);
    }
}

impl<L: CoreLists> CoreCache<L> {
    pub(crate) const fn new(budget: usize) -> Self {
        Self { lists: L::NEW, counts: L::Class::COUNTS, budget }
    }

    /// What the lists of `class` have done.
    #[inline(always)]
    pub(crate) fn counts(&self, class: L::Class) -> &ListCounts {
        &self.counts.as_ref()[class.index()]
    }

    #[inline(always)]
    pub(crate) fn pop(&self, class: L::Class) -> Option<Block> {
        let block = self.lists.pop(class)?;
        count(|| &self.counts(class).pops);
        Some(block)
    }

    #[inline(always)]
    pub(crate) fn push(&self, class: L::Class, block: Block) -> Result<(), Block> {
        self.lists.push(class, block)?;
        count(|| &self.counts(class).pushes);
        Ok(())
    }

    pub(crate) fn pop_again(&self, class: L::Class) -> Option<Block> {
        let block = self.lists.pop_again(class)?;
        count(|| &self.counts(class).pops);
        Some(block)
    }

    pub(crate) fn push_again(&self, class: L::Class, block: Block) -> Result<(), Block> {
        self.lists.push_again(class, block)?;
        count(|| &self.counts(class).pushes);
        Ok(())
    }

    /// A block after a miss, and some more for the list.
    pub(crate) fn refill(
        &self,
        class: L::Class,
        back: &impl Backend<Class = L::Class>,
    ) -> Result<(Block, Contents), Shortage> {
        let Room { blocks: room, step } = self.missed(class, Miss::Under, back);
        let Taken { mut chain, first } = back.take(class, step)?;
        let block = chain.pop().ok_or(Shortage::Exhausted)?;
        // What came off the shelf may be more than was asked for.
        let rest = chain.split(room);
        self.put_or_give(class, rest, back);
        if !chain.is_empty() {
            back.give(class, chain);
        }
        Ok((block, first))
    }

    /// Notes that an allocation found the list of `class` empty, where the caller goes to the back itself.
    #[inline]
    pub(crate) fn note_empty(&self, class: L::Class) {
        note(&self.counts(class).misses_under);
    }

    /// Takes a block after a miss of a list that is not steered: if this core never used it, it gets its share now. `Err`: it is
    /// full, or there is none; the block is the back's.
    pub(crate) fn open(&self, class: L::Class, block: Block) -> Result<(), Block> {
        note(&self.counts(class).misses_over);
        let slab = self.lists.current().and_then(|core| self.lists.slab(core));
        let Some((slab, slot)) = slab.map(|slab| (slab, slab.slot(class))) else { return Err(block) };
        let share = self.budget.min(MOST_BLOCKS) as u16;
        if slot.limit.load(Relaxed) != 0 || slot.limit.compare_exchange(0, share, Relaxed, Relaxed).is_err() {
            return Err(block);
        }
        slab.allotted.fetch_add(usize::from(share) * class.cost(), Relaxed);
        self.push(class, block)
    }

    /// Takes a block after a miss; where the list is full, some go to the back.
    pub(crate) fn overflow(&self, class: L::Class, block: Block, back: &impl Backend<Class = L::Class>) {
        let Room { blocks: room, step } = self.missed(class, Miss::Over, back);
        let Err(block) = (if room > 0 { self.push_again(class, block) } else { Err(block) }) else { return };
        let mut chain = self.lists.take_all(class);
        chain.push(block);
        let mut surplus = Batch::EMPTY;
        surplus.fill(&mut chain, step);
        // First the list, for others on this core and for interrupts: the back may have to wait for a lock.
        self.put_or_give(class, chain, back);
        back.give_batch(class, &mut surplus);
    }

    /// Empties the lists of all cores that can be reached; how long they may be is learnt anew.
    pub(crate) fn drain(&self, back: &impl Backend<Class = L::Class>) {
        for core in 0..self.lists.cores() {
            // A core that cannot be reached keeps what it has, and the limits that say so (F1).
            let emptied = self.lists.steal(core, &mut |class, chain| back.give(class, chain)).is_ok();
            if let Some(slab) = self.lists.slab(core).filter(|_| emptied) {
                forget(slab);
            }
        }
        // This core's lists can be taken even where none can be stolen, unless the context that this one interrupted works
        // on one.
        for class in L::Class::all() {
            let chain = self.lists.take_all(class);
            if !chain.is_empty() {
                back.give(class, chain);
            }
        }
    }

    /// Notes a miss and steers.
    fn missed(&self, class: L::Class, miss: Miss, back: &impl Backend<Class = L::Class>) -> Room {
        let counts = self.counts(class);
        let counter = if miss == Miss::Under { &counts.misses_under } else { &counts.misses_over };
        note(counter);
        let Some(core) = self.lists.current() else { return Room::NONE };
        let Some(slab) = self.lists.slab(core) else { return Room::NONE };
        let slot = slab.slot(class);
        slot.recent.store(1, Relaxed);
        let last = slot.last_miss.load(Relaxed);
        slot.last_miss.store(miss as u8, Relaxed);
        let turned = last != 0 && last != miss as u8;
        let most = match miss {
            _ if turned => MOST_BLOCKS,
            Miss::Under => class.batch().div_ceil(4),
            // Blocks that are only freed, and of which a handful is less than one, pass through.
            Miss::Over => usize::from(class.cost() < FIRST),
        };
        if usize::from(slot.limit.load(Relaxed)) < most {
            self.grow(slab, class, back);
        }
        if note(&slab.misses).is_multiple_of(LOOK_EVERY) {
            self.look_at_another(core, back);
        }
        let blocks = usize::from(slot.limit.load(Relaxed));
        let step = if turned { blocks / 2 } else { blocks };
        Room { blocks, step: step.clamp(1, class.batch()) }
    }

    /// Lets the list of `class` hold twice as many, at least a first handful, if the budget has room or can get it; else that.
    fn grow(&self, slab: &Slab<L::Class>, class: L::Class, back: &impl Backend<Class = L::Class>) {
        let (slot, first) = (slab.slot(class), (FIRST / class.cost()).clamp(1, class.batch()));
        let limit = usize::from(slot.limit.load(Relaxed));
        let got = [limit.max(first), first]
            .into_iter()
            .find(|step| limit + step <= MOST_BLOCKS && self.allot(slab, class, step * class.cost(), back));
        let Some(step) = got else { return };
        // Another thread of this core may have been here in between: then the room goes back (F1).
        if slot.limit.compare_exchange(limit as u16, (limit + step) as u16, Relaxed, Relaxed).is_err() {
            slab.allotted.fetch_sub(step * class.cost(), Relaxed);
        }
    }

    fn allot(&self, slab: &Slab<L::Class>, class: L::Class, cost: usize, back: &impl Backend<Class = L::Class>) -> bool {
        let budget = back.budget(self.budget);
        let within = |allotted: usize| Some(allotted + cost).filter(|sum| *sum <= budget);
        for _ in 0..HAND_STEPS {
            if slab.allotted.fetch_update(Relaxed, Relaxed, within).is_ok() {
                return true;
            }
            let index = slab.hand.fetch_add(1, Relaxed) % slab.slots.as_ref().len();
            let idle = L::Class::from_index(index).filter(|idle| *idle != class);
            if let Some(idle) = idle {
                self.shrink_idle(slab, idle, back);
            }
        }
        false
    }

    /// Takes a batch's room from a list that has not missed since the hand's last round.
    fn shrink_idle(&self, slab: &Slab<L::Class>, class: L::Class, back: &impl Backend<Class = L::Class>) {
        let slot = slab.slot(class);
        let limit = slot.limit.load(Relaxed);
        if slot.recent.swap(0, Relaxed) != 0 || limit == 0 {
            return;
        }
        let less = limit.min(class.batch() as u16);
        if slot.limit.compare_exchange(limit, limit - less, Relaxed, Relaxed).is_ok() {
            slab.allotted.fetch_sub(usize::from(less) * class.cost(), Relaxed);
            self.give_surplus(slab, slot, class, back);
        }
    }

    /// Gives back what a list of this core holds above its limit.
    fn give_surplus(&self, slab: &Slab<L::Class>, slot: &Slot, class: L::Class, back: &impl Backend<Class = L::Class>) {
        let surplus = slab.blocks(class).saturating_sub(slot.limit.load(Relaxed).into());
        if surplus == 0 {
            return;
        }
        let mut chain = self.lists.take_all(class);
        let front = chain.split(surplus);
        self.put_or_give(class, chain, back);
        back.give(class, front);
    }

    /// Makes a chain this core's list, or gives it back where there is one.
    fn put_or_give(&self, class: L::Class, chain: Chain, back: &impl Backend<Class = L::Class>) {
        if !chain.is_empty()
            && let Err(chain) = self.lists.put_chain(class, chain)
        {
            back.give(class, chain);
        }
    }

    /// Empties the lists of another core if it has not missed since the last look.
    fn look_at_another(&self, core: usize, back: &impl Backend<Class = L::Class>) {
        let cores = self.lists.cores().max(1);
        let mine = self.lists.slab(core).map_or(0, |slab| slab.misses.load(Relaxed));
        // Each look goes to the next core, this one left out.
        let other = (core + 1 + mine / LOOK_EVERY % cores.saturating_sub(1).max(1)) % cores;
        let Some(slab) = self.lists.slab(other).filter(|_| other != core) else { return };
        let misses = slab.misses.load(Relaxed);
        if slab.seen.swap(misses, Relaxed) == misses {
            let _ = self.lists.steal(other, &mut |class, chain: Chain| back.give(class, chain));
        }
    }
}
