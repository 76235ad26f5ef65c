//! A firmware with two memories, to copy from: it records what an interrupt measures.
//!
//! - The **internal RAM** has the global allocator. `Box`, `Vec`, `String` and whatever crates use come from it, also in
//!   interrupts: the default lock masks them for the constant time of a call.
//! - The **external RAM** is there only after its controller was set up, so its heap is declared without memory. What is
//!   large lives in it by choice: `Vec::new_in(&EXTERNAL)`.
//!
//! `board.rs` is all that is particular to this machine, which is one in QEMU:
//!
//! ```text
//! cargo build --release -p freestone-example-firmware
//! tests/machine/boot target/release/example-firmware
//! ```
#![no_std]
#![no_main]

extern crate alloc;

mod board;

use alloc::vec::Vec;
use allocator_api2::vec::Vec as VecIn;
use board::println;
use core::cell::RefCell;
use critical_section::Mutex;
use freestone_bare::{Heap, Masked, RegionError, StaticRegion, Wide, arena};

type ExternalHeap = Heap<Masked, Wide>;

#[global_allocator]
static INTERNAL: Heap = Heap::new(arena!(64 * 1024));

static EXTERNAL: ExternalHeap = Heap::new(StaticRegion::NONE);

/// What was measured at one tick.
struct Reading {
    tick: u32,
    samples: Vec<u16>,
}

/// A reading that is kept.
struct Record {
    tick: u32,
    samples: VecIn<u16, &'static ExternalHeap>,
}

/// Readings on their way from the interrupt to `main`, in internal RAM.
static FRESH: Mutex<RefCell<Fresh>> = Mutex::new(RefCell::new(Fresh { readings: Vec::new(), ticks: 0, lost: 0 }));

struct Fresh {
    readings: Vec<Reading>,
    ticks: u32,
    /// Readings for which there was no memory.
    lost: u32,
}

const RECORDS: usize = 2000;

// In place of your runtime's attribute for `main`.
freestone_machine::entry!(main);

fn main() {
    start_heaps().unwrap_or_else(|why| panic!("{why}"));
    board::start_ticks(on_tick);
    let log = record();
    board::stop_ticks();
    summarize(&log);
    report();
    drop(log);
    report();
}

/// Before the first interrupt: the heaps build their own data now, so that every later call takes constant time.
fn start_heaps() -> Result<(), RegionError> {
    let internal = INTERNAL.warm()?;
    // SAFETY: memory that nobody else uses.
    let external = unsafe { EXTERNAL.init(board::external_ram()) }?;
    println!("heaps: {internal} bytes in internal RAM, {external} in external RAM");
    Ok(())
}

/// The interrupt. It asks by calls that may fail: where there is no memory, a reading is lost, and not the program.
fn on_tick() {
    critical_section::with(|inside| {
        let mut fresh = FRESH.borrow_ref_mut(inside);
        fresh.ticks += 1;
        let tick = fresh.ticks;
        match measure(tick) {
            Some(samples) if fresh.readings.try_reserve(1).is_ok() => fresh.readings.push(Reading { tick, samples }),
            _ => fresh.lost += 1,
        }
    });
}

fn measure(tick: u32) -> Option<Vec<u16>> {
    let count = 8 + tick % 100;
    let mut samples = Vec::new();
    samples.try_reserve_exact(count as usize).ok()?;
    samples.extend((0..count).map(|n| (tick * 31 + n * 7) as u16));
    Some(samples)
}

/// Moves readings into external RAM until there are enough.
fn record() -> VecIn<Record, &'static ExternalHeap> {
    let mut log = VecIn::new_in(&EXTERNAL);
    while log.len() < RECORDS {
        let fresh = critical_section::with(|inside| core::mem::take(&mut FRESH.borrow_ref_mut(inside).readings));
        log.extend(fresh.into_iter().map(keep));
        board::sleep();
    }
    log
}

fn keep(reading: Reading) -> Record {
    let mut samples = VecIn::with_capacity_in(reading.samples.len(), &EXTERNAL);
    samples.extend_from_slice(&reading.samples);
    Record { tick: reading.tick, samples }
}

fn summarize(log: &[Record]) {
    let samples: usize = log.iter().map(|record| record.samples.len()).sum();
    let sum: u64 = log.iter().flat_map(|record| &record.samples).map(|sample| u64::from(*sample)).sum();
    let last = log.iter().map(|record| record.tick).max().unwrap_or(0);
    let lost = critical_section::with(|inside| FRESH.borrow_ref(inside).lost);
    println!(
        "log: {} readings of {last} ticks, {lost} lost; {samples} samples, {} on average",
        log.len(),
        sum / samples as u64
    );
}

/// What both heaps have.
fn report() {
    println!("internal RAM:\n{}external RAM:\n{}", INTERNAL.stats(), EXTERNAL.stats());
}
