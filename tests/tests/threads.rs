//! Many threads on one heap: each runs a script of its own, and they free each other's blocks.
//!
//! The oracle is the owner's stamp that fills each block: a block with two owners, or one that was not whole when it was
//! handed over, reads wrong when it is freed, by whichever thread.

use core::alloc::Layout;
use freestone_core::{AddressSeal, Heap, Platform, Seal, Side, SizeClass, Unsealed};
use freestone_linux::{LinuxHeap, MmapPages};
use freestone_tests::home::{Core, SharedHeap, Source, TestHeap, TestHome};
use freestone_tests::piece::Piece;
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::run::Case;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::source::{Call, Fail};
use freestone_tests::subject::Path;
use std::sync::Mutex;
use std::thread;

const THREADS: u64 = 4;
const SLOTS: usize = 96;

/// Where threads leave blocks for whoever comes next.
type Exchange<'h, P> = [Mutex<Option<Piece<'h, Heap<P>>>>; 64];

fn case(test: &'static str) -> Case {
    Case { binary: "threads", test }
}

/// One thread's part: its script, and an exchange at every third step.
fn work<'h, P: Platform>(heap: &'h Heap<P>, exchange: &Exchange<'h, P>, script: Script, steps: u64, supply: Supply) {
    let mut replay = Replay::<_, SLOTS>::new(heap, script, supply);
    for n in 0..steps {
        replay.step().unwrap_or_else(|failure| panic!("{failure}"));
        if n.is_multiple_of(3) {
            let place = script.step(n ^ (1 << 40)).slot;
            let mine = replay.shadow().take(place % SLOTS);
            let other = core::mem::replace(&mut *exchange[place % 64].lock().unwrap(), mine);
            other.map_or(Ok(()), |piece| piece.free(Path::Address)).unwrap_or_else(|wrong| panic!("exchanged: {wrong}"));
        }
    }
    replay.free_all().unwrap_or_else(|failure| panic!("{failure}"));
}

/// All threads to their end; then nothing is live, and the heap is whole.
fn together<P: Platform>(heap: &mut Heap<P>, seed: u64, steps: u64, supply: Supply, sizes: Sizes) -> Result<(), String>
where
    Heap<P>: Sync,
{
    {
        let (heap, exchange): (&_, Exchange<P>) = (&*heap, [const { Mutex::new(None) }; 64]);
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (exchange, script) = (&exchange, Script { seed: seed ^ (n << 56), sizes });
                scope.spawn(move || work(heap, exchange, script, steps, supply));
            }
        });
    }
    heap.check().map_err(|broken| broken.to_string())?;
    let stats = heap.stats();
    if stats.live_bytes != 0 { Err(format!("{} live bytes, all were freed", stats.live_bytes)) } else { Ok(()) }
}

fn on_test_source<S: Seal>(seed: u64, steps: u64, sizes: Sizes) -> Result<(), String> {
    let source = Source::new();
    let mut heap: SharedHeap<S> = source.shared_heap();
    together(&mut heap, seed, steps, Supply::Ample, sizes)?;
    drop(heap);
    source.expect_all_back();
    Ok(())
}

#[test]
fn small_blocks() {
    case("small_blocks").run(3, 20_000, |seed, steps| on_test_source::<Unsealed>(seed, steps, Sizes::Small));
}

#[test]
fn all_sizes() {
    case("all_sizes").run(3, 6000, |seed, steps| on_test_source::<AddressSeal>(seed, steps, Sizes::All));
}

#[test]
fn where_maps_fail() {
    case("where_maps_fail").run(3, 5000, |seed, steps| {
        let source = Source::new();
        source.fail(Call::Map, Fail::Every(3));
        let mut heap: SharedHeap = source.shared_heap();
        together(&mut heap, seed, steps, Supply::Failing, Sizes::All)?;
        drop(heap);
        source.expect_all_back();
        Ok::<_, String>(())
    });
}

#[test]
fn on_linux() {
    case("on_linux").run(3, 10_000, |seed, steps| {
        let mut heap: LinuxHeap = Heap::new(MmapPages);
        together(&mut heap, seed, steps, Supply::Ample, Sizes::All)
    });
}

/// What one thread allocates and another frees comes round again: memory does not grow with the number of blocks passed.
#[test]
fn a_pipe_of_blocks_does_not_grow_the_heap() {
    let source = Source::new();
    let heap: SharedHeap = source.shared_heap();
    let pass = |blocks: u64| {
        let (to, from) = std::sync::mpsc::sync_channel(64);
        thread::scope(|scope| {
            let heap = &heap;
            scope.spawn(move || {
                Core::set(0);
                (0..blocks).for_each(|n| to.send(Piece::new(heap, 200, 8, n)).unwrap());
            });
            scope.spawn(move || {
                Core::set(1);
                from.iter().for_each(|piece| piece.free(Path::Layout).unwrap());
            });
        });
        heap.stats().held_bytes
    };
    let first = pass(10_000);
    let later = pass(100_000);
    assert!(later <= first + (2 << 20), "{first} bytes held after 10,000 blocks, {later} after 100,000 more");
}

/// A heap may be dropped with everything in it, while others on the same threads go on.
#[test]
fn heaps_come_and_go_on_living_threads() {
    let source = Source::new();
    let mut stays: SharedHeap = source.shared_heap();
    thread::scope(|scope| {
        for n in 0..THREADS {
            let stays = &stays;
            scope.spawn(move || {
                for round in 0..40 {
                    let goes: TestHeap = source.heap();
                    let kept = Piece::new(stays, 100, 8, n);
                    (0..200).for_each(|k| core::mem::forget(Piece::new(&goes, 1 << (k % 15), 8, round)));
                    drop(goes);
                    kept.free(Path::Layout).unwrap();
                }
            });
        }
    });
    stays.check().unwrap();
    drop(stays);
    source.expect_all_back();
}

/// While one thread forks, it holds every lock; what others ask for meanwhile is served, also in memory that is new to the
/// heap, and what they free comes back.
#[test]
fn others_are_served_while_one_forks() {
    for warm in [0, 1, 1000] {
        let source = Source::new();
        let mut heap: SharedHeap = source.shared_heap();
        drop((0..warm).map(|n| Piece::new(&heap, 1 << (n % 20), 8, n as u64)).collect::<Vec<_>>());
        heap.freeze();
        thread::scope(|scope| {
            let heap = &heap;
            let other = scope.spawn(move || {
                let sizes = [100, 5000, 50_000, 300_000, 5 << 20, 64 << 20].into_iter().cycle();
                sizes.take(200).for_each(|size| Piece::new(heap, size, 8, size as u64).free(Path::Layout).unwrap());
                // More than a leaf of the page map covers.
                drop((0..20).map(|n| Piece::new(heap, 64 << 20, 8, n)).collect::<Vec<_>>());
            });
            other.join().unwrap();
        });
        // SAFETY: this thread called `freeze`, once.
        unsafe { heap.thaw(Side::Parent) };
        heap.check().unwrap();
        // Blocks with mappings of their own may lie in lists, where they count as live.
        heap.trim();
        assert_eq!(heap.stats().live_bytes, 0);
        heap.check().unwrap();
        drop(heap);
        source.expect_all_back();
    }
}

/// Allocates and frees `n` blocks of a class.
fn cycle(heap: &SharedHeap, class: SizeClass, n: usize) {
    let layout = Layout::from_size_align(class.size(), 1).unwrap();
    let blocks: Vec<_> = (0..n).map(|_| heap.allocate(layout).unwrap()).collect();
    // SAFETY: each block came from this heap with that layout, and is freed once.
    blocks.into_iter().for_each(|block| unsafe { heap.deallocate(block, layout) });
}

/// The lists of a core hold no more than its budget, whatever passed through them: counted by the hits that they serve.
#[test]
fn the_lists_of_a_core_stay_within_its_budget() {
    let source = Source::new();
    let heap: SharedHeap = source.shared_heap();
    Core::set(0);
    for _ in 0..3 {
        SizeClass::all().for_each(|class| [2, 3, 5, 40, 3, 40].into_iter().for_each(|n| cycle(&heap, class, n)));
    }
    let held = |class: SizeClass| {
        let layout = Layout::from_size_align(class.size(), 1).unwrap();
        let misses = || heap.class_stats(class).misses_under;
        let before = misses();
        (0..).take_while(|_| heap.allocate(layout).is_some() && misses() == before).count() * class.size()
    };
    let held: usize = SizeClass::all().map(held).sum();
    assert!(held <= <TestHome as Platform>::CORE_BUDGET, "{held} bytes in the lists of one core");
    drop(heap);
    source.expect_all_back();
}
