//! Freestone's region heaps beside their peers: `cargo run --release -p freestone-bench-bare`.
//!
//! How a figure comes about (each file below is called by this one):
//! - [`timing`]: nanoseconds an operation. A round plays each trace once for each allocator, beginning with another one each
//!   time, so that whatever drifts on the machine meets all of them; a run is a fresh heap, one lap to warm up, then laps until
//!   the time is over. A figure is the median of the rounds and its quartiles; a ratio is the median of the ratios within a round.
//! - [`memory`]: random actions until the first request is refused, the same for all allocators; the sum of the sizes that were
//!   asked for and are live then, in per cent of the arena, as a mean over the seeds. What an allocator keeps outside the arena
//!   is told apart and not counted.
//! - [`counts`]: instructions, one call at a time, by single steps ([`steps`]): exact, and the same in every run. A call is what
//!   an allocation is in a default release build: not inlined, the layout not known; the call and the return are not counted.
//!   The set-up, with the first call of every kind, is done beforehand. Steps within the C library are a reallocation's copying
//!   and are counted apart.
//!
//! All allocators get the same memory, one after the other: filled with a pattern, so that every page is there and none is zero,
//! and aligned to the size of the largest arena, which the buddy system needs to have it in one block. Those that refuse a
//! request are left alone with what depends on it; how many they refused is in the table.
//!
//! The first and the last byte of each block are written, and read back before it goes. The sum must be the same for all
//! allocators that refused nothing.

mod args;
mod arena;
mod columns;
mod counts;
mod memory;
mod report;
mod steps;
mod timing;

use args::{Args, Job, Part};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = args::parse().and_then(|job| match job {
        Job::Help => {
            print!("{}", args::help());
            Ok(())
        }
        Job::Run(args) => run(&args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("freestone-bench-bare: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("figures of a debug build mean nothing: use --release".into());
    }
    print!("{}", report::head(args));
    if args.wants_time() {
        print!("{}", report::times(&timing::run(args))?);
    }
    if args.wants(Part::Memory) {
        print!("{}", report::memory(&memory::run(args)));
    }
    if args.wants(Part::Counts) {
        print!("{}", report::counts(&counts::traces(args)));
    }
    if args.wants(Part::Attacks) {
        print!("{}", report::attacks(&counts::attacks(args)));
    }
    Ok(())
}
