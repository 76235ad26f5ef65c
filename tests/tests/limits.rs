//! Limits that the home sets, and shortages that it tells of: what is mapped, what stays resident, and what is cached.

use core::alloc::Layout;
use freestone_core::{Broken, Limits, PAGE_SIZE, Pages, Stats};
use freestone_tests::home::{Memory, SharedHeap, Source, TestHeap};
use freestone_tests::interrupt::with_handler;
use freestone_tests::piece::{Piece, Served};
use freestone_tests::replay::{Failure, Replay, Supply, Why};
use freestone_tests::run::Case;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::source::Call;
use freestone_tests::subject::{Audited, Fill, Path};
use std::thread;

type Held<'h> = Vec<Piece<'h, TestHeap>>;
type Found = Failure<Why<Broken>>;

const MIB: usize = 1 << 20;

/// What may be dirty however scarce memory is.
const LEFT: usize = 256 << 10;

fn case(test: &'static str) -> Case {
    Case { binary: "limits", test }
}

fn hard(bytes: usize) -> Limits {
    Limits { hard: bytes, ..Limits::NONE }
}

fn soft(bytes: usize) -> Limits {
    Limits { soft: bytes, ..Limits::NONE }
}

/// Sets this thread's limits, until it is dropped.
struct Limited;

impl Limited {
    fn to(limits: Limits) -> Self {
        Memory::limit_to(limits);
        Self
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        Memory::limit_to(Limits::NONE);
        Memory::set_short(false);
    }
}

fn try_new(heap: &TestHeap, size: usize) -> Option<Piece<'_, TestHeap>> {
    Piece::allocate(heap, Layout::from_size_align(size, 8).unwrap(), Fill::Any, size as u64).unwrap()
}

fn new(heap: &TestHeap, size: usize) -> Piece<'_, TestHeap> {
    try_new(heap, size).expect("memory for a block")
}

fn free<'h>(pieces: impl IntoIterator<Item = Piece<'h, TestHeap>>) {
    pieces.into_iter().for_each(|piece| piece.free(Path::Layout).unwrap());
}

/// Random operations, with a look at the heap's figures after each.
fn watched(sizes: Sizes, seed: u64, steps: u64, supply: Supply, look: impl Fn(&TestHeap, u64)) -> Result<usize, Found> {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut replay = Replay::<_, 192>::new(&heap, Script { seed, sizes }, supply);
    for n in 0..steps {
        let operation = replay.step()?;
        replay.audit(operation)?;
        look(&heap, n);
    }
    let refusals = replay.refusals();
    replay.finish()?;
    drop(heap);
    source.expect_all_back();
    Ok(refusals)
}

#[test]
fn a_hard_limit_holds_at_every_step() {
    case("a_hard_limit_holds_at_every_step").run(6, 2000, |seed, steps| {
        let most = (6 + seed as usize % 5) * MIB + seed as usize % 3 * PAGE_SIZE;
        let _limited = Limited::to(hard(most));
        let refused = watched([Sizes::All, Sizes::Large][seed as usize % 2], seed, steps, Supply::Failing, |heap, n| {
            let held = heap.stats().held_bytes;
            assert!(held <= most, "step {n}: {held} bytes of {most}");
        })?;
        assert!(refused > 0, "no refusal: the limit of {most} bytes limits nothing");
        Ok::<_, Found>(())
    });
}

/// To the page: a mapping of just the limit is made, and one of a page more is not.
#[test]
fn a_hard_limit_is_exact() {
    for pages in [300, 512, 513, 1000] {
        for odd in [0, 1, PAGE_SIZE - 1] {
            let _limited = Limited::to(hard(pages * PAGE_SIZE + odd));
            Source::new().with_heap(|heap: &TestHeap| {
                assert!(try_new(heap, (pages + 1) * PAGE_SIZE).is_none(), "a page more than {pages}");
                let whole = new(heap, pages * PAGE_SIZE);
                assert_eq!(heap.stats().held_bytes, pages * PAGE_SIZE);
                assert!(try_new(heap, 1).is_none(), "a byte beyond {pages} pages");
                free([whole]);
                assert_eq!(try_new(heap, 1).is_some(), pages >= 512, "a chunk in {pages} pages");
            });
        }
    }
}

/// A refusal changes nothing, also of blocks that grow, and the source is not asked; after frees the heap goes on.
#[test]
fn at_a_hard_limit_the_heap_refuses_and_goes_on() {
    let source = Source::new();
    source.with_heap(|heap: &TestHeap| {
        let _limited = Limited::to(hard(16 * MIB));
        for size in [100, 3000, 40_000, 700_000, 3 * MIB] {
            let mut held: Held = core::iter::from_fn(|| try_new(heap, size)).collect();
            let before = (heap.stats(), source.pages_out());
            let bytes = held.len() * size;
            assert!(bytes > 10 * MIB, "{size} bytes at a time: only {bytes}");
            for path in [Path::Layout, Path::Address] {
                assert_eq!(held[0].reallocate(20 * MIB, path, 1), Ok(Served::No), "from {size}");
            }
            let after = (heap.stats(), source.pages_out());
            let figures = |(stats, out): (Stats, Pages)| (stats.live_bytes, stats.held_bytes, out);
            assert_eq!(figures(before), figures(after), "{size} bytes at a time");
            heap.check().unwrap();
            let half = held.len() / 2;
            free(held.drain(half..));
            held.extend((half..half * 2).map(|_| new(heap, size)));
            free(held);
        }
        assert_eq!(heap.stats().source.refused, 0, "the source was asked beyond the limit");
    });
}

/// A huge block grows in its mapping up to the limit; what is idle or in the way as empty chunks goes first.
#[test]
fn a_huge_block_grows_to_the_limit() {
    let source = Source::new();
    source.with_heap(|heap: &TestHeap| {
        let _limited = Limited::to(hard(16 * MIB));
        free([new(heap, 3 * MIB), new(heap, 300_000)]);
        let mut block = new(heap, 9 * MIB);
        assert!(heap.stats().held_bytes > 9 * MIB, "nothing was kept: the test tests nothing");
        assert_eq!(block.reallocate(16 * MIB, Path::Layout, 1), Ok(Served::Yes));
        assert_eq!(heap.stats().held_bytes, 16 * MIB);
        assert_eq!(block.reallocate(16 * MIB + 1, Path::Layout, 1), Ok(Served::No));
        Memory::limit_to(hard(MIB));
        assert_eq!(block.reallocate(3 * MIB, Path::Layout, 1), Ok(Served::Yes), "shorter is never refused");
        free([block]);
    });
}

#[test]
fn a_soft_limit_leaves_little_free_at_every_step() {
    case("a_soft_limit_leaves_little_free_at_every_step").run(4, 2000, |seed, steps| {
        let most = (2 << (seed % 4)) * MIB;
        let _limited = Limited::to(soft(most));
        watched([Sizes::All, Sizes::Large][seed as usize % 2], seed, steps, Supply::Ample, |heap, n| {
            let stats = heap.stats();
            let room = most.saturating_sub(stats.live_bytes + stats.cached_bytes).max(LEFT);
            assert!(stats.dirty_bytes <= room, "step {n}: {} dirty bytes, {room} left", stats.dirty_bytes);
        })
        .map(|_| ())
    });
}

/// 16 MiB in large blocks of which every fourth stays, and `live` more: what is dirty then.
fn dirty_beside(live: usize) -> usize {
    let source = Source::new();
    source.with_heap(|heap: &TestHeap| {
        let more: Held = (0..live / 100_000).map(|_| new(heap, 100_000)).collect();
        let mut stay: Held = (0..160).map(|_| new(heap, 100_000)).collect();
        (0..40).for_each(|n| free(stay.drain(n..n + 3)));
        let dirty = heap.stats().dirty_bytes;
        free(stay);
        free(more);
        dirty
    })
}

/// Far below the soft limit nothing changes, at it next to nothing stays.
#[test]
fn a_soft_limit_is_felt_where_it_is_near() {
    let free_rein = dirty_beside(20 * MIB);
    assert!(free_rein > 4 * MIB, "{free_rein}: the test tests nothing");
    for (limit, least, most) in [(200 * MIB, free_rein, free_rein), (10 * MIB, 0, LEFT)] {
        let _limited = Limited::to(soft(limit));
        let dirty = dirty_beside(20 * MIB);
        assert!((least..=most).contains(&dirty), "{dirty} dirty bytes with a soft limit of {limit}");
    }
}

/// What is free makes room for what grows beside it, also where the heap has taken more before.
#[test]
fn growth_takes_the_place_of_free_pages() {
    let source = Source::new();
    source.with_heap(|heap: &TestHeap| {
        free([new(heap, 60 * MIB)]);
        let mut held: Held = (0..60).map(|_| new(heap, 400_000)).collect();
        (0..12).for_each(|n| free([held.remove(n)]));
        let (before, most) = (heap.stats(), 24 * MIB);
        assert!(before.dirty_bytes > 4 * MIB, "the test tests nothing: {before:?}");
        let _limited = Limited::to(soft(most));
        let mut grown = new(heap, 2 * MIB);
        for size in [2 * MIB, 3 * MIB, 4 * MIB, 5 * MIB] {
            assert_eq!(grown.reallocate(size, Path::Layout, 1), Ok(Served::Yes));
            let stats = heap.stats();
            let room = most.saturating_sub(stats.live_bytes).max(LEFT);
            assert!(stats.dirty_bytes <= room, "{} dirty bytes, {room} left", stats.dirty_bytes);
            assert!(stats.dirty_bytes > 0 || room < 2 * MIB, "all went though {room} bytes were left");
        }
        free(held);
        free([grown]);
    });
}

/// Blocks that lie in lists and on shelves come back when the live pages cross the soft limit, once.
#[test]
fn caches_are_emptied_at_the_soft_limit() {
    let source = Source::new();
    source.with_heap(|heap: &TestHeap| {
        let fill = || free((0..2000).map(|_| new(heap, 200)).collect::<Held>());
        let _limited = Limited::to(soft(20 * MIB));
        let mut held: Held = (0..18).map(|_| new(heap, MIB)).collect();
        fill();
        let cached = heap.stats().cached_bytes;
        assert!(cached > 0, "nothing was cached: the test tests nothing");
        held.push(new(heap, MIB));
        assert!(heap.stats().cached_bytes > 0, "emptied below the limit");
        held.push(new(heap, MIB));
        assert_eq!(heap.stats().cached_bytes, 0, "not emptied at the limit");
        fill();
        free(held.pop());
        held.push(new(heap, MIB));
        assert!(heap.stats().cached_bytes > 0, "emptied at each way to and fro");
        held.extend((0..3).map(|_| new(heap, MIB)));
        assert_eq!(heap.stats().cached_bytes, 0, "not emptied an eighth beyond");
        heap.check().unwrap();
        free(held);
    });
}

/// What the home tells is heeded when the heap grows and when pages come back; hits ask nothing.
#[test]
fn a_shortage_is_heard() {
    let source = Source::new();
    source.with_heap(|heap: &TestHeap| {
        let _limited = Limited::to(Limits::NONE);
        let large = || (0..100).map(|_| new(heap, 100_000)).collect::<Held>();
        let mut held: Vec<Held> = (0..3).map(|_| large()).collect();
        free(held.pop().into_iter().flatten());
        free((0..2000).map(|_| new(heap, 200)).collect::<Held>());
        assert!(heap.stats().dirty_bytes > MIB && heap.stats().cached_bytes > 0, "the test tests nothing");
        let questions = Memory::questions();
        (0..5000).for_each(|_| free([new(heap, 200)]));
        assert_eq!(Memory::questions(), questions, "a hit asks");

        Memory::set_short(true);
        let extra = new(heap, 30 * MIB);
        let stats = heap.stats();
        assert!(stats.dirty_bytes <= LEFT && stats.cached_bytes == 0, "{stats:?}");
        free([extra]);
        assert!(heap.stats().dirty_bytes <= LEFT);

        Memory::set_short(false);
        free(large());
        free(held.pop().into_iter().flatten());
        assert!(heap.stats().dirty_bytes > LEFT, "a shortage that is over still counts");
        Memory::set_short(true);
        let (questions, stats) = (Memory::questions(), heap.stats());
        // What is cached comes back, too: in spans that are a little longer.
        let most = (stats.live_bytes + stats.cached_bytes) * 21 / 20 / (2 * MIB) + 1;
        free(held.pop().into_iter().flatten());
        assert!(heap.stats().dirty_bytes <= LEFT, "not heard while pages come back");
        assert!((1..=most).contains(&(Memory::questions() - questions)), "not one question each 2 MiB");
    });
}

/// An interrupt in the middle of it all: what it gets does not wait, and the wish of the interrupted context is kept.
#[test]
fn interrupts_at_the_soft_limit() {
    case("interrupts_at_the_soft_limit").run(3, 1200, |seed, steps| {
        let _limited = Limited::to(Limits { soft: 4 * MIB, hard: 64 * MIB });
        let source = Source::new();
        let heap: TestHeap = source.heap();
        let mut replay = Replay::<_, 128>::new(&heap, Script { seed, sizes: Sizes::All }, Supply::Failing);
        for _ in 0..steps {
            let mut outcome = Ok(());
            let interrupt = || free([50, 5000, 300_000].into_iter().filter_map(|size| try_new(&heap, size)));
            with_handler(&interrupt, || outcome = replay.step().map(|_| ()));
            outcome?;
            heap.check().unwrap_or_else(|broken| panic!("seed {seed:#x}: {broken}"));
        }
        replay.finish()?;
        drop(heap);
        source.expect_all_back();
        Ok::<_, Found>(())
    });
}

/// Threads that cross the limit together.
#[test]
fn threads_at_the_limits() {
    const THREADS: u64 = 4;
    let source = Source::new();
    let mut heap: SharedHeap = source.shared_heap();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let heap = &heap;
            scope.spawn(move || {
                Memory::limit_to(Limits { soft: 8 * MIB, hard: 24 * MIB });
                Memory::set_short(seed.is_multiple_of(2));
                let mut replay = Replay::<_, 128>::new(heap, Script { seed, sizes: Sizes::All }, Supply::Failing);
                (0..20_000).for_each(|_| _ = replay.step().unwrap());
                replay.free_all().unwrap();
            });
        }
    });
    assert!(heap.stats().peak_held_bytes <= 24 * MIB, "{:?}", heap.stats());
    heap.check().unwrap();
    assert_eq!(heap.stats().live_bytes, 0);
    assert!(source.calls(Call::Purge) + source.calls(Call::Unmap) > 0);
    drop(heap);
    source.expect_all_back();
}
