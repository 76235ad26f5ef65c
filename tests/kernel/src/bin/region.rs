//! A kernel on the region heap, in static memory: blocks without headers, with a cache for each processor and without.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use core::alloc::Layout;
use freestone_core::{Compact, CoreLists, Fine, Grain, GranuleClass, Region, RegionHeap, Tiny, Wide};
use freestone_kernel::home::WINDOW;
use freestone_kernel::interrupts::{Asking, Cause};
use freestone_kernel::plants::{self, flip};
use freestone_kernel::regions::{Cached, Later, Plain, RegionHome, Shared, StaticMemory, region_of_frames};
use freestone_kernel::{COLLECTIONS, interrupts, random, replay, tests};
use freestone_machine::{Window, cpus, println, word};
use freestone_tests::regions::AloneInRegions;
use freestone_tests::replay::Supply;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::{Fill, Path, Subject};

// SAFETY: the source of the heap below, and of no other.
static MEMORY: StaticMemory<{ 4 << 20 }> = unsafe { StaticMemory::new() };

#[global_allocator]
static GLOBAL: RegionHeap<RegionHome<Wide, Cached<Wide>, &'static StaticMemory<{ 4 << 20 }>>> = RegionHeap::new(&MEMORY);

/// A heap that is given its regions by a test.
type Given<G, L> = RegionHeap<RegionHome<G, L>>;

freestone_machine::entry!(main);

fn main() {
    if let Some(name) = word("plant") {
        plants::plant(name, &given::<Compact, Plain<Compact>>(region_of_frames(WINDOW, 64 << 10)), break_a_bin);
    }
    println!("heaps at {:#x} and above", WINDOW.base());
    freestone_kernel::run(&[
        COLLECTIONS,
        tests![
            audited_without_a_cache,
            audited_with_a_cache,
            audited_in_several_regions,
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

/// A heap in one region, for one processor.
fn given<G, L>(region: Region) -> AloneInRegions<RegionHome<G, L>>
where
    G: Grain,
    L: CoreLists<Class: GranuleClass<Grain = G>> + 'static,
{
    let heap = Given::<G, L>::new(Later);
    // SAFETY: memory that is the heap's alone, for good.
    unsafe { heap.init(region) }.unwrap_or_else(|why| panic!("{why}"));
    AloneInRegions::new(heap)
}

/// Runs a script that wants more than there is, and sees that everything is there again.
fn audited<G, L>(name: &str, bytes: usize, seed: u64)
where
    G: Grain,
    L: CoreLists<Class: GranuleClass<Grain = G>> + 'static,
{
    let heap = Box::new(given::<G, L>(region_of_frames(WINDOW, bytes)));
    let before = heap.heap().stats();
    let refusals = random::audited(&*heap, Script { seed, sizes: Sizes::Small }, 1500, Supply::Failing);
    heap.trim();
    let after = heap.heap().stats();
    assert_eq!((after.free_bytes, after.largest_free), (before.free_bytes, before.largest_free), "{name}");
    println!("audited: {name}, at most {} of {} bytes in use, {refusals} refused", after.peak_bytes, after.held_bytes);
    assert!(refusals > 0);
}

fn audited_without_a_cache() {
    audited::<Tiny, Plain<Tiny>>("tiny", 7 << 10, 21);
    audited::<Compact, Plain<Compact>>("compact", 10 << 10, 22);
    audited::<Fine, Plain<Fine>>("fine", 12 << 10, 23);
    audited::<Wide, Plain<Wide>>("wide", 12 << 10, 24);
}

fn audited_with_a_cache() {
    audited::<Tiny, Cached<Tiny>>("tiny, cached", 7 << 10, 31);
    audited::<Compact, Cached<Compact>>("compact, cached", 10 << 10, 32);
    audited::<Fine, Cached<Fine>>("fine, cached", 12 << 10, 33);
    audited::<Wide, Cached<Wide>>("wide, cached", 12 << 10, 34);
}

/// Regions that are added one by one, the last ones side by side.
fn audited_in_several_regions() {
    let heap = Box::new(given::<Compact, Cached<Compact>>(region_of_frames(WINDOW, 8 << 10)));
    let Region { start, len, .. } = region_of_frames(WINDOW, 64 << 10);
    for part in 0..4 {
        random::audited(&*heap, Script { seed: 41 + part as u64, sizes: Sizes::Small }, 300, Supply::Failing);
        let part = Region::new(start.wrapping_byte_add(part * len / 4), len / 4);
        // SAFETY: memory that is the heap's alone, for good.
        unsafe { heap.heap().add_region(part) }.unwrap_or_else(|why| panic!("{why}"));
    }
    assert_eq!(heap.heap().stats().regions, 5);
}

/// One heap, all processors.
fn on_all_cpus_at_once() {
    together::<Fine, Plain<Fine>>("fine", 51);
    together::<Wide, Cached<Wide>>("wide, cached", 52);
}

/// Everybody wants the same few lists.
fn on_all_cpus_with_one_cache() {
    let mut heap = Box::new(Given::<Wide, Shared<Wide>>::new(Later));
    // SAFETY: memory that is the heap's alone, for good.
    unsafe { heap.init(region_of_frames(WINDOW, 1 << 20)) }.unwrap_or_else(|why| panic!("{why}"));
    random::on_all_cpus(&*heap, Sizes::Below(4), 61, 60_000, Supply::Ample);
    heap.check().unwrap_or_else(|broken| panic!("{broken}"));
}

fn together<G, L>(name: &str, seed: u64)
where
    G: Grain,
    L: CoreLists<Class: GranuleClass<Grain = G>> + 'static,
{
    let mut heap = Box::new(Given::<G, L>::new(Later));
    // SAFETY: memory that is the heap's alone, for good.
    unsafe { heap.init(region_of_frames(WINDOW, 1 << 20)) }.unwrap_or_else(|why| panic!("{why}"));
    let before = heap.stats();
    // A mebibyte is enough for everybody's blocks; 10 KiB a processor are not.
    random::on_all_cpus(&*heap, Sizes::Small, seed, 20_000, Supply::Ample);
    let most = Layout::from_size_align(before.free_bytes - cpus() * (10 << 10), 16).expect("small");
    heap.trim();
    let block = heap.allocate(most).expect("all that is free is together again");
    let refusals = random::on_all_cpus(&*heap, Sizes::Small, seed + 100, 10_000, Supply::Failing);
    // SAFETY: allocated above.
    unsafe { heap.deallocate(block, most) };
    heap.trim();
    heap.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    let after = heap.stats();
    assert_eq!((after.free_bytes, after.largest_free), (before.free_bytes, before.largest_free), "{name}");
    println!("together: {name}, {refusals} requests refused");
    assert!(refusals > 0);
}

/// Until null, twice: what was there is there again, in one piece.
fn exhaustion() {
    let heap = Box::new(given::<Compact, Cached<Compact>>(region_of_frames(WINDOW, 256 << 10)));
    let free = heap.heap().stats().free_bytes;
    for layout in [Layout::new::<[u8; 8]>(), Layout::new::<[u8; 100]>(), Layout::new::<[u8; 30_000]>()] {
        // Cached blocks of another length would lie in the way.
        heap.trim();
        let counts = [(); 2].map(|()| random::fill_and_free(&*heap, layout));
        println!("exhaustion: {counts:?} blocks of {} bytes in {free}", layout.size());
        assert!(counts[0] == free / layout.size().next_multiple_of(8) && counts[1] == counts[0]);
    }
    let whole = Layout::from_size_align(free, 8).expect("small");
    assert_eq!(random::fill_and_free(&*heap, whole), 1);
}

/// The sizes of the replay's heaps (as in `tests/kernel.rs`).
const REPLAY: [usize; 2] = [10 << 10, 12 << 10];

fn replay_by_seed() {
    let [plain, cached] = REPLAY.map(|len| region_of_frames(Window::High, len));
    replay::by_seed::<AloneInRegions<_>>("compact-10K", Sizes::Small, |body| {
        body(&given::<Compact, Plain<Compact>>(plain), plain.start.addr());
    });
    replay::by_seed::<AloneInRegions<_>>("wide-cached-12K", Sizes::Small, |body| {
        body(&Box::new(given::<Wide, Cached<Wide>>(cached)), cached.start.addr());
    });
}

static INTERRUPTED: Given<Wide, Cached<Wide>> = Given::new(Later);

/// Handlers use the heap that they interrupt.
fn interrupts_from_timers() {
    // SAFETY: memory that is the heap's alone, for good.
    unsafe { INTERRUPTED.init(region_of_frames(WINDOW, 2 << 20)) }.unwrap_or_else(|why| panic!("{why}"));
    interrupted(Asking { outside: Sizes::Small, inside: Sizes::Small }, Cause::Timer, 500);
}

fn interrupts_between_any_two_instructions() {
    interrupts::between_any_two_instructions(interrupted);
}

fn interrupted(asking: Asking, cause: Cause, count: u64) {
    interrupts::run(&INTERRUPTED, asking, cause, count);
    let held = INTERRUPTED.trim();
    let stats = INTERRUPTED.stats();
    println!("interrupts: {} refused, {} queued", stats.refused, stats.queued);
    // SAFETY: nothing interrupts any more, and the other processors sleep.
    unsafe { INTERRUPTED.check_quiescent() }.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(stats.live_bytes == 0 && held == stats.held_bytes);
}

/// What all tests have left behind.
fn the_global_heap_is_whole() {
    // SAFETY: the other processors sleep.
    unsafe { GLOBAL.check_quiescent() }.unwrap_or_else(|broken| panic!("{broken}"));
    GLOBAL.trim();
    let stats = GLOBAL.stats();
    println!("{stats}");
    assert!(stats.cached_bytes == 0 && stats.live_bytes < 1 << 10);
}

/// Changes a link of a free block.
fn break_a_bin(heap: &AloneInRegions<RegionHome<Compact, Plain<Compact>>>) {
    let layout = Layout::new::<[u8; 64]>();
    let block = heap.allocate(layout, Fill::Any).expect("a block");
    let _keeps_it_apart = heap.allocate(layout, Fill::Any).expect("a block");
    // SAFETY: just allocated with this layout.
    unsafe { heap.free(block, layout, Path::Layout) };
    flip(block);
}
