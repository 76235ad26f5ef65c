//! The tables of the project's README, in Markdown as it stands there: a choice of what [`crate::report`] has.
//!
//! Called by `main`; reads [`crate::results`], and asks [`crate::bars`] and [`crate::report`] for what they work out of them.
//! A column without any figure is left out.
#![forbid(unsafe_code)]

use crate::bars::{cost, is_micro, is_program, is_workload, memory, time};
use crate::peers::{FREESTONE, FREESTONE_PRELOADED, GLIBC, SNMALLOC};
use crate::report::{Compared, NONE};
use crate::results::{Figure, Kind, Probed, Results, Subject};

/// The allocators, by their names in the results and in the headings.
const PEERS: [(&str, &str); 11] = [
    (GLIBC, "glibc"),
    ("mimalloc-2", "mimalloc 2"),
    ("mimalloc-3", "mimalloc 3"),
    ("jemalloc", "jemalloc"),
    (SNMALLOC, "snmalloc"),
    ("rusty_alloc", "rusty_alloc"),
    (FREESTONE, "**freestone**"),
    ("libmimalloc.so", "libmimalloc"),
    ("libjemalloc.so", "libjemalloc"),
    ("libtcmalloc_minimal.so", "libtcmalloc"),
    (FREESTONE_PRELOADED, "**libfreestone**"),
];

/// The workloads, and what the README says of them.
const WORKLOADS: [(&str, &str); 12] = [
    ("pair-64", "malloc + free of 64 B, by call"),
    ("pair-64-inlined", "the same, inlined (fat LTO)"),
    ("window-64", "replace a random one of 64 blocks, 16 sizes"),
    ("window-100k", "the same of 100,000 blocks"),
    ("batch", "allocate 10,000 of 64 B, then free them"),
    ("mixed-random-100k", "8 B to 2 KiB at random, oldest of 1,000 freed"),
    ("server", "4 threads hand tables of blocks on"),
    ("churn", "threads come and go"),
    ("fragmentation", "100,000 blocks, nine of ten freed, then another size"),
    ("vectors-pushed", "vectors grow by an element"),
    ("large-full", "50 KB to 5 MB, each page touched"),
    ("calloc", "zeroed tables of 64 KiB to 8 MiB"),
];

/// The probes, and what the README says of them; two in one row stand in one cell.
const PROBES: [(&[&str], &str); 4] = [
    (&["thread-500"], "500 live threads that allocated a little, KiB a thread"),
    (&["idle-1000"], "1,000 idle threads that freed all, KiB a thread"),
    (&["thread-64-release"], "64 threads that freed 6.5 MB each and sleep, MiB"),
    (&["cold-setup", "cold-1000"], "system calls for memory before the first `malloc(16)`, and for 1,000 more"),
];

/// A row: its first cell, and the others, one for each of [`PEERS`].
struct Row {
    title: String,
    cells: Vec<Option<String>>,
}

impl Row {
    fn new(title: impl Into<String>, cell: impl Fn(&str) -> Option<String>) -> Self {
        Self { title: title.into(), cells: PEERS.iter().map(|(peer, _)| cell(peer)).collect() }
    }
}

/// All of them.
pub fn text(results: &Results) -> String {
    let tables = [workloads(results), programs(results), probes(results)];
    tables.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n")
}

fn workloads(results: &Results) -> String {
    let figure = |it: &Subject, peer: &str| cost(it, peer).map(number);
    let found = WORKLOADS.iter().filter_map(|(name, title)| Some((results.subject(name)?, title)));
    let mut rows: Vec<_> = found.map(|(it, title)| Row::new(*title, |peer| figure(it, peer))).collect();
    let means = [Compared::new(results, is_micro, time()), Compared::new(results, is_workload, memory())];
    let titles = [
        format!("**{} workloads, geometric mean × glibc**", means[0].all),
        format!("**peak resident size × glibc ({} workloads over 1 MiB)**", means[1].all),
    ];
    rows.extend(titles.into_iter().zip(&means).map(|(title, mean)| Row::new(title, |peer| mean.cell(results, peer))));
    markdown("ns of CPU an operation", &rows)
}

/// Without a column for glibc, which is what the others are compared with.
fn programs(results: &Results) -> String {
    let row = |title: String, cell: &dyn Fn(&str) -> Option<String>| {
        Row::new(title, |peer| if peer == GLIBC { None } else { cell(peer) })
    };
    let cell = |it: &Subject, peer: &str| {
        let ratio = |(figure, least): (Figure, f64)| Some(it.ratio(peer, GLIBC, figure, least)?.median);
        Some(format!("{:.2} · {:.2}", ratio(time())?, ratio(memory())?))
    };
    let means = [time(), memory()].map(|measure| Compared::new(results, is_program, measure));
    let mean = |peer: &str| {
        let [time, memory] = means.each_ref().map(|mean| mean.cell(results, peer));
        Some(format!("**{}** · **{}**", time?, memory?))
    };
    let subjects = results.of_kind(Kind::Program);
    let mut rows: Vec<_> = subjects.map(|it| row(it.name.clone(), &|peer| cell(it, peer))).collect();
    rows.push(row("**geometric mean**".into(), &mean));
    markdown("CPU time × glibc · peak resident size × glibc", &rows)
}

fn probes(results: &Results) -> String {
    let shown = |it: &Probed, peer: &str| {
        let median = it.median(peer)?;
        Some(if it.unit == "calls" { format!("{median:.0}") } else { number(median) })
    };
    let rows: Vec<_> = PROBES
        .iter()
        .map(|(names, title)| {
            let probed: Vec<_> = results.probed.iter().filter(|it| names.contains(&&*it.name)).collect();
            let cell = |peer: &str| probed.iter().map(|it| shown(it, peer)).collect::<Option<Vec<_>>>();
            Row::new(*title, |peer| cell(peer).filter(|it| it.len() == names.len()).map(|it| it.join(" · ")))
        })
        .collect();
    markdown("", &rows)
}

/// The rows, and of the columns those that have a figure. Nothing where none has.
fn markdown(corner: &str, rows: &[Row]) -> String {
    let columns: Vec<_> = (0..PEERS.len()).filter(|&n| rows.iter().any(|row| row.cells[n].is_some())).collect();
    if columns.is_empty() {
        return String::new();
    }
    let heading = columns.iter().map(|&n| PEERS[n].1);
    let mut text = line([corner].into_iter().chain(heading)) + "|" + &"---|".repeat(columns.len() + 1) + "\n";
    for row in rows {
        let cells = columns.iter().map(|&n| row.cells[n].as_deref().unwrap_or(NONE));
        text += &line([&*row.title].into_iter().chain(cells));
    }
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// With a digit behind the point below a hundred; else whole, in groups of three digits.
fn number(value: f64) -> String {
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let (first, rest) = digits.split_at((digits.len() - 1) % 3 + 1);
    rest.as_bytes().chunks(3).fold(first.to_string(), |text, group| text + "," + &String::from_utf8_lossy(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::subject;

    fn probed(name: &str, unit: &str, value: f64) -> Probed {
        let columns = vec![(GLIBC.into(), Ok(vec![value])), (FREESTONE.into(), Err("no".into()))];
        Probed { name: name.into(), what: String::new(), unit: unit.into(), bar: None, columns }
    }

    #[test]
    fn numbers_are_grouped() {
        let shown = [0.0, 8.25, 99.94, 99.96, 999.6, 12_345.6, 1_234_567.0].map(number);
        assert_eq!(shown, ["0.0", "8.2", "99.9", "100", "1,000", "12,346", "1,234,567"]);
    }

    #[test]
    fn a_table_has_the_columns_with_figures() {
        let subjects = vec![
            subject("pair-64", Kind::Basic, &[(GLIBC, 10), (FREESTONE, 5), ("floor", 2)]),
            subject("churn", Kind::Micro, &[(GLIBC, 2000), (FREESTONE, 1000)]),
            subject("server", Kind::Micro, &[(GLIBC, 300)]),
        ];
        let expected = "\
            | ns of CPU an operation | glibc | **freestone** |\n\
            |---|---|---|\n\
            | malloc + free of 64 B, by call | 10.0 | 5.0 |\n\
            | 4 threads hand tables of blocks on | 300 | – |\n\
            | threads come and go | 2,000 | 1,000 |\n\
            | **2 workloads, geometric mean × glibc** | 1.00 | 0.50 (1) |\n\
            | **peak resident size × glibc (3 workloads over 1 MiB)** | 1.00 | 0.50 (2) |\n";
        assert_eq!(workloads(&Results { head: String::new(), subjects, probed: Vec::new() }), expected);
    }

    #[test]
    fn programs_stand_beside_glibc() {
        let subjects = vec![
            subject("lua", Kind::Program, &[(GLIBC, 10), (FREESTONE_PRELOADED, 8)]),
            subject("ruby", Kind::Program, &[(GLIBC, 10), (FREESTONE_PRELOADED, 2)]),
        ];
        let expected = "\
            | CPU time × glibc · peak resident size × glibc | **libfreestone** |\n\
            |---|---|\n\
            | lua | 0.80 · 0.80 |\n\
            | ruby | 0.20 · 0.20 |\n\
            | **geometric mean** | **0.40** · **0.40** |\n";
        assert_eq!(programs(&Results { head: String::new(), subjects, probed: Vec::new() }), expected);
    }

    #[test]
    fn calls_of_two_probes_stand_in_one_cell() {
        let probed =
            vec![probed("idle-1000", "KiB", 100.4), probed("cold-setup", "calls", 2.0), probed("cold-1000", "calls", 0.0)];
        let text = probes(&Results { head: String::new(), subjects: Vec::new(), probed });
        assert!(text.starts_with("|  | glibc |\n|---|---|\n| 500 live threads"), "{text}");
        for row in ["KiB a thread | – |", "KiB a thread | 100 |", "for 1,000 more | 2 · 0 |"] {
            assert!(text.contains(row), "{row} in {text}");
        }
    }
}
