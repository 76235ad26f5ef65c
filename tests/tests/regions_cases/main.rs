//! Known allocator bugs, as cases, on heaps over regions: each test names the case whose bug it would find.
//!
//! `regions`: K01, K03, K04, K07, K09, K10, K11, K12, K14, K15, K17, K18, K29, K31; `blocks`: K19, K21, K22, K24, K25, K27,
//! K32, K34, K35, K38, K41, K43, K49; each on the plain block heap and on region heaps without and with a cache, where that
//! makes a difference. K05, and the arithmetic of K07 (no memory can be had there), are in `core/src/region.rs`; K36 is
//! `regions_reentry.rs`, K47 `regions_faults.rs`.

use core::alloc::Layout;
use core::ops::Range;
use core::ptr::{NonNull, null_mut, without_provenance_mut};
use freestone_core::{Compact, Fine, Grain, Region, RegionError, RegionHeap, SpinLock, Tiny, Wide};
use freestone_tests::arena::{Arena, Cached, Housed, InArena, Uncached};
use freestone_tests::home::{CORES, Core, Thread};
use freestone_tests::piece::{Piece, Served};
use freestone_tests::regions::{AloneInRegions, Plain, Regional};
use freestone_tests::subject::{Audited, Fill, Path, Subject};
use std::sync::Barrier;
use std::thread;

type NoCache<G> = AloneInRegions<Uncached<G>>;
type Cache<G> = AloneInRegions<Cached<G, 1>>;
/// For many threads.
type Shared<G> = RegionHeap<Cached<G, CORES, SpinLock<Thread>>>;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Runs a test on heaps of several types.
macro_rules! on {
    ($test:ident: $($heap:ty),+) => {{
        // The core that has lists in every home.
        Core::set(0);
        $($test::<$heap>();)+
    }};
}

fn try_new<S: Subject>(heap: &S, size: usize, align: usize) -> Option<Piece<'_, S>> {
    Piece::allocate(heap, Layout::from_size_align(size, align).unwrap(), Fill::Any, size as u64).unwrap()
}

fn new<S: Subject>(heap: &S, size: usize, align: usize) -> Piece<'_, S> {
    Piece::new(heap, size, align, size as u64)
}

fn free<S: Subject>(piece: Piece<'_, S>) {
    piece.free(Path::Layout).unwrap();
}

/// Free bytes and the longest free block, with empty caches.
fn room<H: Regional + Audited>(heap: &H) -> (usize, usize) {
    heap.trim();
    heap.check().unwrap();
    (heap.figures().free_bytes, heap.figures().largest_free)
}

/// Panics if two of the blocks overlap.
fn expect_apart<S: Subject>(blocks: &mut [Piece<'_, S>]) {
    blocks.sort_by_key(Piece::address);
    assert!(blocks.is_sorted_by(|a, b| !a.overlaps(b)));
}

mod blocks;
mod regions;
