//! The command line. Called by `main`; calls nobody but the list of columns.
#![forbid(unsafe_code)]

use crate::columns::{COLUMNS, Column};
use freestone_bench_bare::trace::Shape;
use lexopt::prelude::*;
use std::time::Duration;

/// What one start of this program is to do.
pub enum Job {
    /// Print the usage.
    Help,
    /// Run, and print the tables.
    Run(Args),
}

/// What is to be run, how often and for how long.
pub struct Args {
    /// Rounds: timed runs of each allocator with each trace.
    pub rounds: usize,
    /// The shortest measured time of a run.
    pub time: Duration,
    /// Runs of each allocator up to the first refusal.
    pub seeds: u64,
    /// The allocators, in the order of the tables.
    pub columns: Vec<&'static Column>,
    /// The parts, in the order of the tables.
    pub parts: Vec<Part>,
}

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Time of a trace.
    Time(Shape),
    /// Live bytes at the first refusal.
    Memory,
    /// Instructions over a trace.
    Counts,
    /// Instructions over heaps made to be slow.
    Attacks,
}

/// All parts, with the names that the command line has for them.
const PARTS: [(&str, Part, &str); 7] = [
    ("random", Part::Time(Shape::Random), "time: allocate, free, reallocate at random, small sizes"),
    ("mixed", Part::Time(Shape::Mixed), "time: allocate and free at random, 8..2048 B"),
    ("lifo", Part::Time(Shape::Lifo), "time: allocate some, free them newest first"),
    ("vectors", Part::Time(Shape::Vectors), "time: vectors that double"),
    ("memory", Part::Memory, "live bytes when the first request is refused"),
    ("counts", Part::Counts, "instructions, random actions"),
    ("attacks", Part::Attacks, "instructions, heaps made so that a loop over blocks shows"),
];

/// The usage, with the names that the options take.
pub fn help() -> String {
    let columns: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    let parts: String = PARTS.iter().map(|(name, _, what)| format!("  {name:<10} {what}\n")).collect();
    format!(
        "usage: cargo run --release -p freestone-bench-bare -- [--rounds N] [--ms N] [--seeds N] [--only PART]... [--peer NAME]...\n\n\
         --rounds  timed runs of each allocator with each trace (9)\n\
         --ms      shortest measured time of a run (50)\n\
         --seeds   runs up to the first refusal (200)\n\n\
         allocators: {}\n\nparts:\n{parts}",
        columns.join(", ")
    )
}

/// Reads the command line.
pub fn parse() -> Result<Job, String> {
    read(lexopt::Parser::from_env()).map_err(|error| format!("{error} (--help lists the options)"))
}

fn read(mut parser: lexopt::Parser) -> Result<Job, lexopt::Error> {
    let mut args = Args { rounds: 9, time: Duration::from_millis(50), seeds: 200, columns: Vec::new(), parts: Vec::new() };
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rounds") => args.rounds = parser.value()?.parse::<usize>()?.max(1),
            Long("ms") => args.time = Duration::from_millis(parser.value()?.parse()?),
            Long("seeds") => args.seeds = parser.value()?.parse::<u64>()?.max(1),
            Long("only") => args.parts.push(parser.value()?.parse_with(Part::named)?),
            Long("peer") => args.columns.push(parser.value()?.parse_with(Column::named)?),
            Short('h') | Long("help") => return Ok(Job::Help),
            other => return Err(other.unexpected()),
        }
    }
    args.fill();
    Ok(Job::Run(args))
}

impl Args {
    /// A list that names nobody means everybody.
    fn fill(&mut self) {
        if self.columns.is_empty() {
            self.columns = COLUMNS.iter().collect();
        }
        if self.parts.is_empty() {
            self.parts = PARTS.iter().map(|&(_, part, _)| part).collect();
        }
    }

    /// Whether the part is to be run.
    pub fn wants(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// The traces that are to be timed.
    pub fn shapes(&self) -> impl Iterator<Item = Shape> {
        self.parts.iter().filter_map(|part| match part {
            Part::Time(shape) => Some(*shape),
            _ => None,
        })
    }

    /// Whether anything is to be timed.
    pub fn wants_time(&self) -> bool {
        self.shapes().next().is_some()
    }
}

impl Part {
    fn named(name: &str) -> Result<Self, String> {
        let known = PARTS.iter().find(|(known, ..)| *known == name);
        known.map(|&(_, part, _)| part).ok_or_else(|| format!("no part is named {name:?}"))
    }
}
