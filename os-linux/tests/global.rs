//! `Freestone` as a program's global allocator: this very test runs on it, harness and all.

use freestone_linux::rseq::{self, Suspension};
use freestone_linux::{Freestone, LinuxHeap, MmapPages, Mode, mode};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[global_allocator]
static ALLOCATOR: Freestone = Freestone;

const LIBRARY_TEST: &str = "collections_and_threads_work";

#[test]
fn collections_and_threads_work() {
    let count = |seed: u64| {
        let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
        for n in 0..20_000 {
            map.entry((n * seed) % 977).or_default().extend_from_slice(&n.to_le_bytes());
        }
        map.values().map(Vec::len).sum::<usize>()
    };
    let threads: Vec<_> = (1..9).map(|seed| thread::spawn(move || count(seed))).collect();
    for sum in threads {
        assert_eq!(sum.join().unwrap(), 160_000);
    }
    let stats = Freestone::heap().stats();
    assert!(stats.live_bytes > 0 && stats.held_bytes >= stats.live_bytes, "{stats:?}");
}

#[test]
fn every_layout_is_served_aligned_and_zeroed() {
    for align in (0..23).map(|shift| 1_usize << shift) {
        for size in [0, 1, 15, 16, 1000, 5000, 300_000, 3_000_000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: blocks are used within their layouts, and freed once with them. A size of 0 is served by this allocator.
            unsafe {
                let dirty = ALLOCATOR.alloc(layout);
                dirty.write_bytes(0xee, size);
                ALLOCATOR.dealloc(dirty, layout);
                let block = ALLOCATOR.alloc_zeroed(layout);
                assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                assert!(std::slice::from_raw_parts(block, size).iter().all(|b| *b == 0), "{layout:?}");
                block.write_bytes(0x5a, size);
                let longer = ALLOCATOR.realloc(block, layout, size * 2 + 1);
                assert!(std::slice::from_raw_parts(longer, size).iter().all(|b| *b == 0x5a), "{layout:?}");
                ALLOCATOR.dealloc(longer, Layout::from_size_align(size * 2 + 1, align).unwrap());
            }
        }
    }
}

#[test]
fn the_child_of_a_threaded_program_allocates() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let busy = || {
        let mut held = Vec::new();
        while !OVER.load(Ordering::Relaxed) {
            held.push(vec![1_u8; 40 + held.len() * 37 % 9000]);
            if held.len() == 100 {
                held.clear();
            }
        }
    };
    let threads: Vec<_> = (0..3).map(|_| thread::spawn(busy)).collect();
    for _ in 0..60 {
        // SAFETY: the child allocates, frees and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(10);
                let blocks: Vec<Vec<u8>> = (1..100).map(|n| vec![2; n * n]).collect();
                libc::_exit(i32::from(blocks.iter().any(|block| block.last() != Some(&2))));
            }
            let mut status = -1;
            libc::waitpid(child, &mut status, 0);
            assert_eq!(status, 0, "the child hung or found its heap broken");
        }
    }
    OVER.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_suspended_thread_allocates() {
    drop(vec![1_u8; 100]);
    for _ in 0..3 {
        let suspended = rseq::suspend();
        // The lists miss; the layers below serve.
        let blocks: Vec<_> = (0..100).map(|n| vec![n; 100]).collect();
        assert!(blocks.iter().zip(0..).all(|(block, n)| *block == [n; 100]));
        match (suspended, mode()) {
            (Suspension::Done(area), Mode::Rseq(_)) => rseq::resume(area),
            (Suspension::Unused, Mode::Claims) => {}
            strange => panic!("{strange:?}"),
        }
    }
}

#[test]
fn a_second_heap_is_dropped_with_all_it_holds() {
    let pages = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let use_one = || {
        let mut heap = LinuxHeap::new(MmapPages);
        for n in 0..2000 {
            let layout = Layout::from_size_align(n * 97, 16).unwrap();
            let block = heap.allocate(layout).unwrap();
            // SAFETY: a fresh block of that length.
            unsafe { block.write_bytes(1, layout.size()) };
        }
        assert!(heap.stats().live_bytes > 100 << 20);
        heap.check().unwrap();
    };
    use_one();
    let before = pages();
    (0..4).for_each(|_| use_one());
    // Other tests run meanwhile; one heap left behind would be 50,000 pages.
    assert!(pages() < before + 40_000, "{before} pages before, {} after", pages());
}

#[test]
fn configuration_is_reported_once() {
    let run = |conf: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // A preloaded library is a second copy, and would report, too.
        let command = command.args(["--exact", LIBRARY_TEST]).env("FREESTONE_CONF", conf).env_remove("LD_PRELOAD");
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(run("rseq=off"), "");
    assert_eq!(run(""), "");
    let text = run("colour=red,rseq=off,rseq=\u{7}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("freestone: ") && lines[0].contains("\"colour=red\"") && lines[0].contains("rseq=off"));
    assert!(lines[1].contains(r#""rseq=\x07""#), "{text}");
}
