//! Queued frees: blocks that were given back by a context that may not wait for the lock they need (`L1`, `L2`): an
//! interrupt whose own context is inside, or anybody while another context forks.
//!
//! Push and take-all only, so there is no ABA. Whoever ends a slow path takes everything (a region heap frees a few at a
//! time and keeps the rest for whoever comes next). The interrupted context does so once it has left its lock, and sees what
//! its interrupt pushed in program order; the one that forked does so when it thaws. Invariant: `Q1` a block that came out
//! was pushed once.

use crate::chain::{Block, word_block, word_count, word_of};
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

    /// Adds a block, whose first word becomes a link, with a note of 16 bits.
    pub(crate) fn push(&self, block: Block, note: usize) {
        let word = word_of(block.as_ptr(), note);
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

    /// What is in the queue, to be looked at.
    ///
    /// # Safety
    /// Nobody takes blocks out as long as the result is used, and the caller gives none of its blocks away.
    pub(crate) unsafe fn look(&self) -> Queued {
        // Acquire pairs with the Release in `push`.
        Queued(self.head.load(Ordering::Acquire))
    }

    /// Takes every block.
    pub(crate) fn take_all(&self) -> Queued {
        // Acquire pairs with the Release in `push`.
        Queued(self.head.swap(0, order(Edge::QueueAcquire, Ordering::Acquire)))
    }
}

/// Blocks that were taken from a queue, newest first, each with its note.
#[derive(Debug)]
pub(crate) struct Queued(usize);

impl Queued {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The same blocks, to be looked at.
    ///
    /// # Safety
    /// As for [`FreeQueue::look`].
    pub(crate) unsafe fn look(&self) -> Self {
        Self(self.0)
    }
}

impl Iterator for Queued {
    type Item = (Block, usize);

    fn next(&mut self) -> Option<(Block, usize)> {
        // SAFETY: the swap in `take_all` made the holder the only owner of every block from the head on.
        let block = unsafe { Block::from_ptr(word_block(self.0)?) };
        let note = word_count(self.0);
        self.0 = block.link_word();
        Some((block, note))
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
                    thread::spawn(move || queue.push(memory.block(n), n))
                })
                .collect();
            let early: std::vec::Vec<_> = queue.take_all().collect();
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            let all = early.into_iter().chain(queue.take_all()).map(|(block, note)| {
                assert_eq!(block.addr(), memory.block(note).addr());
                block
            });
            memory.assert_complete(2, all);
        });
    }
}
