//! Regions: pieces of memory that a [`BlockHeap`](crate::BlockHeap) carves, and where in one its control block and its
//! granules go.
//!
//! Pure address arithmetic, which nobody's memory is needed to test. Called by `block_heap`.
//!
//! ```text
//!   start                                                                        start + len          start + most
//!   │ │ control block: bins, … │ boundary bitmap, a bit a granule of `most` │ 1 │ 2 │ … │ n │ │ (granules to come) │
//!   └─┴────────────────────────┴────────────────────────────────────────────┴───┴───┴───┴───┴─┘
//!   aligned                                                                aligned to the granule
//! ```
//!
//! Ends are kept as lengths, and a region that touches either end of the address space gives up the granule there: no block
//! has the address 0, and the address behind the last byte of a block is an address.
#![forbid(unsafe_code)]

use crate::chain::fits;
use crate::grain::Grain;
use crate::units::align_up;
use core::fmt;

const BITS: usize = usize::BITS as usize;

/// Memory for a heap.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First byte; any alignment.
    pub start: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Bytes that it may be extended to later; at least `len`.
    pub most: usize,
}

impl Region {
    /// `len` bytes from `start`.
    pub const fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len, most: len }
    }

    /// The same, with room in the heap's bitmap for as many bytes as are to follow it later: up to `most` in all.
    pub const fn growable(start: *mut u8, len: usize, most: usize) -> Self {
        Self { start, len, most }
    }
}

/// Why a region was not taken. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionError {
    /// It does not hold the control block and a granule.
    TooSmall,
    /// It has more granules than the heap's grain can number.
    TooLarge,
    /// It reaches beyond the end of the address space, or beyond the addresses that links can hold.
    Unreachable,
    /// It shares bytes with a region of the heap.
    Overlaps,
    /// The heap has a region already.
    Occupied,
    /// The heap has no region (at this address).
    Missing,
    /// It was not declared to grow that far.
    NotGrowable,
    /// The memory serves another heap.
    Claimed,
    /// The heap's lock is taken, and this context may not wait for it.
    Reentered,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooSmall => "the region is too small for the heap's own data and one block: give it more bytes",
            Self::TooLarge => "the region has more granules than this grain can number: split it, or choose a wider grain",
            Self::Unreachable => "the region reaches beyond the addresses that a heap can use: check its start and length",
            Self::Overlaps => "the region shares bytes with one that the heap has: add memory once",
            Self::Occupied => "the heap has a region already: add further ones with `add_region`",
            Self::Missing => "the heap has no such region: add one first, or check the address",
            Self::NotGrowable => "the region was not declared to grow that far: add it with `Region::growable`",
            Self::Claimed => "the arena serves another heap: declare one arena a heap",
            Self::Reentered => "the heap is in use and may not be waited for here: do this outside of interrupts",
        })
    }
}

impl core::error::Error for RegionError {}

/// Where a region's parts go, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placement {
    /// The control block.
    pub(crate) control: usize,
    /// Words of the boundary bitmap, right behind it.
    pub(crate) words: usize,
    /// Granule 1.
    pub(crate) first: usize,
    /// Granules there are.
    pub(crate) granules: usize,
    /// Granules there may be.
    pub(crate) most: usize,
}

/// Places a control block of `control` bytes, aligned to the granule and to a word.
pub(crate) fn place<G: Grain>(start: usize, len: usize, most: usize, control: usize) -> Result<Placement, RegionError> {
    let align = G::GRANULE.max(align_of::<usize>());
    let (len, most) = (reachable(start, len)?, reachable(start, most.max(len))?);
    let skip = align_up(start.max(1), align).ok_or(RegionError::TooSmall)? - start;
    let room = |len: usize| len.checked_sub(skip + control).filter(|room| *room > 0).ok_or(RegionError::TooSmall);
    let (room, most_room) = (room(len)?, room(most)?);
    let words = bitmap_words::<G>(most_room);
    let bitmap = align_up(control + words * size_of::<usize>(), G::GRANULE).ok_or(RegionError::TooLarge)? - control;
    // The bitmap has two bits more than there are granules: before the first and behind the last, for neighbours that are not.
    let granules = |room: usize| room.saturating_sub(bitmap) / G::GRANULE;
    let (granules, most) = (granules(room), granules(most_room).min(words * BITS - 2));
    match granules.min(most) {
        _ if most > G::MOST => Err(RegionError::TooLarge),
        granules if granules < G::LEAST => Err(RegionError::TooSmall),
        granules => Ok(Placement { control: skip, words, first: skip + control + bitmap, granules, most }),
    }
}

/// The fewest words whose bits serve the granules that `room` bytes hold beside them, or one more.
fn bitmap_words<G: Grain>(room: usize) -> usize {
    let word = size_of::<usize>();
    (room / G::GRANULE + 2).div_ceil(BITS + word / G::GRANULE)
}

/// `len`, less the last byte of the address space.
fn reachable(start: usize, len: usize) -> Result<usize, RegionError> {
    let len = match start.checked_add(len) {
        Some(_) => len,
        None if start.wrapping_add(len) == 0 => len - 1,
        None => return Err(RegionError::Unreachable),
    };
    if len == 0 || fits(start, start + len) { Ok(len) } else { Err(RegionError::Unreachable) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grain::{Compact, Fine, Tiny, Wide};

    const CONTROL: usize = 168;

    fn sound<G: Grain>(start: usize, len: usize, most: usize) -> Result<Placement, RegionError> {
        let place = place::<G>(start, len, most, CONTROL)?;
        let control = start + place.control;
        assert!(control >= start && control > 0 && control.is_multiple_of(8) && control.is_multiple_of(G::GRANULE));
        assert!(place.first >= place.control + CONTROL + place.words * 8);
        assert!((start + place.first).is_multiple_of(G::GRANULE));
        assert!(place.words * BITS >= place.most + 2, "a bit a granule, and two");
        assert!(place.granules <= place.most && place.most <= G::MOST);
        let end = place.first + place.granules * G::GRANULE;
        assert!(end <= len && start.checked_add(end).is_some(), "inside, and the end is an address");
        Ok(place)
    }

    #[test]
    fn parts_lie_inside_and_little_is_wasted() {
        for len in (0..3000).chain([65_536, 524_200]) {
            for start in 0x1000..0x1010 {
                let Ok(place) = sound::<Compact>(start, len, len) else {
                    assert!(len < CONTROL + 48, "{len} bytes are enough");
                    continue;
                };
                let spent = len - place.granules * 8;
                assert!(spent <= CONTROL + 16 + 7 + len / 64 + 16, "{spent} of {len} bytes are not for blocks");
            }
        }
        assert!(sound::<Wide>(0x1008, 1 << 24, 1 << 24).is_ok_and(|place| place.granules * 16 > (1 << 24) / 100 * 99));
    }

    #[test]
    fn room_to_grow_is_room_in_the_bitmap() {
        let place = sound::<Tiny>(0x1000, 1024, 5120).unwrap();
        assert!(place.most > 4 * place.granules && place.words * BITS >= place.most);
    }

    #[test]
    fn both_ends_of_the_address_space_are_given_up() {
        // K05: a region up to the very end; K07: one from the address 0.
        let top = usize::MAX - 0xfff;
        let place = sound::<Compact>(top, 0x1000, 0x1000).unwrap();
        assert!(place.first + place.granules * 8 >= 0x1000 - 8 - 7);
        assert_eq!(sound::<Compact>(top, 0x1001, 0x1001), Err(RegionError::Unreachable));
        assert_eq!(sound::<Compact>(top, usize::MAX, usize::MAX), Err(RegionError::Unreachable));
        let place = sound::<Compact>(0, 4096, 4096).unwrap();
        assert_eq!(place.control, 8);
        // K04: nothing at all, anywhere.
        for start in [0, 0x1000, usize::MAX] {
            assert_eq!(sound::<Compact>(start, 0, 0), Err(RegionError::TooSmall));
        }
    }

    #[test]
    fn what_a_grain_cannot_number_is_refused() {
        // K29: lengths around the largest.
        assert!(sound::<Tiny>(0x1000, 8 << 10, 8 << 10).is_ok());
        assert_eq!(sound::<Tiny>(0x1000, 9 << 10, 9 << 10), Err(RegionError::TooLarge));
        assert!(sound::<Compact>(0x1000, 512 << 10, 512 << 10).is_ok());
        assert_eq!(sound::<Compact>(0x1000, 600 << 10, 600 << 10), Err(RegionError::TooLarge));
        assert_eq!(sound::<Compact>(0x1000, 4096, 1 << 30), Err(RegionError::TooLarge));
        assert!(sound::<Fine>(0x1000, 1 << 26, 1 << 26).is_ok() && sound::<Wide>(0x1000, 1 << 30, 1 << 30).is_ok());
        assert_eq!(sound::<Compact>(1 << 47, 4096, 4096), Err(RegionError::Unreachable));
    }
}
