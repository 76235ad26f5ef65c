//! The allocators, and the settings in which each is measured.
//!
//! Called by [`crate::runner`] for what a child needs, and by `main` within the child.
#![forbid(unsafe_code)]

use crate::watch::Sample;
use crate::workloads::Workload;
use freestone_linux::{Freestone, Mode, mode};
use mimalloc::MiMalloc;
use rusty_alloc_api::RustyAlloc;
use snmalloc_rs::SnMalloc;
use std::alloc::System;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tikv_jemallocator::Jemalloc;

/// One column of the comparison.
#[derive(PartialEq, Eq)]
pub struct Peer {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// The package whose version is printed beside the name.
    pub package: Option<&'static str>,
    allocator: Allocator,
    setting: Setting,
}

#[derive(PartialEq, Eq)]
enum Allocator {
    System,
    Mimalloc,
    Jemalloc,
    Snmalloc,
    RustyAlloc,
    Freestone,
}

#[derive(PartialEq, Eq)]
enum Setting {
    Plain,
    WithoutRseq,
    Preloaded,
}

/// The name of the column that the others are compared with.
pub const GLIBC: &str = "glibc";
/// The name of Freestone's own column.
pub const FREESTONE: &str = "freestone";

const LIBRARY: &str = "libfreestone.so";
const MIMALLOC: &str = if cfg!(feature = "mimalloc-v2") { "mimalloc-2" } else { "mimalloc-3" };

/// The packages whose build scripts take a profile with debug information for a debug build, and then leave assertions on.
const MISTAKEN: [&str; 2] = ["libmimalloc-sys", "snmalloc-sys"];
const MANIFEST: &str = include_str!("../../../Cargo.toml");

/// All of them, in the order of the tables.
pub const PEERS: [Peer; 8] = [
    Peer { name: GLIBC, package: None, allocator: Allocator::System, setting: Setting::Plain },
    Peer { name: MIMALLOC, package: Some("mimalloc"), allocator: Allocator::Mimalloc, setting: Setting::Plain },
    Peer { name: "jemalloc", package: Some("tikv-jemallocator"), allocator: Allocator::Jemalloc, setting: Setting::Plain },
    Peer { name: "snmalloc", package: Some("snmalloc-rs"), allocator: Allocator::Snmalloc, setting: Setting::Plain },
    Peer {
        name: "rusty_alloc",
        package: Some("rusty_alloc-api"),
        allocator: Allocator::RustyAlloc,
        setting: Setting::Plain,
    },
    Peer { name: FREESTONE, package: Some("freestone-linux"), allocator: Allocator::Freestone, setting: Setting::Plain },
    Peer { name: "freestone rseq=off", package: None, allocator: Allocator::Freestone, setting: Setting::WithoutRseq },
    Peer { name: LIBRARY, package: None, allocator: Allocator::System, setting: Setting::Preloaded },
];

impl Peer {
    /// The column of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| format!("no allocator is named {name:?}"))
    }

    /// Why it cannot be measured here, if it cannot.
    pub fn missing(&self) -> Option<String> {
        (self.setting == Setting::Preloaded && library().is_none()).then(|| {
            format!("{LIBRARY} is left out: build it with `cargo build --release -p freestone-preload`, or set FREESTONE_SO")
        })
    }

    /// Gives the child an environment in which nothing but the setting is said.
    pub fn prepare(&self, child: &mut Command) {
        child.env_clear();
        match self.setting {
            Setting::Plain => {}
            Setting::WithoutRseq => {
                child.env("FREESTONE_CONF", "rseq=off");
            }
            Setting::Preloaded => {
                child.env("LD_PRELOAD", library().unwrap_or_else(|| LIBRARY.into()));
            }
        }
    }

    /// Runs `workload` in this process, which was started as [`prepare`](Self::prepare) has it.
    pub fn measure(&self, workload: &Workload, time: Duration) -> Result<Sample, String> {
        self.check_preload()?;
        let sample = match self.allocator {
            Allocator::System => workload.run(&System, time),
            Allocator::Mimalloc => workload.run(&MiMalloc, time),
            Allocator::Jemalloc => workload.run(&Jemalloc, time),
            Allocator::Snmalloc => workload.run(&SnMalloc, time),
            Allocator::RustyAlloc => workload.run(&RustyAlloc, time),
            Allocator::Freestone => workload.run(&Freestone, time),
        };
        self.check_mode().map(|()| sample)
    }

    /// Freestone goes on without rseq where there is none: the figures would be those of the other column.
    fn check_mode(&self) -> Result<(), String> {
        match (&self.allocator, &self.setting, mode()) {
            (Allocator::Freestone, Setting::Plain, Mode::Rseq(_)) => Ok(()),
            (Allocator::Freestone, Setting::WithoutRseq, Mode::Claims) => Ok(()),
            (Allocator::Freestone, _, found) => Err(format!("works as {found:?}: choose the columns with --peer")),
            _ => Ok(()),
        }
    }

    /// The loader goes on without a library that it cannot load: the figures would be glibc's.
    fn check_preload(&self) -> Result<(), String> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
        match (self.setting == Setting::Preloaded, maps.contains(LIBRARY)) {
            (true, false) => Err(format!("{LIBRARY} was not loaded")),
            (false, true) => Err(format!("{LIBRARY} is loaded where it should not be")),
            _ => Ok(()),
        }
    }
}

/// Whether this program was built so that its figures mean something.
pub fn check_build() -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("figures of a debug build mean nothing: use --release".into());
    }
    let unset = |package: &&&str| !MANIFEST.contains(&format!("\n{package} = {{ debug = false }}"));
    match MISTAKEN.iter().find(unset) {
        Some(package) => Err(format!(
            "{package} was built with its assertions, up to 15 times slower: the workspace's [profile.release.package] \
             needs `{package} = {{ debug = false }}`"
        )),
        None => Ok(()),
    }
}

/// The library: where `FREESTONE_SO` points, else beside this program.
fn library() -> Option<PathBuf> {
    let beside = || env::current_exe().ok().map(|exe| exe.with_file_name(LIBRARY));
    env::var_os("FREESTONE_SO").map(PathBuf::from).or_else(beside)?.canonicalize().ok()
}
