//! A heap on [`Linux`], in every mode, under threads that hand blocks to each other, signal handlers that allocate whatever
//! they came upon, trims that steal, and forks. Every block is filled with its owner's mark, which has to be there (512
//! bytes are looked at) when it is freed; at the end the heap checks itself and holds nothing. Also how a program ends that
//! frees what it must not.

mod support;

use freestone_core::{AddressSeal, Heap, Unsealed};
use freestone_linux::{Linux, LinuxHeap, MmapPages, fork, mode};
use std::alloc::Layout;
use std::os::unix::process::ExitStatusExt;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use support::{Random, Way, corrupt, going_on};

static HEAP: LinuxHeap = Heap::new(MmapPages);
const WORKERS: usize = 5;
const TIME: Duration = Duration::from_millis(2500);

#[test]
fn a_heap_on_the_area_of_libc() {
    match support::role() {
        None => support::run_well("a_heap_on_the_area_of_libc", "heap", Way::Libc),
        Some(_) => play(),
    }
}

#[test]
fn a_heap_on_an_own_area() {
    match support::role() {
        None => support::run_well("a_heap_on_an_own_area", "heap", Way::Own),
        Some(_) => play(),
    }
}

#[test]
fn a_heap_by_claims() {
    match support::role() {
        None => support::run_well("a_heap_by_claims", "heap", Way::Claims),
        Some(_) => play(),
    }
}

/// Names the heap for the fork handlers.
struct Tested;

// SAFETY: one static heap.
unsafe impl fork::ProcessHeap for Tested {
    type Home = Linux<Unsealed>;
    fn heap() -> &'static LinuxHeap {
        &HEAP
    }

    fn mask() -> &'static AtomicU64 {
        static MASK: AtomicU64 = AtomicU64::new(0);
        &MASK
    }
}

/// A block with its owner's mark in every byte. Owned by whoever has the value.
struct Filled {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

// SAFETY: owned memory.
unsafe impl Send for Filled {}

impl Filled {
    fn new(size: usize, mark: u8) -> Self {
        Self::try_new(size, mark).unwrap_or_else(|| corrupt("no memory"))
    }

    fn try_new(size: usize, mark: u8) -> Option<Self> {
        let layout = Layout::from_size_align(size, 16).ok()?;
        let start = HEAP.allocate(layout)?;
        // SAFETY: a fresh block of that length.
        unsafe { start.write_bytes(mark, size) };
        Some(Self { start, layout, mark })
    }

    fn check(&self) {
        // SAFETY: a block of that length, owned by this value.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) };
        let stride = 1 + bytes.len() / 512;
        if bytes.iter().step_by(stride).chain(bytes.last()).any(|byte| *byte != self.mark) {
            corrupt(&format!("a block of {} bytes at {:p} was written by another", self.layout.size(), self.start));
        }
    }

    fn resize(&mut self, size: usize) {
        self.check();
        // SAFETY: the block was given out with that layout.
        let Some(start) = (unsafe { HEAP.reallocate(self.start, self.layout, size) }) else { corrupt("no memory") };
        let kept =
            Self { start, layout: Layout::from_size_align(size.min(self.layout.size()), 16).unwrap(), mark: self.mark };
        kept.check();
        std::mem::forget(kept);
        // SAFETY: a block of that length.
        unsafe { start.write_bytes(self.mark, size) };
        (self.start, self.layout) = (start, Layout::from_size_align(size, 16).unwrap());
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.check();
        // SAFETY: the block was given out with that layout, and is freed once.
        unsafe { HEAP.deallocate(self.start, self.layout) }
    }
}

const MOST_PASSED_ON: usize = 200;
static PASSED_ON: Mutex<Vec<Filled>> = Mutex::new(Vec::new());
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);

fn play() {
    assert!(fork::guard::<Tested>());
    drop(Filled::new(1, 1));
    support::insist_on_mode();
    support::handle(interrupt);
    PASSED_ON.lock().unwrap().reserve(MOST_PASSED_ON + WORKERS);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=WORKERS).map(|me| scope.spawn(move || work(me))).collect();
        let pest = scope.spawn(support::pester);
        support::for_a_while(TIME, || {
            support::fork_and(|| {
                let held: Vec<_> = (1..200).map(|n| Filled::new(n * 61, 0xc4)).collect();
                drop(held);
            });
            HEAP.trim();
            std::thread::spawn(|| Filled::new(3000, 0x77).check());
            std::thread::sleep(Duration::from_millis(5));
        });
        pest.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    std::thread::sleep(Duration::from_millis(100));
    PASSED_ON.lock().unwrap().clear();
    // SAFETY: the workers are gone.
    unsafe { HEAP.check_quiescent() }.unwrap_or_else(|broken| corrupt(&broken.to_string()));
    let (done, handled) = (DONE.load(Ordering::Relaxed), HANDLED.load(Ordering::Relaxed));
    let stats = HEAP.stats();
    let refused = REFUSED.load(Ordering::Relaxed);
    let (rescued, queued) = (stats.rescued, stats.queued);
    println!("{:?}: {done} blocks, {handled} handled, {rescued} rescued, {queued} queued, {refused} refused", mode());
    // A block of a class that was made by rescue counts as live until it leaves the lists.
    HEAP.trim();
    let stats = HEAP.stats();
    assert_eq!((stats.live_bytes, stats.cached_bytes, stats.dirty_bytes), (0, 0, 0), "lost, or left by trim:\n{stats}");
    assert!(done > 5_000 && handled > 100, "too few operations to tell anything: {done} blocks, {handled} in handlers");
}

/// Allocates nothing but in the tested heap: the handler, which waits for that heap, would otherwise come upon libc's heap,
/// and the fork, which holds both, waits for libc's.
fn work(me: usize) {
    support::enlist();
    let mut random = Random(me as u64 * 0x9e37_79b9);
    let mut held: Vec<Filled> = Vec::with_capacity(100);
    let mut done = 0;
    while going_on() {
        if random.below(2000) == 0 {
            support::hop(random.below(64));
        }
        match random.below(8) {
            0 => pass_on(&mut held, &mut random),
            1 if !held.is_empty() => {
                let n = random.below(held.len());
                held[n].resize(size(&mut random));
            }
            2..=4 if held.len() > 40 => drop(held.swap_remove(random.below(held.len()))),
            _ if held.len() < 80 => {
                held.push(Filled::new(size(&mut random), me as u8));
                done += 1;
            }
            _ => held.truncate(40),
        }
    }
    DONE.fetch_add(done, Ordering::Relaxed);
}

/// Mostly small; now and then a run of pages, rarely a mapping of its own.
fn size(random: &mut Random) -> usize {
    match random.below(1000) {
        0 => random.below(5 << 20),
        1..20 => random.below(600_000),
        20..200 => random.below(20_000),
        _ => random.below(512),
    }
}

fn pass_on(held: &mut Vec<Filled>, random: &mut Random) {
    let mut others = PASSED_ON.lock().unwrap();
    if others.len() > MOST_PASSED_ON {
        let theirs = others.swap_remove(random.below(MOST_PASSED_ON));
        drop(others);
        drop(theirs);
    } else if let Some(mine) = held.pop() {
        others.push(mine);
    }
}

extern "C" fn interrupt(_: i32) {
    let round = HANDLED.fetch_add(1, Ordering::Relaxed);
    // A handler that came upon the page heap may be refused.
    let blocks = [64, 700, 30_000].map(|size| Filled::try_new(size + round % 50, 0xdd));
    REFUSED.fetch_add(blocks.iter().filter(|block| block.is_none()).count(), Ordering::Relaxed);
    drop(blocks);
}

#[test]
fn a_double_free_stops_the_program() {
    static SEALED: Heap<Linux<AddressSeal>> = Heap::new(MmapPages);
    // SAFETY: not kept at all, which is what the heap has to see.
    let free = |block| unsafe { SEALED.free(block) };
    let stop = |end: &dyn Fn(NonNull<u8>)| end(SEALED.allocate(Layout::new::<[u64; 9]>()).unwrap());
    match support::role().as_deref() {
        None => {}
        Some("twice") => return stop(&|block| [block; 2].into_iter().for_each(free)),
        Some("inside") => return stop(&|block| free(NonNull::new(block.as_ptr().wrapping_add(16)).unwrap())),
        Some(_) => return stop(&|_| free(NonNull::dangling())),
    }
    for (role, words) in [
        ("twice", "double free at 0x"),
        ("inside", "middle of a block at 0x"),
        ("foreign", "no live block of this heap at 0x1 "),
    ] {
        for way in [Way::Libc, Way::Claims] {
            let (status, text) = support::run("a_double_free_stops_the_program", role, way);
            assert_eq!(status.signal(), Some(libc::SIGABRT), "{role}: {text}");
            let lines: Vec<_> = text.lines().filter(|line| line.contains("freestone: ")).collect();
            assert!(lines.len() == 1 && lines[0].contains(words), "{role}: {text}");
        }
    }
}
