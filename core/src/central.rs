//! Central: the middle end. One for each size class: a shelf of whole chains, and behind a lock the spans that have objects.
//!
//! The core cache takes and gives chains here. What fits on the shelf passes without a lock; a chain that goes deeper is
//! looked up block by block, owner by owner, before the lock is taken. Spans come from the page heap when no partial one is
//! left and go back as soon as they are empty (the page heap keeps their pages warm).
//!
//! Invariants: `S5` a span of the class is in `partial` exactly while it has an object to give; `E1` `out` is the number of
//! the class's objects that are outside their spans: live, cached, on the shelf or queued; `E2` `shelved` is the bytes of the
//! blocks on all shelves, while nobody is at one.
#![forbid(unsafe_code)]

use crate::back::{Back, Found};
use crate::batch::Batch;
use crate::chain::{Block, Chain};
use crate::fault::FaultKind;
use crate::lock::Guarded;
use crate::partial::Partial;
use crate::platform::{Backend, Contents, Platform, Shortage, Taken};
use crate::shelf::{SLOTS, Shelf};
use crate::size_class::{MAX_BATCH, SizeClass};
use crate::span::SpanRef;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::note;
use crate::tide::Tide;
use core::alloc::Layout;

/// The middle end of one class.
#[repr(align(128))]
pub(crate) struct Central<P: Platform> {
    pub(crate) shelf: Shelf,
    pub(crate) partial: Guarded<P::Lock, Partial>,
    pub(crate) counts: Counts,
}

/// Figures of one class (all Relaxed: nothing hangs on them).
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) out: AtomicUsize,
    pub(crate) refills: AtomicUsize,
    pub(crate) drains: AtomicUsize,
    pub(crate) shelf_hits: AtomicUsize,
    pub(crate) spans_made: AtomicUsize,
    pub(crate) spans_returned: AtomicUsize,
    /// Empty spans that had to stay in the list, since somebody last looked for them.
    left_empty: AtomicUsize,
}

/// A span and how many of the next blocks are its own; no span for a block that was nobody's.
type Owner = (Option<SpanRef>, usize);

/// Bytes on all shelves together, at most.
const SHELVES: usize = 4 << 20;

impl<P: Platform> Central<P> {
    pub(crate) const fn new() -> Self {
        const ZERO: AtomicUsize = AtomicUsize::new(0);
        let counts = Counts {
            out: ZERO,
            refills: ZERO,
            drains: ZERO,
            shelf_hits: ZERO,
            spans_made: ZERO,
            spans_returned: ZERO,
            left_empty: ZERO,
        };
        Self { shelf: Shelf::EMPTY, partial: Guarded::new(Partial::EMPTY), counts }
    }

    /// Slots of the shelf in use: 128 KiB of blocks at most.
    fn slots(class: SizeClass) -> usize {
        (128 * 1024 / (class.batch() * class.size())).clamp(1, SLOTS)
    }

    /// Takes a chain off the shelf.
    fn unshelve(&self, spans: &Spans<P>, class: SizeClass) -> Option<Chain> {
        let chain = self.shelf.take()?;
        // Relaxed: a figure, and a bound that need not be exact.
        spans.shelved.fetch_sub(chain.len() * class.size(), Relaxed);
        Some(chain)
    }

    /// Shelves a chain of at most a batch, unless all shelves together hold enough.
    fn shelve(&self, spans: &Spans<P>, class: SizeClass, chain: Chain) -> Result<(), Chain> {
        let bytes = chain.len() * class.size();
        self.shelf.put(chain, Self::slots(class))?;
        spans.shelved.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Whether the shelf may take `n` blocks more, at some moment.
    fn has_shelf(&self, spans: &Spans<P>, class: SizeClass, n: usize) -> bool {
        spans.may_shelve(n * class.size()) && self.shelf.has_room(Self::slots(class))
    }

    fn take(&self, spans: &Spans<P>, class: SizeClass, n: usize) -> Result<Taken, Shortage> {
        note(&self.counts.refills);
        if let Some(chain) = self.unshelve(spans, class) {
            note(&self.counts.shelf_hits);
            return Ok(Taken { chain, first: Contents::Unknown });
        }
        let mut partial = self.partial.enter_while(|| spans.may_wait()).ok_or(Shortage::Reentered)?;
        let mut chain = Chain::EMPTY;
        let mut first = Contents::Unknown;
        while chain.len() < n {
            let span = match partial.fullest() {
                Some(span) => span,
                None if !chain.is_empty() => break,
                None => self.add_span(&spans.back, class, &mut partial)?,
            };
            // The block in front is the one that is handed out.
            first = span.take(class, n - chain.len(), &mut chain);
            if span.has_object(class) {
                partial.update(class, span);
                break;
            }
            partial.remove(span);
        }
        // Inside the lock, which guards the figure.
        self.counts.out.store(self.counts.out.load(Relaxed).wrapping_add(chain.len()), Relaxed);
        spans.tide.rise(chain.len() * class.size());
        Ok(Taken { chain, first })
    }

    fn add_span(&self, back: &Back<P>, class: SizeClass, partial: &mut Partial) -> Result<SpanRef, Shortage> {
        let span = back.take_span(class)?;
        partial.insert(class, span);
        self.counts.spans_made.fetch_add(1, Relaxed);
        Ok(span)
    }

    /// Shelves a batch, or takes it apart.
    fn give(&self, spans: &Spans<P>, class: SizeClass, batch: &mut Batch) {
        note(&self.counts.drains);
        if self.has_shelf(spans, class, batch.len()) {
            let Err(mut chain) = self.shelve(spans, class, batch.link()) else { return };
            // Somebody else was quicker.
            batch.fill(&mut chain, MAX_BATCH);
        }
        self.give_to_spans(spans, class, batch);
    }

    /// Shelves a chain as it is, if it is no more than a batch; or batch by batch, what has no place there apart.
    fn give_chain(&self, spans: &Spans<P>, class: SizeClass, mut chain: Chain) {
        if chain.len() <= class.batch() && self.has_shelf(spans, class, chain.len()) {
            match self.shelve(spans, class, chain) {
                Ok(()) => return,
                Err(back) => chain = back,
            }
        }
        let mut batch = Batch::EMPTY;
        while !chain.is_empty() {
            batch.fill(&mut chain, class.batch());
            self.give(spans, class, &mut batch);
        }
    }

    fn give_to_spans(&self, spans: &Spans<P>, class: SizeClass, batch: &mut Batch) {
        let back = &spans.back;
        let mut owners = [(None, 0); MAX_BATCH];
        self.find_owners(back, class, batch.places(), &mut owners);
        let Some(mut partial) = self.partial.enter_while(|| spans.may_wait()) else {
            return batch.blocks().for_each(|block| back.queue(block));
        };
        let (mut given, mut places) = (0, batch.places());
        for &(span, n) in owners.iter().take_while(|(_, n)| *n > 0) {
            let (objects, rest) = places.split_at_mut(n);
            if let Some(span) = span {
                self.give_one_span(back, class, &mut partial, span, objects);
                given += n;
            }
            places = rest;
        }
        // Inside the lock: a fork finds figure and spans at one (E1).
        self.counts.out.store(self.counts.out.load(Relaxed).wrapping_sub(given), Relaxed);
        drop(partial);
        if spans.tide.fall(given * class.size(), P::now_ms) {
            back.ground.drain.make();
        }
    }

    /// Finds the spans of blocks of this class, each with the number of blocks in turn that are its own.
    fn find_owners(
        &self,
        back: &Back<P>,
        class: SizeClass,
        mut blocks: &mut [Option<Block>],
        owners: &mut [Owner; MAX_BATCH],
    ) {
        for owner in owners {
            let Some((block, rest)) = blocks.split_first_mut() else { break };
            let span = self.look_up(back, class, block);
            let run = span.map(|span| span.run());
            let is_its =
                |block: &&Option<Block>| run.zip(block.as_ref()).is_some_and(|(run, block)| run.holds(block.addr()));
            let more = rest.iter().take_while(is_its).count();
            *owner = (span, 1 + more);
            blocks = &mut rest[more..];
        }
    }

    /// The span of a block of this class; a block that is none goes its own way.
    fn look_up(&self, back: &Back<P>, class: SizeClass, place: &mut Option<Block>) -> Option<SpanRef> {
        let block = place.as_ref()?;
        match back.find(block.as_ptr()) {
            Ok(Found::Object(found, span)) if found == class => Some(span),
            // Made for this class by an interrupt: it is a mapping of its own.
            Ok(Found::Large(span)) if span.is_rescued() => {
                let rescued = place.take()?;
                back.give_large(rescued.into_ptr(), span);
                None
            }
            Ok(_) => Back::<P>::stop(block.as_ptr(), FaultKind::WrongSize),
            Err(kind) => Back::<P>::stop(block.as_ptr(), kind),
        }
    }

    /// Gives objects back to their span.
    fn give_one_span(
        &self,
        back: &Back<P>,
        class: SizeClass,
        partial: &mut Partial,
        span: SpanRef,
        objects: &mut [Option<Block>],
    ) {
        let was_full = !span.has_object(class);
        if let Err((block, kind)) = span.give(class, objects) {
            Back::<P>::stop(block.as_ptr(), kind);
        }
        match was_full {
            true => partial.insert(class, span),
            false => partial.update(class, span),
        }
        if span.out() == 0 {
            self.return_span(back, class, partial, span);
        }
    }

    /// Gives an empty span back; who may not wait for the page heap (an interrupt that came upon it) leaves it in the list.
    fn return_span(&self, back: &Back<P>, class: SizeClass, partial: &mut Partial, span: SpanRef) {
        let Some(mut pages) = back.pages() else {
            self.counts.left_empty.fetch_add(1, Relaxed);
            return;
        };
        partial.remove(span);
        pages.give(&back.ground, span, span.touched(class));
        self.counts.spans_returned.fetch_add(1, Relaxed);
    }

    /// Gives back the empty spans that were left in the list and never used again.
    fn sweep(&self, spans: &Spans<P>, class: SizeClass) {
        if self.counts.left_empty.load(Relaxed) == 0 {
            return;
        }
        let Some(mut partial) = self.partial.enter_while(|| spans.may_wait()) else { return };
        self.counts.left_empty.store(0, Relaxed);
        for span in partial.iter().filter(|span| span.out() == 0) {
            self.return_span(&spans.back, class, &mut partial, span);
        }
    }
}

/// Page heap and central lists: the back that the core cache stands on.
pub(crate) struct Spans<P: Platform> {
    pub(crate) centrals: [Central<P>; SizeClass::INDEXES],
    pub(crate) back: Back<P>,
    tide: Tide,
    /// Bytes on the shelves (`E2`). A chain is counted after it was put there, so it may wrap for a moment.
    pub(crate) shelved: AtomicUsize,
}

impl<P: Platform> Spans<P> {
    pub(crate) const fn new(source: P::Source) -> Self {
        Self {
            centrals: [const { Central::new() }; SizeClass::INDEXES],
            back: Back::new(source),
            tide: Tide::OUT,
            shelved: AtomicUsize::new(0),
        }
    }

    pub(crate) fn central(&self, class: SizeClass) -> &Central<P> {
        &self.centrals[class.index()]
    }

    /// Whether the shelves, which hold blocks that keep their spans, may hold so many bytes more.
    fn may_shelve(&self, bytes: usize) -> bool {
        let shelved = self.shelved.load(Relaxed).cast_signed().max(0).cast_unsigned();
        shelved + bytes <= (self.back.ground.held() / 128).clamp(64 * 1024, SHELVES)
    }

    /// Whether this context may wait for a central list: it is inside none, nor inside the page heap, and nobody forks
    /// (`L1`, `L2`).
    pub(crate) fn may_wait(&self) -> bool {
        self.back.may_wait() && !self.centrals.iter().any(|central| central.partial.is_mine())
    }

    /// Empties every shelf into the spans, and gives back the empty spans that had to be left.
    pub(crate) fn clear_shelves(&self) {
        for class in SizeClass::all() {
            let central = self.central(class);
            while let Some(mut chain) = central.unshelve(self, class) {
                let mut batch = Batch::EMPTY;
                batch.fill(&mut chain, MAX_BATCH);
                central.give_to_spans(self, class, &mut batch);
            }
            central.sweep(self, class);
        }
    }
}

impl<P: Platform> Backend for Spans<P> {
    type Class = SizeClass;

    #[inline(always)]
    fn of(layout: Layout) -> Option<SizeClass> {
        SizeClass::of(layout.size(), layout.align())
    }

    fn budget(&self, most: usize) -> usize {
        most.min((self.back.ground.held() / 32).max(768 * 1024))
    }

    fn take(&self, class: SizeClass, n: usize) -> Result<Taken, Shortage> {
        self.central(class).take(self, class, n)
    }

    fn give(&self, class: SizeClass, chain: Chain) {
        self.central(class).give_chain(self, class, chain);
    }

    fn give_batch(&self, class: SizeClass, batch: &mut Batch) {
        self.central(class).give(self, class, batch);
    }
}
