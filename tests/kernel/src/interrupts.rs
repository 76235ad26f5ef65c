//! Interrupts that allocate and free, whatever they came upon: on every processor the handler runs a script of its own on
//! the heap on which the interrupted code runs one, each with its own oracle.

use crate::number;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use freestone_machine::{Cpu, MAX_CPUS, cpus, println, run_on_all, stepping, timer};
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::{Fill, Path, Subject};
use spin::Mutex;

/// A heap without its type, for a handler.
struct AnyHeap(&'static (dyn Subject + Sync));

impl Subject for AnyHeap {
    fn allocate(&self, layout: Layout, fill: Fill) -> Option<NonNull<u8>> {
        self.0.allocate(layout, fill)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout, path: Path) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(ptr, layout, path) }
    }

    unsafe fn reallocate(&self, ptr: NonNull<u8>, old: Layout, new_size: usize, path: Path) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { self.0.reallocate(ptr, old, new_size, path) }
    }

    fn usable_size(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.0.usable_size(ptr)
    }

    fn usable(&self, ptr: NonNull<u8>, layout: Layout) -> Option<usize> {
        self.0.usable(ptr, layout)
    }

    fn trim(&self) -> usize {
        self.0.trim()
    }
}

/// What a processor's handler does, a step an interrupt. Null is a right answer there.
type HandlerReplay = Replay<'static, AnyHeap, 16>;

static HANDLERS: [Mutex<Option<HandlerReplay>>; MAX_CPUS] = [const { Mutex::new(None) }; MAX_CPUS];
/// Steps of the handlers of each processor.
static STEPS: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

/// Nanoseconds between two interrupts of a processor; QEMU makes more of it.
const TICKS: u32 = 20_000;

/// What causes interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A timer.
    Timer,
    /// Counting: one after every so many instructions.
    Instructions(u32),
}

/// What is asked for, by the interrupted code and by the handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asking {
    /// Outside of interrupts.
    pub outside: Sizes,
    /// Inside.
    pub inside: Sizes,
}

/// Has all processors use `heap` until they have been interrupted `count` times together (or as often as the kernel's word
/// `interrupts=` says). Frees everything, and prints how many requests of interrupts were refused.
pub fn run<S: Subject + Sync>(heap: &'static S, asking: Asking, cause: Cause, count: u64) {
    let share = number("interrupts").unwrap_or(count) as usize / cpus();
    let heap_of_handlers: &'static AnyHeap = Box::leak(Box::new(AnyHeap(heap)));
    timer::set_handler(step);
    run_on_all(|cpu| {
        let (outside, inside) =
            (Script { seed: cpu as u64, sizes: asking.outside }, Script { seed: 1000 + cpu as u64, sizes: asking.inside });
        // Relaxed, here and below: a count, written and read on one processor, or between rounds.
        STEPS[cpu].store(0, Relaxed);
        *HANDLERS[cpu].lock() = Some(Replay::new(heap_of_handlers, inside, Supply::Failing));
        cause.start();
        be_interrupted(heap, outside, || STEPS[cpu].load(Relaxed) < share);
        cause.stop();
    });
    let refusals: usize = HANDLERS.iter().filter_map(|handler| handler.lock().take()).map(finish).sum();
    let steps: usize = STEPS.iter().map(|steps| steps.load(Relaxed)).sum();
    println!("interrupts {steps} by {cause:?}, refused {refusals}");
}

/// Has `interrupted` run with interrupts anywhere, and with so few sizes that a handler often comes upon the list that it wants
/// itself.
pub fn between_any_two_instructions(interrupted: fn(Asking, Cause, u64)) {
    let few = Asking { outside: Sizes::Below(4), inside: Sizes::Below(4) };
    interrupted(few, Cause::Instructions(41), 3000);
    interrupted(few, Cause::Instructions(211), 3000);
    interrupted(Asking { outside: Sizes::Small, inside: Sizes::Small }, Cause::Instructions(499), 1000);
}

impl Cause {
    fn start(self) {
        match self {
            Self::Timer => timer::start(TICKS),
            Self::Instructions(count) => stepping::start(count),
        }
    }

    fn stop(self) {
        match self {
            Self::Timer => timer::stop(),
            Self::Instructions(_) => stepping::stop(),
        }
    }
}

/// What is interrupted: it gets what it asks for, whatever its interrupts do.
fn be_interrupted<S: Subject>(heap: &S, script: Script, go_on: impl Fn() -> bool) {
    let mut replay = Replay::<_, 64>::new(heap, script, Supply::Ample);
    while go_on() {
        replay.step().unwrap_or_else(|failure| panic!("{failure}"));
    }
    replay.free_all().unwrap_or_else(|failure| panic!("{failure}"));
}

/// The handler.
fn step() {
    let cpu = Cpu::number();
    // Not there: the interrupt came upon the lines above that set it, or was late.
    if let Some(mut handler) = HANDLERS[cpu].try_lock()
        && let Some(replay) = handler.as_mut()
    {
        replay.step().unwrap_or_else(|failure| panic!("in a handler: {failure}"));
        STEPS[cpu].fetch_add(1, Relaxed);
    }
}

fn finish(mut replay: HandlerReplay) -> usize {
    replay.free_all().unwrap_or_else(|failure| panic!("in a handler: {failure}"));
    replay.refusals()
}
