//! The columns of the comparison: each allocator in each setting, and what can be done with it.
//!
//! Called by [`crate::timing`], [`crate::memory`] and [`crate::counts`], for which it holds one compiled copy of each of their
//! runs for each allocator.
#![forbid(unsafe_code)]

use crate::arena::{Ground, Size};
use crate::counts::{self, Counts};
use crate::timing::{self, Sample};
use freestone_bench_bare::attack::Attack;
use freestone_bench_bare::fill::{Mix, live_at_failure};
use freestone_bench_bare::freestone::{Blocks, Few, Firmware};
use freestone_bench_bare::peer::Peer;
use freestone_bench_bare::peers::{Buddy, EmbeddedList, EmbeddedTlsf, LinkedList, Rlsf12, Rlsf16, Rlsf20, Talc};
use freestone_bench_bare::trace::Action;
use freestone_core::{Coarse, Compact, Fine, Wide};
use std::time::Duration;

/// One allocator in one setting.
pub struct Column {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// The package whose version is printed.
    pub package: &'static str,
    /// What can be done with it in a small, a middle and a large arena.
    runs: [Option<Runs>; 3],
}

/// An allocator over arenas of one size.
pub struct Runs {
    /// Bytes that it keeps outside the arena.
    pub state: usize,
    /// One timed run.
    pub time: fn(&mut Ground, Size, &[Action], Duration) -> Sample,
    /// Live bytes at the first refusal.
    pub live: fn(&mut Ground, Size, Mix, u64) -> usize,
    /// Instructions of some of the actions.
    pub count: fn(&mut Ground, Size, &[Action]) -> Counts,
    /// Instructions of what is asked of a prepared heap.
    pub attack: fn(&mut Ground, Size, Attack) -> Option<Counts>,
}

impl Runs {
    const fn of<P: Peer>() -> Option<Self> {
        Some(Self {
            state: size_of::<P>(),
            time: timing::once::<P>,
            live: live::<P>,
            count: counts::trace::<P>,
            attack: counts::attack::<P>,
        })
    }
}

fn live<P: Peer>(ground: &mut Ground, size: Size, mix: Mix, seed: u64) -> usize {
    ground.on_a_heap::<P, _>(size, |heap| live_at_failure(heap, size.len(), mix, seed))
}

/// All of them, in the order of the tables.
pub const COLUMNS: [Column; 14] = [
    Column::small::<Firmware<Compact>>("freestone compact", OWN),
    Column::everywhere::<Firmware<Fine>>("freestone fine", OWN),
    Column::everywhere::<Firmware<Wide>>("freestone wide", OWN),
    Column::everywhere::<Firmware<Coarse>>("freestone coarse", OWN),
    Column::small::<Firmware<Compact, Few>>("freestone compact+cache", OWN),
    Column::everywhere::<Firmware<Wide, Few>>("freestone wide+cache", OWN),
    Column::small::<Blocks<Compact>>("freestone BlockHeap compact", OWN),
    Column::everywhere::<Blocks<Wide>>("freestone BlockHeap wide", OWN),
    Column::everywhere::<Talc>("talc", "talc"),
    Column::by_size::<Rlsf12, Rlsf16, Rlsf20>("rlsf", "rlsf"),
    Column::everywhere::<EmbeddedTlsf>("embedded-alloc TLSF", "embedded-alloc"),
    Column::everywhere::<EmbeddedList>("embedded-alloc LLFF", "embedded-alloc"),
    Column::everywhere::<LinkedList>("linked_list_allocator", "linked_list_allocator"),
    Column::everywhere::<Buddy>("buddy_system_allocator", "buddy_system_allocator"),
];

const OWN: &str = "freestone-bare";

/// The columns that the others are compared with: the first one of each that is there.
pub const BASES: [&[&str]; 2] = [&["talc"], &["freestone compact", "freestone wide"]];

impl Column {
    /// For the small arena only.
    const fn small<P: Peer>(name: &'static str, package: &'static str) -> Self {
        Self { name, package, runs: [Runs::of::<P>(), None, None] }
    }

    /// The same type for arenas of every size.
    const fn everywhere<P: Peer>(name: &'static str, package: &'static str) -> Self {
        Self::by_size::<P, P, P>(name, package)
    }

    /// A type for each size of the arena.
    const fn by_size<S: Peer, M: Peer, L: Peer>(name: &'static str, package: &'static str) -> Self {
        Self { name, package, runs: [Runs::of::<S>(), Runs::of::<M>(), Runs::of::<L>()] }
    }

    /// The column of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        COLUMNS.iter().find(|column| column.name == name).ok_or_else(|| format!("no allocator is named {name:?}"))
    }

    /// What can be done with it in an arena of that size, if anything.
    pub fn runs(&self, size: Size) -> Option<&Runs> {
        self.runs[size as usize].as_ref()
    }
}
