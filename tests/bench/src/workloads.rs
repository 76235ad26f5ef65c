//! The workloads: what is done with an allocator while [`crate::watch`] looks on.
//!
//! Called by [`crate::peers`], once compiled for each allocator. Every operation allocates one block and frees one.
#![forbid(unsafe_code)]

use crate::heap::{Block, Tested, layout, plain_layout};
use crate::watch::{Sample, Watch};
use crossbeam_utils::Backoff;
use std::alloc::{GlobalAlloc, Layout};
use std::iter::repeat_with;
use std::thread;
use std::time::Duration;

/// One workload, by its name.
pub struct Workload {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// What an operation is.
    pub what: &'static str,
    shape: Shape,
}

enum Shape {
    Pair(usize),
    InlinedPair64,
    Window(usize),
    Batch(usize),
    Handoff(usize),
}

/// All of them, in the order of the tables.
pub const WORKLOADS: [Workload; 7] = [
    Workload { name: "pair-16", what: "allocate 16 B, free it", shape: Shape::Pair(16) },
    Workload { name: "pair-64", what: "allocate 64 B, free it", shape: Shape::Pair(64) },
    Workload { name: "pair-64-inlined", what: "the same as a build with fat LTO has it", shape: Shape::InlinedPair64 },
    Workload { name: "window-64", what: "replace a random one of 64 blocks, 16 sizes", shape: Shape::Window(64) },
    Workload {
        name: "window-100k",
        what: "replace a random one of 100,000 blocks, 16 sizes (43 MiB live)",
        shape: Shape::Window(100_000),
    },
    Workload { name: "batch", what: "allocate 10,000 of 64 B, then free them, oldest first", shape: Shape::Batch(10_000) },
    Workload {
        name: "handoff",
        what: "one thread allocates 128 B, another frees it (ring of 1,024)",
        shape: Shape::Handoff(1024),
    },
];

/// The sizes of a window, in bytes; their mean is 450.
const SIZES: [usize; 16] = [16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];

/// Operations in a lap: a lap takes about a millisecond, so that looking at the clock costs nothing.
const LAP: u64 = 100_000;

const SEED: u64 = 0x0F7E_E570;

impl Workload {
    /// The workload of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        WORKLOADS.iter().find(|it| it.name == name).ok_or_else(|| format!("no workload is named {name:?}"))
    }

    /// Runs it with `allocator` for at least `time`.
    pub fn run<A: GlobalAlloc + Sync>(&self, allocator: &A, time: Duration) -> Sample {
        let heap = Tested(allocator);
        match self.shape {
            Shape::Pair(size) => pair(&heap, layout(size), time),
            Shape::InlinedPair64 => pair_inlined(&heap, time),
            Shape::Window(slots) => window(&heap, slots, time),
            Shape::Batch(blocks) => batch(&heap, blocks, time),
            Shape::Handoff(ring) => handoff(&heap, ring, time),
        }
    }
}

fn pair<A: GlobalAlloc>(heap: &Tested<A>, layout: Layout, time: Duration) -> Sample {
    Watch::new(time).laps(LAP, || sum(0..LAP, |tag| heap.unmake(heap.make(layout, tag))))
}

fn pair_inlined<A: GlobalAlloc>(heap: &Tested<A>, time: Duration) -> Sample {
    const LAYOUT: Layout = plain_layout(64);
    Watch::new(time).laps(LAP, || sum(0..LAP, |tag| heap.make_and_unmake_inlined(LAYOUT, tag)))
}

fn window<A: GlobalAlloc>(heap: &Tested<A>, slots: usize, time: Duration) -> Sample {
    let layouts = SIZES.map(layout);
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut slots = empty(slots);
    let watch = Watch::new(time);
    for slot in &mut slots {
        *slot = Some(heap.make(layouts[random.usize(..layouts.len())], 0));
    }
    watch.laps(LAP, || {
        sum(0..LAP, |tag| {
            let slot = random.usize(..slots.len());
            let old = slots[slot].take().map_or(0, |block| heap.unmake(block));
            slots[slot] = Some(heap.make(layouts[random.usize(..layouts.len())], tag));
            old
        })
    })
}

fn batch<A: GlobalAlloc>(heap: &Tested<A>, blocks: usize, time: Duration) -> Sample {
    let layout = layout(64);
    let mut slots = empty(blocks);
    Watch::new(time).laps(blocks as u64, || {
        for (tag, slot) in (0..).zip(&mut slots) {
            *slot = Some(heap.make(layout, tag));
        }
        sum(slots.iter_mut().filter_map(Option::take), |block| heap.unmake(block))
    })
}

/// One thread allocates, another frees. The clock stops when the last block has been freed.
fn handoff<A: GlobalAlloc + Sync>(heap: &Tested<A>, ring: usize, time: Duration) -> Sample {
    let layout = layout(128);
    let (mut sender, receiver) = rtrb::RingBuffer::new(ring);
    thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(heap, receiver));
        let mut produce = || (0..LAP).for_each(|tag| send(&mut sender, heap.make(layout, tag)));
        let watch = Watch::new(time);
        produce();
        let running = watch.start();
        let mut laps = 0;
        while running.goes_on() || laps == 0 {
            produce();
            laps += 1;
        }
        drop(sender);
        let checksum = consumer.join().expect("the consumer does not panic");
        running.stop(laps * LAP, checksum)
    })
}

fn send(sender: &mut rtrb::Producer<Block>, mut block: Block) {
    let backoff = Backoff::new();
    while let Err(rtrb::PushError::Full(back)) = sender.push(block) {
        block = back;
        backoff.snooze();
    }
}

/// Frees whatever arrives until the sender is gone; the sum of the first lap.
fn consume<A: GlobalAlloc>(heap: &Tested<A>, mut receiver: rtrb::Consumer<Block>) -> u64 {
    let mut arrived = std::iter::from_fn(|| receive(&mut receiver));
    let checksum = sum(arrived.by_ref().take(LAP as usize), |block| heap.unmake(block));
    std::hint::black_box(sum(arrived, |block| heap.unmake(block)));
    checksum
}

fn receive(receiver: &mut rtrb::Consumer<Block>) -> Option<Block> {
    let backoff = Backoff::new();
    loop {
        // Asked before the ring is looked at: a sender that is gone sends nothing after the look.
        let last = receiver.is_abandoned();
        match receiver.pop() {
            Ok(block) => return Some(block),
            Err(_) if last => return None,
            Err(_) => backoff.snooze(),
        }
    }
}

/// Empty slots, every page of them touched.
fn empty(slots: usize) -> Vec<Option<Block>> {
    repeat_with(|| None).take(slots).collect()
}

#[inline(always)]
fn sum<T>(items: impl IntoIterator<Item = T>, mut f: impl FnMut(T) -> u64) -> u64 {
    items.into_iter().fold(0, |sum, item| sum.wrapping_mul(5).wrapping_add(f(item)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn a_workload_repeats_its_checksum() {
        for workload in &WORKLOADS {
            let [once, again] = [(); 2].map(|()| workload.run(&System, Duration::ZERO));
            assert_eq!(once.checksum, again.checksum, "{}", workload.name);
            assert!(once.operations > 0 && once.nanoseconds > 0);
        }
    }

    #[test]
    fn sizes_have_the_stated_mean() {
        assert_eq!(SIZES.iter().sum::<usize>() / SIZES.len(), 450);
    }
}
