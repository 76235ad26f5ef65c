//! What one run measures: time, resident size, page faults, and whether the machine was its own.
//!
//! Called by [`crate::workloads`] in the child process; [`crate::runner`] reads the [`Sample`] back from the child's output.
#![forbid(unsafe_code)]

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::hint::black_box;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What one run measured, all of it in whole numbers. The child prints it as JSON, the parent parses and keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Operations done in the measured time.
    pub operations: u64,
    /// The measured time, by the wall clock.
    pub nanoseconds: u64,
    /// What all threads of the process spent on cores meanwhile, in the program and in the kernel.
    pub cpu_ns: u64,
    /// How much of the measured time the measuring thread was ready to run and had no core.
    pub waited: u64,
    /// How far the peak of the resident size stood above what was there before the first call, in KiB.
    pub grown_kib: u64,
    /// How far the resident size itself stood above it when the clock was stopped, in KiB.
    pub left_kib: u64,
    /// Page faults of the measured time that the kernel served from memory.
    pub minor_faults: u64,
    /// Page faults of the measured time that waited for a disk.
    pub major_faults: u64,
    /// The sum over the warm-up lap.
    pub checksum: u64,
    /// Nanoseconds of a single operation, median and 99th percentile, where a workload times them one by one.
    pub latency: Option<[u64; 2]>,
}

impl Sample {
    /// Nanoseconds of CPU time an operation, over all threads.
    pub fn cost(&self) -> f64 {
        self.cpu_ns as f64 / self.operations as f64
    }

    /// Nanoseconds by the wall clock an operation.
    pub fn wall(&self) -> f64 {
        self.nanoseconds as f64 / self.operations as f64
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match serde_json::from_str::<Self>(text) {
            Ok(sample) if sample.operations > 0 => Ok(sample),
            _ => Err(format!("a run printed {text:?} in place of a sample")),
        }
    }
}

/// How long a run is to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// At least so long, in whole laps, at least one.
    Time(Duration),
    /// Exactly so many laps after the warm-up, at least one: for figures that are counted rather than timed.
    Laps(u64),
}

/// Watches one run: made before the first call of the allocator, started after the warm-up.
pub struct Watch {
    length: Length,
    resident_before: u64,
}

impl Watch {
    /// A watch for a run of that length. The lists of the harness must have been made and touched already.
    pub fn new(length: Length) -> Self {
        Self { length, resident_before: status_kib("VmRSS:") }
    }

    /// One lap to warm up, then laps until the length is reached. A lap does `operations` and returns a sum of what it read.
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
        let (waited_before, faults_before) = (waited(), faults());
        Running {
            watch: self,
            asked: AtomicU64::new(0),
            waited_before,
            faults_before,
            cpu_before: cpu(),
            begin: Instant::now(),
        }
    }
}

/// A [`Watch`] whose clock runs.
pub struct Running {
    watch: Watch,
    asked: AtomicU64,
    waited_before: u64,
    faults_before: [u64; 2],
    cpu_before: u64,
    begin: Instant,
}

impl Running {
    /// Whether another lap is to be run. To be asked once before each lap.
    pub fn goes_on(&self) -> bool {
        match self.watch.length {
            Length::Time(shortest) => self.begin.elapsed() < shortest,
            // Relaxed: nothing but the number itself is handed over.
            Length::Laps(laps) => self.asked.fetch_add(1, Ordering::Relaxed) < laps,
        }
    }

    /// Stops the clock after so many operations.
    pub fn stop(self, operations: u64, checksum: u64) -> Sample {
        let nanoseconds = self.begin.elapsed().as_nanos() as u64;
        let cpu_ns = cpu() - self.cpu_before;
        let [minor, major] = faults();
        let above_before = |key| status_kib(key).saturating_sub(self.watch.resident_before);
        Sample {
            operations,
            nanoseconds,
            cpu_ns,
            waited: waited().saturating_sub(self.waited_before),
            grown_kib: above_before("VmHWM:"),
            left_kib: above_before("VmRSS:"),
            minor_faults: minor - self.faults_before[0],
            major_faults: major - self.faults_before[1],
            checksum,
            latency: None,
        }
    }
}

/// Nanoseconds that all threads of this process have spent on cores.
fn cpu() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(time).as_nanos() as u64
}

/// Page faults of this process so far, minor and major.
fn faults() -> [u64; 2] {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own");
    [usage.minor_page_faults() as u64, usage.major_page_faults() as u64]
}

/// Nanoseconds that this thread has waited for a core; 0 where the kernel does not say.
fn waited() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A line of the process's status, in KiB. `VmHWM` rather than `getrusage`, whose peak survives `exec`.
pub fn status_kib(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("the kernel counts resident pages");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kilobytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(length: Length) -> (u64, Sample) {
        let mut lap = 0;
        let sample = Watch::new(length).laps(10, || {
            lap += 1;
            lap
        });
        (lap, sample)
    }

    #[test]
    fn a_sample_survives_the_pipe() {
        let sample = Sample { operations: 1, grown_kib: 4, checksum: u64::MAX, latency: Some([5, 6]), ..Sample::default() };
        assert_eq!(sample.to_string().parse(), Ok(sample));
        assert!("1 2 3".parse::<Sample>().is_err());
        assert!(Sample::default().to_string().parse::<Sample>().is_err());
    }

    #[test]
    fn the_warm_up_lap_is_summed_and_not_counted() {
        let (laps, sample) = counted(Length::Time(Duration::ZERO));
        assert_eq!((laps, sample.checksum, sample.operations), (2, 1, 10));
    }

    #[test]
    fn laps_are_counted_where_they_are_asked_for() {
        let (laps, sample) = counted(Length::Laps(3));
        assert_eq!((laps, sample.operations), (4, 30));
    }
}
