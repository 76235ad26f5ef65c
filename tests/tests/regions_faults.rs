//! Planted faults on region heaps: what stops the program, and what the checker names.
//!
//! A fault is a panic here (see `arena`); the heap that saw one is abandoned with what is live. Nothing lies beside a live
//! block, so a free that names a wrong place inside the blocks is seen only where a free block begins there, and what a
//! core's list takes is not looked at; that these are seen by the checker afterwards is what the second half is about.

use core::alloc::Layout;
use core::mem::forget;
use core::ops::Range;
use core::ptr::NonNull;
use freestone_core::{Compact, Fault, FaultKind, Fine, Grain, Tiny, Wide};
use freestone_tests::arena::{Arena, Cached, Housed, InArena, Uncached};
use freestone_tests::home::Core;
use freestone_tests::interrupt::with_handler;
use freestone_tests::piece::Piece;
use freestone_tests::regions::{AloneInRegions, Plain};
use freestone_tests::subject::{Audited, Path, Subject};
use std::panic::{AssertUnwindSafe, catch_unwind};

type NoCache = AloneInRegions<Uncached<Compact>>;
type Cache = AloneInRegions<Cached<Compact, 1>>;

const LEN: usize = 8 << 10;

/// The message of the panic that `body` must end in.
#[track_caller]
fn message<R>(body: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).map(|_| ()).expect_err("the fault was not seen");
    panic.downcast_ref::<String>().expect("a message").clone()
}

/// `body` stops with a fault of this kind at this pointer.
#[track_caller]
fn expect_fault<R>(kind: FaultKind, pointer: NonNull<u8>, body: impl FnOnce() -> R) {
    assert_eq!(message(body), Fault { pointer: pointer.addr().get(), kind }.to_string());
}

fn new<S: Subject>(heap: &S, size: usize) -> Piece<'_, S> {
    Piece::new(heap, size, 8, size as u64)
}

/// The pointer of a block that is live no more.
fn freed<S: Subject>(piece: Piece<'_, S>) -> NonNull<u8> {
    let ptr = piece.as_ptr();
    piece.free(Path::Layout).unwrap();
    ptr
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Misuses: a free, and a change of size, of what is no block.
fn misuses<S: Subject>(heap: &S, ptr: NonNull<u8>, size: usize) -> [Box<dyn Fn() + '_>; 3] {
    // SAFETY: none: misuses that the heap must see before it touches anything.
    let resize = move |to| _ = unsafe { heap.reallocate(ptr, layout(size), to, Path::Layout) };
    // SAFETY: none: as above.
    let free = move || unsafe { heap.free(ptr, layout(size), Path::Layout) };
    [Box::new(free), Box::new(move || resize(size + 100)), Box::new(move || resize(8))]
}

#[test]
fn a_foreign_pointer_is_seen() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(2 * LEN);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..LEN).unwrap();
        let (block, local) = (new(&*heap, 200), 0_u64);
        let at = |at: usize| NonNull::new(block.as_ptr().as_ptr().with_addr(heap.address(at))).unwrap();
        let foreign = [NonNull::from(&local).cast(), NonNull::<u64>::dangling().cast(), at(0), at(16), at(LEN), at(2 * LEN)];
        for ptr in foreign {
            misuses(&*heap, ptr, 200).iter().for_each(|misuse| expect_fault(FaultKind::Foreign, ptr, misuse));
            assert!(!heap.owns(ptr));
        }
        heap.check().unwrap();
        heap.expect_canaries();
    }
    of::<Plain<Compact>>();
    of::<NoCache>();
    of::<Cache>();
}

#[test]
fn an_odd_pointer_is_seen() {
    let mut arena = Arena::new(LEN);
    let heap: InArena<'_, NoCache> = arena.heap();
    heap.add(0..LEN).unwrap();
    let block = new(&*heap, 200);
    for offset in [1, 2, 4, 7, 9, 100] {
        // SAFETY: inside the block.
        let inside = unsafe { block.as_ptr().add(offset) };
        misuses(&*heap, inside, 64).iter().for_each(|misuse| expect_fault(FaultKind::Interior, inside, misuse));
    }
    block.verify().unwrap();
    heap.check().unwrap();
}

/// A size that reaches beyond the region.
#[test]
fn a_size_that_no_block_has_is_seen() {
    let mut arena = Arena::new(LEN);
    let heap: InArena<'_, NoCache> = arena.heap();
    heap.add(0..LEN).unwrap();
    let block = new(&*heap, 200);
    for size in [LEN, 1 << 20, isize::MAX as usize - 200] {
        misuses(&*heap, block.as_ptr(), size)
            .iter()
            .for_each(|misuse| expect_fault(FaultKind::WrongSize, block.as_ptr(), misuse));
    }
    block.verify().unwrap();
    heap.check().unwrap();
}

/// K47: the second free of a block at which a free block begins now is seen at once, with other frees between.
#[test]
fn k47_a_double_free_is_seen_where_a_free_block_begins() {
    for size in [16, 24, 64, 100, 1000, 4000] {
        for between in [0, 1, 5] {
            let mut arena = Arena::new(64 << 10);
            let heap: InArena<'_, NoCache> = arena.heap();
            heap.add(0..64 << 10).unwrap();
            let (left, block) = (new(&*heap, size), new(&*heap, size));
            let others: Vec<_> = (0..between).map(|_| new(&*heap, size)).collect();
            let ptr = freed(block);
            drop(others);
            misuses(&*heap, ptr, size).iter().for_each(|misuse| expect_fault(FaultKind::DoubleFree, ptr, misuse));
            let (a, b) = (new(&*heap, size), new(&*heap, size));
            assert!(!a.overlaps(&b) && !a.overlaps(&left));
            heap.check().unwrap();
        }
    }
}

/// The same, of a block that a free block to its left took in: the heap does not see it, its checker does.
#[test]
fn k47_a_double_free_inside_a_free_block_is_seen_by_the_checker() {
    for size in [16, 24, 64, 100, 1000] {
        let mut arena = Arena::new(LEN);
        let heap: InArena<'_, NoCache> = arena.heap();
        heap.add(0..LEN).unwrap();
        let (left, block, right) = (new(&*heap, size), new(&*heap, size), new(&*heap, size));
        freed(left);
        let ptr = freed(block);
        // SAFETY: none: a misuse that the checker must see.
        unsafe { heap.free(ptr, layout(size), Path::Layout) };
        let report = heap.check().expect_err("a block that is free twice").to_string();
        assert!(report.contains("R1") || report.contains("R2"), "{size}: {report}");
        forget(right);
    }
}

/// The same, of a cached length: the list takes the block twice.
#[test]
fn k47_a_double_free_of_a_cached_block_is_seen_by_the_checker() {
    Core::set(0);
    for between in [0, 1] {
        let mut arena = Arena::new(LEN);
        let heap: InArena<'_, Cache> = arena.heap();
        heap.add(0..LEN).unwrap();
        let (a, b, other) = (new(&*heap, 64), new(&*heap, 64), new(&*heap, 64));
        freed(other);
        let ptr = freed(a);
        let b = Some(b).filter(|_| between == 0).into_iter().collect::<Vec<_>>();
        // SAFETY: none: a misuse that the checker must see.
        unsafe { heap.free(ptr, layout(64), Path::Layout) };
        let report = heap.check().expect_err("a block that is cached twice").to_string();
        assert!(report.contains("C1") || report.contains("F2"), "{report}");
        b.into_iter().for_each(forget);
    }
}

/// What an interrupt frees twice is seen when it is taken back.
#[test]
fn a_double_free_that_is_queued_is_seen() {
    let mut arena = Arena::new(LEN);
    let heap: InArena<'_, NoCache> = arena.heap();
    heap.add(0..LEN).unwrap();
    let (left, block) = (new(&*heap, 64), new(&*heap, 64));
    let ptr = freed(block);
    let inside = || heap.heap().allocate(layout(8)).is_none();
    let misuse = || {
        if inside() {
            // SAFETY: none: a misuse that the heap must see.
            unsafe { heap.free(ptr, layout(64), Path::Layout) }
        }
    };
    expect_fault(FaultKind::DoubleFree, ptr, || with_handler(&misuse, || drop(new(&*heap, 8))));
    forget(left);
}

/// The program writes beyond its block, before it, or into a free one: the lengths of a free block are not what they were.
#[test]
fn the_checker_sees_stray_writes() {
    let stray = |offset: isize| {
        let mut arena = Arena::new(LEN);
        let heap: InArena<'_, NoCache> = arena.heap();
        heap.add(0..LEN).unwrap();
        let blocks: [_; 4] = core::array::from_fn(|_| new(&*heap, 64));
        let [left, block, right, last] = blocks;
        freed(left);
        freed(right);
        heap.check().unwrap();
        // SAFETY: none: the write is the fault. The memory is the arena's.
        unsafe { block.as_ptr().offset(offset).write(0x77) };
        forget((block, last));
        heap.check().map_err(|broken| broken.to_string())
    };
    for offset in [64, 65, -1, -2, -64, -63, 126, 127] {
        let report = stray(offset).expect_err("a stray write into a length");
        assert!(report.contains("R2"), "at {offset}: {report}");
    }
    for offset in [66, 67, -62, -61] {
        let report = stray(offset).expect_err("a stray write into a link");
        assert!(report.contains("R6") || report.contains("B"), "at {offset}: {report}");
    }
    assert_eq!(stray(63), Ok(()), "the block's own last byte");
}

/// The program writes into a block that lies in a core's list (C1: counts; F2: no block of the region).
#[test]
fn the_checker_sees_a_write_into_a_cached_block() {
    Core::set(0);
    for garbage in [1_usize, usize::MAX, 0x4141_4141_4141_4141] {
        let mut arena = Arena::new(LEN);
        let heap: InArena<'_, Cache> = arena.heap();
        heap.add(0..LEN).unwrap();
        let blocks = [new(&*heap, 64), new(&*heap, 64)];
        let victim = blocks.map(freed)[1];
        heap.check().unwrap();
        // SAFETY: none: the write is the fault. The memory is the arena's.
        unsafe { victim.cast::<usize>().write(garbage) };
        let report = heap.check().expect_err("a corrupted list").to_string();
        assert!(report.contains("C1") || report.contains("F2"), "{garbage:#x}: {report}");
    }
}

/// Freed with another length, a block lies in the wrong list, and what it reaches into is free already (F2); the same of a
/// foreign pointer.
#[test]
fn the_checker_sees_what_does_not_belong_into_a_list() {
    Core::set(0);
    let cached = |of: fn(&InArena<'_, Cache>) -> (NonNull<u8>, usize)| {
        let mut arena = Arena::new(LEN);
        let heap: InArena<'_, Cache> = arena.heap();
        heap.add(0..LEN).unwrap();
        // The list must be open: its first block opens it.
        freed(new(&*heap, 128));
        heap.check().unwrap();
        let (ptr, size) = of(&heap);
        // SAFETY: none: a misuse that the checker must see.
        unsafe { heap.free(ptr, layout(size), Path::Layout) };
        heap.check().expect_err("what is no block of the list").to_string()
    };
    let longer = cached(|heap| {
        let block = new(&**heap, 64);
        let ptr = block.as_ptr();
        forget(block);
        (ptr, 128)
    });
    assert!(longer.contains("F2"), "{longer}");
    let foreign = cached(|_| (NonNull::from(Box::leak(Box::new([0_u64; 16]))).cast(), 128));
    assert!(foreign.contains("F2"), "{foreign}");
}

/// Places of the heap's own data in a region whose blocks lie in `whole`: the bins, at the start of its control block; the
/// number of free granules, the last but one in it; the boundary bitmap, behind it.
fn control_data<G: Grain>(start: usize, whole: &Range<usize>) -> [Range<usize>; 3] {
    let bins = start..start + size_of::<G::Words>() + size_of::<G::Lists>();
    let pointers = bins.end.next_multiple_of(8);
    let (free, bitmap) = (pointers + 24, pointers + 32);
    [bins, free..free + 4, bitmap..bitmap + (whole.len() / G::GRANULE + 2) / 8]
}

/// A bit of the heap's own data in a region, flipped: of the bins, of the boundary bitmap, of a free block's four words.
#[test]
fn the_checker_sees_every_flipped_bit() {
    fn of<G: Grain>() {
        const LEN: usize = 4096;
        let mut arena = Arena::new(LEN);
        let whole = arena.blocks_of::<G>(0..LEN);
        let heap: InArena<'_, Plain<G>> = arena.heap();
        heap.add(0..LEN).unwrap();
        // Free blocks of several lengths, two of each, between live ones, and the rest.
        let lengths = [1, 2, 3, 9, 20].map(|granules| granules * G::SMALLEST);
        let blocks: Vec<_> = lengths.iter().chain(&lengths).map(|size| (new(&*heap, *size), new(&*heap, 1))).collect();
        let (victims, bars): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
        let rest = bars.last().map(|bar| bar.address() + bar.usable()).unwrap()..whole.end;
        let free = victims.iter().map(|victim| victim.address()..victim.address() + victim.usable()).chain([rest]);
        let word = size_of::<G::Index>();
        let of_free = free.flat_map(|free| [free.start..free.start + 3 * word, free.end - word..free.end]);
        let places: Vec<_> = of_free.chain(control_data::<G>(heap.address(0), &whole)).flatten().collect();
        victims.into_iter().for_each(|victim| _ = freed(victim));
        heap.check().unwrap();
        for (at, bit) in places.into_iter().flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let byte = bars[0].as_ptr().with_addr(at.try_into().unwrap());
            // SAFETY: none: the write is the fault. The memory is the arena's.
            let flip = || unsafe { byte.write(byte.read() ^ 1 << bit) };
            flip();
            assert!(heap.check().is_err(), "bit {bit} of byte {} of the region is not looked at", at - heap.address(0));
            flip();
        }
        heap.check().unwrap();
    }
    of::<Tiny>();
    of::<Compact>();
    of::<Fine>();
    of::<Wide>();
}
