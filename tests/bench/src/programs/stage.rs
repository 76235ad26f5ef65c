//! Where a program is run: its folder, its environment, its time limit, and what the kernel says about it afterwards.
//!
//! All files of this module call it. The figures are those that `wait4` gives about a process and the descendants that it
//! waited for itself: CPU time in the program and in the kernel, page faults, and the peak of the largest of the processes.
//! `timeout`, which starts the program, is part of them: about 1 ms and 100 faults.

use crate::watch::Sample;
use std::fs::{self, File};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Where programs are looked for.
const PATH: &str = "/usr/bin:/bin";

/// Seconds after which a program that has not ended is killed.
const LIMIT: &str = "120";

/// How much work is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// That of the benchmark.
    Full,
    /// That of this module's tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests choose it"))]
    Small,
}

/// A folder and an environment for a program.
pub struct Stage<'a> {
    /// How much work it is.
    pub size: Size,
    /// The folder that the program is started in.
    pub folder: PathBuf,
    /// Clears the environment and says which allocator it is.
    pub prepare: &'a dyn Fn(&mut Command),
}

impl Stage<'_> {
    /// One of two figures by the size of the work.
    pub fn pick<T>(&self, full: T, small: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Small => small,
        }
    }

    /// Makes sure that the file `name` of the folder holds `text`; one that does is left alone.
    pub fn input(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        if holds(&path, text.as_bytes()) {
            return Ok(());
        }
        fs::write(&path, text).map_err(|error| format!("{name}: {error}"))
    }

    /// `program`, to be measured: with the allocator, killed after [`LIMIT`].
    pub fn command(&self, program: &str) -> Command {
        let mut command = limited(program);
        (self.prepare)(&mut command);
        self.place(&mut command);
        command
    }

    /// `program`, not to be measured: with the C library's allocator, killed after [`LIMIT`].
    pub fn helper(&self, program: &str) -> Command {
        let mut command = limited(program);
        command.env_clear();
        self.place(&mut command);
        command
    }

    fn place(&self, command: &mut Command) {
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", &self.folder).env("TMPDIR", &self.folder);
    }

    /// Runs `command` to its end, as a helper, and returns what it printed.
    pub fn ask(&self, command: &mut Command) -> Result<String, String> {
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        check(output.status, &String::from_utf8_lossy(&output.stderr))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs `command` to its end and measures it; it must print `expected`.
    pub fn measure(&self, command: &mut Command, expected: &str) -> Result<Sample, String> {
        self.start(command)?.end(expected)
    }

    /// Starts `command` with the clock.
    pub fn start(&self, command: &mut Command) -> Result<Running, String> {
        let said = self.folder.join("said");
        let printed = self.folder.join("printed");
        let file = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
        command.stdout(file(&printed)?).stderr(file(&said)?);
        let begin = Instant::now();
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Running { child, begin, printed, said })
    }
}

/// Reads piece by piece: this process must stay smaller than what it measures ([`check_peak`]).
fn holds(path: &Path, mut text: &[u8]) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut piece = [0; 1 << 14];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return text.is_empty(),
            Ok(length) if text.starts_with(&piece[..length]) => text = &text[length..],
            _ => return false,
        }
    }
}

fn limited(program: &str) -> Command {
    let mut command = Command::new("/usr/bin/timeout");
    command.args(["--kill-after=5", LIMIT, program]);
    command
}

/// A program at work. Where nobody waits for it, `timeout` ends it all the same.
pub struct Running {
    child: Child,
    begin: Instant,
    printed: PathBuf,
    said: PathBuf,
}

impl Running {
    /// Waits for the end; the program must have printed `expected`.
    pub fn end(self, expected: &str) -> Result<Sample, String> {
        let (printed, said) = (self.printed.clone(), self.said.clone());
        let sample = self.finish()?;
        match fs::read_to_string(&printed).unwrap_or_default().trim_end() {
            right if right == expected => Ok(Sample { checksum: checksum(expected), ..sample }),
            wrong => Err(format!("printed {:?} in place of {:?}\n{}", start(wrong), start(expected), text(&said))),
        }
    }

    /// Waits for the end, whatever the program prints; the checksum is left to the caller.
    pub fn finish(self) -> Result<Sample, String> {
        let (status, usage) = wait(self.child)?;
        let nanoseconds = self.begin.elapsed().as_nanos() as u64;
        check(status, &text(&self.said))?;
        Ok(sample(nanoseconds, &usage))
    }
}

fn sample(nanoseconds: u64, usage: &libc::rusage) -> Sample {
    Sample {
        operations: 1,
        nanoseconds,
        cpu_ns: (duration(usage.ru_utime) + duration(usage.ru_stime)).as_nanos() as u64,
        waited: 0,
        grown_kib: usage.ru_maxrss as u64,
        left_kib: 0,
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        checksum: 0,
        latency: None,
    }
}

/// Waits for `child` and takes what the kernel counted for it and the children it waited for.
fn wait(child: Child) -> Result<(ExitStatus, libc::rusage), String> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    let mut usage = MaybeUninit::zeroed();
    // SAFETY: both pointers are to locals that outlive the call and are of the types it writes. Nobody has waited for the child
    // and nobody will, since this function owns the only handle to it: the number is that of this child and no other.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
    if waited != pid {
        return Err(format!("wait4: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: it was all zeros, which is a value of this structure of integers, and the kernel has filled it in.
    Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// The program must have ended well, and the loader must have found the library: it goes on without one that it cannot load.
fn check(status: ExitStatus, said: &str) -> Result<(), String> {
    if said.contains("cannot be preloaded") {
        return Err(said.to_owned());
    }
    status.success().then_some(()).ok_or_else(|| format!("ended with {status}\n{said}"))
}

/// A process starts as one that shares the memory of its parent, and the kernel keeps the larger peak: that of the program is
/// hidden where this process has had the larger one.
pub fn check_peak(peak: u64) -> Result<(), String> {
    let own = own_peak_kib();
    (peak > own).then_some(()).ok_or_else(|| format!("a peak of {peak} KiB cannot be told from this process's {own} KiB"))
}

fn own_peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Enough of an output to see what it is.
fn start(text: &str) -> String {
    text.chars().take(400).collect()
}

/// A number that differs where the texts differ, as far as anybody compares them.
pub fn checksum(text: &str) -> u64 {
    text.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    fn clear(command: &mut Command) {
        command.env_clear();
    }

    fn stage(name: &str) -> Stage<'static> {
        let folder = env::temp_dir().join(format!("freestone-bench-stage-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder can be made");
        Stage { size: Size::Small, folder, prepare: &clear }
    }

    /// The shell of an empty environment with 64 MiB of text in a variable, and a child of it that computes.
    #[test]
    fn children_are_counted_too() {
        let stage = stage("children");
        let script = "text=$(head -c 64M /dev/zero | tr '\\0' x); sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; echo ${#text}";
        let sample = stage.measure(stage.command("sh").args(["-c", script]), "67108864").expect("it runs");
        assert!(sample.grown_kib > 64 << 10, "{sample:?}");
        assert!(sample.cpu_ns > 20_000_000 && sample.cpu_ns < 4 * sample.nanoseconds, "{sample:?}");
        assert!(sample.minor_faults > 16 << 10, "{sample:?}");
        fs::remove_dir_all(&stage.folder).expect("the folder is this test's");
    }

    #[test]
    fn what_goes_wrong_is_an_error() {
        let stage = stage("wrong");
        let measure =
            |program: &str, arguments: &[&str], expected| stage.measure(stage.command(program).args(arguments), expected);
        let error = |result: Result<Sample, String>| result.expect_err("it is wrong");
        assert!(error(measure("sh", &["-c", "echo no >&2; exit 3"], "")).contains("no"));
        assert!(error(measure("sh", &["-c", "kill -9 $$"], "")).contains("ended with"));
        assert!(error(measure("echo", &["1"], "2")).contains("\"1\" in place of \"2\""));
        let mut lost = stage.command("true");
        assert!(error(stage.measure(lost.env("LD_PRELOAD", "/no/such/library.so"), "")).contains("cannot be preloaded"));
        assert!(check_peak(own_peak_kib() / 2).is_err());
        fs::remove_dir_all(&stage.folder).expect("the folder is this test's");
    }

    #[test]
    fn an_input_is_replaced_only_where_it_differs() {
        let stage = stage("input");
        stage.input("file", "old").expect("it can be written");
        let written =
            |stage: &Stage| fs::metadata(stage.folder.join("file")).and_then(|it| it.modified()).expect("it is there");
        let before = written(&stage);
        stage.input("file", "old").expect("it is there");
        assert_eq!(written(&stage), before);
        stage.input("file", "new").expect("it can be written");
        assert_eq!(text(&stage.folder.join("file")), "new");
        fs::remove_dir_all(&stage.folder).expect("the folder is this test's");
    }
}
