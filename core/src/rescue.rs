//! Rescue: a block for an interrupt that came upon a lock its own context is inside.
//!
//! Such a request may touch nothing that the lock guards. It gets a mapping of its own whose first page holds the descriptor;
//! the page map is set without the lock (its entries are atomic; where no leaf is reserved the request is refused), and the
//! block waits on a push and take-all stack until the next holder of the page heap's lock adopts it.
//! Invariant: `R1` a rescued span is on the stack or in the page heap's list of huge blocks.

use crate::chain::fits;
use crate::ground::Ground;
use crate::list::{Linked, Links};
use crate::page_map::{Entry, PageMap};
use crate::platform::{Contents, Platform};
use crate::span::{InList, Kind, Span, SpanRef};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::units::{PAGE_SIZE, PageRun, Pages};
use core::ptr::{NonNull, null_mut};

/// The stack of blocks that wait for adoption.
#[derive(Debug)]
pub(crate) struct Rescued {
    newest: AtomicPtr<Span>,
}

impl Rescued {
    pub(crate) const EMPTY: Self = Self { newest: AtomicPtr::new(null_mut()) };

    /// A block of `bytes` at a multiple of `align`, outside everything a lock guards.
    pub(crate) fn make<P: Platform>(
        &self,
        ground: &Ground<P>,
        bytes: usize,
        align: usize,
    ) -> Option<(NonNull<u8>, Contents)> {
        let lead = Pages(align.div_ceil(PAGE_SIZE).max(1));
        let pages = Pages(Pages::holding(bytes.max(1))?.0.checked_add(lead.0)?);
        let mapped = ground.source.map(pages, lead.bytes())?;
        let run = PageRun { start: mapped.start, pages };
        let start = run.part(lead, Pages(1)).start;
        let span = mapped.start.cast::<Span>();
        // SAFETY: the first page of the fresh mapping is ours, larger than a descriptor and aligned to a page.
        let span = unsafe {
            span.write(Span::unused());
            SpanRef::new(span)
        };
        span.describe(Kind::Rescued, run, start);
        if !fits(run.end()) || !ground.map.set(start.addr().get(), Entry::new(span)) {
            // SAFETY: just mapped, and nobody has it. A refusal leaves the run to the source.
            let _ = unsafe { ground.source.unmap(run) };
            return None;
        }
        self.push(span);
        Some((start, mapped.contents))
    }

    fn push(&self, span: SpanRef) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: what is on the stack is a descriptor that stays until its block is freed, which adopts it first.
            let next = NonNull::new(newest).map(|span| unsafe { SpanRef::new(span) });
            InList.set_links(span, Links { prev: None, next });
            // Release pairs with the Acquire in `take_all`: the descriptor is seen with its address.
            match self.newest.compare_exchange_weak(newest, span.as_ptr().as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Takes every block that waits; the caller adopts each.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = SpanRef> + use<> {
        let mut next = match self.newest.load(Ordering::Relaxed).is_null() {
            true => None,
            // Acquire pairs with the Release in `push`.
            false => NonNull::new(self.newest.swap(null_mut(), Ordering::Acquire)),
        }
        // SAFETY: as in `push`.
        .map(|span| unsafe { SpanRef::new(span) });
        core::iter::from_fn(move || {
            let span = next?;
            next = InList.links(span).next;
            Some(span)
        })
    }
}
