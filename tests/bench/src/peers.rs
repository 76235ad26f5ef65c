//! The allocators, and the settings in which each is measured.
//!
//! Called by [`crate::runner`] for what a child needs, and by `main` within the child; asks [`crate::builds`] for the program
//! that holds an allocator and [`crate::libraries`] for the one to preload.

use crate::builds;
use crate::floor::Floor;
use crate::heap::{Tested, layout};
use crate::libraries::Library;
use crate::watch::{Length, Sample};
use crate::workloads::Workload;
use freestone_linux::{Freestone, Mode, mode};
use mimalloc::MiMalloc;
use rusty_alloc_api::RustyAlloc;
use snmalloc_rs::SnMalloc;
use std::alloc::{GlobalAlloc, System};
use std::path::PathBuf;
use std::process::Command;
use tikv_jemallocator::Jemalloc;

/// One column of the comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// The crate, or for a preload the Debian package, whose version is printed beside the name.
    pub package: Option<&'static str>,
    allocator: Allocator,
    environment: &'static [(&'static str, &'static str)],
}

#[derive(Debug, PartialEq, Eq)]
enum Allocator {
    Floor,
    System,
    Mimalloc2,
    Mimalloc3,
    Jemalloc,
    Snmalloc,
    RustyAlloc,
    Rpmalloc,
    Tcmalloc,
    Freestone,
    Preloaded(Library),
}

/// What is to be done with an allocator, whichever it is.
pub trait Visit {
    /// What comes out.
    type Outcome;

    /// Does it.
    fn visit<A: GlobalAlloc + Sync + 'static>(self, allocator: &'static A) -> Self::Outcome;
}

/// The name of the column that the others are compared with.
pub const GLIBC: &str = "glibc";
/// The name of Freestone's own column.
pub const FREESTONE: &str = "freestone";
/// The name of Freestone's own column among the preloads.
pub const FREESTONE_PRELOADED: &str = "libfreestone.so";
/// The name of the column that the bars of the fast path are measured against.
pub const FLOOR: &str = "floor";
/// The name of the peer that the bars of the fast path name.
pub const SNMALLOC: &str = "snmalloc";

const fn peer(name: &'static str, package: &'static str, allocator: Allocator) -> Peer {
    Peer { name, package: Some(package), allocator, environment: &[] }
}

const fn preloaded(name: &'static str, library: Library) -> Peer {
    Peer { name, package: library.package, allocator: Allocator::Preloaded(library), environment: &[] }
}

impl Peer {
    const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }
}

/// mimalloc asks for huge pages unless told not to, in both versions.
const NO_HUGE_PAGES: &[(&str, &str)] = &[("MIMALLOC_ALLOW_THP", "0")];
/// tcmalloc has its per-core caches only where glibc has not taken the rseq registration.
const RSEQ_LEFT_FREE: &[(&str, &str)] = &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];

/// All of them, in the order of the tables.
pub const PEERS: [Peer; 17] = [
    Peer { name: FLOOR, package: None, allocator: Allocator::Floor, environment: &[] },
    Peer { name: GLIBC, package: None, allocator: Allocator::System, environment: &[] },
    peer("mimalloc-3", "mimalloc", Allocator::Mimalloc3),
    peer("mimalloc-3 thp=0", "mimalloc", Allocator::Mimalloc3).with(NO_HUGE_PAGES),
    peer("mimalloc-2", "mimalloc", Allocator::Mimalloc2),
    peer("mimalloc-2 thp=0", "mimalloc", Allocator::Mimalloc2).with(NO_HUGE_PAGES),
    peer("jemalloc", "tikv-jemallocator", Allocator::Jemalloc),
    peer(SNMALLOC, "snmalloc-rs", Allocator::Snmalloc),
    peer("tcmalloc", "tcmalloc-better", Allocator::Tcmalloc).with(RSEQ_LEFT_FREE),
    peer("rpmalloc", "rpmalloc", Allocator::Rpmalloc),
    peer("rusty_alloc", "rusty_alloc-api", Allocator::RustyAlloc),
    peer(FREESTONE, "freestone-linux", Allocator::Freestone),
    peer("freestone rseq=off", "freestone-linux", Allocator::Freestone).with(&[("FREESTONE_CONF", "rseq=off")]),
    preloaded("libmimalloc.so", Library::MIMALLOC),
    preloaded("libjemalloc.so", Library::JEMALLOC),
    preloaded("libtcmalloc_minimal.so", Library::TCMALLOC),
    preloaded(FREESTONE_PRELOADED, Library::FREESTONE),
];

impl Peer {
    /// The column of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| format!("no allocator is named {name:?}"))
    }

    /// Why it cannot be measured here, if it cannot. Builds its program where that is another one.
    pub fn missing(&self) -> Option<String> {
        match (&self.allocator, self.feature()) {
            (Allocator::Preloaded(library), _) => library.missing(),
            (_, Some(feature)) => builds::build(feature).err().map(|why| format!("{} is left out: {why}", self.name)),
            _ => None,
        }
    }

    /// Whether it works for any program, and not only as a crate within this one.
    pub fn serves_programs(&self) -> bool {
        matches!(self.allocator, Allocator::System | Allocator::Preloaded(_))
    }

    /// Whether it is preloaded.
    pub fn is_preload(&self) -> bool {
        matches!(self.allocator, Allocator::Preloaded(_))
    }

    /// Whether it can do that workload: the floor does only those of one thread that it is the floor of.
    pub fn fits(&self, workload: &Workload) -> bool {
        self.allocator != Allocator::Floor || workload.name.starts_with("pair-") || workload.name.starts_with("window-64")
    }

    /// Gives the child an environment in which nothing but the setting is said.
    pub fn prepare(&self, child: &mut Command) {
        child.env_clear();
        child.envs(self.environment.iter().copied());
        if let Allocator::Preloaded(library) = &self.allocator {
            child.env("LD_PRELOAD", library.path().unwrap_or_else(|| library.file.into()));
        }
    }

    /// This program as the build that holds the allocator, to be started with arguments of its own.
    pub fn program(&self) -> Result<Command, String> {
        let path: PathBuf = builds::program(self.feature())?;
        let mut command = Command::new(path);
        self.prepare(&mut command);
        Ok(command)
    }

    /// Runs `workload` in this process, which was started as [`prepare`](Self::prepare) has it.
    pub fn measure(&self, workload: &Workload, length: Length) -> Result<Sample, String> {
        if !self.fits(workload) {
            return Err(format!("{} cannot do {}", self.name, workload.name));
        }
        let sample = self.visit(Run(workload, length))?;
        self.check().map(|()| sample)
    }

    /// Lets `visitor` have the allocator of this process. Allocates nothing, and checks nothing: see [`check`](Self::check).
    pub fn visit<V: Visit>(&self, visitor: V) -> Result<V::Outcome, String> {
        Ok(match self.allocator {
            Allocator::Floor => visitor.visit(&Floor),
            Allocator::System | Allocator::Preloaded(_) => visitor.visit(&System),
            Allocator::Mimalloc2 | Allocator::Mimalloc3 => visitor.visit(&MiMalloc),
            Allocator::Jemalloc => visitor.visit(&Jemalloc),
            Allocator::Snmalloc => visitor.visit(&SnMalloc),
            Allocator::RustyAlloc => visitor.visit(&RustyAlloc),
            Allocator::Freestone => visitor.visit(&Freestone),
            #[cfg(feature = "rpmalloc")]
            Allocator::Rpmalloc => visitor.visit(&rpmalloc::RpMalloc),
            #[cfg(feature = "tcmalloc")]
            Allocator::Tcmalloc => visitor.visit(&tcmalloc_better::TCMalloc),
            #[cfg(not(all(feature = "rpmalloc", feature = "tcmalloc")))]
            _ => return Err(format!("{} is not in this build", self.name)),
        })
    }

    /// Whether this process is what the column says: the right build, with the right library, in the right mode. It allocates.
    pub fn check(&self) -> Result<(), String> {
        builds::check(self.feature())?;
        self.check_preload()?;
        self.check_mode()
    }

    /// The feature of this package with which the allocator is in the program; `None`: without any.
    fn feature(&self) -> Option<&'static str> {
        match self.allocator {
            Allocator::Mimalloc2 => Some(builds::MIMALLOC_2),
            Allocator::Rpmalloc => Some(builds::RPMALLOC),
            Allocator::Tcmalloc => Some(builds::TCMALLOC),
            _ => None,
        }
    }

    /// Freestone goes on without rseq where there is none: the figures would be those of the other column. The library cannot
    /// be asked; it chooses as the crate does, so the crate in the same process is made to choose in its place.
    fn check_mode(&self) -> Result<(), String> {
        if ![Allocator::Freestone, Allocator::Preloaded(Library::FREESTONE)].contains(&self.allocator) {
            return Ok(());
        }
        let heap = Tested(&Freestone);
        heap.unmake(heap.make(layout(64), 0));
        match (self.environment.is_empty(), mode()) {
            (true, Mode::Rseq(_)) | (false, Mode::Claims) => Ok(()),
            (_, found) => Err(format!("works as {found:?}: choose the columns with --peer")),
        }
    }

    /// The loader goes on without a library that it cannot load: the figures would be glibc's.
    fn check_preload(&self) -> Result<(), String> {
        match &self.allocator {
            Allocator::Preloaded(library) => Library::check_loaded(Some(library)),
            _ => Library::check_loaded(None),
        }
    }
}

struct Run<'a>(&'a Workload, Length);

impl Visit for Run<'_> {
    type Outcome = Sample;

    fn visit<A: GlobalAlloc + Sync + 'static>(self, allocator: &'static A) -> Sample {
        self.0.run(allocator, self.1)
    }
}
