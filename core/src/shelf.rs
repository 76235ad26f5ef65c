//! The shelf: whole chains that stand in front of a class's spans, so that what one core frees and another allocates passes
//! without a lock and without touching a span.
//!
//! A slot holds a chain's word or 0. A chain goes in by a compare-exchange from 0 and comes out by a swap to 0, always whole:
//! no link of a chain in a slot is read, so there is no ABA. Invariant: `H1` a chain that came out was put in once.

use crate::chain::{Chain, word_count};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Edge, order};

/// Slots of a shelf.
pub(crate) const SLOTS: usize = 8;

/// The chains of one class.
#[derive(Debug)]
pub(crate) struct Shelf {
    slots: [AtomicUsize; SLOTS],
}

impl Shelf {
    #[cfg(not(loom))]
    pub(crate) const EMPTY: Self = Self { slots: [const { AtomicUsize::new(0) }; SLOTS] };

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { slots: core::array::from_fn(|_| AtomicUsize::new(0)) }
    }

    /// Whether one of the first `slots` slots is free, at some moment.
    #[cfg(not(loom))]
    pub(crate) fn has_room(&self, slots: usize) -> bool {
        self.slots.iter().take(slots).any(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    /// Puts a chain into one of the first `slots` slots; it comes back where all are taken.
    pub(crate) fn put(&self, chain: Chain, slots: usize) -> Result<(), Chain> {
        let word = chain.into_word();
        // Release pairs with the Acquire in `take_slot`: whoever takes the chain sees its links.
        let release = order(Edge::ShelfRelease, Ordering::Release);
        let put = self.slots.iter().take(slots).any(|slot| {
            slot.load(Ordering::Relaxed) == 0 && slot.compare_exchange(0, word, release, Ordering::Relaxed).is_ok()
        });
        // SAFETY: the word is that of the chain taken apart above, which no slot took.
        if put { Ok(()) } else { Err(unsafe { Chain::from_word(word) }) }
    }

    /// Takes a chain.
    pub(crate) fn take(&self) -> Option<Chain> {
        self.slots.iter().find_map(Self::take_slot)
    }

    fn take_slot(slot: &AtomicUsize) -> Option<Chain> {
        if slot.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Acquire pairs with the Release in `put`.
        let word = slot.swap(0, order(Edge::ShelfAcquire, Ordering::Acquire));
        // SAFETY: the word was put in by `put`, and the swap makes this context its only owner.
        (word != 0).then(|| unsafe { Chain::from_word(word) })
    }

    /// Blocks on the shelf, at some moment.
    pub(crate) fn blocks(&self) -> usize {
        // Relaxed: a figure.
        self.slots.iter().map(|slot| word_count(slot.load(Ordering::Relaxed))).sum()
    }

    /// The words in the slots, for the checker.
    #[cfg(not(loom))]
    pub(crate) fn words(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(|slot| slot.load(Ordering::Acquire))
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::chain::Block;
    use crate::chain::model_memory::Memory;
    use crate::sync::weak::explore;
    use loom::sync::Arc;
    use loom::thread;

    fn chain_of(block: Block) -> Chain {
        let mut chain = Chain::EMPTY;
        chain.push(block);
        chain
    }

    #[test]
    fn a_chain_comes_out_once_and_whole() {
        explore(&[Edge::ShelfAcquire, Edge::ShelfRelease], || {
            let (shelf, memory) = (Arc::new(Shelf::new()), Memory::new());
            let giver = {
                let (shelf, memory) = (shelf.clone(), memory.clone());
                thread::spawn(move || {
                    for n in 0..2 {
                        assert!(shelf.put(chain_of(memory.block(n)), SLOTS).is_ok());
                    }
                })
            };
            let taker = {
                let shelf = shelf.clone();
                // Takes a chain apart, which reads its link.
                thread::spawn(move || shelf.take().and_then(|mut chain| chain.pop()).map(|block| block.addr()))
            };
            giver.join().unwrap();
            let taken = taker.join().unwrap();
            let taken = (0..2).map(|n| memory.block(n)).filter(|block| Some(block.addr()) == taken);
            let rest = core::iter::from_fn(|| shelf.take()).filter_map(|mut chain| chain.pop());
            memory.assert_complete(2, taken.chain(rest));
        });
    }
}
