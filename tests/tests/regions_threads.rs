//! Many threads on one region heap: each runs a script of its own, and they free each other's blocks.
//!
//! The oracle is the owner's stamp that fills each block: a block with two owners, or one that was not whole when it was
//! handed over, reads wrong when it is freed, by whichever thread.

use core::ops::Range;
use freestone_core::{Compact, Fine, RegionHeap, RegionPlatform, SpinLock, Tiny, Wide};
use freestone_tests::arena::{Arena, Cached, Given, InArena, Uncached};
use freestone_tests::home::{CORES, Core, Thread};
use freestone_tests::piece::Piece;
use freestone_tests::regions::Regional;
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::run::Case;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::Path;
use std::sync::Mutex;
use std::thread;

const THREADS: u64 = 4;
const SLOTS: usize = 32;

type Lock = SpinLock<Thread>;

/// Where threads leave blocks for whoever comes next.
type Exchange<'h, P> = [Mutex<Option<Piece<'h, RegionHeap<P>>>>; 16];

/// One thread's part: its script, and an exchange at every third step. Returns how many requests were refused.
fn work<'h, P: RegionPlatform<Source = Given>>(
    heap: &'h RegionHeap<P>,
    exchange: &Exchange<'h, P>,
    script: Script,
    steps: u64,
) -> usize {
    let mut replay = Replay::<_, SLOTS>::new(heap, script, Supply::Failing);
    for n in 0..steps {
        // Threads of one core, and of one without lists, now and then.
        Core::set((script.seed >> 56) as usize + (n / 64) as usize % 2);
        replay.step().unwrap_or_else(|failure| panic!("{failure}"));
        if n.is_multiple_of(3) {
            let place = script.step(n ^ (1 << 40)).slot;
            let mine = replay.shadow().take(place % SLOTS);
            let other = core::mem::replace(&mut *exchange[place % 16].lock().unwrap(), mine);
            other.map_or(Ok(()), |piece| piece.free(Path::Layout)).unwrap_or_else(|wrong| panic!("exchanged: {wrong}"));
        }
    }
    replay.free_all().unwrap_or_else(|failure| panic!("{failure}"));
    replay.refusals()
}

/// All threads to their end, on two regions, of which the second comes while they run; then nothing is live, and the heap is
/// whole.
fn together<P: RegionPlatform<Source = Given>>(test: &'static str, parts: [Range<usize>; 2], power: u32) {
    Case { binary: "regions_threads", test }.run(3, 8000, |seed, steps| {
        let mut arena = Arena::new(parts[1].end.max(parts[0].end) + 64);
        let mut heap: InArena<'_, RegionHeap<P>> = arena.lazy_heap(parts[0].clone());
        let refusals: usize = {
            let (heap, exchange): (&InArena<'_, _>, Exchange<P>) = (&heap, [const { Mutex::new(None) }; 16]);
            thread::scope(|scope| {
                let start = |n: u64| {
                    let (exchange, script) = (&exchange, Script { seed: seed ^ (n << 56), sizes: Sizes::Below(power) });
                    scope.spawn(move || work(&**heap, exchange, script, steps))
                };
                let threads: Vec<_> = (0..THREADS).map(start).collect();
                heap.add(parts[1].clone()).expect("a second region");
                threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
            })
        };
        heap.expect_canaries();
        heap.get_mut().check().map_err(|broken| broken.to_string())?;
        assert_eq!(heap.figures().live_bytes, 0, "all was freed");
        heap.trim();
        let figures = heap.figures();
        eprintln!("refused {refusals} requests; {figures:?}");
        assert_eq!((figures.free_bytes, figures.cached_bytes, figures.regions), (figures.held_bytes, 0, 2));
        assert!(refusals > 0 && figures.largest_free >= figures.held_bytes / 2 - 1024);
        heap.get_mut().check().map_err(|broken| broken.to_string())
    });
}

#[test]
fn compact() {
    together::<Cached<Compact, CORES, Lock>>("compact", [0..10_000, 10_000..21_003], 11);
}

#[test]
fn tiny() {
    together::<Cached<Tiny, CORES, Lock>>("tiny", [2600..4100, 3..2003], 8);
}

#[test]
fn fine() {
    together::<Cached<Fine, CORES, Lock>>("fine", [0..20_000, 20_000..40_000], 12);
}

#[test]
fn wide_without_cache() {
    together::<Uncached<Wide, Lock>>("wide_without_cache", [0..20_000, 20_000..42_000], 12);
}
