//! Real programs on `libfreestone.so`, with rseq and without, each judged by a result that it computes.
//!
//! Every program is a test with two cases: `rseq` runs it as a user would, `lists` with `FREESTONE_CONF=rseq=off`. The
//! scripts lie in
//! `tests/programs`; what they must print stands here and was seen without the library. A program that is missing fails its
//! test with the package that brings it (`cargo verify` installs them all).

mod compilers;
mod scripts;
mod server;
mod stage;
mod versions;

use compilers::{cargo_build, gcc, gplusplus};
use scripts::{bash, java, node, perl, preloaded, python3, sqlite3};
use server::redis;
use stage::Mode;
use versions::git;

/// Makes a module of two tests out of each function that runs a program.
macro_rules! in_both_modes {
    ($($program:ident),+ $(,)?) => {$(
        mod $program {
            #[test]
            fn rseq() {
                super::$program(super::Mode::Rseq);
            }

            #[test]
            fn lists() {
                super::$program(super::Mode::Lists);
            }
        }
    )+};
}

in_both_modes!(preloaded, bash, git, gcc, gplusplus, python3, perl, node, java, sqlite3, redis, cargo_build);
