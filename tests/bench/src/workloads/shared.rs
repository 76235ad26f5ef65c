//! Well-known shapes on several threads: hand-over, churn, and lines of the cache that threads share.
//!
//! Called by [`super::Workload`]; calls [`super::crew`] and [`crate::heap`]. A table's random numbers belong to the table,
//! so that it does not matter which thread has it.
#![forbid(unsafe_code)]

use super::crew::{Relay, crew};
use super::kit::{SEED, SIZES, Slots, add, clear, empty, fill, heavy_tailed, replace, sum};
use crate::heap::{Tested, aligned_layout, layout, plain_layout};
use crate::watch::{Length, Sample, Watch};
use fastrand::Rng;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Barrier, Mutex, MutexGuard};
use std::thread;

/// One of them.
pub enum Shared {
    /// Tables that go from thread to thread.
    Server,
    /// Bursts that another thread frees.
    Bursts,
    /// Threads that come and go.
    Churn,
    /// Neighbours made by different threads.
    SharingActive,
    /// Neighbours made by one thread for all.
    SharingPassive,
}

impl Shared {
    pub fn run<A: GlobalAlloc + Sync>(&self, heap: Tested<A>, length: Length) -> Sample {
        match self {
            Self::Server => server(heap, length),
            Self::Bursts => bursts(heap, length),
            Self::Churn => churn(heap, length),
            Self::SharingActive => sharing_active(heap, length),
            Self::SharingPassive => sharing_passive(heap, length),
        }
    }
}

/// A table that one thread has at a time.
struct Table {
    slots: Slots,
    random: Rng,
}

/// So many tables of so many slots, each with random numbers of its own.
fn tables(count: u64, slots: usize) -> Vec<Mutex<Table>> {
    let table = |number| Mutex::new(Table { slots: empty(slots), random: Rng::with_seed(SEED + number) });
    (0..count).map(table).collect()
}

fn taken<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no thread panics")
}

/// After a lap each table goes to the next thread, with the blocks of the last one in it: a quarter of what a lap frees.
/// Sizes of 24 B to 32 KiB; one block in sixteen begins at a line of the cache.
fn server<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    const THREADS: usize = 4;
    const OPERATIONS: u64 = 20_000;
    let tables = tables(THREADS as u64, 5_000);
    crew((0..THREADS).collect(), THREADS as u64 * OPERATIONS, length, |turn| {
        let mut table = taken(&tables[*turn]);
        *turn = (*turn + 1) % THREADS;
        sum(0..OPERATIONS, |tag| serve(heap, &mut table, tag))
    })
}

#[inline(always)]
fn serve<A: GlobalAlloc>(heap: Tested<A>, table: &mut Table, tag: u64) -> u64 {
    let size = heavy_tailed(&mut table.random, 24, 32 << 10);
    let align = if tag.is_multiple_of(16) { 64 } else { 8 };
    let slot = table.random.usize(..table.slots.len());
    replace(heap, &mut table.slots[slot], aligned_layout(size, align), tag)
}

/// Two lists: while one thread frees the last burst, the other one allocates the next.
fn bursts<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    let layouts = SIZES.map(layout);
    let mut random = Rng::with_seed(SEED);
    let relay = Relay { lists: 2, blocks: 20_000, lap: 5 };
    relay.run(
        length,
        |list| fill(heap, list, || layouts[random.usize(..layouts.len())]),
        |list| sum(list.iter_mut().rev().filter_map(Option::take), |block| heap.unmake(block)),
    )
}

/// Two threads live at once. Each finds a table that a thread before it has left, and leaves it to one after it.
fn churn<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    const AT_ONCE: usize = 2;
    const ROUNDS: usize = 16;
    const KEPT: usize = 500;
    let tables = tables(AT_ONCE as u64, 2 * KEPT);
    let live = &|table: &Mutex<Table>| {
        let Table { slots, random } = &mut *taken(table);
        let left = clear(heap, slots);
        fill(heap, slots, || plain_layout(heavy_tailed(random, 16, 16 << 10)));
        add(left, sum(slots.iter_mut().step_by(2).filter_map(Option::take), |block| heap.unmake(block)))
    };
    Watch::new(length).laps((AT_ONCE * ROUNDS * 2 * KEPT) as u64, || {
        sum(0..ROUNDS, |_| {
            thread::scope(|scope| {
                let [one, other] = [&tables[0], &tables[1]].map(|table| scope.spawn(move || live(table)));
                add(one.join().expect("no thread panics"), other.join().expect("no thread panics"))
            })
        })
    })
}

/// Threads that share.
const SHARING: usize = 4;
/// What each of them does in a lap.
const TURNS: u64 = 50_000;
/// How often a block is added to.
const ADDED: u64 = 100;
const WORD: usize = 8;

fn sharing_active<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    let layout = layout(WORD);
    crew(vec![(); SHARING], SHARING as u64 * TURNS, length, |()| sum(0..TURNS, |tag| stirred(heap, layout, tag)))
}

#[inline(always)]
fn stirred<A: GlobalAlloc>(heap: Tested<A>, layout: Layout, tag: u64) -> u64 {
    let mut block = heap.make(layout, tag);
    block.stir(ADDED);
    heap.unmake(block)
}

/// In each lap the first thread makes a tenth of the blocks, and deals them out one by one, so that neighbours belong to
/// different threads. Each thread adds to and frees one of these, then does as in [`sharing_active`] nine times.
fn sharing_passive<A: GlobalAlloc + Sync>(heap: Tested<A>, length: Length) -> Sample {
    const DEALT: usize = TURNS as usize / 10;
    let layout = layout(WORD);
    let hands: Vec<_> = (0..SHARING).map(|_| Mutex::new(empty(DEALT))).collect();
    let dealt = Barrier::new(SHARING);
    crew((0..SHARING).collect(), SHARING as u64 * TURNS, length, |number| {
        if *number == 0 {
            (0..DEALT)
                .for_each(|card| hands.iter().for_each(|hand| taken(hand)[card] = Some(heap.make(layout, card as u64))));
        }
        dealt.wait();
        sum(taken(&hands[*number]).iter_mut().filter_map(Option::take), |mut block| {
            block.stir(ADDED);
            add(heap.unmake(block), sum(1..10, |tag| stirred(heap, layout, tag)))
        })
    })
}
