//! The portable per-core lists: a fixed number of slabs inside the value, worked on by [`claim`].

use crate::chain::{Block, Chain};
use crate::grain::{Grain, Granules};
use crate::platform::{Class, CoreLists, Refused, Side, Tables};
use crate::size_class::SizeClass;
use crate::slab::{Slab, Slot};
use crate::sync::atomic::Ordering::Relaxed;
use core::marker::PhantomData;

/// Tells which core runs; may be stale by the time it is used, and any value is allowed (one beyond the slabs misses).
pub trait CoreId: 'static {
    /// The core's number.
    fn core() -> usize;
}

/// Lists for `CORES` cores, named by `C`, of blocks of the classes `K`.
pub struct ClaimLists<C, const CORES: usize, K: Class = SizeClass> {
    slabs: [Slab<K>; CORES],
    core: PhantomData<fn() -> C>,
}

impl<C: CoreId, const CORES: usize, K: Class> ClaimLists<C, CORES, K> {
    fn slot(&self, class: K) -> Option<&Slot> {
        Some(self.slabs.get(C::core())?.slot(class))
    }
}

// SAFETY: `claim` makes every operation on a slot exclusive (A1) and orders it after the last; a stale core number only
// names another slot. `claim` reads and writes links only.
unsafe impl<C: CoreId, const CORES: usize, K: Class> CoreLists for ClaimLists<C, CORES, K> {
    type Class = K;
    const NEW: Self = Self { slabs: [const { Slab::EMPTY }; CORES], core: PhantomData };

    #[inline(always)]
    fn pop(&self, class: K) -> Option<Block> {
        self.slot(class)?.head.pop()
    }

    #[inline(always)]
    fn push(&self, class: K, block: Block) -> Result<(), Block> {
        let Some(slot) = self.slot(class) else { return Err(block) };
        // Relaxed: a limit is a number that steers, nothing hangs on it.
        slot.head.push(slot.limit.load(Relaxed), block)
    }

    fn take_all(&self, class: K) -> Chain {
        self.slot(class).map_or(Chain::EMPTY, |slot| slot.head.take_all())
    }

    fn put_chain(&self, class: K, chain: Chain) -> Result<(), Chain> {
        let Some(slot) = self.slot(class) else { return Err(chain) };
        slot.head.put_chain(chain)
    }

    fn steal(&self, core: usize, sink: &mut dyn FnMut(K, Chain)) -> Result<(), Refused> {
        let slab = self.slabs.get(core).ok_or(Refused)?;
        for class in K::all() {
            let chain = slab.slot(class).head.take_all();
            if !chain.is_empty() {
                sink(class, chain);
            }
        }
        Ok(())
    }

    fn prepare(&self, _: &dyn Tables) -> bool {
        C::core() < CORES
    }

    fn cores(&self) -> usize {
        CORES
    }

    fn current(&self) -> Option<usize> {
        Some(C::core()).filter(|core| *core < CORES)
    }

    fn slab(&self, core: usize) -> Option<&Slab<K>> {
        self.slabs.get(core)
    }

    fn thaw(&self, side: Side) {
        if side == Side::Child {
            self.slabs.iter().for_each(Slab::drop_claims);
        }
    }
}

/// No lists: every operation misses, and the heap goes straight to its lock. For a heap without a cache.
#[derive(Debug)]
pub struct NoLists<G>(PhantomData<fn() -> G>);

// SAFETY: takes no block.
unsafe impl<G: Grain> CoreLists for NoLists<G> {
    type Class = Granules<G, 0>;
    const NEW: Self = Self(PhantomData);

    fn pop(&self, _: Self::Class) -> Option<Block> {
        None
    }

    fn push(&self, _: Self::Class, block: Block) -> Result<(), Block> {
        Err(block)
    }

    fn take_all(&self, _: Self::Class) -> Chain {
        Chain::EMPTY
    }

    fn put_chain(&self, _: Self::Class, chain: Chain) -> Result<(), Chain> {
        Err(chain)
    }

    fn steal(&self, _: usize, _: &mut dyn FnMut(Self::Class, Chain)) -> Result<(), Refused> {
        Err(Refused)
    }

    fn prepare(&self, _: &dyn Tables) -> bool {
        false
    }

    fn cores(&self) -> usize {
        0
    }

    fn current(&self) -> Option<usize> {
        None
    }

    fn slab(&self, _: usize) -> Option<&Slab<Self::Class>> {
        None
    }
}
