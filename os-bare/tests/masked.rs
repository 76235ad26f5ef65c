//! The lock that is a critical section, by the implementation that the crate has for hosts.

mod support;

use freestone_bare::{Heap, Lock, Masked, NullOnContention, arena};
use freestone_core::Entry;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

#[test]
fn masked() {
    support::one_context_at_a_time::<Masked>();
    static HEAP: Heap = Heap::new(arena!(64 * 1024));
    support::a_heap_serves_threads(&HEAP);
}

#[test]
fn masked_and_null_on_contention() {
    support::one_context_at_a_time::<NullOnContention<Masked>>();
}

#[test]
fn nobody_comes_upon_the_holder() {
    static LOCK: Masked = Masked::NEW;
    static INSIDE: AtomicBool = AtomicBool::new(true);
    assert_eq!(LOCK.try_enter(), Entry::Got);
    let interrupt = thread::spawn(|| critical_section::with(|_| assert!(!INSIDE.load(SeqCst))));
    thread::sleep(Duration::from_millis(20));
    INSIDE.store(false, SeqCst);
    // SAFETY: inside.
    unsafe { LOCK.leave() };
    interrupt.join().unwrap();
}

#[test]
fn a_critical_section_may_call_the_heap() {
    static HEAP: Heap = Heap::new(arena!(4 * 1024));
    let outer = Masked::NEW;
    critical_section::with(|_| {
        let block = support::allocate(&HEAP, 100).unwrap();
        // Another lock of this type is another lock.
        assert_eq!(outer.try_enter(), Entry::Got);
        support::free(&HEAP, block);
        // SAFETY: inside.
        unsafe { outer.leave() };
    });
    support::its_own_context_is_recognised(&outer);
}
