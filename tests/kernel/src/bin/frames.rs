//! A kernel on the full heap, which grows on demand out of page frames and gives them back.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ptr::NonNull;
use freestone_core::{Heap, PAGE_SIZE, Pages, RadixMap};
use freestone_kernel::home::{DirectMap, FrameRegion, FrameTestSource, Home, OneForAll, WINDOW, mebibytes};
use freestone_kernel::interrupts::{Asking, Cause};
use freestone_kernel::plants::{self, flip};
use freestone_kernel::{COLLECTIONS, interrupts, random, replay, tests};
use freestone_machine::{FrameSource, Window, cpus, frames, println, run_on_all, word};
use freestone_tests::replay::Supply;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::source::{Call, Fail};
use freestone_tests::subject::{Alone, Fill, Path, Subject};

type FrameHeap = Heap<Home<&'static FrameSource>>;

static GLOBAL_SOURCE: FrameSource = FrameSource::new(WINDOW, mebibytes(64));

#[global_allocator]
static GLOBAL: FrameHeap = Heap::new(&GLOBAL_SOURCE);

/// The frames of heaps that tests make.
static SOURCE: FrameSource = FrameSource::new(WINDOW, mebibytes(96));

freestone_machine::entry!(main);

fn main() {
    if let Some(name) = word("plant") {
        plants::plant(name, &Alone::new(Heap::<Home<_>>::new(&SOURCE)), break_a_chain);
    }
    println!("heaps at {:#x} and above", WINDOW.base());
    freestone_kernel::run(&[
        tests![page_frames],
        COLLECTIONS,
        tests![
            audited_small_blocks,
            audited_blocks_of_all_sizes,
            audited_where_maps_fail,
            on_all_cpus_at_once,
            on_all_cpus_with_one_cache,
            exhaustion,
            replay_by_seed,
            interrupts_from_timers,
            interrupts_between_any_two_instructions,
            the_global_heap_is_whole,
        ],
    ]);
}

/// Frames come aligned and together, once each, and go back whole or in part.
fn page_frames() {
    let before = frames::left();
    let run = frames::take(1000, 2 << 20).expect("frames");
    assert!(run.is_multiple_of(2 << 20) && frames::left() == before - 1000);
    frames::give(run + 10 * PAGE_SIZE, 500).expect("a part");
    assert!(frames::take_at(run + 9 * PAGE_SIZE, 2).is_err() && frames::take_at(run + 10 * PAGE_SIZE, 500).is_ok());
    frames::give(run, 1000).expect("the whole");
    assert!(frames::take(before + 1, PAGE_SIZE).is_err() && frames::left() == before);
    run_on_all(|cpu| {
        for count in 1..100 {
            let run = frames::take(count, PAGE_SIZE << (count % 4)).expect("frames");
            let word = NonNull::new(WINDOW.at(run)).expect("frame 0 is never free").cast::<usize>();
            // SAFETY: a frame that is this processor's alone.
            unsafe {
                word.write_volatile(cpu);
                assert_eq!(word.read_volatile(), cpu, "two processors have frame {run:#x}");
            }
            frames::give(run, count).expect("given back");
        }
    });
    assert_eq!(frames::left(), before);
}

/// Runs `body` on a heap on [`SOURCE`], drops the heap, and sees every frame come back.
fn with_heap(body: impl FnOnce(&Alone<FrameHeap>)) {
    let heap = Box::new(Alone::new(Heap::new(&SOURCE)));
    body(&heap);
    drop(heap);
    assert_eq!(SOURCE.pages_out(), Pages(0), "frames that a dropped heap kept");
}

fn audited_small_blocks() {
    with_heap(|heap| _ = random::audited(heap, Script { seed: 11, sizes: Sizes::Small }, 1500, Supply::Ample));
}

fn audited_blocks_of_all_sizes() {
    with_heap(|heap| _ = random::audited(heap, Script { seed: 12, sizes: Sizes::All }, 1000, Supply::Ample));
}

/// Every fourth map fails; null changes nothing.
fn audited_where_maps_fail() {
    let source = FrameRegion::take(WINDOW, mebibytes(16)).source();
    source.fail(Call::Map, Fail::Every(4));
    let heap = Box::new(Alone::new(Heap::<Home<&'static FrameTestSource>>::new(source)));
    let refusals = random::audited(&*heap, Script { seed: 13, sizes: Sizes::All }, 600, Supply::Failing);
    assert!(refusals > 0);
    drop(heap);
    assert_eq!(source.pages_out(), Pages(0), "frames that a dropped heap kept");
}

/// One heap, all processors.
fn on_all_cpus_at_once() {
    let mut heap: Box<FrameHeap> = Box::new(Heap::new(&SOURCE));
    // The large blocks of several processors are more than there is.
    let rounds =
        [(Sizes::Small, 20_000, Supply::Ample), (Sizes::All, 3000, Supply::Ample), (Sizes::Large, 400, Supply::Failing)];
    for (seed, (sizes, steps, supply)) in (1..).zip(rounds) {
        random::on_all_cpus(&*heap, sizes, seed, steps, supply);
        heap.check().unwrap_or_else(|broken| panic!("after {sizes:?}: {broken}"));
        assert_eq!(heap.stats().live_bytes, 0, "after {sizes:?}");
    }
    heap.trim();
    assert_eq!(heap.stats().held_bytes, 0, "a heap without blocks holds no memory for them when it is trimmed");
    drop(heap);
    assert_eq!(SOURCE.pages_out(), Pages(0), "frames that a dropped heap kept");
}

/// Everybody wants the same few lists.
fn on_all_cpus_with_one_cache() {
    let mut heap: Box<Heap<Home<&'static FrameSource, DirectMap, OneForAll>>> = Box::new(Heap::new(&SOURCE));
    random::on_all_cpus(&*heap, Sizes::Below(4), 4, 60_000, Supply::Ample);
    heap.check().unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(heap.stats().live_bytes, 0);
}

/// Until null, twice: what was there is there again.
fn exhaustion() {
    SOURCE.limit_to(mebibytes(16));
    with_heap(|heap| {
        for layout in [Layout::new::<[u8; 48]>(), Layout::new::<[u8; 3000]>(), Layout::new::<[u8; 300_000]>()] {
            let counts = [(); 2].map(|()| random::fill_and_free(heap, layout));
            println!("exhaustion: {counts:?} blocks of {} bytes in 16 MiB", layout.size());
            assert!(counts[0] > 0 && counts[1] >= counts[0]);
            heap.trim();
        }
    });
    SOURCE.limit_to(mebibytes(96));
}

/// The size of the replay's heap (as in `tests/kernel.rs`).
const REPLAY: Pages = mebibytes(16);

/// With the page map of the host, which takes addresses of the lower half.
type ReplayHeap = Heap<Home<&'static FrameTestSource, RadixMap>>;

fn replay_by_seed() {
    let region = FrameRegion::take(Window::Low, REPLAY);
    replay::by_seed::<Alone<_>>("full-16M", Sizes::All, |body| {
        let source = region.source();
        let heap = Box::new(Alone::new(ReplayHeap::new(source)));
        body(&heap, region.start());
        drop(heap);
        assert_eq!(source.pages_out(), Pages(0), "frames that a dropped heap kept");
    });
}

/// Handlers use the heap that they interrupt.
fn interrupts_from_timers() {
    interrupted(Asking { outside: Sizes::All, inside: Sizes::Small }, Cause::Timer, 500);
}

fn interrupts_between_any_two_instructions() {
    interrupts::between_any_two_instructions(interrupted);
}

fn interrupted(asking: Asking, cause: Cause, count: u64) {
    let owned = Box::into_raw(Box::new(FrameHeap::new(&SOURCE)));
    // SAFETY: a whole heap, which is dropped below, after the last use of this borrow.
    let heap: &'static FrameHeap = unsafe { &*owned };
    interrupts::run(heap, asking, cause, count);
    let stats = heap.stats();
    println!("interrupts: {} rescued, {} queued", stats.rescued, stats.queued);
    assert_eq!(stats.live_bytes, 0);
    // SAFETY: nothing interrupts any more, the other processors sleep, and so nobody else has the heap.
    let mut heap = unsafe { Box::from_raw(owned) };
    heap.check().unwrap_or_else(|broken| panic!("{broken}"));
    drop(heap);
    assert_eq!(SOURCE.pages_out(), Pages(0), "frames that a dropped heap kept");
}

/// What all tests have left behind.
fn the_global_heap_is_whole() {
    // SAFETY: the other processors sleep.
    unsafe { GLOBAL.check_quiescent() }.unwrap_or_else(|broken| panic!("{broken}"));
    GLOBAL.trim();
    let stats = GLOBAL.stats();
    println!("{stats}");
    assert!(stats.cached_bytes == 0 && GLOBAL_SOURCE.pages_out().bytes() == stats.held_bytes + stats.meta_bytes);
    assert!(cpus() == 1 || stats.classes.misses_under > 0);
}

/// Changes the count in the link of a cached block (`C1`).
fn break_a_chain(heap: &Alone<FrameHeap>) {
    let layout = Layout::new::<[u8; 64]>();
    let block = heap.allocate(layout, Fill::Any).expect("a block");
    // SAFETY: just allocated with this layout.
    unsafe { heap.free(block, layout, Path::Layout) };
    flip(block);
}
