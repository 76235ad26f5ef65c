//! The sizes and alignments that requests have. Called by [`crate::trace`], [`crate::fill`] and [`crate::attack`].
#![forbid(unsafe_code)]

use core::alloc::Layout;
use fastrand::Rng;

/// How sizes are spread. Bounds are in bytes and included.
#[derive(Clone, Copy, Debug)]
pub enum Sizes {
    /// First a cap, evenly from 16 to the given size, then the size, evenly from 4 to the cap: many small, few large, as in
    /// talc's benchmarks.
    Skewed(usize),
    /// Evenly over the powers of two from 2 to the first and to the second exponent, evenly between two powers.
    Spread(u32, u32),
    /// Evenly.
    Even(usize, usize),
}

impl Sizes {
    /// A size.
    pub fn draw(self, random: &mut Rng) -> usize {
        match self {
            Self::Skewed(most) => {
                let cap = random.usize(16..=most);
                random.usize(4..=cap)
            }
            Self::Spread(from, to) => {
                let power = 1 << random.u32(from..to);
                random.usize(power..=2 * power)
            }
            Self::Even(least, most) => random.usize(least..=most),
        }
    }
}

/// The layout of a block of `size` bytes with the alignment that a type of that size may have: the largest power of two that
/// divides the size, at most a word.
pub fn natural(size: usize) -> Layout {
    let align = 1 << size.trailing_zeros().min(size_of::<usize>().trailing_zeros());
    aligned(size, align)
}

/// The layout of `size` bytes at a multiple of `align`.
pub fn aligned(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a power of two, and sizes far below isize::MAX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_within_their_bounds() {
        let mut random = Rng::with_seed(1);
        for (sizes, least, most) in
            [(Sizes::Skewed(1024), 4, 1024), (Sizes::Spread(3, 11), 8, 2048), (Sizes::Even(4, 128), 4, 128)]
        {
            let mut drawn = [(); 20_000].map(|()| sizes.draw(&mut random));
            drawn.sort_unstable();
            assert!(drawn[0] >= least && drawn[drawn.len() - 1] <= most, "{sizes:?}");
            assert!(drawn[100] < least + most / 16 && drawn[drawn.len() - 1] > most - most / 8, "{sizes:?}");
        }
    }

    #[test]
    fn alignment_divides_the_size() {
        assert_eq!([1, 2, 6, 12, 24, 48].map(|size| natural(size).align()), [1, 2, 2, 4, 8, 8]);
    }
}
