//! Bins: free pieces by size, with a bitmap of those that are not empty, so that a piece that fits is found in constant time.
//!
//! Written once: the page heap keeps its chunks here by their longest free run (units are pages), a region heap its free
//! blocks (units are granules). A bin's number is a small float of the size: exact to 15 units, then eight steps a doubling.
//!
//! ```text
//!   units   1 2 … 15 | 16-17 18-19 … 30-31 | 32-35 … 60-63 | 64-71 …        bin of a piece: the one its size falls in
//!   bin     1 2 … 15 | 16    17    … 23    | 24    … 31    | 32    …
//!
//!   words   [ 0000…0 ][ 0010…1 ]               one bit a bin that is not empty
//! ```
//!
//! After two-level segregated fit (Masmano et al., 2004) and good fit: first the floor bin's newest piece if it fits, then
//! the first non-empty bin above it, then a few more of the floor bin.
//! Invariants: `B1` a bit is set where its bin has members; `B2` a member's bin is that of its units.
#![forbid(unsafe_code)]

use crate::list::{Linked, List};
use core::marker::PhantomData;

const BITS: usize = usize::BITS as usize;
const STEPS: usize = 8;
/// Members of the floor bin that a search looks at, at most.
const PROBES: usize = 8;
/// Members of any bins that a search looks at where size alone does not tell whether one fits.
const CANDIDATES: usize = 32;

/// Where pieces keep their size beside their links.
pub trait Pieces: Linked {
    /// The size by which `id` is filed; at least 1.
    fn units(&self, id: Self::Id) -> usize;
}

/// The bins: a list each in `lists`, `[List<I>; N]`, and a bit each in `words`, `[usize; bitmap_words(N)]`. All-zero memory
/// is an empty set where all-zero is `None` for an `Option<I>`.
#[derive(Debug)]
pub struct Bins<I, Words, Lists> {
    words: Words,
    lists: Lists,
    members: PhantomData<I>,
}

/// Words that hold a bit each for `bins` bins.
pub(crate) const fn bitmap_words(bins: usize) -> usize {
    bins.div_ceil(BITS)
}

/// The bin of a piece of `units`.
#[inline(always)]
pub(crate) const fn bin_of(units: usize) -> usize {
    let doublings = (units | STEPS).ilog2() - STEPS.ilog2();
    doublings as usize * STEPS + (units >> doublings)
}

impl<I: Copy + Eq, const WORDS: usize, const BINS: usize> Bins<I, [usize; WORDS], [List<I>; BINS]> {
    pub(crate) const EMPTY: Self = Self { words: [0; WORDS], lists: [const { List::EMPTY }; BINS], members: PhantomData };

    /// Whether `units` has a bin: checked once, where a heap's greatest piece is known.
    pub(crate) const fn holds(units: usize) -> bool {
        bin_of(units) < BINS
    }
}

impl<I, Words, Lists> Bins<I, Words, Lists>
where
    I: Copy + Eq,
    Words: AsRef<[usize]> + AsMut<[usize]>,
    Lists: AsRef<[List<I>]> + AsMut<[List<I>]>,
{
    /// Files a piece.
    pub(crate) fn insert(&mut self, pieces: &impl Pieces<Id = I>, id: I) {
        self.insert_into(bin_of(pieces.units(id)), pieces, id);
    }

    /// Takes a piece out; its units are still those it was filed by.
    pub(crate) fn remove(&mut self, pieces: &impl Pieces<Id = I>, id: I) {
        self.remove_from(bin_of(pieces.units(id)), pieces, id);
    }

    /// As [`insert`](Self::insert), where the caller knows the bin.
    #[inline(always)]
    pub(crate) fn insert_into(&mut self, bin: usize, pieces: &impl Linked<Id = I>, id: I) {
        self.lists.as_mut()[bin].insert(pieces, id);
        self.words.as_mut()[bin / BITS] |= 1 << (bin % BITS);
    }

    /// As [`remove`](Self::remove), where the caller knows the bin.
    #[inline(always)]
    pub(crate) fn remove_from(&mut self, bin: usize, pieces: &impl Linked<Id = I>, id: I) {
        let others = self.lists.as_mut()[bin].remove(pieces, id);
        if !others {
            self.words.as_mut()[bin / BITS] &= !(1 << (bin % BITS));
        }
    }

    /// Files `to` in the place of `from`: a piece of the same bin, which is what is left of it or what it has become a part
    /// of.
    #[inline(always)]
    pub(crate) fn replace(&mut self, bin: usize, pieces: &impl Linked<Id = I>, from: I, to: I) {
        self.lists.as_mut()[bin].replace(pieces, from, to);
    }

    /// A piece of at least `units`, which stays filed.
    pub(crate) fn find(&self, pieces: &impl Pieces<Id = I>, units: usize) -> Option<I> {
        match self.fitting_bin(pieces, units)? {
            Some(bin) => self.first_of(bin),
            None => self.probe(pieces, units),
        }
    }

    /// The newest piece of `bin`.
    #[inline(always)]
    pub(crate) fn first_of(&self, bin: usize) -> Option<I> {
        self.lists.as_ref().get(bin)?.first()
    }

    /// Some pieces of at least `units`, or of the same bin, the smallest bins first; they stay filed.
    pub(crate) fn candidates<P: Pieces<Id = I>>(&self, pieces: &P, units: usize) -> impl Iterator<Item = I> {
        let bins = core::iter::successors(Some(bin_of(units)), |bin| self.next_bin(*bin));
        bins.filter_map(|bin| self.lists.as_ref().get(bin)).flat_map(|list| list.iter(pieces)).take(CANDIDATES)
    }

    /// The largest piece's length, or a little less: that of a piece of the last bin that has any.
    pub(crate) fn longest(&self, pieces: &impl Pieces<Id = I>) -> usize {
        let last = self.lists.as_ref().iter().rev().find_map(List::first);
        last.map_or(0, |id| pieces.units(id))
    }

    /// A bin whose first piece has at least `units`: the floor bin or the first above it. `Some(None)`: only the floor bin
    /// is left, and its first does not fit; `None`: there is no bin for so many.
    #[inline(always)]
    pub(crate) fn fitting_bin(&self, pieces: &impl Pieces<Id = I>, units: usize) -> Option<Option<usize>> {
        let floor = bin_of(units);
        let first = self.lists.as_ref().get(floor)?.first();
        Some(if first.is_some_and(|id| pieces.units(id) >= units) { Some(floor) } else { self.next_bin(floor) })
    }

    /// The first bin above `bin` that has members.
    #[inline(always)]
    fn next_bin(&self, bin: usize) -> Option<usize> {
        let (from, words) = (bin + 1, self.words.as_ref());
        let rest = words.get(from / BITS)? & (!0 << (from % BITS));
        let (word, bits) = match rest {
            0 => (from / BITS + 1..words.len()).map(|word| (word, words[word])).find(|(_, bits)| *bits != 0)?,
            bits => (from / BITS, bits),
        };
        Some(word * BITS + bits.trailing_zeros() as usize)
    }

    /// One of the first pieces of the floor bin that fits.
    fn probe(&self, pieces: &impl Pieces<Id = I>, units: usize) -> Option<I> {
        let list = self.lists.as_ref().get(bin_of(units))?;
        list.iter(pieces).take(PROBES).find(|id| pieces.units(*id) >= units)
    }

    /// Takes the first piece of `bin` out.
    #[inline(always)]
    pub(crate) fn pop(&mut self, bin: usize, pieces: &impl Linked<Id = I>) -> Option<I> {
        let list = self.lists.as_mut().get_mut(bin)?;
        let first = list.pop(pieces);
        if list.first().is_none() {
            self.words.as_mut()[bin / BITS] &= !(1 << (bin % BITS));
        }
        first
    }

    /// The pieces of all bins. For the checker.
    pub(crate) fn iter<P: Pieces<Id = I>>(&self, pieces: &P) -> impl Iterator<Item = I> {
        self.lists.as_ref().iter().flat_map(|list| list.iter(pieces))
    }

    /// Shows each member and the one before it to `is_sound`, before it follows the member's link. `false`: one was not. For
    /// the checker, where links may be anything.
    pub(crate) fn each(&self, pieces: &impl Pieces<Id = I>, mut is_sound: impl FnMut(I, Option<I>) -> bool) -> bool {
        self.lists.as_ref().iter().all(|list| {
            let (mut prev, mut next) = (None, list.first());
            while let Some(id) = next {
                if !is_sound(id, prev) {
                    return false;
                }
                (prev, next) = (next, pieces.next(id));
            }
            true
        })
    }

    /// The first broken invariant, if one is. The links are sound.
    pub(crate) fn broken(&self, pieces: &impl Pieces<Id = I>) -> Option<&'static str> {
        let (words, bins) = (self.words.as_ref(), self.lists.as_ref().len());
        if (bins..words.len() * BITS).any(|bin| words[bin / BITS] >> (bin % BITS) & 1 == 1) {
            return Some("B1: a bin's bit is set where the bin has members");
        }
        for (bin, list) in self.lists.as_ref().iter().enumerate() {
            let marked = self.words.as_ref()[bin / BITS] >> (bin % BITS) & 1 == 1;
            if marked != list.first().is_some() {
                return Some("B1: a bin's bit is set where the bin has members");
            }
            if list.iter(pieces).any(|id| bin_of(pieces.units(id)) != bin) {
                return Some("B2: a piece lies in the bin of its size");
            }
        }
        None
    }
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
        fn prev(&self, id: usize) -> Option<usize> {
            self.0.borrow()[id].1.prev
        }
        fn next(&self, id: usize) -> Option<usize> {
            self.0.borrow()[id].1.next
        }
        fn set_prev(&self, id: usize, prev: Option<usize>) {
            self.0.borrow_mut()[id].1.prev = prev;
        }
        fn set_next(&self, id: usize, next: Option<usize>) {
            self.0.borrow_mut()[id].1.next = next;
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
        type Few = Bins<usize, [usize; bitmap_words(64)], [List<usize>; 64]>;
        let mut bins = Few::EMPTY;
        assert!(Few::holds(512) && Few::holds(1023) && !Few::holds(1024));
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
