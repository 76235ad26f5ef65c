//! Single operations, each timed by itself.
//!
//! Called by [`super::articles`]; calls [`crate::heap`]. The time-stamp counter is read before and after each operation,
//! behind fences; what reading it twice takes is subtracted. A tick is converted by the clock of the whole run.

use super::kit::{SEED, empty, sum};
use crate::heap::{Block, Tested, plain_layout};
use crate::watch::{Length, Sample, Watch};
use fastrand::Rng;
use std::alloc::GlobalAlloc;
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::time::Instant;

/// Steps in a script, half of them frees.
const STEPS: usize = 100;
/// Scripts in a lap.
const SCRIPTS: usize = 1_000;

/// Scripts of steps in random order, sizes 16 B to 1 KiB. A script begins and ends with no block.
pub fn interleaved<A: GlobalAlloc>(heap: Tested<A>, length: Length) -> Sample {
    let mut random = Rng::with_seed(SEED);
    let steps: Vec<_> = (0..SCRIPTS).flat_map(|_| script(&mut random)).collect();
    let mut slots = empty(STEPS / 2);
    let mut times = Times::new();
    let (begin, first) = (Instant::now(), ticks());
    let sample = Watch::new(length).laps(steps.len() as u64, || {
        sum(&steps, |step| {
            let before = ticks();
            let sum = step.run(heap, &mut slots);
            times.count(ticks() - before);
            sum
        })
    });
    let tick = begin.elapsed().as_nanos() as f64 / (ticks() - first) as f64;
    let latency = [50, 99].map(|percent| (times.percentile(percent) as f64 * tick).round() as u64);
    Sample { latency: Some(latency), ..sample }
}

/// One step of a script.
enum Step {
    Make { slot: u8, size: u16 },
    Unmake { slot: u8 },
}

impl Step {
    #[inline(always)]
    fn run<A: GlobalAlloc>(&self, heap: Tested<A>, slots: &mut [Option<Block>]) -> u64 {
        match *self {
            Self::Make { slot, size } => {
                slots[usize::from(slot)] = Some(heap.make(plain_layout(size.into()), size.into()));
                0
            }
            Self::Unmake { slot } => slots[usize::from(slot)].take().map_or(0, |block| heap.unmake(block)),
        }
    }
}

/// A walk that ends where it began: at each step a block more or a random one less, either as likely while both are
/// possible.
fn script(random: &mut Rng) -> Vec<Step> {
    let (mut idle, mut live): (Vec<u8>, Vec<u8>) = ((0..STEPS as u8 / 2).collect(), Vec::new());
    let step = |left: usize| {
        let ends = live.len() == left || !live.is_empty() && random.bool();
        let (from, to) = if ends { (&mut live, &mut idle) } else { (&mut idle, &mut live) };
        let slot = from.swap_remove(random.usize(..from.len()));
        to.push(slot);
        if ends { Step::Unmake { slot } } else { Step::Make { slot, size: random.u16(16..=1024) } }
    };
    (1..=STEPS).rev().map(step).collect()
}

/// How many operations took so many ticks, beyond what reading the counter takes. The last entry has all that took longer.
struct Times {
    counts: Vec<u64>,
    reading: u64,
}

impl Times {
    fn new() -> Self {
        let mut readings = Self { counts: vec![1; 1 << 14], reading: 0 };
        readings.counts.fill(0);
        for _ in 0..1_000 {
            let before = ticks();
            readings.count(ticks() - before);
        }
        let reading = readings.percentile(50);
        readings.counts.fill(0);
        Self { reading, ..readings }
    }

    #[inline(always)]
    fn count(&mut self, ticks: u64) {
        let last = self.counts.len() - 1;
        self.counts[(ticks.saturating_sub(self.reading) as usize).min(last)] += 1;
    }

    /// The ticks that so many of a hundred operations did not exceed.
    fn percentile(&self, percent: u64) -> u64 {
        let share = (self.counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= share
        };
        self.counts.iter().position(reached).unwrap_or(0) as u64
    }
}

/// The time-stamp counter, once what stands before it is done and before what stands behind it begins.
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter and the fence, and Linux lets programs read it.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_leaves_no_block() {
        let mut random = Rng::with_seed(SEED);
        for _ in 0..100 {
            let mut live = [false; STEPS / 2];
            let steps = script(&mut random);
            assert_eq!(steps.len(), STEPS);
            for step in steps {
                let (slot, makes) = match step {
                    Step::Make { slot, .. } => (slot, true),
                    Step::Unmake { slot } => (slot, false),
                };
                assert_ne!(std::mem::replace(&mut live[usize::from(slot)], makes), makes);
            }
            assert_eq!(live, [false; STEPS / 2]);
        }
    }

    #[test]
    fn percentiles_are_of_the_counts() {
        let mut times = Times { counts: vec![0; 8], reading: 1 };
        [2, 2, 3, 100].into_iter().for_each(|ticks| times.count(ticks));
        assert_eq!([50, 75, 99].map(|percent| times.percentile(percent)), [1, 2, 7]);
    }

    #[test]
    fn the_run_reports_its_latencies() {
        let sample = interleaved(Tested(&std::alloc::System), Length::Laps(1));
        let [median, rare] = sample.latency.expect("it is the one that reports them");
        assert!(median > 0 && median <= rare, "{median} {rare}");
    }
}
