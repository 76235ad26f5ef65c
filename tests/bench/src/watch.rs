//! What one run measures: time, resident size, and whether the machine was its own.
//!
//! Called by [`crate::workloads`] in the child process; [`crate::runner`] reads the [`Sample`] back from the child's output.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// What one run measured. Printed by the child and parsed by the parent, all of it in whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Operations done in the measured time.
    pub operations: u64,
    /// The measured time.
    pub nanoseconds: u64,
    /// How much of it the measuring thread was ready to run and had no core.
    pub waited: u64,
    /// How far the peak of the resident size stood above what was there before the first call, in KiB.
    pub grown_kib: u64,
    /// The sum over the warm-up lap.
    pub checksum: u64,
}

impl Sample {
    /// Nanoseconds an operation.
    pub fn cost(&self) -> f64 {
        self.nanoseconds as f64 / self.operations as f64
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, nanoseconds, waited, grown_kib, checksum } = self;
        write!(f, "{operations} {nanoseconds} {waited} {grown_kib} {checksum}")
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[operations, nanoseconds, waited, grown_kib, checksum]) if operations > 0 => {
                Ok(Self { operations, nanoseconds, waited, grown_kib, checksum })
            }
            _ => Err(format!("a run printed {text:?} in place of five numbers")),
        }
    }
}

/// Watches one run: made before the first call of the allocator, started after the warm-up.
pub struct Watch {
    shortest: Duration,
    resident_before: u64,
}

impl Watch {
    /// A watch for a run of at least `shortest`. The lists of the harness must have been made and touched already.
    pub fn new(shortest: Duration) -> Self {
        Self { shortest, resident_before: status_kib("VmRSS:") }
    }

    /// One lap to warm up, then laps until the time is over. A lap does `operations` and returns a sum of what it read.
    pub fn laps(self, operations: u64, mut lap: impl FnMut() -> u64) -> Sample {
        let checksum = lap();
        let running = self.start();
        let mut laps = 0;
        while running.goes_on() || laps == 0 {
            black_box(lap());
            laps += 1;
        }
        running.stop(laps * operations, checksum)
    }

    /// Starts the clock.
    pub fn start(self) -> Running {
        Running { waited_before: waited(), begin: Instant::now(), watch: self }
    }
}

/// A [`Watch`] whose clock runs.
pub struct Running {
    watch: Watch,
    waited_before: u64,
    begin: Instant,
}

impl Running {
    /// Whether the shortest time is still not over.
    pub fn goes_on(&self) -> bool {
        self.begin.elapsed() < self.watch.shortest
    }

    /// Stops the clock after so many operations.
    pub fn stop(self, operations: u64, checksum: u64) -> Sample {
        let nanoseconds = self.begin.elapsed().as_nanos() as u64;
        let waited = waited() - self.waited_before;
        let grown_kib = status_kib("VmHWM:").saturating_sub(self.watch.resident_before);
        Sample { operations, nanoseconds, waited, grown_kib, checksum }
    }
}

/// Nanoseconds that this thread has waited for a core; 0 where the kernel does not say.
fn waited() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A line of the process's status, in KiB. `VmHWM` rather than `getrusage`, whose peak survives `exec`.
fn status_kib(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("the kernel counts resident pages");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kilobytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_the_pipe() {
        let sample = Sample { operations: 1, nanoseconds: 2, waited: 3, grown_kib: 4, checksum: u64::MAX };
        assert_eq!(sample.to_string().parse(), Ok(sample));
        assert!("1 2 3".parse::<Sample>().is_err());
        assert!("0 2 3 4 5".parse::<Sample>().is_err());
    }

    #[test]
    fn the_warm_up_lap_is_summed_and_not_counted() {
        let mut lap = 0;
        let sample = Watch::new(Duration::ZERO).laps(10, || {
            lap += 1;
            lap
        });
        assert_eq!((sample.checksum, sample.operations), (1, 10));
    }
}
