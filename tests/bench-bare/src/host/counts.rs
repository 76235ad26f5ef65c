//! Instructions of single calls: over a trace, and over heaps made so that a loop over blocks shows.
//!
//! Called by `main`; [`trace`] and [`attack`] are called through the columns and call [`crate::steps`]. Steps are slow, above
//! all on a virtual machine, so only some operations are counted: which ones is fixed, and so is the result.
#![forbid(unsafe_code)]

use crate::arena::{Ground, Size, in_parallel};
use crate::args::Args;
use crate::columns::{Column, Runs};
use crate::steps::{Stepped, record};
use freestone_bench_bare::attack::Attack;
use freestone_bench_bare::peer::Peer;
use freestone_bench_bare::trace::{Action, Shape, play};
use std::time::{Duration, Instant};

pub use crate::steps::{Counts, Kind, LIMIT};

/// The arenas of the trace.
const TRACED: [Size; 2] = [Size::Small, Size::Middle];

/// The arenas of the attacks.
pub const ATTACKED: [Size; 2] = [Size::Small, Size::Large];

/// Actions in a trace, those before the counted ones, and the counted ones.
const ACTIONS: usize = 20_000;
const BEFORE: usize = 10_000;
const COUNTED: usize = 3_000;

const SEED: u64 = 0x57e9;

/// How long a heap may take to prepare: an allocator whose frees walk a list may need minutes.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Rounds of requests to a prepared heap.
const ROUNDS: usize = 32;

/// An allocator in an arena.
pub struct Traced {
    /// The allocator.
    pub column: &'static Column,
    /// The arena.
    pub size: Size,
    /// What was counted.
    pub counts: Counts,
}

/// An allocator in a prepared heap.
pub struct Attacked {
    /// The allocator.
    pub column: &'static Column,
    /// The heap.
    pub attack: Attack,
    /// What was counted in each of [`ATTACKED`]; `None` where it cannot be run, or took too long to prepare.
    pub counts: [Option<Counts>; 2],
}

/// All allocators over the trace of random actions.
pub fn traces(args: &Args) -> Vec<Traced> {
    let places: Vec<_> = TRACED.iter().flat_map(|&size| args.columns.iter().map(move |&column| (column, size))).collect();
    let traced = in_parallel("instructions", places.len(), |ground, number| {
        let (column, size) = places[number];
        let Runs { count, .. } = column.runs(size)?;
        let mut actions = vec![Action::NOTHING; ACTIONS];
        let counts = count(ground, size, Shape::Random.write(size.len(), SEED, &mut actions));
        Some(Traced { column, size, counts })
    });
    traced.into_iter().flatten().collect()
}

/// All allocators in all prepared heaps.
pub fn attacks(args: &Args) -> Vec<Attacked> {
    let places: Vec<_> = Attack::ALL.iter().flat_map(|&attack| args.columns.iter().map(move |&it| (it, attack))).collect();
    in_parallel("attacks", places.len(), |ground, number| {
        let (column, attack) = places[number];
        let counts = ATTACKED.map(|size| column.runs(size).and_then(|runs| (runs.attack)(ground, size, attack)));
        Attacked { column, attack, counts }
    })
}

/// Counts some actions in the middle of a trace.
pub fn trace<P: Peer>(ground: &mut Ground, size: Size, actions: &[Action]) -> Counts {
    ground.on_a_heap::<Stepped<P>, _>(size, |heap| {
        play(heap, &actions[..BEFORE]);
        record(|| play(heap, &actions[BEFORE..BEFORE + COUNTED]))
    })
}

/// Counts what is asked of a prepared heap, after one round that is not counted. `None`: it took too long to prepare.
pub fn attack<P: Peer>(ground: &mut Ground, size: Size, attack: Attack) -> Option<Counts> {
    attack_for::<P>(ROUNDS, ground, size, attack)
}

fn attack_for<P: Peer>(rounds: usize, ground: &mut Ground, size: Size, attack: Attack) -> Option<Counts> {
    let begin = Instant::now();
    ground.on_a_heap::<Stepped<P>, _>(size, |heap| {
        let field = attack.prepare(heap, size.len(), || begin.elapsed() < PATIENCE)?;
        field.probe(heap, 0);
        Some(record(|| (1..=rounds).for_each(|round| field.probe(heap, round))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use freestone_bench_bare::freestone::{Blocks, Few, Firmware};
    use freestone_bench_bare::peers::LinkedList;
    use freestone_core::{Fine, Wide};

    /// Steps are slow where the machine is virtual.
    const FEW_ROUNDS: usize = 6;

    const KINDS: [Kind; 4] = [Kind::Allocate, Kind::Free, Kind::Resize, Kind::Refused];

    /// The worst calls of each kind in the small and in the large arena.
    fn worst<P: Peer>(it: Attack) -> [(Kind, u32, u32); 4] {
        let [small, large] =
            ATTACKED.map(|size| attack_for::<P>(FEW_ROUNDS, &mut Ground::new(), size, it).expect("prepared in time"));
        let worst = |counts: &Counts, kind| counts.of(kind).iter().copied().max().unwrap_or(0);
        KINDS.map(|kind| (kind, worst(&small, kind), worst(&large, kind)))
    }

    /// The large arena has 256 times as many blocks.
    fn costs_the_same_in_a_large_arena<P: Peer>() {
        for attack in Attack::ALL {
            for (kind, small, large) in worst::<P>(attack) {
                assert!(large <= small + small / 2 + 20, "{attack:?}, {kind:?}: {small} and {large} instructions");
            }
        }
    }

    #[test]
    fn no_call_of_a_fine_heap_depends_on_the_number_of_blocks() {
        costs_the_same_in_a_large_arena::<Firmware<Fine>>();
    }

    #[test]
    fn no_call_of_a_cached_heap_depends_on_the_number_of_blocks() {
        costs_the_same_in_a_large_arena::<Firmware<Wide, Few>>();
    }

    #[test]
    fn no_call_of_a_block_heap_depends_on_the_number_of_blocks() {
        costs_the_same_in_a_large_arena::<Blocks<Wide>>();
    }

    #[test]
    fn a_list_is_found_out() {
        for (kind, small, large) in worst::<LinkedList>(Attack::Holes) {
            assert!(small < LIMIT && large == LIMIT, "{kind:?}: {small} and {large} instructions");
        }
    }
}
