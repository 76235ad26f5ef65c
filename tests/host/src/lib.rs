//! Where the figures of a benchmark come from: the machine, the kernel, and the versions of the crates.
//!
//! For Linux. Called by the heads of both benchmarks' reports; calls nobody.
#![forbid(unsafe_code)]

use std::fs;
use std::thread::available_parallelism;

/// The versions of the crates stand nowhere else: no two of them agree on a way to ask them.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");

/// The processor, how many cores there are, the kernel, and the load.
pub fn machine() -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    let (kernel, load) = (line("/proc/sys/kernel/osrelease"), line("/proc/loadavg"));
    format!("{} · {cores} cores · Linux {kernel} · load {load}", cpu())
}

/// The file's only line.
pub fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_string())
}

/// The version of a crate out of the lock file; `None` if it is not in there.
pub fn locked(package: &str) -> Option<&'static str> {
    let (_, after) = LOCK_FILE.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(after.split_once('"')?.0)
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split_once(": ")).map_or("unknown processor", |(_, name)| name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_to_be_unknown() {
        assert_eq!(line("/proc/no such file"), "unknown");
        assert_eq!(locked("no such crate"), None);
    }

    #[test]
    fn this_package_is_in_the_lock_file() {
        assert_eq!(locked("freestone-host"), Some(env!("CARGO_PKG_VERSION")));
    }
}
