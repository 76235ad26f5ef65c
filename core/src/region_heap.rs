//! RegionHeap: what firmware and small kernels call. A [`BlockHeap`] behind a lock, with the core cache in front of it.
//!
//! The story of a first allocation of 100 bytes, on a heap that was only declared:
//! 1. [`Grain::granules`] says 13 granules of 8 bytes. Where there is a cache and it keeps blocks that long, its list misses.
//! 2. The heap enters its lock, sees that it never asked for memory, and asks its source: the region's control block is built.
//! 3. The block heap cuts 13 granules from the region's one free block. The next allocation does the same without step 2; a
//!    block of a cached length that is freed stays in the core's list, and the next allocation of that length is a hit.
//!
//! An interrupt may call anything here. A hit takes no lock. Below, an allocation that comes upon its own context inside the
//! lock answers `None`, and a free (or the tail that a shrinking block gives up) is queued with its length. Whoever enters
//! the lock takes back at most two of those, looks again when it has left, and takes all of them back before it answers
//! `None`. Where the lock masks interrupts, none of this happens.
//!
//! Invariants: `H1` cached, queued and free bytes are no more than the regions hold (the rest is live).

use crate::block_heap::BlockHeap;
use crate::chain::{Block, Chain, MAX_COUNT};
use crate::core_cache::CoreCache;
use crate::fault::{Fault, FaultKind};
use crate::grain::{Grain, GranuleClass};
use crate::lock::Guarded;
use crate::platform::{Backend, Contents, CoreLists, RegionPlatform, RegionSource, Shortage, Taken};
use crate::queue::{FreeQueue, Queued};
use crate::region::{Region, RegionError};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::alloc::Layout;
use core::cmp::Ordering;
use core::ptr::NonNull;

/// An allocator over regions of memory, on the home `P`. A value: several may live side by side.
///
/// No method panics or unwinds, unless somebody has overwritten free memory. A hit of the cache takes a few instructions and
/// no lock. A call below it takes the lock and constant time, however many blocks there are, plus up to four queued
/// frees each time that it enters; the copy of a block that has to be moved is made outside of the lock. An allocation that finds
/// no memory gives all cached and queued blocks back first: at most
/// [`CORE_BLOCKS`](RegionPlatform::CORE_BLOCKS) a core. The very first call builds the region's control block, which takes
/// time in proportion to the region (a bit a granule is cleared); [`warm`](Self::warm) does so early.
///
/// Blocks are freed by their layout: nothing beside a block says how long it is.
pub struct RegionHeap<P: RegionPlatform> {
    pub(crate) cache: CoreCache<P::Lists>,
    shared: Guarded<P::Lock, Shared<P::Grain>>,
    queue: FreeQueue,
    source: P::Source,
    pub(crate) refused: AtomicUsize,
    pub(crate) queued: AtomicUsize,
}

/// What is behind the lock.
pub(crate) struct Shared<G: Grain> {
    pub(crate) blocks: BlockHeap<G>,
    /// Queued frees whose turn has not come.
    waiting: Queued,
    /// What came of asking for the first region.
    first: Option<Result<(), RegionError>>,
}

/// Queued frees that a holder takes back.
const TURN: usize = 2;

// SAFETY: everything in a heap that changes is atomic or behind its lock, or (source and lists) shared by contract.
unsafe impl<P: RegionPlatform> Sync for RegionHeap<P> where P::Source: Sync {}
// SAFETY: a heap's memory is not tied to the context that made it.
unsafe impl<P: RegionPlatform> Send for RegionHeap<P>
where
    P::Source: Send,
    P::Lists: Send,
{
}

/// The lengths that a home's lists keep apart.
type ClassOf<P> = <<P as RegionPlatform>::Lists as CoreLists>::Class;

impl<P: RegionPlatform> RegionHeap<P> {
    /// Whether there is a cache at all.
    const CACHES: bool = ClassOf::<P>::LONGEST > 0;

    /// Blocks of each length that a core may keep.
    const SHARE: usize = {
        let lengths = (ClassOf::<P>::LONGEST + 1).saturating_sub(P::Grain::LEAST);
        assert!(P::CORE_BLOCKS == 0 || P::CORE_BLOCKS >= lengths, "CORE_BLOCKS is not a block for each cached length");
        match P::CORE_BLOCKS.checked_div(lengths) {
            Some(share) => share,
            None => 0,
        }
    };

    /// A heap that has not asked for memory yet.
    pub const fn new(source: P::Source) -> Self {
        Self {
            cache: CoreCache::new(Self::SHARE),
            shared: Guarded::new(Shared { blocks: BlockHeap::new(), waiting: Queued::NONE, first: None }),
            queue: FreeQueue::EMPTY,
            source,
            refused: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }
    }

    /// Gives an empty heap its first region. Returns the bytes for blocks. `Occupied`: it has one already.
    ///
    /// # Safety
    /// As for [`BlockHeap::add`].
    pub unsafe fn init(&self, region: Region) -> Result<usize, RegionError> {
        self.on_regions(|blocks| match blocks.is_empty() {
            // SAFETY: the caller's promise.
            true => unsafe { blocks.add(region) },
            false => Err(RegionError::Occupied),
        })
    }

    /// Adds a region. Returns the bytes for blocks. Regions never join, adjoining or not: a block lies in one of them.
    ///
    /// # Safety
    /// As for [`BlockHeap::add`].
    pub unsafe fn add_region(&self, region: Region) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        self.on_regions(|blocks| unsafe { blocks.add(region) })
    }

    /// Makes the region at `start` `len` bytes long; see [`BlockHeap::extend`].
    ///
    /// # Safety
    /// As for [`BlockHeap::extend`].
    pub unsafe fn extend_region(&self, start: *mut u8, len: usize) -> Result<usize, RegionError> {
        // SAFETY: the caller's promise.
        self.on_regions(|blocks| unsafe { blocks.extend(start, len) })
    }

    /// Builds the first region's control block now, rather than at the first allocation. Returns the bytes that are free, or
    /// why there is no first region.
    pub fn warm(&self) -> Result<usize, RegionError> {
        let warmed = self.inside(|shared| match self.built(shared) {
            Err(why) if shared.blocks.is_empty() => Err(why),
            _ => Ok(shared.blocks.stats().free_bytes),
        });
        warmed.unwrap_or(Err(RegionError::Reentered))
    }

    /// A block for `layout`; a size of 0 gets a block of its own, too. `None`: no memory, or the lock may not be waited for;
    /// nothing changed. At an alignment above the granule `None` may also say that none of the few dozen blocks that were
    /// looked at fits, and none is long enough to fit wherever it lies.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        if Self::CACHES {
            return match Self::of(layout) {
                Some(class) => self.cache.pop(class).map(Block::into_ptr).or_else(|| self.refill(class)),
                None => self.allocate_uncached(layout),
            };
        }
        self.allocate_below(layout)
    }

    /// As [`allocate`](Self::allocate), and every byte of the layout reads zero.
    #[inline]
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let ptr = self.allocate(layout)?;
        // SAFETY: the block is at least `layout.size()` bytes long, and ours until it is returned.
        unsafe { ptr.write_bytes(0, layout.size()) };
        Some(ptr)
    }

    /// Frees a block. One that is seen to be none stops the program.
    ///
    /// # Safety
    /// `ptr` came from this heap with `layout`, or was reallocated to its size, and is not used any more.
    #[inline]
    pub unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        let ptr = of_region(ptr);
        match Self::of(layout) {
            Some(class) => {
                // SAFETY: a block of this length, given up by the caller.
                if let Err(block) = self.cache.push(class, unsafe { Block::from_ptr(ptr) }) {
                    self.overflow(class, block);
                }
            }
            None => self.give_back(ptr, P::Grain::granules(layout.size())),
        }
    }

    /// Makes the block `new_size` bytes long. A longer one grows in place if enough is free to its right, else it moves, at
    /// last into its own free neighbours. A shorter one stays in place; but one that becomes half as long or less moves into
    /// a hole, if there is one (copying less than it gives up): the long block that it leaves is worth more than its tail.
    /// `None`: no memory, the block is as it was; never where it becomes shorter.
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate); the old pointer is not used after success.
    #[inline]
    pub unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let new = Layout::from_size_align(new_size, old.align()).ok()?;
        let (from, to) = (P::Grain::granules(old.size()), P::Grain::granules(new_size));
        let ptr = of_region(ptr);
        match to.cmp(&from) {
            Ordering::Equal => Some(ptr),
            // SAFETY: the caller's promise.
            Ordering::Less => Some(unsafe { self.shrink(ptr, old, new) }),
            Ordering::Greater if self.grow(ptr, from, to) => Some(ptr),
            // SAFETY: the caller's promise.
            Ordering::Greater => unsafe { self.move_to(ptr, old, new) },
        }
    }

    /// Whether `ptr` points into this heap's blocks. `None`: the lock may not be waited for.
    pub fn owns(&self, ptr: NonNull<u8>) -> Option<bool> {
        self.inside(|shared| shared.blocks.owns(ptr))
    }

    /// Gives all cached and queued blocks back to the regions. Returns the bytes that are free then.
    pub fn trim(&self) -> usize {
        let free = self.collect().ok().and_then(|()| self.inside(|shared| shared.blocks.stats().free_bytes));
        free.unwrap_or(0)
    }

    /// Runs `work` inside the lock; `None` where this context may not wait for it. Takes some of the queued frees back
    /// before, and after it where an interrupt has queued some meanwhile: at most [`TURN`] each time.
    #[inline(always)]
    pub(crate) fn inside<R>(&self, work: impl FnOnce(&mut Shared<P::Grain>) -> R) -> Option<R> {
        let mut shared = self.shared.enter_while(|| true)?;
        if !shared.waiting.is_empty() {
            self.take_back(&mut shared, TURN);
        }
        let result = work(&mut shared);
        drop(shared);
        if !self.queue.is_empty() {
            self.take_turn();
        }
        Some(result)
    }

    #[cold]
    #[inline(never)]
    fn take_turn(&self) {
        if let Some(mut shared) = self.shared.enter_while(|| true) {
            self.take_back(&mut shared, TURN);
        }
    }

    fn on_regions(
        &self,
        work: impl FnOnce(&mut BlockHeap<P::Grain>) -> Result<usize, RegionError>,
    ) -> Result<usize, RegionError> {
        let done = self.inside(|shared| {
            // Whatever came of it: the first region comes before those that are added.
            let _ = self.built(shared);
            work(&mut shared.blocks)
        });
        done.unwrap_or(Err(RegionError::Reentered))
    }

    /// Asks the source for memory where that was never done; what came of it.
    pub(crate) fn built(&self, shared: &mut Shared<P::Grain>) -> Result<(), RegionError> {
        match shared.first {
            Some(first) => first,
            None => self.ask(shared),
        }
    }

    /// Addresses and lengths of the queued blocks, for who is inside the lock.
    pub(crate) fn look_at_queued(&self, shared: &Shared<P::Grain>) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        // SAFETY: blocks are taken out only inside the lock, where the caller is; they are only looked at.
        let (waiting, queue) = unsafe { (shared.waiting.look(), self.queue.look()) };
        waiting.chain(queue).map(unqueued)
    }

    #[cold]
    #[inline(never)]
    fn ask(&self, shared: &mut Shared<P::Grain>) -> Result<(), RegionError> {
        // SAFETY: the source's contract.
        let added = self.source.first().and_then(|region| unsafe { shared.blocks.add(region) }).map(|_| ());
        shared.first = Some(added);
        added
    }

    /// Frees up to `most` of the queued blocks.
    #[cold]
    #[inline(never)]
    fn take_back(&self, shared: &mut Shared<P::Grain>, most: usize) {
        for _ in 0..most {
            if shared.waiting.is_empty() {
                shared.waiting = self.queue.take_all();
            }
            let Some(queued) = shared.waiting.next() else { return };
            let (ptr, granules) = unqueued(queued);
            if let Err(kind) = shared.blocks.give(ptr, granules) {
                Self::stop(ptr, kind);
            }
        }
    }

    /// Out of line, so that a hit saves no registers.
    #[inline(never)]
    fn allocate_uncached(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.allocate_below(layout)
    }

    #[inline(always)]
    fn allocate_below(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (granules, align) = (P::Grain::granules(layout.size()), layout.align());
        match self.take_granules(granules, align) {
            Ok(ptr) => Some(ptr),
            Err(shortage) => self.allocate_again(granules, align, shortage),
        }
    }

    #[inline(always)]
    fn take_granules(&self, granules: usize, align: usize) -> Result<NonNull<u8>, Shortage> {
        match self.inside(|shared| shared.blocks.take(granules, align)) {
            Some(Some(ptr)) => Ok(ptr),
            Some(None) => Err(Shortage::Exhausted),
            None => Err(Shortage::Reentered),
        }
    }

    /// Once more with what is cached and queued, where it is memory that was missing (and a region may have as many granules).
    #[cold]
    #[inline(never)]
    fn allocate_again(&self, granules: usize, align: usize, shortage: Shortage) -> Option<NonNull<u8>> {
        let again = match shortage {
            Shortage::Exhausted if granules <= P::Grain::MOST => {
                self.collect().and_then(|()| self.take_granules(granules, align))
            }
            shortage => Err(shortage),
        };
        if again == Err(Shortage::Reentered) {
            // Relaxed: a figure.
            self.refused.fetch_add(1, Relaxed);
        }
        again.ok()
    }

    /// Straight to the block heap: a list is filled by what is freed, one block at a time.
    #[cold]
    #[inline(never)]
    fn refill(&self, class: ClassOf<P>) -> Option<NonNull<u8>> {
        self.cache.note_empty(class);
        match self.take(class, 1) {
            Ok(mut taken) => taken.chain.pop().map(Block::into_ptr),
            Err(shortage) => self.allocate_again(class.granules(), 1, shortage),
        }
    }

    #[cold]
    #[inline(never)]
    fn overflow(&self, class: ClassOf<P>, block: Block) {
        if let Err(block) = self.cache.open(class, block) {
            self.give_back(block.into_ptr(), class.granules());
        }
    }

    /// Asks for the first region, and gives all cached and queued blocks back, but those in a list that an interrupted
    /// context works on. `Err`: the lock may not be waited for.
    fn collect(&self) -> Result<(), Shortage> {
        // Whatever came of the first region: the caller looks for memory again.
        self.inside(|shared| _ = self.built(shared)).ok_or(Shortage::Reentered)?;
        self.cache.drain(self);
        self.inside(|shared| self.take_back(shared, usize::MAX)).ok_or(Shortage::Reentered)
    }

    #[inline]
    fn give_back(&self, ptr: NonNull<u8>, granules: usize) {
        match self.inside(|shared| shared.blocks.give(ptr, granules)) {
            Some(Ok(())) => {}
            Some(Err(kind)) => Self::stop(ptr, kind),
            None => self.queue(ptr, granules),
        }
    }

    /// Leaves a block to the holder of the lock.
    #[cold]
    fn queue(&self, ptr: NonNull<u8>, granules: usize) {
        // SAFETY: the block is being freed, so it is nobody's; it is a granule long, which is a word.
        let block = unsafe { Block::from_ptr(ptr) };
        let note = if granules <= MAX_COUNT { granules } else { 0 };
        if note == 0 {
            block.set_second_word(granules);
        }
        self.queue.push(block, note);
        // Relaxed: a figure.
        self.queued.fetch_add(1, Relaxed);
    }

    /// # Safety
    /// As for [`reallocate`](Self::reallocate); `new` is fewer granules.
    unsafe fn shrink(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        let (from, to) = (P::Grain::granules(old.size()), P::Grain::granules(new.size()));
        match self.inside(|shared| shared.blocks.shrink(ptr, from, to, new.align())) {
            Some(Ok(place)) if place == ptr => ptr,
            // SAFETY: the caller's promise; the hole is a block of the new layout.
            Some(Ok(hole)) => unsafe { self.move_into(hole, ptr, old, new) },
            Some(Err(kind)) => Self::stop(ptr, kind),
            None => {
                // SAFETY: inside the block.
                self.queue(unsafe { ptr.byte_add(to * P::Grain::GRANULE) }, from - to);
                ptr
            }
        }
    }

    /// Whether the block could grow where it stands.
    fn grow(&self, ptr: NonNull<u8>, from: usize, to: usize) -> bool {
        match self.inside(|shared| shared.blocks.change(ptr, from, to)) {
            Some(Ok(grown)) => grown,
            Some(Err(kind)) => Self::stop(ptr, kind),
            None => false,
        }
    }

    /// # Safety
    /// As for [`reallocate`](Self::reallocate).
    #[cold]
    #[inline(never)]
    unsafe fn move_to(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        match self.allocate(new) {
            // SAFETY: the caller's promise; the new block is one of that layout.
            Some(block) => Some(unsafe { self.move_into(block, ptr, old, new) }),
            // SAFETY: the caller's promise.
            None => unsafe { self.slide(ptr, old, new.size()) },
        }
    }

    /// Moves the contents of a block and frees it. Returns the new one.
    ///
    /// # Safety
    /// As for [`reallocate`](Self::reallocate); `block` is a block of the layout `new`, and the caller's.
    unsafe fn move_into(&self, block: NonNull<u8>, ptr: NonNull<u8>, old: Layout, new: Layout) -> NonNull<u8> {
        // SAFETY: two blocks, both at least that long; then the old one is freed by the layout it has.
        unsafe {
            block.copy_from_nonoverlapping(ptr, old.size().min(new.size()));
            self.deallocate(ptr, old);
        }
        block
    }

    /// Moves a block into its own free neighbours. They are the block's before its contents are copied, with no lock held.
    ///
    /// # Safety
    /// As for [`reallocate`](Self::reallocate); `new_size` is more than the block has.
    unsafe fn slide(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        let to = self.inside(|shared| unsafe { shared.blocks.slide(ptr, old, new_size) })??;
        // SAFETY: both places lie inside the block as it is now, whose owner calls this.
        unsafe { to.copy_from(ptr, old.size()) };
        Some(to)
    }

    #[cold]
    #[inline(never)]
    fn stop(ptr: NonNull<u8>, kind: FaultKind) -> ! {
        P::stop(Fault { pointer: ptr.addr().get(), kind })
    }
}

/// The same address by the provenance of its region, which was exposed when it was added: what a caller hands back may have
/// been allowed to reach less than the block, and what it gets or what the heap does to the block later may reach more.
#[inline(always)]
fn of_region(ptr: NonNull<u8>) -> NonNull<u8> {
    NonNull::with_exposed_provenance(ptr.addr())
}

/// A queued block and its length.
fn unqueued((block, note): (Block, usize)) -> (NonNull<u8>, usize) {
    let granules = if note == 0 { block.second_word() } else { note };
    (block.into_ptr(), granules)
}

impl<P: RegionPlatform> Backend for RegionHeap<P> {
    type Class = ClassOf<P>;

    #[inline(always)]
    fn of(layout: Layout) -> Option<ClassOf<P>> {
        if layout.align() > P::Grain::GRANULE {
            return None;
        }
        ClassOf::<P>::of_granules(P::Grain::granules(layout.size()))
    }

    /// One block, however many are asked for: a batch would only be missing from the longer free blocks.
    fn take(&self, class: ClassOf<P>, _: usize) -> Result<Taken, Shortage> {
        let ptr = self.take_granules(class.granules(), 1)?;
        let mut chain = Chain::EMPTY;
        // SAFETY: a fresh block of this class, and nobody's.
        chain.push(unsafe { Block::from_ptr(ptr) });
        Ok(Taken { chain, first: Contents::Unknown })
    }

    fn give(&self, class: ClassOf<P>, mut chain: Chain) {
        while let Some(block) = chain.pop() {
            self.give_back(block.into_ptr(), class.granules());
        }
    }
}

impl<P: RegionPlatform> core::fmt::Debug for RegionHeap<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let stats = self.stats();
        write!(f, "RegionHeap({} bytes live of {} held)", stats.live_bytes, stats.held_bytes)
    }
}
