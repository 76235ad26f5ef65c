//! The home of full heaps in a kernel, and the test source on frames that some of them stand on. The kernels call it.

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use freestone_core::{
    AddressSeal, CHUNK_SIZE, ClaimLists, CoreId, Fault, PAGE_SIZE, PageMap, PageRun, PageSource, Pages, Platform, SpinLock,
    WindowMap,
};
use freestone_machine::{Cpu, MAX_CPUS, Window, fail, frames};
use freestone_tests::source::{Backing, DEAD, TestSource};

/// Where the kernels see the memory of their heaps: in the higher half, as kernels have it.
pub const WINDOW: Window = Window::High;

/// A page map of [`WINDOW`]: of all the memory that the machine may have there.
pub type DirectMap = WindowMap<{ WINDOW.base() }, { (4 << 30) / CHUNK_SIZE }>;

/// A kernel's home on the page source `S`: lists a processor (by `C`), locks that spin and know their processor, faults that
/// end the run.
#[derive(Debug)]
pub struct Home<S, M = DirectMap, C = Cpu>(PhantomData<(S, M, C)>);

/// A core number that is out of date, as a thread's is that was just moved, taken to the extreme: everybody uses the same
/// lists.
#[derive(Debug)]
pub struct OneForAll;

impl CoreId for OneForAll {
    fn core() -> usize {
        0
    }
}

impl<S: PageSource + 'static, M: PageMap + 'static, C: CoreId> Platform for Home<S, M, C> {
    type Source = S;
    type Lists = ClaimLists<C, MAX_CPUS>;
    type Lock = SpinLock<Cpu>;
    type Map = M;
    type Seal = AddressSeal;

    fn stop(fault: Fault) -> ! {
        fail(format_args!("freestone: {fault}"))
    }
}

/// A run of page frames as the memory of test sources, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct FrameRegion(PageRun);

/// A test source that trusts nobody, on frames.
pub type FrameTestSource = TestSource<FrameRegion, SpinLock<Cpu>>;

impl FrameRegion {
    /// Takes `pages` frames for good, seen through `window`, at a multiple of two chunks: a script meets the same places
    /// here as in another region that begins at one.
    pub fn take(window: Window, pages: Pages) -> Self {
        let frames = frames::take(pages.0, 2 * CHUNK_SIZE).unwrap_or_else(|why| panic!("{} frames: {why:?}", pages.0));
        Self(PageRun { start: NonNull::new(window.at(frames)).expect("frame 0 is never free"), pages })
    }

    /// The address of the first byte.
    pub fn start(self) -> usize {
        self.0.start.addr().get()
    }

    /// A new source on it. All pages of the last one are back.
    pub fn source(self) -> &'static FrameTestSource {
        let states = (0..self.0.pages.0).map(|_| AtomicU8::new(0)).collect::<Box<[_]>>();
        Box::leak(Box::new(TestSource::new(self, Box::leak(states))))
    }
}

// SAFETY: the frames belong to no processor.
unsafe impl Sync for FrameRegion {}

// SAFETY: frames that `take` took and nobody gives back, which can be read and written at any time.
unsafe impl Backing for FrameRegion {
    fn region(&self) -> PageRun {
        self.0
    }

    fn open(&self, run: PageRun) -> bool {
        // SAFETY: a part of the region that nobody uses.
        unsafe { run.start.write_bytes(0, run.pages.bytes()) };
        true
    }

    fn close(&self, run: PageRun) {
        // SAFETY: a part of the region that nobody uses any more.
        unsafe { run.start.write_bytes(DEAD, run.pages.bytes()) };
    }
}

/// So many MiB in pages.
pub const fn mebibytes(n: usize) -> Pages {
    Pages(n * ((1 << 20) / PAGE_SIZE))
}
