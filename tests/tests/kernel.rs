//! The kernels of `tests/kernel`: built, booted in QEMU on 1, 2 and 4 processors, and believed only because they fail when a
//! failure is planted. What their heaps do with a script by its seed is compared with what heaps of the same size do with it
//! here.
//!
//! They are built in a target folder of their own, so that features which others switch on (`std` of the test tools) do not
//! reach them.

use freestone_core::{
    AddressSeal, ClaimLists, Compact, CoreLists, Fault, Grain, GranuleClass, Granules, Heap, NoLists, PAGE_SIZE, PageRun,
    Pages, Platform, RadixMap, Region, RegionError, RegionHeap, RegionPlatform, RegionSource, SpinLock, Wide,
};
use freestone_tests::digest;
use freestone_tests::home::{Core, Thread};
use freestone_tests::regions::AloneInRegions;
use freestone_tests::reserve::{Reserve, states};
use freestone_tests::script::{Script, Sizes};
use freestone_tests::source::{Backing, TestSource};
use freestone_tests::subject::{Alone, Audited};
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Seconds for a kernel that has much to do, on a machine that has, too.
const PATIENCE: u32 = 300;

/// A kernel, how many tests it has, and the lines that its replay must print.
#[derive(Clone, Copy)]
struct Kernel {
    name: &'static str,
    tests: usize,
    replays: fn(RangeInclusive<u64>, u64) -> Vec<String>,
}

const FRAMES: Kernel = Kernel { name: "frames", tests: 20, replays: replays_of_frames };
const REGION: Kernel = Kernel { name: "region", tests: 19, replays: replays_of_region };

/// A kernel that has ended.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    printed: String,
}

impl Kernel {
    fn boot(self, cpus: usize, words: &str) -> Run {
        self.boot_for(PATIENCE, cpus, words)
    }

    fn boot_for(self, limit: u32, cpus: usize, words: &str) -> Run {
        let output = Command::new(machine().join("boot"))
            .arg(folder().join("release").join(self.name))
            .args(words.split_whitespace())
            .env("CPUS", cpus.to_string())
            .env("LIMIT", limit.to_string())
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Run { code: output.status.code(), printed }
    }

    /// All of its tests, and what its heaps did with the scripts.
    fn passes(self, cpus: usize) {
        let run = self.boot(cpus, "");
        println!("{}", run.printed);
        assert_eq!(run.code, Some(0), "the kernel failed, see above");
        assert_eq!(run.lines("test ").filter(|line| line.ends_with(" ... ok")).count(), self.tests);
        let last = run.printed.lines().last();
        assert_eq!(last, Some(&*format!("kernel: {} tests passed on {cpus} cpus", self.tests)));
        let here = (self.replays)(SEEDS, STEPS);
        assert!(run.lines("replay ").eq(&here), "on the host: {here:#?}");
    }

    /// A run with a planted failure fails, and says so.
    fn fails(self, plant: &str, code: i32, says: &str) {
        let limit = if plant == "hang" { 5 } else { PATIENCE };
        let run = self.boot_for(limit, 2, &format!("plant={plant}"));
        assert_eq!(run.code, Some(code), "{}", run.printed);
        assert!(run.printed.contains(says) && !run.printed.contains("tests passed"), "{}", run.printed);
    }
}

impl Run {
    fn lines(&self, start: &str) -> impl Iterator<Item = &str> {
        self.printed.lines().filter(move |line| line.starts_with(start))
    }
}

#[test]
fn frames_on_1_cpu() {
    FRAMES.passes(1);
}

#[test]
fn frames_on_2_cpus() {
    FRAMES.passes(2);
}

#[test]
fn frames_on_4_cpus() {
    FRAMES.passes(4);
}

#[test]
fn region_on_1_cpu() {
    REGION.passes(1);
}

#[test]
fn region_on_2_cpus() {
    REGION.passes(2);
}

#[test]
fn region_on_4_cpus() {
    REGION.passes(4);
}

#[test]
fn planted_failures_fail() {
    for kernel in [FRAMES, REGION] {
        kernel.fails("panic", 1, "panicked");
        kernel.fails("fault", 1, "page fault");
        kernel.fails("overflow", 1, "page fault");
        kernel.fails("oracle", 1, "its owner wrote");
        kernel.fails("check", 1, "the heap's check: broken");
    }
    FRAMES.fails("hang", 124, "planting hang");
}

#[test]
fn other_seeds_replay() {
    for kernel in [FRAMES, REGION] {
        let run = kernel.boot(1, "only=replay_by_seed seed=0xfeed steps=900");
        let here = (kernel.replays)(0xfeed..=0xfeed, 900);
        assert!(run.lines("replay ").eq(&here), "{}\non the host: {here:#?}", run.printed);
    }
}

fn machine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("machine")
}

/// Where the kernels are, newly built.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("kernel");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--package", "freestone-kernel", "--target-dir"]).arg(&folder);
        let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    })
}

/// As in `kernel/src/replay.rs` and the kernels themselves.
const SLOTS: usize = 48;
const SEEDS: RangeInclusive<u64> = 1..=3;
const STEPS: u64 = 600;
const CPUS: usize = 8;
const FULL: Pages = Pages((16 << 20) / PAGE_SIZE);
const COMPACT: usize = 10 << 10;
const WIDE: usize = 12 << 10;

/// What heaps of the same size and shape do here.
fn replays_of_frames(seeds: RangeInclusive<u64>, steps: u64) -> Vec<String> {
    seeds.map(|seed| replay_full(seed, steps)).collect()
}

fn replays_of_region(seeds: RangeInclusive<u64>, steps: u64) -> Vec<String> {
    let compact = |seed| replay_region::<Compact, NoLists<_>>("compact-10K", COMPACT, seed, steps);
    let wide = |seed| replay_region::<Wide, ClaimLists<Core, CPUS, Granules<_, 32>>>("wide-cached-12K", WIDE, seed, steps);
    seeds.clone().map(compact).chain(seeds.map(wide)).collect()
}

fn replay_full(seed: u64, steps: u64) -> String {
    let memory = Memory::new(FULL);
    let start = memory.region().start.addr().get();
    let source: &_ = Box::leak(Box::new(TestSource::new(memory, states(FULL))));
    let heap = Alone::new(Heap::<Home>::new(source));
    replay("full-16M", &heap, start, Script { seed, sizes: Sizes::All }, steps)
}

fn replay_region<G, L>(name: &str, len: usize, seed: u64, steps: u64) -> String
where
    G: Grain,
    L: CoreLists<Class: GranuleClass<Grain = G>> + 'static,
{
    let memory = Memory::new(Pages(len / PAGE_SIZE + 1));
    assert!(memory.open(memory.region()), "memory for a test");
    let start = memory.region().start.as_ptr();
    let heap = RegionHeap::<RegionHome<G, L>>::new(Later);
    // SAFETY: memory that is open, nobody else's, and outlives the heap.
    unsafe { heap.init(Region::new(start, len)) }.unwrap_or_else(|why| panic!("{why}"));
    replay(name, &AloneInRegions::new(heap), start.addr(), Script { seed, sizes: Sizes::Small }, steps)
}

fn replay<S: Audited>(name: &str, heap: &S, start: usize, script: Script, steps: u64) -> String {
    Core::set(0);
    let digest = digest::run::<_, SLOTS>(heap, start, script, steps).unwrap_or_else(|failure| panic!("{failure}"));
    format!("replay heap={name} {digest}")
}

/// The kernel's home for full heaps, on a thread of the host.
struct Home;

impl Platform for Home {
    type Source = &'static TestSource<Memory, SpinLock<Thread>>;
    type Lists = ClaimLists<Core, CPUS>;
    type Lock = SpinLock<Thread>;
    type Map = RadixMap;
    type Seal = AddressSeal;

    fn stop(fault: Fault) -> ! {
        panic!("{fault}")
    }
}

/// The kernel's home for region heaps, on a thread of the host.
struct RegionHome<G, L>(PhantomData<fn() -> (G, L)>);

impl<G, L> RegionPlatform for RegionHome<G, L>
where
    G: Grain,
    L: CoreLists<Class: GranuleClass<Grain = G>> + 'static,
{
    type Grain = G;
    type Lists = L;
    type Lock = SpinLock<Thread>;
    type Source = Later;

    const CORE_BLOCKS: usize = 64;

    fn stop(fault: Fault) -> ! {
        panic!("{fault}")
    }
}

struct Later;

// SAFETY: there is no region.
unsafe impl RegionSource for Later {
    fn first(&self) -> Result<Region, RegionError> {
        Err(RegionError::Missing)
    }
}

/// Memory at a multiple of 1 GiB: like the kernel's it lies in one leaf of the page map, and begins at a multiple of every
/// alignment that a script asks for.
struct Memory {
    reserve: Reserve,
    skip: Pages,
    pages: Pages,
}

impl Memory {
    fn new(pages: Pages) -> Self {
        const ALIGN: usize = 1 << 30;
        let reserve = Reserve::new(Pages(ALIGN / PAGE_SIZE + pages.0));
        let start = reserve.region().start.addr().get();
        Self { reserve, skip: Pages((start.next_multiple_of(ALIGN) - start) / PAGE_SIZE), pages }
    }
}

// SAFETY: a part of a reserve, which is this value's own.
unsafe impl Backing for Memory {
    fn region(&self) -> PageRun {
        self.reserve.region().part(self.skip, self.pages)
    }

    fn open(&self, run: PageRun) -> bool {
        self.reserve.open(run)
    }

    fn close(&self, run: PageRun) {
        self.reserve.close(run);
    }
}
