//! Programs whose system calls are known. Each is an ignored test of this file, run as a process of its own; what it does
//! stands between two marks, so that the calls of the test harness are another part.

use freestone_syscalls::{Calls, Counts, MEMORY, count, count_parts, mark};
use std::env;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const PAGE: usize = 4096;

/// This program again, running the ignored test `name`, which stands for a program of its own.
fn program(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--test-threads=1", name]).stdout(Stdio::null());
    command
}

/// The part between the two marks of the program `name`.
fn marked(name: &str, calls: Calls) -> Counts {
    let [_, part, _] = count_parts(program(name), calls).unwrap().try_into().expect("two marks");
    part
}

fn named(counts: &Counts) -> [u64; 6] {
    MEMORY.map(|name| counts.of(name))
}

/// All six, each another number of times; and calls that are none of them.
#[test]
#[ignore = "a program of the tests below"]
fn known_calls() {
    mark();
    known();
    mark();
}

fn known() {
    let map = |size| {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping at a place that the kernel chooses.
        unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) }
    };
    let pages: [_; 5] = std::array::from_fn(|_| map(2 * PAGE));
    // SAFETY: the pages are mapped and nobody uses them; `brk(0)` and `getppid` only ask.
    unsafe {
        pages[..4].iter().for_each(|&it| assert_eq!(libc::madvise(it, PAGE, libc::MADV_DONTNEED), 0));
        pages[..3].iter().for_each(|&it| assert_eq!(libc::mprotect(it, PAGE, libc::PROT_READ), 0));
        pages[..2].iter().for_each(|&it| assert_ne!(libc::mremap(it, 2 * PAGE, PAGE, 0), libc::MAP_FAILED));
        assert_eq!(libc::munmap(pages[0], PAGE), 0);
        (0..6).for_each(|_| assert!(libc::syscall(libc::SYS_brk, 0) > 0));
        (0..7).for_each(|_| assert!(libc::syscall(libc::SYS_getppid, 0) > 0));
    }
}

#[test]
fn memory_calls_are_counted_between_marks() {
    let counts = marked("known_calls", Calls::Memory);
    assert_eq!(named(&counts), [6, 5, 1, 2, 4, 3]);
    assert_eq!((counts.memory(), counts.total()), (21, 21));
    assert_eq!(counts.of_number(libc::SYS_getppid), 0);
}

#[test]
fn all_calls_are_counted_between_marks() {
    let counts = marked("known_calls", Calls::All);
    assert_eq!(named(&counts), [6, 5, 1, 2, 4, 3]);
    assert_eq!(counts.of_number(libc::SYS_getppid), 7);
    assert_eq!((counts.memory(), counts.total()), (21, 28));
}

#[test]
fn both_ways_agree_on_a_whole_program() {
    let run = |calls| {
        let mut program = Command::new("ls");
        program.arg("/proc/self/fd").stdout(Stdio::null());
        count(program, calls).unwrap()
    };
    let (memory, all) = (run(Calls::Memory), run(Calls::All));
    assert_eq!(named(&memory), named(&all));
    assert!(memory.of("mmap") > 4, "the loader maps libraries");
    assert!(all.total() > all.memory());
}

#[test]
#[ignore = "a program of the tests below"]
fn calls_of_threads() {
    mark();
    let threads: Vec<_> = (0..8).map(|_| thread::spawn(|| (0..100).for_each(|_| advise_nothing()))).collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    mark();
}

/// Fails, and counts all the same. No allocator says this.
fn advise_nothing() {
    // SAFETY: of address 0, where nothing is mapped, and with an advice that does not exist.
    assert_eq!(unsafe { libc::madvise(ptr::null_mut(), 0, 12345) }, -1);
}

#[test]
fn threads_are_counted() {
    for calls in [Calls::Memory, Calls::All] {
        let counts = marked("calls_of_threads", calls);
        assert!((800..1000).contains(&counts.of("madvise")), "{counts:?}");
        assert!(counts.of("mmap") >= 8, "their stacks: {counts:?}");
    }
}

#[test]
#[ignore = "a program of the tests below"]
fn calls_of_children() {
    mark();
    assert!(program("calls_of_threads").status().unwrap().success());
    // SAFETY: the child makes system calls and ends.
    match unsafe { libc::fork() } {
        0 => {
            (0..100).for_each(|_| advise_nothing());
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: waits for the child; the status is not asked for.
        child => assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child),
    }
    mark();
}

#[test]
fn children_are_counted() {
    let parts = count_parts(program("calls_of_children"), Calls::Memory).unwrap();
    assert_eq!(parts.len(), 5, "the child's marks count too");
    let advices: u64 = parts.iter().map(|it| it.of("madvise")).sum();
    assert!((900..1100).contains(&advices), "{parts:?}");
}

#[test]
#[ignore = "a program of the test below"]
fn another_program_from_a_thread() {
    // The thread takes the number of the first one, which ends.
    let replaced = thread::spawn(|| program("calls_of_threads").exec()).join().unwrap();
    panic!("{replaced}");
}

#[test]
fn a_program_that_becomes_another_is_counted() {
    for calls in [Calls::Memory, Calls::All] {
        let counts = marked("another_program_from_a_thread", calls);
        assert!((800..1000).contains(&counts.of("madvise")), "{counts:?}");
    }
}

static HEARD: AtomicU32 = AtomicU32::new(0);

extern "C" fn hear(_: libc::c_int) {
    HEARD.fetch_add(1, Ordering::Relaxed);
}

#[test]
#[ignore = "a program of the tests below"]
fn calls_between_signals() {
    for signal in [libc::SIGUSR1, libc::SIGTRAP, libc::SIGRTMIN()] {
        // SAFETY: the handler adds to an atomic variable and does nothing else.
        unsafe { libc::signal(signal, hear as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
    mark();
    for _ in 0..50 {
        for signal in [libc::SIGUSR1, libc::SIGTRAP, libc::SIGRTMIN()] {
            // SAFETY: the signal has a handler.
            unsafe { libc::raise(signal) };
            advise_nothing();
        }
    }
    mark();
    assert_eq!(HEARD.load(Ordering::Relaxed), 150);
}

#[test]
fn signals_arrive_and_are_no_calls() {
    for calls in [Calls::Memory, Calls::All] {
        assert_eq!(marked("calls_between_signals", calls).memory(), 150);
    }
}

#[test]
#[ignore = "a program of the tests below"]
fn stops() {
    // SAFETY: stops this process; the tracer has it go on.
    (0..3).for_each(|_| assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0));
}

#[test]
fn a_program_that_stops_goes_on() {
    count(program("stops"), Calls::Memory).unwrap();
}

#[test]
#[ignore = "a program of the tests below"]
fn many_calls() {
    mark();
    (0..100_000).for_each(|_| advise_nothing());
    // None of the six: these do not stop the program.
    // SAFETY: only returns a number.
    (0..100_000).for_each(|_| assert!(black_box(unsafe { libc::syscall(libc::SYS_getpid) }) > 0));
    mark();
}

#[test]
fn many_calls_are_counted() {
    assert_eq!(marked("many_calls", Calls::Memory).of("madvise"), 100_000);
}

#[test]
fn counts_of_several_tracers_are_apart() {
    thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| marked("known_calls", Calls::Memory).total())).collect();
        runs.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), 21));
    });
}

#[test]
#[ignore = "a program of the tests below"]
fn fails() {
    std::process::exit(3);
}

#[test]
fn failures_are_told() {
    assert!(count(program("fails"), Calls::Memory).unwrap_err().contains("exit status: 3"));
    let missing = count(Command::new("/nonexistent/program"), Calls::Memory).unwrap_err();
    assert!(missing.contains("does not start"), "{missing}");
}
