//! Size classes: which sizes small blocks come in.
//!
//! The rule is written once, in [`SizeClass::of`]; everything else (table, batches, span lengths) is computed from it and
//! proved at compile time. Blocks up to [`SizeClass::MAX_SIZE`] have a class; longer ones are runs of pages.
//!
//! 64 classes in steps of 16 bytes up to 1 KiB, then eight a doubling up to 256 KiB:
//!
//! | classes | sizes | step | waste, at most | objects a span | pages a span | batch |
//! |---|---|---|---|---|---|---|
#![doc = include_str!("size_class_table.md")]
//!
//! "Waste" is what the smallest request of a class leaves unused, as a part of the class's size, for classes above 128
//! bytes. The tail of a span, which holds no object, is at most 1/16 of it. Eight steps a doubling is TCMalloc's and
//! jemalloc's spacing; 16-byte steps to 1 KiB cost 48 more lists and save more than they cost (design note in `lib.rs`).
#![forbid(unsafe_code)]

use crate::platform::Class;
use crate::slab::{ListCounts, Slot};
use crate::units::{PAGE_SIZE, Pages, align_up};

/// Bytes between the small classes, and the least alignment of every block.
pub const STEP: usize = 16;
/// Where 16-byte steps end and eight a doubling begin.
const LINEAR_MAX: usize = 1024;
const LINEAR: usize = LINEAR_MAX / STEP;
const STEPS_A_DOUBLING: usize = 8;
const DOUBLINGS: usize = 8;
/// Objects in a span, at most: the bits that a span descriptor has.
pub const MAX_OBJECTS: usize = 1024;

/// One of the small block sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SizeClass(u8);

/// What the table says of one class.
#[derive(Clone, Copy, Debug)]
struct Row {
    size: u32,
    /// ceil(2^40 / size), by which a division becomes a multiplication.
    inverse: u64,
    objects: u16,
    pages: u16,
    batch: u16,
}

const ROWS: [Row; SizeClass::INDEXES] = rows();

impl SizeClass {
    /// Classes; their indexes run from 1.
    pub const COUNT: usize = LINEAR + STEPS_A_DOUBLING * DOUBLINGS;
    /// One more than the highest index: the length of a table by index, whose entry 0 is unused.
    pub const INDEXES: usize = Self::COUNT + 1;
    /// The greatest size that has a class (256 KiB).
    pub const MAX_SIZE: usize = LINEAR_MAX << DOUBLINGS;
    /// The greatest alignment that a class can give: objects lie at multiples of their size from a page boundary.
    pub const MAX_ALIGN: usize = PAGE_SIZE;

    /// The class that serves `size` bytes aligned to `align` (a power of two); `None` where that takes a run of pages.
    ///
    /// An over-aligned request gets a class whose size is a multiple of the alignment: within a doubling every multiple of the
    /// step is a class, and a multiple of an alignment above the step is a multiple of the step.
    #[inline(always)]
    pub const fn of(size: usize, align: usize) -> Option<Self> {
        if size > Self::MAX_SIZE || align > Self::MAX_ALIGN {
            return None;
        }
        if align <= STEP {
            return Some(Self::holding(size));
        }
        // An empty block needs the alignment, too.
        let size = (if size == 0 { 1 } else { size } + align - 1) & !(align - 1);
        if size <= Self::MAX_SIZE { Some(Self::holding(size)) } else { None }
    }

    #[inline(always)]
    const fn holding(size: usize) -> Self {
        if size <= LINEAR_MAX {
            return Self(if size == 0 { 1 } else { size.div_ceil(STEP) as u8 });
        }
        // size - 1 = 1.xyz… × 2^top: `top` names the doubling, the next three bits the step in it.
        let top = (size - 1).ilog2();
        let doubling = (top - LINEAR_MAX.ilog2()) as usize;
        let step = ((size - 1) >> (top - STEPS_A_DOUBLING.ilog2())) % STEPS_A_DOUBLING;
        Self((LINEAR + 1 + doubling * STEPS_A_DOUBLING + step) as u8)
    }

    /// The class with `index`, 1 to [`COUNT`](Self::COUNT).
    #[inline(always)]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index >= 1 && index <= Self::COUNT { Some(Self(index as u8)) } else { None }
    }

    /// All classes, smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::COUNT as u8).map(Self)
    }

    /// Its place in tables: 1 to [`COUNT`](Self::COUNT).
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    const fn row(self) -> &'static Row {
        &ROWS[self.0 as usize]
    }

    /// Bytes of a block.
    #[inline(always)]
    pub const fn size(self) -> usize {
        self.row().size as usize
    }

    /// Objects in a span of this class.
    pub const fn objects(self) -> usize {
        self.row().objects as usize
    }

    /// Pages of a span of this class.
    pub const fn pages(self) -> Pages {
        Pages(self.row().pages as usize)
    }

    /// Blocks that move between the layers at a time: 64 KiB of them, 1 to 32.
    #[inline]
    pub const fn batch(self) -> usize {
        self.row().batch as usize
    }

    /// Which object lies `offset` bytes into a span, if one starts there.
    #[inline(always)]
    pub const fn object_at(self, offset: usize) -> Option<usize> {
        let row = self.row();
        let object = ((offset as u64 * row.inverse) >> INVERSE_SHIFT) as usize;
        if object * row.size as usize == offset && object < row.objects as usize { Some(object) } else { None }
    }
}

impl Class for SizeClass {
    type Table<T: Sync> = [T; Self::INDEXES];
    const SLOTS: [Slot; Self::INDEXES] = [const { Slot::EMPTY }; Self::INDEXES];
    const COUNTS: [ListCounts; Self::INDEXES] = [const { ListCounts::ZERO }; Self::INDEXES];

    #[inline(always)]
    fn index(self) -> usize {
        self.index()
    }

    fn from_index(index: usize) -> Option<Self> {
        Self::from_index(index)
    }

    fn size(self) -> usize {
        self.size()
    }

    fn batch(self) -> usize {
        self.batch()
    }

    fn cost(self) -> usize {
        self.size()
    }
}

const INVERSE_SHIFT: u32 = 40;

const fn size_of_index(index: usize) -> usize {
    if index <= LINEAR {
        return index * STEP;
    }
    let above = index - LINEAR - 1;
    let base = LINEAR_MAX << (above / STEPS_A_DOUBLING);
    base + base / STEPS_A_DOUBLING * (above % STEPS_A_DOUBLING + 1)
}

const fn clamp(n: usize, least: usize, most: usize) -> usize {
    if n < least {
        least
    } else if n > most {
        most
    } else {
        n
    }
}

/// The span length with the least tail waste among those from the wanted length to twice that; the shortest of equals.
const fn span_pages(size: usize) -> usize {
    let wanted = clamp(size * 64, 4 * PAGE_SIZE, 16 * PAGE_SIZE);
    let least = if size > wanted { size.div_ceil(PAGE_SIZE) } else { wanted / PAGE_SIZE };
    let (mut best, mut pages) = (least, least);
    while pages < 2 * least && pages * PAGE_SIZE / size <= MAX_OBJECTS {
        // Tails compared as parts of their spans, by cross multiplication.
        if (pages * PAGE_SIZE % size) * best < (best * PAGE_SIZE % size) * pages {
            best = pages;
        }
        pages += 1;
    }
    best
}

const fn rows() -> [Row; SizeClass::INDEXES] {
    let mut rows = [Row { size: 0, inverse: 0, objects: 0, pages: 0, batch: 0 }; SizeClass::INDEXES];
    let mut index = 1;
    while index < SizeClass::INDEXES {
        let size = size_of_index(index);
        let pages = span_pages(size);
        rows[index] = Row {
            size: size as u32,
            inverse: (1_u64 << INVERSE_SHIFT).div_ceil(size as u64),
            objects: (pages * PAGE_SIZE / size) as u16,
            pages: pages as u16,
            batch: clamp(64 * 1024 / size, 1, 32) as u16,
        };
        index += 1;
    }
    rows
}

const _: () = {
    let mut index = 1;
    while index < SizeClass::INDEXES {
        let row = ROWS[index];
        let (size, below) = (row.size as usize, ROWS[index - 1].size as usize);
        assert!(size > below, "monotonic");
        assert!(size.is_multiple_of(STEP), "aligned");
        assert!(SizeClass::holding(size).0 as usize == index, "round trip");
        assert!(SizeClass::holding(below + 1).0 as usize == index, "no gap below");
        assert!(size <= 128 || (size - below - 1) * 8 <= size, "waste at most 12.5 % above 128 bytes");
        assert!(row.objects >= 1 && row.objects as usize <= MAX_OBJECTS, "objects fit the descriptor");
        assert!((row.pages as usize * PAGE_SIZE % size) * 16 <= row.pages as usize * PAGE_SIZE, "tail at most 1/16");
        // The quotient is exact while offset × (inverse × size − 2^40) < 2^40.
        let error = row.inverse * row.size as u64 - (1 << INVERSE_SHIFT);
        assert!((row.pages as u64 * PAGE_SIZE as u64) * error < 1 << INVERSE_SHIFT, "division is exact");
        index += 1;
    }
    assert!(SizeClass::INDEXES <= 256, "an index fits a byte");
    assert!(align_up(SizeClass::MAX_SIZE, PAGE_SIZE).is_some());
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;
    use std::string::String;

    /// The rows of the table in this file's documentation: by group of equal step.
    fn table() -> String {
        let (mut text, mut first) = (String::new(), 1);
        while first < SizeClass::INDEXES {
            let step = |index: usize| size_of_index(index) - size_of_index(index - 1).min(size_of_index(index));
            let last = (first..SizeClass::INDEXES).take_while(|i| *i == first || step(*i) == step(first)).last().unwrap();
            let rows = &ROWS[first..=last];
            let span = |f: fn(&Row) -> usize| {
                let (least, most) = (rows.iter().map(f).min().unwrap(), rows.iter().map(f).max().unwrap());
                if least == most { format!("{least}") } else { format!("{least}–{most}") }
            };
            let waste = (first..=last)
                .filter(|i| size_of_index(*i) > 128 || last == *i)
                .map(|i| 100.0 * (step(i) - 1) as f64 / size_of_index(i) as f64)
                .fold(0.0, f64::max);
            text += &format!(
                "| {first}–{last} | {} | {} | {waste:.1} % | {} | {} | {} |\n",
                span(|r| r.size as usize),
                step(first),
                span(|r| r.objects.into()),
                span(|r| r.pages.into()),
                span(|r| r.batch.into()),
            );
            first = last + 1;
        }
        text
    }

    #[test]
    fn the_documented_table_is_the_real_one() {
        let documented = include_str!("size_class_table.md");
        assert!(documented == table(), "size_class_table.md should read:\n{}", table());
    }

    #[test]
    fn every_request_fits_and_is_aligned() {
        for align in (0..=12).map(|bit| 1 << bit) {
            for size in (0..20_000).chain((20_000..=SizeClass::MAX_SIZE).step_by(37)) {
                let Some(class) = SizeClass::of(size, align) else {
                    assert!(align_up(size, align).unwrap() > SizeClass::MAX_SIZE);
                    continue;
                };
                assert!(class.size() >= size && class.size().is_multiple_of(align.max(STEP)), "{size} {align}");
                let smaller = SizeClass::from_index(class.index() - 1);
                let fits_smaller = smaller.is_some_and(|s| s.size() >= size && s.size().is_multiple_of(align));
                assert!(!fits_smaller, "{size} aligned to {align} would fit a smaller class");
            }
        }
        assert_eq!(SizeClass::of(SizeClass::MAX_SIZE + 1, 1), None);
        assert_eq!(SizeClass::of(usize::MAX, 16), None);
        assert_eq!(SizeClass::of(8, 2 * PAGE_SIZE), None);
    }

    #[test]
    fn objects_are_found_by_offset() {
        for class in SizeClass::all() {
            for offset in 0..class.pages().bytes() {
                let exact = offset.is_multiple_of(class.size()) && offset / class.size() < class.objects();
                assert_eq!(class.object_at(offset), exact.then_some(offset / class.size()));
            }
        }
    }
}
