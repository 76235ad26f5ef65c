//! Counts the system calls of a program: all of them, or only those by which memory comes and goes.
//!
//! For x86-64 Linux. Called by the benchmark and by the example `what_malloc_does`; calls `tracer`, which stands on
//! `ptrace`. Threads and child processes of the program are counted too, and so is what they start.
//!
//! A program can say where a part of it ends: it calls [`mark`], and [`count_parts`] gives the counts part by part. So the
//! calls of the dynamic loader and of the runtime can be told from those of the code in question; [`cold`] has code run
//! before the runtime.
//!
//! What is counted is each entry into the kernel by the instruction `syscall`, whether it succeeds or not. What the vDSO
//! answers in user mode (the clock) is no system call.

pub mod cold;
mod ptrace;
mod tracer;

use std::collections::BTreeMap;
use std::process::Command;

/// The calls by which memory comes and goes.
pub const MEMORY: [&str; 6] = ["brk", "mmap", "munmap", "mremap", "madvise", "mprotect"];

/// Their numbers, in the same order.
const MEMORY_NUMBERS: [i64; 6] =
    [libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_mprotect];

/// What a program says to the call `getppid`, which takes no argument, when it means [`mark`].
const MARK: u64 = u64::from_le_bytes(*b"freeston");

/// Which system calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Those named in [`MEMORY`]. A filter in the kernel lets all others pass at full speed.
    Memory,
    /// All of them: the program stops twice at each.
    All,
}

/// How often a program entered the kernel, by the number of the call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts(BTreeMap<i64, u64>);

impl Counts {
    /// The calls of that name, which is one of [`MEMORY`].
    ///
    /// # Panics
    ///
    /// If it is none of them.
    pub fn of(&self, name: &str) -> u64 {
        let place = MEMORY.iter().position(|it| *it == name);
        self.of_number(MEMORY_NUMBERS[place.unwrap_or_else(|| panic!("{name:?} is none of {MEMORY:?}"))])
    }

    /// The calls of that number, a `libc::SYS_…`.
    pub fn of_number(&self, number: i64) -> u64 {
        self.0.get(&number).copied().unwrap_or(0)
    }

    /// The calls named in [`MEMORY`], together.
    pub fn memory(&self) -> u64 {
        MEMORY_NUMBERS.iter().map(|&number| self.of_number(number)).sum()
    }

    /// All calls that were counted.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    fn add(&mut self, number: i64) {
        *self.0.entry(number).or_default() += 1;
    }

    fn merge(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(number, count)| *self.0.entry(number).or_default() += count);
        self
    }
}

/// Runs `command` to its end, and to the end of all that it started, and counts from the start of the program on: not what
/// happens between fork and exec.
///
/// A pipe must have a reader, and none of the command's own is read here: give it a file, or `Stdio::null`. A program cannot
/// stop itself (`SIGSTOP`) while it is counted; all other signals reach it. It cannot gain rights (`no_new_privs`) when
/// only [`Calls::Memory`] are counted.
///
/// # Errors
///
/// If it does not start, cannot be traced, or does not end with success.
pub fn count(command: Command, calls: Calls) -> Result<Counts, String> {
    Ok(count_parts(command, calls)?.into_iter().fold(Counts::default(), Counts::merge))
}

/// The same, part by part: one more part than the program has called [`mark`].
///
/// # Errors
///
/// As [`count`].
pub fn count_parts(command: Command, calls: Calls) -> Result<Vec<Counts>, String> {
    let name = command.get_program().display().to_string();
    tracer::run(command, calls).map_err(|why| format!("{name}: {why}"))
}

/// Says that a part of this program ends here and another one begins. Means nothing to a program that is not counted, and
/// allocates nothing.
pub fn mark() {
    // SAFETY: the call takes no argument and only returns a number; what is in the registers means nothing to the kernel.
    unsafe { libc::syscall(libc::SYS_getppid, MARK) };
}
