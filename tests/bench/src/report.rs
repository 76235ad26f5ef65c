//! The head and the tables, in Markdown, so that they can be pasted.
//!
//! Called by `main`; reads what [`crate::runner`] collected.

use crate::args::Args;
use crate::peers::{FREESTONE, GLIBC, Peer};
use crate::runner::Measured;
use crate::watch::Sample;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use std::ffi::CStr;
use std::fmt::Write;
use std::fs;
use std::thread::available_parallelism;

/// The versions of the peers stand nowhere else: no two of the crates agree on a way to ask them.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");

/// A run that waited longer for a core than this part of its time was disturbed.
const DISTURBED: f64 = 0.02;

/// Below this, a ratio of resident sizes is one of rounding errors.
const LEAST_KIB: f64 = 1024.0;

/// The machine, the allocators' versions, and how the figures come about.
pub fn head(args: &Args, peers: &[&Peer]) -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    let versions: Vec<_> =
        peers.iter().filter_map(|peer| Some(format!("{} {}", peer.name, version(peer.package?)?))).collect();
    format!(
        "{} · {cores} cores · Linux {} · huge pages: {} · load {}\nglibc {}, crates: {}\n{} rounds, {} ms or more a run\n",
        cpu(),
        line("/proc/sys/kernel/osrelease"),
        line("/sys/kernel/mm/transparent_hugepage/enabled"),
        line("/proc/loadavg"),
        glibc(),
        versions.join(", "),
        args.rounds,
        args.time.as_millis(),
    )
}

/// One table a workload. `Err`: the allocators disagree about what they were given to keep.
pub fn tables(results: &[Measured]) -> Result<String, String> {
    let mut text = String::new();
    for result in results {
        let checksum = agreed_checksum(result)?;
        let _ = write!(text, "\n{}: {}\n\n{}\n", result.workload.name, result.workload.what, table(result));
        let _ = write!(text, "\nchecksum {checksum:016x}; {}\n", disturbance(result));
    }
    Ok(text)
}

fn agreed_checksum(result: &Measured) -> Result<u64, String> {
    let mut sums: Vec<_> = result.columns.iter().flat_map(|(_, samples)| samples).map(|it| it.checksum).collect();
    sums.dedup();
    match sums[..] {
        [sum] => Ok(sum),
        _ => Err(format!("{}: the checksums differ, an allocator lost what was written", result.workload.name)),
    }
}

fn disturbance(result: &Measured) -> String {
    let disturbed = |it: &&Sample| it.waited as f64 > DISTURBED * it.nanoseconds as f64;
    let all = result.columns.iter().flat_map(|(_, samples)| samples);
    let (count, bad) = (all.clone().count(), all.filter(disturbed).count());
    format!("{bad} of {count} runs waited for a core over {} % of their time", DISTURBED * 100.0)
}

fn table(result: &Measured) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["allocator", "ns", "quartiles", "× glibc", "× freestone", "peak KiB", "× glibc"]);
    for (peer, samples) in &result.columns {
        let costs = samples.iter().map(Sample::cost);
        let [low, median, high] = quartiles(costs.collect());
        table.add_row([
            peer.name.to_string(),
            format!("{median:.2}"),
            format!("{low:.2} – {high:.2}"),
            ratio(result, samples, GLIBC, Sample::cost, 0.0),
            ratio(result, samples, FREESTONE, Sample::cost, 0.0),
            format!("{:.0}", quartiles(samples.iter().map(grown).collect())[1]),
            ratio(result, samples, GLIBC, grown, LEAST_KIB),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn grown(sample: &Sample) -> f64 {
    sample.grown_kib as f64
}

/// The median over the rounds of `samples` to those of the column named `base`; a dash without one, or where it is too small.
fn ratio(result: &Measured, samples: &[Sample], base: &str, of: fn(&Sample) -> f64, least: f64) -> String {
    let Some((_, bases)) = result.columns.iter().find(|(peer, _)| peer.name == base) else { return "–".into() };
    if bases.iter().any(|it| of(it) <= least) {
        return "–".into();
    }
    let ratios = samples.iter().zip(bases).map(|(it, base)| of(it) / of(base)).collect();
    format!("{:.2}", quartiles(ratios)[1])
}

/// Lower quartile, median and upper quartile, interpolated between neighbours. At least one value.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|part| {
        let place = part * (values.len() - 1) as f64;
        let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
        below + (above - below) * place.fract()
    })
}

/// The version of `package` out of the lock file.
fn version(package: &str) -> Option<&'static str> {
    let (_, after) = LOCK_FILE.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(after.split_once('"')?.0)
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split_once(": ")).map_or("unknown processor", |(_, name)| name).to_string()
}

fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_string())
}

fn glibc() -> String {
    // SAFETY: takes nothing and returns a static string that ends in a zero.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        assert_eq!(quartiles(vec![5.0]), [5.0; 3]);
        assert_eq!(quartiles(vec![4.0, 1.0, 3.0, 2.0]), [1.75, 2.5, 3.25]);
        assert_eq!(quartiles(vec![1.0, 2.0, 3.0, 4.0, 5.0]), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn every_package_is_in_the_lock_file() {
        for package in crate::peers::PEERS.iter().filter_map(|peer| peer.package) {
            assert!(version(package).is_some(), "{package}");
        }
    }
}
