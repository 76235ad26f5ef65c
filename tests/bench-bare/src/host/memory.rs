//! How much of an arena is live when the first request is refused.
//!
//! Called by `main`; calls the columns.
#![forbid(unsafe_code)]

use crate::arena::{Size, in_parallel};
use crate::args::Args;
use crate::columns::{Column, Runs};
use freestone_bench_bare::fill::Mix;

/// The arenas.
pub const ARENAS: [Size; 2] = [Size::Small, Size::Middle];

/// The actions, in the order of the table.
pub const MIXES: [Mix; 3] = [Mix::Realloc, Mix::NoRealloc, Mix::Small];

/// An allocator in an arena.
pub struct Filled {
    /// The allocator.
    pub column: &'static Column,
    /// The arena.
    pub size: Size,
    /// For each mix the parts of the arena that were live, one a seed.
    pub parts: Vec<Vec<f64>>,
}

/// All allocators in all arenas, with all mixes and seeds.
pub fn run(args: &Args) -> Vec<Filled> {
    let places: Vec<_> = ARENAS.iter().flat_map(|&size| args.columns.iter().map(move |&column| (column, size))).collect();
    let filled = in_parallel("memory", places.len(), |ground, number| {
        let (column, size) = places[number];
        let Runs { live, .. } = column.runs(size)?;
        let mut part = |mix, seed| live(ground, size, mix, seed) as f64 / size.len() as f64;
        let parts = MIXES.map(|mix| (0..args.seeds).map(|seed| part(mix, seed)).collect());
        Some(Filled { column, size, parts: parts.into() })
    });
    filled.into_iter().flatten().collect()
}
