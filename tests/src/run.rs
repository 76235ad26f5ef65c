//! Runs a random test over its seeds, or over the one that the environment names, and says how to replay a failure.

use core::fmt::Display;
use std::string::String;
use std::vec::Vec;
use std::{env, eprintln, format, vec};

/// Which part of a test binary to run again.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The test binary.
    pub binary: &'static str,
    /// The test.
    pub test: &'static str,
}

impl Case {
    /// Calls `body(seed, steps)` for the test's seeds, or once with `FREESTONE_SEED` and `FREESTONE_STEPS`. A failure is a
    /// panic with the command that replays it.
    #[track_caller]
    pub fn run<E: Display>(self, seeds: u64, steps: u64, body: impl Fn(u64, u64) -> Result<(), E>) {
        let steps = number("FREESTONE_STEPS").unwrap_or(steps);
        let seeds: Vec<u64> = number("FREESTONE_SEED").map_or_else(|| (1..=seeds).collect(), |seed| vec![seed]);
        for seed in seeds {
            eprintln!("{}: seed {seed:#x}, {steps} steps", self.test);
            if let Err(failure) = body(seed, steps) {
                panic!("{failure}\nreplay: {}", self.command(seed, steps));
            }
        }
    }

    /// The command that runs one seed again.
    fn command(self, seed: u64, steps: u64) -> String {
        let Self { binary, test } = self;
        let set = format!("FREESTONE_SEED={seed:#x} FREESTONE_STEPS={steps}");
        format!("{set} cargo test -p freestone-tests --test {binary} -- --exact {test}")
    }
}

/// A number in the environment, decimal or with 0x.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
