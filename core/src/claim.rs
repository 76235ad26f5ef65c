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
use crate::sync::{Edge, order};

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
    head.store(chain.into_word(), order(Edge::ClaimRelease, Ordering::Release));
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
