//! The memory that allocators get, and the slots for what they return. Called by whatever runs one of them.

use freestone_bench_bare::heap::{Heap, Slot};
use freestone_bench_bare::peer::Peer;
use freestone_bench_bare::trace::SLOTS;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::iter::repeat_with;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The sizes of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// 64 KiB.
    Small,
    /// 1 MiB.
    Middle,
    /// 16 MiB.
    Large,
}

impl Size {
    /// Bytes.
    pub const fn len(self) -> usize {
        match self {
            Self::Small => 64 << 10,
            Self::Middle => 1 << 20,
            Self::Large => 16 << 20,
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "64 KiB",
            Self::Middle => "1 MiB",
            Self::Large => "16 MiB",
        }
    }
}

/// What is in an arena before an allocator gets it.
const PATTERN: u8 = 0xa5;

/// A place to run allocators in, one after the other.
pub struct Ground {
    memory: NonNull<u8>,
    slots: Vec<Slot>,
}

impl Ground {
    const LAYOUT: Layout = match Layout::from_size_align(Size::Large.len(), Size::Large.len()) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    /// Memory and slots for arenas of every size.
    pub fn new() -> Self {
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc(Self::LAYOUT) }).unwrap_or_else(|| handle_alloc_error(Self::LAYOUT));
        Self { memory, slots: repeat_with(|| None).take(slots(Size::Large)).collect() }
    }

    /// Runs `work` on a fresh heap.
    pub fn on_a_heap<P: Peer, R>(&mut self, size: Size, work: impl FnOnce(&mut Heap<P>) -> R) -> R {
        // SAFETY: the memory is this ground's and at least so long; `MaybeUninit` needs no contents, and the borrow of this
        // ground keeps others away.
        let arena = unsafe { slice::from_raw_parts_mut(self.memory.as_ptr().cast::<MaybeUninit<u8>>(), size.len()) };
        arena.fill(MaybeUninit::new(PATTERN));
        let mut place = MaybeUninit::uninit();
        work(&mut Heap::open(&mut place, arena, &mut self.slots[..slots(size)]))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated it with this layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::LAYOUT) }
    }
}

/// Slots enough for everything that is done in an arena of that size.
fn slots(size: Size) -> usize {
    SLOTS.max(size.len() / 16)
}

/// Does `jobs` jobs, as many at a time as there are cores, each thread on a ground of its own. The results, in order.
pub fn in_parallel<R: Send>(what: &str, jobs: usize, job: impl Fn(&mut Ground, usize) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut ground = Ground::new();
        // Relaxed: the number is all that passes; joining the threads orders the results.
        let numbers = repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|&number| number < jobs);
        let done = |number| {
            eprintln!("{what}: {} of {jobs}", number + 1);
            (number, job(&mut ground, number))
        };
        numbers.map(done).collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("jobs do not panic")).collect()
    });
    results.sort_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        assert_eq!(in_parallel("test", 20, |_, number| number * 2), (0..20).map(|number| number * 2).collect::<Vec<_>>());
    }
}
