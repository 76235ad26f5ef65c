//! Planted faults: what the heap must see, and what its checker must name. A check that never fails checks nothing.
//!
//! A fault is a panic here (see `home`); the heap that saw one is abandoned, never dropped.

use core::alloc::Layout;
use core::mem::{ManuallyDrop, forget};
use core::ptr::NonNull;
use freestone_core::{AddressSeal, Fault, FaultKind, PAGE_SIZE, Seal, Unsealed};
use freestone_tests::home::{Source, TestHeap};
use freestone_tests::piece::{Piece, Served};
use freestone_tests::subject::{Audited, Path, Subject};
use std::panic::{AssertUnwindSafe, catch_unwind};

const MIB: usize = 1 << 20;
/// For a free by address, which looks at no layout.
const ANY: Layout = Layout::new::<u8>();

fn abandoned<S: Seal>() -> ManuallyDrop<TestHeap<S>> {
    ManuallyDrop::new(Source::new().heap())
}

/// The message of the panic that `body` must end in.
#[track_caller]
fn message<R>(body: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).map(|_| ()).expect_err("the fault was not seen");
    panic.downcast_ref::<String>().expect("a message").clone()
}

/// `body` stops with a fault of this kind at this pointer.
#[track_caller]
fn expect_fault<R>(kind: FaultKind, pointer: usize, body: impl FnOnce() -> R) {
    assert_eq!(message(body), Fault { pointer, kind }.to_string());
}

/// The pointer of a block that is live no more, freed by `path`.
fn freed<S: Subject>(piece: Piece<'_, S>, path: Path) -> NonNull<u8> {
    let ptr = piece.as_ptr();
    piece.free(path).unwrap();
    ptr
}

#[test]
fn a_foreign_pointer_is_seen() {
    let heap = abandoned::<Unsealed>();
    let (_, local) = (Piece::new(&*heap, 64, 8, 1), 0_u64);
    let foreign = [NonNull::from(&local).cast::<u8>(), NonNull::<u64>::dangling().cast()];
    for ptr in foreign {
        // SAFETY: none: a misuse that the heap must see before it touches anything.
        expect_fault(FaultKind::Foreign, ptr.addr().get(), || unsafe { heap.free(ptr, ANY, Path::Address) });
        assert_eq!(heap.usable_size(ptr), None);
    }
    heap.check().unwrap();
}

/// The old address of a block that the source has moved is nobody's, not a place inside the block.
#[test]
fn the_old_address_of_a_moved_block_is_foreign() {
    let heap = abandoned::<Unsealed>();
    let mut piece = Piece::new(&*heap, 4 * MIB, 8, 1);
    let (old, in_the_way) = (piece.as_ptr(), Piece::new(&*heap, 4 * MIB, 8, 2));
    assert_eq!(piece.reallocate(32 * MIB, Path::Layout, 3), Ok(Served::Yes));
    assert_ne!(piece.as_ptr(), old);
    // SAFETY: none: a misuse that the heap must see before it touches anything.
    expect_fault(FaultKind::Foreign, old.addr().get(), || unsafe { heap.free(old, ANY, Path::Address) });
    drop((piece, in_the_way));
    heap.check().unwrap();
}

#[test]
fn an_interior_pointer_is_seen() {
    let heap = abandoned::<Unsealed>();
    for (size, offset) in [(64, 16), (64, 1), (5000, 16), (100_000, 4096), (200_000, 64)] {
        let piece = Piece::new(&*heap, size, 8, 1);
        // SAFETY: inside the block.
        let inside = unsafe { piece.as_ptr().add(offset) };
        // SAFETY: none: a misuse that the heap must see before it touches anything.
        expect_fault(FaultKind::Interior, inside.addr().get(), || unsafe { heap.free(inside, ANY, Path::Address) });
        piece.verify().unwrap();
    }
    // Large blocks: only their first page is in the map.
    for (size, offset) in [(300_000, 4096), (5 * MIB, 2 * MIB), (300_000, 16)] {
        let piece = Piece::new(&*heap, size, 8, 1);
        // SAFETY: inside the block.
        let inside = unsafe { piece.as_ptr().add(offset) };
        // SAFETY: none: a misuse that the heap must see before it touches anything.
        let message = message(|| unsafe { heap.free(inside, ANY, Path::Address) });
        assert!(message.contains("middle") || message.contains("no live block"), "{message}");
        piece.verify().unwrap();
    }
    heap.check().unwrap();
}

/// K47, checked build: with a seal the second free is seen at once, whatever the size, and with other frees between.
#[test]
fn k47_a_double_free_is_seen_at_once_with_a_seal() {
    for size in [16, 24, 64, 100, 1000, 4096, 50_000] {
        for between in [0, 1, 5] {
            let heap = abandoned::<AddressSeal>();
            let others: Vec<_> = (0..between).map(|n| Piece::new(&*heap, size, 8, n)).collect();
            let ptr = freed(Piece::new(&*heap, size, 8, 1), Path::Address);
            drop(others);
            // SAFETY: none: a misuse that the heap must see.
            expect_fault(FaultKind::DoubleFree, ptr.addr().get(), || unsafe { heap.free(ptr, ANY, Path::Address) });
            let (a, b) = (Piece::new(&*heap, size, 8, 2), Piece::new(&*heap, size, 8, 3));
            assert!(!a.overlaps(&b));
        }
    }
}

#[test]
fn a_double_free_of_a_large_block_is_seen() {
    for size in [300_000, MIB, 5 * MIB] {
        let heap = abandoned::<Unsealed>();
        let ptr = freed(Piece::new(&*heap, size, 8, 1), Path::Address);
        // SAFETY: none: a misuse that the heap must see before it touches anything.
        expect_fault(FaultKind::Foreign, ptr.addr().get(), || unsafe { heap.free(ptr, ANY, Path::Address) });
        heap.check().unwrap();
    }
}

/// The same, of the only block of its span, which is gone by the time of the second free.
#[test]
fn a_double_free_of_a_spans_last_block_is_seen() {
    let heap = abandoned::<Unsealed>();
    let piece = Piece::new(&*heap, 64, 8, 1);
    let layout = piece.layout();
    let ptr = freed(piece, Path::Layout);
    let message = message(|| {
        // SAFETY: none: a misuse that the heap must see.
        unsafe { heap.free(ptr, layout, Path::Layout) };
        heap.trim();
    });
    assert!(message.contains("free"), "{message}");
}

/// K47, any build: without a seal the second free is seen when the blocks come back to their span, at the latest by a trim.
#[test]
fn k47_a_double_free_is_seen_when_the_batch_comes_back() {
    let heap = abandoned::<Unsealed>();
    let keep = Piece::new(&*heap, 64, 8, 2);
    let (a, b) = (Piece::new(&*heap, 64, 8, 1), Piece::new(&*heap, 64, 8, 1));
    let layout = a.layout();
    let ptr = freed(a, Path::Layout);
    freed(b, Path::Layout);
    let message = message(|| {
        // SAFETY: none: a misuse that the heap must see.
        unsafe { heap.free(ptr, layout, Path::Layout) };
        heap.trim();
    });
    assert!(message.contains("double free") && message.contains("S2"), "{message}");
    forget(keep);
}

/// A checked free of more than the block holds, or of an alignment that it does not have.
#[test]
fn a_wrong_layout_is_seen() {
    let heap = abandoned::<Unsealed>();
    for (size, wrong) in [(64, 65), (5000, 6000), (100_000, 300_000), (300_000, MIB), (5 * MIB, 6 * MIB)] {
        let piece = Piece::new(&*heap, size, 8, 1);
        let layout = Layout::from_size_align(wrong, 8).unwrap();
        // SAFETY: none: a misuse that the heap must see before it touches anything.
        expect_fault(FaultKind::WrongSize, piece.address(), || unsafe { heap.free(piece.as_ptr(), layout, Path::Checked) });
        piece.verify().unwrap();
    }
    heap.check().unwrap();
}

/// What the checker says after `corrupt` has been at a freed block that lies in a list.
fn checked_after(corrupt: impl Fn(NonNull<usize>)) -> String {
    let heap = abandoned::<Unsealed>();
    let pieces: Vec<_> = (0..10).map(|n| Piece::new(&*heap, 64, 8, n)).collect();
    let victim = pieces[5].as_ptr();
    pieces.into_iter().for_each(|piece| piece.free(Path::Layout).unwrap());
    heap.check().unwrap();
    corrupt(victim.cast());
    heap.check().expect_err("the checker sees a corrupted list").to_string()
}

/// The program writes into a block that it has freed: the list's next block is nowhere, or its count is wrong (C1), or
/// it is no block (F2).
#[test]
fn the_checker_sees_a_write_after_free() {
    for garbage in [0, 1, usize::MAX, 0x4141_4141_4141_4141] {
        // SAFETY: none: the write is the fault. The block's memory is mapped.
        let report = checked_after(|victim| unsafe { victim.write(garbage) });
        assert!(report.contains("C1") || report.contains("F2"), "{garbage:#x}: {report}");
    }
}

/// A block that lies in a list twice (C1: the chain runs in a circle; E1: more blocks than are out).
#[test]
fn the_checker_sees_a_block_that_is_free_twice() {
    let heap = abandoned::<Unsealed>();
    let pieces: Vec<_> = (0..3).map(|n| Piece::new(&*heap, 64, 8, n)).collect();
    let layout = pieces[0].layout();
    let pointers: Vec<_> = pieces.into_iter().map(|piece| freed(piece, Path::Layout)).collect();
    // SAFETY: none: a misuse that the checker must see.
    unsafe { heap.free(pointers[0], layout, Path::Layout) };
    let report = heap.check().expect_err("the checker sees a block that is free twice").to_string();
    assert!(report.contains("C1") || report.contains("E1"), "{report}");
}

/// A block freed with a layout of another class lies in the wrong list (F2).
#[test]
fn the_checker_sees_a_block_in_the_wrong_list() {
    let heap = abandoned::<Unsealed>();
    let piece = Piece::new(&*heap, 64, 8, 1);
    let wrong = Layout::from_size_align(640, 8).unwrap();
    // SAFETY: none: a misuse that the checker must see.
    unsafe { heap.free(piece.as_ptr(), wrong, Path::Layout) };
    let report = heap.check().expect_err("the checker sees a block of another class").to_string();
    assert!(report.contains("F2"), "{report}");
    forget(piece);
}

/// The test source itself sees what must not be done with it.
#[test]
fn the_test_source_sees_breaches_of_its_contract() {
    use freestone_core::{PageRun, PageSource, Pages, Place};
    let source = Source::new();
    let run = |pages| PageRun { start: source.map(Pages(pages), PAGE_SIZE).unwrap().start, pages: Pages(pages) };
    let (a, b) = (run(4), run(4));
    let both = PageRun { pages: Pages(8), ..a };
    assert_eq!(a.end(), b.start.addr().get());
    // SAFETY: none: breaches that the source must see before it touches anything.
    unsafe {
        assert!(message(|| source.unmap(both)).contains("T2"));
        assert!(message(|| source.remap(a.part(Pages(1), Pages(2)), Pages(8), Place::Move)).contains("T3"));
        source.unmap(a.part(Pages(1), Pages(1))).unwrap();
        assert!(message(|| source.purge(a)).contains("T2"));
        assert!(message(|| source.unmap(a.part(Pages(1), Pages(1)))).contains("T2"));
    }
    assert_eq!(source.pages_out(), Pages(7));
}
