//! What was measured, as it is kept in a file: by names, so that a file can be read by a later version of this program.
//!
//! Written by [`crate::runner`]; read by [`crate::report`], [`crate::readme`], [`crate::bars`] and [`crate::plot`].
#![forbid(unsafe_code)]

use crate::stats::{Estimate, geometric_mean};
use crate::watch::Sample;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Everything of one start of this program.
#[derive(Serialize, Deserialize)]
pub struct Results {
    /// The machine, the versions, and how the figures came about.
    pub head: String,
    /// The workloads and programs.
    pub subjects: Vec<Subject>,
    /// The probes.
    pub probed: Vec<Probed>,
}

/// What all rounds of one workload or program measured.
#[derive(Serialize, Deserialize)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// What an operation is.
    pub what: String,
    /// Of what sort it is.
    pub kind: Kind,
    /// The threads that work at once.
    pub threads: usize,
    /// The allocators.
    pub columns: Vec<Column>,
}

/// The sorts of subjects, which the bars tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Pairs and windows, held against the floor.
    Basic,
    /// A workload that counts in the mean.
    Micro,
    /// A workload made to watch memory.
    Memory,
    /// A real program.
    Program,
}

/// One allocator with one subject.
#[derive(Default, Serialize, Deserialize)]
pub struct Column {
    /// The allocator's name.
    pub peer: String,
    /// One sample a round.
    pub samples: Vec<Sample>,
    /// System calls that manage memory, from the start of the process to its end, by name.
    pub calls: BTreeMap<String, u64>,
    /// Resident size over time: milliseconds since the start of the process, and KiB.
    pub timeline: Vec<[u64; 2]>,
    /// Why it has no figures, if it has none.
    pub failure: Option<String>,
}

/// What one probe found.
#[derive(Serialize, Deserialize)]
pub struct Probed {
    /// Its name.
    pub name: String,
    /// What the figure is.
    pub what: String,
    /// What it is counted in.
    pub unit: String,
    /// The most that Freestone may have, where the issue names it.
    pub bar: Option<f64>,
    /// The allocators, each with its figures, or why it has none.
    pub columns: Vec<(String, Result<Vec<f64>, String>)>,
}

/// A figure of a sample.
pub type Figure = fn(&Sample) -> f64;

/// A geometric mean of ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub figure: f64,
    /// Of how many.
    pub count: usize,
}

/// The peak of the resident size, in KiB.
pub fn peak(sample: &Sample) -> f64 {
    sample.grown_kib as f64
}

impl Results {
    /// Reads what [`save`](Self::save) wrote.
    pub fn load(path: &Path) -> Result<Self, String> {
        let failed = |what: String| format!("{}: {what}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }

    /// Writes everything.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The subject of that name.
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|it| it.name == name)
    }

    /// Those of one sort.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Subject> {
        self.subjects.iter().filter(move |it| it.kind == kind)
    }

    /// The mean of `peer`'s ratios to `base` over those subjects that have one, by [`Subject::ratio`].
    pub fn mean(&self, of: fn(&Subject) -> bool, [peer, base]: [&str; 2], (figure, least): (Figure, f64)) -> Option<Mean> {
        let ratio = |it: &Subject| Some(it.ratio(peer, base, figure, least)?.median);
        let ratios: Vec<_> = self.subjects.iter().filter(|it| of(it)).filter_map(ratio).collect();
        geometric_mean(&ratios).map(|figure| Mean { figure, count: ratios.len() })
    }

    /// The names of all allocators that something was measured with, in order.
    pub fn peers(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for column in self.subjects.iter().flat_map(|it| &it.columns) {
            if !names.contains(&&*column.peer) {
                names.push(&*column.peer);
            }
        }
        names
    }
}

impl Subject {
    /// The column of `peer`, if it has figures.
    pub fn column(&self, peer: &str) -> Option<&Column> {
        self.columns.iter().find(|it| it.peer == peer && it.failure.is_none() && !it.samples.is_empty())
    }

    /// The columns that have figures.
    pub fn sound(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|it| it.failure.is_none() && !it.samples.is_empty())
    }

    /// The median over the rounds of `peer`'s figure to that of `base`. `None` without one, or where a figure to be divided by
    /// is below `least`.
    pub fn ratio(&self, peer: &str, base: &str, figure: Figure, least: f64) -> Option<Estimate> {
        let bases = &self.column(base)?.samples;
        let pairs = self.column(peer)?.samples.iter().zip(bases);
        let sound = bases.iter().all(|it| figure(it) >= least && figure(it) > 0.0);
        sound.then(|| Estimate::of(pairs.map(|(it, base)| figure(it) / figure(base)).collect()))
    }

    /// Takes the figures from the columns whose checksum is not that of the most.
    pub fn compare_checksums(&mut self) {
        let mut votes = BTreeMap::<u64, usize>::new();
        self.sound().flat_map(|it| &it.samples).for_each(|it| *votes.entry(it.checksum).or_default() += 1);
        let Some((&right, _)) = votes.iter().max_by_key(|(_, votes)| **votes) else { return };
        for column in &mut self.columns {
            if column.samples.iter().any(|it| it.checksum != right) {
                column.failure = Some("the checksum differs: it lost what was written".into());
            }
        }
    }
}

impl Probed {
    /// The median of `peer`'s figures, if it has any.
    pub fn median(&self, peer: &str) -> Option<f64> {
        let (_, values) = self.columns.iter().find(|(name, _)| name == peer)?;
        values.as_ref().ok().filter(|it| !it.is_empty()).map(|it| Estimate::of(it.clone()).median)
    }
}

impl Column {
    /// The median over the rounds.
    pub fn estimate(&self, figure: Figure) -> Estimate {
        Estimate::of(self.samples.iter().map(figure).collect())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A subject whose columns have those CPU times, in every round the same; their peaks are a thousand times as much.
    pub fn subject(name: &str, kind: Kind, costs: &[(&str, u64)]) -> Subject {
        let column = |&(peer, cpu_ns): &(&str, u64)| {
            let sample =
                Sample { operations: 1, nanoseconds: cpu_ns, cpu_ns, grown_kib: cpu_ns * 1000, ..Sample::default() };
            Column { peer: peer.into(), samples: vec![sample; 9], ..Column::default() }
        };
        Subject { name: name.into(), what: String::new(), kind, threads: 1, columns: costs.iter().map(column).collect() }
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        let subject = subject("a", Kind::Micro, &[("x", 30), ("y", 20), ("zero", 0)]);
        assert_eq!(subject.ratio("x", "y", Sample::cost, 0.0).map(|it| it.median), Some(1.5));
        assert_eq!(subject.ratio("x", "y", Sample::cost, 25.0), None);
        assert_eq!(subject.ratio("x", "zero", Sample::cost, 0.0), None);
        assert_eq!(subject.ratio("x", "nobody", Sample::cost, 0.0), None);
    }

    #[test]
    fn a_mean_leaves_out_what_has_no_ratio() {
        let subjects = vec![
            subject("a", Kind::Micro, &[("x", 10), ("y", 20)]),
            subject("b", Kind::Micro, &[("x", 10), ("y", 5)]),
            subject("c", Kind::Micro, &[("x", 10)]),
            subject("d", Kind::Program, &[("x", 10), ("y", 70)]),
        ];
        let results = Results { head: String::new(), subjects, probed: Vec::new() };
        let mean = |peer| results.mean(|it| it.kind == Kind::Micro, [peer, "x"], (Sample::cost, 0.0));
        assert_eq!(mean("y"), Some(Mean { figure: 1.0, count: 2 }));
        assert_eq!(mean("x").map(|it| it.count), Some(3));
        assert_eq!(mean("nobody"), None);
    }

    #[test]
    fn whoever_lost_a_block_has_no_figures() {
        let mut subject = subject("a", Kind::Micro, &[("x", 1), ("y", 1), ("z", 1)]);
        subject.columns[1].samples[4].checksum = 7;
        subject.compare_checksums();
        assert!(subject.column("y").is_none() && subject.column("x").is_some());
    }

    #[test]
    fn results_survive_the_file() {
        let path = std::env::temp_dir().join(format!("freestone-bench-{}.json", std::process::id()));
        let probed = Probed {
            name: "p".into(),
            what: String::new(),
            unit: "KiB".into(),
            bar: Some(2.0),
            columns: vec![("x".into(), Ok(vec![1.5])), ("y".into(), Err("no".into()))],
        };
        let results =
            Results { head: "h".into(), subjects: vec![subject("a", Kind::Program, &[("x", 1)])], probed: vec![probed] };
        results.save(&path).unwrap();
        let read = Results::load(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), serde_json::to_string(&results).unwrap());
    }
}
