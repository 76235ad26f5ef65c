//! Medians, how sure they are, and means of ratios.
//!
//! Called by [`crate::results`] and [`crate::bars`]; calls nobody.
#![forbid(unsafe_code)]

use std::fmt;

/// The confidence that [`Estimate`] asks for, where there are values enough for it.
pub const CONFIDENCE: f64 = 0.95;

/// A median with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The lower end of the interval: one of the values.
    pub low: f64,
    /// The median of the values.
    pub median: f64,
    /// The upper end of the interval: one of the values.
    pub high: f64,
}

impl Estimate {
    /// Of at least one value. The interval lies between two of them in order (David and Nagaraja, Order Statistics, 7.1), so
    /// that nothing is assumed of how they are spread.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let outer = dropped(values.len());
        let (low, high) = (values[outer], values[values.len() - 1 - outer]);
        let middle = values.len() / 2;
        let median =
            if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] };
        Self { low, median, high }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { low, median, high } = self;
        write!(f, "{median:.digits$} ({low:.digits$} – {high:.digits$})")
    }
}

/// The confidence of the interval that [`Estimate`] takes of so many values; below [`CONFIDENCE`] for five and fewer.
pub fn confidence(count: usize) -> f64 {
    coverage(count, dropped(count))
}

/// How many values lie outside the interval at each end: as many as the confidence allows.
fn dropped(count: usize) -> usize {
    (1..count.div_ceil(2)).take_while(|&outer| coverage(count, outer) >= CONFIDENCE).last().unwrap_or(0)
}

/// The probability that the true median lies strictly inside after `outer` values have been dropped at each end: each value
/// falls below it as a fair coin falls.
fn coverage(count: usize, outer: usize) -> f64 {
    let mut ways = 1.0;
    let mut below = 0.0;
    for heads in 0..=outer {
        below += ways;
        ways *= (count - heads) as f64 / (heads + 1) as f64;
    }
    1.0 - 2.0 * below / 2f64.powi(count as i32)
}

/// The geometric mean; `None` of nothing.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logarithms / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_its_interval() {
        let estimate = |values: &[f64]| Estimate::of(values.to_vec());
        assert_eq!(estimate(&[5.0]), Estimate { low: 5.0, median: 5.0, high: 5.0 });
        assert_eq!(estimate(&[4.0, 1.0, 3.0, 2.0]), Estimate { low: 1.0, median: 2.5, high: 4.0 });
        let nine: Vec<_> = (1..=9).map(f64::from).collect();
        assert_eq!(Estimate::of(nine), Estimate { low: 2.0, median: 5.0, high: 8.0 });
    }

    #[test]
    fn the_confidence_is_that_of_the_tables() {
        let percent = |count| (confidence(count) * 1000.0).round() / 10.0;
        assert_eq!([1, 2, 5, 6, 9, 15, 25].map(percent), [0.0, 50.0, 93.8, 96.9, 96.1, 96.5, 95.7]);
    }

    #[test]
    fn a_doubling_and_a_halving_cancel() {
        assert_eq!(geometric_mean(&[2.0, 0.5]), Some(1.0));
        assert_eq!(geometric_mean(&[]), None);
    }
}
