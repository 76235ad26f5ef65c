//! The home of region heaps in a kernel, with a cache for each processor and without, and where their memory
//! comes from. The kernels call it.

use crate::home::{OneForAll, WINDOW};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use freestone_core::{
    ClaimLists, CoreLists, Fault, Grain, GranuleClass, Granules, NoLists, PAGE_SIZE, Region, RegionError, RegionPlatform,
    RegionSource, SpinLock,
};
use freestone_machine::{Cpu, MAX_CPUS, Window, fail, frames};

/// A kernel's home for heaps of the grain `G` with the lists `L`; the first region comes from `S`.
#[derive(Debug)]
pub struct RegionHome<G, L, S = Later>(PhantomData<(G, L, S)>);

/// Blocks of up to 32 granules, of which a processor may keep [`CORE_BLOCKS`](RegionPlatform::CORE_BLOCKS).
pub type Cached<G> = ClaimLists<Cpu, MAX_CPUS, Granules<G, 32>>;

/// One cache for all processors.
pub type Shared<G> = ClaimLists<OneForAll, 1, Granules<G, 32>>;

/// No cache: every call takes the lock.
pub type Plain<G> = NoLists<G>;

impl<G, L, S> RegionPlatform for RegionHome<G, L, S>
where
    G: Grain,
    L: CoreLists<Class: GranuleClass<Grain = G>> + 'static,
    S: RegionSource + 'static,
{
    type Grain = G;
    type Lists = L;
    type Lock = SpinLock<Cpu>;
    type Source = S;

    const CORE_BLOCKS: usize = 64;

    fn stop(fault: Fault) -> ! {
        fail(format_args!("freestone: {fault}"))
    }
}

/// A region that is added when the kernel runs.
#[derive(Clone, Copy, Debug)]
pub struct Later;

// SAFETY: there is no region.
unsafe impl RegionSource for Later {
    fn first(&self) -> Result<Region, RegionError> {
        Err(RegionError::Missing)
    }
}

/// Static memory for one heap, all zero, which the heap sees in [`WINDOW`].
#[repr(align(4096))]
pub struct StaticMemory<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: only the heap that it is the source of uses it.
unsafe impl<const N: usize> Sync for StaticMemory<N> {}

impl<const N: usize> StaticMemory<N> {
    /// Memory of a heap.
    ///
    /// # Safety
    /// One heap at most has a reference to it as its source.
    pub const unsafe fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }
}

// SAFETY: it lies in a static, which is all of one heap, by the promise of `new`.
unsafe impl<const N: usize> RegionSource for &'static StaticMemory<N> {
    fn first(&self) -> Result<Region, RegionError> {
        Ok(Region::new(WINDOW.of(self.0.get()).cast(), N))
    }
}

/// A region of `len` bytes for good, of page frames that begin at a multiple of 4 MiB, seen through `window`.
pub fn region_of_frames(window: Window, len: usize) -> Region {
    let frames = frames::take(len.div_ceil(PAGE_SIZE), 4 << 20).unwrap_or_else(|why| panic!("{len} bytes: {why:?}"));
    Region::new(window.at(frames), len)
}
