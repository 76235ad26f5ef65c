//! The C interface: builds the programs of `tests/c_abi` with the system's compiler and runs each under
//! `LD_PRELOAD=libfreestone.so` in each of the three ways in which blocks are cached. A program that is content prints
//! nothing.
//!
//! The library is the one that `FREESTONE_SO` names, or `target/release/libfreestone.so` of this workspace.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
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
    little_address_space: "little.c", "as";
    little_data: "little.c", "data";
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

/// Runs `pressure.c` in each mode with more configuration.
fn heeds(word: &str, conf: &str) {
    let program = build("pressure.c");
    for rseq in ["rseq=on", "rseq=off"] {
        is_content(preloaded(&program, Mode::Rseq).arg(word).env("FREESTONE_CONF", format!("{rseq},{conf}")));
    }
}

#[test]
fn beyond_a_hard_limit_malloc_refuses() {
    heeds("hard", "hard=64M");
    heeds("hard", "cgroup=off,hard=65536K");
}

#[test]
fn at_a_soft_limit_free_memory_goes_back() {
    heeds("soft", "soft=64M");
}

/// The real thing, where this test may make a control group: below its own, for one program, and gone afterwards.
#[test]
fn near_the_end_of_its_control_group_free_memory_goes_back() {
    let group = match ControlGroup::new(128 << 20) {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let program = build("pressure.c");
    for (word, conf) in [("heeded", ""), ("heeded", "rseq=off"), ("not-heeded", "cgroup=off")] {
        // The shell puts itself into the group and becomes the program.
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && FREESTONE_CONF=$1 LD_PRELOAD=$2 exec "$3" "$4""#]);
        is_content(command.args([
            group.0.as_os_str(),
            conf.as_ref(),
            library().as_os_str(),
            program.as_ref(),
            word.as_ref(),
        ]));
    }
}

/// A control group with a limit of memory, below this process's; removed when dropped, which the end of its last process
/// allows.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn new(limit: u64) -> Result<Self, String> {
        let (parent, file) = memory_group().ok_or("no hierarchy of control groups for memory at its usual place")?;
        let path = parent.join(format!("freestone-test-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = Self(path);
        let place = group.0.join(file);
        // Not created: on a version 2 whose parent does not pass memory on, the file is not there.
        let written = File::options().write(true).open(&place).and_then(|mut file| write!(file, "{limit}"));
        written.map_err(|error| format!("{}: {error}", place.display()))?;
        Ok(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel takes a moment to see the last process off.
        let gone = (0..100).any(|_| {
            fs::remove_dir(&self.0).is_ok() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        });
        if !gone {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}

/// The directory of this process's group, and the file with the limit, in version 1 or 2.
fn memory_group() -> Option<(PathBuf, &'static str)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let fields = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let below = |root: &str, path: &str| Path::new(root).join(path.trim_start_matches('/'));
    fields
        .filter_map(|(controllers, path)| match controllers {
            "memory" => Some((below("/sys/fs/cgroup/memory", path), "memory.limit_in_bytes")),
            "" => Some((below("/sys/fs/cgroup", path), "memory.max")),
            _ => None,
        })
        .find(|(directory, _)| directory.join("cgroup.procs").exists())
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
