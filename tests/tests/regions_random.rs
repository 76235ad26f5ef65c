//! Random operations on heaps over regions, against the shadow oracle, with the heap's own check after each step.
//!
//! Every grain, plain and as a region heap without cache, with one for one core and with one for four; every shape of
//! regions. There is so little memory that it runs out all the time: `gaps` says which requests may be refused then.

use core::fmt::Display;
use core::ops::Range;
use freestone_core::{Coarse, Compact, Fine, Grain, Tiny, Wide};
use freestone_tests::arena::{Arena, Cached, Housed, InArena, Uncached};
use freestone_tests::gaps::Gaps;
use freestone_tests::home::Core;
use freestone_tests::piece::Piece;
use freestone_tests::regions::{AloneInRegions, Plain};
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::run::Case;
use freestone_tests::script::{Operation, Script, Sizes};
use freestone_tests::subject::Audited;

const SLOTS: usize = 48;
/// A run comes in so many parts, at whose beginnings regions are added and extended.
const PARTS: u64 = 6;

type Outcome<T = ()> = Result<T, String>;

/// How much memory a test of a grain has, and the power of two below which its sizes are.
struct Room {
    space: usize,
    power: u32,
}

/// By grain: little, and much (up to what the grain can number).
trait Rooms: Grain {
    const LITTLE: Room;
    const MUCH: Room;
}

impl Rooms for Tiny {
    const LITTLE: Room = Room { space: 3 << 10, power: 9 };
    const MUCH: Room = Room { space: 6 << 10, power: 10 };
}
impl Rooms for Compact {
    const LITTLE: Room = Room { space: 16 << 10, power: 12 };
    const MUCH: Room = Room { space: 500 << 10, power: 17 };
}
impl Rooms for Fine {
    const LITTLE: Room = Room { space: 24 << 10, power: 12 };
    const MUCH: Room = Room { space: 2 << 20, power: 19 };
}
impl Rooms for Wide {
    const LITTLE: Room = Room { space: 40 << 10, power: 13 };
    const MUCH: Room = Room { space: 3 << 20, power: 20 };
}

impl Rooms for Coarse {
    const LITTLE: Room = Room { space: 40 << 10, power: 13 };
    const MUCH: Room = Room { space: 3 << 20, power: 20 };
}

/// What happens to a heap's regions at the beginning of a part of the run.
enum Event {
    Add(Range<usize>),
    AddGrowable(Range<usize>, usize),
    Extend(usize, usize),
}
use Event::{Add, AddGrowable, Extend};

/// Regions out of an arena of two `space`.
fn shapes(space: usize) -> [(&'static str, Vec<(u64, Event)>); 5] {
    let (half, third, quarter) = (space / 2, space / 3, space / 4);
    let growth = (1..PARTS).map(|part| (part, Extend(64, quarter + part as usize * 3 * quarter / 5 - 9)));
    [
        ("one", vec![(0, Add(64..64 + space))]),
        ("two that touch", vec![(0, Add(64..64 + half)), (0, Add(64 + half..64 + space))]),
        ("three odd", vec![(0, Add(half + 13..space)), (0, Add(1..third - 5)), (0, Add(space + 37..space + 42 + third))]),
        ("added on the way", vec![(0, Add(half..space)), (2, Add(3..half - 3)), (4, Add(space + 64..space + quarter))]),
        ("extended on the way", [(0, AddGrowable(64..64 + quarter, space))].into_iter().chain(growth).collect()),
    ]
}

/// A run of a script on a heap with regions of one shape.
struct Run<'h, 'a, H: Housed + Audited> {
    heap: &'h InArena<'a, H>,
    script: Script,
    replay: Replay<'h, H, SLOTS>,
    /// The parts of the regions that are for blocks.
    wholes: Vec<Range<usize>>,
    most_cached: usize,
}

impl<H: Housed + Audited> Run<'_, '_, H> {
    fn go(mut self, events: &[(u64, Event)], cores: usize, steps: u64) -> Outcome {
        for n in 0..steps {
            let begins = |part: u64| n == part * steps / PARTS;
            events.iter().filter(|(part, _)| begins(*part)).try_for_each(|(_, event)| self.happen(event))?;
            // One more than have lists, so that there is a core without.
            Core::set(n as usize % (cores + 1));
            let refusals = self.replay.refusals();
            let operation = self.replay.step().map_err(said)?;
            self.replay.audit(operation).map_err(said)?;
            let refused = self.replay.refusals() > refusals;
            self.judge(n, operation, refused)
                .map_err(|why| format!("seed {:#x}, step {n}, {operation}: {why}", self.script.seed))?;
        }
        self.end()
    }

    fn happen(&mut self, event: &Event) -> Outcome {
        let granule = H::Grain::GRANULE;
        match event {
            Add(part) | AddGrowable(part, _) => {
                let most = if let AddGrowable(_, most) = event { *most } else { part.len() };
                let bytes = self.heap.add_growable(part.clone(), most).map_err(said)?;
                let end = self.heap.address(part.end) / granule * granule;
                self.wholes.push(end - bytes..end);
            }
            Extend(start, len) => {
                let bytes = self.heap.extend(*start, *len).map_err(said)?;
                self.wholes[0].end += bytes;
                assert_eq!(self.wholes[0].end, self.heap.address(start + len) / granule * granule);
            }
        }
        Ok(())
    }

    /// What the heap says of itself, and what it refused, against what must be free.
    fn judge(&mut self, n: u64, operation: Operation, refused: bool) -> Outcome {
        let shadow = self.replay.shadow();
        let range = |piece: &Piece<'_, H>| piece.address()..piece.address() + piece.usable();
        let gaps = Gaps::<H::Grain>::between(&self.wholes, (0..SLOTS).filter_map(|slot| shadow.get(slot)).map(range));
        let figures = self.heap.figures();
        let kept = figures.cached_bytes + figures.queued_bytes;
        self.most_cached = self.most_cached.max(figures.cached_bytes);
        if gaps.bytes() != figures.free_bytes + kept || (kept == 0 && !gaps.may_report(figures.largest_free)) {
            return Err(format!("{figures:?}, but what is free is {gaps:x?}"));
        }
        if figures.peak_bytes < figures.held_bytes - figures.free_bytes {
            return Err(format!("more is used than ever was: {figures:?}"));
        }
        if refused && kept > 0 {
            return Err(format!("null with {kept} bytes cached or queued"));
        }
        let must = refused
            && match operation {
                Operation::Allocate(request) => gaps.must_serve(request.layout),
                Operation::Reallocate(old, size, _) => {
                    let layout = core::alloc::Layout::from_size_align(size, old.align()).map_err(said)?;
                    let block = shadow.get(self.script.step(n).slot % SLOTS).map(range);
                    gaps.must_serve(layout) || block.is_some_and(|block| gaps.must_grow(block, layout))
                }
                _ => false,
            };
        if must { Err(format!("null, although this is free: {gaps:x?}")) } else { Ok(()) }
    }

    /// Frees everything; then each region is one free block, and nothing outside of them was touched.
    fn end(mut self) -> Outcome {
        self.replay.free_all().map_err(said)?;
        self.heap.trim();
        self.replay.audit(Operation::FreeAll).map_err(said)?;
        let (figures, total) = (self.heap.figures(), self.wholes.iter().map(Range::len).sum());
        let longest = self.wholes.iter().map(Range::len).max().expect("a region");
        assert_eq!((figures.free_bytes, figures.held_bytes, figures.live_bytes), (total, total, 0));
        assert_eq!(figures.largest_free, longest);
        let whole = Piece::new(&**self.heap, longest, 1, 1);
        assert!(self.wholes.contains(&(whole.address()..whole.address() + longest)));
        drop(whole);
        self.heap.expect_canaries();
        assert!(self.replay.refusals() > 0, "memory never ran out");
        assert_eq!(figures.misses_under > 0, self.most_cached > 0, "what has a cache uses it");
        Ok(())
    }
}

fn said(why: impl Display) -> String {
    why.to_string()
}

/// A run over all shapes of regions.
fn all_shapes<H: Housed<Grain: Rooms> + Audited>(room: Room, cores: usize, seed: u64, steps: u64) -> Outcome {
    let script = Script { seed, sizes: Sizes::Below(room.power) };
    for (name, events) in shapes(room.space) {
        // As aligned as any request, so that a replay meets the same paddings.
        let mut arena = Arena::aligned(2 * room.space, 1 << room.power);
        let heap = arena.heap::<H>();
        let replay = Replay::new(&*heap, script, Supply::Failing);
        let run = Run { heap: &heap, script, replay, wholes: Vec::new(), most_cached: 0 };
        run.go(&events, cores, steps).map_err(|why| format!("regions {name}: {why}"))?;
    }
    Ok(())
}

fn little<H: Housed<Grain: Rooms> + Audited>(test: &'static str, cores: usize) {
    let case = Case { binary: "regions_random", test };
    case.run(4, 2000, |seed, steps| all_shapes::<H>(H::Grain::LITTLE, cores, seed, steps));
}

fn much<H: Housed<Grain: Rooms> + Audited>(test: &'static str, cores: usize) {
    let case = Case { binary: "regions_random", test };
    case.run(2, 900, |seed, steps| all_shapes::<H>(H::Grain::MUCH, cores, seed, steps));
}

macro_rules! grains {
    ($($name:ident: $grain:ty),+) => {
        $(mod $name {
            use super::*;

            #[test]
            fn plain() {
                little::<Plain<$grain>>(concat!(stringify!($name), "::plain"), 1);
            }

            #[test]
            fn without_cache() {
                little::<AloneInRegions<Uncached<$grain>>>(concat!(stringify!($name), "::without_cache"), 1);
            }

            #[test]
            fn one_core() {
                little::<AloneInRegions<Cached<$grain, 1>>>(concat!(stringify!($name), "::one_core"), 1);
            }

            #[test]
            fn four_cores() {
                little::<AloneInRegions<Cached<$grain, 4>>>(concat!(stringify!($name), "::four_cores"), 4);
            }

            #[test]
            fn plain_with_much_memory() {
                much::<Plain<$grain>>(concat!(stringify!($name), "::plain_with_much_memory"), 1);
            }

            #[test]
            fn four_cores_with_much_memory() {
                much::<AloneInRegions<Cached<$grain, 4>>>(concat!(stringify!($name), "::four_cores_with_much_memory"), 4);
            }
        })+
    };
}

grains!(tiny: Tiny, compact: Compact, fine: Fine, wide: Wide, coarse: Coarse);
