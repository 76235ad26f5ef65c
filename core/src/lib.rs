//! Freestone's core: one allocator, cut to fit every home it lives in.
//!
//! The core knows no operating system. A home (a Linux process, a kernel, a firmware) supplies pages or regions, locks and
//! per-core lists by the traits of [`platform`]. Out of them one of two heaps is made, and either is a value: several live
//! side by side.
//!
//! ```text
//!    allocate(layout)                              deallocate(ptr, layout) · free(ptr)
//!         │     SizeClass::of or Grain::granules: one function, used both ways  │
//!         ▼ pop                                                                 ▼ push
//!    ┌─────────────────────────────────────────────────────────────────────────────┐
//!    │ CoreCache   per core, lock-free, a last-in-first-out list a class.          │  front end
//!    │             A miss is always legal: it only goes below.                     │
//!    └─────────────────────────────────────────────────────────────────────────────┘
//!         │ take(class, n)  ▲ give(chain)                    through the trait Backend
//!         ▼                 │                                   │
//!    ╌╌╌╌╌╌╌╌╌╌╌╌╌╌ Heap ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌       ╌╌╌╌╌╌╌▼╌╌ RegionHeap ╌╌╌╌╌╌╌╌╌
//!    ┌───────────────────────────────────────────────┐  ┌─────────────────────────────┐
//!    │ Central     one a class: a shelf of whole     │  │ BlockHeap   blocks without  │
//!    │             chains, lock-free                 │  │   headers, cut from regions │
//!    │ Span        objects without headers, behind   │  │   of bytes: Bins over       │
//!    │             the class's lock                  │  │   granules, split and       │
//!    └───────────────────────────────────────────────┘  │   joined through a bitmap   │
//!         │ take  ▲ give        large blocks come here   │   of boundaries; one lock   │
//!         ▼       │                                      └─────────────────────────────┘
//!    ┌───────────────────────────────────────────────┐           │
//!    │ PageHeap    chunks of 2 MiB: Bins over runs   │           │
//!    │             of pages, split and joined,       │           │
//!    │             purged above a cap; mappings of   │           │
//!    │             huge blocks; one lock             │           │
//!    └───────────────────────────────────────────────┘           │
//!         │ map · unmap · purge · remap     PageMap: address → span, read without a lock
//!         ▼                                                      ▼
//!      PageSource   (the home's)                           Region   (the home's)
//! ```
//!
//! **Which heap.** [`Heap`] grows and gives memory back; it wants pages, and a few MiB of them before it pays.
//! [`RegionHeap`] lives in memory that is given once, from 1 KiB up: it spends 170 to 820 bytes of it on bins, 0.8 to 1.6 %
//! on a bitmap, and the rest on blocks. Its calls take constant time; who has it to himself uses the [`BlockHeap`] in it
//! directly.
//!
//! **Nouns.** A *page* is 4 KiB, a *chunk* 512 pages. A *block* is what a caller gets. A *class* is one of 104 block sizes;
//! a *span* is a run of pages that holds objects of one class, or one large block. A *region* is memory that blocks are cut
//! from, by the *granule* of 8 to 32 bytes. A *chain* is a counted list of free blocks, moved as a whole; a *slab* the lists
//! of one core. A *context* is a thread or a core with everything that interrupts it.
//!
//! **No header per block.** Rust hands the layout back on a free, so the class (or the number of granules) is computed; C
//! hands a pointer back, and one look-up in the page map gives span and class (or, in front of it, a *key* that says whether an
//! object of which class starts there: `keyed_map`). Descriptors and bitmaps lie beside the
//! memory, never in it; only a free block that is cached holds a link and, where the home wants it, a seal against double
//! frees.
//!
//! **Locks** are taken downward only: a central list, then the page heap. The core cache takes none. A context waits for a
//! lock only while it is inside no deeper one, and never for one that forks (`L1`, `L2` in `lock.rs`), so that a signal
//! handler may allocate whatever it interrupted: it hits, or waits where that is safe, or is served from a mapping of its
//! own, and its frees are queued. A region heap has one lock, and no mappings to hand out: it answers `None` there.
//!
//! **Bounded.** Caches are bounded by bytes a core, not by threads, and a dead thread leaves nothing behind. Dirty free pages
//! are bounded at every moment by a cap that is enforced when pages come back: no thread, no timer. A home may set limits, and
//! say when memory is short; then the cap falls, caches are emptied, and a hard limit counts as the end of memory.
//!
//! **Out of memory** is `None`, changes nothing, and comes only after every cache was emptied and the source asked again.
//! **Corruption** that is seen (a foreign or interior pointer, a double free, a wrong size) stops the program with one line.
//! Nothing here panics, formats or allocates on the way.
//!
//! **Invariants** are numbered in the head of the file that keeps them (`B1` in `bins.rs`, `S3` in `span.rs`, …); SAFETY
//! comments cite the numbers, and [`Heap::check`] executes them.
//!
//! **Reading order** is the order of the modules below: the words and contracts first (`units`, `platform`, `fault`,
//! `size_class`, `region`, `grain`), then the way of an allocation down (`heap` to `page_bits`, and `region_heap` to
//! `block`), then what serves them all (`bins` to `sync`), then what looks at the whole (`global` to `region_check`).
//! The layers call downward only; `chain`, `seal` and `span` are words that several of them share.
//!
//! Why 16-byte steps to 512 bytes and eight a doubling above: TCMalloc's and jemalloc's spacing costs at most 12.5 %; the finer
//! start saves what small objects waste. Steps to 1 KiB cost more than they saved: a vector that grows by elements moved at
//! each step, and 24 more lists were filled in turn (36 and 30 ns an operation against 24 and 20). Why a lock-free shelf in front of the locked spans: producer and
//! consumer on two cores pass whole chains, and neither touches a span. Why claim by swap, where there is no restartable
//! sequence: it needs one instruction that every multi-core machine has, and nothing is to be undone (see `claim`).
//!
//! Words must have 64 bits and addresses 48 (sign-extended, so that kernels in the higher half fit): links are packed
//! (`chain`). Loom explores the lock-free parts (`claim`, `shelf`, `queue`) with `RUSTFLAGS="--cfg loom" cargo test -p
//! freestone-core --release --lib model`.
#![no_std]
#![cfg_attr(loom, allow(dead_code, unused_imports, missing_docs))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("freestone-core packs links into 64-bit words: it has no 32-bit form yet");

#[cfg(any(loom, test))]
extern crate std;

// In reading order; loom, whose atomics cannot be made in constants, gets the lock-free parts only.
pub mod units;
#[cfg(not(loom))]
pub mod platform;
#[cfg(not(loom))]
pub mod fault;
#[cfg(not(loom))]
pub mod size_class;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod grain;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod freeze;
#[cfg(not(loom))]
mod core_cache;
#[cfg(not(loom))]
pub mod slab;
pub mod chain;
#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
pub mod seal;
pub mod claim;
#[cfg(not(loom))]
mod claim_lists;
#[cfg(not(loom))]
mod central;
#[cfg(not(loom))]
mod partial;
#[cfg(not(loom))]
mod tide;
mod shelf;
#[cfg(not(loom))]
mod span;
#[cfg(not(loom))]
mod back;
#[cfg(not(loom))]
pub mod page_map;
#[cfg(not(loom))]
mod keyed_map;
mod queue;
#[cfg(not(loom))]
mod rescue;
#[cfg(not(loom))]
mod page_heap;
#[cfg(not(loom))]
mod huge;
#[cfg(not(loom))]
mod keep;
#[cfg(not(loom))]
mod limits;
#[cfg(not(loom))]
mod chunk;
#[cfg(not(loom))]
mod page_bits;
#[cfg(not(loom))]
mod region_heap;
#[cfg(not(loom))]
mod block_heap;
#[cfg(not(loom))]
mod carve;
#[cfg(not(loom))]
mod block;
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
mod region_check;
#[cfg(all(test, not(loom)))]
mod row;

#[cfg(not(loom))]
mod exports {
    pub use crate::block_heap::{BlockHeap, BlockStats};
    pub use crate::chain::{Block, Chain};
    pub use crate::check::Broken;
    pub use crate::claim_lists::{ClaimLists, CoreId, NoLists};
    pub use crate::fault::{Fault, FaultKind};
    pub use crate::grain::{Coarse, Compact, Fine, Grain, GranuleClass, Granules, Index, Tiny, Wide};
    pub use crate::heap::Heap;
    pub use crate::keyed_map::KeyedMap;
    pub use crate::limits::Limits;
    pub use crate::lock::{Context, SpinLock};
    pub use crate::page_map::{PageMap, RadixMap, WindowMap};
    pub use crate::platform::{
        Class, Contents, CoreLists, Entry, Lock, Mapped, PageSource, Place, Platform, Purged, Refused, RegionPlatform,
        RegionSource, Side, Tables,
    };
    pub use crate::region::{Region, RegionError};
    pub use crate::region_heap::RegionHeap;
    pub use crate::seal::{AddressSeal, Seal, Unsealed};
    pub use crate::size_class::SizeClass;
    pub use crate::slab::{ListCounts, Slab, Slot};
    pub use crate::stats::{ClassStats, RegionStats, SourceStats, Stats};
    pub use crate::units::{CHUNK_PAGES, CHUNK_SIZE, PAGE_SHIFT, PAGE_SIZE, PageRun, Pages};
}
#[cfg(not(loom))]
pub use exports::*;
