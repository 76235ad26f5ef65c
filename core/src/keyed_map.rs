//! [`KeyedMap`]: a window of keys in front of another page map, for homes where many blocks are freed by address.
//!
//! A free by address has to know two things: the class of the object there, and that an object starts there. A descriptor
//! says both, three dependent loads away. A *key* (see [`SizeClass::key`]) says both in a word a page, in one table over a
//! window of addresses around the heap's first mapping: one load and one multiplication. Whatever lies outside of the
//! window, and every block without a class, takes the longer way.
//!
//! Invariant: `M4` a key that is not 0 is that of the span which the page map behind names for the page (but inside
//! [`set`](PageMap::set)).

use crate::page_map::{Entry, PageMap};
use crate::platform::Tables;
use crate::size_class::SizeClass;
use crate::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use crate::units::{PAGE_SHIFT, Pages};
use core::ptr::null_mut;

/// The map `M` with keys for a window of `PAGES` pages: 8 bytes each of address space, of memory only where they are touched
/// (a page of keys a chunk). Where there is no memory for the table, or an address outside of user space, it is `M` alone.
#[derive(Debug)]
pub struct KeyedMap<M, const PAGES: usize> {
    map: M,
    /// The number of the window's first page; [`NOWHERE`] until the first mapping, and for good where that had no table.
    first: AtomicUsize,
    /// Where the key of page 0 would be.
    keys: AtomicPtr<AtomicU64>,
    /// Whether the table was asked for.
    asked: AtomicUsize,
}

/// No page is within any window's length behind this one.
const NOWHERE: usize = usize::MAX / 2;

impl<M: PageMap, const PAGES: usize> KeyedMap<M, PAGES> {
    /// The number of the page that `address` lies in, if that is in the window.
    #[inline(always)]
    fn page(&self, address: usize) -> Option<usize> {
        let page = address >> PAGE_SHIFT;
        // Acquire pairs with the Release in `place`: the table is seen before its place.
        if page.wrapping_sub(self.first.load(Ordering::Acquire)) < PAGES { Some(page) } else { None }
    }

    /// The key of a page.
    ///
    /// # Safety
    /// `page` came from [`page`](Self::page).
    #[inline(always)]
    unsafe fn key(&self, page: usize) -> &AtomicU64 {
        // Relaxed: seen with `first`. SAFETY: the table has `PAGES` keys from that of page `first` on, and lives as long as the
        // heap. (Added as it is, so that the difference from above is not on the way to the key.)
        unsafe { &*self.keys.load(Ordering::Relaxed).wrapping_add(page) }
    }

    /// The map behind, for tests of what does not agree with it.
    #[cfg(test)]
    pub(crate) fn behind(&self) -> &M {
        &self.map
    }

    /// Places the window around the first mapping, three quarters of it below: Linux maps downward.
    #[cold]
    fn place(&self, start: usize, tables: &dyn Tables) {
        // Relaxed: the exchange only picks the one that places it.
        if self.asked.swap(1, Ordering::Relaxed) != 0 || start >> 47 != 0 {
            return;
        }
        let Some(table) = tables.table(PAGES * size_of::<AtomicU64>()) else { return };
        let first = (start >> PAGE_SHIFT).saturating_sub(PAGES / 4 * 3).max(1);
        self.keys.store(table.cast::<AtomicU64>().as_ptr().wrapping_sub(first), Ordering::Relaxed);
        // Release pairs with the Acquire in `page`.
        self.first.store(first, Ordering::Release);
    }
}

// SAFETY: the map behind holds the entries.
unsafe impl<M: PageMap, const PAGES: usize> PageMap for KeyedMap<M, PAGES> {
    const NEW: Self =
        Self { map: M::NEW, first: AtomicUsize::new(NOWHERE), keys: AtomicPtr::new(null_mut()), asked: AtomicUsize::new(0) };

    #[inline(always)]
    fn get(&self, address: usize) -> Entry {
        self.map.get(address)
    }

    #[inline(always)]
    fn object(&self, address: usize) -> Option<SizeClass> {
        // SAFETY: a page of the window.
        let key = unsafe { self.key(self.page(address)?) };
        // Relaxed: nothing is read through a key, and who frees a block came to know of it after its key was set.
        SizeClass::of_key(key.load(Ordering::Relaxed), address)
    }

    fn is_sound(&self, address: usize) -> bool {
        self.page(address).is_none_or(|page| {
            // SAFETY: a page of the window.
            let key = unsafe { self.key(page) }.load(Ordering::Relaxed);
            key == 0 || key == self.get(address).key()
        })
    }

    fn reserve(&self, start: usize, pages: Pages, tables: &dyn Tables) -> bool {
        if self.asked.load(Ordering::Relaxed) == 0 {
            self.place(start, tables);
        }
        self.map.reserve(start, pages, tables)
    }

    fn prepare_move(&self, tables: &dyn Tables) -> bool {
        self.map.prepare_move(tables)
    }

    fn finish_move(&self, start: usize) -> bool {
        self.map.finish_move(start)
    }

    fn set(&self, address: usize, entry: Entry) -> bool {
        let is_set = self.map.set(address, entry);
        if is_set && let Some(page) = self.page(address) {
            // SAFETY: a page of the window.
            let key = unsafe { self.key(page) };
            // Relaxed: see `object`. The two change one after the other while nobody has a block of the span: it is on its way
            // in or out.
            key.store(entry.key(), Ordering::Relaxed);
        }
        is_set
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::page_map::RadixMap;
    use crate::span::{Kind, Span, SpanRef};
    use crate::units::{PAGE_SIZE, PageRun};
    use core::cell::Cell;
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;

    const PAGES: usize = 1024;
    const START: usize = 0x7f00_0000_0000;
    const CLASS: SizeClass = SizeClass::of(100, 1).unwrap();

    /// Tables that are never given back, so many of them.
    struct Leaky(Cell<usize>);

    impl Tables for Leaky {
        fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
            self.0.set(self.0.get().checked_sub(1)?);
            // SAFETY: not of size 0.
            NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, PAGE_SIZE).unwrap()) })
        }
    }

    fn span(kind: Kind, start: usize) -> SpanRef {
        let span = Box::leak(Box::new(Span::unused()));
        let start = NonNull::new(core::ptr::without_provenance_mut(start)).unwrap();
        span.describe(kind, PageRun { start, pages: CLASS.pages() }, start);
        // SAFETY: leaked.
        unsafe { SpanRef::new(NonNull::from(span)) }
    }

    fn reserved(address: usize) -> KeyedMap<RadixMap, PAGES> {
        let map = KeyedMap::<RadixMap, PAGES>::NEW;
        assert_eq!(map.object(address), None, "nothing is mapped");
        assert!(map.reserve(address, Pages(1), &Leaky(Cell::new(usize::MAX))));
        map
    }

    #[test]
    fn objects_are_known_while_their_span_is() {
        let (map, size) = (reserved(START), CLASS.size());
        assert!(map.set(START, Entry::new(span(Kind::Objects(CLASS), START))));
        assert_eq!((map.object(START), map.object(START + size)), (Some(CLASS), Some(CLASS)));
        assert_eq!((map.object(START + 16), map.object(START + PAGE_SIZE), map.object(START - 16)), (None, None, None));
        assert!(map.set(START, Entry::new(span(Kind::Large, START))));
        assert_eq!(map.object(START), None, "a large block is no object");
        assert!(map.set(START, Entry::new(span(Kind::Objects(CLASS), START))) && map.set(START, Entry::NONE));
        assert_eq!(map.object(START), None, "the span is gone");
    }

    #[test]
    fn what_is_not_reserved_gets_no_key() {
        let (map, below) = (reserved(START), START - PAGE_SIZE);
        assert!(!map.set(below, Entry::new(span(Kind::Objects(CLASS), below))), "in the window, in a leaf that is missing");
        assert_eq!((map.object(below), map.get(below)), (None, Entry::NONE));
    }

    #[test]
    fn outside_of_the_window_the_map_behind_knows() {
        let map = reserved(START);
        for far in [START + PAGES * PAGE_SIZE, START - PAGES * PAGE_SIZE, 0x1000, (1 << 47) - PAGE_SIZE] {
            let span = span(Kind::Objects(CLASS), far);
            assert!(map.reserve(far, Pages(1), &Leaky(Cell::new(usize::MAX))) && map.set(far, Entry::new(span)));
            assert_eq!((map.object(far), map.get(far).span()), (None, Some(span)), "{far:#x}");
        }
        for nowhere in [0, 1, usize::MAX, 1 << 47, NOWHERE, NOWHERE << PAGE_SHIFT] {
            assert_eq!(map.object(nowhere), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn without_a_table_it_is_the_map_behind() {
        let map = KeyedMap::<RadixMap, PAGES>::NEW;
        assert!(!map.reserve(START, Pages(1), &Leaky(Cell::new(0))), "the map behind has no table either");
        assert!(map.reserve(START, Pages(1), &Leaky(Cell::new(usize::MAX))));
        let span = span(Kind::Objects(CLASS), START);
        assert!(map.set(START, Entry::new(span)));
        assert_eq!((map.object(START), map.get(START).span()), (None, Some(span)));
    }
}
