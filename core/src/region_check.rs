//! The checker of region heaps: walks every granule, bin and list, and executes the invariants of `block.rs`, `bins.rs`,
//! `region_heap.rs` and `core_cache.rs`. Live blocks cannot be walked: they are what is neither free nor cached nor queued.
//!
//! For tests and for a suspicion: the time is in proportion to the heap. It needs the heap to itself.

use crate::block::Blocks;
use crate::block_heap::BlockHeap;
use crate::carve::RegionRef;
use crate::chain::{Chain, word_block, word_count};
use crate::check::{Broken, ensure, no_fault};
use crate::claim::CLAIMED;
use crate::grain::{Grain, GranuleClass, Index};
use crate::list::Linked;
use crate::platform::{Class, CoreLists, RegionPlatform};
use crate::region_heap::{RegionHeap, Shared};
use crate::slab::Slab;
use crate::sync::LinkCell;
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use core::ptr::NonNull;

const R1: &str = "R1: the boundary bits are those of the free blocks";
const R6: &str = "R6: each free block of four slots or more is in a bin, linked both ways, and nothing else is";
const H1: &str = "H1: cached, queued and free bytes are no more than the regions hold";

impl<G: Grain> BlockHeap<G> {
    /// Checks every invariant.
    pub fn check(&self) -> Result<(), Broken> {
        self.regions().try_for_each(check_region)
    }

    /// Whether a block of so many granules at `ptr` can be live: inside a region, and clear of all free blocks' ends.
    fn may_be_out(&self, ptr: NonNull<u8>, granules: usize) -> bool {
        self.regions().any(|mut region| {
            let (blocks, end) = (region.blocks(), region.control().end as usize);
            let start = blocks.granule_at(ptr);
            let inside = start >= 1 && start < end && granules <= end - start;
            inside && (start..start + granules).all(|granule| !blocks.is_marked(granule))
        })
    }
}

fn check_region<G: Grain>(mut region: RegionRef<G>) -> Result<(), Broken> {
    let (blocks, control) = (&region.blocks(), region.control());
    let end = control.end as usize;
    let address = blocks.at(1).addr();
    ensure(!blocks.is_marked(0) && !blocks.is_marked(end), R1, address)?;
    let (mut granule, mut free, mut filed) = (1, 0, 0);
    while granule < end {
        granule += match blocks.right_of(granule) {
            Some(block) => {
                check_free(blocks, granule, end)?;
                free += block.granules();
                filed += usize::from(block.granules() >= G::LEAST);
                block.granules()
            }
            None => 1,
        };
    }
    ensure(free == control.free as usize, "R5: free granules are counted", address)?;
    let is_free = |start: usize| start < end && blocks.is_marked(start) && blocks.lengths_agree(start, end);
    let mut found = 0;
    let sound = control.bins.each(blocks, |id, prev| {
        found += 1;
        found <= filed && is_free(id.get()) && blocks.prev(id) == prev
    });
    ensure(sound && found == filed, R6, address)?;
    no_fault(control.bins.broken(blocks), address)
}

/// The free block that should begin at the marked granule `start`.
fn check_free<G: Grain>(blocks: &Blocks<G>, start: usize, end: usize) -> Result<(), Broken> {
    let address = blocks.at(start).addr();
    ensure(
        blocks.lengths_agree(start, end),
        "R2: both lengths of a free block say how long it is, and R4: it lies inside",
        address,
    )?;
    let next = start + blocks.right_of(start).map_or(1, |block| block.granules());
    ensure(blocks.is_marked(next - 1), R1, address)?;
    ensure((start + 1..next - 1).all(|inside| !blocks.is_marked(inside)), R1, address)?;
    ensure(!blocks.is_marked(next), "R3: no two free blocks touch", address)
}

impl<P: RegionPlatform> RegionHeap<P> {
    /// Checks every invariant. `&mut` is the proof that nobody else is in the heap.
    pub fn check(&mut self) -> Result<(), Broken> {
        // SAFETY: `&mut self`.
        unsafe { self.check_quiescent() }
    }

    /// As [`check`](Self::check), for a heap in a `static`. From inside the heap's lock (a fault handler that came upon the holder)
    /// nothing is looked at, and the answer is `Ok`.
    ///
    /// # Safety
    /// No other context uses the heap during the call.
    pub unsafe fn check_quiescent(&self) -> Result<(), Broken> {
        // SAFETY: the caller's promise.
        self.inside(|shared| unsafe { self.check_inside(shared) }).unwrap_or(Ok(()))
    }

    /// # Safety
    /// As for `check_quiescent`.
    unsafe fn check_inside(&self, shared: &Shared<P::Grain>) -> Result<(), Broken> {
        shared.blocks.check()?;
        let mut out = 0;
        for (ptr, granules) in self.look_at_queued(shared) {
            ensure(shared.blocks.may_be_out(ptr, granules), "Q2: a queued block is not free", ptr.addr().get())?;
            out += granules;
        }
        for class in <P::Lists as CoreLists>::Class::all() {
            // SAFETY: the caller's promise.
            let cached = unsafe { self.check_cached(&shared.blocks, class)? };
            out += cached * class.granules();
        }
        let blocks = shared.blocks.stats();
        ensure(blocks.free_bytes + out * P::Grain::GRANULE <= blocks.held_bytes, H1, 0)?;
        self.check_slabs()
    }

    /// Walks the lists of `class` and returns how many blocks are in them.
    ///
    /// # Safety
    /// No other context uses the heap during the call.
    unsafe fn check_cached(
        &self,
        blocks: &BlockHeap<P::Grain>,
        class: <P::Lists as CoreLists>::Class,
    ) -> Result<usize, Broken> {
        let lists = &self.cache.lists;
        let mut found = 0;
        for slab in (0..lists.cores()).filter_map(|core| lists.slab(core)) {
            // Acquire pairs with the Release of whoever last worked on the list.
            let mut word = slab.slot(class).head.load(Acquire);
            ensure(word != CLAIMED, "A1: a list is claimed by who works on it", 0)?;
            while let Some(block) = word_block(word) {
                let address = block.addr().get();
                ensure(blocks.may_be_out(block, class.granules()), "F2: a cached block is not free in its region", address)?;
                // SAFETY: a block in a list, by its word; nobody else is in the heap.
                let next = unsafe { block.cast::<LinkCell>().as_ref().get() };
                ensure(word_count(next) + 1 == word_count(word), "C1: a word counts the blocks from it on", address)?;
                found += 1;
                word = next;
            }
            // The empty chain's word is the only one without a block.
            ensure(word == Chain::EMPTY.into_word(), "C1: a word counts the blocks from it on", 0)?;
        }
        Ok(found)
    }

    fn check_slabs(&self) -> Result<(), Broken> {
        let lists = &self.cache.lists;
        let allotted = |slab: &Slab<<P::Lists as CoreLists>::Class>| {
            let classes = <P::Lists as CoreLists>::Class::all();
            classes.map(|class| usize::from(slab.slot(class).limit.load(Relaxed)) * class.cost()).sum::<usize>()
        };
        let mut slabs = (0..lists.cores()).filter_map(|core| lists.slab(core));
        let sound = slabs.all(|slab| slab.allotted.load(Relaxed) == allotted(slab) && allotted(slab) <= P::CORE_BLOCKS);
        ensure(sound, "F1: a core's lists together stay within its budget", 0)
    }
}
