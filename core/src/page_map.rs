//! The page map: from an address to the span it lies in.
//!
//! Read by every `free` that has only a pointer, with no lock; written by the page heap under its lock, and for rescued blocks
//! without it. A home chooses the type; [`RadixMap`] serves every home that maps pages where it likes,
//! [`WindowMap`] one whose pages all lie in one window of addresses.
//!
//! Invariants: `M1` the page map names, for each page of a live class span and for the first page of every live large block,
//! that span and its class, and nothing for any other page; `M2` what is freed has the layout it was allocated with; `M3`
//! entries are cleared before a run is unmapped, moved or given to the page heap.

use crate::platform::Tables;
use crate::size_class::SizeClass;
use crate::span::{Span, SpanRef};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::units::{CHUNK_PAGES, CHUNK_SIZE, PAGE_SHIFT, Pages};
use core::ptr::{NonNull, null_mut};

/// What the map holds for a page: a span's descriptor with the index of its class in the low bits (0: a large block).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(*mut Span);

const CLASS_MASK: usize = align_of::<Span>() - 1;
const _: () = assert!(SizeClass::INDEXES <= align_of::<Span>(), "a class index fits below a descriptor's alignment");

impl Entry {
    /// No span.
    pub const NONE: Self = Self(null_mut());

    pub(crate) fn new(span: SpanRef) -> Self {
        let index = span.class().map_or(0, SizeClass::index);
        Self(span.as_ptr().as_ptr().map_addr(|addr| addr | index))
    }

    /// The span, if the page has one.
    #[inline(always)]
    pub(crate) fn span(self) -> Option<SpanRef> {
        let span = NonNull::new(self.0.map_addr(|addr| addr & !CLASS_MASK))?;
        // SAFETY: an entry that is not empty was made by `new`, from a descriptor that lives as long as the heap.
        Some(unsafe { SpanRef::new(span) })
    }

    /// The class of the span; `None` where there is no span, or a large block.
    #[inline(always)]
    pub(crate) fn class(self) -> Option<SizeClass> {
        SizeClass::from_index(self.0.addr() & CLASS_MASK)
    }

    /// The [key](SizeClass::key) of the span's objects; 0 where there is no span, or a large block.
    pub(crate) fn key(self) -> u64 {
        match (self.class(), self.span()) {
            (Some(class), Some(span)) => class.key(span.start().addr().get()),
            _ => 0,
        }
    }
}

/// Maps pages to entries.
///
/// # Safety
/// [`get`](Self::get) returns what [`set`](Self::set) last put there, or [`Entry::NONE`].
pub unsafe trait PageMap: Sync {
    /// A map that holds nothing.
    const NEW: Self;

    /// The entry of the page that `address` lies in. Any address may be asked for. Constant time.
    fn get(&self, address: usize) -> Entry;

    /// The class of the object that starts at `address`, where the map has a short way to it: the fast path of a free by
    /// address. `None` says nothing; [`get`](Self::get) knows.
    #[inline(always)]
    fn object(&self, address: usize) -> Option<SizeClass> {
        let _ = address;
        None
    }

    /// Whether the short way says nothing of the page that `address` lies in, or what the entry says. For the checker.
    fn is_sound(&self, address: usize) -> bool {
        let _ = address;
        true
    }

    /// Makes sure that [`set`](Self::set) works for `pages` pages from `start`. With any lock or none: several contexts may
    /// be at it.
    /// `false`: no memory for tables, or an address that the map cannot hold.
    fn reserve(&self, start: usize, pages: Pages, tables: &dyn Tables) -> bool;

    /// Makes sure that the next [`finish_move`](Self::finish_move) succeeds: called before a run is moved to an address that
    /// is not known yet. Only with the page heap's lock.
    fn prepare_move(&self, tables: &dyn Tables) -> bool;

    /// Makes sure that [`set`](Self::set) works for the page at `start`, out of what `prepare_move` has laid by. Only with
    /// the page heap's lock. `false`: an address that the map cannot hold.
    fn finish_move(&self, start: usize) -> bool;

    /// Sets the entry of the page at `address`; `false` (and nothing done) where it is not reserved.
    fn set(&self, address: usize, entry: Entry) -> bool;
}

const LEAF_BITS: u32 = 18;
const ROOT_BITS: u32 = 47 - PAGE_SHIFT - LEAF_BITS;

type Leaf = [AtomicPtr<Span>; 1 << LEAF_BITS];
type Root = [AtomicPtr<Leaf>; 1 << ROOT_BITS];

/// A radix tree of two levels over 47-bit addresses: a root of 1 MiB and a leaf of 2 MiB for each GiB in use, both of which
/// cost memory only where they are touched (one page of leaf a chunk). No reservation up front, which would break `RLIMIT_AS`.
#[derive(Debug)]
pub struct RadixMap {
    root: AtomicPtr<Root>,
    /// A leaf in hand, for a run that is about to move. Used under the page heap's lock only.
    spare: AtomicPtr<Leaf>,
}

const fn root_index(address: usize) -> usize {
    address >> (PAGE_SHIFT + LEAF_BITS)
}

const fn leaf_index(address: usize) -> usize {
    (address >> PAGE_SHIFT) & ((1 << LEAF_BITS) - 1)
}

/// The table at `place`, which is put there if there is none. Of two contexts that do so at once one wins; the loser's table
/// is left to the heap, which gives it back when it is dropped.
fn ensure<T>(place: &AtomicPtr<T>, table: impl FnOnce() -> Option<NonNull<T>>) -> Option<&T> {
    if place.load(Ordering::Acquire).is_null() {
        // Release pairs with the Acquire loads: a table's zeroes are seen before its address.
        let _ = place.compare_exchange(null_mut(), table()?.as_ptr(), Ordering::Release, Ordering::Relaxed);
    }
    // Acquire pairs with the Release above, of this context or another.
    // SAFETY: a table that was put there is zeroed, of the right size, and lives as long as the heap.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

fn new_table<T>(tables: &dyn Tables) -> Option<NonNull<T>> {
    Some(tables.table(size_of::<T>())?.cast())
}

impl RadixMap {
    #[inline(always)]
    fn leaf(&self, address: usize) -> Option<&Leaf> {
        // Acquire pairs with the Release in `ensure`: a table's zeroes are seen before its address.
        // SAFETY: a published root is a zeroed table of the right size that lives as long as the heap.
        let root = unsafe { self.root.load(Ordering::Acquire).as_ref()? };
        // SAFETY: the same for a leaf.
        unsafe { root.get(root_index(address))?.load(Ordering::Acquire).as_ref() }
    }
}

// SAFETY: `set` and `get` use the same place for an address, and no two addresses of different pages below 2^47 share one;
// the root's bound check refuses all above.
unsafe impl PageMap for RadixMap {
    const NEW: Self = Self { root: AtomicPtr::new(null_mut()), spare: AtomicPtr::new(null_mut()) };

    #[inline(always)]
    fn get(&self, address: usize) -> Entry {
        match self.leaf(address) {
            // Acquire pairs with the Release in `set`: the descriptor is seen before its address.
            Some(leaf) => Entry(leaf[leaf_index(address)].load(Ordering::Acquire)),
            None => Entry::NONE,
        }
    }

    fn reserve(&self, start: usize, pages: Pages, tables: &dyn Tables) -> bool {
        let Some(end) = start.checked_add(pages.bytes()).filter(|_| pages.0 > 0) else { return false };
        let Some(root) = ensure(&self.root, || new_table(tables)) else { return false };
        let leaves = root_index(start)..=root_index(end - 1);
        root.get(leaves).is_some_and(|leaves| leaves.iter().all(|leaf| ensure(leaf, || new_table(tables)).is_some()))
    }

    fn prepare_move(&self, tables: &dyn Tables) -> bool {
        ensure(&self.root, || new_table(tables)).and_then(|_| ensure(&self.spare, || new_table(tables))).is_some()
    }

    fn finish_move(&self, start: usize) -> bool {
        // Relaxed: only the holder of the page heap's lock uses the spare leaf.
        let spare = || NonNull::new(self.spare.swap(null_mut(), Ordering::Relaxed));
        let root = ensure(&self.root, || None);
        root.and_then(|root| root.get(root_index(start))).and_then(|place| ensure(place, spare)).is_some()
    }

    fn set(&self, address: usize, entry: Entry) -> bool {
        let Some(leaf) = self.leaf(address) else { return false };
        // Release pairs with the Acquire in `get`.
        leaf[leaf_index(address)].store(entry.0, Ordering::Release);
        true
    }
}

type ChunkLeaf = [AtomicPtr<Span>; CHUNK_PAGES];

/// A map of the `CHUNKS` chunks from the address `BASE`, a multiple of the chunk: for kernels, whose heap lies in the direct
/// map of their memory. A pointer a chunk in the heap's value, and a page of table for each chunk in use; nothing where
/// there is no heap.
#[derive(Debug)]
pub struct WindowMap<const BASE: usize, const CHUNKS: usize> {
    leaves: [AtomicPtr<ChunkLeaf>; CHUNKS],
    /// A leaf in hand, for a run that is about to move. Used under the page heap's lock only.
    spare: AtomicPtr<ChunkLeaf>,
}

impl<const BASE: usize, const CHUNKS: usize> WindowMap<BASE, CHUNKS> {
    #[inline(always)]
    fn place(&self, address: usize) -> Option<&AtomicPtr<ChunkLeaf>> {
        const { assert!(BASE.is_multiple_of(CHUNK_SIZE)) };
        self.leaves.get(address.wrapping_sub(BASE) / CHUNK_SIZE)
    }

    #[inline(always)]
    fn leaf(&self, address: usize) -> Option<&ChunkLeaf> {
        // Acquire pairs with the Release in `ensure`: a table's zeroes are seen before its address.
        // SAFETY: a published leaf is a zeroed table of the right size that lives as long as the heap.
        unsafe { self.place(address)?.load(Ordering::Acquire).as_ref() }
    }
}

const fn page_of_chunk(address: usize) -> usize {
    (address >> PAGE_SHIFT) % CHUNK_PAGES
}

// SAFETY: `set` and `get` use the same place for an address, and no two addresses of different pages in the window share
// one; the bound check refuses all outside of it.
unsafe impl<const BASE: usize, const CHUNKS: usize> PageMap for WindowMap<BASE, CHUNKS> {
    const NEW: Self = Self { leaves: [const { AtomicPtr::new(null_mut()) }; CHUNKS], spare: AtomicPtr::new(null_mut()) };

    #[inline(always)]
    fn get(&self, address: usize) -> Entry {
        // Acquire pairs with the Release in `set`: the descriptor is seen before its address.
        self.leaf(address).map_or(Entry::NONE, |leaf| Entry(leaf[page_of_chunk(address)].load(Ordering::Acquire)))
    }

    fn reserve(&self, start: usize, pages: Pages, tables: &dyn Tables) -> bool {
        let Some(last) = pages.bytes().checked_sub(1).and_then(|bytes| start.checked_add(bytes)) else { return false };
        let chunks = start.wrapping_sub(BASE) / CHUNK_SIZE..=last.wrapping_sub(BASE) / CHUNK_SIZE;
        self.leaves.get(chunks).is_some_and(|leaves| leaves.iter().all(|leaf| ensure(leaf, || new_table(tables)).is_some()))
    }

    fn prepare_move(&self, tables: &dyn Tables) -> bool {
        ensure(&self.spare, || new_table(tables)).is_some()
    }

    fn finish_move(&self, start: usize) -> bool {
        // Relaxed: only the holder of the page heap's lock uses the spare leaf.
        let spare = || NonNull::new(self.spare.swap(null_mut(), Ordering::Relaxed));
        self.place(start).and_then(|place| ensure(place, spare)).is_some()
    }

    fn set(&self, address: usize, entry: Entry) -> bool {
        let Some(leaf) = self.leaf(address) else { return false };
        // Release pairs with the Acquire in `get`.
        leaf[page_of_chunk(address)].store(entry.0, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::span::Kind;
    use crate::units::{PAGE_SIZE, PageRun};
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;

    /// Tables that are never given back.
    struct Leaky;

    impl Tables for Leaky {
        fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
            // SAFETY: not of size 0.
            NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, PAGE_SIZE).unwrap()) })
        }
    }

    fn span(kind: Kind) -> SpanRef {
        let span = Box::leak(Box::new(Span::unused()));
        let start = NonNull::dangling();
        span.describe(kind, PageRun { start, pages: Pages(1) }, start);
        // SAFETY: leaked.
        unsafe { SpanRef::new(NonNull::from(span)) }
    }

    #[test]
    fn entries_come_back_and_addresses_do_not_alias() {
        // K45: pages 2^38, 2^46 and 2^47 apart, and addresses of five-level paging.
        let map = RadixMap::NEW;
        let objects = span(Kind::Objects(SizeClass::of(100, 1).unwrap()));
        let large = span(Kind::Large);
        assert_eq!(map.get(0x7fff_ffff_f000), Entry::NONE);
        assert!(!map.set(0x7fff_ffff_f000, Entry::new(large)), "not reserved");
        for (address, span) in [(0x7fff_ffff_f000_usize, objects), (0x7f_ffff_f000, large), (0x1000, objects)] {
            assert!(map.reserve(address, Pages(1), &Leaky) && map.set(address, Entry::new(span)));
            for inside in [address, address + 1, address + PAGE_SIZE - 1] {
                assert_eq!((map.get(inside).span(), map.get(inside).class()), (Some(span), span.class()));
            }
            for far in
                [address ^ 1 << 38, address ^ 1 << 46, address | 1 << 47, address | 1 << 55, address.wrapping_sub(PAGE_SIZE)]
            {
                assert_eq!(map.get(far), Entry::NONE, "{far:#x} is not {address:#x}");
            }
            assert!(map.set(address, Entry::NONE));
        }
        for beyond in [0x7fff_ffff_f000, 0x80_0000_0000_0000, 0xff_ffff_ffff_f000, usize::MAX - 0xfff] {
            assert!(!map.reserve(beyond, Pages(2), &Leaky), "{beyond:#x} does not fit");
        }
    }

    #[test]
    fn a_window_holds_its_chunks_and_nothing_else() {
        const BASE: usize = 0xffff_8000_0000_0000;
        let map = WindowMap::<BASE, 4>::NEW;
        let (start, end) = (BASE + CHUNK_SIZE, BASE + 4 * CHUNK_SIZE);
        let span = span(Kind::Large);
        assert!(!map.set(start, Entry::new(span)), "not reserved");
        assert!(map.reserve(start, Pages(2 * CHUNK_PAGES), &Leaky) && map.set(start, Entry::new(span)));
        assert_eq!(map.get(start + 4095).span(), Some(span));
        for other in [BASE, start + PAGE_SIZE, start + CHUNK_SIZE, end, BASE - 1, start & !(1 << 47), 0, usize::MAX] {
            assert_eq!(map.get(other), Entry::NONE, "{other:#x}");
        }
        for (outside, pages) in [(end, 1), (end - PAGE_SIZE, 2), (BASE - PAGE_SIZE, 2), (0, 1), (BASE, 0)] {
            assert!(!map.reserve(outside, Pages(pages), &Leaky), "{outside:#x}");
        }
        assert!(map.prepare_move(&Leaky) && map.finish_move(end - PAGE_SIZE) && map.set(end - PAGE_SIZE, Entry::new(span)));
    }

    #[test]
    fn a_move_needs_no_memory_after_it_was_prepared() {
        struct Never;
        impl Tables for Never {
            fn table(&self, _: usize) -> Option<NonNull<u8>> {
                None
            }
        }
        let map = RadixMap::NEW;
        assert!(map.reserve(0x1000, Pages(1), &Leaky) && !map.prepare_move(&Never) && map.prepare_move(&Leaky));
        assert!(map.finish_move(0x2000) && map.prepare_move(&Never), "a leaf that is there needs none");
        assert!(!map.reserve(0x40_0000_0000, Pages(1), &Never), "what is laid by is for the move");
        assert!(map.finish_move(0x40_0000_0000) && map.set(0x40_0000_0000, Entry::new(span(Kind::Huge))));
        assert!(!map.prepare_move(&Never) && !map.finish_move(0x50_0000_0000));
    }
}
