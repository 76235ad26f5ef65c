//! The command line. Called by `main`; calls nobody but the two lists of names.
#![forbid(unsafe_code)]

use crate::peers::{PEERS, Peer};
use crate::workloads::{WORKLOADS, Workload};
use lexopt::prelude::*;
use std::time::Duration;

/// What one start of this program is to do.
pub enum Job {
    /// Print the usage.
    Help,
    /// One run: how [`crate::runner`] starts this program again.
    Child {
        /// The allocator, in its setting.
        peer: &'static Peer,
        /// What to do with it.
        workload: &'static Workload,
        /// The shortest time to be measured.
        time: Duration,
    },
    /// Everything, then the tables.
    All(Args),
}

/// What is to be run, how often and for how long.
pub struct Args {
    /// Rounds: runs of each allocator with each workload.
    pub rounds: usize,
    /// The shortest measured time of a run.
    pub time: Duration,
    /// The allocators, in the order of the tables.
    pub peers: Vec<&'static Peer>,
    /// The workloads, in the order of the tables.
    pub workloads: Vec<&'static Workload>,
}

/// The usage, with the names that the options take.
pub fn help() -> String {
    let peers: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
    let workloads: String = WORKLOADS.iter().map(|it| format!("  {:<16} {}\n", it.name, it.what)).collect();
    format!(
        "usage: cargo run --release -p freestone-bench -- [--rounds N] [--ms N] [--only WORKLOAD]... [--peer NAME]...\n\n\
         --rounds  runs of each allocator with each workload (9)\n\
         --ms      shortest measured time of a run (150)\n\n\
         allocators: {}\n\nworkloads:\n{workloads}",
        peers.join(", ")
    )
}

/// Reads the command line.
pub fn parse() -> Result<Job, String> {
    read(lexopt::Parser::from_env()).map_err(|error| format!("{error} (--help lists the options)"))
}

fn read(mut parser: lexopt::Parser) -> Result<Job, lexopt::Error> {
    let mut args = Args { rounds: 9, time: Duration::from_millis(150), peers: Vec::new(), workloads: Vec::new() };
    let mut child = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rounds") => args.rounds = parser.value()?.parse::<usize>()?.max(1),
            Long("ms") => args.time = Duration::from_millis(parser.value()?.parse()?),
            Long("only") => args.workloads.push(parser.value()?.parse_with(Workload::named)?),
            Long("peer") => args.peers.push(parser.value()?.parse_with(Peer::named)?),
            Long("child") => {
                child = Some((parser.value()?.parse_with(Peer::named)?, parser.value()?.parse_with(Workload::named)?));
            }
            Short('h') | Long("help") => return Ok(Job::Help),
            other => return Err(other.unexpected()),
        }
    }
    if let Some((peer, workload)) = child {
        return Ok(Job::Child { peer, workload, time: args.time });
    }
    args.fill();
    Ok(Job::All(args))
}

impl Args {
    /// A list that names nobody means everybody.
    fn fill(&mut self) {
        if self.peers.is_empty() {
            self.peers = PEERS.iter().collect();
        }
        if self.workloads.is_empty() {
            self.workloads = WORKLOADS.iter().collect();
        }
    }
}
