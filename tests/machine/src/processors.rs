//! The other processors: starts them, and has all of them run a function at once.
//!
//! They sleep until there is a round to run, so that they cost the host nothing meanwhile.

use crate::cpu::{self, Cpu, MAX_CPUS};
use crate::{apic, memory, traps};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

/// Where the others start: a page below 1 MiB, where the loader has left nothing.
pub(crate) const TRAMPOLINE: usize = 0x8000;
/// Its number, as they are told it.
const TRAMPOLINE_PAGE: u8 = (TRAMPOLINE >> 12) as u8;

/// Processors that are there.
static CPUS: AtomicUsize = AtomicUsize::new(1);
/// Others that have come up.
static UP: AtomicUsize = AtomicUsize::new(0);
/// Rounds so far.
static ROUND: AtomicUsize = AtomicUsize::new(0);
/// Others that have not finished the round.
static BUSY: AtomicUsize = AtomicUsize::new(0);
static TASK: TaskCell = TaskCell(UnsafeCell::new(Task { call: |_, _| {}, data: ptr::null() }));

/// How many processors the machine has.
pub fn cpus() -> usize {
    // Relaxed: set before the others run.
    CPUS.load(Ordering::Relaxed)
}

/// A function without its type.
#[derive(Clone, Copy)]
struct Task {
    call: unsafe fn(*const (), usize),
    data: *const (),
}

struct TaskCell(UnsafeCell<Task>);

// SAFETY: written by the first processor between rounds, read by all during one; `ROUND` and `BUSY` order the two.
unsafe impl Sync for TaskCell {}

/// Calls `task` with its number on every processor, the caller's included, and returns when all have finished. For the first
/// processor, and not from within a task.
pub fn run_on_all<F: Fn(usize) + Sync>(task: F) {
    unsafe fn call<F: Fn(usize)>(task: *const (), cpu: usize) {
        // SAFETY: `data` is the task, borrowed until all have finished.
        unsafe { (*task.cast::<F>())(cpu) }
    }
    let others = cpus() - 1;
    assert!(Cpu::number() == 0, "only the first processor starts a round");
    // Acquire pairs with the Release in `join`, as below.
    assert!(BUSY.load(Ordering::Acquire) == 0, "a round within a round");
    // SAFETY: nobody reads it between rounds.
    unsafe { *TASK.0.get() = Task { call: call::<F>, data: (&raw const task).cast() } };
    // Relaxed: the Release of the next line carries it.
    BUSY.store(others, Ordering::Relaxed);
    // Release pairs with the Acquire in `join`: the task is there before its round.
    ROUND.fetch_add(1, Ordering::Release);
    apic::interrupt_others(traps::WAKE);
    task(0);
    // Acquire pairs with the Release in `join`: what the others did is seen when they have finished.
    while BUSY.load(Ordering::Acquire) > 0 {
        spin_loop();
    }
}

/// The life of another processor.
#[unsafe(no_mangle)]
extern "C" fn machine_join(cpu: usize) -> ! {
    cpu::init(cpu);
    traps::init();
    apic::enable(traps::SPURIOUS);
    // Release pairs with the Acquire in `start`.
    UP.fetch_add(1, Ordering::Release);
    let mut done = 0;
    loop {
        sleep_until(|| ROUND.load(Ordering::Acquire) != done);
        done += 1;
        // SAFETY: nobody writes it during a round.
        let Task { call, data } = unsafe { *TASK.0.get() };
        // SAFETY: a function with the data it was made for, borrowed until this processor is not busy.
        unsafe { call(data, cpu) };
        // Release pairs with the Acquire in `run_on_all`.
        BUSY.fetch_sub(1, Ordering::Release);
    }
}

/// Sleeps between looks at `is_time`. Interrupts are off from a look to the sleep, so none comes between the two.
fn sleep_until(is_time: impl Fn() -> bool) {
    interrupts::disable();
    while !is_time() {
        interrupts::enable_and_hlt();
        interrupts::disable();
    }
    interrupts::enable();
}

/// Starts the other processors, and returns when all are up.
pub(crate) fn start() {
    let cpus = count();
    assert!(cpus <= MAX_CPUS, "{cpus} processors, and stacks for {MAX_CPUS} only");
    // Relaxed: the others are not there yet.
    CPUS.store(cpus, Ordering::Relaxed);
    apic::enable(traps::SPURIOUS);
    if cpus > 1 {
        copy_trampoline();
        // The order and the pauses that Intel's manual asks for: 10 ms, 200 µs.
        apic::reset_others();
        pause(10_000);
        apic::start_others(TRAMPOLINE_PAGE);
        pause(200);
        apic::start_others(TRAMPOLINE_PAGE);
    }
    // Acquire pairs with the Release in `machine_join`.
    while UP.load(Ordering::Acquire) < cpus - 1 {
        spin_loop();
    }
    interrupts::enable();
}

fn copy_trampoline() {
    unsafe extern "C" {
        static trampoline: u8;
        static trampoline_end: u8;
    }
    let (start, end) = (&raw const trampoline, &raw const trampoline_end);
    let page = memory::Window::Low.at(TRAMPOLINE);
    // SAFETY: the two symbols of `start.s` delimit less than a page; nobody else uses the page that they are copied to.
    unsafe { page.copy_from_nonoverlapping(start, end.offset_from_unsigned(start)) }
}

/// Waits at least so many microseconds: a write to this port, where nothing is, takes about one on real machines.
fn pause(microseconds: u32) {
    for _ in 0..microseconds {
        // SAFETY: nothing listens.
        unsafe { Port::<u8>::new(0x80).write(0) }
    }
}

/// How many processors QEMU was given, by its configuration device.
fn count() -> usize {
    const SELECTOR: u16 = 0x510;
    const DATA: u16 = 0x511;
    const CPU_COUNT: u16 = 5;
    // SAFETY: selecting an item of QEMU's configuration and reading it touches no memory.
    unsafe {
        Port::<u16>::new(SELECTOR).write(CPU_COUNT);
        let mut data = Port::<u8>::new(DATA);
        usize::from(u16::from_le_bytes([data.read(), data.read()]))
    }
}
