//! Claim by swap: the portable way to take the list of a slot, on any machine that can swap a word.
//!
//! ```text
//!     EMPTY (0) ──swap(CLAIMED)──► CLAIMED (1) ──store(word)──► a chain's word ──swap(CLAIMED)──► …
//! ```
//!
//! Whoever swaps `CLAIMED` in and gets anything else out is the claimer; it alone leaves that state, by a store. Whoever gets
//! `CLAIMED` back misses. There is nothing to merge and no ABA, a nested interrupt misses, and a core that the scheduler
//! has just moved is only slower. `CLAIMED` is no chain's word: a word with a count has an address.
//! Nothing under a claim calls out or may fail. Invariant: `A1` one claimer at a time owns a slot's chain.

use crate::chain::{Block, Chain};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Edge, order, store_over_swaps};

/// The head of a slot that somebody is working on.
pub const CLAIMED: usize = 1;

/// The head of a per-core list: a chain's word, or [`CLAIMED`]. Only this type's methods and, under the contract of
/// [`word`](Self::word), a home's backend write it.
#[repr(transparent)]
#[derive(Debug)]
pub struct Head(AtomicUsize);

impl Head {
    /// An empty list.
    #[cfg(not(loom))]
    pub const EMPTY: Self = Self(AtomicUsize::new(0));

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The word, at some moment.
    #[inline(always)]
    pub fn load(&self, ordering: Ordering) -> usize {
        self.0.load(ordering)
    }

    /// The word itself, for backends that work on it by other means.
    ///
    /// # Safety
    /// What is written is a chain's word (or [`CLAIMED`]) and gives the chain's blocks up; what is taken out by it is taken
    /// once.
    #[inline(always)]
    pub unsafe fn word(&self) -> &AtomicUsize {
        &self.0
    }

    /// Runs `work` on the chain under a claim; `None` where another has it.
    #[inline(always)]
    fn claim<R>(&self, work: impl FnOnce(&mut Chain) -> R) -> Option<R> {
        // Acquire pairs with the Release below: the last claimer's links are seen.
        let word = self.0.swap(CLAIMED, order(Edge::ClaimAcquire, Ordering::Acquire));
        if word == CLAIMED {
            return None;
        }
        // SAFETY: the claim makes this context the chain's only owner (A1).
        let mut chain = unsafe { Chain::from_word(word) };
        let result = work(&mut chain);
        // Release pairs with the Acquire above, in the next claimer.
        store_over_swaps(&self.0, chain.into_word(), order(Edge::ClaimRelease, Ordering::Release));
        Some(result)
    }

    /// Takes the newest block.
    #[inline(always)]
    pub fn pop(&self) -> Option<Block> {
        // A look first: an empty list is a miss without a swap. Relaxed: nothing is read through it.
        if self.0.load(Ordering::Relaxed) <= CLAIMED {
            return None;
        }
        self.claim(Chain::pop)?
    }

    /// Puts a block on, unless there are `limit` (at most [`MAX_COUNT`](crate::chain::MAX_COUNT)).
    #[inline(always)]
    pub fn push(&self, limit: u16, block: Block) -> Result<(), Block> {
        let mut block = Some(block);
        self.claim(|chain| {
            if chain.len() < usize::from(limit) {
                block.take().into_iter().for_each(|block| chain.push(block));
            }
        });
        block.map_or(Ok(()), Err)
    }

    /// Takes the whole list.
    pub fn take_all(&self) -> Chain {
        self.claim(|chain| core::mem::replace(chain, Chain::EMPTY)).unwrap_or(Chain::EMPTY)
    }

    /// Makes `chain` the list, if it has none.
    pub fn put_chain(&self, chain: Chain) -> Result<(), Chain> {
        let mut chain = Some(chain);
        self.claim(|list| {
            if list.is_empty() {
                *list = chain.take().unwrap_or(Chain::EMPTY);
            }
        });
        chain.map_or(Ok(()), Err)
    }

    /// In the child of a fork: frees a list that a vanished thread had claimed. Its chain is lost to the child.
    pub(crate) fn drop_claim(&self) {
        // Relaxed: the child has one thread.
        let _ = self.0.compare_exchange(CLAIMED, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::chain::model_memory::Memory;
    use crate::sync::weak::explore;
    use loom::sync::Arc;
    use loom::thread;

    /// Pops a block, and owns it: writes where its link was, then pushes it back.
    fn work(head: &Head, missed: &mut std::vec::Vec<Block>) {
        if let Some(block) = head.pop() {
            block.set_link(0);
            missed.extend(head.push(3, block).err());
        }
    }

    #[test]
    fn a_list_has_one_claimer() {
        explore(&[Edge::ClaimAcquire, Edge::ClaimRelease], || {
            let (head, memory) = (Arc::new(Head::new()), Memory::new());
            for n in 0..2 {
                assert!(head.push(3, memory.block(n)).is_ok());
            }
            let other = {
                let head = head.clone();
                thread::spawn(move || {
                    let mut missed = std::vec![];
                    work(&head, &mut missed);
                    let mut chain = head.take_all();
                    missed.extend(core::iter::from_fn(|| chain.pop()));
                    missed.into_iter().map(|block| block.addr()).collect::<std::vec::Vec<_>>()
                })
            };
            let mut mine = std::vec![];
            work(&head, &mut mine);
            let theirs = other.join().unwrap();
            let theirs = (0..2).map(|n| memory.block(n)).filter(|block| theirs.contains(&block.addr()));
            let mut rest = head.take_all();
            let rest = core::iter::from_fn(move || rest.pop());
            memory.assert_complete(2, mine.into_iter().chain(theirs).chain(rest));
        });
    }
}
