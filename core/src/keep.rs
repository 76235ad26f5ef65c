//! Keep: how much free memory may stay resident. The policy of the page heap, apart from its mechanism.
//!
//! **Giving back without a thread or a timer.** The page heap enforces a cap whenever pages come back: a quarter of what is
//! live, at least 2 MiB, plus a boost. The boost grows when pages are wanted again that were just given back (a purge that
//! saved nothing), and a clock, where the home has one, halves it every second. A clock never keeps more.
//!
//! **The peak.** What is kept while less is live than before does not add to the most that the heap ever took. So the cap is
//! generous, and a second, lean one holds at the moments when the heap grows beyond that peak: then free pages that nothing
//! fits into go first. Not more of them than twice what the peak grew by, all in all: a heap that grows has holes to fill, one that
//! only churns would give back what it takes again.
//!
//! **The fall.** Caches are measured by what the heap holds, and a cached block keeps its whole span. When little is left of
//! what was live, they are emptied.
#![forbid(unsafe_code)]

/// How many dirty pages may stay.
#[derive(Debug)]
pub(crate) struct Keep {
    boost: usize,
    /// Pages given back that nobody has wanted again yet.
    regrettable: usize,
    last_ms: u64,
    /// The most pages that were ever live or dirty.
    peak: usize,
    /// Pages that may still be given back at peaks: twice as many as the peak grew by.
    slack: usize,
    /// The most live pages of spans since the caches were last emptied for a fall.
    high: usize,
}

impl Keep {
    pub(crate) const LEAST: usize = 2 << 20 >> 12;
    const MOST_BOOST: usize = 16 << 20 >> 12;

    const MOST_REGRET: usize = 64 << 20 >> 12;

    /// Nothing learnt yet.
    pub(crate) const NEW: Self = Self { boost: 0, regrettable: 0, last_ms: 0, peak: 0, slack: 0, high: 0 };

    /// Forgets what was learnt.
    pub(crate) fn reset(&mut self) {
        (self.boost, self.regrettable) = (0, 0);
    }

    /// The cap, in pages, of a heap with `live` pages in use.
    pub(crate) fn cap(&self, live: usize) -> usize {
        Self::LEAST.max(live / 4) + self.boost.min(Self::most_boost(live))
    }

    fn most_boost(live: usize) -> usize {
        Self::MOST_BOOST + 8 * live
    }

    /// Whether more was wanted again than may be kept: what is given back now will be wanted soon.
    pub(crate) fn churns(&self, live: usize) -> bool {
        self.boost > Self::most_boost(live)
    }

    /// How many of its `dirty` free pages a heap that takes more than ever before has to give back, if it has `live` ones in use.
    pub(crate) fn over_peak(&self, live: usize, dirty: usize) -> usize {
        let lean = (Self::LEAST / 4).max(live / 32);
        if live + dirty > self.peak { dirty.saturating_sub(lean).min(self.slack) } else { 0 }
    }

    /// Notes how many pages of spans are live.
    pub(crate) fn rises(&mut self, live: usize) {
        self.high = self.high.max(live);
    }

    /// Whether the heap has fallen to a quarter of what was live: then the caches, which were measured by that, keep spans from
    /// going back whole. Each fall is told once.
    pub(crate) fn falls(&mut self, live: usize) -> bool {
        let falls = self.high >= Self::LEAST && live < self.high / 4;
        self.high = if falls { live } else { self.high.max(live) };
        falls
    }

    /// Pages were given back at a peak.
    pub(crate) fn slimmed(&mut self, pages: usize) {
        self.slack = self.slack.saturating_sub(pages);
    }

    /// Notes how much the heap takes.
    pub(crate) fn note_peak(&mut self, live: usize, dirty: usize) {
        let more = (live + dirty).saturating_sub(self.peak);
        (self.peak, self.slack) = (self.peak + more, self.slack + 2 * more);
    }

    /// Pages were taken that are not resident: where they had just been given back, that was a mistake.
    pub(crate) fn wanted(&mut self, pages: usize) {
        let regretted = pages.min(self.regrettable);
        self.regrettable -= regretted;
        self.boost = (self.boost + regretted).min(Self::MOST_REGRET);
    }

    /// Pages were given back.
    pub(crate) fn gave_back(&mut self, pages: usize) {
        self.regrettable = (self.regrettable + pages).min(Self::MOST_REGRET);
    }

    /// Lets what was learnt fade: half of it a second.
    pub(crate) fn tick(&mut self, now_ms: Option<u64>) {
        let Some(now) = now_ms else { return };
        let seconds = (now.saturating_sub(self.last_ms) / 1000).min(63);
        if seconds > 0 {
            (self.boost, self.regrettable, self.last_ms) = (self.boost >> seconds, self.regrettable >> seconds, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_to_a_quarter_is_told_once() {
        let mut keep = Keep::NEW;
        let mut falls = |lives: &[usize]| lives.iter().filter(|live| keep.falls(**live)).count();
        assert_eq!(falls(&[0, 100, Keep::LEAST - 1, 0]), 0, "too little to tell of");
        assert_eq!(falls(&[40_000, 20_000, 10_000, 9_999, 9_998, 5_000]), 1);
        assert_eq!(falls(&[2_499, 2_498]), 1, "a quarter of what was left");
        assert_eq!(falls(&[40_000, 0, 0]), 1, "and again after it rose");
    }

    #[test]
    fn peaks_give_back_twice_what_they_grew_by() {
        let mut keep = Keep::NEW;
        keep.note_peak(10_000, 0);
        assert_eq!(keep.over_peak(9_000, 1_000), 0, "no peak");
        assert_eq!(keep.over_peak(10_000, 2_000), 2_000 - 10_000 / 32);
        keep.slimmed(19_900);
        assert_eq!(keep.over_peak(10_000, 2_000), 100, "what is left of it");
    }
}
