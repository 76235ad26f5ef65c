//! Size classes: which sizes small blocks come in.
//!
//! The rule is written once, in [`SizeClass::of`]; everything else (table, batches, span lengths) is computed from it and
//! proved at compile time. Blocks up to [`SizeClass::MAX_SIZE`] have a class; longer ones are runs of pages.
//!
//! 32 classes in steps of 16 bytes up to 512 bytes, then eight a doubling up to 256 KiB:
//!
//! | classes | sizes | step | waste, at most | objects a span | pages a span | batch |
//! |---|---|---|---|---|---|---|
#![doc = include_str!("size_class_table.md")]
//!
//! "Waste" is what the smallest request of a class leaves unused, as a part of the class's size, for classes above 128
//! bytes. The tail of a span, which holds no object, is at most 1/16 of it. Eight steps a doubling is TCMalloc's and
//! jemalloc's spacing; why 16-byte steps end at 512 bytes, see `lib.rs`.
#![forbid(unsafe_code)]

use crate::platform::Class;
use crate::slab::{ListCounts, Slot};
use crate::units::{PAGE_SIZE, Pages, align_up};
use core::hint::cold_path;

/// Bytes between the small classes, and the least alignment of every block.
pub const STEP: usize = 16;
/// Where 16-byte steps end and eight a doubling begin.
const LINEAR_MAX: usize = 512;
const LINEAR: usize = LINEAR_MAX / STEP;
const STEPS_A_DOUBLING: usize = 8;
const DOUBLINGS: usize = 9;
/// Objects in a span, at most: the bits that a span descriptor has.
pub const MAX_OBJECTS: usize = 1024;

/// The most blocks that move at a time.
pub const MAX_BATCH: usize = 64;

/// One of the small block sizes: its index, times the bytes of a slot, so that a fast path gets to the slot of a class without
/// a shift.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SizeClass(u16);

const SLOT: usize = size_of::<Slot>();

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
    #[inline]
    pub const fn of(size: usize, align: usize) -> Option<Self> {
        if size > Self::MAX_SIZE || align > Self::MAX_ALIGN {
            return None;
        }
        if align <= STEP {
            return Some(Self::computed(size));
        }
        // An empty block needs the alignment, too.
        let size = (if size == 0 { 1 } else { size } + align - 1) & !(align - 1);
        if size <= Self::MAX_SIZE { Some(Self::computed(size)) } else { None }
    }

    /// The same for what nearly every request is: up to 4 KiB and not over-aligned. `None` says nothing; [`of`](Self::of)
    /// knows.
    #[inline(always)]
    pub const fn of_common(size: usize, align: usize) -> Option<Self> {
        // Two branches that are nearly always guessed right: one over both conditions takes longer.
        if align > STEP {
            cold_path();
            return None;
        }
        if size > TABLED_MAX {
            cold_path();
            return None;
        }
        Some(Self(TABLE[size.div_ceil(STEP)]))
    }

    #[inline(always)]
    const fn computed(size: usize) -> Self {
        if size <= LINEAR_MAX {
            return Self::at(if size == 0 { 1 } else { size.div_ceil(STEP) });
        }
        // size - 1 = 1.xyz… × 2^top: `top` names the doubling, the next three bits the step in it.
        let top = (size - 1).ilog2();
        let doubling = (top - LINEAR_MAX.ilog2()) as usize;
        let step = ((size - 1) >> (top - STEPS_A_DOUBLING.ilog2())) % STEPS_A_DOUBLING;
        Self::at(LINEAR + 1 + doubling * STEPS_A_DOUBLING + step)
    }

    /// Where the slot of the class is in a slab, in bytes.
    #[inline(always)]
    pub const fn slot_offset(self) -> usize {
        self.0 as usize
    }

    /// The class with `index`, 1 to [`COUNT`](Self::COUNT).
    #[inline(always)]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index >= 1 && index <= Self::COUNT { Some(Self::at(index)) } else { None }
    }

    /// All classes, smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::COUNT).map(Self::at)
    }

    /// Its place in tables: 1 to [`COUNT`](Self::COUNT).
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize / SLOT
    }

    const fn at(index: usize) -> Self {
        Self((index * SLOT) as u16)
    }

    const fn row(self) -> &'static Row {
        &ROWS[self.index()]
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

    /// Blocks that move between the layers at a time: 32 KiB of them, 1 to 64.
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

impl SizeClass {
    /// What the page map says of the pages of a span of this class that starts at `start`: by it, [`of_key`](Self::of_key)
    /// tells where objects start. The class, in twelve bits, and in the others (rounded up) where the last object
    /// starts, times the class's multiplier, all modulo 2^64.
    pub(crate) const fn key(self, start: usize) -> u64 {
        let last = start as u64 + (self.objects() as u64 - 1) * self.size() as u64;
        (last.wrapping_mul(MULTIPLIERS[self.index()].0).wrapping_add(CLASS) & !CLASS) | self.0 as u64
    }

    /// The class of the object that starts at `address`, in a page whose key this is; `None` where none starts there, or the
    /// key is 0 (for an address from 1 to 2^47).
    ///
    /// After Lemire, Kaser and Kurz, "Faster remainder by direct computation" (2019): `n × ceil(2^64 / d)` modulo 2^64 is
    /// small exactly where `d` divides `n`, here the distance from `address` up to the last object. The multiplier is a little
    /// greater than theirs, so that a distance below zero (the tail behind the last object) never looks small, in spite of
    /// the twelve bits.
    #[inline(always)]
    pub(crate) const fn of_key(key: u64, address: usize) -> Option<Self> {
        // The class of a key is one: keys are made by `key`.
        let class = Self((key & CLASS) as u16);
        let distance = key.wrapping_sub((address as u64).wrapping_mul(MULTIPLIERS[class.index()].0));
        if distance >> SMALL == 0 { Some(class) } else { None }
    }
}

/// The bits of a key that hold the class.
const CLASS: u64 = 0xfff;

/// A product up to 2^40 counts as small. Bounds, for spans up to [`LONGEST_SPAN`] and d up to [`LARGEST_OBJECT`], which the
/// table keeps to: with m = ceil(2^64 / d) + 512 the excess e = d × m − 2^64 is from 512 d to 513 d. Where n = k × d ≥ 0, the
/// product is k × e + (0 to 8190) < 2^30; where d does not divide n, it is at least m > 2^45, and not within 2^44 of 2^64 from
/// below; where n = −k × d, it is 2^64 − k × e + (0 to 8190), and k × e ≥ 512 × 16.
const SMALL: u32 = 40;
/// Bytes of a span, at most.
const LONGEST_SPAN: usize = 1 << 20;
/// Bytes of an object, at most.
const LARGEST_OBJECT: usize = 1 << 18;

/// As long as a slot, so that a class leads to it without a shift, too.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Multiplier(u64);

const KEYS: usize = (CLASS as usize + 1) / SLOT;

/// The multipliers of the classes; as many as twelve bits name, so that they need no bounds check. Of index 0, "no class", one
/// by which nothing is small: −address × 2^16.
static MULTIPLIERS: [Multiplier; KEYS] = multipliers();

const fn multipliers() -> [Multiplier; KEYS] {
    let mut multipliers = [Multiplier(1 << 16); KEYS];
    let mut index = 1;
    while index < SizeClass::INDEXES {
        multipliers[index] = Multiplier(((1_u128 << 64).div_ceil(ROWS[index].size as u128) + 512) as u64);
        index += 1;
    }
    multipliers
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

/// The greatest size whose class is looked up: sizes on both sides of the linear part come mixed, and a branch between them
/// is often guessed wrong.
const TABLED_MAX: usize = 8 * LINEAR_MAX;

/// The class of every size up to that, by steps: a few lines of cache.
static TABLE: [u16; TABLED_MAX / STEP + 1] = table();

const fn table() -> [u16; TABLED_MAX / STEP + 1] {
    let mut table = [0; TABLED_MAX / STEP + 1];
    let mut steps = 0;
    while steps < table.len() {
        table[steps] = SizeClass::computed(steps * STEP).0;
        steps += 1;
    }
    table
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
            batch: clamp(32 * 1024 / size, 1, MAX_BATCH) as u16,
        };
        index += 1;
    }
    rows
}

const _: () = {
    assert!(SLOT == 16 && size_of::<Multiplier>() == SLOT && SizeClass::INDEXES <= KEYS);
    let mut index = 1;
    while index < SizeClass::INDEXES {
        let row = ROWS[index];
        let (size, below) = (row.size as usize, ROWS[index - 1].size as usize);
        assert!(size > below, "monotonic");
        assert!(size.is_multiple_of(STEP), "aligned");
        assert!(SizeClass::computed(size).index() == index, "round trip");
        assert!(SizeClass::computed(below + 1).index() == index, "no gap below");
        assert!(size <= 128 || (size - below - 1) * 8 <= size, "waste at most 12.5 % above 128 bytes");
        assert!(row.objects >= 1 && row.objects as usize <= MAX_OBJECTS, "objects fit the descriptor");
        assert!(row.pages as usize * PAGE_SIZE <= LONGEST_SPAN && size <= LARGEST_OBJECT, "keys are exact, see `SMALL`");
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

    #[test]
    fn a_key_tells_where_objects_start() {
        for class in SizeClass::all() {
            let bytes = class.pages().bytes();
            for start in [PAGE_SIZE, 0x7f12_3456_7000, (1 << 47) - bytes, !0 << 47, usize::MAX - bytes - PAGE_SIZE + 1] {
                let key = class.key(start);
                for offset in 0..bytes {
                    let starts = class.object_at(offset).is_some();
                    assert_eq!(
                        SizeClass::of_key(key, start + offset),
                        starts.then_some(class),
                        "{class:?} {start:#x} + {offset}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_object_starts_where_there_is_no_key() {
        let powers = (0..47).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1 << bit) - 1]);
        for address in powers.chain((1..100_000).map(|n| n * 0x5555_5557)).filter(|address| (1..1 << 47).contains(address)) {
            assert_eq!(SizeClass::of_key(0, address), None, "{address:#x}");
        }
    }
}
