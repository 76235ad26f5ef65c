//! What the examples share: a heap's figures, printed. The examples themselves are in `src/bin`, each a program to copy from.

use freestone_core::{ClassStats, SizeClass, Stats};
use std::fmt::{self, Display, Formatter};

/// A heap's figures in a few lines, in the words of the library's report (`FREESTONE_CONF=stats=exit`).
pub struct Report<'a>(pub &'a Stats);

impl Report<'_> {
    fn classes(&self) -> impl Iterator<Item = &ClassStats> {
        SizeClass::all().map(|class| &self.0.classes[class.index()])
    }

    fn sum(&self, figure: fn(&ClassStats) -> usize) -> usize {
        self.classes().map(figure).sum()
    }

    /// What the cores' caches served; hits are counted in a `counters` build only.
    fn write_served(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (under, over) = (self.sum(|class| class.misses_under), self.sum(|class| class.misses_over));
        if let Some(hits) = self.classes().map(|class| Some(class.pops? + class.pushes?)).sum::<Option<usize>>() {
            let calls = hits + under + over;
            let share = 100.0 * hits as f64 / calls.max(1) as f64;
            writeln!(f, "  calls    {calls}, {share:.2} % served by the cores' caches")?;
        }
        writeln!(f, "  misses   {under} allocating, {over} freeing")
    }
}

impl Display for Report<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let stats = self.0;
        writeln!(f, "freestone: heap report of this program")?;
        self.write_served(f)?;
        let (refills, drains, shelf) = (self.sum(|c| c.refills), self.sum(|c| c.drains), self.sum(|c| c.shelf_hits));
        writeln!(f, "  central  {refills} refills, {shelf} of them off the shelf, {drains} drains")?;
        writeln!(f, "  spans    {} made, {} given back", self.sum(|c| c.spans_made), self.sum(|c| c.spans_returned))?;
        let (large, huge) = (Size(stats.large_bytes), Size(stats.huge_bytes));
        writeln!(f, "  runs     {} large of {large}, {} huge of {huge}", stats.large_blocks, stats.huge_blocks)?;
        let (live, cached, dirty) = (Size(stats.live_bytes), Size(stats.cached_bytes), Size(stats.dirty_bytes));
        writeln!(f, "  memory   {live} live, {cached} cached, {dirty} free and resident")?;
        let (held, peak, meta) = (Size(stats.held_bytes), Size(stats.peak_held_bytes), Size(stats.meta_bytes));
        writeln!(f, "  mapped   {held}, at most {peak}, and {meta} for tables")?;
        let calls = &stats.source;
        write!(f, "  system   {} calls: ", calls.maps + calls.unmaps + calls.purges + calls.remaps)?;
        write!(f, "{} mmap, {} munmap, {} madvise, ", calls.maps, calls.unmaps, calls.purges)?;
        writeln!(f, "{} mremap; {} refused", calls.remaps, calls.refused)
    }
}

/// Bytes, for a reader.
struct Size(usize);

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kib = self.0 as f64 / 1024.0;
        if kib < 1024.0 { write!(f, "{kib:.1} KiB") } else { write!(f, "{:.1} MiB", kib / 1024.0) }
    }
}

/// The code in the README is compiled and run with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
