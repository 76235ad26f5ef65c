//! Where figures come from: the machine, the versions of everything, and how often and how long it ran.
//!
//! Called by `main` before the first run.

use crate::args::Args;
use crate::peers::Peer;
use std::ffi::CStr;
use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

/// The versions of the crates stand nowhere else: no two of them agree on a way to ask them.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");

/// The head of all tables.
pub fn head(args: &Args, peers: &[&Peer]) -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    format!(
        "{} · {cores} cores · Linux {} · huge pages: {} · load {}\nglibc {}, {}\n{} rounds, {} ms or more a run\n",
        cpu(),
        line("/proc/sys/kernel/osrelease"),
        line("/sys/kernel/mm/transparent_hugepage/enabled"),
        line("/proc/loadavg"),
        glibc(),
        versions(peers).join(", "),
        args.rounds,
        args.time.as_millis(),
    )
}

fn versions(peers: &[&Peer]) -> Vec<String> {
    let version = |peer: &&Peer| {
        let package = peer.package?;
        let version = if peer.is_preload() { installed(package) } else { locked(package).map(String::from) };
        Some(format!("{package} {}", version?))
    };
    let mut versions: Vec<_> = peers.iter().filter_map(version).collect();
    // The settings of an allocator stand beside each other.
    versions.dedup();
    versions
}

/// The version of a crate out of the lock file.
fn locked(package: &str) -> Option<&'static str> {
    let (_, after) = LOCK_FILE.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(after.split_once('"')?.0)
}

/// The version of a Debian package.
fn installed(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["--show", "--showformat=${Version}", package]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
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
    use crate::peers::PEERS;

    #[test]
    fn every_crate_is_in_the_lock_file() {
        for peer in PEERS.iter().filter(|peer| !peer.is_preload()) {
            assert!(peer.package.is_none_or(|package| locked(package).is_some()), "{}", peer.name);
        }
    }
}
