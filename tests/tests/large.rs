//! Large and huge blocks: grown without copying where the source can, by copying where it cannot; fresh pages never written.

use core::alloc::Layout;
use freestone_core::{CHUNK_SIZE, PAGE_SIZE, PageSource};
use freestone_linux::{LinuxHeap, MmapPages};
use freestone_tests::home::{Source, TestHeap};
use freestone_tests::piece::{Piece, Served};
use freestone_tests::source::{Call, Fail};
use freestone_tests::subject::{Alone, Audited, Fill, Path, Subject};

const MIB: usize = 1 << 20;

#[test]
fn huge_blocks_grow_and_shrink_by_remap() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for path in [Path::Layout, Path::Address] {
        let mut piece = Piece::new(&heap, 8 * MIB, 8, 1);
        // In the way, so that growing moves.
        let neighbour = Piece::new(&heap, 4 * MIB, 8, 2);
        for size in [16 * MIB, 64 * MIB, 32 * MIB, 3 * MIB] {
            let (maps, remaps) = (source.calls(Call::Map), source.calls(Call::Remap));
            let old = piece.as_ptr();
            assert_eq!(piece.reallocate(size, path, size as u64), Ok(Served::Yes));
            // The page map may need a leaf for the new addresses.
            assert!(source.calls(Call::Map) <= maps + 1, "to {size}: copied into a new mapping");
            assert!(source.calls(Call::Remap) > remaps, "to {size}: no remap");
            assert!(piece.as_ptr() == old || heap.usable_size(old).is_none(), "to {size}: the old address is still known");
        }
        neighbour.free(path).unwrap();
        piece.free(path).unwrap();
        heap.check().unwrap();
    }
}

#[test]
fn where_remap_is_refused_huge_blocks_are_copied() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    source.fail(Call::Remap, Fail::From(1));
    let mut piece = Piece::new(&heap, 8 * MIB, 8, 1);
    for size in [16 * MIB, 64 * MIB, 3 * MIB, 300_000, 100] {
        assert_eq!(piece.reallocate(size, Path::Layout, size as u64), Ok(Served::Yes));
        heap.check().unwrap();
    }
    piece.free(Path::Layout).unwrap();
}

/// An alignment that a remap would not keep is kept.
#[test]
fn over_aligned_huge_blocks_stay_aligned() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for align in [PAGE_SIZE, 64 * 1024, CHUNK_SIZE, 8 * MIB] {
        let mut piece = Piece::new(&heap, 5 * MIB, align, 1);
        let neighbour = Piece::new(&heap, 5 * MIB, PAGE_SIZE, 2);
        for size in [9 * MIB, 20 * MIB, 6 * MIB, 100_000, 7 * MIB] {
            assert_eq!(piece.reallocate(size, Path::Layout, size as u64), Ok(Served::Yes));
        }
        drop((piece, neighbour));
        heap.check().unwrap();
    }
}

/// A run in a chunk grows where it stands if the pages behind it are free.
#[test]
fn large_blocks_grow_in_place() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut piece = Piece::new(&heap, 300_000, 8, 1);
    let address = piece.address();
    assert_eq!(piece.reallocate(600_000, Path::Layout, 2), Ok(Served::Yes));
    assert_eq!(piece.address(), address);
    assert_eq!(piece.reallocate(300_000, Path::Layout, 3), Ok(Served::Yes));
    assert_eq!(piece.address(), address);
}

/// Pages of the `bytes` bytes at `start` that are resident.
fn resident(start: *const u8, bytes: usize) -> usize {
    let mut pages = vec![0_u8; bytes / PAGE_SIZE];
    let first = start.map_addr(|address| address.next_multiple_of(PAGE_SIZE));
    // SAFETY: the kernel writes a byte a page of the range, which lies inside a block.
    let done = unsafe { libc::mincore(first.cast_mut().cast(), pages.len() * PAGE_SIZE - PAGE_SIZE, pages.as_mut_ptr()) };
    assert_eq!(done, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

/// A zeroed block on fresh pages costs no memory until it is touched.
#[test]
fn fresh_pages_are_not_written_to_be_zero() {
    for size in [500_000, MIB, 64 * MIB] {
        let heap: Alone<_> = Alone::new(LinuxHeap::new(MmapPages));
        let layout = Layout::from_size_align(size, 8).unwrap();
        let start = heap.allocate(layout, Fill::Zeroed).unwrap();
        assert_eq!(resident(start.as_ptr(), size), 0, "of a zeroed block of {size} bytes");
        // SAFETY: the block was allocated with this layout.
        unsafe { heap.free(start, layout, Path::Layout) };
    }
}

/// A heap gives its idle memory back: what is resident after a trim is little.
#[test]
fn trim_gives_pages_back_to_the_system() {
    let heap: Alone<_> = Alone::new(LinuxHeap::new(MmapPages));
    let anchor = Piece::new(&heap, 100, 8, 1);
    let blocks: Vec<_> = (0..8).map(|n| Piece::new(&heap, 250_000, 8, n)).collect();
    let (start, bytes) = (blocks[3].as_ptr(), 200_000);
    assert!(resident(start.as_ptr(), bytes) > 0);
    drop(blocks);
    heap.trim();
    assert_eq!(resident(start.as_ptr(), bytes), 0);
    anchor.free(Path::Layout).unwrap();
}

/// The source's own contract, for the one that programs run on: what is purged reads zero.
#[test]
fn purged_pages_read_zero_on_linux() {
    use freestone_core::{PageRun, Pages, Purged};
    let mapped = MmapPages.map(Pages(16), PAGE_SIZE).unwrap();
    let run = PageRun { start: mapped.start, pages: Pages(16) };
    // SAFETY: the run is this test's.
    unsafe {
        run.start.write_bytes(7, run.pages.bytes());
        assert_eq!(MmapPages.purge(run), Purged::Zeroed);
        assert!((0..run.pages.bytes()).all(|n| run.start.add(n).read() == 0));
        MmapPages.unmap(run).unwrap();
    }
}
