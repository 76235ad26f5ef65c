//! Heaps made so that a loop over blocks shows, and requests that would run it: for counting instructions.
//!
//! Called by the host program, [`Attack::prepare`] once and [`Field::probe`] round by round; calls [`crate::heap`]. The number
//! of free blocks grows with the arena and nothing else does, so whatever costs more in a larger arena depends on it.
//!
//! An empty heap hands blocks out in the order of their addresses, with few exceptions; an attack relies on that.
#![forbid(unsafe_code)]

use crate::heap::Heap;
use crate::peer::Peer;
use crate::sizes::{Sizes, aligned, natural};
use core::alloc::Layout;
use fastrand::Rng;

/// A heap, and what is asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Holes of one size, in a scattered order.
    Holes,
    /// Holes of five sizes, all in the bin of the request and just below it.
    NearMiss,
    /// Holes that are long enough for what must be aligned, and have no place for it.
    Alignment,
    /// Blocks between two holes, to be grown.
    Grow,
    /// Holes of all sizes.
    Ladder,
}

/// A prepared heap: what was filled.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    attack: Attack,
    /// The slots that were filled at first; those behind them are empty.
    filled: usize,
    /// Bytes of the arena.
    len: usize,
}

const SEED: u64 = 0xa77a;

/// Size of the block that is kept to be freed, where a probe wants one request to be served and the next one not.
const RESERVE: usize = 8 << 10;

/// Size of the blocks of which few stay, to keep holes apart.
const POST: usize = 24;

/// What aligned blocks are aligned to, where the holes have no place for them, and the distance of what keeps holes apart.
const SPACING: usize = 1 << 10;

impl Attack {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Holes, Self::NearMiss, Self::Alignment, Self::Grow, Self::Ladder];

    /// Makes the heap, which is empty and over an arena of `len` bytes. `None`: given up, since `goes_on`, which is asked now and
    /// then, said so.
    pub fn prepare<P: Peer>(self, heap: &mut Heap<P>, len: usize, goes_on: impl Fn() -> bool) -> Option<Field> {
        let random = &mut Rng::with_seed(SEED);
        let filled = fill(heap, |slot| self.size(slot, random));
        for section in sections(filled) {
            if !goes_on() {
                return None;
            }
            for slot in section {
                if self.leaves_a_hole(heap, slot) {
                    heap.free(slot);
                }
            }
        }
        Some(Field { attack: self, filled, len })
    }

    /// The size of the block that is allocated into `slot` at first.
    fn size(self, slot: usize, random: &mut Rng) -> usize {
        match (self, slot % 4) {
            (Self::NearMiss | Self::Grow, _) if slot == 0 => RESERVE,
            (Self::Holes, _) => 256,
            (Self::NearMiss, 0 | 2) => 64,
            (Self::NearMiss, _) => 1032 + 8 * (slot / 2 % 5),
            (Self::Alignment, _) => POST,
            (Self::Grow, part) => [64, 128, 256, 64][part],
            (Self::Ladder, 0 | 2) => 32,
            (Self::Ladder, _) => Sizes::Spread(4, 11).draw(random),
        }
    }

    /// Whether that block is freed again.
    fn leaves_a_hole<P: Peer>(self, heap: &Heap<P>, slot: usize) -> bool {
        match self {
            Self::Alignment => !heap.address(slot).is_some_and(is_in_the_way),
            _ => slot % 2 == 1,
        }
    }
}

/// Whether the block at `address` is to stay, so that no hole has 64 bytes at a multiple of the spacing: each second such place
/// is taken by a block near its beginning, the others by one near their end. So the holes are as long as the spacing.
fn is_in_the_way(address: usize) -> bool {
    let end = address + POST;
    let place = end / SPACING * SPACING;
    let taken = place + if (end / SPACING).is_multiple_of(2) { 8 } else { 48 };
    (address..end).contains(&taken)
}

impl Field {
    /// One round of requests; the heap is nearly the same afterwards.
    pub fn probe<P: Peer>(&self, heap: &mut Heap<P>, round: usize) {
        match self.attack {
            Attack::Holes => self.probe_holes(heap, round),
            Attack::NearMiss => self.probe_near_miss(heap, round),
            Attack::Alignment => self.probe_alignment(heap, round),
            Attack::Grow => self.probe_grow(heap, round),
            Attack::Ladder => self.probe_ladder(heap, round),
        }
    }

    /// Into a hole, past all of them, into the right neighbour, and with both neighbours.
    fn probe_holes<P: Peer>(&self, heap: &mut Heap<P>, round: usize) {
        let own = 2 * scatter(round, self.filled / 2);
        self.each(heap, [256, 320, 2000].map(natural));
        resizes(heap, own, &[400, 256]);
        heap.free(own);
        self.once(heap, natural(700));
        heap.allocate(own, natural(256));
    }

    /// More than any hole has, and what some of the holes have; with a larger block to fall back on and without.
    fn probe_near_miss<P: Peer>(&self, heap: &mut Heap<P>, round: usize) {
        let own = 2 + 2 * scatter(round, self.filled / 2 - 1);
        heap.free(0);
        self.each(heap, [1100, 1048].map(natural));
        heap.allocate(0, natural(RESERVE));
        self.each(heap, [1100, 1048].map(natural));
        resizes(heap, own, &[1040, 64]);
    }

    /// Alignments for which no hole, some and few have a place; then with such a place made.
    fn probe_alignment<P: Peer>(&self, heap: &mut Heap<P>, round: usize) {
        let own = (scatter(round, self.filled)..self.filled).find(|&slot| heap.address(slot).is_some()).unwrap_or(0);
        self.each(heap, [SPACING, 256, self.len / 4].map(|align| aligned(64, align)));
        heap.free(own);
        self.each(heap, [SPACING, 64].map(|align| aligned(200, align)));
        heap.allocate(own, natural(POST));
        heap.allocate(self.filled, aligned(64, 256));
        resizes(heap, self.filled, &[300, 64]);
        heap.free(self.filled);
    }

    /// Into the right hole, over both, beyond both; then with a larger block to move to.
    fn probe_grow<P: Peer>(&self, heap: &mut Heap<P>, round: usize) {
        let own = 4 * scatter(round, self.filled / 4) + 2;
        resizes(heap, own, &[300, 256, 400, 256, 1000]);
        heap.free(0);
        resizes(heap, own, &[1000]);
        heap.free(own);
        heap.allocate(0, natural(RESERVE));
        heap.allocate(own, natural(256));
    }

    /// Sizes of every bin, and one beyond all of them.
    fn probe_ladder<P: Peer>(&self, heap: &mut Heap<P>, round: usize) {
        let random = &mut Rng::with_seed(round as u64);
        let mut size = || Sizes::Spread(4, 12).draw(random);
        let own = 2 * scatter(round, self.filled / 2);
        self.each(heap, [size(), size(), 5000].map(natural));
        resizes(heap, own, &[size(), size(), 32]);
        heap.free(own);
        heap.allocate(own, natural(32));
    }

    fn each<P: Peer>(&self, heap: &mut Heap<P>, layouts: impl IntoIterator<Item = Layout>) {
        layouts.into_iter().for_each(|layout| self.once(heap, layout));
    }

    /// Allocates into a slot behind those that were filled, and frees.
    fn once<P: Peer>(&self, heap: &mut Heap<P>, layout: Layout) {
        heap.allocate(self.filled, layout);
        heap.free(self.filled);
    }
}

fn resizes<P: Peer>(heap: &mut Heap<P>, slot: usize, sizes: &[usize]) {
    for &size in sizes {
        heap.resize(slot, size);
    }
}

/// Fills the heap until it refuses, slot by slot; the number of slots that it took.
fn fill<P: Peer>(heap: &mut Heap<P>, mut size: impl FnMut(usize) -> usize) -> usize {
    (0..heap.slots() - 1).find(|&slot| !heap.allocate(slot, natural(size(slot)))).expect("more slots than fit the arena")
}

/// Slots that are freed in a scattered order before those of lower numbers are: a list sorted by address takes them in time.
const SECTION: usize = 512;

/// The slots below `count`, each once: from the end to the front in sections, neighbours within a section far from each other.
fn sections(count: usize) -> impl Iterator<Item = impl Iterator<Item = usize>> {
    (0..count).step_by(SECTION).rev().map(move |start| {
        let len = SECTION.min(count - start);
        (0..len).map(move |index| start + scatter(index, len))
    })
}

/// One of the numbers below `count`: no two of so many indexes get the same, and neighbours part.
fn scatter(index: usize, count: usize) -> usize {
    // A prime above every count, near the golden section of 2^32.
    (index as u64 * 2_654_435_761 % count as u64) as usize
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_slot_is_scattered_once() {
        for count in [1, 511, 512, 513, 5_000] {
            let mut slots: Vec<_> = sections(count).flatten().collect();
            assert!(count < 3 || slots.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count() < count / 10);
            slots.sort_unstable();
            assert!(slots.into_iter().eq(0..count));
        }
    }

    #[test]
    fn posts_leave_no_place_for_what_is_aligned() {
        let posts: Vec<_> = (0..4_000).map(|slot| slot * POST).filter(|&address| is_in_the_way(address)).collect();
        let holes = posts.windows(2).map(|pair| pair[0] + POST..pair[1]);
        let place = |hole: &core::ops::Range<usize>| hole.start.next_multiple_of(SPACING) + 64 <= hole.end;
        assert!(holes.clone().all(|hole| !place(&hole)));
        assert!(holes.filter(|hole| hole.len() >= SPACING).count() >= 4_000 * POST / SPACING / 3);
    }
}
