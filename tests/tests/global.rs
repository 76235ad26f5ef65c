//! A Rust program on the global allocator: this one. Cases R01, R03, R04, R05, R07, R09, R10, R12.
//!
//! R07 by two copies of the allocator in one process. Its other half, a Rust `dylib` linked with `prefer-dynamic`, does not
//! reach any allocator: there rustc takes the allocator shim of the shared `std` and ignores `#[global_allocator]`.
//! R09 on `std`, whose error handler stops the program; a `no_std` handler of one's own is not stable Rust.
//! R12 needs root, to make a set-uid copy of this program; elsewhere the test says that it did nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::RefCell;
use freestone_linux::Freestone;
use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

#[global_allocator]
static ALLOCATOR: Freestone = Freestone;

const MIB: usize = 1 << 20;

/// This program again, running the ignored test `name`, which stands for a program of its own.
fn child(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "--ignored", "--nocapture", "--test-threads=1", name]);
    command
}

fn this_program() -> PathBuf {
    env::current_exe().unwrap()
}

/// Runs the child where other tests' memory does not count; panics unless it succeeds.
#[track_caller]
fn expect_success(name: &str) {
    let output = child(&this_program(), name).output().unwrap();
    assert!(output.status.success(), "{name}: {}", text(&output));
}

fn text(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Bytes of this process that are resident.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A block of raw memory by the allocator, with a pattern.
struct Raw {
    start: *mut u8,
    layout: Layout,
}

impl Raw {
    fn new(size: usize, align: usize, byte: u8) -> Self {
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: the size is not zero.
        let start = unsafe { ALLOCATOR.alloc(layout) };
        let mut raw = Self { start, layout };
        raw.fill(byte);
        raw
    }

    fn fill(&mut self, byte: u8) {
        assert!(!self.start.is_null() && self.start.addr().is_multiple_of(self.layout.align()), "{:?}", self.layout);
        // SAFETY: the block is that long, and this value's.
        unsafe { self.start.write_bytes(byte, self.layout.size()) }
    }

    fn expect(&self, byte: u8, len: usize) {
        // SAFETY: `len` is at most the block's size, and `fill` wrote it.
        let bytes = unsafe { core::slice::from_raw_parts(self.start, len) };
        assert!(bytes.iter().all(|b| *b == byte), "{:?}", self.layout);
    }

    /// Changes the size, checks what must be kept, fills with another byte.
    fn resize(&mut self, size: usize, old: u8, new: u8) {
        let kept = size.min(self.layout.size());
        // SAFETY: the block is live with this layout, and the size is not zero.
        self.start = unsafe { ALLOCATOR.realloc(self.start, self.layout, size) };
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.expect(old, kept);
        self.fill(new);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the block is live with this layout.
        unsafe { ALLOCATOR.dealloc(self.start, self.layout) }
    }
}

/// R01: every alignment is honoured, with sizes below, at and above it.
#[test]
fn r01_over_aligned_layouts() {
    #[derive(Clone)]
    #[repr(align(256))]
    struct Wide([u8; 256]);

    let mut live = VecDeque::new();
    for i in 0..20_000_usize {
        let size = [1, 8, 16, 24, 100, 256, 4096][i % 7];
        live.push_back((Raw::new(size, 1 << (i % 17), i as u8), i as u8));
        if live.len() > 64 {
            let (raw, byte) = live.pop_front().unwrap();
            raw.expect(byte, raw.layout.size());
        }
    }
    for len in [1, 3, 100, 5000] {
        let wide: Vec<Wide> = (0..len).map(|n| Wide([n as u8; 256])).collect();
        assert!(wide.as_ptr().addr().is_multiple_of(256));
        assert!(wide.iter().enumerate().all(|(n, w)| w.0 == [n as u8; 256]));
    }
}

/// R03: realloc keeps an alignment above 16, whatever the sizes.
#[test]
fn r03_realloc_keeps_the_alignment() {
    for align in [32, 64, 256, 4096, 65_536] {
        let mut raw = Raw::new(8, align, 1);
        for (n, size) in [4096, MIB, 100, 8, 5 * MIB, 9 * MIB, 8].into_iter().enumerate() {
            raw.resize(size, n as u8 + 1, n as u8 + 2);
        }
    }
}

/// R04: a zeroed block is zero, also where old values were.
#[test]
fn r04_zeroed_memory() {
    for _ in 0..2 {
        let mut numbers = vec![0_u16; 10_000_000];
        assert!(numbers.iter().all(|n| *n == 0));
        numbers[..5].fill(7);
        numbers.iter_mut().step_by(4096).for_each(|n| *n = 9);
        std::hint::black_box(&numbers);
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for size in (0..=22).map(|bit| 1_usize << bit).cycle().take(23 * 4) {
                    let mut bytes = vec![0_u8; size];
                    assert!(bytes.iter().all(|b| *b == 0), "{size}");
                    bytes.fill(0xff);
                    std::hint::black_box(&bytes);
                }
            });
        }
    });
}

/// A thread-local value that allocates and frees while its thread ends, and frees what other threads made.
struct Last(RefCell<Option<Box<[u8]>>>);

static PASSED_ON: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

impl Drop for Last {
    fn drop(&mut self) {
        let text = "at the end of a thread".repeat(20);
        let numbers: Vec<usize> = (0..text.len()).collect();
        assert_eq!(numbers.len(), text.len());
        drop(self.0.take());
        let mut passed = PASSED_ON.lock().unwrap();
        let other = (passed.len() > 64).then(|| passed.swap_remove(0));
        passed.push(text.into_bytes().into_boxed_slice());
        drop(other);
    }
}

thread_local! {
    static FIRST: Last = const { Last(RefCell::new(None)) };
    static SECOND: Last = const { Last(RefCell::new(None)) };
    static THIRD: Last = const { Last(RefCell::new(None)) };
}

/// R05: destructors of thread-locals allocate; half of the threads allocate nowhere else.
#[test]
fn r05_thread_local_destructors() {
    expect_success("r05_program");
}

#[test]
#[ignore = "a program of r05_thread_local_destructors"]
fn r05_program() {
    let round = |threads: usize| {
        for batch in 0..threads / 20 {
            let threads: Vec<_> = (0..20).map(|n| thread::spawn(move || touch(batch + n))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    };
    round(100);
    let before = resident();
    round(2000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 * MIB, "{grown} bytes more are resident after 2000 threads");
}

fn touch(n: usize) {
    for local in [&FIRST, &SECOND, &THIRD] {
        local.with(|last| {
            if n.is_multiple_of(2) {
                last.0.replace(Some(vec![1; 100 + n].into_boxed_slice()));
            }
        });
    }
}

/// The library of `examples/second_copy.rs`, built as this program was.
fn second_copy() -> libloading::Library {
    let folder = this_program().parent().unwrap().parent().unwrap().to_owned();
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", "freestone-tests", "--example", "second_copy", "--profile", profile]);
    let output = build.arg("--target-dir").arg(folder.parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    // SAFETY: the library's only initialiser is that of the allocator.
    unsafe { libloading::Library::new(folder.join("examples/libsecond_copy.so")) }.unwrap()
}

/// R07: two copies of the allocator live in one process, each frees its own, and neither disturbs the other.
#[test]
fn r07_two_copies_in_one_process() {
    let library = second_copy();
    // SAFETY: the types are those of `examples/second_copy.rs`.
    let (make, data, drop_it, live) = unsafe {
        (
            library.get::<extern "C" fn(usize, u8) -> *mut Vec<u8>>("make").unwrap(),
            library.get::<unsafe extern "C" fn(*const Vec<u8>) -> *const u8>("data").unwrap(),
            library.get::<unsafe extern "C" fn(*mut Vec<u8>)>("drop_it").unwrap(),
            library.get::<extern "C" fn() -> usize>("live_bytes").unwrap(),
        )
    };
    let before = live();
    let pass = |n: usize| {
        let (len, byte) = (1 + n * 37 % 3000, n as u8);
        let (theirs, mine) = (make(len, byte), vec![byte; len]);
        // SAFETY: the text is `len` bytes long and live until `drop_it`.
        unsafe {
            assert_eq!(core::slice::from_raw_parts(data(theirs), len), mine);
            drop_it(theirs);
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25_000).for_each(pass));
        }
    });
    assert_eq!(live(), before, "live bytes of the second copy");
}

/// R09: at the end of memory `try_reserve` is an error and the program goes on; `push` ends it at once, with one message.
#[test]
fn r09_failure_path() {
    expect_success("r09_program_that_goes_on");
    let start = Instant::now();
    // A backtrace would want memory, too, and say so.
    let output = child(&this_program(), "r09_program_that_stops").env("RUST_BACKTRACE", "0").output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(!output.status.success());
    assert_eq!(text(&output).matches("memory allocation of").count(), 1, "{}", text(&output));
}

/// Lets this process grow by so much more.
fn limit_memory(bytes: usize) {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let mapped = statm.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096;
    let limit = libc::rlimit { rlim_cur: (mapped + bytes) as u64, rlim_max: (mapped + bytes) as u64 };
    // SAFETY: a plain system call on a value of ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[test]
#[ignore = "a program of r09_failure_path"]
fn r09_program_that_goes_on() {
    limit_memory(64 * MIB);
    for _ in 0..10 {
        let mut kept: Vec<Vec<u8>> = Vec::with_capacity(1024);
        loop {
            let mut bytes = Vec::new();
            match bytes.try_reserve_exact(MIB) {
                Ok(()) => kept.push(bytes),
                Err(_) => break,
            }
        }
        assert!(kept.len() > 20, "{} MiB out of 64", kept.len());
    }
    assert!(Vec::<u8>::new().try_reserve(128 * MIB).is_err());
    assert_eq!(vec![1_u8; 20 * MIB].len(), 20 * MIB);
}

#[test]
#[ignore = "a program of r09_failure_path"]
fn r09_program_that_stops() {
    limit_memory(64 * MIB);
    let mut bytes: Vec<u64> = Vec::new();
    loop {
        bytes.push(bytes.len() as u64);
    }
}

/// R10: scoped threads make boxes, one thread drops them: what is resident stays near what is live.
#[test]
fn r10_one_thread_frees_for_all() {
    expect_success("r10_program");
}

#[test]
#[ignore = "a program of r10_one_thread_frees_for_all"]
fn r10_program() {
    const LIVE: usize = 12_000;
    const REPLACED: usize = 400_000;
    let (to, from) = mpsc::sync_channel::<Box<[u8; 592]>>(1024);
    let most = thread::scope(|scope| {
        for _ in 0..4 {
            let to = to.clone();
            scope.spawn(move || {
                let mut live: Vec<_> = (0..LIVE).map(|_| Box::new([1_u8; 592])).collect();
                for n in 0..REPLACED {
                    to.send(core::mem::replace(&mut live[n * 7919 % LIVE], Box::new([2; 592]))).unwrap();
                }
            });
        }
        drop(to);
        from.iter().enumerate().map(|(n, boxed)| if boxed[0] > 0 && n % 50_000 == 0 { resident() } else { 0 }).max()
    });
    let (most, live) = (most.unwrap(), 4 * LIVE * 592);
    assert!(most < 2 * live + 24 * MIB, "{most} bytes resident for {live} live");
}

/// R12: a set-uid program takes no orders from the environment.
#[test]
fn r12_set_uid_programs_ignore_the_environment() {
    // SAFETY: plain system calls.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("not run: only root can make a set-uid program");
        return;
    }
    let folder = env::temp_dir().join(format!("freestone-set-uid-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("program");
    fs::copy(this_program(), &program).unwrap();
    let told = |mode: u32| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = child(&program, "r12_program");
        command.env("FREESTONE_CONF", "nonsense=1").current_dir("/").uid(65_534).gid(65_534);
        command.output().unwrap()
    };
    let (plain, privileged) = (told(0o755), told(0o4755));
    fs::remove_dir_all(&folder).unwrap();
    assert!(plain.status.success() && privileged.status.success(), "{}\n{}", text(&plain), text(&privileged));
    assert!(text(&plain).contains("nonsense"), "an unknown word is reported: {}", text(&plain));
    let secure = text(&privileged).contains("AT_SECURE is 1");
    assert!(secure, "the file system ignores set-uid bits: {}", text(&privileged));
    assert!(!text(&privileged).contains("nonsense"), "{}", text(&privileged));
}

#[test]
#[ignore = "a program of r12_set_uid_programs_ignore_the_environment"]
fn r12_program() {
    // SAFETY: reads the auxiliary vector.
    println!("AT_SECURE is {}", unsafe { libc::getauxval(libc::AT_SECURE) });
    assert_eq!((0..100_000_usize).map(|n| vec![n; 3].len()).sum::<usize>(), 300_000);
}

/// Fork in a program with threads: the child has a working heap, and its check passes.
#[test]
fn a_forked_child_has_a_working_heap() {
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut live: VecDeque<Vec<u8>> = VecDeque::new();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    live.push_back(vec![1; 1 + live.len() * 300]);
                    live.truncate(100);
                }
            });
        }
        let statuses: Vec<_> = (0..50).map(|_| forked()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(statuses.iter().all(|status| *status == 0), "{statuses:?}");
    });
}

/// The status of a child that allocates in all sizes, checks the heap and ends.
fn forked() -> i32 {
    // SAFETY: the child calls nothing but the allocator, which promises to work there, `write` and `_exit`; it has one thread.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let zero = (0..23).all(|bit| vec![0_u8; 1 << bit].iter().all(|b| *b == 0));
            let checked = Freestone::heap().check_quiescent().map_err(|broken| format!("in the child: {broken}\n"));
            let report = checked.err().unwrap_or_default();
            libc::write(2, report.as_ptr().cast(), report.len());
            libc::_exit(i32::from(!zero) + 2 * i32::from(!report.is_empty()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}
