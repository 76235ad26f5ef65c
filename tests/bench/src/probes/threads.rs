//! What threads leave behind in memory: a child process full of them, whose size its parent reads.
//!
//! Called by [`super`], in the parent and in the child; calls [`crate::heap`].
//!
//! The child says by a byte when it is ready, and waits for one to go on. Its size is read from outside, so that nothing
//! happens within: from the last free on, nobody calls the allocator. Threads are the C library's, because those of `std`
//! allocate for themselves. The control does the same in all but the blocks.

use super::Part;
use crate::heap::{Block, Tested, layout};
use crate::peers::{Peer, Visit};
use fastrand::Rng;
use std::alloc::GlobalAlloc;
use std::array;
use std::convert::Infallible;
use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{self, Child, Command, Stdio};
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How long after the child's last act its size is read.
const REST: Duration = Duration::from_secs(1);

/// The stack of a thread: the list of its blocks, and room for an allocator's slow path.
const STACK: usize = 256 << 10;

const PAGE: usize = 4096;

/// Threads that all do the same.
pub struct Crowd {
    threads: usize,
    work: Work,
    end: End,
}

/// What a thread does.
#[derive(Clone, Copy)]
enum Work {
    /// Makes 64 blocks of at most 1 KiB; unmakes every other one when all threads have theirs.
    KeepHalf,
    /// Makes blocks of at most 4 KiB, 100 kB together; unmakes them when all threads have theirs.
    FreeALittle,
    /// The same with blocks of at most 32 KiB, 6.5 MB together.
    FreeMuch,
}

/// What becomes of a thread then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sleeps,
    Leaves,
}

impl Crowd {
    pub const KEEPS_A_LITTLE: Self = Self { threads: 500, work: Work::KeepHalf, end: End::Sleeps };
    pub const FREED_A_LITTLE: Self = Self { threads: 1000, work: Work::FreeALittle, end: End::Sleeps };
    pub const FREED_MUCH: Self = Self { threads: 64, work: Work::FreeMuch, end: End::Sleeps };
    pub const FREED_MUCH_AND_LEFT: Self = Self { end: End::Leaves, ..Self::FREED_MUCH };
    const MOST: usize = 1000;
}

/// What is made of the sizes.
pub enum Figure {
    /// Proportional set size, less the control's, a thread, in KiB.
    ProportionalAThread,
    /// Resident size, less the control's, a thread, in KiB.
    ResidentAThread,
    /// Resident size, less the control's, in MiB.
    Resident,
    /// Resident size, less what it was before the threads, in MiB.
    ResidentAboveStart,
}

impl Figure {
    /// Runs the children that the figure needs.
    pub fn find(&self, crowd: &Crowd, child: impl Fn(Part) -> Result<Command, String>) -> Result<f64, String> {
        let sizes = |part| sizes(child(part)?);
        let above_control =
            |of: fn(&Size) -> f64| Ok::<_, String>(of(&sizes(Part::Work)?[1]) - of(&sizes(Part::Control)?[1]));
        let [threads, kib_in_mib] = [crowd.threads as f64, 1024.0];
        Ok(match self {
            Self::ProportionalAThread => above_control(|it| it.proportional)? / threads,
            Self::ResidentAThread => above_control(|it| it.resident)? / threads,
            Self::Resident => above_control(|it| it.resident)? / kib_in_mib,
            Self::ResidentAboveStart => {
                let [start, end] = sizes(Part::Work)?;
                (end.resident - start.resident) / kib_in_mib
            }
        })
    }
}

/// A process, in KiB.
struct Size {
    resident: f64,
    proportional: f64,
}

impl Size {
    /// Counted page by page; `/proc/PID/status` is behind by what the processors have not handed in.
    fn of(process: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
        let kib = |key| {
            let rest = text.lines().find_map(|line| line.strip_prefix(key));
            let number = rest.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
            number.ok_or_else(|| io::Error::other(format!("no {key} in smaps_rollup")))
        };
        Ok(Self { resident: kib("Rss:")?, proportional: kib("Pss:")? })
    }
}

/// The sizes of a child before its threads and after their work.
fn sizes(mut command: Command) -> Result<[Size; 2], String> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let sizes = watch(&mut child);
    // Its ends of the pipes are closed, so that it waits for nothing any more.
    let status = child.wait().map_err(|error| error.to_string())?;
    match sizes {
        _ if !status.success() => Err(format!("the child ended with {status}")),
        sizes => sizes.map_err(|error| format!("the child: {error}")),
    }
}

fn watch(child: &mut Child) -> io::Result<[Size; 2]> {
    let (mut go, mut ready) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    ready.read_exact(&mut [0])?;
    let start = Size::of(child.id())?;
    go.write_all(&[0])?;
    ready.read_exact(&mut [0])?;
    thread::sleep(REST);
    let end = Size::of(child.id())?;
    go.write_all(&[0])?;
    Ok([start, end])
}

/// The child: its threads do their work between two bytes. Comes back only if that fails.
pub fn child(peer: &'static Peer, crowd: &'static Crowd, part: Part) -> Result<(), String> {
    let mut parent = Parent::new().map_err(|error| error.to_string())?;
    parent.wait()?;
    match peer.visit(Gather { peer, crowd, part, parent })? {}
}

/// The two pipes to the parent: the files themselves, without the buffers that `std` would allocate.
struct Parent {
    go: File,
    ready: File,
}

impl Parent {
    fn new() -> io::Result<Self> {
        let file = |end: BorrowedFd| end.try_clone_to_owned().map(File::from);
        Ok(Self { go: file(io::stdin().as_fd())?, ready: file(io::stdout().as_fd())? })
    }

    /// Says that this process is ready, and waits.
    fn wait(&mut self) -> Result<(), String> {
        let waited = self.ready.write_all(&[0]).and_then(|()| self.go.read_exact(&mut [0]));
        waited.map_err(|error| error.to_string())
    }
}

struct Gather {
    peer: &'static Peer,
    crowd: &'static Crowd,
    part: Part,
    parent: Parent,
}

impl Visit for Gather {
    type Outcome = Infallible;

    fn visit<A: GlobalAlloc + Sync + 'static>(mut self, allocator: &'static A) -> Infallible {
        let Crowd { threads, work, end } = *self.crowd;
        let barriers = [threads, threads + 1].map(Barrier::new);
        let job = Job { heap: Tested(allocator), part: self.part, work, end, turn: AtomicU64::new(0), barriers };
        job.run(threads);
        let good = self.parent.wait().and_then(|()| self.peer.check());
        // The threads that sleep still have the job: it lives until the process ends.
        process::exit(good.map_or_else(|why| complain(&why), |()| 0))
    }
}

/// The exit status.
fn complain(why: &str) -> i32 {
    eprintln!("{why}");
    1
}

/// What the threads share.
struct Job<A: 'static> {
    heap: Tested<'static, A>,
    part: Part,
    work: Work,
    end: End,
    /// Each thread gets a number, the seed of its sizes.
    turn: AtomicU64,
    /// All have made their blocks; all have unmade them, which the first thread waits for too.
    barriers: [Barrier; 2],
}

impl<A: GlobalAlloc + Sync> Job<A> {
    /// Until the work is done, and the threads have left that are to leave. The caller keeps the job until the process ends.
    fn run(&self, threads: usize) {
        let mut all = [0; Crowd::MOST];
        let all = &mut all[..threads];
        all.iter_mut().for_each(|thread| *thread = self.start());
        self.barriers[1].wait();
        if self.end == End::Leaves {
            // SAFETY: each is a thread that was started above and that nobody else waits for.
            all.iter().for_each(|&it| assert_eq!(unsafe { libc::pthread_join(it, ptr::null_mut()) }, 0));
        }
    }

    fn start(&self) -> libc::pthread_t {
        let (mut attributes, mut thread) = (MaybeUninit::uninit(), 0);
        let job = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the attributes are initialised first and live until the call returns; the job is shared by reference, as
        // it is `Sync`, and lives as long as the process.
        let started = unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
            libc::pthread_create(&mut thread, attributes.as_ptr(), thread_of::<A>, job)
        };
        assert_eq!(started, 0, "no more threads: the limit of processes is too low");
        thread
    }

    fn work(&self) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match self.work {
            Work::KeepHalf => self.keep_half(self.make::<64>(sizes_of(turn, usize::MAX, 1 << 10))),
            Work::FreeALittle => self.free(self.make::<512>(sizes_of(turn, 100_000, 4 << 10))),
            Work::FreeMuch => self.free(self.make::<2048>(sizes_of(turn, 6_500_000, 32 << 10))),
        }
        self.barriers[1].wait();
    }

    /// The control writes the same list, so that its stack is as large.
    fn make<const N: usize>(&self, mut sizes: impl Iterator<Item = usize>) -> [Option<Block>; N] {
        array::from_fn(|_| sizes.next().filter(|_| self.part == Part::Work).map(|size| self.touched(size)))
    }

    fn touched(&self, size: usize) -> Block {
        let mut block = self.heap.make(layout(size), 1);
        block.touch(PAGE, 2);
        block
    }

    fn free(&self, blocks: impl IntoIterator<Item = Option<Block>>) {
        self.barriers[0].wait();
        blocks.into_iter().flatten().for_each(|block| _ = self.heap.unmake(block));
    }

    /// What is not unmade is leaked.
    fn keep_half(&self, blocks: [Option<Block>; 64]) {
        self.free(blocks.into_iter().step_by(2));
    }
}

extern "C" fn thread_of<A: GlobalAlloc + Sync + 'static>(job: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a job, which lives as long as the process.
    let job = unsafe { &*job.cast::<Job<A>>() };
    job.work();
    match job.end {
        End::Leaves => ptr::null_mut(),
        End::Sleeps => sleep(),
    }
}

fn sleep() -> ! {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Sizes of 16 bytes and more, as often between 16 and 32 as between any other power of two up to `largest` and its double;
/// together `bytes`, but for less than 16.
fn sizes_of(turn: u64, bytes: usize, largest: usize) -> impl Iterator<Item = usize> {
    let (mut random, mut left) = (Rng::with_seed(turn), bytes);
    iter::from_fn(move || {
        let least = 1 << random.u32(4..largest.ilog2());
        let size = random.usize(least..=2 * least).min(left);
        left -= size;
        (size >= 16).then_some(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_have_room_for_what_was_asked() {
        let sums = |turn, bytes, largest, room| {
            let sizes: Vec<_> = sizes_of(turn, bytes, largest).collect();
            assert!(sizes.len() <= room && sizes.iter().all(|&size| size <= largest));
            assert!((0..16).contains(&(bytes - sizes.iter().sum::<usize>())));
        };
        (0..64).for_each(|turn| sums(turn, 6_500_000, 32 << 10, 2048));
        (0..1000).for_each(|turn| sums(turn, 100_000, 4 << 10, 512));
    }

    #[test]
    fn a_process_has_a_size() {
        let size = Size::of(process::id()).unwrap();
        assert!(size.resident >= size.proportional && size.proportional > 100.0);
    }
}
