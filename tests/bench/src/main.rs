//! Benchmarks of Freestone beside its peers: `cargo run --release -p freestone-bench`.
//!
//! Prints a table for each workload, each program and each figure, and whether the bars are met; writes plots. `--help` names
//! what there is, `--save` keeps the samples, `--load` prints them again, `--readme` prints the tables of the project's README.
//!
//! Needs a C and C++ compiler, `make` (jemalloc) and `cmake` (snmalloc: its crate's other way of building leaves assertions
//! on, so that it would be measured slower than it is). On Debian: `apt-get install build-essential cmake`.
//! The column `libfreestone.so` needs `cargo build --release -p freestone-preload` first; it is left out, with a line that
//! says so, when the library is neither beside this program nor where `FREESTONE_SO` points. So are the libraries and the
//! programs of Debian that are not installed. Peers that one binary cannot hold beside the others are in further builds of this
//! program, which it makes by itself ([`builds`]).
//!
//! How a figure comes about ([`runner`] starts [`children`] and [`programs`] and [`probes`]; in a child [`peers`] calls
//! [`workloads`], timed by [`watch`]; [`report`], [`readme`], [`bars`] and [`plot`] read the
//! [`results`]):
//! - Every run is a fresh process with an empty environment, but for what the column names (`FREESTONE_CONF`, `LD_PRELOAD`).
//!   It does one workload with one allocator, warms up for one lap, then repeats the lap until the time is over.
//! - A round runs every allocator once for each workload, beginning with another one each time, so that whatever drifts on the
//!   machine meets all of them. A figure is the median of the rounds with a confidence interval, which is two of the values in
//!   order and whose level stands above it ([`stats`]); a ratio is the median of the ratios within a round.
//! - Time is CPU time of all threads, in the program and in the kernel; the wall's stands beside it.
//! - One binary holds most allocators, each reached through a copy of the loop compiled for it. A call goes through a function
//!   that is not inlined and does not know the layout: what `Box::new` costs in a default release build. Workloads called
//!   `inlined` are the other case, a build with fat LTO, where an allocator written in Rust melts into its caller and one
//!   written in C does not. The column `floor` is no allocator but the least that one can do ([`floor`]).
//! - The build scripts of mimalloc and snmalloc turn assertions on when the profile has debug information, even line tables;
//!   the workspace's manifest sets `debug = false` for them, and without that this program refuses to run.
//! - The first and the last word of each block are written, and read back before it is freed. The sum of these words over
//!   the warm-up lap must be the same for all allocators: one whose sum differs has lost what was written, and its figures are
//!   left out. An allocator that crashes or hangs in a workload is left out of it too, with a line that says so.
//! - Resident size is how far the peak of the process stands above what was resident before the first call, the lists of the
//!   harness included in the latter. The kernel counts it in batches: differences under some 256 KiB mean nothing. What an
//!   allocator's constructor touched before `main` is not in it. For a program it is the whole process.
//! - Page faults are those of the measured time, after the warm-up. System calls are counted in a run of their own, from the
//!   start of the process to its end, under a tracer; memory over time is looked at from outside, in another one.
//! - Threads are not pinned. Runs that waited for a core are counted and reported, not left out.
//!
//! There are no instruction counts: virtual machines mostly have no counters, valgrind has no rseq, and single steps abort
//! every rseq section, so that the path in question would not be the one counted.

mod args;
mod bars;
mod builds;
mod children;
mod floor;
mod heap;
mod libraries;
mod machine;
mod peers;
mod plot;
mod probes;
mod programs;
mod progress;
mod readme;
mod report;
mod results;
mod runner;
mod stats;
mod watch;
mod workloads;

use args::{Args, Job, Tables};
use results::Results;
use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse().and_then(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("freestone-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn start(job: Job) -> Result<(), String> {
    match job {
        Job::Help => print!("{}", args::help()),
        Job::Child { peer, workload, length } => println!("{}", peer.measure(workload, length)?),
        Job::ProbeChild { peer, probe, part } => probes::child(peer, probe, part)?,
        Job::All(args) => all(&args)?,
    }
    Ok(())
}

/// Runs or loads everything, then prints and draws it.
fn all(args: &Args) -> Result<(), String> {
    let results = match &args.load {
        Some(path) => Results::load(path)?,
        None => measured(args)?,
    };
    match args.tables {
        Tables::All => print_all(args, &results)?,
        Tables::Readme => print!("{}", readme::text(&results)),
    }
    plot::all(&results, &args.plots)
}

fn print_all(args: &Args, results: &Results) -> Result<(), String> {
    let picked = args.picked_from.as_deref().map(Results::load).transpose()?;
    let source = args.picked_from.as_ref().map_or("the same run".into(), |path| path.display().to_string());
    print!("{}", report::text(results));
    print!("{}", report::bars(&bars::bars(results, picked.as_ref().unwrap_or(results)), &source));
    print!("{}", report::summary(results));
    Ok(())
}

fn measured(args: &Args) -> Result<Results, String> {
    builds::check_figures()?;
    let peers = runner::present(&args.peers);
    let results = runner::run(args, &peers, machine::head(args, &peers))?;
    args.save.as_deref().map_or(Ok(()), |path| results.save(path))?;
    Ok(results)
}
