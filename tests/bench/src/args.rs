//! The command line. Called by `main`; calls nobody but the lists of names.
#![forbid(unsafe_code)]

use crate::peers::{PEERS, Peer};
use crate::probes::{PROBES, Part, Probe};
use crate::programs::{PROGRAMS, Program};
use crate::watch::Length;
use crate::workloads::{WORKLOADS, Workload};
use lexopt::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// What one start of this program is to do.
pub enum Job {
    /// Print the usage.
    Help,
    /// One run of a workload: how [`crate::runner`] starts this program again.
    Child {
        /// The allocator, in its setting.
        peer: &'static Peer,
        /// What to do with it.
        workload: &'static Workload,
        /// For how long.
        length: Length,
    },
    /// One part of a probe: how [`crate::probes`] starts this program again.
    ProbeChild {
        /// The allocator, in its setting.
        peer: &'static Peer,
        /// What to find out about it.
        probe: &'static Probe,
        /// Which of the probe's processes this is.
        part: Part,
    },
    /// Everything, then the tables and the plots.
    All(Args),
}

/// What is to be run, how often and for how long, and where the results go.
pub struct Args {
    /// Rounds: runs of each allocator with each workload.
    pub rounds: usize,
    /// The shortest measured time of a run.
    pub time: Duration,
    /// The allocators, in the order of the tables.
    pub peers: Vec<&'static Peer>,
    /// What is to be run with each.
    pub subjects: Subjects,
    /// Where all samples are written.
    pub save: Option<PathBuf>,
    /// Whence the samples are read in place of running anything.
    pub load: Option<PathBuf>,
    /// The earlier run out of which the best peers are picked; without one, out of the same.
    pub picked_from: Option<PathBuf>,
    /// Which tables are printed.
    pub tables: Tables,
    /// Where the plots go.
    pub plots: PathBuf,
}

/// Which tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// All that there are.
    All,
    /// Those of the project's README.
    Readme,
}

/// What can be run with an allocator, in the order of the tables.
#[derive(Default)]
pub struct Subjects {
    /// Loops within this program.
    pub workloads: Vec<&'static Workload>,
    /// Programs of others.
    pub programs: Vec<&'static Program>,
    /// Figures that are no times.
    pub probes: Vec<&'static Probe>,
}

/// The usage, with the names that the options take.
pub fn help() -> String {
    let peers: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
    let entry = |(name, what): (&str, &str)| format!("  {name:<20} {what}\n");
    let workloads: String = WORKLOADS.iter().map(|it| entry((it.name, it.what))).collect();
    let programs: String = PROGRAMS.iter().map(|it| entry((it.name, it.what))).collect();
    let probes: String = PROBES.iter().map(|it| entry((it.name, it.what))).collect();
    format!(
        "usage: cargo run --release -p freestone-bench -- [--rounds N] [--ms N] [--only NAME]... [--peer NAME]...\n\
         \x20      [--save FILE] [--load FILE] [--picked-from FILE] [--readme] [--plots DIR]\n\n\
         --rounds       runs of each allocator with each workload (9)\n\
         --ms           shortest measured time of a run (300)\n\
         --only         a workload, program or probe; `workloads`, `programs` or `probes` for all of a kind\n\
         --save         write all samples to this file, as JSON\n\
         --load         print and plot the samples of such a file, run nothing\n\
         --picked-from  pick the best peers out of the samples of such a file, and compare with those\n\
         --readme       print the tables of the project's README in place of all others\n\
         --plots        where the plots go (tests/bench/plots)\n\n\
         allocators: {}\n\nworkloads:\n{workloads}\nprograms:\n{programs}\nprobes:\n{probes}",
        peers.join(", ")
    )
}

/// Reads the command line.
pub fn parse() -> Result<Job, String> {
    read(lexopt::Parser::from_env()).map_err(|error| format!("{error} (--help lists the options)"))
}

fn read(mut parser: lexopt::Parser) -> Result<Job, lexopt::Error> {
    let mut args = Args::default();
    let mut child = None;
    let mut laps = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rounds") => args.rounds = parser.value()?.parse::<usize>()?.max(1),
            Long("ms") => args.time = Duration::from_millis(parser.value()?.parse()?),
            Long("only") => parser.value()?.parse_with(|name| args.subjects.add(name))?,
            Long("peer") => args.peers.push(parser.value()?.parse_with(Peer::named)?),
            Long("save") => args.save = Some(parser.value()?.into()),
            Long("load") => args.load = Some(parser.value()?.into()),
            Long("picked-from") => args.picked_from = Some(parser.value()?.into()),
            Long("readme") => args.tables = Tables::Readme,
            Long("plots") => args.plots = parser.value()?.into(),
            Long("laps") => laps = Some(Length::Laps(parser.value()?.parse()?)),
            Long("child") => {
                child = Some((parser.value()?.parse_with(Peer::named)?, parser.value()?.parse_with(Workload::named)?));
            }
            Long("probe-child") => return probe_child(&mut parser),
            Short('h') | Long("help") => return Ok(Job::Help),
            other => return Err(other.unexpected()),
        }
    }
    if let Some((peer, workload)) = child {
        return Ok(Job::Child { peer, workload, length: laps.unwrap_or(Length::Time(args.time)) });
    }
    args.fill();
    Ok(Job::All(args))
}

fn probe_child(parser: &mut lexopt::Parser) -> Result<Job, lexopt::Error> {
    Ok(Job::ProbeChild {
        peer: parser.value()?.parse_with(Peer::named)?,
        probe: parser.value()?.parse_with(Probe::named)?,
        part: parser.value()?.parse_with(Part::named)?,
    })
}

impl Default for Args {
    fn default() -> Self {
        Self {
            rounds: 9,
            time: Duration::from_millis(300),
            peers: Vec::new(),
            subjects: Subjects::default(),
            save: None,
            load: None,
            picked_from: None,
            tables: Tables::All,
            plots: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/plots")),
        }
    }
}

impl Args {
    /// A list that names nobody means everybody.
    fn fill(&mut self) {
        if self.peers.is_empty() {
            self.peers = PEERS.iter().collect();
        }
        if self.subjects.is_empty() {
            self.subjects = Subjects::all();
        }
    }
}

impl Subjects {
    fn all() -> Self {
        Self { workloads: WORKLOADS.iter().collect(), programs: PROGRAMS.iter().collect(), probes: PROBES.iter().collect() }
    }

    /// Adds the one of that name, or all of that kind.
    fn add(&mut self, name: &str) -> Result<(), String> {
        match name {
            "workloads" => self.workloads.extend(&WORKLOADS),
            "programs" => self.programs.extend(&PROGRAMS),
            "probes" => self.probes.extend(&PROBES),
            _ => return self.add_one(name),
        }
        Ok(())
    }

    fn add_one(&mut self, name: &str) -> Result<(), String> {
        if let Ok(workload) = Workload::named(name) {
            self.workloads.push(workload);
        } else if let Ok(program) = Program::named(name) {
            self.programs.push(program);
        } else if let Ok(probe) = Probe::named(name) {
            self.probes.push(probe);
        } else {
            return Err(format!("no workload, program or probe is named {name:?}"));
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.programs.is_empty() && self.probes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Job, lexopt::Error> {
        read(lexopt::Parser::from_args(words))
    }

    #[test]
    fn naming_nobody_means_everybody() {
        let Ok(Job::All(args)) = parsed(&["--rounds", "3"]) else { panic!("a run of everything") };
        assert_eq!((args.rounds, args.peers.len()), (3, PEERS.len()));
        assert_eq!(args.subjects.workloads.len(), WORKLOADS.len());
        assert_eq!((args.subjects.probes.len(), args.tables), (PROBES.len(), Tables::All));
    }

    #[test]
    fn one_name_leaves_the_others_out() {
        let Ok(Job::All(args)) = parsed(&["--only", "pair-64", "--peer", "glibc"]) else { panic!("a run of one workload") };
        assert_eq!((args.subjects.workloads.len(), args.subjects.programs.len(), args.peers.len()), (1, 0, 1));
        assert!(parsed(&["--only", "nothing"]).is_err());
    }

    #[test]
    fn a_child_counts_laps_where_it_is_told_to() {
        let Ok(Job::Child { length, .. }) = parsed(&["--child", "glibc", "pair-64", "--laps", "3"]) else {
            panic!("a child")
        };
        assert_eq!(length, Length::Laps(3));
    }
}
