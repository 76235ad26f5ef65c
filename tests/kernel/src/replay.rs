//! Runs scripts by their seeds and prints a line for each that says what the heap did. `tests/kernel.rs` runs the same
//! scripts in heaps of the same size on the host and compares the lines.

use crate::number;
use freestone_machine::println;
use freestone_tests::digest;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::Audited;

/// Live blocks (as in `tests/kernel.rs`).
const SLOTS: usize = 48;
/// The scripts that are run if no `seed=` is given (as in `tests/kernel.rs`).
const SEEDS: core::ops::RangeInclusive<u64> = 1..=3;
const STEPS: u64 = 600;

/// Replays the script of each seed on a heap of its own, which `with_heap` makes of a number: it hands the heap to the
/// function that it is given, with the address at which the heap's memory begins.
pub fn by_seed<S: Audited>(name: &str, sizes: Sizes, with_heap: impl Fn(&mut dyn FnMut(&S, usize))) {
    let seeds = number("seed").map_or(SEEDS, |seed| seed..=seed);
    let steps = number("steps").unwrap_or(STEPS);
    for seed in seeds {
        with_heap(&mut |heap, start| {
            let run = digest::run::<_, SLOTS>(heap, start, Script { seed, sizes }, steps);
            println!("replay heap={name} {}", run.unwrap_or_else(|failure| panic!("{failure}")));
        });
    }
}
