//! Seals: how a free block is marked, so that a second free of it is seen at once.
//!
//! The front of the heap closes a seal on every block that is freed and opens it on every block that it hands out. Without a
//! seal a double free is still seen when a batch reaches its span (`S2`), which is later.

use crate::chain::Block;

/// Marks free blocks. The mark lies in a block's second word; the first is its link.
///
/// # Safety
/// `open` undoes `close` and both touch nothing but the second word.
pub unsafe trait Seal: 'static {
    /// Marks a block that is being freed; `false` where it carries the mark already, so is free.
    fn close(block: &Block) -> bool;
    /// Removes the mark from a block that is about to be handed out.
    fn open(block: &Block);
}

/// No mark: for callers who free with a type's layout and by ownership, as Rust does.
#[derive(Debug)]
pub struct Unsealed;

// SAFETY: touches nothing.
unsafe impl Seal for Unsealed {
    #[inline(always)]
    fn close(_: &Block) -> bool {
        true
    }
    #[inline(always)]
    fn open(_: &Block) {}
}

/// The block's address, mixed with a constant: a copy of the mark elsewhere is no mark there, so that nothing but a block that
/// is free carries it (a live block would have to hold this one value of 2^64 by chance).
#[derive(Debug)]
pub struct AddressSeal;

impl AddressSeal {
    const MIX: usize = 0x9e37_79b9_7f4a_7c15_u64 as usize;
}

// SAFETY: `close` writes the second word and `open` clears it.
unsafe impl Seal for AddressSeal {
    #[inline(always)]
    fn close(block: &Block) -> bool {
        let mark = block.addr() ^ Self::MIX;
        let fresh = block.second_word() != mark;
        block.set_second_word(mark);
        fresh
    }

    #[inline(always)]
    fn open(block: &Block) {
        block.set_second_word(0);
    }
}
