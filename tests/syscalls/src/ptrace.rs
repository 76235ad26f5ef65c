//! The system call `ptrace` and the waiting that belongs to it, as safe functions.
//!
//! Called by [`crate::tracer`]. Of `libc` and not of a crate above it: those know no real-time signals, which libc's own
//! threads send each other and which must be passed on.
//!
//! A task that is killed while it is stopped takes no requests any more (`ESRCH`), and its end is told later: functions
//! that meet this say so by an empty answer.

use std::io;
use std::mem;
use std::ptr;

use libc::{c_int, c_void, pid_t};

const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_EXITKILL;

/// What the kernel tells of a task.
pub enum News {
    /// It has ended, with this wait status.
    Ended(c_int),
    /// It has stopped, and waits to be resumed.
    Stopped(Stop),
}

/// Why a task has stopped.
pub enum Stop {
    /// It enters or leaves a system call.
    Call,
    /// It runs another program now.
    Exec,
    /// It has made another task.
    Event,
    /// It is to get a signal, or a signal has stopped its process: [`is_delivery`] tells.
    Signal(c_int),
}

impl News {
    /// The wait status of a task that has ended.
    pub fn ended(self) -> Option<c_int> {
        match self {
            Self::Ended(status) => Some(status),
            Self::Stopped(_) => None,
        }
    }

    fn of(status: c_int) -> Self {
        match libc::WIFSTOPPED(status) {
            true => Self::Stopped(Stop::of(libc::WSTOPSIG(status), status >> 16)),
            false => Self::Ended(status),
        }
    }
}

impl Stop {
    fn of(signal: c_int, event: c_int) -> Self {
        const CALL: c_int = libc::SIGTRAP | 0x80;
        match (signal, event) {
            (CALL, _) | (_, libc::PTRACE_EVENT_SECCOMP) => Self::Call,
            (_, libc::PTRACE_EVENT_EXEC) => Self::Exec,
            (_, 0) => Self::Signal(signal),
            _ => Self::Event,
        }
    }
}

/// Makes the parent of this process its tracer.
pub fn trace_me() -> io::Result<()> {
    request(libc::PTRACE_TRACEME, 0, 0, ptr::null_mut()).map(|_| ())
}

/// Has a stopped task, and all that it makes, tell of calls and of new tasks, and end with the tracer.
pub fn set_options(task: pid_t) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, task, 0, OPTIONS as usize as *mut c_void).map(|_| ())
}

/// The next news of any task of this thread; `None`: there are no tasks left.
pub fn wait() -> io::Result<Option<(pid_t, News)>> {
    match wait_raw(-1) {
        Ok((task, status)) => Ok(Some((task, News::of(status)))),
        Err(why) if why.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(why) => Err(why),
    }
}

/// The next news of `task`.
pub fn wait_for(task: pid_t) -> io::Result<News> {
    wait_raw(task).map(|(_, status)| News::of(status))
}

fn wait_raw(which: pid_t) -> io::Result<(pid_t, c_int)> {
    loop {
        let mut status = 0;
        // SAFETY: the status is a live variable.
        let task = unsafe { libc::waitpid(which, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        match task {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok((task, status)),
        }
    }
}

/// The number and the first argument of the call that `task` is about to make; `None`: it leaves one, or is gone.
pub fn entered(task: pid_t) -> io::Result<Option<(i64, u64)>> {
    // SAFETY: the structure is numbers and unions of numbers, for which zeros are values.
    let mut info: libc::ptrace_syscall_info = unsafe { mem::zeroed() };
    let size = size_of_val(&info);
    if unless_gone(request(libc::PTRACE_GET_SYSCALL_INFO, task, size, ptr::from_mut(&mut info).cast()))?.is_none() {
        return Ok(None);
    }
    match info.op {
        // Both begin with the number and the arguments.
        libc::PTRACE_SYSCALL_INFO_ENTRY | libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: by `op` this is the part that the kernel filled.
            let entry = unsafe { info.u.entry };
            Ok(Some((entry.nr as i64, entry.args[0])))
        }
        _ => Ok(None),
    }
}

/// The task number that an exec tells of: which one it had before.
pub fn message(task: pid_t) -> io::Result<pid_t> {
    let mut former: libc::c_ulong = 0;
    unless_gone(request(libc::PTRACE_GETEVENTMSG, task, 0, ptr::from_mut(&mut former).cast()))?;
    Ok(former as pid_t)
}

/// Whether a task that stopped for a signal is to get it now. Otherwise a signal that it got has stopped its whole process.
pub fn is_delivery(task: pid_t) -> bool {
    // SAFETY: the structure is numbers and unions of numbers, for which zeros are values.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, task, 0, ptr::from_mut(&mut info).cast()).is_ok()
}

/// Lets a stopped task go on, with a signal or 0, until the filter stops it.
pub fn resume(task: pid_t, signal: c_int) -> io::Result<()> {
    unless_gone(request(libc::PTRACE_CONT, task, 0, signal as usize as *mut c_void)).map(|_| ())
}

/// Lets a stopped task go on, with a signal or 0, until it enters or leaves a call.
pub fn resume_to_call(task: pid_t, signal: c_int) -> io::Result<()> {
    unless_gone(request(libc::PTRACE_SYSCALL, task, 0, signal as usize as *mut c_void)).map(|_| ())
}

fn unless_gone(result: io::Result<()>) -> io::Result<Option<()>> {
    match result {
        Ok(()) => Ok(Some(())),
        Err(why) if why.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(why) => Err(why),
    }
}

/// `data` is a number, or points to what the request fills and is as large as it needs.
fn request(what: libc::c_uint, task: pid_t, address: usize, data: *mut c_void) -> io::Result<()> {
    // SAFETY: the callers, all in this file, give each request the data it takes; the task is another process.
    match unsafe { libc::ptrace(what, task, address as *mut c_void, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
