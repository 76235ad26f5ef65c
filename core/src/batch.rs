//! Batch: a handful of free blocks out of one list, as an array.
//!
//! What moves between the layers is a chain, linked through the blocks. Where blocks go back to their spans no link is wanted:
//! they are taken off a chain, whose tail stays a chain as it is, and nothing is written to them.
#![forbid(unsafe_code)]

use crate::chain::{Block, Chain};
use crate::size_class::MAX_BATCH;

/// Up to [`MAX_BATCH`] blocks. Passed by reference: half a kilobyte.
#[must_use = "blocks that are dropped are lost to the heap"]
#[derive(Debug)]
pub(crate) struct Batch {
    blocks: [Option<Block>; MAX_BATCH],
    len: usize,
}

impl Batch {
    pub(crate) const EMPTY: Self = Self { blocks: [const { None }; MAX_BATCH], len: 0 };

    /// Takes the first blocks of a chain into an empty batch: `n` of them, as far as a batch and the chain have room.
    #[inline]
    pub(crate) fn fill(&mut self, chain: &mut Chain, n: usize) {
        self.len = n.min(chain.len()).min(MAX_BATCH);
        // A chain of its own, which lives in a register.
        let mut rest = core::mem::replace(chain, Chain::EMPTY);
        self.blocks[..self.len].iter_mut().for_each(|place| *place = rest.pop());
        *chain = rest;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The blocks, each of which may be taken out.
    pub(crate) fn places(&mut self) -> &mut [Option<Block>] {
        &mut self.blocks[..self.len]
    }

    /// Takes all blocks out.
    pub(crate) fn blocks(&mut self) -> impl Iterator<Item = Block> {
        self.places().iter_mut().filter_map(Option::take)
    }

    /// Takes all blocks out and links them: the last one comes first.
    pub(crate) fn link(&mut self) -> Chain {
        let mut chain = Chain::EMPTY;
        self.blocks().for_each(|block| chain.push(block));
        chain
    }
}
