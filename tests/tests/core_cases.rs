//! Known allocator bugs, as cases: each test names the case whose bug it would find.
//!
//! Here: K14, K15, K17, K19, K21, K22, K24, K27, K31, K32, K34, K35, K38, K39, K41, K43, K44, K45, K49, on `Heap` over the
//! test source. K36 is `reentry.rs`, K47 `faults.rs`, the R cases `global.rs`.
//!
//! Where a case speaks of a region of so many bytes, the heap gets a source with so many pages. The heaps over regions have
//! the cases to themselves, those of regions and their limits besides (K01 to K12, K18, K25, K29): see `regions_cases`. K40
//! (targets without compare-and-swap) does not apply yet.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_core::{Block, CHUNK_SIZE, ClaimLists, CoreLists, PAGE_SIZE, Pages, SizeClass, Tables, chain};
use freestone_tests::home::{Core, SharedHeap, Source, TestHeap};
use freestone_tests::piece::{Piece, Served};
use freestone_tests::source::Call;
use freestone_tests::subject::{Audited, Fill, Path, Subject};
use std::sync::Barrier;
use std::thread;

type P<'h, H = TestHeap> = Piece<'h, H>;

const MIB: usize = 1 << 20;

fn try_new<H: Subject>(heap: &H, size: usize, align: usize) -> Option<P<'_, H>> {
    Piece::allocate(heap, Layout::from_size_align(size, align).unwrap(), Fill::Any, size as u64).unwrap()
}

fn new<H: Subject>(heap: &H, size: usize, align: usize) -> P<'_, H> {
    Piece::new(heap, size, align, size as u64)
}

fn free<H: Subject>(piece: P<'_, H>) {
    piece.free(Path::Layout).unwrap();
}

/// The address of a block that stays live.
fn leak<H: Subject>(piece: P<'_, H>) -> usize {
    let address = piece.address();
    core::mem::forget(piece);
    address
}

/// The six orders of three things.
fn orders() -> [[usize; 3]; 6] {
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
}

/// K14: eight threads make the first allocation of a fresh heap at once.
#[test]
fn k14_concurrent_first_use() {
    const THREADS: usize = 8;
    const BLOCKS: usize = 1000;
    let source = Source::new();
    for round in 0..200 {
        let mut heap: SharedHeap = source.shared_heap();
        let barrier = Barrier::new(THREADS);
        let mut addresses = thread::scope(|scope| {
            let start = || {
                barrier.wait();
                (0..BLOCKS).map(|_| leak(new(&heap, 64, 8))).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(start)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        addresses.sort_unstable();
        assert!(addresses.is_sorted_by(|a, b| a + 64 <= *b), "round {round}: blocks overlap");
        let held = heap.stats().held_bytes;
        assert!(held <= CHUNK_SIZE, "round {round}: {held} bytes held for {} of blocks", THREADS * BLOCKS * 64);
        heap.check().unwrap();
    }
    source.expect_all_back();
}

/// K15: sizes near the end of the address space never come back as small blocks.
#[test]
fn k15_size_overflow() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let near = isize::MAX as usize;
    for align in [1, 8, 16, 4096] {
        // A layout beyond `isize::MAX` cannot be made, so these are the largest that a caller can ask for.
        for layout in (near - 2 * 4096..=near).filter_map(|size| Layout::from_size_align(size, align).ok()) {
            assert_eq!(heap.allocate(layout, Fill::Any), None, "{layout:?}");
            assert_eq!(heap.allocate(layout, Fill::Zeroed), None, "{layout:?}");
        }
        let block = new(&heap, 100, align);
        for size in (near - 64..=near + 64).chain(usize::MAX - 4096..=usize::MAX) {
            // SAFETY: the block is live with this layout; it stays so if the answer is null, and any other fails the test.
            assert_eq!(unsafe { heap.reallocate(block.as_ptr(), block.layout(), size, Path::Layout) }, None, "to {size}");
        }
        free(block);
    }
    free(new(&heap, 60_000, 8));
    heap.check().unwrap();
}

/// K17: an alignment that the source cannot give loses nothing.
#[test]
fn k17_alignment_larger_than_memory() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let first = new(&heap, 64, 8);
    source.limit_to(source.pages_out());
    let free_before = heap.stats();
    for _ in 0..1000 {
        assert!(try_new(&heap, 16, 64 * MIB).is_none());
    }
    let free_after = heap.stats();
    assert_eq!((free_before.held_bytes, free_before.live_bytes), (free_after.held_bytes, free_after.live_bytes));
    free(new(&heap, MIB, 8));
    free(first);
    heap.check().unwrap();
}

/// K19: no size and no small alignment falls between two classes.
#[test]
fn k19_every_size_has_a_home() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for align in [1, 2, 4, 8, 16, 32, 64] {
        (1..=9000).for_each(|size| free(new(&heap, size, align)));
    }
    assert_eq!(heap.stats().live_bytes, 0);
    heap.check().unwrap();
}

/// K21: a block of size 0 is aligned, unique and freeable by every path; nothing leaks.
#[test]
fn k21_size_zero() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for align in [1, 8, 64, 4096, MIB] {
        let rounds = if align == MIB { 200 } else { 10_000 };
        for n in 0..rounds {
            let (a, b) = (new(&heap, 0, align), new(&heap, 0, align));
            assert_ne!(a.address(), b.address());
            a.free([Path::Layout, Path::Address, Path::Checked][n % 3]).unwrap();
            free(b);
        }
    }
    assert_eq!(heap.stats().live_bytes, 0);
    heap.check().unwrap();
}

/// K22, for pages: in whatever order neighbours are freed, they become one run again.
#[test]
fn k22_runs_coalesce_in_every_order() {
    const RUN: usize = 66 * PAGE_SIZE;
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let anchor = new(&heap, 64, 8);
    source.limit_to(source.pages_out());
    // The chunk is filled, so that three neighbours have nothing but each other.
    let mut blocks: Vec<_> = core::iter::from_fn(|| try_new(&heap, RUN, 8)).collect();
    blocks.sort_by_key(Piece::address);
    let others = blocks.split_off(3);
    assert!(others.len() >= 3 && blocks[2].address() - blocks[0].address() == 2 * RUN);
    let mut blocks: Vec<_> = blocks.into_iter().map(Some).collect();
    for order in orders() {
        order.into_iter().for_each(|n| free(blocks[n].take().unwrap()));
        free(try_new(&heap, 3 * RUN, 8).unwrap_or_else(|| panic!("freed in the order {order:?}")));
        blocks.iter_mut().for_each(|block| *block = try_new(&heap, RUN, 8));
        blocks.sort_by_key(|block| block.as_ref().map(Piece::address));
    }
    drop((others, blocks));
    free(anchor);
    heap.check().unwrap();
}

/// K24: blocks of a whole chunk, taken and given in both orders, never merge beyond their chunk.
#[test]
fn k24_whole_chunks() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for round in 0..100 {
        let (a, b) = (new(&heap, CHUNK_SIZE, 8), new(&heap, CHUNK_SIZE, 8));
        assert!(!a.overlaps(&b));
        if round % 2 == 0 {
            free(a);
            free(b);
        } else {
            free(b);
            free(a);
        }
        heap.check().unwrap();
    }
}

/// K27: two alternating large sizes use the same memory over and over.
#[test]
fn k27_alternating_large_sizes() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let round = || {
        let (a, b) = (new(&heap, 85_196, 1), new(&heap, 80_000, 1));
        free(a);
        free(b);
    };
    round();
    let peak = heap.stats().peak_held_bytes;
    (0..10_000).for_each(|_| round());
    assert_eq!(heap.stats().peak_held_bytes, peak);
}

/// K31: the source is asked for enough at once.
#[test]
fn k31_one_map_serves_a_request() {
    for size in (1..=8).flat_map(|k| [0, 1, 8, 16, 17, 64].map(|d| 64 * 1024 * k - d)) {
        let source = Source::new();
        let heap: TestHeap = source.heap();
        // The heap's own tables come with the first block.
        let first = new(&heap, 16, 16);
        let maps = source.calls(Call::Map);
        let blocks: Vec<_> = (0..16).map(|_| new(&heap, size, 16)).collect();
        let maps = source.calls(Call::Map) - maps;
        assert!(maps <= 16, "{maps} maps for 16 blocks of {size}");
        let (held, live) = (heap.stats().held_bytes, 16 * size);
        assert!(held <= 2 * live + CHUNK_SIZE, "{held} bytes held for {live} live");
        drop((first, blocks));
    }
}

/// K32: a block that shrinks keeps its first bytes, and its neighbours keep theirs.
#[test]
fn k32_shrinking_keeps_what_is_left() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for old in 16..=512 {
        for size in (1..=old).step_by(7) {
            let (mut block, neighbour) = (new(&heap, old, 1), new(&heap, old, 1));
            assert_eq!(block.reallocate(size, Path::Layout, 3), Ok(Served::Yes));
            let others: Vec<_> = (0..4).map(|_| new(&heap, old - size + 1, 1)).collect();
            assert!(others.iter().chain([&neighbour]).all(|other| !other.overlaps(&block)));
            others.into_iter().chain([neighbour, block]).for_each(free);
        }
    }
    heap.check().unwrap();
}

/// K34: a block grows by doublings and then some.
#[test]
fn k34_growth_by_doubling() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut block = new(&heap, 2, 2);
    for size in (2..=11).map(|bit| 1 << bit).chain([3000, 30_000, 300_000, 3 * MIB, 30 * MIB]) {
        assert_eq!(block.reallocate(size, Path::Layout, size as u64), Ok(Served::Yes));
    }
    free(block);
    heap.check().unwrap();
}

/// K35: odd sizes from realloc do not misalign what comes after.
#[test]
fn k35_realloc_to_odd_sizes() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut block = new(&heap, 33, 1);
    for size in [45, 47, 101] {
        assert_eq!(block.reallocate(size, Path::Layout, 1), Ok(Served::Yes));
        free(new(&heap, 32, 16));
        free(new(&heap, 8, 8));
    }
    free(block);
}

/// K38: the core's number is out of range, and changes between allocation and free.
#[test]
fn k38_core_ids_out_of_range() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut ids = [0, 3, 4, 7, 255, usize::MAX].into_iter().cycle();
    let mut held = Vec::new();
    for n in 0..20_000 {
        Core::set(ids.next().unwrap());
        held.push(new(&heap, 1 + n % 3000, 8));
        Core::set(ids.next().unwrap());
        if held.len() > 100 {
            free(held.swap_remove(n % 100));
        }
    }
    held.into_iter().for_each(free);
    heap.check().unwrap();
    assert_eq!(heap.stats().live_bytes, 0);
}

/// Zeroed tables out of the test's own memory.
struct OwnTables;

impl Tables for OwnTables {
    fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, PAGE_SIZE).ok()?;
        // SAFETY: the size is not zero; the table lives as long as the program.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }
}

/// K39: four threads on one list of eight blocks; an owner's stamp that is found set means one block with two owners.
#[test]
fn k39_a_shared_list_never_hands_a_block_out_twice() {
    const CYCLES: usize = 20_000_000;
    let class = SizeClass::of(64, 8).unwrap();
    let lists: ClaimLists<Core, 4> = CoreLists::NEW;
    let memory = OwnTables.table(8 * 64).unwrap();
    let done = AtomicUsize::new(0);
    Core::set(0);
    assert!(lists.prepare(&OwnTables));
    lists.slab(0).unwrap().slot(class).limit.store(8, Relaxed);
    for n in 0..8 {
        // SAFETY: eight blocks of 64 bytes out of memory that nothing else uses.
        let block = unsafe { Block::from_ptr(memory.add(n * 64)) };
        assert!(lists.push(class, block).is_ok());
    }
    thread::scope(|scope| {
        for owner in 1..=4 {
            let (lists, done) = (&lists, &done);
            scope.spawn(move || {
                Core::set(0);
                while done.fetch_add(1, Relaxed) < CYCLES {
                    let Some(block) = lists.pop(class) else { continue };
                    // SAFETY: the third word of a block that this thread owns; the list uses the first, a seal the second.
                    let stamp = unsafe { block.as_ptr().cast::<AtomicUsize>().add(2).as_ref() };
                    assert_eq!(stamp.swap(owner, Relaxed), 0, "one block, two owners");
                    assert_eq!(stamp.swap(0, Relaxed), owner, "one block, two owners");
                    let mut block = block;
                    while let Err(again) = lists.push(class, block) {
                        block = again;
                        core::hint::spin_loop();
                    }
                }
            });
        }
    });
    let mut left = lists.take_all(class);
    assert_eq!(left.len(), 8, "no block lost");
    while let Some(block) = left.pop() {
        let _ = block.into_ptr();
    }
}

/// K41: after null no lock is held: another thread is served at once, and so is this one when something is freed.
#[test]
fn k41_no_lock_is_left_held_on_failure() {
    let source = Source::new();
    let mut heap: SharedHeap = source.shared_heap();
    source.limit_to(Pages(4 * 512));
    for _ in 0..10 {
        let mut held = Vec::new();
        while let Some(piece) = try_new(&heap, 50_000, 8) {
            held.push(piece);
        }
        thread::scope(|scope| {
            scope.spawn(|| assert!(try_new(&heap, 50_000, 8).is_none()));
        });
        free(held.pop().unwrap());
        free(new(&heap, 50_000, 8));
        held.into_iter().for_each(free);
        heap.check().unwrap();
    }
}

/// K43: blocks go back to the heap and the chunk that they came from, wherever those lie to each other.
#[test]
fn k43_frees_find_their_way() {
    let (one, other) = (Source::new(), Source::new());
    let (left, right): (TestHeap, TestHeap) = (one.heap(), other.heap());
    for round in 0..100 {
        let blocks: Vec<_> = (0..60).map(|n| new([&left, &right][n % 2], [100, 5000, 300_000, 3 * MIB][n % 4], 8)).collect();
        for piece in &blocks[..2] {
            let (mine, its) = (left.usable_size(piece.as_ptr()), right.usable_size(piece.as_ptr()));
            assert!(mine.is_some() != its.is_some(), "one heap knows the block");
        }
        blocks.into_iter().for_each(|piece| piece.free([Path::Address, Path::Checked][round % 2]).unwrap());
        left.check().unwrap();
        right.check().unwrap();
        assert_eq!((left.stats().live_bytes, right.stats().live_bytes), (0, 0));
    }
    drop((left, right));
    one.expect_all_back();
    other.expect_all_back();
}

/// K44: a large block's free gives back all of its pages.
#[test]
fn k44_large_frees_leak_no_pages() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let round = || {
        (1..=64).for_each(|pages| free(new(&heap, pages * PAGE_SIZE + 1, 8)));
        (1..=4).for_each(|huge| free(new(&heap, huge * CHUNK_SIZE + 1, 8)));
        heap.trim();
        // The page map may need one more leaf, for addresses that it had not seen.
        (source.pages_out().bytes() - heap.stats().meta_bytes, heap.stats().held_bytes)
    };
    let first = round();
    (0..100).for_each(|n| assert_eq!(round(), first, "round {n}"));
    drop(heap);
    source.expect_all_back();
}

/// K45: words and page maps hold what they can hold exactly, refuse the rest, and alias nothing.
#[test]
fn k45_address_width() {
    for address in [0x7fff_ffff_f000_usize, 0x7f_ffff_f000, 0xffff_8000_0000_1000] {
        assert!(chain::fits(address, address));
        let block = NonNull::new(core::ptr::without_provenance_mut(address)).unwrap();
        let word = chain::word_of(block, 3);
        assert_eq!((chain::word_block(word), chain::word_count(word)), (Some(block), 3));
    }
    assert!([0x80_0000_0000_0000, 0xff_ffff_ffff_f000].iter().all(|address| !chain::fits(*address, *address)));
    let source = Source::new();
    let heap: TestHeap = source.heap();
    for piece in [new(&heap, 100, 8), new(&heap, 100_000, 8), new(&heap, 5 * MIB, 8)] {
        for bit in 39..64 {
            let far = piece.as_ptr().as_ptr().map_addr(|address| address ^ (1 << bit));
            let found = NonNull::new(far).and_then(|far| heap.usable_size(far));
            assert_eq!(found, None, "bit {bit} of an address is not looked at");
        }
        free(piece);
    }
}

/// K49: the block freed last is the block handed out first.
#[test]
fn k49_last_freed_first_used() {
    let source = Source::new();
    let heap: TestHeap = source.heap();
    let mut blocks: Vec<_> = (0..32).map(|_| new(&heap, 64, 8)).collect();
    let seventh = blocks.swap_remove(7);
    let address = seventh.address();
    free(seventh);
    let again = new(&heap, 64, 8);
    assert_eq!(again.address(), address);
    blocks.push(again);
    for order in [|n: usize| n, |n| 31 - n, |n| (n * 13 + 5) % 32] {
        let mut slots: Vec<_> = blocks.drain(..).map(Some).collect();
        (0..32).for_each(|n| free(slots[order(n)].take().unwrap()));
        assert_eq!(heap.stats().live_bytes, 0);
        heap.check().unwrap();
        blocks.extend((0..32).map(|_| new(&heap, 64, 8)));
    }
}
