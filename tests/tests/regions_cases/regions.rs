//! Cases of regions and of the limits of a heap: where they begin and end, how long they are, what comes first, what is too
//! much.

use crate::*;

/// K01: a region may begin and end anywhere; all but 256 bytes of 4 KiB are handed out (by the grain for such regions).
#[test]
fn k01_misaligned_regions() {
    fn of<H: Housed + Audited>(spent: usize) {
        let mut arena = Arena::new(8192);
        for k in 1..=63 {
            let heap: InArena<'_, H> = arena.heap();
            heap.add(k..k + 4096).unwrap();
            let shapes = [(8, 8), (1, 1), (100, 64)];
            let round = || shapes.into_iter().filter_map(|(size, align)| try_new(&*heap, size, align)).collect::<Vec<_>>();
            let mut blocks: Vec<_> =
                core::iter::from_fn(|| Some(round()).filter(|round| !round.is_empty())).flatten().collect();
            expect_apart(&mut blocks);
            let inside = heap.address(k)..heap.address(k + 4096);
            assert!(blocks.iter().all(|b| inside.contains(&b.address()) && b.address() + b.usable() <= inside.end));
            let sum: usize = blocks.iter().map(Piece::usable).sum();
            assert!(sum >= 4096 - spent, "{sum} bytes handed out at {k}");
            blocks.into_iter().for_each(free);
            heap.expect_canaries();
            assert_eq!(room(&*heap), (heap.figures().held_bytes, heap.figures().held_bytes));
        }
    }
    Core::set(0);
    of::<Plain<Tiny>>(256);
    of::<Cache<Tiny>>(256);
    // The bins of a grain for larger regions take more; and where no block is a single granule, those between blocks wait
    // for these.
    of::<Cache<Compact>>(352);
    of::<NoCache<Fine>>(1100);
    of::<Plain<Wide>>(900);
}

/// K03: a region that is too small for a heap is refused, and not written to; the least that will do, does.
#[test]
fn k03_regions_too_small() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(2048);
        let mut least = usize::MAX;
        for len in (0..=64).chain(64..1000) {
            for k in 0..=15 {
                let heap: InArena<'_, H> = arena.heap();
                let added = heap.add(100 + k..100 + k + len);
                assert!(added.is_ok() || added == Err(RegionError::TooSmall));
                assert!(added != Ok(0) && (len > 64 || added.is_err()), "{len} bytes: {added:?}");
                let blocks = [(1, 1), (8, 8), (1 << 20, 8)].map(|(size, align)| try_new(&*heap, size, align));
                let inside = heap.address(100 + k)..heap.address(100 + k + len);
                assert!(
                    blocks.iter().flatten().all(|b| inside.contains(&b.address()) && b.address() + b.usable() <= inside.end)
                );
                assert_eq!((blocks[0].is_some(), blocks[2].is_some()), (added.is_ok(), false));
                drop(blocks);
                heap.expect_canaries();
                heap.check().unwrap();
                least = least.min(added.map_or(usize::MAX, |_| len));
            }
        }
        eprintln!("the least region is {least} bytes long");
    }
    on!(of: Plain<Tiny>, Cache<Tiny>, NoCache<Compact>, Plain<Fine>, Cache<Wide>);
}

/// K04: regions of no bytes, anywhere, are refused, and a good one works afterwards.
#[test]
fn k04_empty_regions() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        let heap: InArena<'_, H> = arena.heap();
        assert_eq!(heap.add(0..0), Err(RegionError::TooSmall));
        for start in [null_mut(), without_provenance_mut(usize::MAX)] {
            // SAFETY: no bytes, so none that are somebody's.
            assert_eq!(unsafe { Regional::add(&*heap, Region::new(start, 0)) }, Err(RegionError::TooSmall));
        }
        assert!(try_new(&*heap, 1, 1).is_none());
        heap.expect_canaries();
        heap.add(0..4096).unwrap();
        free(new(&*heap, 16, 8));
        heap.check().unwrap();
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
}

/// K07: a region whose addresses are numbers as small as those of its granules.
#[test]
fn k07_low_addresses() {
    const LEN: usize = MIB;
    let low: *mut u8 = without_provenance_mut(0x1_0000);
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: maps only what is not mapped.
    let start = unsafe { libc::mmap(low.cast(), 2 * LEN, protection, flags, -1, 0) }.cast::<u8>();
    if start.addr() != low.addr() {
        return eprintln!("the system maps nothing at {low:?}");
    }
    let heap = Plain::<Fine>::new();
    // SAFETY: mapped just now, and for good.
    let held = unsafe { Regional::add(&heap, Region::growable(start, LEN, 2 * LEN)) }.unwrap();
    let block = new(&heap, held, 8);
    // SAFETY: mapped as well.
    assert_eq!(unsafe { heap.extend(start, 2 * LEN) }, Ok(LEN));
    free(block);
    assert_eq!(room(&heap), (held + LEN, held + LEN));
}

/// K09: regions never merge, adjoining or not: what is longer than each is null, in both orders and without damage.
#[test]
fn k09_adjacent_regions_stay_apart() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(64 * KIB);
        for parts in [[0..0x8000, 0x8000..0x1_0000], [0x8000..0x1_0000, 0..0x8000]] {
            let heap: InArena<'_, H> = arena.heap();
            parts.into_iter().for_each(|part| assert!(heap.add(part).is_ok()));
            let before = room(&*heap);
            assert!(try_new(&*heap, 0xc000, 16).is_none());
            assert_eq!(room(&*heap), before);
            let blocks = [new(&*heap, 0x7000, 16), new(&*heap, 0x7000, 16)];
            assert!(!blocks[0].overlaps(&blocks[1]));
            drop(blocks);
            assert_eq!(room(&*heap), before);
        }
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
}

/// K10: a region that shares bytes with another is refused.
#[test]
fn k10_overlapping_regions() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(64 * KIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..0x8000).unwrap();
        for part in [0x4000..0xc000, 0..0x8000, 0x100..0x7000, 0..0xc000, 0x7ff0 - 64..0xc000] {
            assert_eq!(heap.add(part.clone()), Err(RegionError::Overlaps), "{part:x?}");
        }
        let mut blocks: Vec<_> = core::iter::from_fn(|| try_new(&*heap, 64, 16)).collect();
        expect_apart(&mut blocks);
        assert!(blocks.iter().map(Piece::usable).sum::<usize>() <= 0xc000);
        drop(blocks);
        heap.expect_canaries();
        heap.check().unwrap();
        // What a region may grow to is its own as well.
        let heap: InArena<'_, H> = arena.heap();
        heap.add_growable(0..0x1000, 0x8000).unwrap();
        assert_eq!(heap.add(0x4000..0xc000), Err(RegionError::Overlaps));
        heap.add(0x8000..0xc000).unwrap();
        heap.extend(0, 0x8000).unwrap();
        heap.check().unwrap();
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
}

/// K11: a region grows by a few bytes at a time, and then by many; what was free at its end is one block with what comes.
/// The case asks for 4096 + 400 bytes out of 1024 + 4096 of which 512 are live: no grain's control block is so small, so
/// here it is all there is.
#[test]
fn k11_extending_a_region() {
    fn of<H: Housed + Audited>() {
        const FULL: usize = 1024 + 4096;
        let mut arena = Arena::new(8192);
        let heap: InArena<'_, H> = arena.heap();
        let held = heap.add_growable(0..1024, FULL).unwrap();
        let first = (held / 2).min(512);
        let block = new(&*heap, first, 8);
        let mut len = 1024;
        for more in (1..=15).chain([4096 - 120]) {
            len += more;
            heap.extend(0, len).unwrap();
            heap.expect_canaries();
            heap.check().unwrap();
        }
        assert_eq!(len, FULL);
        assert_eq!(heap.figures().peak_bytes, block.usable(), "what comes was never used");
        assert_eq!(heap.extend(0, FULL + H::Grain::GRANULE), Err(RegionError::NotGrowable));
        assert_eq!(heap.extend(100, FULL), Err(RegionError::Missing));
        assert_eq!(heap.extend(0, 1024), Ok(0), "a region does not become shorter");
        let rest = held - block.usable() + 4096;
        let large = new(&*heap, rest, 8);
        drop((large, block));
        assert_eq!(room(&*heap), (held + 4096, held + 4096));
        heap.expect_canaries();
    }
    on!(of: Plain<Tiny>, Cache<Tiny>, NoCache<Compact>, Plain<Fine>, Cache<Wide>);
}

/// K12: a heap that has no region answers null, errors and zeros.
#[test]
fn k12_use_before_init() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        let heap: InArena<'_, H> = arena.heap();
        let layout = Layout::from_size_align(16, 8).unwrap();
        assert_eq!(Subject::allocate(&*heap, layout, Fill::Any), None);
        assert_eq!(Subject::allocate(&*heap, layout, Fill::Zeroed), None);
        assert_eq!(heap.extend(0, 64), Err(RegionError::Missing));
        let figures = heap.figures();
        assert_eq!((figures.held_bytes, figures.live_bytes, figures.largest_free, figures.regions), (0, 0, 0, 0));
        assert_eq!(heap.trim(), 0);
        heap.check().unwrap();
        heap.expect_canaries();
        heap.add(0..4096).unwrap();
        free(new(&*heap, 16, 8));
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
    let mut arena = Arena::new(4096);
    let heap: InArena<'_, NoCache<Compact>> = arena.heap();
    assert_eq!(heap.heap().warm(), Err(RegionError::Missing));
    heap.add(0..2048).unwrap();
    assert!(heap.heap().warm().is_ok());
    let second = Region::new(without_provenance_mut(heap.address(2048)), 2048);
    // SAFETY: refused, as there is a region already.
    assert_eq!(unsafe { heap.heap().init(second) }, Err(RegionError::Occupied));
}

/// K14: eight threads make the first allocation of a fresh heap at once. (Its source panics if it is asked twice.)
#[test]
fn k14_concurrent_first_use() {
    const THREADS: usize = 8;
    const BLOCKS: usize = 1000;
    let mut arena = Arena::new(MIB);
    for round in 0..200 {
        let mut heap: InArena<'_, Shared<Fine>> = arena.lazy_heap(0..MIB);
        let barrier = Barrier::new(THREADS);
        let mut addresses = thread::scope(|scope| {
            let start = || {
                barrier.wait();
                let leak = |piece: Piece<'_, _>| {
                    let address = piece.address();
                    core::mem::forget(piece);
                    address
                };
                (0..BLOCKS).map(|_| leak(new(&*heap, 64, 8))).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(start)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        addresses.sort_unstable();
        assert!(addresses.is_sorted_by(|a, b| a + 64 <= *b), "round {round}: blocks overlap");
        let figures = heap.figures();
        assert_eq!((figures.live_bytes, figures.regions), (THREADS * BLOCKS * 64, 1), "round {round}");
        assert!(figures.held_bytes <= MIB);
        heap.get_mut().check().unwrap();
    }
}

/// K15: sizes near the end of the address space never come back as small blocks.
#[test]
fn k15_size_overflow() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(64 * KIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..64 * KIB).unwrap();
        let near = isize::MAX as usize;
        for align in [1, 8, 16, 4096] {
            // A layout beyond `isize::MAX` cannot be made, so these are the largest that a caller can ask for.
            for layout in (near - 2 * 4096..=near).filter_map(|size| Layout::from_size_align(size, align).ok()) {
                assert_eq!(Subject::allocate(&*heap, layout, Fill::Any), None, "{layout:?}");
                assert_eq!(Subject::allocate(&*heap, layout, Fill::Zeroed), None, "{layout:?}");
            }
            let block = new(&*heap, 100, align);
            for size in (near - 64..=near + 64).chain(usize::MAX - 4096..=usize::MAX) {
                // SAFETY: the block is live with this layout; it stays so if the answer is null, and any other fails the test.
                let moved = unsafe { Subject::reallocate(&*heap, block.as_ptr(), block.layout(), size, Path::Layout) };
                assert_eq!(moved, None, "to {size}");
            }
            free(block);
        }
        free(new(&*heap, 60_000, 8));
        heap.check().unwrap();
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
    // The block heap by itself, which is asked for a number of bytes, not for a layout.
    let mut arena = Arena::new(4096);
    let heap: InArena<'_, Plain<Compact>> = arena.heap();
    heap.add(0..4096).unwrap();
    let block = new(&*heap, 100, 8);
    for size in [usize::MAX, usize::MAX - 6, isize::MAX as usize + 1, isize::MAX as usize - 7] {
        // SAFETY: the block is live with this layout, and stays so.
        unsafe {
            assert_eq!(heap.inner().resize(block.as_ptr(), block.layout(), size), Ok(false), "to {size}");
            assert!(heap.inner().slide(block.as_ptr(), block.layout(), size).is_none(), "to {size}");
        }
    }
    free(block);
    heap.check().unwrap();
}

/// K17: an alignment that no place in the region has loses nothing.
#[test]
fn k17_alignment_larger_than_the_region() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::aligned(33 * KIB, MIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(64..64 + 32 * KIB).unwrap();
        let before = room(&*heap);
        (0..1000).for_each(|_| assert!(try_new(&*heap, 16, MIB).is_none()));
        for align in (0..62).map(|bit| 1 << bit).filter(|align| *align > 64 * KIB) {
            assert!(try_new(&*heap, 16, align).is_none());
        }
        assert_eq!(room(&*heap), before);
        free(new(&*heap, before.1, 8));
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
}

/// K18: a block of all there is, at the ends of what 16-bit indexes can count, is freed and had again. The case asks for a
/// 32-bit target, which comes later; the limits of these indexes are as near.
#[test]
fn k18_blocks_of_nearly_everything() {
    fn of<H: Housed + Audited>() {
        let (granule, most) = (H::Grain::GRANULE, H::Grain::MOST);
        let mut arena = Arena::new(most * granule + 16 * KIB);
        let mut longest = 0;
        for len in (most * granule - 64..most * granule + 9 * KIB).step_by(7) {
            let heap: InArena<'_, H> = arena.heap();
            let Ok(held) = heap.add(0..len) else { continue };
            longest = longest.max(held);
            for _ in 0..2 {
                free(new(&*heap, held, 4));
                assert!(try_new(&*heap, held + 1, 1).is_none());
            }
            assert_eq!(room(&*heap), (held, held));
            heap.expect_canaries();
        }
        assert_eq!(longest, most * granule, "the longest region has all the granules that can be counted");
    }
    on!(of: Plain<Tiny>, Cache<Tiny>, Plain<Compact>);
}

/// K29: regions about as long as a power of two: they work, or are refused as too small or too large for their grain.
#[test]
fn k29_region_lengths_around_powers_of_two() {
    fn of<H: Housed + Audited>() {
        for (power, off) in (10..=26).flat_map(|power| [-16, -8, 0, 8, 16, 24].map(|off| (power, off))) {
            let len = (1_usize << power).checked_add_signed(off).unwrap();
            let (most, mut arena) = (H::Grain::MOST * H::Grain::GRANULE, Arena::new(len + 32));
            let heap: InArena<'_, H> = arena.heap();
            let held = match heap.add(0..len) {
                Ok(held) => held,
                Err(RegionError::TooSmall) if len < 1024 => continue,
                Err(RegionError::TooLarge) if len > most => continue,
                Err(why) => panic!("{len} bytes: {why}"),
            };
            assert_eq!(room(&*heap), (held, held));
            let blocks = [new(&*heap, held / 2, 8), new(&*heap, held / 4, 8)];
            heap.check().unwrap();
            assert!(!blocks[0].overlaps(&blocks[1]));
            blocks.into_iter().for_each(free);
            assert_eq!(room(&*heap), (held, held));
            heap.expect_canaries();
        }
    }
    on!(of: Plain<Tiny>, Cache<Compact>, Plain<Fine>, Cache<Wide>);
}

/// K31: no hook asks for more memory here (a source is asked once); who adds what a request needs, adds once.
#[test]
fn k31_one_region_serves_a_request() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(40 * MIB);
        let heap: InArena<'_, H> = arena.heap();
        let (mut blocks, mut given, mut live) = (Vec::new(), 0, 0);
        for size in (1..=8).flat_map(|k| [0, 1, 8, 16, 17, 64].map(|d| 64 * KIB * k - d)) {
            if try_new(&*heap, size, 16).is_none() {
                // A control block, a bit a granule, and the padding.
                let len = (size + size / 64 + KIB).next_multiple_of(64 * KIB);
                heap.add(given..given + len).unwrap();
                given += len;
            }
            live += size;
            blocks.push(try_new(&*heap, size, 16).unwrap_or_else(|| panic!("{size} bytes after a region was added")));
        }
        assert!(given <= 2 * live, "{given} bytes given for {live}");
        expect_apart(&mut blocks);
    }
    on!(of: Plain<Fine>, NoCache<Fine>, Cache<Wide>);
}
