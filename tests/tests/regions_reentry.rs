//! Interrupts in the middle of a region heap: at each lock entry and each leave, a handler allocates, shrinks and frees on
//! the same heap, in the context that is inside (case K36).
//!
//! An interrupt that finds the lock taken gets null for an allocation, and its frees are queued; whoever holds the lock
//! takes back two of them at most, and all of them before it says null itself. Nothing is lost on the way.

use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use freestone_core::{Compact, Fine, Grain, RegionError, Tiny, Wide};
use freestone_tests::arena::{Arena, Cached, Housed, InArena, Uncached};
use freestone_tests::home::Core;
use freestone_tests::interrupt::{Requests, with_handler};
use freestone_tests::piece::{Piece, Served};
use freestone_tests::regions::{AloneInRegions, Regional};
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::run::Case;
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::{Audited, Fill, Path, Subject};

type Plain<G> = AloneInRegions<Uncached<G>>;

fn new<S: Subject>(heap: &S, size: usize) -> Piece<'_, S> {
    Piece::new(heap, size, 1, size as u64)
}

/// Whether the running code has interrupted the holder of the lock, who else would say what the heap holds.
fn inside(heap: &impl Regional) -> bool {
    heap.figures().held_bytes == 0
}

/// What interrupts do.
struct Handler<'h, S: Subject> {
    requests: Requests<'h, S>,
    shrunk: Cell<usize>,
}

impl<'h, S: Subject> Handler<'h, S> {
    const KEPT: usize = 12;

    fn new(heap: &'h S) -> Self {
        Self { requests: Requests::new(heap, Self::KEPT), shrunk: Cell::new(0) }
    }

    /// A short-lived block, one that stays, one that becomes shorter, and frees of what stayed long.
    fn interrupt(&self) {
        let requests = &self.requests;
        let turn = requests.served.get() + requests.refused.get();
        let size = [16, 24, 100, 60, 8, 200][turn % 6];
        requests.allocate(size).map_or(Ok(()), |piece| piece.free(Path::Layout)).unwrap();
        let mut kept = requests.kept.borrow_mut();
        if kept.len() < Self::KEPT {
            kept.extend(requests.allocate(size));
        } else {
            kept.drain(..Self::KEPT / 2).for_each(|piece| piece.free(Path::Layout).unwrap());
        }
        let len = kept.len().max(1);
        if let Some(piece) = kept.get_mut(turn % len) {
            let (old, size) = (piece.usable(), piece.layout().size() / 2);
            assert_eq!(piece.reallocate(size, Path::Layout, turn as u64), Ok(Served::Yes), "shrinking is always possible");
            self.shrunk.set(self.shrunk.get() + usize::from(piece.usable() < old));
        }
    }

    fn live_bytes(&self) -> usize {
        self.requests.kept.borrow().iter().map(Piece::usable).sum()
    }
}

/// A run of a script in `space` bytes, with interrupts all over it.
fn interrupted<H: Housed + Audited>(test: &'static str, space: usize, sizes: Sizes) {
    Case { binary: "regions_reentry", test }.run(3, 1500, |seed, steps| {
        Core::set(0);
        let mut arena = Arena::new(space + 128);
        let heap: InArena<'_, H> = arena.heap();
        heap.add(64..64 + space).unwrap();
        let mut replay = Replay::<_, 32>::new(&*heap, Script { seed, sizes }, Supply::Failing);
        let handler = Handler::new(&*heap);
        let mut fired = 0;
        for n in 0..steps {
            let mut outcome = Ok(());
            fired += with_handler(&|| handler.interrupt(), || outcome = replay.step().map(|_| ()));
            outcome.map_err(|failure| failure.to_string())?;
            heap.check().map_err(|broken| format!("seed {seed:#x}, step {n}: {broken}"))?;
            let (oracle, live) = (replay.shadow().live_bytes() + handler.live_bytes(), heap.live_bytes());
            assert_eq!(oracle, live, "seed {seed:#x}, step {n}: live bytes by the oracle and by the heap");
        }
        handler.requests.kept.borrow_mut().clear();
        replay.finish().map_err(|failure| failure.to_string())?;
        heap.trim();
        let figures = heap.figures();
        let Handler { requests, shrunk } = &handler;
        let (served, refused, shrunk) = (requests.served.get(), requests.refused.get(), shrunk.get());
        eprintln!("{fired} interrupts: {served} served, {refused} refused, {shrunk} shrunk; {figures:?}");
        assert!(fired as u64 > steps / 4 && refused > 100 && shrunk > 100, "too few interrupts to mean anything");
        assert!(figures.refused > 0 && figures.queued > 100, "interrupts met the lock");
        assert_eq!((figures.live_bytes, figures.largest_free), (0, figures.held_bytes), "nothing is lost");
        heap.expect_canaries();
        Ok::<_, String>(())
    });
}

#[test]
fn without_cache() {
    interrupted::<Plain<Compact>>("without_cache", 12 << 10, Sizes::Below(11));
}

#[test]
fn with_cache() {
    interrupted::<AloneInRegions<Cached<Compact, 1>>>("with_cache", 12 << 10, Sizes::Below(11));
}

#[test]
fn of_eight_kib() {
    interrupted::<AloneInRegions<Cached<Tiny, 1>>>("of_eight_kib", 6 << 10, Sizes::Below(10));
}

#[test]
fn fine() {
    interrupted::<AloneInRegions<Cached<Fine, 4>>>("fine", 12 << 10, Sizes::Below(11));
}

#[test]
fn wide() {
    interrupted::<Plain<Wide>>("wide", 16 << 10, Sizes::Below(11));
}

/// Runs `body`, and `once` in the first interrupt that comes upon the holder of the lock in it.
fn interrupt_once(heap: &impl Regional, once: impl Fn(), body: impl FnOnce()) {
    let done = Cell::new(false);
    let handler = || {
        if !done.get() && inside(heap) {
            done.set(true);
            once();
        }
    };
    with_handler(&handler, body);
    assert!(done.get(), "an interrupt came upon the holder");
}

/// Ten blocks are freed while the lock is held. Each holder takes two of them back, counted by what is left.
#[test]
fn a_holder_takes_two_back() {
    let mut arena = Arena::new(4096);
    let heap: InArena<'_, Plain<Compact>> = arena.heap();
    heap.add(0..4096).unwrap();
    let victims = RefCell::new((0..10).map(|_| new(&*heap, 64)).collect::<Vec<_>>());
    let before = heap.figures();
    let mut own = None;
    interrupt_once(&*heap, || victims.borrow_mut().clear(), || own = Some(new(&*heap, 8)));
    // The interrupted allocation was a holder, and so is each look.
    for left in [6, 4, 2, 0, 0] {
        let figures = heap.figures();
        assert_eq!(figures.queued_bytes, left * 64);
        assert_eq!(figures.free_bytes, before.free_bytes - 8 + (10 - left) * 64);
        assert_eq!((figures.live_bytes, figures.queued - before.queued), (8, 10));
    }
    heap.check().unwrap();
    drop(own);
    assert_eq!(heap.figures().free_bytes, heap.figures().held_bytes);
}

/// A free is a holder as well; and what is queued behind its back, after it looked, it takes back when it has left.
#[test]
fn a_free_takes_two_back() {
    let mut arena = Arena::new(4096);
    let heap: InArena<'_, Plain<Compact>> = arena.heap();
    heap.add(0..4096).unwrap();
    let (own, victims) = (new(&*heap, 8), RefCell::new((0..10).map(|_| new(&*heap, 64)).collect::<Vec<_>>()));
    interrupt_once(&*heap, || victims.borrow_mut().clear(), || drop(own));
    let left = heap.figures().queued_bytes / 64;
    assert_eq!(left, 6, "two by the free, two by the look");
    // The other way: every interrupt frees one, wherever it comes; nobody ever holds more than two turns' worth back.
    heap.trim();
    let held: Vec<_> = (0..20).map(|_| new(&*heap, 16)).collect();
    let victims = RefCell::new((0..20).map(|_| new(&*heap, 64)).collect::<Vec<_>>());
    with_handler(&|| drop(victims.borrow_mut().pop()), || drop(held));
    assert!(victims.borrow().is_empty() && heap.figures().queued > 10);
    assert!(heap.figures().queued_bytes <= 2 * 64);
    heap.trim();
    assert_eq!(heap.figures().free_bytes, heap.figures().held_bytes);
    heap.check().unwrap();
}

/// The heap is full, and what an interrupt frees meanwhile is just what is asked for.
#[test]
fn all_that_is_queued_comes_back_before_null() {
    let mut arena = Arena::new(4096);
    let heap: InArena<'_, Plain<Compact>> = arena.heap();
    heap.add(0..4096).unwrap();
    let small = Layout::from_size_align(64, 1).unwrap();
    let mut blocks: Vec<_> = core::iter::from_fn(|| Piece::allocate(&*heap, small, Fill::Any, 0).unwrap()).collect();
    let victims = RefCell::new(blocks.split_off(blocks.len() - 10));
    let mut large = None;
    interrupt_once(&*heap, || victims.borrow_mut().clear(), || large = Some(new(&*heap, 640)));
    assert_eq!(heap.figures().queued_bytes, 0);
    heap.check().unwrap();
}

/// The tail of a block that becomes shorter in an interrupt is queued: a single granule, and more granules than a note holds.
#[test]
fn the_tail_of_a_block_that_shrinks_in_an_interrupt_comes_back() {
    fn shrinks<G: Grain>(space: usize, from: usize, to: usize) {
        let mut arena = Arena::new(space);
        let heap: InArena<'_, Plain<G>> = arena.heap();
        heap.add(0..space).unwrap();
        let before = heap.figures();
        let block = RefCell::new(new(&*heap, from));
        let mut own = None;
        let shrink = || assert_eq!(block.borrow_mut().reallocate(to, Path::Layout, 7), Ok(Served::Yes));
        interrupt_once(&*heap, shrink, || own = Some(new(&*heap, 8)));
        block.borrow().verify().unwrap();
        heap.trim();
        heap.check().unwrap();
        let live = block.borrow().usable() + own.as_ref().map_or(0, Piece::usable);
        assert_eq!((heap.figures().live_bytes, heap.figures().queued), (live, before.queued + 1));
        drop((block, own));
        assert_eq!(heap.figures().largest_free, before.largest_free);
    }
    shrinks::<Fine>(4096, 24, 16);
    shrinks::<Tiny>(4096, 16, 1);
    shrinks::<Wide>(4096, 32, 16);
    shrinks::<Compact>(500 << 10, 400 << 10, 8);
    shrinks::<Fine>(1 << 20, 900 << 10, 16);
    // 65,535 granules are the most that a note says; then 65,536.
    for tail in [65_534, 65_535, 65_536, 65_537] {
        shrinks::<Fine>(1 << 20, 16 + tail * 8, 16);
    }
}

/// In an interrupt that comes upon the lock: no regions, no figures, and growth only within the block.
#[test]
fn what_needs_the_lock_is_refused() {
    let mut arena = Arena::new(8192);
    let heap: InArena<'_, AloneInRegions<Cached<Compact, 1>>> = arena.heap();
    heap.add_growable(0..1024, 4096).unwrap();
    let block = RefCell::new(new(&*heap, 100));
    let look = || {
        assert_eq!(heap.add(5000..6000), Err(RegionError::Reentered));
        assert_eq!(heap.extend(0, 2048), Err(RegionError::Reentered));
        assert_eq!(heap.heap().warm(), Err(RegionError::Reentered));
        assert!(!heap.owns(block.borrow().as_ptr()) && heap.figures().held_bytes == 0);
        assert_eq!(block.borrow_mut().reallocate(104, Path::Layout, 1), Ok(Served::Yes));
        assert_eq!(block.borrow_mut().reallocate(105, Path::Layout, 2), Ok(Served::No));
        heap.trim();
    };
    interrupt_once(&*heap, look, || drop(new(&*heap, 500)));
    assert_eq!(heap.figures().regions, 1);
    heap.check().unwrap();
}

/// A hit takes no lock: what an interrupt finds in its core's lists, it gets.
#[test]
fn a_hit_is_served_inside_the_lock() {
    Core::set(0);
    let mut arena = Arena::new(8192);
    let heap: InArena<'_, AloneInRegions<Cached<Compact, 1>>> = arena.heap();
    heap.add(0..8192).unwrap();
    (0..4).for_each(|_| drop((new(&*heap, 40), new(&*heap, 40))));
    assert!(heap.figures().cached_bytes >= 40);
    let hit = || drop(Piece::new(&*heap, 40, 8, 9));
    interrupt_once(&*heap, hit, || drop(new(&*heap, 500)));
    assert_eq!(heap.figures().refused, 0);
    heap.check().unwrap();
}
