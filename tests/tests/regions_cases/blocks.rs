//! Cases of blocks: sizes, joining, growing and shrinking, cores, failure, the way of a free.

use crate::*;

/// All orders of `n` things.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let longer =
        |order: Vec<usize>| (0..n).filter(|next| !order.contains(next)).map(|next| [&order[..], &[next]].concat()).collect();
    (0..n).fold(vec![vec![]], |orders, _| orders.into_iter().flat_map::<Vec<_>, _>(longer).collect())
}

/// K19: no size and no small alignment is without a home.
#[test]
fn k19_every_size_has_a_home() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(MIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..MIB).unwrap();
        let before = room(&*heap);
        for align in [1, 2, 4, 8, 16, 32, 64] {
            (1..=9000).for_each(|size| free(new(&*heap, size, align)));
        }
        assert_eq!(room(&*heap), before);
    }
    on!(of: NoCache<Fine>, Cache<Wide>);
}

/// K21: a block of size 0 is aligned, unique, known to its heap and freeable; nothing leaks.
#[test]
fn k21_size_zero() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(64 * KIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..64 * KIB).unwrap();
        let before = room(&*heap);
        for align in [1, 8, 64, 4096] {
            for _ in 0..10_000 {
                let (a, b) = (new(&*heap, 0, align), new(&*heap, 0, align));
                assert!(a.address() != b.address() && heap.owns(a.as_ptr()) && heap.owns(b.as_ptr()));
                free(a);
                free(b);
            }
        }
        assert_eq!(room(&*heap), before);
        let outside = [heap.address(0), heap.address(64 * KIB)].map(|at| NonNull::new(without_provenance_mut(at)).unwrap());
        assert!(outside.into_iter().all(|ptr| !heap.owns(ptr)));
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
}

/// K22: four blocks fill the heap; in whatever order they are freed, they become one block again.
#[test]
fn k22_blocks_coalesce_in_every_order() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        // The shortest region that holds them, and slack of less than one.
        let fills = |arena: &mut Arena, len: usize| arena.heap::<H>().add(0..len).is_ok_and(|held| held >= 1024);
        let len = (1024..4096).find(|len| fills(&mut arena, *len)).unwrap();
        for order in orders(4) {
            let heap: InArena<'_, H> = arena.heap();
            let held = heap.add(0..len).unwrap();
            let mut blocks: Vec<_> = (0..4).map(|_| Some(new(&*heap, 256, 8))).collect();
            assert!(try_new(&*heap, 256, 8).is_none());
            order.iter().for_each(|n| free(blocks[*n].take().unwrap()));
            free(try_new(&*heap, held, 8).unwrap_or_else(|| panic!("freed in the order {order:?}")));
            assert_eq!(room(&*heap), (held, held));
        }
    }
    on!(of: Plain<Tiny>, NoCache<Compact>, Cache<Compact>, Plain<Fine>, Cache<Wide>);
}

/// K24: two blocks of half a region of the largest size, in both orders.
#[test]
fn k24_two_largest_blocks() {
    fn of<H: Housed + Audited>() {
        let len = H::Grain::MOST * H::Grain::GRANULE;
        let mut arena = Arena::new(len + 64);
        let heap: InArena<'_, H> = arena.heap();
        let held = heap.add(24..24 + len).unwrap();
        let half = held / 2 / H::Grain::GRANULE * H::Grain::GRANULE;
        for round in 0..100 {
            let (a, b) = (new(&*heap, half, 8), new(&*heap, half, 8));
            assert!(!a.overlaps(&b));
            let (first, second) = if round % 2 == 0 { (a, b) } else { (b, a) };
            free(first);
            free(second);
            assert_eq!(room(&*heap), (held, held));
        }
        heap.expect_canaries();
    }
    on!(of: Plain<Tiny>, Cache<Tiny>, NoCache<Compact>);
}

/// K25: what is left over beside a block is not lost, however short.
#[test]
fn k25_no_padding_leaks() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..4096).unwrap();
        let before = room(&*heap);
        for round in 0..10_000 {
            let (x, barrier) = (new(&*heap, 24, 8), new(&*heap, 16, 8));
            free(x);
            free(new(&*heap, [16, 20][round % 2], 8));
            free(barrier);
        }
        assert_eq!(room(&*heap), before);
    }
    on!(of: Plain<Tiny>, NoCache<Compact>, Cache<Compact>, Plain<Fine>, Cache<Fine>, NoCache<Wide>);
}

/// K27: two alternating large sizes use the same memory over and over.
#[test]
fn k27_alternating_large_sizes() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(512 * KIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..512 * KIB).unwrap();
        let round = || {
            let (a, b) = (new(&*heap, 85_196, 1), new(&*heap, 80_000, 1));
            free(a);
            free(b);
            heap.figures().peak_bytes
        };
        let peak = round();
        (0..10_000).for_each(|_| assert_eq!(round(), peak));
        heap.check().unwrap();
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>);
}

/// K32: a block that shrinks keeps its first bytes, and stays where it is if more than half of it is left; its tail is the
/// next block of that length; its neighbours keep theirs.
#[test]
fn k32_shrinking_keeps_what_is_left() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..4096).unwrap();
        let before = room(&*heap);
        for (old, size) in (16..=512).flat_map(|old| (1..=old).map(move |size| (old, size))) {
            let (mut block, neighbour) = (new(&*heap, old, 1), new(&*heap, old, 1));
            let (address, usable) = (block.address(), block.usable());
            assert_eq!(block.reallocate(size, Path::Layout, 3), Ok(Served::Yes));
            assert!(block.address() == address || block.usable() <= usable / 2);
            let tail = usable - block.usable();
            let others = [tail, tail.min(8)].map(|size| new(&*heap, size, 1));
            assert!(others.iter().chain([&neighbour]).all(|other| !other.overlaps(&block)));
            block.verify().unwrap();
            others.into_iter().chain([neighbour, block]).for_each(free);
        }
        assert_eq!(room(&*heap), before);
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Compact>, Cache<Wide>);
    // The tail is where the model says.
    let mut arena = Arena::new(4096);
    let heap: InArena<'_, Plain<Compact>> = arena.heap();
    heap.add(0..4096).unwrap();
    let (mut block, neighbour) = (new(&*heap, 400, 1), new(&*heap, 400, 1));
    assert_eq!(block.reallocate(300, Path::Layout, 3), Ok(Served::Yes));
    let tail = new(&*heap, 96, 1);
    assert_eq!(tail.address(), block.address() + 304);
    assert_eq!(tail.address() + 96, neighbour.address());
}

/// K34: a block that is alone in a small heap grows to most of it.
#[test]
fn k34_growth_by_doubling() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..4096).unwrap();
        for other in [0, 100] {
            // At the second time with a free block before it, which it can only slide into.
            let before = (other > 0).then(|| new(&*heap, other, 8));
            let mut block = new(&*heap, 2, 2);
            drop(before);
            for size in (2..=11).map(|bit| 1 << bit).chain([3000]) {
                assert_eq!(block.reallocate(size, Path::Layout, size as u64), Ok(Served::Yes), "to {size}");
            }
            free(block);
            heap.check().unwrap();
        }
    }
    on!(of: Plain<Tiny>, Cache<Tiny>, NoCache<Compact>, Cache<Compact>, Plain<Fine>, Cache<Wide>);
}

/// K35: odd sizes from realloc do not misalign what comes after.
#[test]
fn k35_realloc_to_odd_sizes() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(4096);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..4096).unwrap();
        let mut block = new(&*heap, 33, 1);
        for size in [45, 47, 101] {
            assert_eq!(block.reallocate(size, Path::Layout, 1), Ok(Served::Yes));
            let (sixteen, eight) = (new(&*heap, 32, 16), new(&*heap, 8, 8));
            assert!(sixteen.address().is_multiple_of(16) && eight.address().is_multiple_of(8));
            [sixteen, eight].into_iter().for_each(free);
        }
        free(block);
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>, Cache<Tiny>);
}

/// K38: the core's number is out of range, and changes between allocation and free.
#[test]
fn k38_core_ids_out_of_range() {
    let mut arena = Arena::new(256 * KIB);
    let heap: InArena<'_, AloneInRegions<Cached<Compact, 4>>> = arena.heap();
    heap.add(0..256 * KIB).unwrap();
    let before = room(&*heap);
    let mut ids = [0, 3, 4, 7, 255, usize::MAX].into_iter().cycle();
    let mut held = Vec::new();
    for n in 0..20_000 {
        Core::set(ids.next().unwrap());
        held.push(new(&*heap, 1 + n % 300, 8));
        Core::set(ids.next().unwrap());
        if held.len() > 100 {
            free(held.swap_remove(n % 100));
        }
    }
    assert!(heap.figures().cached_bytes > 0);
    held.into_iter().for_each(free);
    heap.check().unwrap();
    assert_eq!(heap.figures().live_bytes, 0);
    // From a core without lists, the lists of all others can be emptied.
    Core::set(usize::MAX);
    assert_eq!(room(&*heap), before);
}

/// K41: after null no lock is held: another thread is served at once, and so is this one when something is freed.
#[test]
fn k41_no_lock_is_left_held_on_failure() {
    let mut arena = Arena::new(64 * KIB);
    let mut heap: InArena<'_, Shared<Compact>> = arena.heap();
    heap.add(0..64 * KIB).unwrap();
    for size in [60, 5000].into_iter().cycle().take(10) {
        {
            let heap = &*heap;
            let mut held: Vec<_> = core::iter::from_fn(|| try_new(heap, size, 8)).collect();
            thread::scope(|scope| {
                scope.spawn(|| assert!(try_new(heap, size, 8).is_none()));
            });
            free(held.pop().unwrap());
            free(new(heap, size, 8));
            held.into_iter().for_each(free);
        }
        heap.get_mut().check().unwrap();
    }
}

/// K43: blocks go back to the region that they came from, the second of which lies below the first.
#[test]
fn k43_frees_find_their_region() {
    fn of<H: Housed + Audited>(regions: impl Fn(&H) -> Vec<usize>) {
        let mut arena = Arena::new(64 * KIB);
        let heap: InArena<'_, H> = arena.heap();
        let parts: [Range<usize>; 2] = [40 * KIB..64 * KIB, 0..17 * KIB];
        parts.into_iter().for_each(|part| assert!(heap.add(part).is_ok()));
        let (before, in_each) = (room(&*heap), regions(&heap));
        for round in 0..100 {
            let mut blocks: Vec<_> = core::iter::from_fn(|| try_new(&*heap, [100, 700, 3000][round % 3], 8)).collect();
            let low = blocks.iter().filter(|block| block.address() < heap.address(20 * KIB)).count();
            assert!(low > 0 && low < blocks.len());
            blocks.sort_by_key(|block| block.address() / 8 % 2);
            blocks.into_iter().for_each(free);
            assert_eq!((room(&*heap), regions(&heap)), (before, in_each.clone()));
        }
        heap.expect_canaries();
    }
    Core::set(0);
    of::<Plain<Compact>>(|heap| heap.inner().region_stats().map(|region| region.free_bytes).collect());
    of::<NoCache<Fine>>(|_| Vec::new());
    of::<Cache<Wide>>(|_| Vec::new());
}

/// K49: the block freed last is the block handed out first.
#[test]
fn k49_last_freed_first_used() {
    fn of<H: Housed + Audited>() {
        let mut arena = Arena::new(64 * KIB);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(0..64 * KIB).unwrap();
        let before = room(&*heap);
        let mut blocks: Vec<_> = (0..32).map(|_| new(&*heap, 64, 8)).collect();
        let seventh = blocks.swap_remove(7);
        let address = seventh.address();
        free(seventh);
        let again = new(&*heap, 64, 8);
        assert_eq!(again.address(), address);
        blocks.push(again);
        for order in [|n: usize| n, |n| 31 - n, |n| (n * 13 + 5) % 32] {
            let mut slots: Vec<_> = blocks.drain(..).map(Some).collect();
            (0..32).for_each(|n| free(slots[order(n)].take().unwrap()));
            assert_eq!(room(&*heap), before);
            blocks.extend((0..32).map(|_| new(&*heap, 64, 8)));
        }
    }
    on!(of: Plain<Compact>, NoCache<Fine>, Cache<Wide>, Cache<Compact>);
}
