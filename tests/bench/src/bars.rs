//! The bars that Freestone is held to on Linux, each with the figure that it has out of the samples.
//!
//! Called by `main`; reads [`crate::results`]. [`crate::report`] and [`crate::readme`] ask it which subjects count together.
//! Peers are picked in one run and compared in another: whoever is best of many by
//! luck is not so twice. A time here is CPU time. The floor is measured by the same loop: by call where the allocator is
//! called, inlined where it is inlined.
#![forbid(unsafe_code)]

use crate::peers::{FLOOR, FREESTONE, FREESTONE_PRELOADED, GLIBC, Peer, SNMALLOC};
use crate::results::{Figure, Kind, Mean, Probed, Results, Subject, peak};
use crate::stats::{Estimate, geometric_mean};
use crate::watch::Sample;

/// Below this a ratio of resident sizes is one of rounding errors.
pub const LEAST_KIB: f64 = 1024.0;

/// One bar.
#[derive(Debug)]
pub struct Bar {
    /// What is compared with what.
    pub what: String,
    /// The figure; `None` where something was not measured.
    pub value: Option<Value>,
    /// The most that it may be.
    pub limit: f64,
}

/// A figure for a bar.
#[derive(Debug, PartialEq)]
pub struct Value {
    /// The figure.
    pub figure: f64,
    /// What it would be if the measurement was as wrong as is likely: this must be within the limit.
    pub least: f64,
    /// Where it comes from.
    pub source: String,
}

impl Bar {
    /// Whether it is met; `None` where something was not measured.
    pub fn met(&self) -> Option<bool> {
        Some(self.value.as_ref()?.least <= self.limit)
    }
}

/// All bars, of `results`, with the peers picked out of `picked`.
pub fn bars(results: &Results, picked: &Results) -> Vec<Bar> {
    let judge = Judge { results, picked };
    let mut bars = judge.fast_paths();
    bars.extend(judge.means());
    bars.extend(results.probed.iter().flat_map(probe));
    bars
}

struct Judge<'a> {
    results: &'a Results,
    picked: &'a Results,
}

impl Judge<'_> {
    fn fast_paths(&self) -> Vec<Bar> {
        let preload = self.best_preload("pair-");
        let against_preload = format!("pair, preloaded / {} (picked)", preload.as_deref().unwrap_or("best preload"));
        vec![
            self.worst("pair, inlined / floor", inlined("pair-"), FREESTONE, FLOOR, 2.0),
            self.worst("pair, by call / floor", called("pair-"), FREESTONE, FLOOR, 2.5),
            self.worst("pair, by call / snmalloc", called("pair-"), FREESTONE, SNMALLOC, 1.0),
            self.worst("pair, preloaded / floor", called("pair-"), FREESTONE_PRELOADED, FLOOR, 3.4),
            self.worst(&against_preload, called("pair-"), FREESTONE_PRELOADED, &preload.unwrap_or_default(), 1.0),
            self.worst("window of 64, inlined / floor", inlined("window-64"), FREESTONE, FLOOR, 1.5),
            self.worst("window of 64, by call / floor", called("window-64"), FREESTONE, FLOOR, 2.0),
            self.worst("window of 64, preloaded / floor", called("window-64"), FREESTONE_PRELOADED, FLOOR, 2.2),
        ]
    }

    fn means(&self) -> Vec<Bar> {
        let best = self.best_single();
        let name = best.as_deref().unwrap_or("best peer");
        vec![
            self.mean(
                &format!("micro workloads / {name} (picked), geometric mean"),
                is_micro,
                [FREESTONE, name],
                time(),
                0.90,
            ),
            self.worst_of_best("worst micro workload / its best peer (picked)", is_micro, FREESTONE, 1.10),
            self.mean("programs / glibc, geometric mean", is_program, [FREESTONE_PRELOADED, GLIBC], time(), 0.80),
            self.mean("programs' peak / glibc, geometric mean", is_program, [FREESTONE_PRELOADED, GLIBC], memory(), 1.00),
            self.worst_of_best("worst program / its best peer (picked)", is_program, FREESTONE_PRELOADED, 1.05),
            self.mean("all workloads' peak / glibc, geometric mean", is_workload, [FREESTONE, GLIBC], memory(), 1.00),
        ]
    }

    /// The worst of some subjects. `least` is the figure itself: these bars have no allowance.
    fn worst(&self, what: &str, of: impl Fn(&Subject) -> bool, peer: &str, base: &str, limit: f64) -> Bar {
        let ratio = |it: &Subject| Some((it.ratio(peer, base, Sample::cost, 0.0)?, it.name.clone()));
        let ratios = self.results.subjects.iter().filter(|it| of(it)).filter_map(ratio);
        let worst = ratios.max_by(|(one, _), (other, _)| one.median.total_cmp(&other.median));
        let value = worst.map(|(it, source)| Value { figure: it.median, least: it.median, source });
        Bar { what: what.into(), value, limit }
    }

    fn mean(&self, what: &str, of: fn(&Subject) -> bool, pair: [&str; 2], measure: (Figure, f64), limit: f64) -> Bar {
        let all = self.results.subjects.iter().filter(|it| of(it)).count();
        let value = self.results.mean(of, pair, measure).map(|Mean { figure, count }| Value {
            figure,
            least: figure,
            source: format!("{count} of {all}"),
        });
        Bar { what: what.into(), value, limit }
    }

    /// The worst ratio to the best peer of the same subject, of which the confidence interval must reach the limit.
    fn worst_of_best(&self, what: &str, of: fn(&Subject) -> bool, peer: &str, limit: f64) -> Bar {
        let ratio = |it: &Subject| {
            let best = best_of(self.picked.subject(&it.name)?)?;
            Some((it.ratio(peer, &best, Sample::cost, 0.0)?, format!("{}, {best}", it.name)))
        };
        let ratios = self.results.subjects.iter().filter(|it| of(it)).filter_map(ratio);
        let worst = ratios.max_by(|(one, _), (other, _)| one.low.total_cmp(&other.low));
        let value = worst.map(|(Estimate { low, median, .. }, source)| Value { figure: median, least: low, source });
        Bar { what: what.into(), value, limit }
    }

    /// The peer with the lowest geometric mean over all micro workloads, of those that did them all.
    fn best_single(&self) -> Option<String> {
        let mean = |peer: &str| {
            let costs: Option<Vec<_>> = self.picked.of_kind(Kind::Micro).map(|it| cost(it, peer)).collect();
            geometric_mean(&costs?)
        };
        lowest(self.picked.peers().into_iter().filter(|peer| is_rival(peer)), mean)
    }

    /// The preloaded peer with the lowest geometric mean over the called workloads of that name.
    fn best_preload(&self, prefix: &str) -> Option<String> {
        let is_preload = |peer: &&str| is_rival(peer) && Peer::named(peer).is_ok_and(Peer::is_preload);
        let subjects: Vec<_> = self.picked.subjects.iter().filter(|it| called(prefix)(it)).collect();
        let mean = |peer: &str| {
            let costs: Option<Vec<_>> = subjects.iter().map(|it| cost(it, peer)).collect();
            geometric_mean(&costs?)
        };
        lowest(self.picked.peers().into_iter().filter(is_preload), mean)
    }
}

/// The best peer of one subject.
pub fn best_of(subject: &Subject) -> Option<String> {
    let rivals = subject.columns.iter().map(|it| &*it.peer).filter(|peer| is_rival(peer));
    lowest(rivals, |peer| cost(subject, peer))
}

/// The median of the CPU time that an operation of `subject` costs with `peer`, in nanoseconds.
pub fn cost(subject: &Subject, peer: &str) -> Option<f64> {
    Some(subject.column(peer)?.estimate(Sample::cost).median)
}

fn lowest<'a>(peers: impl Iterator<Item = &'a str>, cost: impl Fn(&str) -> Option<f64>) -> Option<String> {
    let costs = peers.filter_map(|peer| Some((peer, cost(peer)?)));
    costs.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(peer, _)| peer.to_string())
}

/// Whether it is an allocator of somebody else.
fn is_rival(peer: &str) -> bool {
    peer != FLOOR && !peer.starts_with(FREESTONE) && peer != FREESTONE_PRELOADED
}

/// Whether it counts in the mean of times.
pub fn is_micro(subject: &Subject) -> bool {
    subject.kind == Kind::Micro
}

/// Whether it is a real program.
pub fn is_program(subject: &Subject) -> bool {
    subject.kind == Kind::Program
}

/// Whether it is none.
pub fn is_workload(subject: &Subject) -> bool {
    subject.kind != Kind::Program
}

fn called(prefix: &str) -> impl Fn(&Subject) -> bool {
    move |it| it.name.starts_with(prefix) && !it.name.ends_with("-inlined")
}

fn inlined(prefix: &str) -> impl Fn(&Subject) -> bool {
    move |it| it.name.starts_with(prefix) && it.name.ends_with("-inlined")
}

/// CPU time.
pub fn time() -> (Figure, f64) {
    (Sample::cost, 0.0)
}

/// The peak of the resident size, where it is large enough to be compared.
pub fn memory() -> (Figure, f64) {
    (peak, LEAST_KIB)
}

/// The bar of a probe, for the crate and for the library.
fn probe(probed: &Probed) -> Vec<Bar> {
    let Some(limit) = probed.bar else { return Vec::new() };
    let columns = probed.columns.iter().filter(|(peer, _)| [FREESTONE, FREESTONE_PRELOADED].contains(&&**peer));
    let bar = |(peer, _): &(String, _)| {
        let value = probed.median(peer).map(|figure| Value { figure, least: figure, source: probed.unit.clone() });
        Bar { what: format!("{}, {peer}", probed.name), value, limit }
    };
    columns.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::subject;

    fn results(subjects: Vec<Subject>) -> Results {
        Results { head: String::new(), subjects, probed: Vec::new() }
    }

    fn bar<'a>(bars: &'a [Bar], start: &str) -> &'a Bar {
        bars.iter().find(|bar| bar.what.starts_with(start)).unwrap()
    }

    #[test]
    fn the_worst_pair_counts() {
        let costs = |freestone| [(FLOOR, 10), (FREESTONE, freestone), (SNMALLOC, 20)];
        let pairs = vec![
            subject("pair-16", Kind::Basic, &costs(24)),
            subject("pair-64", Kind::Basic, &costs(26)),
            subject("pair-64-inlined", Kind::Basic, &costs(15)),
        ];
        let results = results(pairs);
        let bars = bars(&results, &results);
        assert_eq!(
            bar(&bars, "pair, by call / floor").value.as_ref().map(|it| (it.figure, &*it.source)),
            Some((2.6, "pair-64"))
        );
        assert_eq!(bar(&bars, "pair, by call / floor").met(), Some(false));
        assert_eq!(bar(&bars, "pair, inlined").met(), Some(true));
        assert_eq!(bar(&bars, "pair, preloaded / floor").met(), None);
    }

    #[test]
    fn the_best_peer_is_picked_elsewhere() {
        let now = results(vec![subject("a", Kind::Micro, &[(GLIBC, 100), ("mimalloc-3", 50), (FREESTONE, 60)])]);
        let before = results(vec![subject("a", Kind::Micro, &[(GLIBC, 40), ("mimalloc-3", 50), (FREESTONE, 60)])]);
        let figure = |picked| bar(&bars(&now, picked), "micro workloads").value.as_ref().map(|it| it.figure);
        assert!((figure(&before).unwrap() - 0.6).abs() < 1e-9);
        assert!((figure(&now).unwrap() - 1.2).abs() < 1e-9);
    }

    #[test]
    fn an_excess_within_the_noise_is_none() {
        let mut noisy = subject("a", Kind::Micro, &[(GLIBC, 100), (FREESTONE, 120)]);
        noisy.columns[1].samples[..3].iter_mut().for_each(|it| it.cpu_ns = 105);
        let results = results(vec![noisy]);
        let bars = bars(&results, &results);
        let worst = bar(&bars, "worst micro");
        assert_eq!((worst.value.as_ref().unwrap().figure, worst.met()), (1.2, Some(true)));
    }

    #[test]
    fn small_peaks_are_left_out() {
        let sizes = [(GLIBC, 1), (FREESTONE, 9)];
        let results = results(vec![
            subject("small", Kind::Micro, &sizes),
            subject("large", Kind::Micro, &[(GLIBC, 10), (FREESTONE, 9)]),
        ]);
        let bars = bars(&results, &results);
        let value = bar(&bars, "all workloads' peak").value.as_ref().unwrap();
        assert_eq!((value.figure, &*value.source), (0.9, "1 of 2"));
    }

    #[test]
    fn a_probe_has_a_bar_for_each_of_ours() {
        let columns = vec![(GLIBC.into(), Ok(vec![50.0])), (FREESTONE.into(), Ok(vec![19.0, 30.0, 18.0]))];
        let probed = Probed { name: "p".into(), what: String::new(), unit: "KiB".into(), bar: Some(20.0), columns };
        let bars = probe(&probed);
        assert_eq!((bars.len(), bars[0].met()), (1, Some(true)));
    }
}
