//! Every allocator through every workload, checked block by block: aligned, within the arena, no byte shared, contents kept.
//!
//! [`Checked`] stands between a heap and its allocator and decides by its own list of live blocks. The workloads check the
//! first and the last byte themselves; it checks those between.

use freestone_bench_bare::attack::Attack;
use freestone_bench_bare::fill::{Mix, live_at_failure};
use freestone_bench_bare::freestone::{Blocks, Few, Firmware};
use freestone_bench_bare::heap::{Heap, Slot};
use freestone_bench_bare::peer::Peer;
use freestone_bench_bare::peers::{Buddy, EmbeddedList, EmbeddedTlsf, LinkedList, Rlsf12, Rlsf16, Rlsf20, Talc};
use freestone_bench_bare::trace::{Action, Shape, play};
use freestone_core::{Compact, Fine, Wide};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::iter::repeat_with;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

/// An allocator with a list of what is live.
struct Checked<P> {
    peer: P,
    arena: Range<usize>,
    live: BTreeMap<usize, Live>,
    next_seed: u8,
}

struct Live {
    layout: Layout,
    seed: u8,
    /// Where the workload has written: the first byte, the last one, and what was the last one before a resize.
    written: Vec<usize>,
}

impl Live {
    fn contents(&self, index: usize) -> u8 {
        (index as u8).wrapping_mul(29) ^ self.seed
    }
}

impl<P> Checked<P> {
    fn check(&self, start: usize, layout: Layout) {
        let end = start + layout.size();
        assert_eq!(start % layout.align(), 0, "{start:#x} {layout:?}");
        assert!(self.arena.start <= start && end <= self.arena.end, "{start:#x} {layout:?} is not in {:x?}", self.arena);
        if let Some((other, live)) = self.live.range(..end).next_back() {
            assert!(other + live.layout.size() <= start, "{start:#x} {layout:?} meets {other:#x} {:?}", live.layout);
        }
    }

    /// Takes the block into the list, its bytes from `kept` on newly written.
    fn put(&mut self, block: NonNull<u8>, kept: usize, live: Live) {
        self.check(block.addr().get(), live.layout);
        for index in kept..live.layout.size() {
            // SAFETY: the allocator has just handed the block out, and it was found to be within the arena and nobody else's.
            unsafe { block.byte_add(index).write(live.contents(index)) };
        }
        self.live.insert(block.addr().get(), live);
    }

    fn verify(block: NonNull<u8>, live: &Live, len: usize) {
        for index in (0..len).filter(|index| !live.written.contains(index)) {
            // SAFETY: `put` or a reallocation has made sure that the block has so many bytes, all of them written.
            let found = unsafe { block.byte_add(index).read() };
            assert_eq!(found, live.contents(index), "byte {index} of {block:p}, {:?}", live.layout);
        }
    }

    fn take(&mut self, block: NonNull<u8>, layout: Layout) -> Live {
        let live = self.live.remove(&block.addr().get()).expect("freed blocks are live");
        assert_eq!(live.layout, layout);
        Self::verify(block, &live, layout.size());
        live
    }
}

// SAFETY: the blocks are the peer's.
unsafe impl<P: Peer> Peer for Checked<P> {
    fn empty() -> Self {
        Self { peer: P::empty(), arena: 0..0, live: BTreeMap::new(), next_seed: 0 }
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        let start = arena.addr().get();
        self.arena = start..start + arena.len();
        // SAFETY: handed on.
        unsafe { self.peer.open(arena) }
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let block = self.peer.allocate(layout)?;
        self.next_seed = self.next_seed.wrapping_add(1);
        self.put(block, 0, Live { layout, seed: self.next_seed, written: vec![0, layout.size() - 1] });
        Some(block)
    }

    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        self.take(block, layout);
        // SAFETY: handed on.
        unsafe { self.peer.deallocate(block, layout) }
    }

    unsafe fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let mut live = self.take(block, layout);
        // SAFETY: handed on.
        let moved = unsafe { self.peer.reallocate(block, layout, new_size) };
        let kept = if moved.is_some() { layout.size().min(new_size) } else { layout.size() };
        Self::verify(moved.unwrap_or(block), &live, kept);
        if moved.is_some() {
            live.layout = Layout::from_size_align(new_size, layout.align()).expect("sizes are small");
            live.written.push(new_size - 1);
        }
        self.put(moved.unwrap_or(block), kept, live);
        moved
    }
}

/// Memory with an alignment that no allocator asks for, so that none is favoured.
struct Memory(Vec<MaybeUninit<u8>>);

impl Memory {
    fn new(len: usize) -> Self {
        Self(vec![MaybeUninit::new(0xa5); len + 4096])
    }

    fn arena(&mut self, len: usize) -> &mut [MaybeUninit<u8>] {
        let start = self.0.as_ptr().align_offset(4096);
        &mut self.0[start..start + len]
    }
}

/// Runs `work` on a heap with nothing live; whatever is live afterwards is freed, so that its contents are checked.
fn on_a_heap<P: Peer>(len: usize, work: impl FnOnce(&mut Heap<Checked<P>>)) {
    let mut memory = Memory::new(len);
    let mut slots: Vec<Slot> = repeat_with(|| None).take(1 << 15).collect();
    let mut place = MaybeUninit::uninit();
    let mut heap = Heap::<Checked<P>>::open(&mut place, memory.arena(len), &mut slots);
    work(&mut heap);
    heap.free_all();
    assert_eq!(heap.live_bytes(), 0);
    // SAFETY: `Heap::open` has written it.
    unsafe { place.assume_init_drop() };
}

fn everything<P: Peer>(len: usize) {
    for (seed, shape) in [Shape::Random, Shape::Mixed, Shape::Lifo, Shape::Vectors].into_iter().enumerate() {
        let mut actions = vec![Action::NOTHING; 6_000];
        let trace = shape.write(len, seed as u64, &mut actions);
        on_a_heap::<P>(len, |heap| (0..3).for_each(|_| play(heap, trace)));
    }
    for mix in [Mix::Realloc, Mix::NoRealloc, Mix::Small] {
        for seed in 0..8 {
            on_a_heap::<P>(len, |heap| assert!(live_at_failure(heap, len, mix, seed) > len / 8, "{mix:?}"));
        }
    }
    for attack in Attack::ALL {
        on_a_heap::<P>(len, |heap| {
            let field = attack.prepare(heap, len, || true).expect("it is not given up");
            (0..48).for_each(|round| field.probe(heap, round));
        });
    }
}

macro_rules! tests {
    ($($name:ident: $peer:ty, $len:expr;)*) => {
        $(#[test]
        fn $name() {
            everything::<$peer>($len);
        })*
    };
}

tests! {
    firmware_compact: Firmware<Compact>, 1 << 16;
    firmware_fine: Firmware<Fine>, 1 << 16;
    firmware_wide: Firmware<Wide>, 1 << 16;
    firmware_compact_cached: Firmware<Compact, Few>, 1 << 16;
    firmware_wide_cached: Firmware<Wide, Few>, 1 << 19;
    blocks_compact: Blocks<Compact>, 1 << 16;
    blocks_wide: Blocks<Wide>, 1 << 19;
    talc: Talc, 1 << 16;
    rlsf: Rlsf12, 1 << 16;
    embedded_list: EmbeddedList, 1 << 16;
    embedded_tlsf: EmbeddedTlsf, 1 << 16;
    linked_list: LinkedList, 1 << 16;
    buddy: Buddy, 1 << 16;
    talc_in_a_larger_arena: Talc, 1 << 19;
    rlsf_in_a_larger_arena: Rlsf16, 1 << 19;
    rlsf_with_the_most_lists: Rlsf20, 1 << 19;
    buddy_in_a_larger_arena: Buddy, 1 << 19;
}

/// An allocator that takes a byte too few of its arena, from the front on.
struct Careless(Option<NonNull<u8>>);

// SAFETY: none: this one is to be found out.
unsafe impl Peer for Careless {
    fn empty() -> Self {
        Self(None)
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        self.0 = Some(arena.cast());
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let front = self.0?;
        // SAFETY: requests are small, and the oracle stops at the first one that needs no alignment, long before the end.
        let block = unsafe { front.byte_add(front.align_offset(layout.align())) };
        // SAFETY: as before.
        self.0 = Some(unsafe { block.byte_add(layout.size() - 1) });
        Some(block)
    }

    unsafe fn deallocate(&mut self, _: NonNull<u8>, _: Layout) {}
}

#[test]
#[should_panic(expected = "meets")]
fn the_oracle_finds_a_byte_that_two_blocks_share() {
    on_a_heap::<Careless>(1 << 16, |heap| {
        live_at_failure(heap, 1 << 16, Mix::Small, 0);
    });
}
