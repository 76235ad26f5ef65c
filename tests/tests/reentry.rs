//! Interrupts in the middle of the heap's slow paths: at each lock entry, each leave and each call of the source, a handler
//! allocates and frees on the same heap, in the context that is inside (case K36).
//!
//! No outcome but a served request, null, or a queued free is right; whatever was queued is drained by whoever held the lock.

use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use freestone_core::Broken;
use freestone_tests::home::{Core, SharedHeap, Source, TestHeap};
use freestone_tests::interrupt::{Requests, with_handler};
use freestone_tests::piece::Piece;
use freestone_tests::replay::{Failure, Replay, Supply, Why};
use freestone_tests::run::Case;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::source::{Call, Fail};
use freestone_tests::subject::{Audited, Path, Subject};

type Handler<'h> = Requests<'h, TestHeap>;

/// A short-lived block, and one that an interrupt to come frees.
fn interrupt(handler: &Handler) {
    let size = [16, 24, 200, 4096, 40_000, 300_000][handler.served.get() % 6];
    let short = handler.allocate(size);
    let mut kept = handler.kept.borrow_mut();
    kept.extend(handler.allocate(size));
    short.map_or(Ok(()), |piece| piece.free(Path::Layout)).unwrap();
    if kept.len() > 32 {
        kept.drain(..).for_each(|piece| piece.free(Path::Address).unwrap());
    }
}

fn interrupted(source: Source, seed: u64, steps: u64, supply: Supply) -> Result<(usize, usize), Failure<Why<Broken>>> {
    let heap: TestHeap = source.heap();
    let script = Script { seed, sizes: Sizes::All };
    let mut replay = Replay::<_, 128>::new(&heap, script, supply);
    let handler = Handler::new(&heap, 64);
    let mut fired = 0;
    for _ in 0..steps {
        let mut outcome = Ok(());
        fired += with_handler(&|| interrupt(&handler), || outcome = replay.step().map(|_| ()));
        outcome?;
        // The handler's own blocks are live besides those of the script, so only the walk is asked here.
        heap.check().unwrap_or_else(|broken| panic!("seed {seed:#x}: {broken}"));
    }
    handler.kept.borrow_mut().clear();
    replay.finish()?;
    let counts = (handler.served.get(), handler.refused.get());
    eprintln!("{fired} interrupts: {} requests served, {} refused", counts.0, counts.1);
    assert!(fired as u64 > steps / 20, "too few interrupts to mean anything: {fired}");
    drop(handler);
    drop(heap);
    source.expect_all_back();
    Ok(counts)
}

#[test]
fn interrupts_at_every_lock_and_source_call() {
    let case = Case { binary: "reentry", test: "interrupts_at_every_lock_and_source_call" };
    case.run(4, 1000, |seed, steps| {
        let (served, refused) = interrupted(Source::new(), seed, steps, Supply::Ample)?;
        assert!(served > refused, "most interrupts are served: {served} were, {refused} not");
        Ok::<_, Failure<Why<Broken>>>(())
    });
}

#[test]
fn interrupts_while_memory_runs_out() {
    let case = Case { binary: "reentry", test: "interrupts_while_memory_runs_out" };
    case.run(3, 1000, |seed, steps| {
        let source = Source::new();
        source.fail(Call::Map, Fail::Every(3));
        interrupted(source, seed, steps, Supply::Failing).map(|_| ())
    });
}

/// A block that an interrupt frees while its class's lock is held is queued, and the holder gives it back.
#[test]
fn queued_frees_are_drained() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    // A core without lists, and a shelf that is full: every free goes to the spans.
    Core::set(usize::MAX);
    let new = |n| Piece::new(&heap, 100, 8, n);
    let (held, more): (Vec<_>, Vec<_>) = ((0..1000).map(new).collect(), (0..1000).map(new).collect());
    drop(more);
    let victims: RefCell<Vec<_>> = RefCell::new((0..400).map(new).collect());
    let handler = || drop(victims.borrow_mut().pop());
    let fired = with_handler(&handler, || drop(held));
    assert!(fired > 100 && victims.borrow().len() < 300, "{fired} interrupts");
    victims.borrow_mut().clear();
    heap.check().unwrap();
    let stats = heap.stats();
    assert_eq!(stats.live_bytes, 0, "what was queued was freed");
    assert!(stats.queued > 0, "no free was queued");
}

/// What an interrupt has to leave to whom it interrupted is queued once, and not again with each free that it leaves.
#[test]
fn an_interrupt_queues_each_free_once() {
    const FREES: usize = 20;
    Core::set(0);
    let layout = Layout::new::<[u8; 100_000]>();
    let mut most = 0;
    for moment in 1.. {
        let heap: SharedHeap = Source::new().shared_heap();
        let blocks: Vec<_> = (0..FREES).map(|_| heap.allocate(layout).unwrap()).collect();
        let fired = Cell::new(0);
        let handler = || {
            fired.set(fired.get() + 1);
            if fired.get() == moment {
                // SAFETY: allocated above, freed once.
                blocks.iter().for_each(|block| unsafe { heap.deallocate(*block, layout) });
            }
        };
        let mut got = None;
        with_handler(&handler, || got = heap.allocate(layout));
        // SAFETY: allocated above.
        unsafe { heap.deallocate(got.unwrap(), layout) };
        if fired.get() < moment {
            break;
        }
        let stats = heap.stats();
        assert_eq!(stats.live_bytes, 0, "an interrupt at moment {moment}");
        most = most.max(stats.queued);
    }
    // A list of the core may take some.
    assert!((FREES / 2..=FREES).contains(&most), "{most} queued");
}

/// A block that was made for an interrupt out of a mapping of its own goes round like any other of its class, and back.
#[test]
fn rescued_blocks_are_counted_wherever_they_lie() {
    for core in [0, usize::MAX] {
        for path in [Path::Layout, Path::Address] {
            let source = Source::new();
            let heap: TestHeap = source.heap();
            Core::set(core);
            let rescued = RefCell::new(Vec::with_capacity(40));
            // Each time a class that was never used, so that the request must go down to where the interrupted one is.
            let handler = || {
                let n = rescued.borrow().len();
                if n < 40 {
                    rescued.borrow_mut().push(Piece::new(&heap, 200 + 16 * n, 8, 1));
                }
            };
            let first = Piece::new(&heap, 3000, 8, 1);
            with_handler(&handler, || drop(Piece::new(&heap, 100, 8, 2)));
            assert!(heap.stats().rescued > 0, "no block was rescued");
            heap.check().unwrap();
            rescued.take().into_iter().for_each(|piece| piece.free(path).unwrap());
            heap.check().unwrap_or_else(|broken| panic!("core {core}, freed by {path:?}: {broken}"));
            first.free(Path::Layout).unwrap();
            // In a list, a rescued block counts as live until its list is emptied.
            heap.trim();
            assert_eq!((heap.stats().live_bytes, heap.stats().cached_bytes), (0, 0), "core {core}, freed by {path:?}");
            heap.check().unwrap();
        }
    }
}

/// Trim and stats hold locks as well: an interrupt in them gets an answer, and does no harm.
#[test]
fn interrupts_in_trim_and_stats() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let handler = Handler::new(&heap, 64);
    let held: Vec<_> = (0..2000).map(|n| Piece::new(&heap, 1 << (n % 19), 8, n as u64)).collect();
    drop(held);
    let fired = with_handler(&|| interrupt(&handler), || {
        heap.trim();
        heap.stats();
        heap.trim();
    });
    assert!(fired > 10, "{fired} interrupts");
    handler.kept.borrow_mut().clear();
    heap.check().unwrap();
    assert_eq!(heap.stats().live_bytes, 0);
}

/// An interrupt that comes upon the page heap empties a span, which it has to leave; the next trim gives it back.
#[test]
fn a_span_that_an_interrupt_emptied_is_given_back_by_a_trim() {
    Core::set(0);
    let (small, large) = (Layout::new::<[u8; 3000]>(), Layout::new::<[u8; 100_000]>());
    let mut moments = 0;
    for moment in 1.. {
        let heap: SharedHeap = Source::new().shared_heap();
        let block = heap.allocate(small).unwrap();
        let fired = Cell::new(0);
        let handler = || {
            fired.set(fired.get() + 1);
            if fired.get() == moment {
                // SAFETY: allocated above, freed once.
                unsafe { heap.deallocate(block, small) };
                heap.trim();
            }
        };
        let mut got = None;
        with_handler(&handler, || got = heap.allocate(large));
        // SAFETY: allocated above.
        unsafe { heap.deallocate(got.unwrap(), large) };
        if fired.get() < moment {
            break;
        }
        moments += 1;
        heap.trim();
        let stats = heap.stats();
        assert_eq!((stats.live_bytes, stats.held_bytes), (0, 0), "an interrupt at moment {moment}");
        assert_eq!(stats.large_taken, stats.large_given, "an interrupt at moment {moment}");
    }
    assert!(moments > 3, "interrupts came");
}

/// What a trim says that it gave back includes what went while the caches were emptied.
#[test]
fn a_trim_says_what_it_gave_back() {
    Core::set(0);
    let heap: SharedHeap = Source::new().shared_heap();
    let layout = Layout::new::<[u8; 1000]>();
    let blocks: Vec<_> = (0..5000).map(|_| heap.allocate(layout).unwrap()).collect();
    // SAFETY: allocated above, freed once.
    blocks.into_iter().for_each(|block| unsafe { heap.deallocate(block, layout) });
    let held = heap.stats().held_bytes;
    assert_eq!((heap.trim(), heap.stats().held_bytes, heap.trim()), (held, 0, 0));
}
