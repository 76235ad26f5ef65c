//! Random operations against the shadow oracle, with the heap's own check after each; one thread at a time.

use freestone_core::{AddressSeal, Broken, Contents, Pages, Purged, Seal, Unsealed};
use freestone_linux::{LinuxHeap, MmapPages};
use freestone_tests::home::{Core, Source, TestHeap};
use freestone_tests::replay::{Failure, Replay, Supply, Why};
use freestone_tests::run::Case;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::source::{Call, Fail};
use freestone_tests::subject::{Alone, Audited};

type Found = Failure<Why<Broken>>;
type Result<T = (), E = Found> = core::result::Result<T, E>;

const SLOTS: usize = 192;

fn case(test: &'static str) -> Case {
    Case { binary: "heap_random", test }
}

fn replay<S: Audited>(heap: &S, script: Script, steps: u64, supply: Supply) -> Result<usize, Failure<Why<S::Broken>>> {
    let mut replay = Replay::<S, SLOTS>::new(heap, script, supply);
    replay.run(steps)?;
    let refusals = replay.refusals();
    replay.finish()?;
    Ok(refusals)
}

/// On a source that works; afterwards nothing is live, and all pages come back.
fn on_test_source<S: Seal>(sizes: Sizes, seed: u64, steps: u64, set_up: impl FnOnce(Source)) -> Result {
    let source = Source::new();
    set_up(source);
    let heap: TestHeap<S> = source.heap();
    replay(&heap, Script { seed, sizes }, steps, Supply::Ample)?;
    drop(heap);
    source.expect_all_back();
    Ok(())
}

#[test]
fn small_blocks() {
    case("small_blocks").run(4, 6000, |seed, steps| on_test_source::<Unsealed>(Sizes::Small, seed, steps, |_| {}));
}

#[test]
fn all_sizes() {
    case("all_sizes").run(4, 6000, |seed, steps| on_test_source::<Unsealed>(Sizes::All, seed, steps, |_| {}));
}

#[test]
fn large_blocks() {
    case("large_blocks").run(3, 1500, |seed, steps| on_test_source::<Unsealed>(Sizes::Large, seed, steps, |_| {}));
}

#[test]
fn with_sealed_blocks() {
    case("with_sealed_blocks").run(3, 5000, |seed, steps| on_test_source::<AddressSeal>(Sizes::All, seed, steps, |_| {}));
}

/// Fresh and purged pages hold rubbish, so every zero that is promised must be made.
#[test]
fn on_dirty_pages() {
    case("on_dirty_pages").run(3, 4000, |seed, steps| {
        on_test_source::<Unsealed>(Sizes::All, seed, steps, |source| {
            source.map_with(Contents::Unknown);
            source.purge_with(Purged::Unknown);
        })
    });
}

/// Purge, unmap and remap are refused now and then, or always: the heap keeps what it has and goes on.
#[test]
fn where_the_source_takes_nothing_back() {
    case("where_the_source_takes_nothing_back").run(4, 4000, |seed, steps| {
        let fail = if seed.is_multiple_of(2) { Fail::From(1) } else { Fail::Every(2) };
        let source = Source::new();
        [Call::Purge, Call::Unmap, Call::Remap].into_iter().for_each(|call| source.fail(call, fail));
        let heap: TestHeap = source.heap();
        replay(&heap, Script { seed, sizes: Sizes::All }, steps, Supply::Ample)?;
        source.heal();
        drop(heap);
        source.expect_all_back();
        Ok::<_, Found>(())
    });
}

/// Every nth map fails, n from 2 to 9: null changes nothing, and the heap works on.
#[test]
fn where_maps_fail() {
    case("where_maps_fail").run(8, 3000, |seed, steps| {
        let source = Source::new();
        source.fail(Call::Map, Fail::Every(2 + (seed % 8) as u32));
        let heap: TestHeap = source.heap();
        replay(&heap, Script { seed, sizes: Sizes::All }, steps, Supply::Failing)?;
        source.heal();
        replay(&heap, Script { seed, sizes: Sizes::All }, steps / 4, Supply::Ample)?;
        drop(heap);
        source.expect_all_back();
        Ok::<_, Found>(())
    });
}

/// Little memory in all: the heap lives at its limit, and refuses often.
#[test]
fn at_the_limit() {
    case("at_the_limit").run(3, 4000, |seed, steps| {
        let source = Source::new();
        source.limit_to(Pages(2048 + 512 * (seed as usize % 4)));
        let heap: TestHeap = source.heap();
        let refusals = replay(&heap, Script { seed, sizes: Sizes::All }, steps, Supply::Failing)?;
        eprintln!("refused {refusals} requests");
        drop(heap);
        source.expect_all_back();
        Ok::<_, Found>(())
    });
}

/// The thread changes its core at every step, also to cores that have no lists (K38).
#[test]
fn on_wandering_cores() {
    case("on_wandering_cores").run(3, 4000, |seed, steps| {
        let source = Source::new();
        let heap: TestHeap = source.heap();
        let script = Script { seed, sizes: Sizes::All };
        let mut replay = Replay::<_, SLOTS>::new(&heap, script, Supply::Ample);
        for n in 0..steps {
            Core::set([0, 3, 4, 7, 1, 255, 2, usize::MAX][(n % 8) as usize]);
            let operation = replay.step()?;
            replay.audit(operation)?;
        }
        replay.finish()?;
        drop(heap);
        source.expect_all_back();
        Ok::<_, Found>(())
    });
}

/// Two heaps get every second step; each keeps its own books, and dropping one leaves the other whole.
#[test]
fn heaps_side_by_side() {
    case("heaps_side_by_side").run(3, 2000, |seed, steps| {
        let source = Source::new();
        let (first, second): (TestHeap, TestHeap) = (source.heap(), source.heap());
        let script = |seed| Script { seed, sizes: Sizes::All };
        let mut left = Replay::<_, SLOTS>::new(&first, script(seed), Supply::Ample);
        let mut right = Replay::<_, SLOTS>::new(&second, script(!seed), Supply::Ample);
        for _ in 0..steps {
            left.run(1)?;
            right.run(1)?;
        }
        left.shadow().forget();
        drop(left);
        drop(first);
        right.run(steps / 4)?;
        right.finish()?;
        drop(second);
        source.expect_all_back();
        Ok::<_, Found>(())
    });
}

/// The whole of Linux under it: mmap, rseq or claim lists, futex locks.
#[test]
fn on_linux() {
    case("on_linux").run(4, 4000, |seed, steps| {
        let heap: Alone<_> = Alone::new(LinuxHeap::new(MmapPages));
        replay(&heap, Script { seed, sizes: Sizes::All }, steps, Supply::Ample).map(|_| ())
    });
}

/// A failure names seed, step and operation, and replays exactly: the step at which two runs on a corrupting heap fail is
/// the same.
#[test]
fn a_failure_names_its_step_and_replays() {
    let run = || {
        let source = Source::new();
        let heap: TestHeap = source.heap();
        let mut replay = Replay::<_, SLOTS>::new(&heap, Script { seed: 99, sizes: Sizes::Small }, Supply::Ample);
        replay.run(700).expect("a sound heap");
        // A stray write of the program, into the first live block.
        let slot = (0..SLOTS).find(|slot| replay.shadow().get(*slot).is_some_and(|p| p.layout().size() > 0));
        let victim = replay.shadow().get(slot.expect("a live block")).expect("a live block").as_ptr();
        // SAFETY: the block is live and at least a byte long; that its owner did not write this is the point.
        unsafe { victim.write(!victim.read()) };
        replay.run(2000).expect_err("the oracle sees the write").to_string()
    };
    let (first, second) = (run(), run());
    assert!(first.contains("seed 0x63, step ") && first.contains("its owner wrote"), "{first}");
    assert_eq!(first, second);
}
