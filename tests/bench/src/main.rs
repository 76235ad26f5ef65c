//! Benchmarks of Freestone beside its peers: `cargo run --release -p freestone-bench`.
//!
//! Needs a C and C++ compiler, `make` (jemalloc) and `cmake` (snmalloc: its crate's other way of building leaves assertions
//! on, so that it would be measured slower than it is). On Debian: `apt-get install build-essential cmake`.
//! The column `libfreestone.so` needs `cargo build --release -p freestone-preload` first; it is left out, with a line that
//! says so, when the library is neither beside this program nor where `FREESTONE_SO` points.
//!
//! How a figure comes about ([`runner`] calls [`peers`], which calls [`workloads`], timed by [`watch`]; [`report`] prints):
//! - Every run is a fresh process with an empty environment, but for what the column names (`FREESTONE_CONF`, `LD_PRELOAD`).
//!   It does one workload with one allocator, warms up for one lap, then repeats the lap until the time is over.
//! - A round runs every allocator once for each workload, beginning with another one each time, so that whatever drifts on the
//!   machine meets all of them. A figure is the median of the rounds and its quartiles; a ratio is the median of the ratios
//!   within a round.
//! - One binary holds all allocators, each reached through a copy of the loop compiled for it. A call goes through a function
//!   that is not inlined and does not know the layout: what `Box::new` costs in a default release build. Workloads called
//!   `inlined` are the other case, a build with fat LTO, where an allocator written in Rust melts into its caller and one
//!   written in C does not.
//! - The build scripts of mimalloc and snmalloc turn assertions on when the profile has debug information, even line tables;
//!   the workspace's manifest sets `debug = false` for them, and without that this program refuses to run.
//! - The first and the last word of each block are written, and read back before it is freed. The sum of these words over
//!   the warm-up lap is printed; it must be the same for all allocators.
//! - Resident size is how far the peak of the process stands above what was resident before the first call, the lists of the
//!   harness included in the latter. The kernel counts it in batches: differences under some 256 KiB mean nothing. What an
//!   allocator's constructor touched before `main` is not in it.
//! - Threads are not pinned. Runs that waited for a core are counted and reported, not left out.
//!
//! There are no instruction counts: virtual machines mostly have no counters, valgrind has no rseq, and single steps abort
//! every rseq section, so that the path in question would not be the one counted.

mod args;
mod heap;
mod peers;
mod report;
mod runner;
mod watch;
mod workloads;

use args::{Args, Job};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = args::parse().and_then(|job| match job {
        Job::Help => {
            print!("{}", args::help());
            Ok(())
        }
        Job::Child { peer, workload, time } => {
            println!("{}", peer.measure(workload, time)?);
            Ok(())
        }
        Job::All(args) => all(&args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("freestone-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn all(args: &Args) -> Result<(), String> {
    peers::check_build()?;
    let peers = runner::present(&args.peers);
    print!("{}", report::head(args, &peers));
    let results = runner::run(args, &peers)?;
    print!("{}", report::tables(&results)?);
    Ok(())
}
