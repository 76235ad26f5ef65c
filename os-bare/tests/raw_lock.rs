//! The lock over a raw mutex that somebody else wrote.

mod support;

use freestone_bare::{Heap, NullOnContention, RawLock, Wide, arena};
use support::Thread;

type Raw = spin::Mutex<()>;

#[test]
fn raw_lock() {
    support::one_context_at_a_time::<RawLock<Raw, Thread>>();
    static HEAP: Heap<RawLock<Raw, Thread>, Wide> = Heap::new(arena!(64 * 1024));
    support::a_heap_serves_threads(&HEAP);
}

#[test]
fn raw_lock_and_null_on_contention() {
    support::one_context_at_a_time::<NullOnContention<RawLock<Raw, Thread>>>();
}
