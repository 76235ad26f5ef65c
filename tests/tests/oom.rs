//! Out of memory, at every point where memory can run out: null, nothing lost, and the heap works on.

use core::alloc::Layout;
use freestone_core::{PAGE_SIZE, Pages, Purged};
use freestone_tests::home::{Source, TestHeap};
use freestone_tests::piece::{Piece, Served};
use freestone_tests::source::{Call, Fail};
use freestone_tests::subject::{Audited, Fill, Path, Subject};

type Held<'h> = Vec<Piece<'h, TestHeap>>;

const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn try_new(heap: &TestHeap, size: usize, stamp: u64) -> Option<Piece<'_, TestHeap>> {
    Piece::allocate(heap, layout(size), Fill::Any, stamp).unwrap()
}

/// A mixture that reaches every slow path: new spans, large runs, huge blocks, growth by copy and by remap.
fn exercise<'h>(heap: &'h TestHeap, held: &mut Held<'h>) -> usize {
    let mut refused = 0;
    for (n, size) in [16, 100, 4000, 30_000, 200_000, 300_000, MIB, 3 * MIB, 9 * MIB].into_iter().enumerate() {
        for _ in 0..3 {
            match try_new(heap, size, n as u64) {
                Some(piece) => held.push(piece),
                None => refused += 1,
            }
        }
    }
    for piece in held.iter_mut() {
        let size = piece.layout().size();
        for to in [size * 2, size / 2] {
            refused += usize::from(piece.reallocate(to, Path::Layout, to as u64).unwrap() == Served::No);
        }
    }
    refused
}

/// Frees everything by `path`.
fn free_all(held: Held, path: Path) {
    held.into_iter().for_each(|piece| piece.free(path).unwrap());
}

/// The nth call of one kind fails; whether it came to that.
fn nth_call_fails(call: Call, n: u32) -> bool {
    let source = Source::new();
    let said = |what: &str| format!("{call:?} call {n} failed: {what}");
    source.with_heap(|heap: &TestHeap| {
        source.fail(call, Fail::Nth(n));
        let mut held = Held::new();
        let refused = exercise(heap, &mut held);
        heap.check().unwrap_or_else(|broken| panic!("{}", said(&broken.to_string())));
        free_all(held, Path::Address);
        heap.trim();
        assert_eq!(heap.stats().live_bytes, 0, "{}", said("live bytes"));
        heap.check().unwrap_or_else(|broken| panic!("{}", said(&broken.to_string())));
        let reached = source.calls(call) >= n;
        assert!(reached || refused == 0, "{}", said("null without a reason"));
        source.heal();
        let mut held = Held::new();
        assert_eq!(exercise(heap, &mut held), 0, "{}", said("the heap does not work on"));
        free_all(held, Path::Layout);
        reached
    })
}

/// Every n up to the last call that happens.
fn each_call_fails_once(call: Call) {
    let happened = (1..500).take_while(|n| nth_call_fails(call, *n)).count();
    eprintln!("{call:?}: failed at each of {happened} calls");
    assert!((1..499).contains(&happened), "{call:?} never happened, or far too often");
}

#[test]
fn any_map_may_fail() {
    each_call_fails_once(Call::Map);
}

#[test]
fn any_unmap_may_fail() {
    each_call_fails_once(Call::Unmap);
}

#[test]
fn any_purge_may_fail() {
    each_call_fails_once(Call::Purge);
}

#[test]
fn any_remap_may_fail() {
    each_call_fails_once(Call::Remap);
}

/// From some map on all fail: after the first null small requests still find what is there, and what is freed serves again.
#[test]
fn a_source_that_dries_up() {
    for n in 1..12 {
        let source = Source::new();
        source.fail(Call::Map, Fail::From(n));
        source.with_heap(|heap: &TestHeap| {
            let mut held: Held = (0..).map_while(|n| try_new(heap, 10_000, n)).collect();
            heap.check().unwrap();
            if let Some(piece) = held.pop() {
                piece.free(Path::Layout).unwrap();
                assert!(try_new(heap, 10_000, 7).is_some(), "what was freed serves again (maps fail from {n})");
            }
            free_all(held, Path::Layout);
        });
    }
}

/// Before null is answered, caches are drained: blocks of one size that lie in lists make room for another size.
#[test]
fn caches_are_drained_before_null() {
    let source = Source::new();
    source.limit_to(Pages(6 * 512));
    source.with_heap(|heap: &TestHeap| {
        let small: Held = (0..).map_while(|n| try_new(heap, 1000, n)).collect();
        let bytes = small.len() * 1000;
        free_all(small, Path::Layout);
        assert!(heap.stats().cached_bytes > 0, "nothing was cached: the test tests nothing");
        let large: Held = (0..).map_while(|n| try_new(heap, 5000, n)).collect();
        assert_eq!(heap.stats().cached_bytes, 0, "null while blocks lay in lists");
        let again = large.len() * 5000;
        assert!(again >= bytes * 9 / 10, "{bytes} bytes in blocks of 1000, then {again} in blocks of 5000");
        heap.check().unwrap();
        free_all(large, Path::Layout);
    });
}

/// At the end of memory, a large run is made out of what small blocks left.
#[test]
fn empty_spans_become_large_runs_again() {
    let source = Source::new();
    source.limit_to(Pages(6 * 512));
    source.with_heap(|heap: &TestHeap| {
        free_all((0..).map_while(|n| try_new(heap, 64, n)).collect(), Path::Layout);
        assert!(try_new(heap, MIB, 2).is_some());
        heap.check().unwrap();
    });
}

/// A realloc that cannot be served leaves the block as it was, by every way to ask.
#[test]
fn a_refused_realloc_changes_nothing() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for size in [10, 5000, 200_000, 500_000, 3 * MIB, 10 * MIB] {
        for path in [Path::Layout, Path::Address] {
            let mut piece = try_new(&heap, size, size as u64).unwrap();
            source.fail(Call::Map, Fail::From(1));
            source.fail(Call::Remap, Fail::From(1));
            assert_eq!(piece.reallocate(64 * MIB, path, 1), Ok(Served::No));
            for impossible in [isize::MAX as usize, isize::MAX as usize - 4096] {
                assert_eq!(piece.reallocate(impossible, path, 1), Ok(Served::No));
            }
            assert_eq!(piece.layout().size(), size);
            source.heal();
            piece.free(path).unwrap();
        }
    }
    heap.check().unwrap();
}

/// Trimming gives back what is free, as far as the source takes it; what it does not take stays counted.
#[test]
fn trim_gives_back() {
    for outcome in [Purged::Zeroed, Purged::Unknown, Purged::Refused] {
        let source = Source::new();
        source.purge_with(outcome);
        source.with_heap(|heap: &TestHeap| {
            let mut held = Held::new();
            exercise(heap, &mut held);
            held.extend((0..20_000).map(|n| try_new(heap, 300, n).unwrap()));
            let before = heap.stats();
            free_all(held, Path::Layout);
            let given = heap.trim();
            let after = heap.stats();
            assert_eq!((after.live_bytes, after.cached_bytes), (0, 0), "{outcome:?}");
            assert!(after.dirty_bytes == 0 || outcome == Purged::Refused, "{} dirty bytes, {outcome:?}", after.dirty_bytes);
            assert!(after.held_bytes <= before.held_bytes && given <= before.peak_held_bytes, "{outcome:?}");
            heap.check().unwrap();
        });
    }
}

/// Bytes held never exceed what the source has out, and the peak is no less than either.
#[test]
fn the_books_agree_with_the_source() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut held = Held::new();
    exercise(&heap, &mut held);
    let check = |live: usize| {
        let stats = heap.stats();
        let out = source.pages_out().0 * PAGE_SIZE;
        assert_eq!(stats.live_bytes, live);
        assert_eq!(stats.held_bytes + stats.meta_bytes, out);
        assert!(stats.peak_held_bytes >= stats.held_bytes && stats.live_bytes + stats.cached_bytes <= stats.held_bytes);
        assert_eq!(stats.source.maps, source.calls(Call::Map) as usize);
    };
    check(held.iter().map(Piece::usable).sum());
    held.drain(..).for_each(|piece| piece.free(Path::Layout).unwrap());
    check(0);
    heap.trim();
    check(0);
}
