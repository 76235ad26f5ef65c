//! What every lock has to show, alone and in a heap; and the contexts of a test, which are threads.
#![allow(dead_code)]

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use freestone_bare::{Context, Grain, Heap, Lock};
use freestone_core::Entry;
use std::thread;

/// Names threads.
pub struct Thread;

thread_local!(static HERE: u8 = const { 0 });

// SAFETY: two threads that are there at the same time have variables at two addresses; a signal handler has its thread's.
unsafe impl Context for Thread {
    fn id() -> NonZeroUsize {
        HERE.with(|here| NonNull::from(here).addr())
    }
}

struct Counted<L> {
    lock: L,
    count: UnsafeCell<(u64, u64)>,
}
// SAFETY: the count is used inside the lock only.
unsafe impl<L: Lock> Sync for Counted<L> {}

impl<L: Lock> Counted<L> {
    /// Counts one up in two steps; on every third call it only tries. The entries it got.
    fn count(&self, n: u64) -> u64 {
        if !n.is_multiple_of(3) {
            self.lock.enter();
        } else if self.lock.try_enter() != Entry::Got {
            return 0;
        }
        assert!(self.lock.is_mine());
        assert_eq!(self.lock.try_enter(), Entry::Mine);
        // SAFETY: inside the lock.
        let (a, b) = unsafe { &mut *self.count.get() };
        *a += 1;
        if n.is_multiple_of(64) {
            thread::yield_now();
        }
        *b += 1;
        assert_eq!(a, b);
        // SAFETY: inside.
        unsafe { self.lock.leave() };
        1
    }
}

/// Threads that count inside the lock, waiting and trying, lose no count.
pub fn one_context_at_a_time<L: Lock>() {
    let counted = &Counted { lock: L::NEW, count: UnsafeCell::new((0, 0)) };
    let entries: u64 = thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(|| (0..3000).map(|n| counted.count(n)).sum::<u64>()));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // SAFETY: the threads are gone.
    assert_eq!(unsafe { *counted.count.get() }, (entries, entries));
    its_own_context_is_recognised(&counted.lock);
}

/// A context that is inside reads so, and one that has left may enter again.
pub fn its_own_context_is_recognised(lock: &impl Lock) {
    for _ in 0..2 {
        assert!(!lock.is_mine());
        assert_eq!(lock.try_enter(), Entry::Got);
        assert_eq!((lock.try_enter(), lock.try_enter(), lock.is_mine()), (Entry::Mine, Entry::Mine, true));
        // SAFETY: inside.
        unsafe { lock.leave() };
    }
}

/// A block, filled with its number.
pub struct Filled {
    ptr: NonNull<u8>,
    layout: Layout,
    number: u8,
}

/// Of 1 to 300 bytes, aligned up to 64.
pub fn layout(number: usize) -> Layout {
    Layout::from_size_align(1 + number * 37 % 300, 1 << (number % 7)).expect("a layout")
}

pub fn allocate<K: Lock + 'static, G: Grain>(heap: &Heap<K, G>, number: usize) -> Option<Filled> {
    let (layout, number) = (layout(number), number as u8);
    let ptr = heap.allocate(layout)?;
    assert!(ptr.addr().get().is_multiple_of(layout.align()));
    // SAFETY: the block is that long.
    unsafe { ptr.write_bytes(number, layout.size()) };
    Some(Filled { ptr, layout, number })
}

/// Frees a block that nobody else has written to.
pub fn free<K: Lock + 'static, G: Grain>(heap: &Heap<K, G>, block: Filled) {
    let Filled { ptr, layout, number } = block;
    // SAFETY: a live block, read and then freed once.
    unsafe {
        let bytes = core::slice::from_raw_parts(ptr.as_ptr(), layout.size());
        assert!(bytes.iter().all(|byte| *byte == number), "somebody else has written to this block");
        heap.deallocate(ptr, layout);
    }
}

/// Threads that allocate, write and free on one heap do not meet in a block, and everything comes back.
pub fn a_heap_serves_threads<K: Lock + 'static, G: Grain>(heap: &'static Heap<K, G>) {
    let whole = heap.warm().expect("a region");
    thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut blocks = [const { None }; 16];
                for step in 0..5000 {
                    let block: &mut Option<Filled> = &mut blocks[step * 7 % 16];
                    *block = match block.take() {
                        Some(block) => {
                            free(heap, block);
                            None
                        }
                        None => allocate(heap, thread * 1000 + step),
                    };
                }
                blocks.into_iter().flatten().for_each(|block| free(heap, block));
            });
        }
    });
    all_is_free(heap, whole);
}

pub fn all_is_free<K: Lock + 'static, G: Grain>(heap: &Heap<K, G>, whole: usize) {
    assert_eq!(heap.trim(), whole);
    assert_eq!((heap.stats().live_bytes, heap.stats().largest_free), (0, whole));
    // SAFETY: nobody else is in the heap.
    unsafe { heap.check_quiescent() }.unwrap();
}
