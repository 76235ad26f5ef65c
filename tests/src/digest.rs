//! What a heap did with a script, as one number: two homes that run the same script on equal heaps must come to the same.
//!
//! A kernel's self-test and its counterpart on the host call [`run`]; it drives a [`Replay`] over a `Recorded` heap. A
//! digest goes over every call of the heap in order: what was asked, whether it was served, and where the block lies,
//! counted from the start of the heap's memory. It says nothing about whether that was right, which the replay's oracle
//! does.

use crate::replay::{Failure, Replay, Supply, Why};
use crate::script::Script;
use crate::subject::{Audited, Fill, Path, Subject};
use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

/// Runs `steps` steps of `script` on `heap`, audited after each, and frees everything. The heap's memory begins at `start`;
/// it may run out.
pub fn run<S: Audited, const SLOTS: usize>(
    heap: &S,
    start: usize,
    script: Script,
    steps: u64,
) -> Result<Digest, Failure<Why<S::Broken>>> {
    let recorded = Recorded { heap, start, value: Cell::new(0) };
    let mut replay = Replay::<_, SLOTS>::new(&recorded, script, Supply::Failing);
    replay.run(steps)?;
    let refusals = replay.refusals();
    replay.finish()?;
    Ok(Digest { seed: script.seed, steps, refusals, value: recorded.value.get() })
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// The script's.
    pub seed: u64,
    /// How many of its steps were done.
    pub steps: u64,
    /// How many requests the heap answered with null.
    pub refusals: usize,
    /// Over all calls.
    pub value: u64,
}

/// `seed=0x7 steps=2000 refusals=31 digest=0x0123456789abcdef`.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, refusals, value } = self;
        write!(f, "seed={seed:#x} steps={steps} refusals={refusals} digest={value:#018x}")
    }
}

/// A heap whose calls are recorded.
#[derive(Debug)]
struct Recorded<'h, S> {
    heap: &'h S,
    start: usize,
    value: Cell<u64>,
}

impl<S> Recorded<'_, S> {
    fn note(&self, words: [u64; 3], block: Option<NonNull<u8>>) {
        // No block is at the address before the first one.
        let place = block.map_or(u64::MAX, |block| block.addr().get().wrapping_sub(self.start) as u64);
        let add = |value: u64, word: u64| (value.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.value.set(words.into_iter().chain([place]).fold(self.value.get(), add));
    }
}

impl<S: Subject> Subject for Recorded<'_, S> {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        let block = self.heap.allocate(layout, fill);
        self.note([fill as u64, layout.size() as u64, layout.align() as u64], block);
        block
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, path: Path) {
        self.note([2, layout.size() as u64, path as u64], Some(ptr));
        // SAFETY: the caller's promise.
        unsafe { self.heap.free(ptr, layout, path) }
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, path: Path) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        let block = unsafe { self.heap.reallocate(ptr, old, new_size, path) };
        self.note([3, old.size() as u64, new_size as u64], block);
        block
    }

    fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.heap.usable_size(ptr)
    }

    fn usable(&self, ptr: NonNull<u8>, layout: Layout) -> Option<usize> {
        self.heap.usable(ptr, layout)
    }

    fn trim(&self) -> usize {
        let bytes = self.heap.trim();
        self.note([4, bytes as u64, 0], None);
        bytes
    }
}

impl<S: Audited> Audited for Recorded<'_, S> {
    type Broken = S::Broken;

    fn live_bytes(&self) -> usize {
        self.heap.live_bytes()
    }

    fn check(&self) -> Result<(), S::Broken> {
        self.heap.check()
    }
}
