//! Huge pages: what is resident because its neighbour was touched counts so, where the source takes the advice, and there only.

use core::alloc::Layout;
use freestone_core::{CHUNK_SIZE, PAGE_SIZE, SizeClass};
use freestone_tests::home::{Source, TestHeap};
use freestone_tests::piece::Piece;
use freestone_tests::subject::{Audited, Fill, Path, Subject};

const MIB: usize = 1 << 20;

/// Sources with huge pages and without, and the bytes that are free and resident where a chunk has given away `taken`.
fn sources(taken: usize) -> [(Source, usize); 2] {
    let without = Source::new();
    without.refuse_huge_pages();
    [(Source::new(), CHUNK_SIZE - taken), (without, 0)]
}

/// A heap full of small objects grows by huge pages; each is resident as a whole from its first object on.
#[test]
fn a_chunk_that_a_dense_heap_grows_by() {
    let layout = Layout::from_size_align(2048, 8).unwrap();
    let span = SizeClass::of(2048, 8).unwrap().pages().bytes();
    for (source, resident) in sources(span) {
        let heap: TestHeap = source.heap();
        let grow = || {
            let held = heap.stats().held_bytes;
            while heap.stats().held_bytes == held {
                heap.allocate(layout, Fill::Any).unwrap();
            }
            heap.stats()
        };
        while grow().held_bytes < 64 * MIB {
            assert_eq!(heap.stats().dirty_bytes, 0, "nothing was freed, and no advice given");
        }
        for _ in 0..3 {
            assert_eq!(grow().dirty_bytes, resident);
        }
        heap.check().unwrap();
    }
}

/// A chunk that a churning heap puts to sleep becomes resident as a whole when it is used again.
#[test]
fn a_chunk_that_sleeps() {
    const BLOCK: usize = CHUNK_SIZE / 2;
    for (source, resident) in sources(BLOCK) {
        let heap: TestHeap = source.heap();
        let blocks = |count: usize| (0..count).map(|_| Piece::new(&heap, BLOCK, PAGE_SIZE, 1)).collect::<Vec<_>>();
        for _ in 0..100 {
            blocks(80).into_iter().for_each(|block| block.free(Path::Layout).unwrap());
        }
        let before = heap.stats();
        let asleep = before.held_bytes - before.dirty_bytes;
        assert!(asleep >= 2 * CHUNK_SIZE, "nothing sleeps: the test tests nothing: {before:?}");
        let awake = blocks(before.dirty_bytes / BLOCK);
        assert_eq!(heap.stats().dirty_bytes, 0);
        let first = blocks(1);
        assert_eq!((heap.stats().dirty_bytes, heap.stats().held_bytes), (resident, before.held_bytes));
        let second = blocks(1);
        assert_eq!(heap.stats().dirty_bytes, 0);
        drop((awake, first, second));
        heap.check().unwrap();
    }
}
