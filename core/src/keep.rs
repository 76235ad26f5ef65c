//! Keep: how much free memory may stay resident. The policy of the page heap, apart from its mechanism.
//!
//! **Giving back without a thread or a timer.** The page heap enforces a cap whenever pages come back: an eighth of what is
//! live, at least 4 MiB, plus a boost. The boost grows when pages are wanted again that were just given back (a purge that
//! saved nothing), and a clock, where the home has one, halves it every second. A clock never keeps more.
#![forbid(unsafe_code)]

/// How many dirty pages may stay.
#[derive(Debug)]
pub(crate) struct Keep {
    boost: usize,
    /// Pages given back that nobody has wanted again yet.
    regrettable: usize,
    last_ms: u64,
}

impl Keep {
    pub(crate) const LEAST: usize = 4 << 20 >> 12;
    const MOST_BOOST: usize = 32 << 20 >> 12;

    /// Nothing learnt yet.
    pub(crate) const NEW: Self = Self { boost: 0, regrettable: 0, last_ms: 0 };

    /// Forgets what was learnt.
    pub(crate) fn reset(&mut self) {
        (self.boost, self.regrettable) = (0, 0);
    }

    /// The cap, in pages, of a heap with `live` pages in use.
    pub(crate) fn cap(&self, live: usize) -> usize {
        Self::LEAST.max(live / 8) + self.boost
    }

    /// Pages were taken that are not resident: where they had just been given back, that was a mistake.
    pub(crate) fn wanted(&mut self, pages: usize) {
        let regretted = pages.min(self.regrettable);
        self.regrettable -= regretted;
        self.boost = (self.boost + regretted).min(Self::MOST_BOOST);
    }

    /// Pages were given back.
    pub(crate) fn gave_back(&mut self, pages: usize) {
        self.regrettable = (self.regrettable + pages).min(2 * Self::MOST_BOOST);
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
