//! Tide: how many bytes of objects are out of their spans, and when they have fallen.
//!
//! Caches are bounded by what the heap holds, and a cached block keeps its whole span from going back. So when little is left
//! of what was out, the caches are emptied: at each fall to half, and where there is a clock not more than [`MOST_FALLS`] times a
//! second (a heap whose tide comes and goes would fill them again). Where the caches held most of what was out, emptying them is a
//! fall of its own: other threads went on freeing meanwhile, and the next round finds what they left.
//!
//! Called by the central lists as chains pass. Relaxed: figures that may be a little late; nothing hangs on them.
#![forbid(unsafe_code)]

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What is out of all spans.
#[derive(Debug)]
pub(crate) struct Tide {
    /// Bytes of objects that are live, cached, on a shelf or queued. A chain is counted after it was taken, so it may wrap for
    /// a moment.
    out: AtomicUsize,
    /// The most since the last fall.
    high: AtomicUsize,
    /// The second of the last fall, and how many it has had.
    falls: AtomicU64,
}

/// Bytes from which a fall is worth emptying the caches.
const LEAST: usize = 256 << 10;
/// Falls that are told in a second.
const MOST_FALLS: u64 = 24;
const FALLS_BITS: u32 = 8;

impl Tide {
    pub(crate) const OUT: Self = Self { out: AtomicUsize::new(0), high: AtomicUsize::new(0), falls: AtomicU64::new(0) };

    /// Bytes were taken out of spans.
    pub(crate) fn rise(&self, bytes: usize) {
        let out = self.out.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        if out > self.high.load(Relaxed) && out <= isize::MAX as usize {
            self.high.store(out, Relaxed);
        }
    }

    /// Bytes went back to spans. Whether what is out has fallen to half of what was, and the caches are to be emptied now: each
    /// fall is told once, or where this second has had its falls, when the next one has come.
    pub(crate) fn fall(&self, bytes: usize, now_ms: impl FnOnce() -> Option<u64>) -> bool {
        let (out, high) = (self.out.fetch_sub(bytes, Relaxed).wrapping_sub(bytes), self.high.load(Relaxed));
        high >= LEAST
            && out < high / 2
            && now_ms().is_none_or(|now| self.may_tell(now / 1000))
            && self.high.compare_exchange(high, out, Relaxed, Relaxed).is_ok()
    }

    /// Whether this second has not had its falls yet.
    fn may_tell(&self, second: u64) -> bool {
        let one_more = |falls: u64| match (falls >> FALLS_BITS == second, falls & ((1 << FALLS_BITS) - 1)) {
            (true, told) => (told < MOST_FALLS).then_some(falls + 1),
            (false, _) => Some(second << FALLS_BITS | 1),
        };
        self.falls.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many falls are told as the bytes out go through `levels`; nothing is cached.
    fn told(tide: &Tide, now_ms: Option<u64>, levels: &[usize]) -> usize {
        let to = |level: &&usize| match level.checked_sub(tide.out.load(Relaxed)) {
            Some(more) => {
                tide.rise(more);
                false
            }
            None => tide.fall(tide.out.load(Relaxed) - **level, || now_ms),
        };
        levels.iter().filter(to).count()
    }

    #[test]
    fn a_fall_to_half_is_told_once() {
        let tide = Tide::OUT;
        assert_eq!(told(&tide, Some(0), &[0, 100, LEAST - 1, 0]), 0, "too little to tell of");
        assert_eq!(told(&tide, Some(0), &[40_000_000, 20_000_000, 19_999_999, 19_999_998, 10_000_000]), 1);
        assert_eq!(told(&tide, Some(0), &[9_999_998, 9_999_990]), 1, "half of what was left");
        assert_eq!(told(&tide, Some(0), &[40_000_000, 0, 0]), 1, "and again after it rose");
    }

    #[test]
    fn a_tide_that_comes_and_goes_is_told_so_often_a_second() {
        let tide = Tide::OUT;
        let goes = [LEAST, 0].repeat(100);
        assert_eq!(told(&tide, Some(5_999), &goes), MOST_FALLS as usize);
        assert!(!tide.fall(0, || Some(5_999)) && tide.fall(0, || Some(6_000)), "the last one is not lost");
        assert_eq!(told(&tide, Some(6_000), &goes), MOST_FALLS as usize - 1);
        assert_eq!(told(&tide, None, &goes), 100, "without a clock, always");
    }
}
