//! The head and the tables, in Markdown, so that they can be pasted.
//!
//! Called by `main`; reads [`crate::results`] and [`crate::bars`], shares its words with [`crate::readme`]. [`crate::machine`] says where the figures come from.
#![forbid(unsafe_code)]

use crate::bars::{Bar, LEAST_KIB, is_micro, is_program, is_workload, memory, time};
use crate::children::COUNTED_LAPS;
use crate::peers::{FREESTONE, FREESTONE_PRELOADED, GLIBC};
use crate::results::{Column, Figure, Kind, Mean, Probed, Results, Subject, peak};
use crate::stats::{Estimate, confidence};
use crate::watch::Sample;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

/// A run that waited longer for a core than this part of its time was disturbed.
const DISTURBED: f64 = 0.02;

/// Where there is no figure.
pub const NONE: &str = "–";

/// All of it: the head, a table for each figure, and one for each subject.
pub fn text(results: &Results) -> String {
    let mut parts = vec![results.head.clone()];
    parts.extend(results.subjects.iter().map(detail));
    parts.extend(
        ["Workloads", "Programs"].into_iter().zip([false, true]).flat_map(|(title, of)| overviews(results, title, of)),
    );
    if !results.probed.is_empty() {
        parts.push(format!("Probes (median)\n\n{}\n", probes(&results.probed)));
    }
    parts.join("\n")
}

/// The bars, and whether they are met.
pub fn bars(bars: &[Bar], picked_from: &str) -> String {
    let mut table = table(["bar", "value", "limit", "where", "met"].map(String::from).to_vec());
    for bar in bars {
        let (value, source) = match &bar.value {
            Some(value) => (format!("{:.2}", value.figure), value.source.clone()),
            None => (NONE.into(), "not measured".into()),
        };
        let met = bar.met().map_or(NONE, |met| if met { "yes" } else { "NO" });
        table.add_row([bar.what.clone(), value, format!("{:.2}", bar.limit), source, met.into()]);
    }
    format!("\nBars (CPU time, medians; best peers picked from {picked_from})\n\n{table}\n")
}

/// One subject with everything that is known of it.
fn detail(subject: &Subject) -> String {
    let rounds = subject.sound().map(|it| it.samples.len()).max().unwrap_or(0);
    let mut table = table(header(subject.kind, confidence(rounds)));
    table.add_rows(subject.sound().map(|column| row(subject, column)));
    let failures = subject.columns.iter().filter_map(|it| Some(format!("{}: {}\n", it.peer, it.failure.as_ref()?)));
    format!("{}: {}\n\n{table}\n\n{}{}", subject.name, subject.what, failures.collect::<String>(), disturbance(subject))
}

fn header(kind: Kind, confidence: f64) -> Vec<String> {
    let interval = format!("{} (median, {:.0} % confidence)", unit(kind), confidence * 100.0);
    let rest = ["× glibc", "× ours", "wall", "peak KiB", "× glibc", "left KiB", "faults", "of disk", "calls", "p50/p99 ns"];
    ["allocator".to_string(), interval].into_iter().chain(rest.map(String::from)).collect()
}

/// Nanoseconds an operation, or milliseconds a program.
fn unit(kind: Kind) -> &'static str {
    if kind == Kind::Program { "CPU ms" } else { "CPU ns" }
}

fn row(subject: &Subject, column: &Column) -> Vec<String> {
    let scale = if subject.kind == Kind::Program { 1e-6 } else { 1.0 };
    let Estimate { low, median, high } = column.estimate(Sample::cost);
    let ours = if subject.kind == Kind::Program { FREESTONE_PRELOADED } else { FREESTONE };
    let ratio = |base, figure, least| or_none(subject.ratio(&column.peer, base, figure, least), 2);
    let whole = |figure: Figure| format!("{:.0}", column.estimate(figure).median);
    vec![
        column.peer.clone(),
        Estimate { low: low * scale, median: median * scale, high: high * scale }.to_string(),
        ratio(GLIBC, Sample::cost, 0.0),
        ratio(ours, Sample::cost, 0.0),
        format!("{:.2}", column.estimate(Sample::wall).median * scale),
        whole(peak),
        ratio(GLIBC, peak, LEAST_KIB),
        whole(|it| it.left_kib as f64),
        whole(|it| it.minor_faults as f64),
        whole(|it| it.major_faults as f64),
        calls(column).map_or(NONE.into(), |calls| calls.to_string()),
        latency(column),
    ]
}

fn or_none(estimate: Option<Estimate>, digits: usize) -> String {
    estimate.map_or(NONE.into(), |it| format!("{:.digits$}", it.median))
}

/// The system calls of all six names; `None` where they were not counted.
fn calls(column: &Column) -> Option<u64> {
    (!column.calls.is_empty()).then(|| column.calls.values().sum())
}

fn latency(column: &Column) -> String {
    if column.samples.iter().any(|it| it.latency.is_none()) {
        return NONE.into();
    }
    let part = |figure: Figure| column.estimate(figure).median;
    let (half, most) =
        (part(|it| it.latency.unwrap_or_default()[0] as f64), part(|it| it.latency.unwrap_or_default()[1] as f64));
    format!("{half:.0}/{most:.0}")
}

fn disturbance(subject: &Subject) -> String {
    let disturbed = |it: &&Sample| it.waited as f64 > DISTURBED * it.nanoseconds as f64;
    let all: Vec<_> = subject.sound().flat_map(|it| &it.samples).collect();
    let (count, bad) = (all.len(), all.into_iter().filter(disturbed).count());
    format!("{bad} of {count} runs waited for a core over {} % of their time\n", DISTURBED * 100.0)
}

/// One mean of each allocator, beside glibc.
pub struct Compared {
    of: fn(&Subject) -> bool,
    measure: (Figure, f64),
    /// How many subjects glibc has a figure of.
    pub all: usize,
}

impl Compared {
    /// The mean over these subjects.
    pub fn new(results: &Results, of: fn(&Subject) -> bool, measure: (Figure, f64)) -> Self {
        let all = results.mean(of, [GLIBC, GLIBC], measure).map_or(0, |it| it.count);
        Self { of, measure, all }
    }

    /// `peer`'s mean; in brackets of how many, where it is not all. `None` where it has nothing in common with glibc.
    pub fn cell(&self, results: &Results, peer: &str) -> Option<String> {
        let Mean { figure, count } = results.mean(self.of, [peer, GLIBC], self.measure)?;
        Some(if count == self.all { format!("{figure:.2}") } else { format!("{figure:.2} ({count})") })
    }
}

/// All means beside each other, an allocator a row.
pub fn summary(results: &Results) -> String {
    let compared = |of, measure| Compared::new(results, of, measure);
    let columns = [
        ("micro workloads: CPU", compared(is_micro, time())),
        ("micro workloads: peak", compared(is_micro, memory())),
        ("all workloads: peak", compared(is_workload, memory())),
        ("programs: CPU", compared(is_program, time())),
        ("programs: peak", compared(is_program, memory())),
    ];
    let heading = |(what, compared): &(&str, Compared)| format!("{} {what}", compared.all);
    let mut table = table(["allocator".to_string()].into_iter().chain(columns.iter().map(heading)).collect());
    for peer in results.peers() {
        let cells = columns.each_ref().map(|(_, compared)| compared.cell(results, peer));
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|it| it.unwrap_or(NONE.into()));
            table.add_row([peer.to_string()].into_iter().chain(cells).collect::<Vec<_>>());
        }
    }
    format!("\nSummary (geometric means × glibc; in brackets over how many, where not over all)\n\n{table}\n")
}

type Cell = fn(&Subject, &str) -> Option<f64>;

/// The figures of all subjects side by side, an allocator a column.
fn overviews(results: &Results, title: &str, programs: bool) -> Vec<String> {
    let subjects: Vec<_> = results.subjects.iter().filter(|it| (it.kind == Kind::Program) == programs).collect();
    if subjects.is_empty() {
        return Vec::new();
    }
    let ratios: [(&str, Cell); 2] = [
        ("CPU time × glibc", |it, peer| Some(it.ratio(peer, GLIBC, Sample::cost, 0.0)?.median)),
        ("peak resident size × glibc", |it, peer| Some(it.ratio(peer, GLIBC, peak, LEAST_KIB)?.median)),
    ];
    let counts: [(&str, Cell); 2] = [
        ("page faults of the measured time, for 1,000 operations", |it, peer| {
            Some(it.column(peer)?.estimate(|it| it.minor_faults as f64 * 1e3 / it.operations as f64).median)
        }),
        ("system calls", |it, peer| Some(calls(it.column(peer)?)? as f64)),
    ];
    let mut parts: Vec<_> =
        ratios.map(|(what, cell)| format!("{title}: {what}\n\n{}\n", overview(&subjects, cell, 2))).into();
    if !programs {
        let note = format!("system calls are those of a process with {COUNTED_LAPS} laps and one to warm up");
        parts.extend(counts.map(|(what, cell)| format!("{title}: {what} ({note})\n\n{}\n", overview(&subjects, cell, 0))));
    }
    parts
}

fn overview(subjects: &[&Subject], cell: Cell, digits: usize) -> Table {
    let mut peers: Vec<&str> = Vec::new();
    for column in subjects.iter().flat_map(|it| &it.columns) {
        if !peers.contains(&&*column.peer) {
            peers.push(&column.peer);
        }
    }
    let mut table = table([""].iter().chain(&peers).map(ToString::to_string).collect());
    let shown = |value: Option<f64>| value.map_or(NONE.into(), |it| format!("{it:.digits$}"));
    for subject in subjects {
        let cells = peers.iter().map(|peer| shown(cell(subject, peer)));
        table.add_row([subject.name.clone()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table
}

fn probes(probed: &[Probed]) -> Table {
    let name = |it: &Probed| format!("{} ({})", it.name, it.unit);
    let mut table = table(["allocator".to_string()].into_iter().chain(probed.iter().map(name)).collect());
    let median = |values: &Result<Vec<f64>, String>| match values {
        Ok(values) if !values.is_empty() => format!("{:.1}", Estimate::of(values.clone()).median),
        Ok(_) => NONE.into(),
        Err(why) => why.clone(),
    };
    for (peer, _) in probed.iter().flat_map(|it| it.columns.first().map(|_| &it.columns)).next().into_iter().flatten() {
        let of =
            |it: &Probed| it.columns.iter().find(|(name, _)| name == peer).map_or(NONE.into(), |(_, values)| median(values));
        table.add_row([peer.clone()].into_iter().chain(probed.iter().map(of)).collect::<Vec<_>>());
    }
    table
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::subject;

    #[test]
    fn every_subject_and_failure_is_shown() {
        let mut subjects =
            vec![subject("a", Kind::Micro, &[(GLIBC, 4), ("x", 2)]), subject("b", Kind::Program, &[(GLIBC, 8)])];
        subjects[0].columns[1].failure = Some("hung".into());
        let text = text(&Results { head: "head".into(), subjects, probed: Vec::new() });
        for part in ["head", "a: ", "b: ", "x: hung", "Programs: CPU time"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_summary_says_how_many_were_compared() {
        let subjects = vec![
            subject("a", Kind::Micro, &[(GLIBC, 4), ("x", 2), (FREESTONE, 1)]),
            subject("b", Kind::Micro, &[(GLIBC, 4), (FREESTONE, 1)]),
            subject("small", Kind::Memory, &[(GLIBC, 1), (FREESTONE, 1)]),
            subject("c", Kind::Program, &[(GLIBC, 8), ("y", 4)]),
        ];
        let text = summary(&Results { head: String::new(), subjects, probed: Vec::new() });
        let cells = |line: &str| line.split('|').map(|it| it.trim().to_string()).collect::<Vec<_>>().join("|");
        let lines: Vec<_> = text.lines().map(cells).collect();
        for line in [
            "|allocator|2 micro workloads: CPU|2 micro workloads: peak|2 all workloads: peak|1 programs: CPU|1 programs: peak|",
            "|glibc|1.00|1.00|1.00|1.00|1.00|",
            "|x|0.50 (1)|0.50 (1)|0.50 (1)|–|–|",
            "|freestone|0.25|0.25|0.25|–|–|",
            "|y|–|–|–|0.50|0.50|",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_bar_says_whether_it_is_met() {
        let text = bars(&[Bar { what: "w".into(), value: None, limit: 1.0 }], "here");
        assert!(text.contains("not measured"));
    }
}
