//! What a home supplies: pages, locks, per-core lists, a page map. The core calls these; they call nothing of the core but the
//! tables handed to them.
//!
//! A home is a type that implements [`Platform`]; its associated types carry the sizes of their own tables (`[T; P::N]` does
//! not compile on stable Rust). Whatever a method here does, it must not allocate from the heap it serves, must not panic and
//! must not unwind: the core calls it in the middle of an allocation.

use crate::batch::Batch;
use crate::chain::{Block, Chain};
use crate::fault::Fault;
use crate::grain::{Grain, GranuleClass};
use crate::limits::Limits;
use crate::page_map::PageMap;
use crate::region::{Region, RegionError};
use crate::seal::Seal;
use crate::size_class::SizeClass;
use crate::slab::{ListCounts, Slab, Slot};
use crate::units::{PAGE_SIZE, PageRun, Pages};
use core::alloc::Layout;
use core::ptr::NonNull;

/// A home: the set of parts out of which a [`Heap`](crate::Heap) is built.
pub trait Platform: Sized + 'static {
    /// Where pages come from.
    type Source: PageSource;
    /// The per-core lists of cached blocks.
    type Lists: CoreLists<Class = SizeClass>;
    /// The lock of the slow paths.
    type Lock: Lock;
    /// How an address finds its span.
    type Map: PageMap;
    /// How a cached block is marked, so that a second free of it is seen.
    type Seal: Seal;

    /// Bytes that one core may keep in its lists, all classes together; less while the heap is small (a 32nd of what it holds,
    /// at least 768 KiB).
    const CORE_BUDGET: usize = 2 << 20;

    /// Pages that the pool of the heap's own data maps at a time. Only what is touched costs memory where the source maps
    /// lazily: such a home maps its tables and the first descriptors in one go.
    const META_BLOCK: Pages = Pages(64);

    /// Milliseconds of a clock that never goes back, where the home has one. It only lowers what the heap keeps.
    fn now_ms() -> Option<u64> {
        None
    }

    /// What a heap of this home may take; each heap for itself. Asked whenever pages are taken or come back, so cheap, and may
    /// change.
    fn limits() -> Limits {
        Limits::NONE
    }

    /// Whether the memory of the home, of which a heap knows nothing, is nearly used up: then the heap keeps next to no free
    /// pages. Asked before `moved` pages are mapped, and each time that so many (2 MiB or more) have come back; inside the
    /// page heap's lock.
    fn is_short(moved: Pages) -> bool {
        let _ = moved;
        false
    }

    /// Called before the first slow path does anything; may look at the environment. `false`: not yet, keep out of the lists.
    fn ready() -> bool {
        true
    }

    /// Stops the program with one line that names pointer, fault and invariant.
    fn stop(fault: Fault) -> !;
}

/// A home of a [`RegionHeap`](crate::RegionHeap): the set of parts it is built from.
pub trait RegionPlatform: Sized + 'static {
    /// Granule, index width and bins.
    type Grain: Grain;
    /// The per-core lists of cached blocks: [`NoLists`](crate::NoLists), or such as need no [`prepare`](CoreLists::prepare).
    type Lists: CoreLists<Class: GranuleClass<Grain = Self::Grain>>;
    /// The lock of the region heap, which every call below the lists takes.
    type Lock: Lock;
    /// Where the first region comes from.
    type Source: RegionSource;

    /// Blocks that one core may keep in its lists, in equal parts for each cached length: none, or at least one a length. A
    /// call that finds no memory takes the time to give all of them back before it says so.
    const CORE_BLOCKS: usize = 0;

    /// Stops the program with one line that names pointer, fault and invariant.
    fn stop(fault: Fault) -> !;
}

/// Supplies the region that a heap starts with.
///
/// # Safety
/// A region that [`first`](Self::first) returns satisfies the contract of [`BlockHeap::add`](crate::BlockHeap::add).
pub unsafe trait RegionSource {
    /// The region. Asked once, inside the heap's lock, when memory is first wanted. `Missing`: there is none, one will be
    /// added.
    fn first(&self) -> Result<Region, RegionError>;
}

/// Supplies page runs. May fail at any call; the heap then answers null or keeps what it has.
///
/// # Safety
/// - A run that [`map`](Self::map) returned is readable, writable, exclusive, does not reach the top of the address space or
///   page 0, and stays so until it is unmapped, whole or in parts.
/// - Every method may be called from several contexts at once, and by an interrupt (a signal handler) that came upon another
///   method of the same source; a source that cannot serve such a call refuses it. A lock that the source takes is held only
///   by who came through the source, or with interrupts masked: else an interrupt could wait for a context that waits for it.
pub unsafe trait PageSource {
    /// Whether mappings that lie side by side count as one: then a run to give back or to resize may consist of several, or of
    /// parts of them (and the source may refuse it).
    const JOINS: bool = false;

    /// Maps `pages` pages at a multiple of `align` bytes (a power of two, at least a page). `None`: no memory; nothing
    /// changed.
    fn map(&self, pages: Pages, align: usize) -> Option<Mapped>;

    /// The same for a table of the heap's own, of which little is ever touched. A source where that costs something all the
    /// same may refuse a long one (the heap does without, or asks [`map`](Self::map) for a short one).
    fn map_sparse(&self, pages: Pages) -> Option<Mapped> {
        self.map(pages, PAGE_SIZE)
    }

    /// Gives the run back. `Err`: refused, the run is still mapped. The heap keeps it where it has a place for it, and tries
    /// again; a run that it has just mapped in vain, or was made for an interrupt, is left to the source.
    ///
    /// # Safety
    /// The run is mapped by this source, whole or as a part, and nobody uses it any more.
    unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused>;

    /// Gives the memory behind the run back and keeps its addresses.
    ///
    /// # Safety
    /// As for [`unmap`](Self::unmap); the run stays mapped and its contents are what the outcome says.
    unsafe fn purge(&self, run: PageRun) -> Purged;

    /// Makes the run `to` pages long (longer or shorter), in place or moved as `place` allows; contents up to the shorter
    /// length are kept, pages that are new read zero. `None`: refused, the run is as it was.
    ///
    /// # Safety
    /// The run is one whole mapping of this source, or where the source [joins](Self::JOINS) mappings any part of one or of
    /// several; nobody else uses it during the call. Where it moved, the old addresses are gone.
    unsafe fn remap(&self, run: PageRun, to: Pages, place: Place) -> Option<NonNull<u8>> {
        let _ = (run, to, place);
        None
    }

    /// Advises huge pages for the run. `Ok`: whoever touches a page of it may make the whole huge page resident. `Err`: there
    /// are none to be had, and nothing changes.
    fn advise_huge(&self, run: PageRun) -> Result<(), Refused> {
        let _ = run;
        Err(Refused)
    }

    /// Makes the run resident in one go. A hint; may do nothing.
    fn populate(&self, run: PageRun) {
        let _ = run;
    }
}

/// A fresh run.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// First byte.
    pub start: NonNull<u8>,
    /// What the run holds.
    pub contents: Contents,
}

/// What is known of the contents of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Every byte reads zero.
    Zeroed,
    /// Anything.
    Unknown,
}

/// The outcome of [`PageSource::purge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purged {
    /// The memory is given back; the run reads zero.
    Zeroed,
    /// The memory is given back, or will be; the contents are unknown.
    Unknown,
    /// Nothing was done (on Linux: locked memory, a sandbox); contents and residence are as before.
    Refused,
}

/// The source declined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// Whether a run may change its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It stays where it is.
    Stay,
    /// It may move.
    Move,
}

/// How an attempt to enter a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Entered.
    Got,
    /// Not entered: this context (thread, core) is inside already, so it is an interrupt or signal handler.
    Mine,
    /// Not entered: another context is inside.
    Busy,
}

/// A lock with an owner.
///
/// # Safety
/// One context at a time is inside, from an entry that ended `Got` to [`leave`](Self::leave).
///
/// Not for memory's safety, but so that nobody waits for ever: a context that is inside reads `Mine`, also in an interrupt
/// right after the exchange that let it in. So the owner is part of the word that is exchanged, or no interrupt which uses
/// the lock comes upon its holder.
pub unsafe trait Lock: Send + Sync {
    /// A lock that nobody is inside.
    const NEW: Self;

    /// Enters if nobody is inside.
    fn try_enter(&self) -> Entry;

    /// Waits while another context is inside; may return early, and does so now and then (every few milliseconds), so that
    /// whoever waits can ask again whether waiting is right. Called only by a context that is not inside.
    fn wait(&self);

    /// Enters, waiting as long as another context is inside.
    fn enter(&self) {
        while self.try_enter() != Entry::Got {
            self.wait();
        }
    }

    /// Whether the calling context is inside.
    fn is_mine(&self) -> bool;

    /// Leaves.
    ///
    /// # Safety
    /// The calling context is inside (or is the child of a fork whose parent was).
    unsafe fn leave(&self);
}

/// A kind of block that the cache keeps apart: a [`SizeClass`], or a number of granules.
///
/// Indexes run from 0 to the length of a [`Table`](Self::Table); the first ones may be unused.
pub trait Class: Copy + Eq + core::fmt::Debug + 'static {
    /// A table by index: an array.
    type Table<T: Sync>: AsRef<[T]> + Sync;
    /// Slots that were never used.
    const SLOTS: Self::Table<Slot>;
    /// Counters at zero.
    const COUNTS: Self::Table<ListCounts>;

    /// Its place in a table.
    fn index(self) -> usize;

    /// The class at `index`, if there is one.
    fn from_index(index: usize) -> Option<Self>;

    /// Bytes of a block.
    fn size(self) -> usize;

    /// Blocks that move between the layers at a time.
    fn batch(self) -> usize;

    /// What a cached block takes of a core's budget.
    fn cost(self) -> usize;

    /// All classes, in the order of their indexes.
    fn all() -> impl Iterator<Item = Self> {
        (0..Self::SLOTS.as_ref().len()).filter_map(Self::from_index)
    }
}

/// The per-core lists: for each core and class a last-in-first-out list of free blocks.
///
/// The backend picks the core inside its own section, so no method that works on "this core" takes a core number. Every
/// operation may miss, and a miss changes nothing: whoever calls goes to the layer below. Operations on "this core" take
/// constant time; chains are walked outside.
///
/// # Safety
/// - A block that `push` or `put_chain` took comes out once, under the class it went in by, by `pop`, `take_all` or `steal`,
///   whatever cores, threads, signals
///   and interrupts do at the same time, and its contents but the first word are untouched.
/// - What one context wrote to a block before it went in is seen by the context that takes it out.
pub unsafe trait CoreLists: Sync {
    /// What the lists keep apart.
    type Class: Class;

    /// Lists that hold nothing and always miss, until [`prepare`](Self::prepare).
    const NEW: Self;

    /// Takes the newest block of `class` off this core's list. `None`: a miss.
    fn pop(&self, class: Self::Class) -> Option<Block>;

    /// Puts `block` on this core's list of `class`. `Err`: a miss (the list is full, or not set up), the block comes back.
    fn push(&self, class: Self::Class, block: Block) -> Result<(), Block>;

    /// As [`pop`](Self::pop), for who has missed: by ways that take longer, too. A home whose fast way is not always open has
    /// the other one here, so that `pop` stays short where it is inlined.
    fn pop_again(&self, class: Self::Class) -> Option<Block> {
        self.pop(class)
    }

    /// As [`push`](Self::push), for who has missed.
    fn push_again(&self, class: Self::Class, block: Block) -> Result<(), Block> {
        self.push(class, block)
    }

    /// Takes this core's whole list of `class`; the empty chain on a miss.
    fn take_all(&self, class: Self::Class) -> Chain;

    /// Makes `chain` this core's list of `class` if that list is empty. `Err`: a miss, the chain comes back.
    fn put_chain(&self, class: Self::Class, chain: Chain) -> Result<(), Chain>;

    /// Empties all lists of `core`, which may be any core, and hands each non-empty one to `sink`, after the core works again.
    /// `Err`: this home cannot reach that core now, or somebody else is at it.
    fn steal(&self, core: usize, sink: &mut dyn FnMut(Self::Class, Chain)) -> Result<(), Refused>;

    /// Cold: sets up what is missing for the running context (its core's lists, its registration), out of `tables`. Called
    /// with no lock held after a miss, often; cheap where nothing is missing. `false`: nothing could be done, misses go on.
    fn prepare(&self, tables: &dyn Tables) -> bool;

    /// One more than the highest core whose lists may hold a block.
    fn cores(&self) -> usize;

    /// The core that runs this, at some moment during the call; a hint. `None`: the lists miss here.
    fn current(&self) -> Option<usize>;

    /// The counters and limits of `core`; `None` where it has no lists.
    fn slab(&self, core: usize) -> Option<&Slab<Self::Class>>;

    /// Before a fork: makes sure that no other context is inside [`steal`](Self::steal) or [`prepare`](Self::prepare).
    fn freeze(&self) {}

    /// After a fork, in the parent and in the child; the child also repairs what vanished threads left half done.
    fn thaw(&self, side: Side) {
        let _ = side;
    }
}

/// Which process returns from a fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that called it.
    Parent,
    /// The new one, with one thread.
    Child,
}

/// Supplies zeroed tables that live as long as the heap.
pub trait Tables {
    /// `bytes` zeroed bytes, aligned to a page. `None`: no memory, or this context is inside the page heap already.
    fn table(&self, bytes: usize) -> Option<NonNull<u8>>;
}

/// What the cache stands on: takes and gives chains of blocks of one class. The class heap's spans are one back, a region heap the other.
pub(crate) trait Backend {
    /// What its blocks are kept apart by.
    type Class: Class;

    /// The class that serves `layout`; `None` where the cache has no part in it.
    fn of(layout: Layout) -> Option<Self::Class>;

    /// Takes up to `n` blocks, at least one; a chain that was given before may come back whole, with up to a batch.
    fn take(&self, class: Self::Class, n: usize) -> Result<Taken, Shortage>;

    /// What a core's lists may hold together, where `most` is the most: less while the back holds little.
    fn budget(&self, most: usize) -> usize {
        most
    }

    /// Gives blocks back. Always succeeds: where this context is inside a lock, they are queued for the holder.
    fn give(&self, class: Self::Class, chain: Chain);

    /// Gives a handful of blocks back, and leaves the batch empty.
    fn give_batch(&self, class: Self::Class, batch: &mut Batch) {
        self.give(class, batch.link());
    }
}

/// A non-empty chain from below.
#[must_use]
#[derive(Debug)]
pub(crate) struct Taken {
    /// The blocks; the first is the one to hand out.
    pub(crate) chain: Chain,
    /// What is known of the first block (its first word is a link, and is set to zero where the block is handed out as
    /// zeroed).
    pub(crate) first: Contents,
}

/// Why nothing came from below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// The source has no more memory.
    Exhausted,
    /// This context may not wait for a lock that the request needs: it is an interrupt that came upon its own context inside
    /// one, or another context is about to fork.
    Reentered,
}
