//! What the articles that started this project measured, each repeated until it has run long enough.
//!
//! Called by [`super::Workload`]; calls [`super::crew`] for those on several threads and [`super::latency`] for the one that
//! times single operations.
#![forbid(unsafe_code)]

use super::crew::{Relay, crew};
use super::kit::{LAP, SEED, SIZES, Slots, clear, empty, fill, replace, sum};
use super::latency;
use crate::heap::{Block, Tested, layout, plain_layout};
use crate::watch::{Length, Sample, Watch};
use fastrand::Rng;
use nix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout};
use std::array::from_fn;
use std::time::Duration;

/// One of them.
pub enum Article {
    /// So many pairs of 64 B on each thread.
    Pairs { threads: usize, pairs: u64 },
    /// The first half of a batch.
    BatchAlloc,
    /// The second half of a batch.
    BatchFree,
    /// Mixed sizes, all of them live.
    Mixed,
    /// Blocks that grow and shrink.
    ReallocChain,
    /// More threads than cores.
    Threads,
    /// Many small blocks, all of them live.
    Bulk,
    /// Random sizes, the oldest freed.
    MixedRandom,
    /// One thread allocates, another frees.
    Producer,
    /// Single operations.
    Interleaved,
}

impl Article {
    pub fn run<A: GlobalAlloc + Sync>(&self, heap: Tested<A>, length: Length) -> Sample {
        match *self {
            Self::Pairs { threads, pairs } => pairs_on(heap, threads, pairs, length),
            Self::BatchAlloc => batch(heap, Half::Alloc, length),
            Self::BatchFree => batch(heap, Half::Free, length),
            Self::Mixed => in_turn(heap, &SIZES.map(layout), 100_000, length),
            Self::ReallocChain => realloc_chain(heap, length),
            Self::Threads => many_threads(heap, length),
            Self::Bulk => in_turn(heap, &[layout(64)], 200_000, length),
            Self::MixedRandom => mixed_random(heap, length),
            Self::Producer => producer(heap, length),
            Self::Interleaved => latency::interleaved(heap, length),
        }
    }
}

fn pairs_on<A: GlobalAlloc + Sync>(heap: Tested<A>, threads: usize, pairs: u64, length: Length) -> Sample {
    let layout = layout(64);
    crew(vec![(); threads], threads as u64 * pairs, length, |()| sum(0..pairs, |tag| heap.unmake(heap.make(layout, tag))))
}

/// Which half of a batch is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Alloc,
    Free,
}

/// Only the time and the CPU time are those of one half: memory and page faults are of both.
fn batch<A: GlobalAlloc>(heap: Tested<A>, half: Half, length: Length) -> Sample {
    const BLOCKS: usize = 10_000;
    let layout = layout(64);
    let mut slots = empty(BLOCKS);
    let mut lap = || {
        let begin = clocks();
        fill(heap, &mut slots, || layout);
        let middle = clocks();
        let sum = clear(heap, &mut slots);
        let [from, to] = if half == Half::Alloc { [begin, middle] } else { [middle, clocks()] };
        (sum, from_fn::<_, 2, _>(|clock| to[clock] - from[clock]))
    };
    let watch = Watch::new(length);
    let (checksum, _) = lap();
    let mut spent = [Duration::ZERO; 2];
    let running = watch.start();
    let mut laps = 0;
    while running.goes_on() || laps == 0 {
        let (_, times) = lap();
        spent = from_fn(|clock| spent[clock] + times[clock]);
        laps += 1;
    }
    let [nanoseconds, cpu_ns] = spent.map(|time| time.as_nanos() as u64);
    Sample { nanoseconds, cpu_ns, ..running.stop(laps * BLOCKS as u64, checksum) }
}

/// The clock on the wall and that of the process.
fn clocks() -> [Duration; 2] {
    [ClockId::CLOCK_MONOTONIC, ClockId::CLOCK_PROCESS_CPUTIME_ID]
        .map(|clock| clock_gettime(clock).expect("the kernel has both clocks").into())
}

/// So many blocks of these layouts in turn, then their end, oldest first.
fn in_turn<A: GlobalAlloc>(heap: Tested<A>, layouts: &[Layout], blocks: usize, length: Length) -> Sample {
    let mut slots = empty(blocks);
    Watch::new(length).laps(blocks as u64, || {
        let mut turn = layouts.iter().cycle();
        fill(heap, &mut slots, || *turn.next().expect("a cycle has no end"));
        clear(heap, &mut slots)
    })
}

/// The sizes of a chain: from 16 B by half, as long as they stay below 5,000 B, and back.
const CHAIN: [usize; 28] = chain();

const fn chain() -> [usize; 28] {
    let (mut sizes, mut at) = ([16; 28], 1);
    while at < sizes.len() {
        sizes[at] = if at <= 14 { sizes[at - 1] + sizes[at - 1] / 2 } else { sizes[sizes.len() - at] };
        at += 1;
    }
    sizes
}

/// Sixteen blocks, so that each has others behind it.
fn realloc_chain<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    let mut slots: [Option<Block>; 16] = from_fn(|_| None);
    let watch = Watch::new(length);
    fill(heap, &mut slots, || layout(CHAIN[0]));
    let mut steps = (0..CHAIN.len()).cycle().skip(1).flat_map(|step| (0..16).map(move |slot| (step, slot)));
    watch.laps(LAP, || {
        sum((0..LAP).zip(&mut steps), |(tag, (step, slot))| {
            let old = slots[slot].take().expect("every slot has its block");
            let (new, sum) = heap.remake(old, CHAIN[step], tag);
            slots[slot] = Some(new);
            sum
        })
    })
}

fn many_threads<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    const THREADS: usize = 8;
    const BLOCKS: usize = 5_000;
    const TIMES: usize = 20;
    let layout = layout(64);
    let lists: Vec<Slots> = (0..THREADS).map(|_| empty(BLOCKS)).collect();
    crew(lists, (THREADS * BLOCKS * TIMES) as u64, length, |slots| {
        sum(0..TIMES, |_| {
            fill(heap, slots, || layout);
            clear(heap, slots)
        })
    })
}

fn mixed_random<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    let mut random = Rng::with_seed(SEED);
    let mut slots = empty(1_000);
    Watch::new(length).laps(LAP, || {
        sum((0..LAP).zip((0..slots.len()).cycle()), |(tag, oldest)| {
            replace(heap, &mut slots[oldest], plain_layout(random.usize(8..=2048)), tag)
        })
    })
}

fn producer<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    let layout = layout(128);
    let relay = Relay { lists: 8, blocks: 100, lap: 500 };
    relay.run(length, |list| fill(heap, list, || layout), |list| clear(heap, list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_up_by_half_and_back() {
        assert_eq!(CHAIN[..5], [16, 24, 36, 54, 81]);
        assert_eq!(CHAIN[14], CHAIN.into_iter().max().unwrap());
        assert!((4_500..5_000).contains(&CHAIN[14]), "{}", CHAIN[14]);
        assert!((1..14).all(|step| CHAIN[14 - step] == CHAIN[14 + step]));
    }
}
