//! The C interface: builds the programs of `tests/c_abi` with the system's compiler and runs each under
//! `LD_PRELOAD=libfreestone.so` in each of the three ways in which blocks are cached. A program that is content prints
//! nothing.
//!
//! The library is the one that `FREESTONE_SO` names, or `target/release/libfreestone.so` of this workspace.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);

/// How blocks are cached on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// By restartable sequences, on the area that libc registered.
    Rseq,
    /// The same, on our own area: libc is told to register none, as an older one does.
    OwnArea,
    /// By claims.
    Claims,
}

impl Mode {
    fn set(self, program: &mut Command) -> &mut Command {
        match self {
            Self::Rseq => program.env("FREESTONE_CONF", "rseq=on"),
            Self::OwnArea => program.env("FREESTONE_CONF", "rseq=on").env("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
            Self::Claims => program.env("FREESTONE_CONF", "rseq=off"),
        }
    }
}

/// A test a program and mode: `name: "source file", "arguments"`.
macro_rules! programs {
    ($($name:ident: $source:literal, $arguments:literal;)*) => {$(
        mod $name {
            use super::{Mode, runs_content};

            #[test]
            fn with_rseq() {
                runs_content($source, $arguments, Mode::Rseq);
            }

            #[test]
            fn with_an_own_area() {
                runs_content($source, $arguments, Mode::OwnArea);
            }

            #[test]
            fn without_rseq() {
                runs_content($source, $arguments, Mode::Claims);
            }
        }
    )*};
}

programs! {
    contract: "contract.c", "";
    operator_delete: "delete.cpp", "";
    figures: "figures.c", "";
    fork: "forks.c", "";
    vfork: "vforks.c", "";
    start_and_end: "ends.c", "";
    address_space_limit: "limits.c", "as";
    data_limit: "limits.c", "data";
    refused_calls: "refused.c", "";
    signals: "signals.c", "";
    handlers: "handlers.c", "";
    faults: "faults.c", "";
}

fn runs_content(source: &str, arguments: &str, mode: Mode) {
    let program = build(source);
    is_content(preloaded(&program, mode).args(arguments.split_whitespace()));
}

#[test]
fn loaded_and_closed() {
    let program = build("loaded.c");
    for mode in [Mode::Rseq, Mode::OwnArea, Mode::Claims] {
        is_content(mode.set(Command::new(&program).arg(library())));
    }
}

#[test]
fn a_library_keeps_its_own_new_and_delete() {
    let pool = compile("pool_library.cpp", &["-shared".as_ref(), "-fPIC".as_ref()]);
    let program = compile("pool.cpp", &[pool.as_ref()]);
    is_content(&mut preloaded(&program, Mode::Rseq));
}

/// Says how many times `word` is in what the program printed.
fn mentions(output: &Output, word: &str) -> usize {
    String::from_utf8_lossy(&output.stderr).matches(word).count()
}

#[test]
fn unknown_configuration_is_reported_once() {
    let output =
        finished(preloaded("/bin/echo", Mode::Rseq).arg("fine").env("FREESTONE_CONF", "colour=blue,rseq=off,rseq=maybe"));
    assert!(output.status.success() && output.stdout == b"fine\n", "{output:?}");
    for stranger in ["colour=blue", "rseq=maybe"] {
        assert_eq!(mentions(&output, stranger), 1, "{output:?}");
    }
}

#[test]
fn known_configuration_is_silent() {
    for conf in ["", "rseq=on", "rseq=off", ",rseq=off,"] {
        let output = finished(preloaded("/bin/echo", Mode::Rseq).arg("fine").env("FREESTONE_CONF", conf));
        assert!(output.status.success() && output.stderr.is_empty(), "{conf}: {output:?}");
    }
}

#[test]
fn the_report_is_printed_at_exit() {
    let program = build("contract.c");
    for conf in ["stats=exit", "rseq=off,stats=exit"] {
        let output = finished(preloaded(&program, Mode::Rseq).env("FREESTONE_CONF", conf));
        assert!(output.status.success(), "{output:?}");
        for word in ["freestone: heap report of ", "memory", "system"] {
            assert_eq!(mentions(&output, word), 1, "{word}: {output:?}");
        }
    }
}

fn is_content(program: &mut Command) {
    let output = finished(program);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{program:?}: {}\n{text}", output.status);
}

fn preloaded(program: impl AsRef<OsStr>, mode: Mode) -> Command {
    let mut command = Command::new(program);
    mode.set(command.env("LD_PRELOAD", library()));
    command
}

/// Runs it to its end, or kills it at the limit. What it prints goes through files, which cannot fill up as a pipe does.
fn finished(program: &mut Command) -> Output {
    let (stdout, stderr) = (Scratch::new("stdout"), Scratch::new("stderr"));
    let child = program.stdin(Stdio::null()).stdout(stdout.create()).stderr(stderr.create()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child to wait for") {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => {
                child.kill().expect("a child to kill");
                panic!("{program:?} hangs");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    Output { status, stdout: stdout.read(), stderr: stderr.read() }
}

/// A file that no other test of this run has, in any process; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only that the numbers differ counts.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c_abi-{}-{number}-{name}", std::process::id())))
    }

    fn create(&self) -> File {
        File::create(&self.0).expect("a scratch file")
    }

    fn read(&self) -> Vec<u8> {
        fs::read(&self.0).expect("a scratch file")
    }
}

impl AsRef<OsStr> for Scratch {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not be there, where making it failed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Compiles a program of `tests/c_abi`, without the compiler's own knowledge of what `malloc` does.
fn build(source: &str) -> Scratch {
    compile(source, &[])
}

/// The same with more words for the compiler.
fn compile(source: &str, more: &[&OsStr]) -> Scratch {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("c_abi").join(source);
    let (compiler, standard) = if source.ends_with(".cpp") { ("c++", "-std=c++17") } else { ("cc", "-std=gnu17") };
    let program = Scratch::new(source.split('.').next().unwrap_or(source));
    let output = Command::new(compiler)
        .args([standard, "-O1", "-g", "-Wall", "-Wextra", "-fno-builtin", "-pthread", "-o"])
        .args([program.as_ref(), path.as_os_str()])
        .args(more)
        .arg("-ldl")
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error} (Debian: apt-get install gcc g++)"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{compiler} {source}:\n{text}");
    program
}

/// Where the library is.
fn library() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/libfreestone.so");
    let path = env::var_os("FREESTONE_SO").map_or(default, PathBuf::from);
    path.canonicalize().unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo build --release -p freestone-preload` builds it", path.display())
    })
}
