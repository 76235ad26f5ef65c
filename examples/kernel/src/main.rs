//! A small kernel whose heap is Freestone: it grows out of page frames, has a cache for each processor, and gives memory
//! back.
//!
//! ```text
//! cargo build --release -p freestone-example-kernel && CPUS=4 tests/machine/boot target/release/example-kernel
//! ```
//!
//! To copy: the file `heap.rs`, and the two items below that declare the heap. `freestone_machine` stands for your kernel:
//! it boots, starts the other processors, and has a frame allocator.
#![no_std]
#![no_main]

extern crate alloc;

mod heap;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use freestone_core::Heap;
use freestone_machine::{cpus, frames, println, run_on_all};
use heap::{Frames, Kernel};

#[global_allocator]
static HEAP: Heap<Kernel> = Heap::new(Frames);

freestone_machine::entry!(main);

fn main() {
    let free = frames::left();
    run_on_all(|cpu| {
        let names: BTreeMap<usize, String> = (0..20_000).map(|n| (n, format!("object {n} of cpu {cpu}"))).collect();
        let lengths: Vec<usize> = names.values().map(String::len).collect();
        println!("cpu {cpu}: {} names, {} bytes of text", names.len(), lengths.iter().sum::<usize>());
    });
    println!("heap after work on {} cpus:\n{}", cpus(), HEAP.stats());
    let in_use = || free - frames::left();
    let before = in_use();
    HEAP.trim();
    println!("frames in use: {before}, and {} after a trim", in_use());
}
