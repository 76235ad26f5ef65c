//! A home for tests on the host: cores that the test sets, locks and a source that let simulated interrupts in, faults that
//! are panics.

use crate::interrupt;
use crate::reserve::{Reserve, states};
use crate::source::TestSource;
use crate::subject::Alone;
use core::cell::Cell;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_core::{
    ClaimLists, Context, CoreId, Entry, Fault, Heap, Limits, Lock, Mapped, PageRun, PageSource, Pages, Place, Platform,
    Purged, RadixMap, Refused, Seal, SpinLock, Unsealed,
};
use std::boxed::Box;

/// Cores that have lists.
pub const CORES: usize = 4;

/// The pages of a test source's region: 4 GiB of address space, of which what is out costs memory.
const REGION: Pages = Pages(1 << 20);

/// A home for tests; `S` marks freed blocks.
#[derive(Debug)]
pub struct TestHome<S = Unsealed>(PhantomData<fn() -> S>);

/// A heap in that home, for one thread.
pub type TestHeap<S = Unsealed> = Alone<SharedHeap<S>>;

/// A heap in that home, for many.
pub type SharedHeap<S = Unsealed> = Heap<TestHome<S>>;

impl<S: Seal> Platform for TestHome<S> {
    type Source = Source;
    type Lists = ClaimLists<Core, CORES>;
    type Lock = OpenLock;
    type Map = RadixMap;
    type Seal = S;

    fn limits() -> Limits {
        LIMITS.get()
    }

    fn is_short(_: Pages) -> bool {
        QUESTIONS.set(QUESTIONS.get() + 1);
        SHORT.get()
    }

    fn stop(fault: Fault) -> ! {
        panic!("{fault}")
    }
}

/// How much memory the heaps that this thread uses may take, as a test says.
#[derive(Debug)]
pub struct Memory;

std::thread_local! {
    static LIMITS: Cell<Limits> = const { Cell::new(Limits::NONE) };
    static SHORT: Cell<bool> = const { Cell::new(false) };
    static QUESTIONS: Cell<usize> = const { Cell::new(0) };
}

impl Memory {
    /// Sets the limits.
    pub fn limit_to(limits: Limits) {
        LIMITS.set(limits);
    }

    /// Makes memory short, or ends that.
    pub fn set_short(is_short: bool) {
        SHORT.set(is_short);
    }

    /// How often a heap has asked whether memory is short.
    pub fn questions() -> usize {
        QUESTIONS.get()
    }
}

/// The running thread.
#[derive(Debug)]
pub struct Thread;

// SAFETY: threads that live at the same time have their thread-locals at different addresses.
unsafe impl Context for Thread {
    fn id() -> NonZeroUsize {
        std::thread_local!(static ME: u8 = const { 0 });
        ME.with(|me| NonNull::from(me).addr())
    }
}

/// The core that a test says it runs on; else threads are spread over the cores.
#[derive(Debug)]
pub struct Core;

std::thread_local!(static CORE: Cell<Option<usize>> = const { Cell::new(None) });

impl Core {
    /// Makes this thread run on `core`, which may be any number.
    pub fn set(core: usize) {
        CORE.set(Some(core));
    }
}

impl CoreId for Core {
    fn core() -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        CORE.get().unwrap_or_else(|| {
            let core = THREADS.fetch_add(1, Relaxed) % CORES;
            CORE.set(Some(core));
            core
        })
    }
}

/// A spin lock that lets interrupts in before and after each step.
#[derive(Debug)]
pub struct OpenLock(SpinLock<Thread>);

// SAFETY: the inner lock's promises; nothing else is done with its word.
unsafe impl Lock for OpenLock {
    const NEW: Self = Self(SpinLock::NEW);

    fn try_enter(&self) -> Entry {
        interrupt::point();
        let entry = self.0.try_enter();
        interrupt::point();
        entry
    }

    fn wait(&self) {
        self.0.wait();
        interrupt::point();
    }

    fn is_mine(&self) -> bool {
        self.0.is_mine()
    }

    unsafe fn leave(&self) {
        interrupt::point();
        // SAFETY: the caller is inside.
        unsafe { self.0.leave() }
        interrupt::point();
    }
}

/// A test source on the host.
pub type HostSource = TestSource<Reserve, SpinLock<Thread>>;

/// A handle on a test source, to be put under heaps; lets interrupts in around each call.
#[derive(Clone, Copy, Debug)]
pub struct Source(&'static HostSource);

impl Source {
    /// A source with a region of its own, which lives as long as the program.
    pub fn new() -> Self {
        Self(Box::leak(Box::new(TestSource::new(Reserve::new(REGION), states(REGION)))))
    }

    /// A heap on this source, for one thread.
    pub const fn heap<S: Seal>(self) -> TestHeap<S> {
        Alone::new(self.shared_heap())
    }

    /// A heap on this source, for many.
    pub const fn shared_heap<S: Seal>(self) -> SharedHeap<S> {
        Heap::new(self)
    }

    /// Runs `body` on a heap on this source, drops the heap, and panics unless every page came back.
    #[track_caller]
    pub fn with_heap<S: Seal, R>(self, body: impl FnOnce(&TestHeap<S>) -> R) -> R {
        let heap = self.heap();
        let result = body(&heap);
        drop(heap);
        self.expect_all_back();
        result
    }

    /// Panics unless every page came back.
    #[track_caller]
    pub fn expect_all_back(self) {
        assert_eq!(self.pages_out(), Pages(0), "pages that the heap kept after it was dropped");
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Source {
    type Target = HostSource;
    fn deref(&self) -> &HostSource {
        self.0
    }
}

// SAFETY: the inner source's promises.
unsafe impl PageSource for Source {
    fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        interrupt::point();
        let mapped = self.0.map(pages, align);
        interrupt::point();
        mapped
    }

    unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused> {
        interrupt::point();
        // SAFETY: the caller's promise.
        let result = unsafe { self.0.unmap(run) };
        interrupt::point();
        result
    }

    unsafe fn purge(&self, run: PageRun) -> Purged {
        interrupt::point();
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.0.purge(run) };
        interrupt::point();
        outcome
    }

    unsafe fn remap(&self, run: PageRun, to: Pages, place: Place) -> Option<NonNull<u8>> {
        interrupt::point();
        // SAFETY: the caller's promise.
        let moved = unsafe { self.0.remap(run, to, place) };
        interrupt::point();
        moved
    }

    fn advise_huge(&self, run: PageRun) -> Result<(), Refused> {
        interrupt::point();
        let result = self.0.advise_huge(run);
        interrupt::point();
        result
    }
}
