//! The locks that need no feature: under contention, entered again, in a heap; and what happens where nobody waits.

mod support;

use freestone_bare::{Fine, Heap, Lock, NoLock, NullOnContention, OneThread, Spin, Tiny, Wide, arena};
use freestone_core::Entry;
use std::alloc::Layout;
use std::sync::Barrier;
use std::thread;
use support::Thread;

struct OneTest;
// SAFETY: each of the locks below is used by one thread.
unsafe impl OneThread for OneTest {}

#[test]
fn spin() {
    support::one_context_at_a_time::<Spin<Thread>>();
    static HEAP: Heap<Spin<Thread>> = Heap::new(arena!(64 * 1024));
    support::a_heap_serves_threads(&HEAP);
}

#[test]
fn null_on_contention() {
    let lock = NullOnContention::<Spin<Thread>>::NEW;
    support::its_own_context_is_recognised(&lock);
    lock.enter();
    // `Busy` would make a heap wait.
    let entry = thread::scope(|scope| scope.spawn(|| (lock.try_enter(), lock.is_mine())).join().unwrap());
    assert_eq!(entry, (Entry::Mine, false));
    support::one_context_at_a_time::<NullOnContention<Spin<Thread>>>();
    static HEAP: Heap<NullOnContention<Spin<Thread>>, Wide> = Heap::new(arena!(64 * 1024));
    support::a_heap_serves_threads(&HEAP);
}

#[test]
fn no_lock() {
    support::its_own_context_is_recognised(&NoLock::<OneTest>::NEW);
    static HEAP: Heap<NoLock<OneTest>, Tiny> = Heap::new(arena!(4 * 1024));
    let whole = HEAP.warm().unwrap();
    let blocks: Vec<_> = (0..20).map_while(|number| support::allocate(&HEAP, number)).collect();
    blocks.into_iter().for_each(|block| support::free(&HEAP, block));
    support::all_is_free(&HEAP, whole);
}

/// A lock that the test can hold, too.
struct Shared;
static SHARED: Spin<Thread> = Spin::NEW;

// SAFETY: one lock, whatever the number of values.
unsafe impl Lock for Shared {
    const NEW: Self = Self;
    fn try_enter(&self) -> Entry {
        SHARED.try_enter()
    }
    fn wait(&self) {
        SHARED.wait();
    }
    fn is_mine(&self) -> bool {
        SHARED.is_mine()
    }
    unsafe fn leave(&self) {
        // SAFETY: the caller's promise.
        unsafe { SHARED.leave() }
    }
}

/// Runs `body` while another thread is inside the lock.
fn while_another_is_inside(body: impl FnOnce()) {
    let (entered, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            SHARED.enter();
            entered.wait();
            done.wait();
            // SAFETY: inside.
            unsafe { SHARED.leave() };
        });
        entered.wait();
        body();
        done.wait();
    });
}

#[test]
fn where_nobody_waits_allocations_are_null_and_frees_are_queued() {
    static HEAP: Heap<NullOnContention<Shared>, Fine> = Heap::new(arena!(64 * 1024));
    let (long, short) = (Layout::new::<[u8; 4096]>(), Layout::new::<[u8; 1024]>());
    let whole = HEAP.warm().unwrap();
    let [a, b] = [HEAP.allocate(long), HEAP.allocate(long)].map(|block| block.unwrap());
    while_another_is_inside(|| {
        assert_eq!(HEAP.allocate(short), None);
        // SAFETY: live blocks of these layouts; what could not be lengthened is as it was.
        unsafe {
            assert_eq!(HEAP.reallocate(a, long, 8192), None);
            HEAP.deallocate(a, long);
            assert_eq!(HEAP.reallocate(b, long, short.size()), Some(b), "shrinking needs no lock");
        }
    });
    // The block and the tail of the other one, and whoever comes next takes both back.
    let stats = HEAP.stats();
    assert_eq!((stats.queued, stats.queued_bytes), (2, long.size() + long.size() - short.size()));
    assert!(stats.refused >= 1 && stats.live_bytes == short.size());
    // SAFETY: a live block; nobody else is in the heap.
    unsafe {
        HEAP.check_quiescent().unwrap();
        HEAP.deallocate(b, short);
        HEAP.check_quiescent().unwrap();
    }
    let stats = HEAP.stats();
    assert_eq!((stats.queued_bytes, stats.free_bytes, stats.largest_free), (0, whole, whole));
}

#[test]
fn null_comes_only_after_everything_queued_is_back() {
    static HEAP: Heap<NullOnContention<Shared>> = Heap::new(arena!(64 * 1024));
    let layout = Layout::new::<[u8; 1000]>();
    let blocks: Vec<_> = std::iter::from_fn(|| HEAP.allocate(layout)).collect();
    assert!(blocks.len() > 60);
    while_another_is_inside(|| {
        // SAFETY: live blocks of this layout.
        blocks.iter().for_each(|block| unsafe { HEAP.deallocate(*block, layout) });
    });
    let all_but_some = Layout::new::<[u8; 60_000]>();
    let block = HEAP.allocate(all_but_some).expect("what was queued");
    // SAFETY: a live block of this layout.
    unsafe { HEAP.deallocate(block, all_but_some) };
}
