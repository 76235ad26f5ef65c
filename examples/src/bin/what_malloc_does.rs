//! What malloc is doing: `cargo run --release -p freestone-examples --bin what_malloc_does [-- LIBRARY.so ...]`.
//!
//! Prints a scoreboard with a column for glibc and one for each allocator library that is named, which is preloaded; without
//! any, for the `libfreestone.so` beside this program, if it has been built. Each figure comes out of a process of its own,
//! which is this program again: [`child`] and [`allocate_cold`] are what it does, the rest is what its parent makes of it.
//!
//! Everything is asked of the C functions, as any program would. `black_box` keeps the compiler from deleting the work: it
//! knows what malloc and free do, and takes out a pair that nobody looks at.

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use freestone_syscalls::cold::Words;
use freestone_syscalls::{Calls, Counts, MEMORY, count_parts, mark, run_cold};
use std::env;
use std::ffi::c_void;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Instant;

/// The first word of a child's command line.
const CHILD: &str = "--child";
/// What children are told to do, in the second word.
const COLD: &str = "cold";
const MAPPINGS: &str = "mappings";
const BYTES: &str = "bytes";
const PRICE: &str = "price";
const THREADS: &str = "threads";

/// The requests whose bytes are looked at.
const REQUESTS: [usize; 4] = [1, 24, 25, 1000];
/// The numbers of threads.
const CROWDS: [usize; 3] = [1, 2, 4];
/// The requests in a row that must all be mappings.
const ROW: usize = 8;
const LEAST_MAPPING: usize = 4 << 10;
const LARGEST_MAPPING: usize = 256 << 20;

type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match &words[..] {
        [first, what, number] if first == CHILD => child(what, number).map(|said| println!("{said}")),
        libraries => scoreboard(libraries).map(|table| println!("{table}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("what_malloc_does: {why}");
            ExitCode::FAILURE
        }
    }
}

fn scoreboard(libraries: &[String]) -> Result<Table> {
    let allocators = allocators(libraries)?;
    let columns: Vec<_> = allocators.iter().map(Allocator::column).collect::<Result<_>>()?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([""].into_iter().chain(allocators.iter().map(|it| it.name.as_str())));
    for (place, title) in titles().into_iter().enumerate() {
        table.add_row([title].into_iter().chain(columns.iter().map(|column| column[place].clone())));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    Ok(table)
}

/// The rows, in the order of [`Allocator::column`].
fn titles() -> Vec<String> {
    let mut titles = vec!["system calls for 1,000 × malloc(16)".to_string()];
    titles.extend(REQUESTS.iter().map(|size| format!("malloc({size}): bytes usable, bytes to the next")));
    titles.push("a system call costs as much as so many pairs of malloc(16) and free".into());
    titles.push("a request gets its own mapping from".into());
    titles.extend(CROWDS.iter().map(|threads| format!("millions of blocks replaced a second, threads: {threads}")));
    titles
}

/// An allocator to be looked at.
struct Allocator {
    name: String,
    library: Option<PathBuf>,
}

fn allocators(libraries: &[String]) -> Result<Vec<Allocator>> {
    let mut all = vec![Allocator { name: "glibc".into(), library: None }];
    match libraries {
        [] => all.extend(beside().and_then(|path| Allocator::preloaded(&path).ok())),
        named => all.extend(named.iter().map(|it| Allocator::preloaded(Path::new(it))).collect::<Result<Vec<_>>>()?),
    }
    Ok(all)
}

fn beside() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.with_file_name("libfreestone.so"))
}

impl Allocator {
    fn preloaded(library: &Path) -> Result<Self> {
        let real = library.canonicalize().map_err(|why| format!("{}: {why}", library.display()))?;
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, library: Some(real) })
    }

    fn column(&self) -> Result<Vec<String>> {
        let mut column = vec![self.cold_calls()?];
        column.extend(self.tell(BYTES, 0)?.lines().map(String::from));
        column.push(self.tell(PRICE, 0)?);
        column.push(self.first_mapping()?);
        for threads in CROWDS {
            column.push(self.tell(THREADS, threads)?);
        }
        Ok(column)
    }

    /// All of them, then by name.
    fn cold_calls(&self) -> Result<String> {
        let calls = self.marked(COLD, 0)?;
        let kinds: Vec<_> = MEMORY.iter().map(|it| (it, calls.of(it))).filter(|(_, count)| *count > 0).collect();
        let kinds: Vec<_> = kinds.iter().map(|(name, count)| format!("{name} {count}")).collect();
        Ok(format!("{}: {}", calls.memory(), kinds.join(", ")))
    }

    /// The smallest request of which each of a row is a mapping: doubled until it is, then halved into.
    fn first_mapping(&self) -> Result<String> {
        let (mut without, mut with) = (0, LEAST_MAPPING);
        while !self.is_mapped(with)? {
            (without, with) = (with, 2 * with);
            if with > LARGEST_MAPPING {
                return Ok(format!("over {} MiB", LARGEST_MAPPING >> 20));
            }
        }
        while with - without > 1 {
            let middle = without.midpoint(with);
            *(if self.is_mapped(middle)? { &mut with } else { &mut without }) = middle;
        }
        Ok(format!("{with} B"))
    }

    fn is_mapped(&self, size: usize) -> Result<bool> {
        Ok(self.marked(MAPPINGS, size)?.of("mmap") >= ROW as u64)
    }

    /// The calls between the two marks of a child.
    fn marked(&self, what: &str, number: usize) -> Result<Counts> {
        let mut child = self.child(what, number)?;
        child.stdout(Stdio::null());
        let parts: [Counts; 3] = count_parts(child, Calls::Memory)?.try_into().map_err(|_| "a child without two marks")?;
        let [_, marked, _] = parts;
        Ok(marked)
    }

    /// What a child prints.
    fn tell(&self, what: &str, number: usize) -> Result<String> {
        let output = self.child(what, number)?.stderr(Stdio::inherit()).output().map_err(|why| why.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
            false => Err(format!("{what} with {}: {}", self.name, output.status)),
        }
    }

    fn child(&self, what: &str, number: usize) -> Result<Command> {
        let mut command = Command::new(env::current_exe().map_err(|why| why.to_string())?);
        command.args([CHILD, what, &number.to_string()]).env_remove("LD_PRELOAD");
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        Ok(command)
    }
}

run_cold!(allocate_cold);

/// In the child of that name, before everything else: nobody has allocated yet. Of a library's own pages, those that the
/// loader maps are not between the marks.
fn allocate_cold(words: &Words) {
    if (words.get(1), words.get(2)) == (Some(CHILD), Some(COLD)) {
        mark();
        (0..1000).for_each(|_| _ = new(16));
        mark();
    }
}

/// What a child does, and what it has to say.
fn child(what: &str, number: &str) -> Result<String> {
    check_preload()?;
    let number: usize = number.parse().map_err(|why| format!("{number:?}: {why}"))?;
    match what {
        COLD => Ok(String::new()),
        MAPPINGS => Ok(make_mappings(number)),
        BYTES => Ok(REQUESTS.map(|size| format!("{}, {}", usable(size), distance(size))).join("\n")),
        PRICE => Ok(format!("{:.0}", system_call() / pair())),
        THREADS => Ok(format!("{:.0}", throughput(number))),
        other => Err(format!("{other:?} is nothing to do")),
    }
}

/// The loader goes on without a library that it cannot load: the figures would be glibc's.
fn check_preload() -> Result<()> {
    let Ok(library) = env::var("LD_PRELOAD") else { return Ok(()) };
    let maps = fs::read_to_string("/proc/self/maps").map_err(|why| why.to_string())?;
    maps.contains(&library).then_some(()).ok_or_else(|| format!("{library} was not loaded"))
}

/// One before the row: it may still fit into what the allocator held.
fn make_mappings(size: usize) -> String {
    new(size);
    mark();
    (0..ROW).for_each(|_| _ = new(size));
    mark();
    String::new()
}

/// A block that the compiler knows nothing of.
fn new(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    let block = black_box(unsafe { libc::malloc(black_box(size)) });
    assert!(!block.is_null(), "out of memory");
    block
}

/// # Safety
/// The block is one of [`new`], and nobody uses it any more.
unsafe fn delete(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(block) }
}

fn usable(size: usize) -> usize {
    // SAFETY: the block is live.
    unsafe { libc::malloc_usable_size(new(size)) }
}

/// From a block to the next one in memory: the median over 256 blocks, which an allocator may hand out in any order.
fn distance(size: usize) -> usize {
    let mut places: Vec<_> = (0..256).map(|_| new(size).addr()).collect();
    places.sort_unstable();
    let mut gaps: Vec<_> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    gaps[gaps.len() / 2]
}

/// Nanoseconds a malloc(16) and its free.
fn pair() -> f64 {
    // SAFETY: the block is freed at once.
    cost(1_000_000, || unsafe { delete(new(16)) })
}

/// Nanoseconds of the cheapest call into the kernel.
fn system_call() -> f64 {
    // SAFETY: only returns a number.
    cost(100_000, || _ = black_box(unsafe { libc::syscall(libc::SYS_getppid, 0) }))
}

/// The best of five: whatever disturbs makes it longer.
fn cost(times: u32, mut work: impl FnMut()) -> f64 {
    let mut lap = || {
        let start = Instant::now();
        (0..times).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / f64::from(times)
    };
    (0..5).map(|_| lap()).fold(f64::INFINITY, f64::min)
}

/// Millions of blocks a second that so many threads replace, together.
fn throughput(threads: usize) -> f64 {
    const EACH: usize = 5_000_000;
    let start = Instant::now();
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(|| replace(EACH))));
    (threads * EACH) as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// The oldest of 64 blocks of 16 to 256 bytes, over and over.
fn replace(times: usize) {
    let mut blocks = [0; 64].map(|_| new(16));
    for turn in 0..times {
        let oldest = &mut blocks[turn % 64];
        // SAFETY: the block is live, and its place gets another one.
        unsafe { delete(*oldest) };
        *oldest = new(16 + turn * 48 % 241);
        // SAFETY: the block is live and has at least 16 bytes.
        unsafe { oldest.cast::<u8>().write(1) };
    }
    // SAFETY: each is live, and the list ends here.
    blocks.into_iter().for_each(|block| unsafe { delete(block) });
}
