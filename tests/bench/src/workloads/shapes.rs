//! Well-known shapes on one thread: long lives, growth, large blocks, fragmentation.
//!
//! Called by [`super::Workload`]; calls [`crate::heap`].
#![forbid(unsafe_code)]

use super::kit::{LAP, SEED, SIZES, add, clear, empty, fill, heavy_tailed, replace, shuffled, sum};
use crate::heap::{Block, Tested, layout, plain_layout};
use crate::watch::{Length, Sample, Watch};
use fastrand::Rng;
use std::alloc::{GlobalAlloc, Layout};
use std::thread;
use std::time::Duration;

/// One of them.
pub enum Shape {
    /// Random sizes that live long.
    Arrays,
    /// Vectors that grow by doubling.
    VectorsDoubled,
    /// Vectors that grow by an element.
    VectorsPushed,
    /// Zeroed tables.
    Calloc,
    /// Large blocks, touched at each step, so many in a lap.
    Large { step: usize, lap: u64 },
    /// Many blocks, most of them freed, then another size.
    Fragmentation,
    /// A peak, then nothing.
    Idle,
}

impl Shape {
    pub fn run<A: GlobalAlloc>(&self, heap: Tested<A>, length: Length) -> Sample {
        match *self {
            Self::Arrays => arrays(heap, length),
            Self::VectorsDoubled => vectors_doubled(heap, length),
            Self::VectorsPushed => vectors_pushed(heap, length),
            Self::Calloc => calloc(heap, length),
            Self::Large { step, lap } => large(heap, step, lap, length),
            Self::Fragmentation => fragmentation(heap, length),
            Self::Idle => idle(heap, length),
        }
    }
}

/// Arrays of 32 B to 256 KiB (14 MB live). Nine replacements of ten go to the first 1,000, so that the others live long.
fn arrays<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const YOUNG: usize = 1_000;
    let mut random = Rng::with_seed(SEED);
    let mut slots = empty(50_000);
    let watch = Watch::new(length);
    fill(heap, &mut slots, || array(&mut random));
    watch.laps(LAP, || {
        sum(0..LAP, |tag| {
            let among = if random.u32(..10) == 0 { slots.len() } else { YOUNG };
            let slot = random.usize(..among);
            replace(heap, &mut slots[slot], array(&mut random), tag)
        })
    })
}

#[inline(always)]
fn array(random: &mut Rng) -> Layout {
    plain_layout(heavy_tailed(random, 32, 256 << 10))
}

/// Each vector doubles from 32 B until it is as long as chance will have it, 64 B to 32 KiB; all of them at once, a doubling
/// at a time. Then all are freed.
fn vectors_doubled<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    let mut random = Rng::with_seed(SEED);
    let doublings: Vec<u32> = (0..1_000).map(|_| random.u32(1..=10)).collect();
    let operations = doublings.iter().sum::<u32>().into();
    let mut slots = empty(doublings.len());
    Watch::new(length).laps(operations, || {
        fill(heap, &mut slots, || layout(32));
        let grown = sum(1..=10, |doubling| {
            let growing = slots.iter_mut().zip(&doublings).filter(|(_, most)| doubling <= **most);
            sum(growing, |(slot, _)| remake(heap, slot, 32 << doubling))
        });
        add(grown, clear(heap, &mut slots))
    })
}

/// Each vector grows from 16 B to 4 KiB, 16 B at a time; all of them at once. Then all are freed.
fn vectors_pushed<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const PUSHES: usize = 255;
    let mut slots = empty(64);
    Watch::new(length).laps((slots.len() * PUSHES) as u64, || {
        fill(heap, &mut slots, || layout(16));
        let grown = sum(1..=PUSHES, |pushes| sum(&mut slots, |slot| remake(heap, slot, 16 + 16 * pushes)));
        add(grown, clear(heap, &mut slots))
    })
}

#[inline(always)]
fn remake<A: GlobalAlloc>(heap: Tested<A>, slot: &mut Option<Block>, size: usize) -> u64 {
    let old = slot.take().expect("every slot has its block");
    let (new, sum) = heap.remake(old, size, size as u64);
    *slot = Some(new);
    sum
}

/// Powers of two of 64 KiB to 8 MiB, as likely each (8.4 MB live).
fn calloc<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const WORDS: usize = 16;
    const OPERATIONS: u64 = 200;
    let mut random = Rng::with_seed(SEED);
    let mut slots = empty(4);
    Watch::new(length).laps(OPERATIONS, || {
        sum(0..OPERATIONS, |tag| {
            let slot = &mut slots[random.usize(..4)];
            let old = slot.take().map_or(0, |block| heap.unmake(block));
            let size = (64 << 10) << random.u32(..8);
            *slot = Some(heap.make_zeroed(layout(size), size / WORDS, tag));
            old
        })
    })
}

/// 50 to 500 KB or 0.5 to 5 MB, either as likely (24 MB live).
fn large<A: GlobalAlloc>(heap: Tested<A>, step: usize, operations: u64, length: Length) -> Sample {
    let mut random = Rng::with_seed(SEED);
    let mut slots = empty(16);
    Watch::new(length).laps(operations, || {
        sum(0..operations, |tag| {
            let slot = random.usize(..slots.len());
            let old = slots[slot].take().map_or(0, |block| heap.unmake(block));
            let size = random.usize(50_000..500_000) * [1, 10][random.usize(..2)];
            let mut block = heap.make(layout(size), tag);
            block.touch(step, tag);
            slots[slot] = Some(block);
            old
        })
    })
}

/// The blocks that remain after nine of ten are freed lie between holes that are too short for what comes then.
fn fragmentation<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const BLOCKS: usize = 100_000;
    const OTHERS: usize = 10_000;
    let layouts = SIZES.map(layout);
    let mut random = Rng::with_seed(SEED);
    let freed = &shuffled(&mut random, BLOCKS)[BLOCKS / 10..];
    let (mut slots, mut others) = (empty(BLOCKS), empty(OTHERS));
    Watch::new(length).laps((BLOCKS + OTHERS) as u64, || {
        fill(heap, &mut slots, || layouts[random.usize(..layouts.len())]);
        let most = sum(freed, |slot| slots[*slot].take().map_or(0, |block| heap.unmake(block)));
        fill(heap, &mut others, || layout(3_000));
        add(add(most, clear(heap, &mut slots)), clear(heap, &mut others))
    })
}

/// The blocks that remain while it sleeps are one in a thousand, evenly spread.
fn idle<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const BLOCKS: usize = 100_000;
    let layouts = SIZES.map(layout);
    let mut random = Rng::with_seed(SEED);
    let mut slots = empty(BLOCKS);
    Watch::new(length).laps(BLOCKS as u64, || {
        fill(heap, &mut slots, || layouts[random.usize(..layouts.len())]);
        let most = sum(slots.chunks_mut(1_000), |thousand| clear(heap, &mut thousand[1..]));
        thread::sleep(Duration::from_millis(200));
        add(most, clear(heap, &mut slots))
    })
}
