//! Four workloads as lists of actions: written ahead out of a seed, so that the timed loop only reads them.
//!
//! Called by the host program; [`play`] calls [`crate::heap`]. A trace begins and ends with nothing live, so it can be played
//! again and again.
#![forbid(unsafe_code)]

use crate::heap::Heap;
use crate::peer::Peer;
use crate::sizes::{Sizes, aligned, natural};
use core::alloc::Layout;
use fastrand::Rng;

/// One operation, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    size: u32,
    slot: u16,
    align: u8,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Allocate,
    Free,
    Resize,
}

impl Action {
    /// What a list is filled with before a trace is written into it: frees nothing.
    pub const NOTHING: Self = Self { size: 0, slot: 0, align: 0, kind: Kind::Free };

    #[inline]
    fn layout(self) -> Layout {
        aligned(self.size as usize, 1 << self.align)
    }
}

/// Does what the actions say.
pub fn play<P: Peer>(heap: &mut Heap<P>, actions: &[Action]) {
    for &action in actions {
        let slot = usize::from(action.slot);
        match action.kind {
            Kind::Allocate => _ = heap.allocate(slot, action.layout()),
            Kind::Free => heap.free(slot),
            Kind::Resize => _ = heap.resize(slot, action.size as usize),
        }
    }
}

/// The most slots that a trace names.
pub const SLOTS: usize = 1 << 13;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Allocates (3 of 7), frees (3 of 7), reallocates to a new size (1 of 7) at random; skewed sizes to 1 KiB, one of sixteen
    /// aligned to 16..64. Between 50 and 70 % of the arena are live.
    Random,
    /// Allocates and frees at random; 8..2048 B, evenly over the powers of two. Between 50 and 70 % of the arena are live.
    Mixed,
    /// Allocates some blocks of 8..512 B, evenly over the powers of two, and frees them, newest first; at most half the arena.
    Lifo,
    /// Some vectors that start with 32 B, grow to twice their size again and again, and are dropped at up to 1/8 of the arena.
    Vectors,
}

/// The part of the arena below which the traces that keep a level only allocate, and that above which they only free.
const LEVEL: [f64; 2] = [0.5, 0.7];

/// Vectors that grow at the same time.
const VECTORS: usize = 5;

impl Shape {
    /// Writes a trace for an arena of `len` bytes; the part of `actions` that it takes, all but one at most.
    pub fn write(self, len: usize, seed: u64, actions: &mut [Action]) -> &[Action] {
        let mut writer = Writer { actions, done: 0, len, live: Live::new(), random: Rng::with_seed(seed) };
        match self {
            Self::Random => writer.at_a_level(Sizes::Skewed(1024), 6),
            Self::Mixed => writer.at_a_level(Sizes::Spread(3, 11), 1),
            Self::Lifo => writer.lifo(),
            Self::Vectors => writer.vectors(),
        }
        writer.free_all();
        &writer.actions[..writer.done]
    }
}

/// Writes actions, supposing that each request is served.
struct Writer<'a> {
    actions: &'a mut [Action],
    done: usize,
    len: usize,
    live: Live,
    random: Rng,
}

impl Writer<'_> {
    /// Whether there is room for one more action and, after it, for freeing what is live, even if it allocates.
    fn has_room(&self) -> bool {
        self.actions.len() - self.done >= self.live.count + 2
    }

    /// Keeps to the level; between its bounds one of the dice's `sides + 1` sides, if it is greater than 1, reallocates.
    fn at_a_level(&mut self, sizes: Sizes, sides: u32) {
        let [low, high] = LEVEL.map(|part| (part * self.len as f64) as usize);
        while self.has_room() {
            let dice = self.random.u32(0..=sides);
            match self.live.bytes {
                bytes if bytes < low => self.allocate(sizes),
                bytes if bytes > high => self.free_any(),
                _ if dice == 6 => self.resize_any(sizes),
                _ if dice.is_multiple_of(2) => self.allocate(sizes),
                _ => self.free_any(),
            }
        }
    }

    fn lifo(&mut self) {
        while self.has_room() {
            let most = self.random.usize(self.len / 16..self.len / 2);
            while self.has_room() && self.live.bytes < most - 512 {
                self.allocate(Sizes::Spread(3, 9));
            }
            while self.live.count > 0 {
                self.free(self.live.count - 1);
            }
        }
    }

    fn vectors(&mut self) {
        let mut ends = [0; VECTORS];
        while self.has_room() {
            let vector = self.random.usize(..VECTORS);
            match self.live.sizes[vector] as usize {
                0 => {
                    ends[vector] = Sizes::Spread(5, self.len.ilog2() - 2).draw(&mut self.random);
                    self.put(vector, aligned(32, 8));
                }
                size if 2 * size <= ends[vector] => self.resize(vector, 2 * size),
                _ => self.take(vector),
            }
        }
        for vector in 0..VECTORS {
            if self.live.sizes[vector] > 0 {
                self.take(vector);
            }
        }
    }

    fn allocate(&mut self, sizes: Sizes) {
        let size = sizes.draw(&mut self.random);
        let layout = match self.random.u32(..16) {
            0 if matches!(sizes, Sizes::Skewed(_)) => aligned(size, 16 << self.random.u32(..3)),
            _ => natural(size),
        };
        let slot = self.live.next();
        self.put(slot, layout);
    }

    fn free_any(&mut self) {
        let index = self.random.usize(..self.live.count);
        self.free(index);
    }

    fn resize_any(&mut self, sizes: Sizes) {
        let size = sizes.draw(&mut self.random);
        let index = self.random.usize(..self.live.count);
        self.resize(self.live.order[index].into(), size);
    }

    /// In a random order.
    fn free_all(&mut self) {
        while self.live.count > 0 {
            self.free_any();
        }
    }

    fn free(&mut self, index: usize) {
        let slot = self.live.last(index);
        self.take(slot);
    }

    fn put(&mut self, slot: usize, layout: Layout) {
        self.live.set(slot, layout.size());
        self.push(Kind::Allocate, slot, layout.size(), layout.align());
    }

    fn resize(&mut self, slot: usize, size: usize) {
        self.live.set(slot, size);
        self.push(Kind::Resize, slot, size, 1);
    }

    fn take(&mut self, slot: usize) {
        self.live.set(slot, 0);
        self.push(Kind::Free, slot, 0, 1);
    }

    fn push(&mut self, kind: Kind, slot: usize, size: usize, align: usize) {
        self.actions[self.done] = Action { size: size as u32, slot: slot as u16, align: align.ilog2() as u8, kind };
        self.done += 1;
    }
}

/// Which slots are live, and the sizes of what is in them.
struct Live {
    /// All slots, the live ones first. Not kept by those who choose slots themselves.
    order: [u16; SLOTS],
    count: usize,
    sizes: [u32; SLOTS],
    bytes: usize,
}

impl Live {
    fn new() -> Self {
        Self { order: core::array::from_fn(|slot| slot as u16), count: 0, sizes: [0; SLOTS], bytes: 0 }
    }

    /// A slot that is not live.
    fn next(&self) -> usize {
        self.order[self.count].into()
    }

    /// The live slot at `index` of the order, which becomes the last one.
    fn last(&mut self, index: usize) -> usize {
        self.order.swap(index, self.count - 1);
        self.order[self.count - 1].into()
    }

    /// Notes the size of what is in the slot; 0: nothing.
    fn set(&mut self, slot: usize, size: usize) {
        let old = core::mem::replace(&mut self.sizes[slot], size as u32) as usize;
        self.bytes = self.bytes + size - old;
        self.count = self.count + usize::from(size > 0) - usize::from(old > 0);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;

    const SHAPES: [Shape; 4] = [Shape::Random, Shape::Mixed, Shape::Lifo, Shape::Vectors];

    /// The most bytes that are live at once; panics unless every slot is empty before an allocation, full before whatever else,
    /// and empty at the end.
    fn peak(actions: &[Action]) -> u32 {
        let mut sizes = [0; SLOTS];
        let mut peak = 0;
        for action in actions {
            let size = &mut sizes[usize::from(action.slot)];
            assert_eq!(action.kind == Kind::Allocate, *size == 0, "{action:?}");
            assert_eq!(action.kind == Kind::Free, action.size == 0, "{action:?}");
            *size = action.size;
            peak = peak.max(sizes.iter().sum());
        }
        assert_eq!(sizes.iter().sum::<u32>(), 0);
        peak
    }

    #[test]
    fn a_trace_begins_and_ends_with_nothing_live() {
        for shape in SHAPES {
            let mut actions = vec![Action::NOTHING; 5_000];
            let trace = shape.write(1 << 16, 1, &mut actions);
            assert!(trace.len() >= 4_999, "{shape:?}");
            let part = f64::from(peak(trace)) / 65_536.0;
            let bounds = if matches!(shape, Shape::Random | Shape::Mixed) { 0.69..0.74 } else { 0.2..0.65 };
            assert!(bounds.contains(&part), "{shape:?} {part}");
        }
    }

    #[test]
    fn a_trace_is_a_function_of_its_seed() {
        for shape in SHAPES {
            let [mut a, mut b, mut c] = [(); 3].map(|()| vec![Action::NOTHING; 2_000]);
            assert_eq!(shape.write(1 << 16, 1, &mut a), shape.write(1 << 16, 1, &mut b));
            assert_ne!(shape.write(1 << 16, 1, &mut a), shape.write(1 << 16, 2, &mut c));
        }
    }

    #[test]
    fn slots_suffice_for_the_largest_arena_in_use() {
        for shape in SHAPES {
            let mut actions = vec![Action::NOTHING; 40_000];
            let trace = shape.write(1 << 20, 1, &mut actions);
            assert!(trace.iter().all(|action| usize::from(action.slot) < SLOTS));
        }
    }
}
