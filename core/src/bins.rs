//! Bins: free pieces by size, with a two-level bitmap, so that a piece that fits is found in constant time.
//!
//! Written once: the page heap keeps its chunks here by their longest free run (units are pages), a region heap its free
//! blocks (units are granules). A bin's number is a small float of the size: exact to 15 units, then eight steps a doubling.
//!
//! ```text
//!   units   1 2 … 15 | 16-17 18-19 … 30-31 | 32-35 … 60-63 | 64-71 …        bin of a piece: the one its size falls in
//!   bin     1 2 … 15 | 16    17    … 23    | 24    … 31    | 32    …
//!
//!   top     [ 0 1 ]                            one bit a word that is not zero
//!   words   [ 0000…0 ][ 0010…1 ]               one bit a bin that is not empty
//! ```
//!
//! After two-level segregated fit (Masmano et al., 2004) and good fit: first the floor bin's newest piece if it fits, then
//! the first non-empty bin above it, then a few more of the floor bin.
//! Invariants: `B1` a bit is set where its bin has members; `B2` a member's bin is that of its units.
#![forbid(unsafe_code)]

use crate::list::{Linked, List};

const BITS: usize = usize::BITS as usize;
const STEPS: usize = 8;
const EXACT: usize = 2 * STEPS;
/// Members of the floor bin that a search looks at, at most.
const PROBES: usize = 8;

/// Where pieces keep their size beside their links.
pub trait Pieces: Linked {
    /// The size by which `id` is filed; at least 1.
    fn units(&self, id: Self::Id) -> usize;
}

/// The bins: `WORDS` × `usize::BITS` of them.
#[derive(Debug)]
pub struct Bins<I, const WORDS: usize> {
    top: usize,
    words: [usize; WORDS],
    lists: [[List<I>; BITS]; WORDS],
}

/// The bin of a piece of `units`.
const fn bin_of(units: usize) -> usize {
    if units < EXACT {
        return units;
    }
    let top = units.ilog2() as usize;
    let doubling = top - EXACT.ilog2() as usize;
    EXACT + doubling * STEPS + (units >> (top - STEPS.ilog2() as usize)) % STEPS
}

impl<I: Copy + Eq, const WORDS: usize> Bins<I, WORDS> {
    pub(crate) const EMPTY: Self =
        Self { top: 0, words: [0; WORDS], lists: [const { [const { List::EMPTY }; BITS] }; WORDS] };

    /// Whether `units` has a bin: checked once, where a heap's greatest piece is known.
    pub(crate) const fn holds(units: usize) -> bool {
        bin_of(units) < WORDS * BITS
    }

    /// Files a piece.
    pub(crate) fn insert(&mut self, pieces: &impl Pieces<Id = I>, id: I) {
        let (word, bit) = place(bin_of(pieces.units(id)));
        self.lists[word][bit].insert(pieces, id);
        self.words[word] |= 1 << bit;
        self.top |= 1 << word;
    }

    /// Takes a piece out; its units are still those it was filed by.
    pub(crate) fn remove(&mut self, pieces: &impl Pieces<Id = I>, id: I) {
        let (word, bit) = place(bin_of(pieces.units(id)));
        self.lists[word][bit].remove(pieces, id);
        if self.lists[word][bit].first().is_none() {
            self.words[word] &= !(1 << bit);
            if self.words[word] == 0 {
                self.top &= !(1 << word);
            }
        }
    }

    /// A piece of at least `units`, which stays filed.
    pub(crate) fn find(&self, pieces: &impl Pieces<Id = I>, units: usize) -> Option<I> {
        let floor = bin_of(units);
        if floor >= WORDS * BITS {
            return None;
        }
        let (word, bit) = place(floor);
        let mut candidates = self.lists[word][bit].iter(pieces).take(PROBES);
        let fits = |id: &I| pieces.units(*id) >= units;
        candidates.next().filter(fits).or_else(|| self.first_above(floor)).or_else(|| candidates.find(fits))
    }

    fn first_above(&self, bin: usize) -> Option<I> {
        let (word, bit) = place(bin + 1);
        let rest = self.words.get(word)? & (!0 << bit);
        let (word, bits) = match rest {
            0 => {
                let above = self.top & (!0_usize).checked_shl(word as u32 + 1).unwrap_or(0);
                let word = if above == 0 { return None } else { above.trailing_zeros() as usize };
                (word, self.words[word])
            }
            bits => (word, bits),
        };
        self.lists[word][bits.trailing_zeros() as usize].first()
    }

    /// How many pieces are filed. Walks all of them: for the checker.
    pub(crate) fn count(&self, pieces: &impl Pieces<Id = I>) -> usize {
        self.lists.iter().flatten().map(|list| list.iter(pieces).count()).sum()
    }

    /// The first broken invariant, if one is.
    pub(crate) fn broken(&self, pieces: &impl Pieces<Id = I>) -> Option<&'static str> {
        for (bin, list) in self.lists.iter().flatten().enumerate() {
            let (word, bit) = place(bin);
            let marked = self.words[word] >> bit & 1 == 1;
            if marked != list.first().is_some() || (self.words[word] != 0) != (self.top >> word & 1 == 1) {
                return Some("B1: a bin's bit is set where the bin has members");
            }
            if list.iter(pieces).any(|id| bin_of(pieces.units(id)) != bin) {
                return Some("B2: a piece lies in the bin of its size");
            }
        }
        None
    }
}

const fn place(bin: usize) -> (usize, usize) {
    (bin / BITS, bin % BITS)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::list::Links;
    use std::cell::RefCell;
    use std::vec::Vec;

    struct Store(RefCell<Vec<(usize, Links<usize>)>>);

    impl Linked for Store {
        type Id = usize;
        fn links(&self, id: usize) -> Links<usize> {
            self.0.borrow()[id].1
        }
        fn set_links(&self, id: usize, links: Links<usize>) {
            self.0.borrow_mut()[id].1 = links;
        }
    }

    impl Pieces for Store {
        fn units(&self, id: usize) -> usize {
            self.0.borrow()[id].0
        }
    }

    #[test]
    fn bin_numbers_are_monotonic_and_exact_below_sixteen() {
        for units in 1..100_000 {
            assert!(bin_of(units + 1) == bin_of(units) || bin_of(units + 1) == bin_of(units) + 1);
            assert!(units >= 16 || bin_of(units) == units);
        }
        assert_eq!((bin_of(16), bin_of(17), bin_of(18), bin_of(32), bin_of(512)), (16, 16, 17, 24, 56));
    }

    #[test]
    fn what_is_found_fits_and_nothing_fitting_above_is_missed() {
        let store = Store(RefCell::new((0..300).map(|n| (n * 7919 % 512 + 1, Links::NONE)).collect()));
        let mut bins = Bins::<usize, 1>::EMPTY;
        assert!(Bins::<usize, 1>::holds(512) && !Bins::<usize, 1>::holds(2048));
        for id in 0..300 {
            bins.insert(&store, id);
            assert_eq!(bins.broken(&store), None);
        }
        let mut filed: Vec<usize> = (0..300).collect();
        for need in (1..=512).cycle().step_by(37).take(600) {
            match bins.find(&store, need) {
                Some(id) => {
                    assert!(store.units(id) >= need);
                    bins.remove(&store, id);
                    filed.retain(|f| *f != id);
                }
                None => {
                    let roomier = filed.iter().filter(|id| store.units(**id) >= need).count();
                    assert!(
                        roomier == 0 || filed.iter().filter(|id| bin_of(store.units(**id)) == bin_of(need)).count() > PROBES
                    );
                }
            }
            assert_eq!(bins.broken(&store), None);
        }
    }
}
