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

/// Runs `work` on the chain of `head` under a claim; `None` where another has it.
#[inline(always)]
fn claim<R>(head: &AtomicUsize, work: impl FnOnce(&mut Chain) -> R) -> Option<R> {
    // Acquire pairs with the Release below: the last claimer's links are seen.
    let word = head.swap(CLAIMED, order(Edge::ClaimAcquire, Ordering::Acquire));
    if word == CLAIMED {
        return None;
    }
    // SAFETY: the claim makes this context the chain's only owner (A1).
    let mut chain = unsafe { Chain::from_word(word) };
    let result = work(&mut chain);
    // Release pairs with the Acquire above, in the next claimer.
    store_over_swaps(head, chain.into_word(), order(Edge::ClaimRelease, Ordering::Release));
    Some(result)
}

/// Takes the newest block.
#[inline(always)]
pub fn pop(head: &AtomicUsize) -> Option<Block> {
    // A look first: an empty list is a miss without a swap. Relaxed: nothing is read through it.
    if head.load(Ordering::Relaxed) <= CLAIMED {
        return None;
    }
    claim(head, Chain::pop)?
}

/// Puts a block on, unless there are `limit`.
#[inline(always)]
pub fn push(head: &AtomicUsize, limit: usize, block: Block) -> Result<(), Block> {
    let mut block = Some(block);
    claim(head, |chain| {
        if chain.len() < limit {
            block.take().into_iter().for_each(|block| chain.push(block));
        }
    });
    block.map_or(Ok(()), Err)
}

/// Takes the whole list.
pub fn take_all(head: &AtomicUsize) -> Chain {
    claim(head, |chain| core::mem::replace(chain, Chain::EMPTY)).unwrap_or(Chain::EMPTY)
}

/// Makes `chain` the list, if it has none.
pub fn put_chain(head: &AtomicUsize, chain: Chain) -> Result<(), Chain> {
    let mut chain = Some(chain);
    claim(head, |list| {
        if list.is_empty() {
            *list = chain.take().unwrap_or(Chain::EMPTY);
        }
    });
    chain.map_or(Ok(()), Err)
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::chain::model_memory::Memory;
    use crate::sync::weak::explore;
    use loom::sync::Arc;
    use loom::thread;

    /// Pops a block, and owns it: writes where its link was, then pushes it back.
    fn work(head: &AtomicUsize, missed: &mut std::vec::Vec<Block>) {
        if let Some(block) = pop(head) {
            block.set_link(0);
            missed.extend(push(head, 3, block).err());
        }
    }

    #[test]
    fn a_list_has_one_claimer() {
        explore(&[Edge::ClaimAcquire, Edge::ClaimRelease], || {
            let (head, memory) = (Arc::new(AtomicUsize::new(0)), Memory::new());
            for n in 0..2 {
                assert!(push(&head, 3, memory.block(n)).is_ok());
            }
            let other = {
                let head = head.clone();
                thread::spawn(move || {
                    let mut missed = std::vec![];
                    work(&head, &mut missed);
                    let mut chain = take_all(&head);
                    missed.extend(core::iter::from_fn(|| chain.pop()));
                    missed.into_iter().map(|block| block.addr()).collect::<std::vec::Vec<_>>()
                })
            };
            let mut mine = std::vec![];
            work(&head, &mut mine);
            let theirs = other.join().unwrap();
            let theirs = (0..2).map(|n| memory.block(n)).filter(|block| theirs.contains(&block.addr()));
            let mut rest = take_all(&head);
            let rest = core::iter::from_fn(move || rest.pop());
            memory.assert_complete(2, mine.into_iter().chain(theirs).chain(rest));
        });
    }
}
