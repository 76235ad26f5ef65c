//! Freestone's core: one allocator, cut to fit every home it lives in.
#![no_std]
#![cfg_attr(loom, allow(dead_code, unused_imports, missing_docs))]

#[cfg(any(loom, test))]
extern crate std;

// In reading order.
pub mod units;
#[cfg(not(loom))]
pub mod platform;
#[cfg(not(loom))]
pub mod fault;
#[cfg(not(loom))]
pub mod size_class;
#[cfg(not(loom))]
mod heap;
pub mod chain;
#[cfg(not(loom))]
pub mod seal;
#[cfg(not(loom))]
mod core_cache;
#[cfg(not(loom))]
pub mod slab;
pub mod claim;
#[cfg(not(loom))]
mod claim_lists;
#[cfg(not(loom))]
mod central;
mod shelf;
#[cfg(not(loom))]
mod span;
#[cfg(not(loom))]
pub mod page_map;
#[cfg(not(loom))]
mod back;
mod queue;
#[cfg(not(loom))]
mod rescue;
#[cfg(not(loom))]
mod page_heap;
#[cfg(not(loom))]
mod chunk;
#[cfg(not(loom))]
mod page_bits;
#[cfg(not(loom))]
mod bins;
#[cfg(not(loom))]
mod list;
#[cfg(not(loom))]
mod ground;
#[cfg(not(loom))]
mod meta;
#[cfg(not(loom))]
mod lock;
pub mod sync;
#[cfg(not(loom))]
mod global;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod check;

#[cfg(not(loom))]
mod exports {
    pub use crate::chain::{Block, Chain};
    pub use crate::check::Broken;
    pub use crate::claim_lists::{ClaimLists, CoreId};
    pub use crate::fault::{Fault, FaultKind};
    pub use crate::heap::Heap;
    pub use crate::lock::{Context, SpinLock};
    pub use crate::page_map::{PageMap, RadixMap};
    pub use crate::platform::{
        Backend, Contents, CoreLists, Entry, Lock, Mapped, PageSource, Place, Platform, Purged, Refused, Shortage, Side, Tables, Taken,
    };
    pub use crate::seal::{AddressSeal, Seal, Unsealed};
    pub use crate::size_class::SizeClass;
    pub use crate::slab::{Slab, Slot};
    pub use crate::stats::{ClassStats, SourceStats, Stats};
    pub use crate::units::{CHUNK_PAGES, CHUNK_SIZE, PAGE_SHIFT, PAGE_SIZE, PageRun, Pages};
}
#[cfg(not(loom))]
pub use exports::*;
