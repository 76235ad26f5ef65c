//! Where figures come from: the machine, the versions of everything, and how often and how long it ran.
//!
//! Called by `main` before the first run; asks `freestone-host` for what both benchmarks say.

use crate::args::Args;
use crate::peers::Peer;
use freestone_host::{line, locked, machine};
use std::ffi::CStr;
use std::process::Command;

/// The head of all tables.
pub fn head(args: &Args, peers: &[&Peer]) -> String {
    format!(
        "{} · huge pages: {}\nglibc {}, {}\n{} rounds, {} ms or more a run\n",
        machine(),
        line("/sys/kernel/mm/transparent_hugepage/enabled"),
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

/// The version of a Debian package.
fn installed(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["--show", "--showformat=${Version}", package]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
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
