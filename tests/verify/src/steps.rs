//! What `cargo verify` does, in order. `main` runs the steps; each calls [`Log`] for its commands.
//!
//! The library for `LD_PRELOAD` and the kernels are `no_std` with their own panic handlers, and the peers of the benchmarks
//! build C code: they are built apart from the rest of the workspace, so that features which others switch on (`libc`'s
//! `std`, the test tools' `std`) do not reach the ones and nobody waits for the others. That the library and the kernels
//! link at all shows that the core and the homes need no `std` and no `alloc`: they would have two panic handlers, or no
//! allocator.

use crate::packages;
use crate::runner::{Log, Show};
use std::io;

/// One step.
pub struct Step {
    /// A word, for `--only`, `--skip` and the log's name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// What becomes of its output.
    pub show: Show,
    /// Does it.
    pub run: fn(&Log) -> io::Result<()>,
}

/// Everything but the packages that are built apart.
const REST: &str = "--workspace --exclude freestone-preload --exclude freestone-bench --exclude freestone-bench-bare \
    --exclude freestone-machine --exclude freestone-kernel --exclude freestone-example-kernel --exclude freestone-example-firmware";

/// What runs on a bare machine. `tests/tests/kernel.rs` boots the kernels, `cargo demo` the examples.
const BARE: &str = "-p freestone-machine -p freestone-kernel -p freestone-example-kernel -p freestone-example-firmware";

/// All steps, in order.
pub const STEPS: &[Step] = &[
    quiet("packages", "the programs that the tests need are there, or are installed", packages::install),
    quiet("format", "cargo fmt --check", |log| log.cargo("fmt --all --check -- --color never")),
    quiet("lints", "clippy without warnings, all targets", lints),
    quiet("docs", "rustdoc without warnings", docs),
    quiet("library", "builds libfreestone.so", |log| log.cargo("build --release -p freestone-preload")),
    quiet("features", "the core's tests with each of its features, os-bare with each of its own", features),
    quiet("models", "loom: the lock-free parts under every interleaving", models),
    quiet("examples", "the examples and `cargo demo` run", examples),
    quiet("doctests", "the code in the documentation runs", |log| log.cargo(&format!("test --doc {REST}"))),
    quiet("bench", "the benchmarks build without warnings and their own tests pass", bench),
    quiet("cases", "the portable cases beside the checkout, where they are there, with rseq and without", cases),
    Step { name: "tests", about: "all tests, real programs among them", show: Show::Live, run: tests },
];

const fn quiet(name: &'static str, about: &'static str, run: fn(&Log) -> io::Result<()>) -> Step {
    Step { name, about, show: Show::OnFailure, run }
}

fn lints(log: &Log) -> io::Result<()> {
    log.cargo(&format!("clippy {REST} --all-targets -- -D warnings"))?;
    log.cargo("clippy -p freestone-core --all-targets --all-features -- -D warnings")?;
    log.cargo("clippy -p freestone-preload -- -D warnings")?;
    log.cargo("clippy -p freestone-preload --features counters -- -D warnings")?;
    log.cargo("clippy -p freestone-bare --all-targets --all-features -- -D warnings")?;
    log.cargo(&format!("clippy {BARE} -- -D warnings"))
}

fn docs(log: &Log) -> io::Result<()> {
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    log.cargo_in(&format!("doc --no-deps {REST}"), &strict)?;
    log.cargo_in("doc --no-deps -p freestone-preload", &strict)?;
    log.cargo_in(&format!("doc --no-deps {BARE}"), &strict)
}

fn features(log: &Log) -> io::Result<()> {
    for features in ["", "counters", "allocator-api2", "counters,allocator-api2"] {
        log.cargo(&format!("test -p freestone-core --lib --features={features}"))?;
    }
    for features in ["", "critical-section", "lock_api", "allocator-api2", "counters"] {
        log.cargo(&format!("check -p freestone-bare --lib --no-default-features --features={features}"))?;
    }
    log.cargo("test -p freestone-bare --all-features")
}

/// In a target folder of their own: another `RUSTFLAGS` would have everything built anew each time.
fn models(log: &Log) -> io::Result<()> {
    let folder = log.target().join("loom");
    let line = format!("test -p freestone-core --release --lib --target-dir {} model", folder.display());
    log.cargo_in(&line, &[("RUSTFLAGS", "--cfg loom")])
}

fn examples(log: &Log) -> io::Result<()> {
    log.cargo("run --release --quiet -p freestone-examples --bin second_heap")?;
    log.cargo("demo")
}

fn bench(log: &Log) -> io::Result<()> {
    for package in ["freestone-bench", "freestone-bench-bare"] {
        log.cargo(&format!("clippy -p {package} --all-targets -- -D warnings"))?;
        log.cargo(&format!("test -p {package}"))?;
    }
    Ok(())
}

/// The cases lie beside a developer's checkout, not in the project; whoever has none passes this step.
fn cases(log: &Log) -> io::Result<()> {
    let script = log.root().join("../shared/cases/run.sh");
    if !script.exists() {
        return log.say("no ../shared/cases beside this checkout: nothing to run");
    }
    let (script, library) = (script.to_string_lossy(), log.library());
    let (library, folder) = (library.to_string_lossy(), log.target().join("cases"));
    let built = ("CASES_BUILD", &*folder.to_string_lossy());
    log.run(&["bash", &script, &library], &[built])?;
    log.run(&["bash", &script, &library], &[built, ("FREESTONE_CONF", "rseq=off")])
}

/// With nextest where it is installed: it runs each test in a process of its own and stops one that hangs.
fn tests(log: &Log) -> io::Result<()> {
    let library = log.library();
    let library = [("FREESTONE_SO", &*library.to_string_lossy())];
    match log.cargo("nextest --version") {
        Ok(()) => log.cargo_in(&format!("nextest run {REST} --no-fail-fast"), &library),
        Err(_) => log.cargo_in(&format!("test {REST} --all-targets --no-fail-fast"), &library),
    }
}
