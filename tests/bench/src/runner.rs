//! Runs everything: fresh processes, interleaved, each round beginning with another allocator.
//!
//! Called by `main`; starts this program again through [`Peer::prepare`].
#![forbid(unsafe_code)]

use crate::args::Args;
use crate::peers::Peer;
use crate::watch::Sample;
use crate::workloads::Workload;
use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What all rounds of one workload measured.
pub struct Measured {
    /// The workload.
    pub workload: &'static Workload,
    /// The allocators, each with one sample a round.
    pub columns: Vec<(&'static Peer, Vec<Sample>)>,
}

/// Those of `peers` that can be measured here; says on stderr which cannot.
pub fn present(peers: &[&'static Peer]) -> Vec<&'static Peer> {
    let here = |peer: &&&'static Peer| match peer.missing() {
        None => true,
        Some(why) => {
            eprintln!("{why}");
            false
        }
    };
    peers.iter().filter(here).copied().collect()
}

/// All rounds of all workloads.
pub fn run(args: &Args, peers: &[&'static Peer]) -> Result<Vec<Measured>, String> {
    let mut results: Vec<_> = args.workloads.iter().map(|&workload| Measured::new(workload, peers)).collect();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for result in &mut results {
            result.add_round(round, args.time)?;
        }
    }
    Ok(results)
}

impl Measured {
    fn new(workload: &'static Workload, peers: &[&'static Peer]) -> Self {
        Self { workload, columns: peers.iter().map(|&peer| (peer, Vec::new())).collect() }
    }

    fn add_round(&mut self, round: usize, time: Duration) -> Result<(), String> {
        let count = self.columns.len();
        for turn in 0..count {
            let (peer, samples) = &mut self.columns[(round + turn) % count];
            samples.push(child(peer, self.workload, time)?);
        }
        Ok(())
    }
}

/// One run in a process of its own.
fn child(peer: &Peer, workload: &Workload, time: Duration) -> Result<Sample, String> {
    let failed = |what: String| format!("{} with {}: {what}", workload.name, peer.name);
    let program = env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["--child", peer.name, workload.name, "--ms", &time.as_millis().to_string()]);
    peer.prepare(&mut command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    String::from_utf8_lossy(&output.stdout).parse().map_err(failed)
}
