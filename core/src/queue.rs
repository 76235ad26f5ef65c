//! Queued frees: blocks that were given back by a context that may not wait for the lock they need (`L1`, `L2`): an interrupt whose
//! own context is inside, or anybody while another context forks.
//!
//! Push and take-all only, so there is no ABA. Whoever ends a slow path takes everything. The interrupted context does so once
//! it has left its lock, and sees what its interrupt pushed in program order; the one that forked does so when it thaws.
//! Invariant: `Q1` a block that came out was pushed once.

use crate::chain::{Block, word_block, word_of};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Edge, order};

/// The queue. Its blocks are of any kind; each is linked through its first word.
#[derive(Debug)]
pub(crate) struct FreeQueue {
    head: AtomicUsize,
}

impl FreeQueue {
    #[cfg(not(loom))]
    pub(crate) const EMPTY: Self = Self { head: AtomicUsize::new(0) };

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { head: AtomicUsize::new(0) }
    }

    /// Adds a block, whose first word becomes a link.
    pub(crate) fn push(&self, block: Block) {
        let word = word_of(block.as_ptr(), 0);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            block.set_link(head);
            // Release pairs with the Acquire in `take_all`: the link is seen with the block.
            let release = order(Edge::QueueRelease, Ordering::Release);
            match self.head.compare_exchange_weak(head, word, release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is nothing to take, at some moment.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a push by an interrupt of this context is seen in program order.
        self.head.load(Ordering::Relaxed) == 0
    }

    /// Takes every block.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Block> + use<> {
        // Acquire pairs with the Release in `push`.
        let mut word = self.head.swap(0, order(Edge::QueueAcquire, Ordering::Acquire));
        core::iter::from_fn(move || {
            // SAFETY: the swap made this context the only owner of every block from the head on.
            let block = unsafe { Block::from_ptr(word_block(word)?) };
            word = block.link_word();
            Some(block)
        })
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::chain::model_memory::Memory;
    use crate::sync::weak::explore;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn a_queued_block_comes_out_once() {
        explore(&[Edge::QueueAcquire, Edge::QueueRelease], || {
            let (queue, memory) = (Arc::new(FreeQueue::new()), Memory::new());
            let pushers: std::vec::Vec<_> = (0..2)
                .map(|n| {
                    let (queue, memory) = (queue.clone(), memory.clone());
                    thread::spawn(move || queue.push(memory.block(n)))
                })
                .collect();
            let early: std::vec::Vec<_> = queue.take_all().collect();
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            memory.assert_complete(2, early.into_iter().chain(queue.take_all()));
        });
    }
}
