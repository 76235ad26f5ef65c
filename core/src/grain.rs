//! Grains: how finely a region is cut, and the block lengths that its cache keeps apart.
//!
//! A [`BlockHeap`](crate::BlockHeap) counts in granules and names blocks by an index. Both widths are a type, so that a small
//! region pays for two-byte links and few bins, and a large one gets four-byte links and many.
//!
//! | grain | index | granule | smallest block | bins | largest region | of the region: bitmap, bins |
//! |---|---|---|---|---|---|---|
//! | [`Tiny`] | `u16` | 8 B | 8 B | 64 | just under 8 KiB | 1.56 % and 136 B |
//! | [`Compact`] | `u16` | 8 B | 8 B | 112 | just under 512 KiB | 1.56 % and 240 B |
//! | [`Fine`] | `u32` | 8 B | 16 B | 192 | just under 512 MiB | 1.56 % and 792 B |
//! | [`Wide`] | `u32` | 16 B | 16 B | 192 | just under 1 GiB | 0.78 % and 792 B |
//! | [`Coarse`] | `u32` | 32 B | 32 B | 192 | just under 2 GiB | 0.39 % and 792 B |
#![forbid(unsafe_code)]

use crate::bins::{bin_of, bitmap_words};
use crate::list::List;
use crate::platform::Class;
use crate::slab::{ListCounts, Slot};
use core::fmt::Debug;
use core::marker::PhantomData;
use core::num::{NonZeroU16, NonZeroU32};

mod sealed {
    /// What the heap relies on is true of this module's types only.
    pub trait Sealed {}
}
use sealed::Sealed;

/// The number of a granule, as it is stored; `None` of an `Option` is all zero.
pub trait Index: Sealed + Copy + Eq + Debug + Send + 'static {
    /// The largest.
    const MAX: usize;
    /// `None` for 0; at most [`MAX`](Self::MAX).
    fn new(index: usize) -> Option<Self>;
    /// As a plain number.
    fn get(self) -> usize;
}

macro_rules! index {
    ($int:ty, $index:ty) => {
        impl Sealed for $index {}

        impl Index for $index {
            const MAX: usize = <$int>::MAX as usize;
            #[inline(always)]
            fn new(index: usize) -> Option<Self> {
                debug_assert!(index <= <Self as Index>::MAX);
                Self::new(index as $int)
            }
            #[inline(always)]
            fn get(self) -> usize {
                Self::get(self) as usize
            }
        }
    };
}

index!(u16, NonZeroU16);
index!(u32, NonZeroU32);

/// Granule, index width and bins of a region heap. The instances are the types of this module's table.
pub trait Grain: Sealed + Debug + Sized + Send + Sync + 'static {
    /// The number of a granule.
    type Index: Index;
    /// A bit a bin.
    type Words: AsRef<[usize]> + AsMut<[usize]>;
    /// A list a bin.
    type Lists: AsRef<[List<Self::Index>]> + AsMut<[List<Self::Index>]>;
    /// log2 of the granule.
    const SHIFT: u32;
    /// The number of bins.
    const BINS: usize;

    /// Bytes of a granule, to which blocks are aligned.
    const GRANULE: usize = 1 << Self::SHIFT;
    /// Granules of the shortest block: a free one holds four indexes (see `block.rs`).
    const LEAST: usize = (4 * size_of::<Self::Index>()).div_ceil(Self::GRANULE);
    /// Bytes of the smallest block.
    const SMALLEST: usize = Self::LEAST * Self::GRANULE;
    /// The most granules of a region: it has an index more, and the longest block has a bin.
    const MOST: usize = {
        let binned = (1 << (Self::BINS / 8 + 2)) - 1;
        if binned < Self::Index::MAX - 1 { binned } else { Self::Index::MAX - 1 }
    };

    /// Granules of a block of `size` bytes (at most `isize::MAX`).
    #[inline(always)]
    fn granules(size: usize) -> usize {
        let granules = (size + (Self::GRANULE - 1)) >> Self::SHIFT;
        if granules < Self::LEAST { Self::LEAST } else { granules }
    }
}

macro_rules! grain {
    ($(#[$about:meta])* $name:ident, $index:ty, $shift:literal, $bins:literal) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name;

        impl Sealed for $name {}

        impl Grain for $name {
            type Index = $index;
            type Words = [usize; bitmap_words($bins)];
            type Lists = [List<$index>; $bins];
            const SHIFT: u32 = $shift;
            const BINS: usize = $bins;
        }

        const _: () = {
            assert!(bin_of($name::MOST) < $name::BINS);
            assert!($name::LEAST <= 2 && $name::GRANULE >= 2 * size_of::<$index>());
        };
    };
}

grain!(
    /// For regions below 8 KiB.
    Tiny, NonZeroU16, 3, 64
);
grain!(
    /// For regions below 512 KiB.
    Compact, NonZeroU16, 3, 112
);
grain!(
    /// For larger regions, where objects are small: blocks of 24 bytes, 40 bytes and so on waste nothing.
    Fine, NonZeroU32, 3, 192
);
grain!(
    /// For larger regions, with half the bitmap; blocks are aligned to 16.
    Wide, NonZeroU32, 4, 192
);

grain!(
    /// For larger regions of larger blocks. Each begins and ends with a cache line of 32 bytes, so that none shares one with
    /// another: what memory for DMA needs.
    Coarse, NonZeroU32, 5, 192
);

/// The lengths that the cache of a region heap keeps apart: exact numbers of granules.
pub trait GranuleClass: Sealed + Class {
    /// The heap's grain.
    type Grain: Grain;
    /// Granules of the longest; 0 where nothing is cached.
    const LONGEST: usize;
    /// The class of blocks of so many granules; `None` where the cache has no part in them.
    fn of_granules(granules: usize) -> Option<Self>;
    /// Granules of a block.
    fn granules(self) -> usize;
}

/// A length of 1 to `LONGEST` granules of `G`.
pub struct Granules<G, const LONGEST: usize>(usize, PhantomData<G>);

impl<G, const LONGEST: usize> Clone for Granules<G, LONGEST> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G, const LONGEST: usize> Copy for Granules<G, LONGEST> {}

impl<G, const LONGEST: usize> PartialEq for Granules<G, LONGEST> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<G, const LONGEST: usize> Eq for Granules<G, LONGEST> {}

impl<G, const LONGEST: usize> Debug for Granules<G, LONGEST> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Granules({})", self.0)
    }
}

impl<G: Grain, const LONGEST: usize> Class for Granules<G, LONGEST> {
    type Table<T: Sync> = [T; LONGEST];
    const SLOTS: [Slot; LONGEST] = [const { Slot::EMPTY }; LONGEST];
    const COUNTS: [ListCounts; LONGEST] = [const { ListCounts::ZERO }; LONGEST];

    #[inline(always)]
    fn index(self) -> usize {
        self.0 - 1
    }

    fn from_index(index: usize) -> Option<Self> {
        Self::of_granules(index + 1)
    }

    fn size(self) -> usize {
        self.0 * G::GRANULE
    }

    /// One: a block that is fetched for later would be missing from the next longer free block.
    fn batch(self) -> usize {
        1
    }

    /// One, whatever its length: the budget counts blocks, which bounds the time that emptying the lists takes.
    fn cost(self) -> usize {
        1
    }
}

impl<G, const LONGEST: usize> Sealed for Granules<G, LONGEST> {}

impl<G: Grain, const LONGEST: usize> GranuleClass for Granules<G, LONGEST> {
    type Grain = G;
    const LONGEST: usize = LONGEST;

    #[inline(always)]
    fn of_granules(granules: usize) -> Option<Self> {
        (granules >= G::LEAST && granules <= LONGEST).then_some(Self(granules, PhantomData))
    }

    #[inline(always)]
    fn granules(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_right() {
        assert_eq!((Tiny::SMALLEST, Tiny::MOST * Tiny::GRANULE), (8, (8 << 10) - 8));
        assert_eq!((Compact::SMALLEST, Compact::MOST * Compact::GRANULE), (8, (512 << 10) - 16));
        assert_eq!((Fine::SMALLEST, Fine::MOST * Fine::GRANULE), (16, (512 << 20) - 8));
        assert_eq!((Wide::SMALLEST, Wide::MOST * Wide::GRANULE), (16, (1 << 30) - 16));
        assert_eq!((Coarse::SMALLEST, Coarse::MOST * Coarse::GRANULE), (32, (1 << 31) - 32));
        let bins = |words: usize, lists: usize| words * 8 + lists;
        assert_eq!(bins(1, size_of::<<Tiny as Grain>::Lists>()), 136);
        assert_eq!(bins(2, size_of::<<Compact as Grain>::Lists>()), 240);
        assert_eq!(bins(3, size_of::<<Wide as Grain>::Lists>()), 792);
    }

    #[test]
    fn sizes_round_up_to_granules() {
        assert_eq!([0, 1, 8, 9, 16, 17].map(Compact::granules), [1, 1, 1, 2, 2, 3]);
        assert_eq!([0, 1, 8, 9, 16, 17].map(Fine::granules), [2, 2, 2, 2, 2, 3]);
        assert_eq!([0, 1, 8, 9, 16, 17].map(Wide::granules), [1, 1, 1, 1, 1, 2]);
        assert_eq!(Wide::granules(isize::MAX as usize), 1 << 59);
    }

    #[test]
    fn classes_are_the_lengths_that_a_block_can_have() {
        type Few = Granules<Fine, 5>;
        assert_eq!(
            Few::all().map(|class| (class.index(), class.size())).collect::<std::vec::Vec<_>>(),
            [(1, 16), (2, 24), (3, 32), (4, 40)]
        );
        assert!(
            Few::of_granules(6).is_none() && Few::of_granules(1).is_none() && Granules::<Wide, 0>::of_granules(1).is_none()
        );
    }
}
