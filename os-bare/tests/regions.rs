//! Where a heap's memory comes from: arenas, linker symbols, places named at run time; and in which section an arena lies.

mod support;

use freestone_bare::{Arena, Cached, Fine, Heap, OneCore, Region, RegionError, Spin, StaticRegion, Tiny, Wide, arena};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use std::alloc::Layout;
use support::Thread;

type TestHeap<G = freestone_bare::Compact> = Heap<Spin<Thread>, G>;

/// Memory of a test's own, for good.
fn memory(bytes: usize) -> *mut u8 {
    Vec::leak(vec![0xa5_u8; bytes]).as_mut_ptr()
}

#[test]
fn one_heap_has_an_arena() {
    fn the_same() -> StaticRegion {
        arena!(4096)
    }
    let (first, second) = (TestHeap::<Tiny>::new(the_same()), TestHeap::<Tiny>::new(the_same()));
    assert!(first.warm().unwrap() > 3800);
    assert_eq!(second.warm(), Err(RegionError::Claimed));
    assert_eq!(second.allocate(Layout::new::<u8>()), None);
    // It works with memory of its own.
    // SAFETY: leaked for it.
    unsafe { second.init(Region::new(memory(4096), 4096)) }.unwrap();
    assert!(second.allocate(Layout::new::<u8>()).is_some() && first.stats().regions == 1);
}

#[test]
fn regions_come_later() {
    let heap = TestHeap::<Wide>::new(StaticRegion::NONE);
    assert_eq!((heap.warm(), heap.allocate(Layout::new::<u64>())), (Err(RegionError::Missing), None));
    let large = Layout::new::<[u8; 6000]>();
    // SAFETY: leaked for the heap.
    unsafe {
        assert!(heap.init(Region::new(memory(4096), 4096)).is_ok());
        assert_eq!(heap.init(Region::new(memory(4096), 4096)), Err(RegionError::Occupied));
        assert_eq!(heap.allocate(large), None);
        assert!(heap.add_region(Region::new(memory(8192), 8192)).unwrap() >= 6000);
    }
    assert!(heap.allocate(large).is_some());
    assert_eq!((heap.warm().is_ok(), heap.stats().regions), (true, 2));
}

#[test]
fn a_region_grows() {
    let start = memory(16 * 1024);
    // SAFETY: leaked for the heap, as far as it may grow.
    let heap = TestHeap::<Fine>::new(unsafe { StaticRegion::at(Region::growable(start, 4096, 16 * 1024)) });
    let large = Layout::new::<[u8; 12_000]>();
    assert_eq!(heap.allocate(large), None);
    // SAFETY: as above.
    assert_eq!(unsafe { heap.extend_region(start, 16 * 1024) }, Ok(12 * 1024));
    assert!(heap.allocate(large).is_some());
    // SAFETY: refused, and never used.
    assert_eq!(unsafe { heap.extend_region(start, 17 * 1024) }, Err(RegionError::NotGrowable));
}

/// The linker names the ends of a section whose name is an identifier.
#[test]
fn linker_symbols_are_a_region() {
    const BYTES: usize = 48 * 1024;
    #[unsafe(link_section = "freestone_memory")]
    static MEMORY: Arena<BYTES> = Arena::new();
    unsafe extern "C" {
        #[link_name = "__start_freestone_memory"]
        static mut start: u8;
        #[link_name = "__stop_freestone_memory"]
        static mut end: u8;
    }
    // SAFETY: the section holds `MEMORY`, of which this test uses no more than the address.
    static HEAP: TestHeap = TestHeap::new(unsafe { StaticRegion::between(&raw mut start, &raw mut end) });
    let whole = HEAP.warm().unwrap();
    assert!(whole > BYTES / 100 * 97 && whole < BYTES);
    let block = HEAP.allocate(Layout::new::<[u8; 40_000]>()).unwrap();
    let offset = block.addr().get() - MEMORY.start().addr();
    assert!(offset < BYTES - 40_000);
}

#[test]
fn what_the_grain_cannot_hold_is_an_error() {
    assert_eq!(TestHeap::<Tiny>::new(arena!(64 * 1024)).warm(), Err(RegionError::TooLarge));
    assert_eq!(TestHeap::<Wide>::new(arena!(64)).warm(), Err(RegionError::TooSmall));
}

#[test]
fn the_size_of_the_cache_is_a_type() {
    fn cached_bytes<const EACH: usize>(region: StaticRegion) -> usize {
        let heap = Heap::<Spin<Thread>, Wide, Cached<OneCore, 1, 8, EACH>>::new(region);
        let layouts = [16, 16, 16, 64, 128, 129].map(|size| Layout::from_size_align(size, 8).unwrap());
        for _ in 0..100 {
            let blocks = layouts.map(|layout| (heap.allocate(layout).unwrap(), layout));
            // SAFETY: live blocks of these layouts.
            blocks.into_iter().for_each(|(block, layout)| unsafe { heap.deallocate(block, layout) });
        }
        let stats = heap.stats();
        assert_eq!(stats.live_bytes, 0);
        heap.trim();
        assert_eq!((heap.stats().cached_bytes, heap.stats().largest_free), (0, stats.held_bytes));
        stats.cached_bytes
    }
    assert_eq!(cached_bytes::<0>(arena!(16 * 1024)), 0);
    assert_eq!(cached_bytes::<1>(arena!(16 * 1024)), 16 + 64 + 128);
    assert_eq!(cached_bytes::<2>(arena!(16 * 1024)), 2 * 16 + 64 + 128);
}

/// An arena beside a heap that is not all zero costs nothing in the image; one with a section of its own is there.
#[test]
fn arenas_stay_in_bss() {
    const BYTES: usize = 3_000_016;
    static HEAP: TestHeap<Wide> = TestHeap::new(arena!(BYTES));
    static ELSEWHERE: TestHeap<Wide> = TestHeap::new(arena!(BYTES + 16, #[unsafe(link_section = ".bss.sdram")]));
    static PROGBITS: TestHeap<Wide> = TestHeap::new(arena!(BYTES - 16, #[unsafe(link_section = "sdram")]));
    assert!(HEAP.warm().is_ok() && ELSEWHERE.warm().is_ok() && PROGBITS.warm().is_ok());

    let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let image = object::File::parse(&*image).unwrap();
    let section_of = |bytes: usize| {
        let mut arenas = image.symbols().filter(|symbol| symbol.size() == bytes as u64);
        let arena = arenas.next().expect("a symbol of this size");
        assert!(arenas.next().is_none());
        let section = image.section_by_index(arena.section_index().unwrap()).unwrap();
        (section.kind(), section.name().unwrap().to_owned())
    };
    assert_eq!(section_of(BYTES), (SectionKind::UninitializedData, ".bss".into()));
    assert_eq!(section_of(BYTES + 16).0, SectionKind::UninitializedData);
    assert_eq!(section_of(BYTES - 16).1, "sdram");
}
