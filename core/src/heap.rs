//! Heap: what a program calls. The fast paths, and the order in which the layers below are tried.
//!
//! The story of a first allocation of 100 bytes:
//! 1. [`SizeClass::of`] says class 7, blocks of 112 bytes. The core's list of class 7 misses: it was never set up.
//! 2. [`Heap::refill`] lets the lists prepare (the core's slab comes from the pool, which maps its first pages), misses again,
//!    and asks the class's central list for a batch.
//! 3. Central's shelf is empty and so is its list of partial spans: the page heap maps a chunk, cuts a run of seven pages
//!    out of it, and names each of them in the page map.
//! 4. The span hands out its lowest objects, no more than lie on the first two pages; the first is the caller's, the rest
//!    become the core's list. The next allocation of the class is a hit.
//!
//! An interrupt or signal handler may call anything here, whatever it interrupted: hits take no lock, and where its own
//! context is inside a lock, it gets a mapping of its own ([`rescue`](crate::rescue)) and its frees are queued.

use crate::back::{Back, Found};
use crate::central::Spans;
use crate::chain::{Block, Chain};
use crate::core_cache::CoreCache;
use crate::fault::FaultKind;
use crate::freeze::Frozen;
use crate::page_heap::Stale;
use crate::page_map::PageMap;
use crate::platform::{Backend, Contents, CoreLists, Platform, Shortage};
use crate::seal::Seal;
use crate::size_class::{STEP, SizeClass};
use crate::span::SpanRef;
use crate::units::PAGE_SIZE;
use core::alloc::Layout;
use core::ptr::NonNull;

/// An allocator on the home `P`. A value: several may live side by side, and dropping one frees everything it holds.
///
/// Two families free what one `allocate` gave. Callers who know the layout ([`deallocate`](Self::deallocate),
/// [`reallocate`](Self::reallocate)) need no look-up for blocks of a class; callers who have only a pointer
/// ([`free`](Self::free), [`resize`](Self::resize)) pay one look-up in the page map. A block that `resize` has touched is freed by
/// address from then on.
///
/// No method panics, unwinds or allocates elsewhere. Hits take constant time and no lock. A miss takes the lock of one class
/// and, inside it, that of the page heap, and links or unlinks at most a batch (64 blocks), plus what the page source takes;
/// now and then it empties the lists of an idle core or class, and all of them before it answers `None` and where memory
/// becomes scarce.
pub struct Heap<P: Platform> {
    pub(crate) cache: CoreCache<P::Lists>,
    pub(crate) spans: Spans<P>,
    pub(crate) frozen: Frozen,
}

/// Bytes from which a block that has to be zeroed is purged.
const PURGED_FROM: usize = 1 << 20;

// SAFETY: everything in a heap that changes is atomic or behind a lock, or (the page source and lists) shared by contract.
unsafe impl<P: Platform> Sync for Heap<P> where P::Source: Sync {}
// SAFETY: a heap's memory is not tied to the context that made it.
unsafe impl<P: Platform> Send for Heap<P> where P::Source: Send {}

impl<P: Platform> Heap<P> {
    /// A heap that has mapped nothing yet.
    pub const fn new(source: P::Source) -> Self {
        Self { cache: CoreCache::new(P::CORE_BUDGET), spans: Spans::new(source), frozen: Frozen::NEW }
    }

    /// A block for `layout`; a size of 0 gets a block of its own, too. `None`: no memory, nothing changed.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let Some(class) = SizeClass::of_common(layout.size(), layout.align()) else { return self.allocate_uncommon(layout) };
        match self.cache.pop(class) {
            Some(block) => Some(open::<P>(block)),
            None => self.allocate_missed(class),
        }
    }

    /// A block for `layout` out of this core's list: the fast path alone. `None` says nothing but that it missed.
    #[inline(always)]
    pub fn allocate_cached(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.cache.pop(SizeClass::of_common(layout.size(), layout.align())?).map(open::<P>)
    }

    /// As [`allocate`](Self::allocate), and every byte of the layout reads zero. Fresh pages are not written.
    #[inline]
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let Some(class) = Spans::<P>::of(layout) else { return self.allocate_large_zeroed(layout) };
        let (block, contents) = match self.cache.pop(class) {
            Some(block) => (block, Contents::Unknown),
            None => self.refill(class)?,
        };
        let ptr = open::<P>(block);
        // A block that was never handed out holds a link, at most.
        let dirty = if contents == Contents::Zeroed { layout.size().min(STEP) } else { layout.size() };
        // SAFETY: the block is at least `layout.size()` bytes long, and ours until it is returned.
        unsafe { ptr.write_bytes(0, dirty) };
        Some(ptr)
    }

    /// Frees a block by its layout.
    ///
    /// # Safety
    /// `ptr` came from this heap with a layout of the same class (for a class block: the same size and alignment will do),
    /// was not resized by address, and is not used any more.
    #[inline]
    pub unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        match SizeClass::of_common(layout.size(), layout.align()) {
            // SAFETY: a block of this class, given up by the caller.
            Some(class) => self.take_back(class, unsafe { Block::from_ptr(ptr) }),
            // SAFETY: the caller's promise.
            None => unsafe { self.deallocate_uncommon(ptr, layout) },
        }
    }

    /// Makes the block `new_size` bytes long: in place where the class is the same, or a large block can be resized without
    /// copying; else by moving it. `None`: no memory, the block is as it was.
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate); the old pointer is not used after success.
    #[inline]
    pub unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let class = |size| SizeClass::of_common(size, old.align());
        if class(old.size()).is_some_and(|from| class(new_size) == Some(from)) {
            return Some(ptr);
        }
        // SAFETY: the caller's promise.
        unsafe { self.reallocate_uncommon(ptr, old, new_size) }
    }

    /// # Safety
    /// As for [`reallocate`](Self::reallocate).
    #[inline(never)]
    unsafe fn reallocate_uncommon(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let new = Layout::from_size_align(new_size, old.align()).ok()?;
        match (Spans::<P>::of(old), Spans::<P>::of(new)) {
            (Some(from), Some(to)) if from == to => return Some(ptr),
            (None, None) => {
                if let Some(resized) = self.resize_large(ptr, new) {
                    return Some(resized);
                }
            }
            _ => {}
        }
        let moved = self.allocate(new)?;
        // SAFETY: two blocks, both at least that long; then the old one is freed by the layout it has.
        unsafe {
            moved.copy_from_nonoverlapping(ptr, old.size().min(new_size));
            self.deallocate(ptr, old);
        }
        Some(moved)
    }

    /// Frees a block by its address. A pointer that is no live block of this heap stops the program.
    ///
    /// # Safety
    /// The block at `ptr`, if there is one, is not used any more.
    #[inline]
    pub unsafe fn free(&self, ptr: NonNull<u8>) {
        match self.spans.back.ground.map.object(ptr.addr().get()) {
            // SAFETY: an object starts here, and the caller gives it up.
            Some(class) => self.take_back(class, unsafe { Block::from_ptr(ptr) }),
            // SAFETY: the caller's promise.
            None => unsafe { self.free_uncommon(ptr) },
        }
    }

    /// Frees what the map has no short way to (a large block, an object outside of its window), or stops the program.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[inline(never)]
    unsafe fn free_uncommon(&self, ptr: NonNull<u8>) {
        // SAFETY: the caller's promise.
        if let Err(kind) = unsafe { self.try_free(ptr) } {
            Back::<P>::stop(ptr, kind);
        }
    }

    /// As [`free`](Self::free), but leaves a pointer at which no block of this heap starts to the caller: `Foreign` or
    /// `Interior`.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    pub unsafe fn try_free(&self, ptr: NonNull<u8>) -> Result<(), FaultKind> {
        match self.spans.back.find(ptr)? {
            // SAFETY: an object starts here, and the caller gives it up.
            Found::Object(class, _) => self.take_back(class, unsafe { Block::from_ptr(ptr) }),
            Found::Large(_) => self.free_large(ptr),
        }
        Ok(())
    }

    /// As [`free`](Self::free), and stops the program if a block of `layout` would not be what lies at `ptr`.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    #[inline]
    pub unsafe fn free_sized(&self, ptr: NonNull<u8>, layout: Layout) {
        let fits = self.usable_size(ptr).is_none_or(|usable| layout.size() <= usable);
        if !fits || !ptr.addr().get().is_multiple_of(layout.align()) {
            Back::<P>::stop(ptr, FaultKind::WrongSize);
        }
        // SAFETY: the caller's promise.
        unsafe { self.free(ptr) }
    }

    /// Makes the block at `ptr` fit `new`: where it stands if that is not too wasteful (less than half used) and aligned,
    /// else by moving it. `None`: no memory, the block is as it was.
    ///
    /// # Safety
    /// As for [`free`](Self::free); the old pointer is not used after success.
    pub unsafe fn resize(&self, ptr: NonNull<u8>, new: Layout) -> Option<NonNull<u8>> {
        let found = self.spans.back.find(ptr).unwrap_or_else(|kind| Back::<P>::stop(ptr, kind));
        let aligned = ptr.addr().get().is_multiple_of(new.align());
        let usable = match found {
            Found::Object(class, _) if aligned && new.size() <= class.size() && new.size() >= class.size() / 2 => {
                return Some(ptr);
            }
            Found::Object(class, _) => class.size(),
            Found::Large(span) => {
                let resized = (aligned && new.size() > SizeClass::MAX_SIZE).then(|| self.resize_span(span, new)).flatten();
                if resized.is_some() {
                    return resized;
                }
                span.block_bytes()
            }
        };
        let Some(moved) = self.allocate(new) else {
            // A block that is too long will do where there is no memory for a shorter one.
            return (aligned && new.size() <= usable).then_some(ptr);
        };
        // SAFETY: two blocks, both at least that long; then the old one is freed.
        unsafe {
            moved.copy_from_nonoverlapping(ptr, usable.min(new.size()));
            self.free(ptr);
        }
        Some(moved)
    }

    /// Bytes that may be used at `ptr`; `None` where no live block of this heap starts there.
    pub fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize> {
        match self.spans.back.find(ptr).ok()? {
            Found::Object(class, _) => Some(class.size()),
            Found::Large(span) => Some(span.block_bytes()),
        }
    }

    /// Empties every cache and gives all free memory back to the source. Returns bytes: by how much less is mapped or
    /// resident than before, whoever did it.
    pub fn trim(&self) -> usize {
        let back = &self.spans.back;
        let before = back.pages().map(|pages| pages.footprint());
        self.empty_caches();
        let after = back.pages().map(|mut pages| {
            pages.trim(&back.ground);
            pages.footprint()
        });
        self.after_slow_path();
        let pages = before
            .zip(after)
            .map_or(0, |(before, after)| before.0.saturating_sub(after.0).max(before.1.saturating_sub(after.1)));
        pages * PAGE_SIZE
    }

    #[inline(always)]
    fn take_back(&self, class: SizeClass, block: Block) {
        if !P::Seal::close(&block) {
            return self.take_back_marked(block);
        }
        if let Err(block) = self.cache.push(class, block) {
            self.overflow(class, block);
        }
    }

    /// A block that carried the mark of a free one: stops the program. (Where another context has just been handed the block,
    /// which the second look would tell, the free is as wrong, and nothing is done: a function that always stops would be
    /// called with a frame, not jumped to.)
    #[cold]
    #[inline(never)]
    fn take_back_marked(&self, block: Block) {
        if !P::Seal::close(&block) {
            Back::<P>::stop(block.as_ptr(), FaultKind::DoubleFree);
        }
        P::Seal::open(&block);
    }

    // The slow paths return what the fast path does, so that a call that misses ends in a jump and has no frame of its own.
    #[cold]
    #[inline(never)]
    fn allocate_missed(&self, class: SizeClass) -> Option<NonNull<u8>> {
        self.refill(class).map(|(block, _)| open::<P>(block))
    }

    /// An allocation whose class takes some working out.
    #[inline(never)]
    fn allocate_uncommon(&self, layout: Layout) -> Option<NonNull<u8>> {
        let Some(class) = Spans::<P>::of(layout) else { return self.allocate_large(layout).map(|(ptr, _)| ptr) };
        match self.cache.pop(class) {
            Some(block) => Some(open::<P>(block)),
            None => self.allocate_missed(class),
        }
    }

    /// # Safety
    /// As for [`deallocate`](Self::deallocate).
    #[inline(never)]
    unsafe fn deallocate_uncommon(&self, ptr: NonNull<u8>, layout: Layout) {
        match Spans::<P>::of(layout) {
            // SAFETY: a block of this class, given up by the caller.
            Some(class) => self.take_back(class, unsafe { Block::from_ptr(ptr) }),
            None => self.free_large(ptr),
        }
    }

    /// The slow path of an allocation.
    #[cold]
    fn refill(&self, class: SizeClass) -> Option<(Block, Contents)> {
        // The miss may have been an interrupted section, not an empty list.
        if let Some(block) = self.cache.pop_again(class) {
            return Some((block, Contents::Unknown));
        }
        self.prepare();
        let got = self.with_reserves(|| self.cache.refill(class, &self.spans));
        let block = match got {
            Ok(block) => Some(block),
            Err(Shortage::Exhausted) => None,
            Err(Shortage::Reentered) => self.spans.back.rescue_object(class),
        };
        self.after_slow_path();
        block
    }

    /// The slow path of a free.
    #[cold]
    #[inline(never)]
    fn overflow(&self, class: SizeClass, block: Block) {
        let Err(block) = self.cache.push_again(class, block) else { return };
        self.prepare();
        self.cache.overflow(class, block, &self.spans);
        self.after_slow_path();
    }

    #[cold]
    #[inline(never)]
    fn allocate_large(&self, layout: Layout) -> Option<(NonNull<u8>, Stale)> {
        let back = &self.spans.back;
        let got = self.with_reserves(|| back.take_large(layout.size(), layout.align()));
        let block = match got {
            Ok(block) => Some(block),
            Err(Shortage::Exhausted) => None,
            Err(Shortage::Reentered) => back.rescue(layout.size(), layout.align()),
        };
        self.after_slow_path();
        block
    }

    fn allocate_large_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (ptr, stale) = self.allocate_large(layout)?;
        // Of a long block perhaps little is ever touched: fresh pages come zeroed, and cost nothing until then.
        if layout.size() >= PURGED_FROM
            && matches!(stale, Stale::Whole(Contents::Unknown))
            && self.spans.back.purge_block(ptr)
        {
            return Some(ptr);
        }
        for range in stale.ranges(layout.size()) {
            // SAFETY: inside a fresh block of at least `layout.size()` bytes, ours until it is returned.
            unsafe { ptr.byte_add(range.start).write_bytes(0, range.len()) };
        }
        Some(ptr)
    }

    #[cold]
    #[inline(never)]
    fn free_large(&self, ptr: NonNull<u8>) {
        self.spans.back.give_large(ptr, self.large_at(ptr));
        self.after_slow_path();
    }

    #[cold]
    #[inline(never)]
    fn resize_large(&self, ptr: NonNull<u8>, new: Layout) -> Option<NonNull<u8>> {
        self.resize_span(self.large_at(ptr), new)
    }

    /// The large block at `ptr`; stops the program where there is none.
    fn large_at(&self, ptr: NonNull<u8>) -> SpanRef {
        match self.spans.back.find(ptr) {
            Ok(Found::Large(span)) => span,
            Ok(Found::Object(..)) => Back::<P>::stop(ptr, FaultKind::WrongSize),
            Err(kind) => Back::<P>::stop(ptr, kind),
        }
    }

    fn resize_span(&self, span: SpanRef, new: Layout) -> Option<NonNull<u8>> {
        let resized = self.spans.back.resize_large(span, new.size(), new.align());
        self.after_slow_path();
        resized
    }

    /// Tries once more, with empty caches and nothing idle, where the source has no more.
    fn with_reserves<T>(&self, take: impl Fn() -> Result<T, Shortage>) -> Result<T, Shortage> {
        match take() {
            Err(Shortage::Exhausted) => {
                self.empty_caches();
                if let Some(mut pages) = self.spans.back.pages() {
                    pages.release_idle(&self.spans.back.ground);
                }
                take()
            }
            done => done,
        }
    }

    fn empty_caches(&self) {
        self.cache.drain(&self.spans);
        self.spans.clear_shelves();
    }

    fn prepare(&self) {
        if P::ready() {
            // Where nothing can be set up, the lists go on missing.
            let _ = self.cache.lists.prepare(&self.spans.back);
        }
    }

    /// Empties the caches where that is wished for, and frees what interrupts have queued while this context was inside a
    /// lock.
    #[inline]
    pub(crate) fn after_slow_path(&self) {
        if self.spans.back.ground.drain.is_made() || !self.spans.back.queue.is_empty() {
            self.make_up();
        }
    }

    /// Does what was put off, unless this context is an interrupt that came upon a lock: all it could do is queue the same
    /// blocks again, each time more of them. Whoever is inside comes here next.
    #[cold]
    fn make_up(&self) {
        if !self.spans.may_wait() {
            return;
        }
        if self.spans.back.ground.drain.take() {
            self.empty_caches();
        }
        for (block, _) in self.spans.back.queue.take_all() {
            match self.spans.back.find(block.as_ptr()) {
                Ok(Found::Object(class, _)) => {
                    let mut chain = Chain::EMPTY;
                    chain.push(block);
                    self.spans.give(class, chain);
                }
                Ok(Found::Large(span)) => self.spans.back.give_large(block.into_ptr(), span),
                Err(kind) => Back::<P>::stop(block.as_ptr(), kind),
            }
        }
    }
}

/// Opens the seal of a block that is handed out.
#[inline(always)]
fn open<P: Platform>(block: Block) -> NonNull<u8> {
    P::Seal::open(&block);
    block.into_ptr()
}

impl<P: Platform> Drop for Heap<P> {
    fn drop(&mut self) {
        let (pages, ground) = self.spans.back.pages_mut();
        // SAFETY: nobody else has the heap, and its blocks are not used any more, as for any allocator that is dropped.
        unsafe { pages.unmap_all(ground) };
    }
}

impl<P: Platform> core::fmt::Debug for Heap<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let stats = self.stats();
        write!(f, "Heap({} bytes live of {} held)", stats.live_bytes, stats.held_bytes)
    }
}
