//! Freestone's region heaps beside their peers: the allocators behind one trait, and what is done with them.
//!
//! ```text
//!   host/        the program: columns, rounds, single steps, tables              (std)
//!      │
//!   trace.rs     four workloads as lists of actions, written ahead and replayed
//!   fill.rs      random actions up to the first request that is refused
//!   attack.rs    heaps made so that a loop over blocks shows
//!      │
//!   heap.rs      an allocator over an arena, and its live blocks in slots: the only file that calls an allocator
//!      │
//!   peer.rs      the trait;  peers.rs: the crates;  freestone.rs: ours
//! ```
//!
//! All but the host program is `no_std`, allocates nothing and is a function of its seeds: every allocator gets the same
//! requests in the same order, until it refuses one. What depends on a refused request is left out for that allocator alone.
#![no_std]

pub mod attack;
pub mod fill;
pub mod freestone;
pub mod heap;
pub mod peer;
pub mod peers;
pub mod sizes;
pub mod trace;
