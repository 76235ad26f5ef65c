//! Runs everything: fresh processes, interleaved, each round beginning with another allocator.
//!
//! Called by `main`; calls [`crate::children`], [`crate::programs`] and [`crate::probes`], and fills [`crate::results`].
#![forbid(unsafe_code)]

use crate::args::Args;
use crate::builds;
use crate::children;
use crate::peers::Peer;
use crate::probes::Probe;
use crate::programs::Program;
use crate::progress::Progress;
use crate::results::{Column, Kind, Probed, Results, Subject};
use crate::workloads::{Group, Timeline, Workload};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Rounds of the probes, at most: their figures hardly vary, and some of them wait for seconds.
const PROBE_ROUNDS: usize = 5;

/// The shortest run whose memory is drawn over time.
const LEAST_WATCHED: Duration = Duration::from_secs(1);

/// Those of `peers` that can be measured here; says on stderr which cannot.
pub fn present(peers: &[&'static Peer]) -> Vec<&'static Peer> {
    let here = |peer: &&&'static Peer| peer.missing().is_none_or(|why| !say(&why));
    peers.iter().filter(here).copied().collect()
}

/// Says it, and that it was said.
fn say(what: &str) -> bool {
    eprintln!("{what}");
    true
}

/// All rounds of everything.
pub fn run(args: &Args, peers: &[&'static Peer], head: String) -> Result<Results, String> {
    let mut entries = entries(args, peers);
    let probes = probes(args, peers);
    let scratch = builds::scratch()?;
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let rounds =
        Rounds { count: args.rounds, time: args.time, scratch, progress: Progress::new(runs(args, &entries, &probes)) };
    rounds.all(&mut entries);
    let probed = probes.into_iter().map(|(probe, peers)| rounds.probe(probe, &peers)).collect();
    rounds.progress.end();
    Ok(Results { head, subjects: entries.into_iter().map(Entry::subject).collect(), probed })
}

/// A workload or program, the allocators that can do it, and what was measured with each.
struct Entry {
    task: Task,
    peers: Vec<&'static Peer>,
    subject: Subject,
}

#[derive(Clone, Copy)]
enum Task {
    Workload(&'static Workload),
    Program(&'static Program),
}

fn entries(args: &Args, peers: &[&'static Peer]) -> Vec<Entry> {
    let workloads = args.subjects.workloads.iter().map(|&it| Task::Workload(it));
    let programs = args.subjects.programs.iter().filter(|it| it.missing().is_none_or(|why| !say(&why)));
    workloads.chain(programs.map(|&it| Task::Program(it))).map(|task| Entry::new(task, peers)).collect()
}

fn probes(args: &Args, peers: &[&'static Peer]) -> Vec<(&'static Probe, Vec<&'static Peer>)> {
    let able = |probe: &Probe| peers.iter().filter(|peer| probe.fits(peer)).copied().collect();
    args.subjects.probes.iter().map(|&probe| (probe, able(probe))).collect()
}

/// The runs of everything, for the progress.
fn runs(args: &Args, entries: &[Entry], probes: &[(&Probe, Vec<&Peer>)]) -> usize {
    let timed: usize = entries.iter().map(|it| it.peers.len() * args.rounds).sum();
    let looked_at: usize = entries.iter().map(|it| it.peers.len() * it.task.looks()).sum();
    let probed: usize = probes.iter().map(|(_, peers)| peers.len() * args.rounds.min(PROBE_ROUNDS)).sum();
    timed + looked_at + probed
}

impl Task {
    /// Runs in each of which something other than the time is looked at.
    fn looks(self) -> usize {
        match self {
            Self::Workload(it) => 1 + usize::from(it.timeline == Timeline::Sampled),
            Self::Program(_) => 0,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Program(_) => Kind::Program,
            Self::Workload(it) if it.micro() => Kind::Micro,
            Self::Workload(it) if it.group == Group::Basic => Kind::Basic,
            Self::Workload(_) => Kind::Memory,
        }
    }
}

impl Entry {
    fn new(task: Task, peers: &[&'static Peer]) -> Self {
        let (name, what, threads) = match task {
            Task::Workload(it) => (it.name, it.what, it.threads),
            Task::Program(it) => (it.name, it.what, 1),
        };
        let able = |peer: &&&'static Peer| match task {
            Task::Workload(workload) => peer.fits(workload),
            Task::Program(_) => peer.serves_programs(),
        };
        let peers: Vec<_> = peers.iter().filter(able).copied().collect();
        let columns = peers.iter().map(|peer| Column { peer: peer.name.into(), ..Column::default() }).collect();
        let subject = Subject { name: name.into(), what: what.into(), kind: task.kind(), threads, columns };
        Self { task, peers, subject }
    }

    fn subject(self) -> Subject {
        let mut subject = self.subject;
        subject.compare_checksums();
        subject
    }

    /// Does `run` with each allocator that has not failed yet, beginning with the one whose turn it is.
    fn each(&mut self, round: usize, progress: &Progress, run: impl Fn(&Peer, &mut Column) -> Result<(), String>) {
        let count = self.peers.len();
        for place in (0..count).map(|turn| (round + turn) % count) {
            let (peer, column) = (self.peers[place], &mut self.subject.columns[place]);
            if column.failure.is_none()
                && let Err(why) = run(peer, column)
            {
                progress.say(&format!("{} with {}: {why}", self.subject.name, peer.name));
                column.failure = Some(why);
            }
            progress.step();
        }
    }
}

/// How the runs are done.
struct Rounds {
    count: usize,
    time: Duration,
    scratch: PathBuf,
    progress: Progress,
}

impl Rounds {
    fn all(&self, entries: &mut [Entry]) {
        for round in 0..self.count {
            self.progress.part(&format!("round {} of {}", round + 1, self.count));
            entries.iter_mut().for_each(|entry| self.time(entry, round));
        }
        self.progress.part("system calls and memory over time");
        entries.iter_mut().for_each(|entry| self.look(entry));
    }

    fn time(&self, entry: &mut Entry, round: usize) {
        let task = entry.task;
        entry.each(round, &self.progress, |peer, column| {
            column.samples.push(match task {
                Task::Workload(workload) => children::timed(peer, workload, self.time)?,
                Task::Program(program) => program.run(&self.scratch, &|command| peer.prepare(command))?,
            });
            Ok(())
        });
    }

    fn look(&self, entry: &mut Entry) {
        let Task::Workload(workload) = entry.task else { return };
        entry.each(0, &self.progress, |peer, column| {
            column.calls = children::counted(peer, workload)?;
            Ok(())
        });
        if workload.timeline == Timeline::Sampled {
            entry.each(0, &self.progress, |peer, column| {
                column.timeline = children::watched(peer, workload, self.time.max(LEAST_WATCHED))?;
                Ok(())
            });
        }
    }

    fn probe(&self, probe: &Probe, peers: &[&'static Peer]) -> Probed {
        self.progress.part(probe.name);
        let columns = peers.iter().map(|peer| (peer.name.to_string(), self.probe_one(probe, peer))).collect();
        Probed { name: probe.name.into(), what: probe.what.into(), unit: probe.unit.into(), bar: probe.bar, columns }
    }

    fn probe_one(&self, probe: &Probe, peer: &Peer) -> Result<Vec<f64>, String> {
        let mut once = |_| {
            self.progress.step();
            probe.run(peer)
        };
        (0..self.count.min(PROBE_ROUNDS)).map(&mut once).collect()
    }
}
