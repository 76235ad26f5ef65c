//! The head and the tables, in Markdown, so that they can be pasted.
//!
//! Called by `main`; reads what [`crate::timing`], [`crate::memory`] and [`crate::counts`] collected. `freestone-host`
//! says where the figures come from.
#![forbid(unsafe_code)]

use crate::arena::Size;
use crate::args::Args;
use crate::columns::BASES;
use crate::counts::{self, ATTACKED, Attacked, Counts, Kind, LIMIT, Traced};
use crate::memory::{self, Filled};
use crate::timing::{Measured, Sample};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use freestone_host::{locked, machine};
use std::fmt::Write;

/// The machine, the allocators' versions, and how often things were done.
pub fn head(args: &Args) -> String {
    let mut versions: Vec<_> =
        args.columns.iter().filter_map(|it| Some(format!("{} {}", it.package, locked(it.package)?))).collect();
    versions.dedup();
    format!(
        "{}\ncrates: {}\n{} rounds, {} ms or more a run; {} seeds\n",
        machine(),
        versions.join(", "),
        args.rounds,
        args.time.as_millis(),
        args.seeds,
    )
}

/// One table a trace and arena. `Err`: the allocators disagree about what they were given to keep.
pub fn times(results: &[Measured]) -> Result<String, String> {
    let mut text = String::new();
    for result in results {
        let title = format!("{:?}, {} arena: time of an operation", result.shape, result.size.name());
        section(&mut text, &title, &time_table(result));
        let _ = writeln!(text, "\nchecksum {:016x}; {}", agreed_sum(result)?, disturbance(result));
    }
    Ok(text)
}

/// The sum of those that refused nothing.
fn agreed_sum(result: &Measured) -> Result<u64, String> {
    let samples = result.rows.iter().flat_map(|(_, samples)| samples);
    let mut sums: Vec<_> = samples.filter(|sample| sample.refused == 0.0).map(|sample| sample.sum).collect();
    sums.dedup();
    match sums[..] {
        [] => Ok(0),
        [sum] => Ok(sum),
        _ => Err(format!("{:?}: the checksums differ, an allocator lost what was written", result.shape)),
    }
}

fn disturbance(result: &Measured) -> String {
    let samples = result.rows.iter().flat_map(|(_, samples)| samples);
    let (all, waited) = (samples.clone().count(), samples.filter(|sample| sample.waited).count());
    format!("{waited} of {all} runs waited for a core over 2 % of their time")
}

fn time_table(result: &Measured) -> Table {
    let mut table = table(&["allocator", "ns", "quartiles", "× talc", "× freestone", "refused"]);
    for (column, samples) in &result.rows {
        let [low, median, high] = quartiles(samples.iter().map(|sample| sample.cost));
        table.add_row([
            column.name.to_string(),
            format!("{median:.1}"),
            format!("{low:.1} – {high:.1}"),
            ratio(result, samples, BASES[0]),
            ratio(result, samples, BASES[1]),
            format!("{:.2} %", 100.0 * samples.first().map_or(0.0, |sample| sample.refused)),
        ]);
    }
    right(table)
}

/// The median over the rounds of the ratio to the base; a dash without one.
fn ratio(result: &Measured, samples: &[Sample], names: &[&str]) -> String {
    let of = |name: &&str| result.rows.iter().find(|(column, _)| column.name == *name);
    let Some((_, bases)) = names.iter().find_map(of) else { return "–".into() };
    let [_, median, _] = quartiles(samples.iter().zip(bases).map(|(sample, base)| sample.cost / base.cost));
    format!("{median:.2}")
}

/// One table an arena.
pub fn memory(results: &[Filled]) -> String {
    let mut text = String::new();
    for size in memory::ARENAS {
        let header = ["with realloc", "without", "4..128 B"];
        let whole = header.map(|mix| format!("{mix}, of all"));
        let columns =
            ["allocator"].into_iter().chain(header).chain(["kept outside"]).chain(whole.iter().map(String::as_str));
        let mut table = table(&columns.collect::<Vec<_>>());
        for result in results.iter().filter(|result| result.size == size) {
            let state = result.column.runs(size).map_or(0, |runs| runs.state);
            let all = size.len() as f64 / (size.len() + state) as f64;
            let mut cells = vec![result.column.name.to_string()];
            cells.extend(result.parts.iter().map(|parts| percent(parts, 1.0)));
            cells.push(format!("{state} B"));
            cells.extend(result.parts.iter().map(|parts| percent(parts, all)));
            table.add_row(cells);
        }
        let title = format!("{} arena: live at the first refusal in per cent, mean ± standard error", size.name());
        section(&mut text, &title, &right(table));
    }
    text + "\nOf all: in per cent of the arena together with what is kept outside of it.\n"
}

/// Mean and standard error.
fn percent(parts: &[f64], factor: f64) -> String {
    let count = parts.len() as f64;
    let mean = parts.iter().sum::<f64>() / count;
    let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    format!("{:.1} ± {:.1}", 100.0 * factor * mean, 100.0 * factor * (variance / count).sqrt())
}

/// One table an arena: median, 99th percentile and maximum of each kind of call.
pub fn counts(results: &[Traced]) -> String {
    let mut text = String::new();
    for size in [Size::Small, Size::Middle] {
        let mut table = table(&["allocator", "allocate", "free", "reallocate", "refused", "copied"]);
        for Traced { column, counts, .. } in results.iter().filter(|result| result.size == size) {
            let kinds = [Kind::Allocate, Kind::Free, Kind::Resize, Kind::Refused];
            let mut cells = vec![column.name.to_string()];
            cells.extend(kinds.map(|kind| spread(counts.of(kind))));
            cells.push(format!("{} of {}", counts.of(Kind::Copy).len(), counts.of(Kind::Resize).len()));
            table.add_row(cells);
        }
        let title = format!("{} arena, random actions: instructions of a call, p50 / p99 / max", size.name());
        section(&mut text, &title, &right(table));
    }
    text + "\nReallocations without their copying; how many copied is in the last column.\n"
}

/// Median, 99th percentile and maximum.
fn spread(counts: &[u32]) -> String {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let at = |part: usize| sorted.get((sorted.len() * part / 100).min(sorted.len().saturating_sub(1)));
    let [p50, p99, max] = [50, 99, 100].map(|part| number(at(part).copied()));
    format!("{p50} / {p99} / {max}")
}

/// One table an attack: the worst call of each kind in either arena.
pub fn attacks(results: &[Attacked]) -> String {
    let mut text = String::new();
    for rows in results.chunk_by(|a, b| a.attack == b.attack) {
        let mut table = table(&["allocator", "allocate", "free", "reallocate", "refused"]);
        for Attacked { column, counts, .. } in rows {
            let kinds = [Kind::Allocate, Kind::Free, Kind::Resize, Kind::Refused];
            table.add_row([vec![column.name.to_string()], kinds.map(|kind| growth(counts, kind)).into()].concat());
        }
        let title =
            format!("{:?}: instructions of the worst call, {}", rows[0].attack, ATTACKED.map(Size::name).join(" → "));
        section(&mut text, &title, &right(table));
    }
    let patience = counts::PATIENCE.as_secs();
    text + &format!(
        "\nA dash: no such call, no such arena, or over {patience} s to make the heap, for calls that walk lists.\n"
    )
}

fn growth(counts: &[Option<Counts>; 2], kind: Kind) -> String {
    let worst = counts.each_ref().map(|counts| counts.as_ref().and_then(|counts| counts.of(kind).iter().copied().max()));
    worst.map(number).join(" → ")
}

fn number(count: Option<u32>) -> String {
    match count {
        None => "–".into(),
        Some(count) if count >= LIMIT => format!("over {LIMIT}"),
        Some(count) => count.to_string(),
    }
}

fn section(text: &mut String, title: &str, table: &Table) {
    let _ = write!(text, "\n{title}\n\n{table}\n");
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header);
    table
}

fn right(mut table: Table) -> Table {
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Lower quartile, median and upper quartile, interpolated between neighbours. At least one value.
fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|part| {
        let place = part * (values.len() - 1) as f64;
        let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
        below + (above - below) * place.fract()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::COLUMNS;

    #[test]
    fn quartiles_are_interpolated() {
        assert_eq!(quartiles([5.0].into_iter()), [5.0; 3]);
        assert_eq!(quartiles([4.0, 1.0, 3.0, 2.0].into_iter()), [1.75, 2.5, 3.25]);
        assert_eq!(quartiles([1.0, 2.0, 3.0, 4.0, 5.0].into_iter()), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_mean_has_its_standard_error() {
        assert_eq!(percent(&[0.5], 1.0), "50.0 ± 0.0");
        assert_eq!(percent(&[0.4, 0.6, 0.4, 0.6], 0.5), "25.0 ± 2.9");
    }

    #[test]
    fn a_spread_is_of_counts_that_were_counted() {
        assert_eq!(spread(&[]), "– / – / –");
        assert_eq!(spread(&[7]), "7 / 7 / 7");
        assert_eq!(spread(&(1..=200).collect::<Vec<_>>()), "101 / 199 / 200");
        assert_eq!(spread(&[1, 2, LIMIT]), "2 / over 40000 / over 40000");
    }

    #[test]
    fn every_package_is_in_the_lock_file() {
        assert!(COLUMNS.iter().all(|column| locked(column.package).is_some()));
    }
}
