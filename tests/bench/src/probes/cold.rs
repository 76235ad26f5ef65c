//! System calls of a process that allocates for the first time.
//!
//! Called by [`super`], and in the child by the C library before everything else; calls `freestone_syscalls`.
//!
//! What the figures are: the child makes one block of 16 bytes, then 1,000 more, all of which live on, before the
//! constructors of any library and of the program have run. So nobody has allocated before, and what an allocator would
//! do in a constructor it does now, because it has to. What the loader does to map a preloaded library is not counted,
//! and neither is what constructors do afterwards.

use super::{Kind, Probe};
use crate::heap::{Tested, layout};
use crate::peers::{Peer, Visit};
use freestone_syscalls::cold::Words;
use freestone_syscalls::{Calls, count_parts, mark, run_cold};
use std::alloc::GlobalAlloc;
use std::process::{Command, Stdio};

/// The first word of a child's command line.
pub const WORD: &str = "--probe-child";

/// What is counted.
#[derive(Clone, Copy)]
pub enum Phase {
    /// The first block.
    SetUp,
    /// The 1,000 after it.
    Thousand,
}

impl Phase {
    /// The calls that the child makes in this phase.
    pub fn count(self, mut child: Command) -> Result<f64, String> {
        child.stdin(Stdio::null()).stdout(Stdio::null());
        let counts = count_parts(child, Calls::Memory)?;
        let [_, first, thousand, _] = &counts[..] else { return Err(format!("{} marks in place of 3", counts.len() - 1)) };
        Ok(match self {
            Self::SetUp => first.memory() as f64,
            Self::Thousand => thousand.memory() as f64,
        })
    }
}

run_cold!(allocate_first);

/// In the child of a probe of this file only. Allocates nothing but the blocks.
fn allocate_first(words: &Words) {
    let (Some(WORD), Some(peer), Some(probe)) = (words.get(1), words.get(2), words.get(3)) else { return };
    let (Ok(peer), Ok(probe)) = (Peer::named(peer), Probe::named(probe)) else { return };
    if let Kind::Cold(_) = probe.kind {
        // An allocator that is not in this build is told of by `main`.
        let _ = peer.visit(Blocks);
    }
}

struct Blocks;

impl Visit for Blocks {
    type Outcome = ();

    fn visit<A: GlobalAlloc + Sync + 'static>(self, allocator: &'static A) {
        let heap = Tested(allocator);
        let make = |count| (0..count).for_each(|tag| drop(heap.make(layout(16), tag)));
        mark();
        make(1);
        mark();
        make(1000);
        mark();
    }
}
