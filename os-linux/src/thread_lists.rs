//! Which slab a thread uses where there are no restartable sequences (old kernels, sandboxes, valgrind, a second copy in the
//! process, `rseq=off`): its lists go by the core's [`claim`](freestone_core::claim), and a hash of the thread pointer picks
//! the slab. Called by `lists.rs` and `mode.rs`; calls `sys.rs`.
//!
//! Lists in TLS would be faster, but belong to one heap, have to be emptied when a thread ends, and cannot be stolen from.
//! Slots serve every heap, leave nothing behind, and number what the machine's cores ask for, however many threads there are.
//! Two threads on one slot share its lists; that costs a miss now and then.

use crate::sys::{self, Cores};
use core::sync::atomic::{AtomicUsize, Ordering};

const SLOTS_A_CORE: usize = 4;
const LEAST_SLOTS: usize = 8;
const MOST_SLOTS: usize = 64;
/// 2^64 divided by the golden ratio: multiplying by it spreads thread pointers, which differ by the length of a stack.
const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;

/// 64 minus log2 of the number of slots; 0 until counted.
static SHIFT: AtomicUsize = AtomicUsize::new(0);

/// The slot of the calling thread. Only after [`count_slots`].
#[inline(always)]
pub(crate) fn slot_number() -> usize {
    // Relaxed: stored before the decision for claims is published (`mode.rs`), and this is only called after it.
    let shift = SHIFT.load(Ordering::Relaxed);
    sys::thread_pointer().wrapping_mul(SPREAD).wrapping_shr(shift as u32)
}

/// Fixes the number of slots, once: some for each core that the process may use now.
pub(crate) fn count_slots(cores: &Cores) {
    let slots = (cores.allowed * SLOTS_A_CORE).clamp(LEAST_SLOTS, MOST_SLOTS).next_power_of_two();
    let shift = (usize::BITS - slots.ilog2()) as usize;
    // Relaxed: the decision publishes it. The first count stands, as others may have used it.
    let _ = SHIFT.compare_exchange(0, shift, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn threads_get_slots_in_range() {
        count_slots(&sys::cores());
        let slots = 1 << (usize::BITS as usize - SHIFT.load(Ordering::Relaxed));
        assert!((LEAST_SLOTS..=MOST_SLOTS).contains(&slots));
        let gate = std::sync::Barrier::new(32);
        let picked: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
            let pick = || (slot_number(), gate.wait()).0;
            let threads: std::vec::Vec<_> = (0..32).map(|_| scope.spawn(pick)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(picked.iter().all(|slot| *slot < slots));
        assert!(picked.len() > slots / 4, "32 live threads fill few of {slots} slots: {picked:?}");
    }
}
