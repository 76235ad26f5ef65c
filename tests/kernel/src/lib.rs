//! Tests of Freestone that are kernels: they run in QEMU with nothing below them but `freestone-machine`.
//!
//! Each program of `bin` is a kernel with one heap as its global allocator and a list of tests out of the modules here:
//! `frames` on the full heap, which grows out of page frames, `region` on the region heap in static memory.
//! `tests/kernel.rs` builds and boots them, and knows how many tests each has. By hand:
//!
//! ```text
//! cargo build --release -p freestone-kernel && CPUS=4 tests/machine/boot target/release/frames
//! ```
//!
//! Words on the command line: `only=PART` runs the tests with PART in their names; `seed=N` and `steps=N` choose the script
//! of the replay, `interrupts=N` how many there are in the tests of interrupts; `plant=NAME` plants a failure (see
//! `plants.rs`), with which the run must fail.
#![no_std]

extern crate alloc;

pub mod collections;
pub mod home;
pub mod interrupts;
pub mod plants;
pub mod random;
pub mod regions;
pub mod replay;

use freestone_machine::{cpus, println, word};

/// A test: it passes by returning, and fails by a panic, which ends the run.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// What is printed.
    pub name: &'static str,
    /// Does it.
    pub run: fn(),
}

/// Tests by the names of their functions.
#[macro_export]
macro_rules! tests {
    ($($path:path),+ $(,)?) => {
        &[$($crate::Test { name: ::core::stringify!($path), run: $path }),+]
    };
}

/// The tests of the global allocator, whichever it is.
pub const COLLECTIONS: &[Test] = tests![
    collections::vectors,
    collections::ordered_maps,
    collections::strings,
    collections::boxes,
    collections::over_aligned,
    collections::zeroed,
    collections::on_all_cpus,
    collections::shared_counts,
    collections::sent_between_cpus,
];

/// Runs the tests, in order, and prints how many there were.
pub fn run(tests: &[&[Test]]) {
    let wanted = |test: &&Test| word("only").is_none_or(|part| test.name.contains(part));
    let mut passed = 0;
    for test in tests.iter().copied().flatten().filter(wanted) {
        println!("test {}", test.name);
        (test.run)();
        println!("test {} ... ok", test.name);
        passed += 1;
    }
    println!("kernel: {passed} tests passed on {} cpus", cpus());
}

/// The number that follows `name=` among the kernel's words, decimal or with 0x.
pub fn number(name: &str) -> Option<u64> {
    let text = word(name)?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
