//! [`Bare`]: the home that puts lock, grain, cache and static region together; and the kinds of cache to choose from.

use crate::StaticRegion;
use core::fmt;
use core::marker::PhantomData;
use freestone_core::{
    ClaimLists, CoreId, CoreLists, Fault, Grain, GranuleClass, Granules, Lock, NoLists, RegionHeap, RegionPlatform,
};

/// The home of a heap in static regions: locked by `K`, cut by the grain `G`, with the cache `C`.
///
/// Corruption that the heap sees is a panic, whose message is one line that names the pointer, the fault and the invariant;
/// the program's panic handler prints it. It never unwinds through the heap: where panics unwind (tests on a host), the
/// program is aborted.
pub struct Bare<K, G, C>(PhantomData<(K, G, C)>);

impl<K, G, C> fmt::Debug for Bare<K, G, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bare")
    }
}

impl<K: Lock + 'static, G: Grain, C: Cache<G>> RegionPlatform for Bare<K, G, C> {
    type Grain = G;
    type Lists = C::Lists;
    type Lock = K;
    type Source = StaticRegion;

    const CORE_BLOCKS: usize = C::BLOCKS;

    fn stop(fault: Fault) -> ! {
        panic_with(&fault)
    }
}

/// `extern "C"`, which no panic unwinds out of: allocators must not.
#[cold]
extern "C" fn panic_with(fault: &Fault) -> ! {
    panic!("freestone: {fault}")
}

/// A kind of per-core cache in front of a heap of grain `G`.
pub trait Cache<G: Grain>: 'static {
    /// Its lists.
    type Lists: CoreLists<Class: GranuleClass<Grain = G>>;
    /// The most blocks that one core keeps, in equal parts for each length.
    const BLOCKS: usize;
}

/// No cache: every call takes the lock, and the least memory and code.
#[derive(Debug)]
pub struct NoCache;

impl<G: Grain> Cache<G> for NoCache {
    type Lists = NoLists<G>;
    const BLOCKS: usize = 0;
}

/// Lists of free blocks for each of `CORES` cores, as `I` numbers them: one list for each length up to `LONGEST` granules,
/// of at most `EACH` blocks. With no length, or no block, it is no cache.
///
/// An allocation that finds a block of its length, and a free that finds room for it, take no lock and a few instructions.
/// It costs the heap's value 16 bytes a length and core, and 16 a length; and an allocation that finds no memory takes the
/// time to give up to `CORES * LONGEST * EACH` blocks back before it answers null.
pub struct Cached<I, const CORES: usize, const LONGEST: usize, const EACH: usize>(PhantomData<fn() -> I>);

impl<I, const CORES: usize, const LONGEST: usize, const EACH: usize> fmt::Debug for Cached<I, CORES, LONGEST, EACH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cached({EACH} blocks of each length up to {LONGEST} granules on each of {CORES} cores)")
    }
}

impl<G: Grain, I: CoreId, const CORES: usize, const LONGEST: usize, const EACH: usize> Cache<G>
    for Cached<I, CORES, LONGEST, EACH>
{
    type Lists = ClaimLists<I, CORES, Granules<G, LONGEST>>;
    // A list for each length from the shortest that a block can have.
    const BLOCKS: usize = (LONGEST + 1).saturating_sub(G::LEAST) * EACH;
}

/// The core number of a machine that has one core.
#[derive(Clone, Copy, Debug)]
pub struct OneCore;

impl CoreId for OneCore {
    #[inline(always)]
    fn core() -> usize {
        0
    }
}

/// A heap in static regions; see the [crate](crate) for what to choose.
#[cfg(feature = "critical-section")]
pub type Heap<K = crate::Masked, G = freestone_core::Compact, C = NoCache> = RegionHeap<Bare<K, G, C>>;

/// A heap in static regions; see the [crate](crate) for what to choose. (The feature `critical-section` brings a default for
/// the lock.)
#[cfg(not(feature = "critical-section"))]
pub type Heap<K, G = freestone_core::Compact, C = NoCache> = RegionHeap<Bare<K, G, C>>;
