//! A bit for each page of a chunk.
#![forbid(unsafe_code)]

use crate::units::CHUNK_PAGES;
use core::ops::{BitAnd, Not, Range};

const WORDS: usize = CHUNK_PAGES / 64;

/// 512 bits, by page number in the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageBits([u64; WORDS]);

impl PageBits {
    pub(crate) const NONE: Self = Self([0; WORDS]);
    pub(crate) const ALL: Self = Self([!0; WORDS]);

    /// The bits of `pages` set, all others clear.
    pub(crate) fn of(pages: Range<usize>) -> Self {
        let mut bits = [0; WORDS];
        for (n, word) in bits.iter_mut().enumerate() {
            let (from, to) = (pages.start.clamp(n * 64, n * 64 + 64), pages.end.clamp(n * 64, n * 64 + 64));
            let ones = if to > from { !0_u64 >> (64 - (to - from)) } else { 0 };
            *word = if ones == 0 { 0 } else { ones << (from - n * 64) };
        }
        Self(bits)
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(core::array::from_fn(|n| self.0[n] | other.0[n]))
    }

    pub(crate) fn without(self, other: Self) -> Self {
        self & !other
    }

    pub(crate) fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// The maximal ranges of set bits, lowest first.
    pub(crate) fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let start = self.next(from, 0)?;
            let end = self.next(start, !0).unwrap_or(CHUNK_PAGES);
            from = end;
            Some(start..end)
        })
    }

    /// The first bit from `from` on that differs from those of `flip`.
    fn next(self, from: usize, flip: u64) -> Option<usize> {
        let mut n = from / 64;
        let mut word = (self.0.get(n)? ^ flip) & (!0 << (from % 64));
        while word == 0 {
            n += 1;
            word = self.0.get(n)? ^ flip;
        }
        Some(n * 64 + word.trailing_zeros() as usize)
    }
}

impl BitAnd for PageBits {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(core::array::from_fn(|n| self.0[n] & other.0[n]))
    }
}

impl Not for PageBits {
    type Output = Self;
    fn not(self) -> Self {
        Self(core::array::from_fn(|n| !self.0[n]))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn ranges_and_runs_agree() {
        for range in [0..0, 0..1, 0..64, 0..512, 1..63, 63..65, 64..128, 100..300, 511..512] {
            let bits = PageBits::of(range.clone());
            assert_eq!(bits.count(), range.len());
            let runs: Vec<_> = bits.runs().collect();
            assert_eq!(runs, if range.is_empty() { vec![] } else { vec![range] });
        }
        let bits = PageBits::of(3..7).with(PageBits::of(60..70)).with(PageBits::of(500..512));
        assert_eq!(bits.runs().collect::<Vec<_>>(), [3..7, 60..70, 500..512]);
        assert_eq!((!bits).runs().collect::<Vec<_>>(), [0..3, 7..60, 70..500]);
        assert!(bits.contains(PageBits::of(61..69)) && !bits.contains(PageBits::of(6..8)));
    }
}
