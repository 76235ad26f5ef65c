//! What the stress tests share: runs in child processes, threads that hop between cores, a signal that comes at any moment.

use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Names, in the environment, the part that a child process of a test plays.
pub const ROLE: &str = "FREESTONE_TEST_ROLE";
/// A child's exit status for "two owners, or a block lost".
pub const CORRUPT: i32 = 3;
/// A child's exit status for "this system does not have that mode".
pub const NOT_HERE: i32 = 4;

/// A way in which lists work, and the environment that brings it about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Restartable sequences on libc's area.
    Libc,
    /// The same on an own area, as under a libc without one.
    Own,
    /// Claims.
    Claims,
}

impl Way {
    const fn environment(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Libc => None,
            Self::Own => Some(("GLIBC_TUNABLES", "glibc.pthread.rseq=0")),
            Self::Claims => Some(("FREESTONE_CONF", "rseq=off")),
        }
    }
}

/// One child at a time: each uses all cores.
static TURN: Mutex<()> = Mutex::new(());

/// Runs the test `name` of this executable in a new process, as `role`.
pub fn run(name: &str, role: &str, way: Way) -> (ExitStatus, String) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ROLE, role).envs(way.environment());
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status, format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

/// Runs a child that has to end well.
pub fn run_well(name: &str, role: &str, way: Way) {
    let (status, text) = run(name, role, way);
    if status.code() == Some(NOT_HERE) {
        eprintln!("{way:?}: not on this system, not tested");
        return;
    }
    assert!(status.success(), "{role} by {way:?}: {status}\n{text}");
}

/// The part this process plays; `None` in the test itself.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Ends the process as one that is not in the mode of its `role`, unless it is.
pub fn insist_on_mode() {
    use freestone_linux::{Mode, mode};
    let right = match mode() {
        Mode::Claims => is_way(Way::Claims),
        Mode::Rseq(_) => !is_way(Way::Claims) && is_way(Way::Own) != libc_registers(),
        Mode::Undecided => false,
    };
    if !right {
        std::process::exit(NOT_HERE);
    }
}

fn is_way(way: Way) -> bool {
    way.environment().is_some_and(|(name, value)| std::env::var(name).is_ok_and(|v| v == value))
}

/// Whether libc has registered areas: its symbol is looked up, as the test need not load on an older one.
fn libc_registers() -> bool {
    // SAFETY: where the symbol exists it is an unsigned int.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>().as_ref() }.is_some_and(|size| *size != 0)
}

/// Ends the process at once; may be called by a signal handler.
pub fn corrupt(what: &str) -> ! {
    // SAFETY: writes a string and ends.
    unsafe {
        libc::write(2, what.as_ptr().cast(), what.len());
        libc::write(2, b"\n".as_ptr().cast(), 1);
        libc::_exit(CORRUPT)
    }
}

/// A small random generator, by a fixed seed.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

/// Set when the threads of a run are to end.
pub static OVER: AtomicBool = AtomicBool::new(false);

/// Whether the run goes on.
pub fn going_on() -> bool {
    !OVER.load(Ordering::Relaxed)
}

/// Calls `each` until `time` has passed, then ends the run.
pub fn for_a_while(time: Duration, mut each: impl FnMut()) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        each();
    }
    OVER.store(true, Ordering::Relaxed);
}

/// Moves the calling thread to a core of the `turn`, out of those the process may use. Allocates nothing.
pub fn hop(turn: usize) {
    // SAFETY: plain calls on local masks.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(libc::getpid(), size_of_val(&allowed), &mut allowed);
        let cores = libc::CPU_COUNT(&allowed) as usize;
        let mine = (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &allowed)).nth(turn % cores.max(1));
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(mine.unwrap_or(0), &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one);
    }
}

/// The signal that interrupts the workers.
pub const SIGNAL: i32 = libc::SIGUSR1;

/// Installs `handler` for [`SIGNAL`].
pub fn handle(handler: extern "C" fn(i32)) {
    // SAFETY: the handlers of these tests call only what a signal handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
    }
}

/// The threads to interrupt.
pub static WORKERS: Mutex<Vec<libc::pthread_t>> = Mutex::new(Vec::new());

/// Adds the calling thread to [`WORKERS`].
pub fn enlist() {
    // SAFETY: names the calling thread.
    WORKERS.lock().unwrap().push(unsafe { libc::pthread_self() });
}

/// Interrupts workers in turn, at any point of what they do, until the run is over.
pub fn pester() {
    let mut random = Random(0x5eed);
    while going_on() {
        let workers = WORKERS.lock().unwrap();
        for worker in workers.iter() {
            // SAFETY: workers are joined only after this thread.
            unsafe { libc::pthread_kill(*worker, SIGNAL) };
        }
        drop(workers);
        std::thread::sleep(Duration::from_micros(20 + random.below(200) as u64));
    }
}

/// Forks; `child` runs in the child, which then ends. The parent waits and wants it to have ended well.
pub fn fork_and(child: impl FnOnce()) {
    // SAFETY: the child does what `child` does and ends without running anything of the parent's.
    unsafe {
        let process = libc::fork();
        if process == 0 {
            libc::alarm(20);
            child();
            libc::_exit(0);
        }
        let mut status = 0;
        while libc::waitpid(process, &mut status, 0) != process {}
        if status != 0 {
            corrupt(&format!("a forked child ended with status {status:#x}"));
        }
    }
}
