//! The probes: what an allocator costs besides time. Each figure comes out of fresh processes that do one thing.
//!
//! Called by [`crate::runner`], and by `main` in the child processes; calls [`threads`] and [`cold`].

mod cold;
mod threads;

use crate::peers::{FLOOR, Peer};
use cold::Phase;
use std::process::Command;
use threads::{Crowd, Figure};

/// One probe, by its name.
pub struct Probe {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// What the figure is.
    pub what: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// What Freestone is to stay within.
    pub bar: Option<f64>,
    kind: Kind,
}

enum Kind {
    Threads(Crowd, Figure),
    Cold(Phase),
}

/// Which of a probe's processes one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The one that allocates.
    Work,
    /// The same program, which does all but that.
    Control,
}

/// All of them, in the order of the tables.
pub const PROBES: [Probe; 6] = [
    Probe {
        name: "thread-500",
        what: "500 threads live, each with 32 blocks out of 64 of 16 B..1 KiB (8 KiB in all): proportional set size a \
               thread, above the same threads without blocks",
        unit: "KiB",
        bar: Some(20.0),
        kind: Kind::Threads(Crowd::KEEPS_A_LITTLE, Figure::ProportionalAThread),
    },
    Probe {
        name: "idle-1000",
        what: "1,000 threads asleep after each freed 100 kB (16 B..4 KiB): resident size a thread, above the same threads \
               without blocks",
        unit: "KiB",
        bar: None,
        kind: Kind::Threads(Crowd::FREED_A_LITTLE, Figure::ResidentAThread),
    },
    Probe {
        name: "thread-64-release",
        what: "64 threads asleep for a second after each freed 6.5 MB (16 B..32 KiB, all live at once): resident size above \
               the same threads without blocks",
        unit: "MiB",
        bar: Some(10.0),
        kind: Kind::Threads(Crowd::FREED_MUCH, Figure::Resident),
    },
    Probe {
        name: "all-gone",
        what: "the same, and the threads gone: resident size above the start",
        unit: "MiB",
        bar: Some(2.0),
        kind: Kind::Threads(Crowd::FREED_MUCH_AND_LEFT, Figure::ResidentAboveStart),
    },
    Probe {
        name: "cold-setup",
        what: "the first malloc(16) of a process: calls of brk, mmap, munmap, mremap, madvise, mprotect",
        unit: "calls",
        bar: Some(3.0),
        kind: Kind::Cold(Phase::SetUp),
    },
    Probe {
        name: "cold-1000",
        what: "the next 1,000 × malloc(16): the same calls",
        unit: "calls",
        bar: Some(1.0),
        kind: Kind::Cold(Phase::Thousand),
    },
];

impl Part {
    /// The part of that name.
    pub fn named(name: &str) -> Result<Self, String> {
        let all = [Self::Work, Self::Control];
        all.into_iter().find(|it| it.name() == name).ok_or_else(|| format!("no part of a probe is named {name:?}"))
    }

    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Control => "control",
        }
    }
}

impl Probe {
    /// The probe of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        PROBES.iter().find(|it| it.name == name).ok_or_else(|| format!("no probe is named {name:?}"))
    }

    /// Whether it means something for that allocator: the floor is none.
    pub fn fits(&self, peer: &Peer) -> bool {
        peer.name != FLOOR
    }

    /// The figure, out of child processes.
    pub fn run(&self, peer: &Peer) -> Result<f64, String> {
        let figure = match &self.kind {
            _ if !self.fits(peer) => Err("no allocator".into()),
            Kind::Threads(crowd, figure) => figure.find(crowd, |part| self.child(peer, part)),
            Kind::Cold(phase) => phase.count(self.child(peer, Part::Work)?),
        };
        figure.map_err(|why| format!("{} with {}: {why}", self.name, peer.name))
    }

    /// The command that has [`child`] called in a fresh process.
    fn child(&self, peer: &Peer, part: Part) -> Result<Command, String> {
        let mut command = peer.program()?;
        command.args([cold::WORD, peer.name, self.name, part.name()]);
        Ok(command)
    }
}

/// What a child process does. Whether the process is what the allocator's column says is asked last: asking allocates.
pub fn child(peer: &'static Peer, probe: &'static Probe, part: Part) -> Result<(), String> {
    match &probe.kind {
        Kind::Threads(crowd, _) => threads::child(peer, crowd, part),
        // It has been done before `main`.
        Kind::Cold(_) => peer.check(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        for probe in &PROBES {
            assert_eq!(Probe::named(probe.name).map(|it| it.name), Ok(probe.name));
        }
        assert!([Part::Work, Part::Control].into_iter().all(|part| Part::named(part.name()) == Ok(part)));
        assert!(Part::named("play").is_err());
    }
}
