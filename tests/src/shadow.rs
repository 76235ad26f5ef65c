//! The shadow oracle: which blocks are live, in a fixed number of slots, and whether any two share a byte.
//!
//! `replay` calls it; it calls `piece`. It allocates nothing. Invariants: no two pieces in slots overlap, by the sizes that
//! the heap says they hold; the sum of those sizes is [`live_bytes`](Shadow::live_bytes).
#![forbid(unsafe_code)]

use crate::piece::{Piece, Served, Wrong};
use crate::script::Request;
use crate::subject::{Path, Subject};

/// Live blocks of one heap.
#[derive(Debug)]
pub struct Shadow<'h, S: Subject, const SLOTS: usize> {
    slots: [Option<Piece<'h, S>>; SLOTS],
    live_bytes: usize,
}

impl<'h, S: Subject, const SLOTS: usize> Shadow<'h, S, SLOTS> {
    /// Nothing live.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { slots: [const { None }; SLOTS], live_bytes: 0 }
    }

    /// The piece in `slot`.
    pub fn get(&self, slot: usize) -> Option<&Piece<'h, S>> {
        self.slots[slot].as_ref()
    }

    /// The sum of the sizes that the heap says the live blocks hold.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Allocates into an empty slot.
    pub fn allocate(&mut self, slot: usize, subject: &'h S, request: Request, stamp: u64) -> Result<Served, Wrong> {
        match Piece::allocate(subject, request.layout, request.fill, stamp)? {
            Some(piece) => self.put(slot, piece).map(|()| Served::Yes),
            None => Ok(Served::No),
        }
    }

    /// Frees what is in `slot`.
    pub fn free(&mut self, slot: usize, path: Path) -> Result<(), Wrong> {
        self.take(slot).map_or(Ok(()), |piece| piece.free(path))
    }

    /// Changes the size of what is in `slot`.
    pub fn reallocate(&mut self, slot: usize, size: usize, path: Path, stamp: u64) -> Result<Served, Wrong> {
        let Some(mut piece) = self.take(slot) else { return Ok(Served::No) };
        let served = piece.reallocate(size, path, stamp)?;
        self.put(slot, piece).map(|()| served)
    }

    /// Takes the piece out of `slot`.
    pub fn take(&mut self, slot: usize) -> Option<Piece<'h, S>> {
        let piece = self.slots[slot].take()?;
        self.live_bytes -= piece.usable();
        Some(piece)
    }

    /// Puts a piece into an empty slot.
    pub fn put(&mut self, slot: usize, piece: Piece<'h, S>) -> Result<(), Wrong> {
        if let Some(other) = self.slots.iter().flatten().find(|other| other.overlaps(&piece)) {
            return Err(Wrong::Overlap { address: piece.address(), other: other.address() });
        }
        self.live_bytes += piece.usable();
        self.slots[slot] = Some(piece);
        Ok(())
    }

    /// Whether every live block still holds what was written into it.
    pub fn verify(&self) -> Result<(), Wrong> {
        self.slots.iter().flatten().try_for_each(Piece::verify)
    }

    /// Forgets every block, which stays live in the heap.
    pub fn forget(&mut self) {
        (0..SLOTS).filter_map(|slot| self.take(slot)).for_each(core::mem::forget);
    }
}
