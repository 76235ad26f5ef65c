//! Random operations against the shadow oracle: on one processor with the heap's own check after each, and on all at once.
//!
//! The kernels call these with a heap of the kind that they test, and look afterwards whether everything came back.

use alloc::vec::Vec;
use core::alloc::Layout;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_machine::{cpus, run_on_all};
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::{Audited, Fill, Path, Subject};

/// Live blocks a processor.
const SLOTS: usize = 64;

/// Runs a script on a heap that nobody else uses, and audits the heap after each step. Frees everything; returns how many
/// requests were refused.
pub fn audited<S: Audited>(heap: &S, script: Script, steps: u64, supply: Supply) -> usize {
    let mut replay = Replay::<_, SLOTS>::new(heap, script, supply);
    replay.run(steps).unwrap_or_else(|failure| panic!("{failure}"));
    let refusals = replay.refusals();
    replay.finish().unwrap_or_else(|failure| panic!("{failure}"));
    refusals
}

/// Runs a script of its own on every processor at once, on one heap. Frees everything; returns how many requests were
/// refused.
pub fn on_all_cpus<S: Subject + Sync>(heap: &S, sizes: Sizes, seed: u64, steps: u64, supply: Supply) -> usize {
    let refusals = AtomicUsize::new(0);
    run_on_all(|cpu| {
        let script = Script { seed: seed * 100 + cpu as u64, sizes };
        let mut replay = Replay::<_, SLOTS>::new(heap, script, supply);
        for _ in 0..steps / cpus() as u64 {
            replay.step().unwrap_or_else(|failure| panic!("{failure}"));
        }
        replay.free_all().unwrap_or_else(|failure| panic!("{failure}"));
        refusals.fetch_add(replay.refusals(), Relaxed);
    });
    refusals.into_inner()
}

/// Allocates until null and frees all; how many there were.
pub fn fill_and_free<S: Subject>(heap: &S, layout: Layout) -> usize {
    let mut blocks = Vec::new();
    blocks.extend(core::iter::from_fn(|| heap.allocate(layout, Fill::Any)));
    // SAFETY: each is a live block of this layout, and freed once.
    blocks.iter().for_each(|block| unsafe { heap.free(*block, layout, Path::Layout) });
    blocks.len()
}
