//! Memory for region heaps on the host: a stretch with canaries, out of which a heap is given regions, and the homes of such
//! heaps.
//!
//! Tests call it. A heap borrows its arena for as long as it lives, and has it for itself, so everything here is safe to
//! use. Every byte that belongs to no region the heap has must keep its canary.

use crate::home::{Core, OpenLock};
use crate::regions::{AloneInRegions, Plain, Regional};
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_core::{
    ClaimLists, CoreLists, Fault, Grain, GranuleClass, Granules, Lock, NoLists, Region, RegionError, RegionHeap,
    RegionPlatform, RegionSource,
};
use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::sync::Mutex;
use std::vec::Vec;

/// What the bytes of an arena hold that are no region's.
const CANARY: u8 = 0xc3;

/// A stretch of memory.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an arena is owned memory.
unsafe impl Send for Arena {}
// SAFETY: its methods read, and write only by `&mut self`.
unsafe impl Sync for Arena {}

impl Arena {
    /// `len` bytes, aligned to a page.
    pub fn new(len: usize) -> Self {
        Self::aligned(len, 4096)
    }

    /// `len` bytes (not 0) at a multiple of `align`.
    pub fn aligned(len: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(len, align).expect("a valid layout");
        assert!(len > 0);
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, layout }
    }

    /// Where it begins.
    pub fn start(&self) -> usize {
        self.start.addr().get()
    }

    /// An empty heap, which gets regions out of this arena. All of that is canary at first.
    pub fn heap<H: Housed>(&mut self) -> InArena<'_, H> {
        self.clear();
        InArena { heap: H::over(Given::nothing()), arena: self, taken: Mutex::new(Vec::new()) }
    }

    /// A heap that asks for the given part of the arena when it first wants memory. All else is canary.
    pub fn lazy_heap<H: Housed>(&mut self, part: Range<usize>) -> InArena<'_, H> {
        self.clear();
        let first = Given::region(self.region(part.clone(), part.len()));
        InArena { heap: H::over(first), arena: self, taken: Mutex::new(std::vec![part]) }
    }

    /// Where the blocks of a region at `part` lie: found by asking a heap over it for all it has, which writes to it.
    pub fn blocks_of<G: Grain>(&mut self, part: Range<usize>) -> Range<usize> {
        let heap = self.heap::<Plain<G>>();
        let bytes = heap.add(part).expect("a region");
        let whole = Layout::from_size_align(bytes, 1).expect("a valid layout");
        let start = crate::subject::Subject::allocate(&*heap, whole, crate::subject::Fill::Any).expect("the whole region");
        start.addr().get()..start.addr().get() + bytes
    }

    fn clear(&mut self) {
        // SAFETY: the arena's own memory, which no heap borrows. Only what was cleared is read.
        unsafe { self.start.write_bytes(CANARY, self.layout.size()) }
    }

    fn region(&self, part: Range<usize>, most: usize) -> Region {
        assert!(part.start <= part.end && part.start + most <= self.layout.size(), "{part:?} is no part of the arena");
        Region { start: self.start.as_ptr().wrapping_add(part.start), len: part.len(), most }
    }

    /// The first byte of `range` that is not canary.
    fn broken_in(&self, range: Range<usize>) -> Option<usize> {
        // SAFETY: inside the arena, and outside of all regions, so no heap writes there (which is what is tested).
        range.into_iter().find(|at| unsafe { self.start.add(*at).read() } != CANARY)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated by `aligned` with this layout; no heap borrows it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A heap that an arena can be under.
pub trait Housed: Regional {
    /// A heap that gets its first region from `first`, where it asks for one.
    fn over(first: Given) -> Self;
}

impl<P: RegionPlatform<Source = Given>> Housed for RegionHeap<P> {
    fn over(first: Given) -> Self {
        Self::new(first)
    }
}

impl<P: RegionPlatform<Source = Given>> Housed for AloneInRegions<P> {
    fn over(first: Given) -> Self {
        Self::new(RegionHeap::new(first))
    }
}

impl<G: Grain> Housed for Plain<G> {
    fn over(first: Given) -> Self {
        let heap = Self::new();
        if let Ok(region) = first.0 {
            // SAFETY: the promise of who made `first`.
            unsafe { heap.add(region) }.expect("a region");
        }
        heap
    }
}

/// A heap whose regions are parts of an arena.
#[derive(Debug)]
pub struct InArena<'a, H> {
    heap: H,
    arena: &'a mut Arena,
    /// The parts that the heap has.
    taken: Mutex<Vec<Range<usize>>>,
}

impl<H> Deref for InArena<'_, H> {
    type Target = H;
    fn deref(&self) -> &H {
        &self.heap
    }
}

impl<H: Regional> InArena<'_, H> {
    /// The heap, for itself.
    pub fn get_mut(&mut self) -> &mut H {
        &mut self.heap
    }

    /// The address of a place in the arena.
    pub fn address(&self, at: usize) -> usize {
        self.arena.start() + at
    }

    /// Adds a part of the arena. Returns the bytes for blocks.
    pub fn add(&self, part: Range<usize>) -> Result<usize, RegionError> {
        let most = part.len();
        self.add_growable(part, most)
    }

    /// The same, with room to grow to `most` bytes.
    pub fn add_growable(&self, part: Range<usize>, most: usize) -> Result<usize, RegionError> {
        // SAFETY: the arena is the heap's for as long as that lives; it refuses what it has.
        let added = unsafe { self.heap.add(self.arena.region(part.clone(), most)) }?;
        self.taken.lock().expect("no panic before").push(part);
        Ok(added)
    }

    /// Makes the region at `start` `len` bytes long. Returns the bytes that this brings.
    pub fn extend(&self, start: usize, len: usize) -> Result<usize, RegionError> {
        let region = self.arena.region(start..start + len, len);
        // SAFETY: the arena is the heap's for as long as that lives.
        let brought = unsafe { self.heap.extend(region.start, len) }?;
        let mut taken = self.taken.lock().expect("no panic before");
        taken.iter_mut().filter(|part| part.start == start).for_each(|part| part.end = part.end.max(start + len));
        Ok(brought)
    }

    /// Panics unless every byte outside of the heap's regions holds its canary.
    #[track_caller]
    pub fn expect_canaries(&self) {
        let mut taken = self.taken.lock().expect("no panic before").clone();
        taken.sort_by_key(|part| part.start);
        let ends = [0].into_iter().chain(taken.iter().map(|part| part.end));
        let starts = taken.iter().map(|part| part.start).chain([self.arena.layout.size()]);
        let broken = ends.zip(starts).find_map(|(from, to)| self.arena.broken_in(from..to));
        assert_eq!(broken, None, "the canary at this place of the arena is gone; the heap has {taken:?}");
    }
}

/// The first region of a heap, or none.
#[derive(Debug)]
pub struct Given(Result<Region, RegionError>, AtomicUsize);

// SAFETY: a region's pointer is only handed on.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

impl Given {
    /// No region: some are added.
    pub const fn nothing() -> Self {
        Self(Err(RegionError::Missing), AtomicUsize::new(0))
    }

    const fn region(region: Region) -> Self {
        Self(Ok(region), AtomicUsize::new(0))
    }
}

// SAFETY: a region comes from an arena, which the heap borrows. A second call is a panic.
unsafe impl RegionSource for Given {
    fn first(&self) -> Result<Region, RegionError> {
        // Relaxed: only the count matters.
        assert_eq!(self.1.fetch_add(1, Relaxed), 0, "the source is asked once");
        self.0
    }
}

/// A home of region heaps for tests, with the lists `L`, the lock `K`, and `BLOCKS` cached blocks a core. Faults are panics.
#[derive(Debug)]
pub struct RegionHome<L, K, const BLOCKS: usize>(PhantomData<fn() -> (L, K)>);

impl<L, C, K, const BLOCKS: usize> RegionPlatform for RegionHome<L, K, BLOCKS>
where
    L: CoreLists<Class = C> + 'static,
    C: GranuleClass,
    K: Lock + 'static,
{
    type Grain = C::Grain;
    type Lists = L;
    type Lock = K;
    type Source = Given;
    const CORE_BLOCKS: usize = BLOCKS;

    fn stop(fault: Fault) -> ! {
        panic!("{fault}")
    }
}

/// Granules of the longest cached block.
pub const LONGEST: usize = 16;
/// Blocks that a core may cache: three of each length.
pub const BLOCKS: usize = 3 * LONGEST;

/// A home without cache.
pub type Uncached<G, K = OpenLock> = RegionHome<NoLists<G>, K, 0>;
/// A home with caches for the first `CORES` cores.
pub type Cached<G, const CORES: usize, K = OpenLock> = RegionHome<ClaimLists<Core, CORES, Granules<G, LONGEST>>, K, BLOCKS>;
