//! How far the run is: a bar on a terminal, a line now and then elsewhere; on stderr, beside the tables on stdout.
//!
//! Called by [`crate::runner`].
#![forbid(unsafe_code)]

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};

const TEMPLATE: &str = "{bar:30} {pos} of {len} runs, {elapsed} gone, {eta} to go: {msg}";

/// The progress of a number of runs known beforehand.
pub enum Progress {
    /// On a terminal.
    Bar(ProgressBar),
    /// In a log.
    Lines,
}

impl Progress {
    /// Nothing done of `runs`.
    pub fn new(runs: usize) -> Self {
        if !stderr().is_terminal() {
            eprintln!("{runs} runs");
            return Self::Lines;
        }
        let bar = ProgressBar::new(runs as u64);
        bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("the template is well formed"));
        Self::Bar(bar)
    }

    /// A round or another part begins.
    pub fn part(&self, what: &str) {
        match self {
            Self::Bar(bar) => bar.set_message(what.to_string()),
            Self::Lines => eprintln!("{what}"),
        }
    }

    /// A run has ended.
    pub fn step(&self) {
        if let Self::Bar(bar) = self {
            bar.inc(1);
        }
    }

    /// Something to be read, which stays.
    pub fn say(&self, what: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| eprintln!("{what}")),
            Self::Lines => eprintln!("{what}"),
        }
    }

    /// All runs have ended.
    pub fn end(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
