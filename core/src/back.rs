//! The back end as its callers see it: the page heap behind its lock, the ground it stands on, and the two ways out for an
//! interrupt that comes upon that lock (rescued blocks, queued frees).

use crate::chain::Block;
use crate::fault::{Fault, FaultKind};
use crate::ground::Ground;
use crate::lock::{Guard, Guarded};
use crate::page_heap::{LARGEST_RUN, PageHeap, Stale};
use crate::page_map::PageMap;
use crate::platform::{Contents, Place, Platform, Purged, Shortage, Tables};
use crate::queue::FreeQueue;
use crate::rescue::Rescued;
use crate::size_class::SizeClass;
use crate::span::{Kind, SpanRef};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::units::{PAGE_SIZE, Pages};
use core::ptr::NonNull;

/// Page heap, ground, rescued blocks and queued frees of one heap.
pub(crate) struct Back<P: Platform> {
    pages: Guarded<P::Lock, PageHeap>,
    pub(crate) ground: Ground<P>,
    rescued: Rescued,
    /// Contexts that are about to fork.
    pub(crate) frozen: AtomicUsize,
    pub(crate) queue: FreeQueue,
    pub(crate) rescues: AtomicUsize,
    /// Of those for a class, the ones whose mapping is still there: live or cached.
    pub(crate) rescued_out: [AtomicUsize; SizeClass::INDEXES],
    pub(crate) queued: AtomicUsize,
    pub(crate) large_taken: AtomicUsize,
    pub(crate) large_given: AtomicUsize,
}

/// What lies at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// An object of a class span.
    Object(SizeClass, SpanRef),
    /// A large block.
    Large(SpanRef),
}

impl<P: Platform> Back<P> {
    pub(crate) const fn new(source: P::Source) -> Self {
        Self {
            pages: Guarded::new(PageHeap::new(P::META_BLOCK)),
            ground: Ground::new(source),
            rescued: Rescued::EMPTY,
            frozen: AtomicUsize::new(0),
            queue: FreeQueue::EMPTY,
            rescues: AtomicUsize::new(0),
            rescued_out: [const { AtomicUsize::new(0) }; SizeClass::INDEXES],
            queued: AtomicUsize::new(0),
            large_taken: AtomicUsize::new(0),
            large_given: AtomicUsize::new(0),
        }
    }

    /// Enters the page heap; `None` where this context may not (`L2`, or it is inside already).
    pub(crate) fn pages(&self) -> Option<Guard<'_, P::Lock, PageHeap>> {
        let mut pages = self.pages.enter_while(|| !self.is_frozen())?;
        adopt(&self.rescued, &mut pages);
        Some(pages)
    }

    /// Whether this context is not inside the page heap, and nobody forks: half of what `L1` and `L2` ask.
    pub(crate) fn may_wait(&self) -> bool {
        !self.pages.is_mine() && !self.is_frozen()
    }

    fn is_frozen(&self) -> bool {
        // Relaxed: seen late, it costs whoever waits another short wait.
        self.frozen.load(Relaxed) > 0
    }

    pub(crate) fn lock(&self) -> &P::Lock {
        self.pages.lock()
    }

    pub(crate) fn pages_mut(&mut self) -> (&mut PageHeap, &Ground<P>) {
        let pages = self.pages.get_mut();
        adopt(&self.rescued, pages);
        (pages, &self.ground)
    }

    /// What starts at `ptr`, by one look-up in the page map.
    #[inline(always)]
    pub(crate) fn find(&self, ptr: NonNull<u8>) -> Result<Found, FaultKind> {
        let entry = self.ground.map.get(ptr.addr().get());
        let span = entry.span().ok_or(FaultKind::Foreign)?;
        let offset = ptr.addr().get().wrapping_sub(span.start().addr().get());
        match entry.class() {
            Some(class) if class.object_at(offset).is_some() => Ok(Found::Object(class, span)),
            None if offset == 0 => Ok(Found::Large(span)),
            _ => Err(FaultKind::Interior),
        }
    }

    /// Stops the program over `ptr`.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop(ptr: NonNull<u8>, kind: FaultKind) -> ! {
        P::stop(Fault { pointer: ptr.addr().get(), kind })
    }

    /// A fresh span of `class`.
    pub(crate) fn take_span(&self, class: SizeClass) -> Result<SpanRef, Shortage> {
        let mut pages = self.pages().ok_or(Shortage::Reentered)?;
        let taken = pages.take(&self.ground, Kind::Objects(class), class.pages(), PAGE_SIZE);
        taken.map(|(span, _)| span).ok_or(Shortage::Exhausted)
    }

    /// A large block.
    pub(crate) fn take_large(&self, bytes: usize, align: usize) -> Result<(NonNull<u8>, Stale), Shortage> {
        let pages = Pages::holding(bytes.max(1)).ok_or(Shortage::Exhausted)?;
        let mut heap = self.pages().ok_or(Shortage::Reentered)?;
        let slack = align.div_ceil(PAGE_SIZE).saturating_sub(1);
        let taken = match pages.0.checked_add(slack).is_some_and(|most| most <= LARGEST_RUN.0) {
            true => heap.take(&self.ground, Kind::Large, pages, align),
            false => heap.take_huge(&self.ground, pages, align),
        };
        let (span, stale) = taken.ok_or(Shortage::Exhausted)?;
        // Relaxed, here and below: a figure.
        self.large_taken.fetch_add(1, Relaxed);
        Ok((span.start(), stale))
    }

    /// Takes the large block at `ptr` back, or queues it.
    pub(crate) fn give_large(&self, ptr: NonNull<u8>, span: SpanRef) {
        let Some(mut pages) = self.pages() else {
            // SAFETY: the block is being freed: it is nobody's, longer than a word, aligned to a page.
            return self.queue(unsafe { Block::from_ptr(ptr) });
        };
        // `span` was found without the lock: a second free may have come in between, and its descriptor be another's by now.
        if span.start() != ptr {
            Self::stop(ptr, FaultKind::DoubleFree);
        }
        match span.kind.get() {
            Kind::Rescued(Some(class)) => {
                self.rescued_out[class.index()].fetch_sub(1, Relaxed);
                return pages.give_huge(&self.ground, span);
            }
            Kind::Huge | Kind::Rescued(None) => pages.give_huge(&self.ground, span),
            Kind::Large => pages.give(&self.ground, span, span.run().pages),
            Kind::Objects(_) | Kind::Unused => Self::stop(ptr, FaultKind::DoubleFree),
        }
        self.large_given.fetch_add(1, Relaxed);
    }

    /// Makes a large block `bytes` long without copying: where it stands, or moved by the source if `align` allows.
    pub(crate) fn resize_large(&self, span: SpanRef, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let (run, pages) = (span.run(), Pages::holding(bytes.max(1))?);
        let mut heap = self.pages()?;
        match span.kind.get() {
            Kind::Large if pages <= LARGEST_RUN => heap.resize(&self.ground, span, pages).ok()?,
            // A mapping may be a quarter longer than its block, as one taken from the idle ones is.
            Kind::Huge if pages <= run.pages && run.pages.0 <= pages.0 + pages.0 / 4 => {}
            Kind::Huge if pages > LARGEST_RUN => {
                let place = if align <= PAGE_SIZE { Place::Move } else { Place::Stay };
                heap.remap_huge(&self.ground, span, pages, place).ok()?;
            }
            _ => return None,
        }
        Some(span.start())
    }

    /// Gives the memory of the huge block at `ptr` back, so that it reads zero; `false`: its contents are unknown still.
    pub(crate) fn purge_block(&self, ptr: NonNull<u8>) -> bool {
        let Ok(Found::Large(span)) = self.find(ptr) else { return false };
        // SAFETY: the block was just handed out to the caller, who writes nothing yet; it begins with its run's first page.
        span.run().start == ptr && unsafe { self.ground.source.purge(span.run()) } == Purged::Zeroed
    }

    /// A large block for who may not wait for a lock.
    #[cold]
    pub(crate) fn rescue(&self, bytes: usize, align: usize) -> Option<(NonNull<u8>, Stale)> {
        let (start, contents) = self.rescued.make(&self.ground, bytes, align, None)?;
        // Relaxed, here and below: a figure.
        self.rescues.fetch_add(1, Relaxed);
        self.large_taken.fetch_add(1, Relaxed);
        Some((start, Stale::Whole(contents)))
    }

    /// A block as long and as aligned as an object of `class`, for the same.
    #[cold]
    pub(crate) fn rescue_object(&self, class: SizeClass) -> Option<(Block, Contents)> {
        let (start, contents) = self.rescued.make(&self.ground, class.size(), PAGE_SIZE, Some(class))?;
        self.rescues.fetch_add(1, Relaxed);
        self.rescued_out[class.index()].fetch_add(1, Relaxed);
        // SAFETY: a fresh block, at least as long and as aligned as one of the class, and nobody's.
        Some((unsafe { Block::from_ptr(start) }, contents))
    }

    /// Leaves a block to the interrupted holder.
    #[cold]
    pub(crate) fn queue(&self, block: Block) {
        self.queue.push(block, 0);
        // Relaxed: a figure.
        self.queued.fetch_add(1, Relaxed);
    }
}

/// Files what was made without the page heap's lock.
fn adopt(rescued: &Rescued, pages: &mut PageHeap) {
    rescued.take_all().for_each(|span| pages.admit_huge(span));
    // SAFETY: the stack's nodes are initialised, in no other list, and ours.
    rescued.take_tables().for_each(|node| unsafe { pages.meta.adopt(node) });
}

impl<P: Platform> Tables for Back<P> {
    fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.pages()?.meta.table(&self.ground.source, bytes)
    }
}
