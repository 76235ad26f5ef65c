//! Span: the descriptor of a page run that is in use, either carved into objects of one class or one large block.
//!
//! Descriptors lie outside the memory they describe, in the [`meta`](crate::meta) pool, and once made stay descriptors for as
//! long as the heap lives (type-stable). A class span is guarded by its class's central lock, every other by the page
//! heap's; `start` and the kind do not change while a block of the span is live, so `free` reads them without a lock.
//!
//! ```text
//!   object      0     1     2     3     4     5     6     7      objects − 1
//!             ┌─────┬─────┬─────┬─────┬─────┬─────┬─────┬──── ─ ─ ─┬──────┐
//!             │ out │free │ out │free │ out │never handed out            │ tail
//!             └─────┴─────┴─────┴─────┴─────┴─────┴─────┴──── ─ ─ ─┴──────┘
//!   free bits    0     1     0     1     0    0 … 0              ▲ pages from here on were not touched
//!                                             └ fresh = 5
//! ```
//!
//! Invariants: `S1` an object starts at a multiple of the class's size; `S2` a block is freed once: an object is out, or its
//! bit is set, or it lies at `fresh` or above; `S3` `out` + set bits = `fresh`; `S4` no bit is set at `fresh` or above; `S5` a
//! span lies in its class's partial list exactly while it has an object to give.

use crate::chain::{Block, Chain};
use crate::chunk::ChunkRef;
use crate::fault::FaultKind;
use crate::list::{Links, linked_by};
use crate::platform::Contents;
use crate::size_class::{MAX_BATCH, MAX_OBJECTS, SizeClass};
use crate::sync::Cell;
use crate::units::{PAGE_SIZE, PageRun, Pages};
use core::ops::{Deref, Range};
use core::ptr::NonNull;

const WORDS: usize = MAX_OBJECTS / 64;

/// What a span holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nothing: the descriptor is in the pool.
    Unused,
    /// Objects of a class.
    Objects(SizeClass),
    /// One block, a run of a chunk.
    Large,
    /// One block with a mapping of its own.
    Huge,
    /// One block with a mapping of its own, whose first page holds this very descriptor: made for a context that may not wait
    /// for a lock, outside the pool. With a class where the request was for one: then it is as long as one of its
    /// objects, may be cached as one, and counts as one.
    Rescued(Option<SizeClass>),
}

/// The descriptor. Its alignment leaves room for a class index in a pointer to it.
#[repr(C, align(256))]
pub struct Span {
    /// First byte of the first object, or of the large block.
    start: Cell<NonNull<u8>>,
    pub(crate) kind: Cell<Kind>,
    /// What is known of objects that were never handed out.
    pub(crate) contents: Cell<Contents>,
    /// The list of its class that it is in, see [`partial`](crate::partial).
    pub(crate) quarter: Cell<u8>,
    out: Cell<u16>,
    fresh: Cell<u16>,
    /// The whole run; for a rescued block, with the page before `start`.
    run: Cell<PageRun>,
    pub(crate) chunk: Cell<Option<ChunkRef>>,
    pub(crate) links: Cell<Links<SpanRef>>,
    free: [Cell<u64>; WORDS],
}

impl core::fmt::Debug for Span {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Span({:?} of {} pages at {:p})", self.kind.get(), self.run.get().pages.0, self.start.get())
    }
}

/// A descriptor that outlives every user: type-stable memory of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanRef(NonNull<Span>);

// SAFETY: a reference to a descriptor is used under the lock that guards the descriptor; what is read without it does not
// change while a block of the span is live.
unsafe impl Send for SpanRef {}

impl SpanRef {
    /// # Safety
    /// `span` points to an initialised descriptor that lives as long as the heap (or, rescued, as long as its block).
    pub(crate) unsafe fn new(span: NonNull<Span>) -> Self {
        Self(span)
    }

    pub(crate) fn as_ptr(self) -> NonNull<Span> {
        self.0
    }
}

impl Deref for SpanRef {
    type Target = Span;
    fn deref(&self) -> &Span {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }
}

/// The one list a span can be in: partial spans of a class, huge blocks, the pool's free descriptors.
pub(crate) struct InList;

linked_by!(InList, SpanRef, links);

impl Span {
    pub(crate) fn unused() -> Self {
        let nowhere = NonNull::dangling();
        Self {
            start: Cell::new(nowhere),
            kind: Cell::new(Kind::Unused),
            contents: Cell::new(Contents::Unknown),
            quarter: Cell::new(0),
            out: Cell::new(0),
            fresh: Cell::new(0),
            run: Cell::new(PageRun { start: nowhere, pages: Pages(0) }),
            chunk: Cell::new(None),
            links: Cell::new(Links::NONE),
            free: [const { Cell::new(0) }; WORDS],
        }
    }

    /// Makes the descriptor that of `run`, whose block or first object begins at `start`; no object is out.
    pub(crate) fn describe(&self, kind: Kind, run: PageRun, start: NonNull<u8>) {
        self.start.set(start);
        self.kind.set(kind);
        self.run.set(run);
        self.out.set(0);
        self.fresh.set(0);
        self.free.iter().for_each(|word| word.set(0));
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start.get()
    }

    pub(crate) fn run(&self) -> PageRun {
        self.run.get()
    }

    /// Notes that the block's run was resized, or moved as a whole.
    pub(crate) fn set_run(&self, run: PageRun) {
        self.start.set(run.start);
        self.run.set(run);
    }

    /// Bytes from the block's start to the end of its run.
    pub(crate) fn block_bytes(&self) -> usize {
        self.run.get().end() - self.start.get().addr().get()
    }

    /// The class, unless the span is one large block.
    pub(crate) fn class(&self) -> Option<SizeClass> {
        match self.kind.get() {
            Kind::Objects(class) => Some(class),
            _ => None,
        }
    }

    /// Whether the span is a block made for an interrupt.
    pub(crate) fn is_rescued(&self) -> bool {
        matches!(self.kind.get(), Kind::Rescued(_))
    }

    /// Whether the span is a block made for an interrupt that asked for a class.
    pub(crate) fn serves_class(&self) -> bool {
        matches!(self.kind.get(), Kind::Rescued(Some(_)))
    }

    /// Objects that are out.
    pub(crate) fn out(&self) -> usize {
        self.out.get().into()
    }

    /// Pages that an object was ever carved from.
    pub(crate) fn touched(&self, class: SizeClass) -> Pages {
        Pages((usize::from(self.fresh.get()) * class.size()).div_ceil(PAGE_SIZE).min(self.run.get().pages.0))
    }

    pub(crate) fn has_object(&self, class: SizeClass) -> bool {
        usize::from(self.out.get()) < class.objects()
    }

    /// Puts up to `n` objects in front of `chain` so that the lowest comes first, and says what is known of that one.
    ///
    /// Objects that were out before go first. Of those never handed out, only what lies on the page of the first of them or
    /// on the next is linked, and one at a time from a page up: a link touches its page.
    pub(crate) fn take(&self, class: SizeClass, n: usize, chain: &mut Chain) -> Contents {
        let mut taken = [0_u16; MAX_BATCH];
        let (mut count, wanted) = (0, n.min(MAX_BATCH));
        for (base, word) in self.free.iter().enumerate().filter(|(_, word)| word.get() != 0) {
            let mut bits = word.get();
            while bits != 0 && count < wanted {
                taken[count] = (base * 64) as u16 + bits.trailing_zeros() as u16;
                bits &= bits - 1;
                count += 1;
            }
            word.set(bits);
        }
        let contents = if count == 0 { self.contents.get() } else { Contents::Unknown };
        let fresh = self.fresh_to_link(class, wanted - count);
        for (place, object) in taken[count..].iter_mut().zip(fresh.clone()) {
            *place = object;
        }
        count += fresh.len();
        self.fresh.set(fresh.end);
        self.out.set(self.out.get() + count as u16);
        // A chain of its own, which lives in a register: links are written through pointers.
        let mut front = core::mem::replace(chain, Chain::EMPTY);
        in_turns(&taken[..count], (LINE / class.size()).max(1), |object| front.push(self.object(class, object)));
        *chain = front;
        contents
    }

    /// Up to `n` objects that were never handed out: those on the page of the first of them and on the next.
    fn fresh_to_link(&self, class: SizeClass, n: usize) -> Range<u16> {
        let (first, size) = (usize::from(self.fresh.get()), class.size());
        let near = if size < PAGE_SIZE { (first * size / PAGE_SIZE + 2) * PAGE_SIZE } else { (first + 1) * size };
        let end = near.div_ceil(size).min(class.objects()).min(first + n);
        first as u16..end as u16
    }

    fn object(&self, class: SizeClass, object: u16) -> Block {
        let start = self.start.get().as_ptr().wrapping_byte_add(usize::from(object) * class.size());
        let start = NonNull::new(start).unwrap_or(self.start.get());
        // SAFETY: the object lies in the span's run, is not out (S2) and was just counted as out: nobody else has it.
        unsafe { Block::from_ptr(start) }
    }

    /// Takes objects back, or says which one is wrong, and how; the span is unsound then, and the program to
    /// be stopped. Not inlined: the loop wants all
    /// registers.
    #[inline(never)]
    pub(crate) fn give(&self, class: SizeClass, blocks: &mut [Option<Block>]) -> Result<(), (Block, FaultKind)> {
        let (start, fresh) = (self.start.get().addr().get(), usize::from(self.fresh.get()));
        // Neighbours have their bits in one word, which is written when the next one is wanted.
        let (mut place, mut bits, mut given) = (0, self.free[0].get(), 0);
        for block in blocks.iter_mut().filter_map(Option::take) {
            let Some(object) = class.object_at(block.addr().wrapping_sub(start)) else {
                return Err((block, FaultKind::Interior));
            };
            if object / 64 != place {
                self.free[place].set(bits);
                (place, bits) = (object / 64, self.free[object / 64].get());
            }
            let bit = 1 << (object % 64);
            if object >= fresh || bits & bit != 0 {
                return Err((block, FaultKind::DoubleFree));
            }
            (bits, given) = (bits | bit, given + 1);
        }
        self.free[place].set(bits);
        self.out.set(self.out.get() - given);
        Ok(())
    }

    /// Whether the object that starts at `address` is in the span, not out; `None` where none starts there.
    pub(crate) fn is_free(&self, class: SizeClass, address: usize) -> Option<bool> {
        let object = class.object_at(address.wrapping_sub(self.start.get().addr().get()))?;
        Some(object >= self.fresh.get().into() || self.free[object / 64].get() >> (object % 64) & 1 == 1)
    }

    /// The first broken invariant of a class span, if one is.
    pub(crate) fn broken(&self, class: SizeClass) -> Option<&'static str> {
        let set: usize = self.free.iter().map(|word| word.get().count_ones() as usize).sum();
        let fresh = usize::from(self.fresh.get());
        let above = (fresh..MAX_OBJECTS).any(|object| self.free[object / 64].get() >> (object % 64) & 1 == 1);
        if self.out() + set != fresh || fresh > class.objects() {
            return Some("S3: objects out and free bits add up to the objects ever handed out");
        }
        above.then_some("S4: no free bit is set above the objects ever handed out")
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Goes through `objects`, last first, in such turns that neighbours of one line are apart: the first comes last, before it the
/// one at `stride`, and so on. A thread that takes a block, moves to another core and frees it there leaves the next block to its old core:
/// were that in the same line, the two cores would write to it in turn from then on, each with its newest block.
#[inline(always)]
fn in_turns(objects: &[u16], stride: usize, mut push: impl FnMut(u16)) {
    if stride == 1 {
        return objects.iter().rev().for_each(|object| push(*object));
    }
    for turn in (0..stride.min(objects.len())).rev() {
        objects[turn..].iter().step_by(stride).rev().for_each(|object| push(*object));
    }
}
