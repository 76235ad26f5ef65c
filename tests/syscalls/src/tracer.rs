//! The program under a tracer: which of its stops is a call, and how it goes on after each.
//!
//! Called by the crate's root; calls [`crate::ptrace`].
//!
//! The kernel knows a tracer by its thread, and gives a thread the news of all its children: so the tracer is a thread of
//! its own, which has no other children.

use crate::ptrace::{self, News, Stop};
use crate::{Calls, Counts, MARK, MEMORY_NUMBERS};
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use std::collections::HashSet;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::thread;

/// Runs `command` to its end; the counts between its marks.
pub fn run(command: Command, calls: Calls) -> Result<Vec<Counts>, String> {
    let tracer = thread::spawn(move || trace(command, calls));
    tracer.join().expect("the tracer does not panic")
}

fn trace(mut command: Command, calls: Calls) -> Result<Vec<Counts>, String> {
    prepare(&mut command, calls)?;
    let child = command.spawn().map_err(|why| format!("does not start under a tracer: {why}"))?;
    let mut tracer = Tracer { calls, known: HashSet::new(), parts: vec![Counts::default()] };
    let status = tracer.follow(child.id() as libc::pid_t).map_err(|why| format!("cannot be traced: {why}"))?;
    match status.success() {
        true => Ok(tracer.parts),
        false => Err(format!("ended with {status}")),
    }
}

/// Has the program stop right after its exec, with the filter in place.
fn prepare(command: &mut Command, calls: Calls) -> Result<(), String> {
    let filter = match calls {
        Calls::Memory => Some(filter().map_err(|why| why.to_string())?),
        Calls::All => None,
    };
    let hook = move || {
        ptrace::trace_me()?;
        filter.as_ref().map_or(Ok(()), seccomp)
    };
    // SAFETY: between fork and exec the hook makes system calls and does nothing else; in particular it does not allocate.
    unsafe { command.pre_exec(hook) };
    Ok(())
}

fn seccomp(filter: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(filter).map_err(|_| io::Error::last_os_error())
}

/// Stops the program at the calls of [`MEMORY_NUMBERS`] and at marks.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mark = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, MARK)?;
    let mark = (libc::SYS_getppid, vec![SeccompRule::new(vec![mark])?]);
    let rules = MEMORY_NUMBERS.into_iter().map(|number| (number, Vec::new())).chain([mark]).collect();
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), std::env::consts::ARCH.try_into()?)?.try_into()
}

struct Tracer {
    calls: Calls,
    /// The tasks (threads) that have had their first stop, and have not ended.
    known: HashSet<libc::pid_t>,
    parts: Vec<Counts>,
}

impl Tracer {
    /// From the stop after the exec until no task is left; how the first process ended.
    fn follow(&mut self, first: libc::pid_t) -> io::Result<ExitStatus> {
        let mut end = ptrace::wait_for(first)?.ended();
        if end.is_none() {
            self.known.insert(first);
            ptrace::set_options(first)?;
            self.resume(first, 0)?;
        }
        while let Some((task, news)) = ptrace::wait()? {
            let ended = self.hear(task, news)?;
            end = end.or(ended.filter(|_| task == first));
        }
        end.map(ExitStatus::from_raw).ok_or_else(|| io::Error::other("it got lost"))
    }

    /// The wait status of a task that has ended; all others go on.
    fn hear(&mut self, task: libc::pid_t, news: News) -> io::Result<Option<i32>> {
        match news {
            News::Ended(status) => {
                self.known.remove(&task);
                return Ok(Some(status));
            }
            News::Stopped(stop) => {
                let signal = self.signal_after(task, stop)?;
                self.resume(task, signal)?;
            }
        }
        Ok(None)
    }

    /// What a task is told when it goes on: a signal, or 0.
    fn signal_after(&mut self, task: libc::pid_t, stop: Stop) -> io::Result<i32> {
        match stop {
            Stop::Call => self.record(task)?,
            // A thread that starts a program takes the number of its process's first thread; its own may be given again.
            Stop::Exec => self.forget(ptrace::message(task)?),
            Stop::Event => {}
            // A new task has stopped for the tracer, by no signal that was meant for it.
            Stop::Signal(libc::SIGSTOP) if self.known.insert(task) => {}
            Stop::Signal(signal) if ptrace::is_delivery(task) => return Ok(signal),
            Stop::Signal(_) => {}
        }
        Ok(0)
    }

    fn record(&mut self, task: libc::pid_t) -> io::Result<()> {
        match ptrace::entered(task)? {
            Some((libc::SYS_getppid, MARK)) => self.parts.push(Counts::default()),
            Some((number, _)) => self.parts.last_mut().expect("there is a first part").add(number),
            None => {}
        }
        Ok(())
    }

    fn forget(&mut self, former: libc::pid_t) {
        self.known.remove(&former);
    }

    fn resume(&self, task: libc::pid_t, signal: i32) -> io::Result<()> {
        match self.calls {
            Calls::Memory => ptrace::resume(task, signal),
            Calls::All => ptrace::resume_to_call(task, signal),
        }
    }
}
