//! Programs to copy from: they are in `src/bin`. This file only has the code in the README compiled and run with the
//! documentation's tests.

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
