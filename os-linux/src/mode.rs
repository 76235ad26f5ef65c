//! How the lists of this process work: by restartable sequences, or by claims. Decided once, by the first `prepare` that knows
//! the configuration, and never changed: the two ways must not meet on one list. Called by `lists.rs` and `fork.rs`; calls
//! `conf.rs`, `rseq.rs`, `sys.rs` and `thread_lists.rs`.

use crate::{conf, rseq, sys, thread_lists};
use core::sync::atomic::{AtomicUsize, Ordering};

const UNDECIDED: usize = 0;
const CLAIMS: usize = 1;

/// [`UNDECIDED`], [`CLAIMS`], or the offset of the rseq area from the thread pointer: a multiple of 32 that is not 0, as the
/// thread pointer's own word lies at 0.
static WAY: AtomicUsize = AtomicUsize::new(UNDECIDED);

/// The way in which the lists of this process work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Not at all so far: everything misses.
    Undecided,
    /// By claims.
    Claims,
    /// By restartable sequences on the area at this offset from the thread pointer.
    Rseq(isize),
}

/// What was decided.
#[inline(always)]
pub fn mode() -> Mode {
    // Acquire pairs with the Release in `decide`: the number of slots is seen with the claims.
    match WAY.load(Ordering::Acquire) {
        UNDECIDED => Mode::Undecided,
        CLAIMS => Mode::Claims,
        offset => Mode::Rseq(offset.cast_signed()),
    }
}

/// The offset of the rseq area, where restartable sequences are the way: only for who knows that (a board of sections is
/// published after the decision for them).
#[inline(always)]
pub(crate) fn area() -> isize {
    // Relaxed: whoever may call this has seen what was published after it.
    WAY.load(Ordering::Relaxed).cast_signed()
}

/// Decides if nobody has, and takes the calling thread in where threads have to register.
pub(crate) fn settle() -> Mode {
    let settled = match mode() {
        Mode::Undecided => decide(),
        known => known,
    };
    if let Mode::Rseq(area) = settled {
        rseq::take_thread_in(area);
    }
    settled
}

/// Several contexts may come here at once: one of them decides for all.
#[cold]
fn decide() -> Mode {
    let Some(conf) = conf::get() else { return Mode::Undecided };
    let cores = sys::cores();
    let area = match conf.rseq {
        // A number that no core has: what the kernel says here of cores is not to be built on (`B3` in `board.rs`).
        conf::Rseq::On => rseq::find_area().filter(|area| rseq::core_at(*area).is_some_and(|core| core < cores.possible)),
        conf::Rseq::Off => None,
    };
    thread_lists::count_slots(&cores);
    let way = area.map_or(CLAIMS, isize::cast_unsigned);
    // Release pairs with the Acquire in `mode`; on failure nothing is read but the word, which `mode` loads again.
    let _ = WAY.compare_exchange(UNDECIDED, way, Ordering::Release, Ordering::Relaxed);
    mode()
}
