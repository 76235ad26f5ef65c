//! What programs allocate: the collections of `alloc` through the global allocator, with results that are known beforehand.
//!
//! Each test runs once on the first processor; [`on_all_cpus`] runs them all on all processors at once.

use alloc::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use alloc::{format, vec};
use freestone_machine::{MAX_CPUS, cpus, run_on_all};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use spin::Mutex;

/// Growing, shrinking, sorting, splitting.
pub fn vectors() {
    let mut dice = SplitMix64::seed_from_u64(1);
    let mut numbers: Vec<u64> = (0..5000).map(|_| dice.next_u64() % 1000).collect();
    let sum: u64 = numbers.iter().sum();
    let tail = numbers.split_off(3000);
    numbers.shrink_to_fit();
    numbers.extend_from_slice(&tail);
    assert_eq!(numbers.iter().sum::<u64>(), sum);
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() <= 1000 && numbers.is_sorted());
    let nested: Vec<Vec<usize>> = (0..100).map(|n| (0..n).collect()).collect();
    assert_eq!(nested.concat().len(), 99 * 100 / 2);
    let mut queue: VecDeque<usize> = (0..1000).collect();
    queue.rotate_left(500);
    assert_eq!((queue.pop_front(), queue.pop_back()), (Some(500), Some(499)));
}

/// Nodes that come and go, keys that are blocks themselves.
pub fn ordered_maps() {
    let mut map = BTreeMap::new();
    for n in 0..1000_usize {
        // 7 is prime to 1000: every number comes once.
        let n = n * 7 % 1000;
        map.insert(format!("key {n:04}"), vec![n as u8; n % 50]);
    }
    assert!(map.keys().is_sorted() && map.len() == 1000);
    map.retain(|key, _| key.ends_with('3'));
    assert_eq!((map.len(), map["key 0123"].len()), (100, 23));
    let set: BTreeSet<_> = map.values().map(Vec::len).collect();
    assert!(set.iter().copied().eq([3, 13, 23, 33, 43]));
}

/// Text that grows by pieces.
pub fn strings() {
    let mut text = String::new();
    for n in 0..500 {
        text += &n.to_string();
        text.push(if n % 2 == 0 { 'ä' } else { ' ' });
    }
    // 10 numbers of one digit, 90 of two, 400 of three, and a separator each.
    assert_eq!(text.chars().count(), 10 + 180 + 1200 + 500);
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    assert_eq!(words.len(), 251);
    assert_eq!(words.join(" "), text);
    assert_eq!(text.replace('ä', "").len() + 250 * 'ä'.len_utf8(), text.len());
}

/// Slices and values behind one pointer, of no size and of many sizes.
pub fn boxes() {
    trait Shape {
        fn area(&self) -> u64;
    }
    struct Square(u64);
    struct Many([u64; 40]);
    impl Shape for Square {
        fn area(&self) -> u64 {
            self.0 * self.0
        }
    }
    impl Shape for Many {
        fn area(&self) -> u64 {
            self.0.iter().sum()
        }
    }
    let shapes: Vec<Box<dyn Shape>> =
        (0..100).flat_map(|n| [Box::new(Square(n)) as _, Box::new(Many([n; 40])) as _]).collect();
    assert_eq!(shapes.iter().map(|shape| shape.area()).sum::<u64>(), 328_350 + 40 * 4950);
    let slice: Box<[u32]> = (0..777).collect();
    let shared: Rc<[u32]> = slice.iter().copied().rev().collect();
    assert_eq!((slice[1], shared[1], Rc::clone(&shared).len()), (1, 775, 777));
    assert_eq!(vec![(); 1 << 40].into_boxed_slice().len(), 1 << 40, "nothing takes no memory");
}

/// Alignments from a cache line to many pages.
pub fn over_aligned() {
    #[repr(align(64))]
    struct Line(u8);
    #[repr(align(4096))]
    struct Page(u8);
    let lines: Vec<Line> = (0..100).map(Line).collect();
    let pages: Vec<Box<Page>> = (0..20).map(|n| Box::new(Page(n))).collect();
    assert!(lines.as_ptr().is_aligned() && lines.iter().map(|line| usize::from(line.0)).sum::<usize>() == 4950);
    assert!(pages.iter().all(|page| core::ptr::from_ref(&**page).is_aligned()));
    assert_eq!(pages.iter().map(|page| usize::from(page.0)).sum::<usize>(), 190);
    for shift in 0..17 {
        let layout = Layout::from_size_align(3 << shift, 1 << shift).expect("small");
        // SAFETY: not of size 0; freed with the same layout.
        unsafe {
            let block = alloc(layout);
            assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()), "{layout:?}");
            block.write_bytes(0xa5, layout.size());
            dealloc(block, layout);
        }
    }
}

/// Zeroes, where something else was.
pub fn zeroed() {
    for size in [8, 100, 1000, 5000, 40_000] {
        let layout = Layout::array::<u8>(size).expect("small");
        let dirty: Vec<Vec<u8>> = (0..4).map(|_| vec![0xff; size]).collect();
        drop(dirty);
        // SAFETY: not of size 0; `size` bytes are read; freed with the same layout.
        unsafe {
            let block = alloc_zeroed(layout);
            assert!((0..size).all(|n| block.add(n).read() == 0), "{size}");
            dealloc(block, layout);
        }
    }
}

const ALONE: [fn(); 6] = [vectors, ordered_maps, strings, boxes, over_aligned, zeroed];

/// All of the above, on every processor at once, each beginning with another one.
pub fn on_all_cpus() {
    run_on_all(|cpu| (0..ALONE.len()).for_each(|n| ALONE[(cpu + n) % ALONE.len()]()));
}

/// Counts that all processors change; the last one frees.
pub fn shared_counts() {
    let shared = Arc::new(vec![7_u32; 300]);
    let watch = Arc::downgrade(&shared);
    let kept: Mutex<Vec<Arc<Vec<u32>>>> = Mutex::new(Vec::new());
    run_on_all(|_| {
        for _ in 0..200 {
            let mine = Arc::clone(&shared);
            assert_eq!(mine.iter().sum::<u32>(), 2100);
            kept.lock().push(mine);
        }
    });
    assert_eq!(Arc::strong_count(&shared), 1 + 200 * cpus());
    drop(shared);
    run_on_all(|_| while kept.lock().pop().is_some() {});
    assert_eq!(Weak::strong_count(&watch), 0);
}

/// A block with what must be in it.
struct Message {
    stamp: u8,
    body: Box<[u8]>,
    note: String,
}

/// Blocks that one processor allocates and the next one frees, round and round.
pub fn sent_between_cpus() {
    let boxes: [Mutex<VecDeque<Message>>; MAX_CPUS] = [const { Mutex::new(VecDeque::new()) }; MAX_CPUS];
    for round in 0..20_usize {
        run_on_all(|cpu| {
            for n in 0..50_usize {
                let stamp = (round * 31 + cpu * 7 + n) as u8;
                let body = vec![stamp; 1 + n * n % 1500].into_boxed_slice();
                let message = Message { stamp, body, note: format!("{stamp}") };
                boxes[(cpu + 1) % cpus()].lock().push_back(message);
            }
        });
        run_on_all(|cpu| {
            while let Some(Message { stamp, body, note }) = boxes[cpu].lock().pop_front() {
                assert!(body.iter().all(|byte| *byte == stamp) && note.parse() == Ok(stamp));
            }
        });
    }
}
