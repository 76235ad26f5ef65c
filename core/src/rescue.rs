//! Rescue: a block for a context that may not wait for the lock it needs (`L1`, `L2`): an interrupt whose own context is
//! inside, or anybody while another context forks.
//!
//! Such a request may touch nothing that a lock guards. It gets a mapping of its own whose first page holds the descriptor;
//! the page map is set without the lock (its entries and leaves are atomic; a leaf that is missing gets a mapping of its own,
//! too), and both wait on push and take-all stacks until the next holder of the page heap's lock adopts them.
//! Invariants: `R1` a rescued span is on the stack or in the page heap's list of huge blocks; `R2` a table made here is on the
//! stack or in the pool's list of mappings.

use crate::chain::fits;
use crate::ground::{Counted, Ground};
use crate::list::Links;
use crate::meta::MapNode;
use crate::page_map::{Entry, PageMap};
use crate::platform::{Contents, PageSource, Platform, Tables};
use crate::size_class::SizeClass;
use crate::span::{Kind, Span, SpanRef};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::units::{PAGE_SIZE, PageRun, Pages};
use core::ptr::{NonNull, null_mut};

/// The stacks of blocks and tables that wait for adoption.
pub(crate) struct Rescued {
    spans: Stack<Span>,
    tables: Stack<MapNode>,
}

/// Makes tables out of mappings of their own, for who is not inside the page heap.
struct StrayTables<'a, S> {
    rescued: &'a Rescued,
    source: &'a Counted<S>,
}

impl<S: PageSource> Tables for StrayTables<'_, S> {
    fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
        // A page in front holds the node, so that the table is aligned to a page.
        let pages = Pages(Pages::holding(bytes)?.0 + 1);
        let mapped = self.source.map_sparse(pages)?;
        let run = PageRun { start: mapped.start, pages };
        let table = run.part(Pages(1), Pages(1)).start;
        if mapped.contents == Contents::Unknown {
            // SAFETY: the run was just mapped, writable and ours.
            unsafe { table.write_bytes(0, Pages(pages.0 - 1).bytes()) };
        }
        let node = run.start.cast::<MapNode>();
        // SAFETY: the first page of the run is longer than a node, aligned, and ours; it stays as long as the heap.
        unsafe {
            node.write(MapNode { run, next: None });
            self.rescued.tables.push(node);
        }
        Some(table)
    }
}

impl Rescued {
    pub(crate) const EMPTY: Self = Self { spans: Stack::EMPTY, tables: Stack::EMPTY };

    /// A block of `bytes` at a multiple of `align`, for a request of `class`, outside everything a lock guards.
    pub(crate) fn make<P: Platform>(
        &self,
        ground: &Ground<P>,
        bytes: usize,
        align: usize,
        class: Option<SizeClass>,
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
        span.describe(Kind::Rescued(class), run, start);
        let tables = StrayTables { rescued: self, source: &ground.source };
        let named = fits(run.start.addr().get(), run.end())
            && ground.map.reserve(start.addr().get(), Pages(1), &tables)
            && ground.map.set(start.addr().get(), Entry::new(span));
        if !named {
            // SAFETY: just mapped, and nobody has it. A refusal leaves the run to the source.
            let _ = unsafe { ground.source.unmap(run) };
            return None;
        }
        // SAFETY: the descriptor is fresh, and its mapping stays until the block is freed, which adopts it first.
        unsafe { self.spans.push(span.as_ptr()) };
        Some((start, mapped.contents))
    }

    /// Takes every block that waits; the caller adopts each.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = SpanRef> + use<> {
        // SAFETY: what was on the stack is a descriptor that stays until its block is freed, which adopts it first.
        self.spans.take_all().map(|span| unsafe { SpanRef::new(span) })
    }

    /// Takes every table that waits; the caller adopts each, once, before it asks for the next.
    pub(crate) fn take_tables(&self) -> impl Iterator<Item = NonNull<MapNode>> + use<> {
        self.tables.take_all()
    }
}

/// Push and take-all, so there is no ABA.
struct Stack<T> {
    newest: AtomicPtr<T>,
}

/// What links itself into a stack.
trait Stacked {
    /// The next older member, or what was last set.
    fn next(&self) -> Option<NonNull<Self>>;
    fn set_next(&mut self, next: Option<NonNull<Self>>);
}

impl Stacked for Span {
    fn next(&self) -> Option<NonNull<Self>> {
        self.links.get().next.map(SpanRef::as_ptr)
    }

    fn set_next(&mut self, next: Option<NonNull<Self>>) {
        // SAFETY: what is on the stack is a descriptor that stays until its block is freed, which adopts it first.
        self.links.set(Links { prev: None, next: next.map(|span| unsafe { SpanRef::new(span) }) });
    }
}

impl Stacked for MapNode {
    fn next(&self) -> Option<NonNull<Self>> {
        self.next
    }

    fn set_next(&mut self, next: Option<NonNull<Self>>) {
        self.next = next;
    }
}

impl<T: Stacked> Stack<T> {
    const EMPTY: Self = Self { newest: AtomicPtr::new(null_mut()) };

    /// # Safety
    /// The member is initialised, nobody else's, and stays until it was taken.
    unsafe fn push(&self, mut member: NonNull<T>) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the member is this context's until the exchange.
            unsafe { member.as_mut() }.set_next(NonNull::new(newest));
            // Release pairs with the Acquire in `take_all`: the member is seen with its address.
            match self.newest.compare_exchange_weak(newest, member.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Takes every member; each may be changed before the next is asked for.
    fn take_all(&self) -> impl Iterator<Item = NonNull<T>> + use<T> {
        let mut next = match self.newest.load(Ordering::Relaxed).is_null() {
            true => None,
            // Acquire pairs with the Release in `push`.
            false => NonNull::new(self.newest.swap(null_mut(), Ordering::Acquire)),
        };
        core::iter::from_fn(move || {
            let member = next?;
            // SAFETY: the swap made this context the owner of every member from the newest on.
            next = unsafe { member.as_ref() }.next();
            Some(member)
        })
    }
}
