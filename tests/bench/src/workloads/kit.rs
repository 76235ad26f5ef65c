//! What the workloads have in common: the seed, sizes, lists of blocks, and sums.
//!
//! Called by the other files of [`crate::workloads`]; calls [`crate::heap`].
#![forbid(unsafe_code)]

use crate::heap::{Block, Tested};
use fastrand::Rng;
use std::alloc::{GlobalAlloc, Layout};
use std::iter::repeat_with;

/// The seed of every workload.
pub const SEED: u64 = 0x0F7E_E570;

/// Operations in a lap of those that have no size of their own: a lap takes about a millisecond, so that looking at the
/// clock costs nothing.
pub const LAP: u64 = 100_000;

/// Sixteen sizes in bytes; their mean is 450.
pub const SIZES: [usize; 16] = [16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];

/// A list of places for blocks.
pub type Slots = Vec<Option<Block>>;

/// Empty slots, every page of them touched.
pub fn empty(slots: usize) -> Slots {
    repeat_with(|| None).take(slots).collect()
}

/// Makes a block in each slot, with the number of the slot as its tag.
#[inline(always)]
pub fn fill<A: GlobalAlloc>(heap: Tested<A>, slots: &mut [Option<Block>], mut layout: impl FnMut() -> Layout) {
    for (tag, slot) in (0..).zip(slots) {
        *slot = Some(heap.make(layout(), tag));
    }
}

/// Unmakes what is in the slots, first to last, and leaves them empty.
#[inline(always)]
pub fn clear<A: GlobalAlloc>(heap: Tested<A>, slots: &mut [Option<Block>]) -> u64 {
    sum(slots.iter_mut().filter_map(Option::take), |block| heap.unmake(block))
}

/// Unmakes what is in the slot, then makes a block there.
#[inline(always)]
pub fn replace<A: GlobalAlloc>(heap: Tested<A>, slot: &mut Option<Block>, layout: Layout, tag: u64) -> u64 {
    let old = slot.take().map_or(0, |block| heap.unmake(block));
    *slot = Some(heap.make(layout, tag));
    old
}

/// The sum of `f` over the items, in which their order counts.
#[inline(always)]
pub fn sum<T>(items: impl IntoIterator<Item = T>, mut f: impl FnMut(T) -> u64) -> u64 {
    items.into_iter().fold(0, |sum, item| add(sum, f(item)))
}

/// One step of [`sum`].
#[inline(always)]
pub fn add(sum: u64, item: u64) -> u64 {
    sum.wrapping_mul(5).wrapping_add(item)
}

/// A random size of `least..=most` with a heavy tail: one in two is below twice the least, and each doubling of the size
/// takes as many bytes in all as any other (Pareto, with an exponent of one). The mean is about `least * ln(most / least)`.
#[inline(always)]
pub fn heavy_tailed(random: &mut Rng, least: u32, most: u32) -> usize {
    (least * most / random.u32(least..=most)) as usize
}

/// The numbers below `count` in a random order.
pub fn shuffled(random: &mut Rng, count: usize) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..count).collect();
    random.shuffle(&mut numbers);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_stated_mean() {
        assert_eq!(SIZES.iter().sum::<usize>() / SIZES.len(), 450);
    }

    #[test]
    fn heavy_tails_have_the_stated_mean_and_median() {
        let (least, most) = (32, 32 << 10);
        let sizes: Vec<_> = (least..=most).map(|r| least * most / r).collect();
        let mean = sizes.iter().sum::<u32>() as f64 / sizes.len() as f64;
        let stated = f64::from(least) * f64::from(most / least).ln();
        assert!((mean / stated - 1.0).abs() < 0.02, "{mean} {stated}");
        assert!(sizes[sizes.len() / 2].abs_diff(2 * least) <= 1);
        let mut random = Rng::with_seed(SEED);
        assert!((0..1000).all(|_| (32..=32 << 10).contains(&heavy_tailed(&mut random, least, most))));
    }
}
