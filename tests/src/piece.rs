//! One live block: an owned value that knows its layout and what was written into it.
//!
//! `shadow` keeps pieces in slots, tests use them alone. The only file that reads and writes blocks, and the only one that
//! frees them; everything above is safe code.
//!
//! Each block is filled with words made of its stamp and their place, so that a block that another one overlaps, that was
//! handed out twice, or that was copied short, shows it. Blocks up to 64 KiB are filled and read whole; of longer ones the
//! first and the last page whole and between them every 61st word (a prime, so that no power of two hides in the gaps).

use crate::subject::{Fill, Path, Subject};
use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

const WORD: usize = size_of::<u64>();
const WHOLE: usize = 64 * 1024;
const EDGE: usize = 4096;
const STRIDE: usize = 61 * WORD;

/// What an oracle found wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// A block does not have the alignment that was asked for.
    Misaligned {
        /// Its address.
        address: usize,
        /// The alignment.
        align: usize,
    },
    /// The heap says that a block holds less than was asked for, or does not know it.
    Usable {
        /// Bytes asked for.
        size: usize,
        /// What the heap says.
        usable: Option<usize>,
    },
    /// A byte of a zeroed block is not zero.
    NotZero {
        /// Its place in the block.
        offset: usize,
    },
    /// A byte is not what its owner wrote.
    Contents {
        /// Its place in the block.
        offset: usize,
        /// What the owner wrote.
        written: u8,
        /// What is there.
        found: u8,
    },
    /// Two live blocks share bytes.
    Overlap {
        /// The new block.
        address: usize,
        /// The one it overlaps.
        other: usize,
    },
    /// Null, although the source had memory.
    NoMemory,
    /// The heap counts other live bytes than the oracle.
    LiveBytes {
        /// The oracle's sum.
        oracle: usize,
        /// The heap's.
        heap: usize,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Misaligned { address, align } => write!(f, "block at {address:#x} is not aligned to {align}"),
            Self::Usable { size, usable } => write!(f, "usable size of a block of {size} is {usable:?}"),
            Self::NotZero { offset } => write!(f, "byte {offset} of a zeroed block is not zero"),
            Self::Contents { offset, written, found } => {
                write!(f, "byte {offset} reads {found:#04x}, its owner wrote {written:#04x}")
            }
            Self::Overlap { address, other } => write!(f, "block at {address:#x} overlaps the live one at {other:#x}"),
            Self::NoMemory => write!(f, "null, although the source had memory"),
            Self::LiveBytes { oracle, heap } => write!(f, "{heap} live bytes by the heap, {oracle} by the oracle"),
        }
    }
}

/// Whether a request was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Served {
    /// Yes.
    Yes,
    /// The heap answered null.
    No,
}

/// How a block may be named to its heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// By its layout as well.
    ByLayout,
    /// By its address only: it was resized by address, and may stand in a block of another class than its layout's.
    ByAddress,
}

/// A live block of `subject`, filled with its stamp. Dropping it frees it; to leave it live, forget it.
#[derive(Debug)]
pub struct Piece<'h, S: Subject> {
    subject: &'h S,
    start: NonNull<u8>,
    layout: Layout,
    usable: usize,
    known: Known,
    stamp: u64,
}

// SAFETY: a piece is owned memory, and the heap it frees to may be used from any thread.
unsafe impl<S: Subject + Sync> Send for Piece<'_, S> {}

impl<'h, S: Subject> Piece<'h, S> {
    /// Allocates, checks what came, and fills it. `Ok(None)`: the heap answered null.
    pub fn allocate(subject: &'h S, layout: Layout, fill: Fill, stamp: u64) -> Result<Option<Self>, Wrong> {
        let Some(start) = subject.allocate(layout, fill) else { return Ok(None) };
        // Inspected before it is owned: a wrong block is not freed.
        let mut piece = ManuallyDrop::new(Self { subject, start, layout, usable: 0, known: Known::ByLayout, stamp });
        piece.inspect()?;
        if fill == Fill::Zeroed {
            piece.expect_zero()?;
        }
        piece.stamp();
        Ok(Some(ManuallyDrop::into_inner(piece)))
    }

    /// Allocates without conditions on the contents; null and anything wrong is a panic.
    #[track_caller]
    pub fn new(subject: &'h S, size: usize, align: usize, stamp: u64) -> Self {
        let layout = Layout::from_size_align(size, align).expect("a valid layout");
        match Self::allocate(subject, layout, Fill::Any, stamp) {
            Ok(Some(piece)) => piece,
            Ok(None) => panic!("null for {layout:?}"),
            Err(wrong) => panic!("{wrong} ({layout:?})"),
        }
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// The first byte, for tests that misuse it.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// The layout it was last given; it is freed with it.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes that the heap says it holds.
    pub fn usable(&self) -> usize {
        self.usable
    }

    /// Whether the two share a byte that either may use.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mine, its) = (self.address(), other.address());
        mine < its + other.usable && its < mine + self.usable
    }

    /// Whether the block still holds what was written into it.
    pub fn verify(&self) -> Result<(), Wrong> {
        self.verify_to(self.layout.size(), self.layout.size())
    }

    /// Verifies, changes the size, verifies what must have been kept, and fills anew.
    pub fn reallocate(&mut self, new_size: usize, path: Path, stamp: u64) -> Result<Served, Wrong> {
        self.verify()?;
        let (old_size, path) = (self.layout.size(), self.allowed(path));
        // SAFETY: the piece owns the block, whose layout this is.
        let moved = unsafe { self.subject.reallocate(self.start, self.layout, new_size, path) };
        let Some(start) = moved else {
            self.verify()?;
            return Ok(Served::No);
        };
        self.start = start;
        self.known = if path == Path::Layout { Known::ByLayout } else { Known::ByAddress };
        self.layout = Layout::from_size_align(new_size, self.layout.align()).map_err(|_| Wrong::NoMemory)?;
        self.inspect()?;
        self.verify_to(old_size.min(new_size), old_size)?;
        self.stamp = stamp;
        self.stamp();
        Ok(Served::Yes)
    }

    /// Verifies and frees. What is wrong is left live.
    pub fn free(self, path: Path) -> Result<(), Wrong> {
        let this = ManuallyDrop::new(self);
        this.verify()?;
        // SAFETY: the piece owns the block and ends here.
        unsafe { this.subject.free(this.start, this.layout, this.allowed(path)) }
        Ok(())
    }

    fn allowed(&self, path: Path) -> Path {
        if self.known == Known::ByAddress && path == Path::Layout { Path::Address } else { path }
    }

    fn inspect(&mut self) -> Result<(), Wrong> {
        let (address, align, size) = (self.address(), self.layout.align(), self.layout.size());
        if !address.is_multiple_of(align) {
            return Err(Wrong::Misaligned { address, align });
        }
        match self.subject.usable(self.start, self.layout) {
            Some(usable) if usable >= size.max(1) => self.usable = usable,
            usable => return Err(Wrong::Usable { size, usable }),
        }
        Ok(())
    }

    fn expect_zero(&self) -> Result<(), Wrong> {
        for offset in probes(self.layout.size()) {
            for at in offset..(offset + WORD).min(self.layout.size()) {
                // SAFETY: inside the block.
                if unsafe { self.start.add(at).read() } != 0 {
                    return Err(Wrong::NotZero { offset: at });
                }
            }
        }
        Ok(())
    }

    fn stamp(&mut self) {
        let size = self.layout.size();
        for offset in probes(size) {
            let word = word(self.stamp, offset).to_ne_bytes();
            let len = WORD.min(size - offset);
            // SAFETY: `offset + len` is at most the block's size, and the block is this piece's.
            unsafe { self.start.add(offset).copy_from_nonoverlapping(NonNull::from(&word).cast(), len) }
        }
    }

    /// Verifies the first `kept` bytes of a block that was filled when it was `filled` long.
    fn verify_to(&self, kept: usize, filled: usize) -> Result<(), Wrong> {
        for offset in probes(filled).take_while(|offset| *offset < kept) {
            let written = word(self.stamp, offset).to_ne_bytes();
            let mut found = written;
            let len = WORD.min(kept - offset);
            // SAFETY: `offset + len` is at most `kept`, which is at most the block's size.
            unsafe { self.start.add(offset).copy_to_nonoverlapping(NonNull::from(&mut found).cast(), len) }
            if let Some(n) = (0..len).find(|n| written[*n] != found[*n]) {
                return Err(Wrong::Contents { offset: offset + n, written: written[n], found: found[n] });
            }
        }
        Ok(())
    }
}

impl<S: Subject> Drop for Piece<'_, S> {
    fn drop(&mut self) {
        // SAFETY: the piece owns the block and ends here.
        unsafe { self.subject.free(self.start, self.layout, self.allowed(Path::Layout)) }
    }
}

/// The word that belongs at `offset`; never 0, so that it is told from fresh memory.
fn word(stamp: u64, offset: usize) -> u64 {
    (stamp ^ offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0x0101_0101_0101_0101
}

/// The offsets of the words of a block of `size` bytes that are filled and read.
fn probes(size: usize) -> impl Iterator<Item = usize> {
    let (whole, tail) = if size <= WHOLE { (size, size) } else { (EDGE, (size - EDGE) & !(WORD - 1)) };
    (0..whole).step_by(WORD).chain((whole..tail).step_by(STRIDE)).chain((tail..size).step_by(WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_cover_small_blocks_whole_and_both_ends_of_large_ones() {
        for size in [0, 1, 7, 8, 9, 100, WHOLE] {
            assert_eq!(probes(size).count(), size.div_ceil(WORD));
        }
        let size = 3 * WHOLE + 5;
        assert!(probes(size).is_sorted_by(|a, b| a < b));
        assert_eq!(probes(size).next(), Some(0));
        assert!(probes(size).last().is_some_and(|last| last < size && last + WORD >= size));
        assert!(probes(size).all(|offset| offset.is_multiple_of(WORD)));
    }
}
