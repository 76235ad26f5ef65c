//! Pairs and windows: what the allocators have been compared by from the first, and what the floor is measured with.
//!
//! Called by [`super::Workload`]. Every operation allocates one block and frees one.
#![forbid(unsafe_code)]

use super::kit::{LAP, SEED, SIZES, empty, sum};
use crate::heap::{Block, Tested, layout, plain_layout};
use crate::watch::{Length, Sample, Watch};
use crossbeam_utils::Backoff;
use std::alloc::{GlobalAlloc, Layout};
use std::thread;

/// One of them.
pub enum Basic {
    /// A pair of that size.
    Pair(usize),
    /// A pair of 64 B with the allocator inlined.
    InlinedPair64,
    /// A window of so many blocks.
    Window(usize),
    /// A window of so many blocks with the allocator inlined.
    InlinedWindow(usize),
    /// So many blocks, then their end.
    Batch(usize),
    /// Two threads and a ring of so many blocks.
    Handoff(usize),
}

impl Basic {
    pub fn run<A: GlobalAlloc + Sync>(&self, heap: Tested<A>, length: Length) -> Sample {
        match *self {
            Self::Pair(size) => pair(heap, layout(size), length),
            Self::InlinedPair64 => pair_inlined(heap, length),
            Self::Window(slots) => window(heap, slots, length),
            Self::InlinedWindow(slots) => window_inlined(heap, slots, length),
            Self::Batch(blocks) => batch(heap, blocks, length),
            Self::Handoff(ring) => handoff(heap, ring, length),
        }
    }
}

fn pair<A: GlobalAlloc>(heap: Tested<A>, layout: Layout, length: Length) -> Sample {
    Watch::new(length).laps(LAP, || sum(0..LAP, |tag| heap.unmake(heap.make(layout, tag))))
}

fn pair_inlined<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    const LAYOUT: Layout = plain_layout(64);
    Watch::new(length).laps(LAP, || sum(0..LAP, |tag| heap.unmake_inlined(heap.make_inlined(LAYOUT, tag))))
}

fn window<A: GlobalAlloc>(heap: Tested<A>, slots: usize, length: Length) -> Sample {
    replaced(slots, length, |layout, tag| heap.make(layout, tag), |block| heap.unmake(block))
}

fn window_inlined<A: GlobalAlloc>(heap: Tested<A>, slots: usize, length: Length) -> Sample {
    replaced(slots, length, |layout, tag| heap.make_inlined(layout, tag), |block| heap.unmake_inlined(block))
}

#[inline(always)]
fn replaced(slots: usize, length: Length, make: impl Fn(Layout, u64) -> Block, unmake: impl Fn(Block) -> u64) -> Sample {
    let layouts = SIZES.map(layout);
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut slots = empty(slots);
    let watch = Watch::new(length);
    for slot in &mut slots {
        *slot = Some(make(layouts[random.usize(..layouts.len())], 0));
    }
    watch.laps(LAP, || {
        sum(0..LAP, |tag| {
            let slot = random.usize(..slots.len());
            let old = slots[slot].take().map_or(0, &unmake);
            slots[slot] = Some(make(layouts[random.usize(..layouts.len())], tag));
            old
        })
    })
}

fn batch<A: GlobalAlloc>(heap: Tested<A>, blocks: usize, length: Length) -> Sample {
    let layout = layout(64);
    let mut slots = empty(blocks);
    Watch::new(length).laps(blocks as u64, || {
        for (tag, slot) in (0..).zip(&mut slots) {
            *slot = Some(heap.make(layout, tag));
        }
        sum(slots.iter_mut().filter_map(Option::take), |block| heap.unmake(block))
    })
}

/// One thread allocates, another frees. The clock stops when the last block has been freed.
fn handoff<A: GlobalAlloc + Sync>(heap: Tested<A>, ring: usize, length: Length) -> Sample {
    let layout = layout(128);
    let (mut sender, receiver) = rtrb::RingBuffer::new(ring);
    thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(heap, receiver));
        let mut produce = || (0..LAP).for_each(|tag| send(&mut sender, heap.make(layout, tag)));
        let watch = Watch::new(length);
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
fn consume<A: GlobalAlloc>(heap: Tested<A>, mut receiver: rtrb::Consumer<Block>) -> u64 {
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
