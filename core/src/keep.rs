//! Keep: how much free memory may stay resident. The policy of the page heap, apart from its mechanism.
//!
//! **Giving back without a thread or a timer.** The page heap enforces a cap whenever pages come back: a quarter of what is
//! live, at least 2 MiB, plus a boost. The boost grows when pages are wanted again that were just given back (a purge that
//! saved nothing), and shrinks by what is kept in vain: where the home has a clock, each second by half of the pages that stayed
//! free all through it. A clock never keeps more.
//!
//! **The peak.** What is kept while less is live than before does not add to the most that the heap ever took. So the cap is
//! generous, and a second, lean one holds at the moments when the heap grows beyond that peak: then free pages that nothing
//! fits into go first. Not more of them than twice what the peak grew by, all in all: a heap that grows has holes to fill, one that
//! only churns would give back what it takes again.
#![forbid(unsafe_code)]

/// How many dirty pages may stay.
#[derive(Debug)]
pub(crate) struct Keep {
    boost: usize,
    /// Pages given back that nobody has wanted again yet.
    regrettable: usize,
    last_ms: u64,
    /// The fewest dirty pages since the last tick: so many were kept for nothing.
    spare: usize,
    /// The most pages that were ever live or dirty, but for the last sixty-fourth.
    peak: usize,
    /// Pages that may still be given back at peaks: twice as many as the peak grew by.
    slack: usize,
}

impl Keep {
    pub(crate) const LEAST: usize = 2 << 20 >> 12;
    const MOST_BOOST: usize = 64 << 20 >> 12;

    const MOST_REGRET: usize = 112 << 20 >> 12;

    /// Nothing learnt yet.
    pub(crate) const NEW: Self = Self { boost: 0, regrettable: 0, last_ms: 0, spare: 0, peak: 0, slack: 0 };

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
        let over = self.over(live, dirty);
        // A little more, so that not every page beyond the peak costs a call.
        if over > 0 { dirty.saturating_sub(lean).min(self.slack).min(over + live / 64) } else { 0 }
    }

    /// Pages beyond the peak: more than a few, or none. What comes and goes is not alike to the page each time.
    fn over(&self, live: usize, dirty: usize) -> usize {
        let most = live + dirty;
        if most > self.peak + self.peak / 64 { most - self.peak } else { 0 }
    }

    /// Pages were given back at a peak.
    pub(crate) fn slimmed(&mut self, pages: usize) {
        self.slack = self.slack.saturating_sub(pages);
    }

    /// Notes how much the heap takes.
    pub(crate) fn note_peak(&mut self, live: usize, dirty: usize) {
        self.spare = self.spare.min(dirty);
        let more = self.over(live, dirty);
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

    /// Lets what was learnt fade: in a second, half of what was kept all through it and never used.
    pub(crate) fn tick(&mut self, now_ms: Option<u64>, dirty: usize) {
        let Some(now) = now_ms else { return };
        let seconds = (now.saturating_sub(self.last_ms) / 1000).min(63);
        if seconds > 0 {
            let unused = self.spare.min(self.boost);
            self.boost -= unused - (unused >> seconds);
            (self.regrettable, self.last_ms, self.spare) = (self.regrettable >> seconds, now, dirty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
