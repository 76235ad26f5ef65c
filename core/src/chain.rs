//! Free blocks as owned values, and the counted chains in which they move between layers.
//!
//! The only file that makes a block out of an address, and the only one that knows how a link is encoded. A [`Block`] cannot
//! be copied: splitting, merging and handing out consume it.
//!
//! ```text
//!   word          63                         16 15      0        the word of a list's head, of a chain, and of a link
//!                 | address (48 bits)          |  count |        count: blocks from here to the end; the empty chain is 0
//!
//!   head ─► ┌───────────┐   ┌───────────┐   ┌───────────┐
//!     n=3   │ word, n=2 ┼──►│ word, n=1 ┼──►│ word = 0  │        first word of each free block: the link
//!           │ seal      │   │ seal      │   │ seal      │        second word: see `seal.rs`
//!           └───────────┘   └───────────┘   └───────────┘
//! ```
//!
//! A link is the head word from before the push, so that a pop is one load and one store, and any tail of a chain is a chain.
//! Invariants: `C1` a word's count is the number of blocks reached from it; `C2` addresses fit 48 bits (the last one
//! sign-extended), checked where pages are taken from the source ([`fits`]); `C3` a chain's blocks are of one class and are
//! owned by the chain.
//!
//! The word is the reason why this core needs 64-bit pointers; the region heap of small machines links by granule index.

use crate::sync::LinkCell;
use core::ptr::{NonNull, with_exposed_provenance_mut};

/// Bits of the count in a word.
pub const COUNT_BITS: u32 = 16;
/// The longest chain.
pub const MAX_COUNT: usize = (1 << COUNT_BITS) - 1;

/// Whether every address from `start` to `end` fits a word (`C2`): 48 bits, the upper 16 like the 47th. So user space and the
/// higher half, where kernels live, but not what five-level paging adds (57 bits). A word is decoded by an arithmetic shift.
#[inline]
pub const fn fits(start: usize, end: usize) -> bool {
    end as u64 <= 1 << 47 || (start as u64 >= !0 << 47 && start <= end)
}

/// A free block: at least a word, aligned to one, nobody else's. Blocks of a [`SizeClass`](crate::SizeClass) have two words.
#[must_use = "a block that is dropped is lost to the heap"]
#[derive(Debug, PartialEq, Eq)]
pub struct Block(NonNull<u8>);

// SAFETY: a block is owned memory, as a `Box<[u8]>` is.
unsafe impl Send for Block {}

impl Block {
    /// # Safety
    /// `start` begins a free block of a class, which the caller owns and gives up.
    #[inline(always)]
    pub unsafe fn from_ptr(start: NonNull<u8>) -> Self {
        Self(start)
    }

    /// The first byte, still owned by this token.
    #[inline(always)]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.0
    }

    /// Gives the memory out of the token, to be handed out.
    #[inline(always)]
    pub fn into_ptr(self) -> NonNull<u8> {
        self.0
    }

    /// The address of the first byte.
    #[inline(always)]
    pub fn addr(&self) -> usize {
        self.0.addr().get()
    }

    /// The word in the block's link.
    pub(crate) fn link_word(&self) -> usize {
        // SAFETY: the token owns the block, so nobody writes its link.
        unsafe { self.link().get() }
    }

    /// Sets the block's link.
    pub(crate) fn set_link(&self, word: usize) {
        // SAFETY: the token owns the block, so nobody else reaches its link.
        unsafe { self.link().set(word) }
    }

    /// The block's second word; the block must have two.
    #[inline(always)]
    pub(crate) fn second_word(&self) -> usize {
        // SAFETY: the token owns the block, which is two words long by the caller's knowledge of its class, and aligned.
        unsafe { self.0.cast::<usize>().add(1).read() }
    }

    /// Sets it.
    #[inline(always)]
    pub(crate) fn set_second_word(&self, word: usize) {
        // SAFETY: as for `second_word`.
        unsafe { self.0.cast::<usize>().add(1).write(word) }
    }

    fn link(&self) -> &LinkCell {
        // SAFETY: a block is at least a word, aligned, and owned by this token as long as the borrow lasts.
        unsafe { self.0.cast::<LinkCell>().as_ref() }
    }
}

/// The address in a word; `None` in the empty one.
#[inline(always)]
pub fn word_block(word: usize) -> Option<NonNull<u8>> {
    // Exposed provenance: a word is made by `word_of`, which exposes the block's pointer.
    NonNull::new(with_exposed_provenance_mut((word as isize >> COUNT_BITS) as usize))
}

/// The count in a word.
#[inline(always)]
pub const fn word_count(word: usize) -> usize {
    word & MAX_COUNT
}

/// The word for `count` blocks that begin at `block`.
#[inline(always)]
pub fn word_of(block: NonNull<u8>, count: usize) -> usize {
    debug_assert!(fits(block.addr().get(), block.addr().get()) && count <= MAX_COUNT);
    (block.as_ptr().expose_provenance() << COUNT_BITS) | count
}

/// A counted list of free blocks of one class, moved as a whole.
#[must_use = "a chain that is dropped is lost to the heap"]
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    word: usize,
}

impl Chain {
    /// No blocks.
    pub const EMPTY: Self = Self { word: 0 };

    /// # Safety
    /// `word` came from [`into_word`](Self::into_word), or is a list's head, and the caller owns its blocks and gives them up.
    #[inline(always)]
    pub unsafe fn from_word(word: usize) -> Self {
        Self { word }
    }

    /// The chain's word, by which a list takes it over.
    #[inline(always)]
    pub fn into_word(self) -> usize {
        self.word
    }

    /// Blocks in the chain.
    #[inline(always)]
    pub fn len(&self) -> usize {
        word_count(self.word)
    }

    /// Whether it has none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.word == 0
    }

    /// Puts a block in front; the chain must be shorter than [`MAX_COUNT`].
    #[inline(always)]
    pub fn push(&mut self, block: Block) {
        block.set_link(self.word);
        self.word = word_of(block.into_ptr(), self.len() + 1);
    }

    /// Takes the front block.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Block> {
        let block = Block(word_block(self.word)?);
        self.word = block.link_word();
        Some(block)
    }

    /// Takes the first `n` blocks: in reverse order and in time in proportion to `n`, or as they are if there are no more.
    pub fn split(&mut self, n: usize) -> Self {
        if self.len() <= n {
            return core::mem::replace(self, Self::EMPTY);
        }
        let mut front = Self::EMPTY;
        while front.len() < n {
            let Some(block) = self.pop() else { break };
            front.push(block);
        }
        front
    }
}

/// Memory for model tests: cells that loom watches stand for the first words of blocks.
#[cfg(all(test, loom))]
pub(crate) mod model_memory {
    use super::*;
    use loom::sync::Arc;

    #[derive(Clone)]
    pub(crate) struct Memory(Arc<[LinkCell; 3]>);

    impl Memory {
        pub(crate) fn new() -> Self {
            Self(Arc::new(core::array::from_fn(|_| LinkCell::new(0))))
        }

        /// The `n`-th block; the test gives each out once.
        pub(crate) fn block(&self, n: usize) -> Block {
            // SAFETY: the cell outlives the model's threads, which hold the memory.
            unsafe { Block::from_ptr(NonNull::from(&self.0[n]).cast()) }
        }

        /// Asserts that `blocks` are the first `n` blocks, each once.
        pub(crate) fn assert_complete(&self, n: usize, blocks: impl Iterator<Item = Block>) {
            let mut found: std::vec::Vec<_> = blocks.map(|block| block.addr()).collect();
            let mut expected: std::vec::Vec<_> = (0..n).map(|n| self.block(n).addr()).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[repr(align(16))]
    struct Memory([u8; 16]);

    fn blocks(memory: &mut [Memory]) -> Vec<Block> {
        // SAFETY: each element is 16 owned bytes, aligned to 16.
        memory.iter_mut().map(|m| unsafe { Block::from_ptr(NonNull::from(&mut m.0).cast()) }).collect()
    }

    #[test]
    fn a_chain_is_last_in_first_out_and_counts() {
        let mut memory: Vec<_> = (0..5).map(|_| Memory([0; 16])).collect();
        let mut chain = Chain::EMPTY;
        let addresses: Vec<_> = blocks(&mut memory).into_iter().map(|b| (b.addr(), chain.push(b)).0).collect();
        assert_eq!(chain.len(), 5);
        let mut front = chain.split(2);
        assert_eq!((front.len(), chain.len()), (2, 3));
        assert_eq!(front.pop().map(|b| b.addr()), Some(addresses[3]));
        assert_eq!(front.pop().map(|b| b.addr()), Some(addresses[4]));
        for n in (0..3).rev() {
            assert_eq!(chain.pop().map(|b| b.addr()), Some(addresses[n]));
            assert_eq!(chain.len(), n);
        }
        assert_eq!((chain.pop(), front.pop()), (None, None));
    }

    #[test]
    fn words_keep_every_address_that_fits() {
        // K45: 47, 48 and 57 bit address spaces; what does not fit is refused where pages come in, and never aliases.
        for address in [0x10_usize, 0x7f_ffff_f000, 0x7fff_ffff_f000, 0xffff_8000_0000_0000, usize::MAX - 0xfff] {
            assert!(fits(address, address));
            let block = NonNull::new(core::ptr::without_provenance_mut(address)).unwrap();
            for count in [1, 2, MAX_COUNT] {
                let word = word_of(block, count);
                assert_eq!((word_block(word).map(|b| b.addr().get()), word_count(word)), (Some(address), count));
            }
        }
        for address in [1 << 47 | 1, 0x80_0000_0000_0000, 0xff_ffff_ffff_f000, 0xffff_7fff_ffff_f000] {
            assert!(!fits(address, address));
        }
        assert!(!fits(0x7fff_ffff_f000, 0xffff_8000_0000_0000), "not across the gap");
    }
}
