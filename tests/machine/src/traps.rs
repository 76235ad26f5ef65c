//! Exceptions and interrupts. Every vector has a handler; those that nobody expects end the run with a line that says what
//! happened where, so that a wild access fails instead of hanging.
//!
//! The start of each processor calls [`init`]; `traps.s` calls [`machine_trap`]. Handlers run with interrupts off, on stacks
//! of their own: exceptions on one, because the interrupted stack may be full; interrupts on another, because code for the
//! host's target keeps values below its stack pointer (the red zone).

use crate::cpu::{Cpu, MAX_CPUS};
use crate::{apic, fail, stepping, timer};
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::fmt;
use x86_64::VirtAddr;
use x86_64::instructions::port::Port;
use x86_64::instructions::tables::{lidt, load_tss};
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

global_asm!(
    include_str!("traps.s"),
    vectors = const VECTORS,
    distance = const DISTANCE,
    options(att_syntax)
);

/// The exception after an instruction, where that is wanted.
const STEP: u8 = 1;
/// The timer's interrupt.
pub(crate) const TIMER: u8 = 0x40;
/// The interrupt that ends another processor's sleep.
pub(crate) const WAKE: u8 = 0x41;
/// What the APIC sends when an interrupt went away before it was taken.
pub(crate) const SPURIOUS: u8 = 0xff;

const PAGE_FAULT: u64 = 14;
const EXCEPTIONS: u64 = 32;
const VECTORS: usize = 256;
/// Bytes from one entry of `traps.s` to the next: none is longer than 12.
const DISTANCE: usize = 16;
const STACK: usize = 32 * 1024;

/// What one processor changes, once, when it starts.
#[repr(align(16))]
struct Own<T>(UnsafeCell<T>);

impl<T> Own<T> {
    const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
}

// SAFETY: `init`, the only user, runs once on each processor and touches what is that processor's; what is for all, on the
// first one before the others are there.
unsafe impl<T> Sync for Own<T> {}

/// The places of the stacks in a task state.
const EXCEPTION_STACK: usize = 0;
const INTERRUPT_STACK: usize = 1;

static STACKS: [[Own<[u8; STACK]>; 2]; MAX_CPUS] = [const { [const { Own::new([0; STACK]) }; 2] }; MAX_CPUS];
static TASKS: [Own<TaskStateSegment>; MAX_CPUS] = [const { Own::new(TaskStateSegment::new()) }; MAX_CPUS];
static SEGMENTS: [Own<GlobalDescriptorTable>; MAX_CPUS] = [const { Own::new(GlobalDescriptorTable::empty()) }; MAX_CPUS];
static GATES: Own<[Gate; VECTORS]> = Own::new([Gate::NONE; VECTORS]);

/// Lets traps come on the running processor. Called once on each, on the first one first, with interrupts off.
pub(crate) fn init() {
    let cpu = Cpu::number();
    // SAFETY: this processor's own, and this runs once on each.
    let (segments, task) = unsafe { (&mut *SEGMENTS[cpu].0.get(), &mut *TASKS[cpu].0.get()) };
    for stack in [EXCEPTION_STACK, INTERRUPT_STACK] {
        task.interrupt_stack_table[stack] = VirtAddr::from_ptr(&STACKS[cpu][stack]) + STACK as u64;
    }
    // At 0x08 and 0x10, as in the table of `start.s`, so that the segment registers stay good.
    let code = segments.append(Descriptor::kernel_code_segment());
    segments.append(Descriptor::kernel_data_segment());
    let task = segments.append(Descriptor::tss_segment(task));
    segments.load();
    if cpu == 0 {
        silence_old_controllers();
        // SAFETY: the first processor, once, and the others are not there yet.
        unsafe { *GATES.0.get() = core::array::from_fn(|vector| Gate::new(vector as u64, code.0)) };
    }
    let limit = (size_of::<[Gate; VECTORS]>() - 1) as u16;
    // SAFETY: tables that are whole, lie in statics, and are not changed any more.
    unsafe {
        load_tss(task);
        lidt(&DescriptorTablePointer { limit, base: VirtAddr::from_ptr(GATES.0.get()) });
    }
}

/// Masks the two interrupt controllers of the first PCs, whose timer the firmware left running, on vectors of exceptions.
fn silence_old_controllers() {
    for mask in [0x21, 0xa1] {
        // SAFETY: their mask registers; touches no memory.
        unsafe { Port::<u8>::new(mask).write(u8::MAX) }
    }
}

/// A gate of the interrupt descriptor table.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Gate {
    offset_low: u16,
    segment: u16,
    stack: u8,
    kind: u8,
    offset_middle: u16,
    offset_high: u32,
    reserved: u32,
}

impl Gate {
    const NONE: Self = Self { offset_low: 0, segment: 0, stack: 0, kind: 0, offset_middle: 0, offset_high: 0, reserved: 0 };
    /// Present, an interrupt gate: interrupts are off behind it.
    const INTERRUPT: u8 = 0x8e;

    fn new(vector: u64, segment: u16) -> Self {
        unsafe extern "C" {
            static trap_entries: u8;
        }
        let entry = (&raw const trap_entries).addr() as u64 + vector * DISTANCE as u64;
        let is_interrupt = vector >= EXCEPTIONS || vector == u64::from(STEP);
        let stack = if is_interrupt { INTERRUPT_STACK } else { EXCEPTION_STACK };
        Self {
            offset_low: entry as u16,
            segment,
            // Counted from 1: 0 stands for the interrupted stack.
            stack: stack as u8 + 1,
            kind: Self::INTERRUPT,
            offset_middle: (entry >> 16) as u16,
            offset_high: (entry >> 32) as u32,
            reserved: 0,
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn machine_trap(trap: &Trap) {
    match trap.vector as u8 {
        STEP => return stepping::trap(),
        // No interrupt, so there is none to end.
        SPURIOUS => return,
        TIMER => timer::tick(),
        WAKE => {}
        _ => fail(format_args!("{trap}")),
    }
    apic::end_of_interrupt();
}

/// What `traps.s` leaves on the stack.
#[repr(C)]
struct Trap {
    vector: u64,
    error: u64,
    instruction: u64,
    code_segment: u64,
    flags: u64,
    stack: u64,
    stack_segment: u64,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vector, error, instruction, stack, .. } = self;
        write!(f, "exception {vector} ({}), error {error:#x}, at instruction {instruction:#x}", name(*vector))?;
        if *vector == PAGE_FAULT {
            write!(f, ", address {:#x}", Cr2::read_raw())?;
        }
        write!(f, ", stack {stack:#x}")
    }
}

fn name(vector: u64) -> &'static str {
    match vector {
        0 => "divide",
        3 => "breakpoint",
        6 => "invalid instruction",
        8 => "double fault",
        13 => "general protection",
        PAGE_FAULT => "page fault",
        EXCEPTIONS.. => "interrupt",
        _ => "see the processor's manual",
    }
}
