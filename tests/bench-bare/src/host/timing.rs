//! Nanoseconds an operation: rounds over all allocators, interleaved.
//!
//! Called by `main`; calls [`once`] through the columns.
#![forbid(unsafe_code)]

use crate::arena::{Ground, Size};
use crate::args::Args;
use crate::columns::{Column, Runs};
use freestone_bench_bare::peer::Peer;
use freestone_bench_bare::trace::{Action, Shape, play};
use std::fs;
use std::time::{Duration, Instant};

/// The arenas in which traces are timed, with the number of actions in a trace.
const ARENAS: [(Size, usize); 2] = [(Size::Small, 20_000), (Size::Middle, 50_000)];

const SEED: u64 = 0x0f7e_e570;

/// What one run measured.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Nanoseconds an operation.
    pub cost: f64,
    /// Whether the thread was ready to run and had no core for more than 2 % of the time.
    pub waited: bool,
    /// The sum of what was read in the lap to warm up.
    pub sum: u64,
    /// The part of the operations that were refused in that lap.
    pub refused: f64,
}

/// What all rounds of one trace in one arena measured.
pub struct Measured {
    /// The trace.
    pub shape: Shape,
    /// The arena.
    pub size: Size,
    /// The allocators, each with one sample a round.
    pub rows: Vec<(&'static Column, Vec<Sample>)>,
    trace: Vec<Action>,
}

/// All rounds of all traces.
pub fn run(args: &Args) -> Vec<Measured> {
    let pairs = args.shapes().flat_map(|shape| ARENAS.map(|(size, count)| (shape, size, count)));
    let mut results: Vec<_> = pairs.map(|(shape, size, count)| Measured::new(args, shape, size, count)).collect();
    let mut ground = Ground::new();
    for round in 0..args.rounds {
        eprintln!("time: round {} of {}", round + 1, args.rounds);
        results.iter_mut().for_each(|result| result.add_round(&mut ground, round, args.time));
    }
    results
}

impl Measured {
    fn new(args: &Args, shape: Shape, size: Size, count: usize) -> Self {
        let mut actions = vec![Action::NOTHING; count];
        let trace = shape.write(size.len(), SEED, &mut actions).to_vec();
        let rows = args.columns.iter().filter(|column| column.runs(size).is_some()).map(|&column| (column, Vec::new()));
        Self { shape, size, rows: rows.collect(), trace }
    }

    fn add_round(&mut self, ground: &mut Ground, round: usize, time: Duration) {
        let count = self.rows.len();
        for turn in 0..count {
            let (column, samples) = &mut self.rows[(round + turn) % count];
            if let Some(Runs { time: once, .. }) = column.runs(self.size) {
                samples.push(once(ground, self.size, &self.trace, time));
            }
        }
    }
}

/// One run: a fresh heap, one lap to warm up, then laps until the time is over.
pub fn once<P: Peer>(ground: &mut Ground, size: Size, trace: &[Action], time: Duration) -> Sample {
    ground.on_a_heap::<P, _>(size, |heap| {
        play(heap, trace);
        let (sum, refused) = (heap.sum(), heap.refused() as f64 / trace.len() as f64);
        let (waited_before, begin) = (waited(), Instant::now());
        let mut laps = 0_u32;
        while begin.elapsed() < time || laps == 0 {
            play(heap, trace);
            laps += 1;
        }
        let elapsed = begin.elapsed();
        std::hint::black_box(heap.sum());
        let cost = elapsed.as_nanos() as f64 / f64::from(laps) / trace.len() as f64;
        Sample { cost, waited: waited() - waited_before > elapsed / 50, sum, refused }
    })
}

/// How long this thread has waited for a core; nothing where the kernel does not say.
fn waited() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0))
}
