//! Programs that run a script of `tests/programs` and print their results on a line or a few.

use crate::stage::{Mode, Stage, script};

/// The other tests mean something only if the library is really there: the loader goes on without one that it cannot load.
pub fn preloaded(mode: Mode) {
    let maps = Stage::new("preloaded", mode, &["bash"]).run("bash", &["-c", "cat /proc/$$/maps"]);
    assert!(maps.contains("libfreestone.so"), "{maps}");
}

/// The first number is the sum of the primes below 20000.
pub fn bash(mode: Mode) {
    let stage = Stage::new("bash", mode, &["bash"]);
    assert_eq!(stage.run("bash", &[&script("work.sh")]), "21171191 34500 14500 100 50 4000 40");
}

/// With every object of the interpreter coming from malloc.
pub fn python3(mode: Mode) {
    let stage = Stage::new("python3", mode, &["python3"]);
    let printed = stage.output(stage.command("python3").arg(script("work.py")).env("PYTHONMALLOC", "malloc"));
    assert_eq!(printed, "7f36cc836b41b885 533415");
}

/// See the script for what is counted.
pub fn perl(mode: Mode) {
    let stage = Stage::new("perl", mode, &["perl"]);
    assert_eq!(stage.run("perl", &[&script("work.pl")]), "200000 128 A PPPPPPPP 5420");
}

/// The second number is 2^19 times the codes of `a` and `b`.
pub fn node(mode: Mode) {
    let stage = Stage::new("node", mode, &["node"]);
    assert_eq!(stage.run("node", &[&script("work.js")]), "aa5cf9d437b9e16d 102236160");
}

/// Started as source, so that the compiler runs too.
pub fn java(mode: Mode) {
    let stage = Stage::new("java", mode, &["java", "javac"]);
    assert_eq!(stage.run("java", &[&script("Work.java")]), "ffa49d3d41e6a2ea");
}

/// The sums have closed forms: 1 to 200000, the same less the multiples of 3, and that up to 30000.
pub fn sqlite3(mode: Mode) {
    let stage = Stage::new("sqlite3", mode, &["sqlite3"]);
    let printed = stage.run("sqlite3", &["-batch", "work.db", &format!(".read '{}'", script("work.sql"))]);
    assert_eq!(printed, "wal\n200000|20000100000\n133334|13333466667\n66667\n300000000\nok");
}
