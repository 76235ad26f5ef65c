//! Counts the instructions of a call by single steps.
//!
//! Called by [`crate::counts`]. For the length of one call the processor's trap flag is set: it traps after each instruction,
//! the kernel makes a SIGTRAP of that, and the handler counts. No other process is needed, and the machine may be virtual. Flag and
//! count belong to the thread, so that threads can count at the same time.
//!
//! An instruction counts as copying when the next one lies outside this program: the C library's `memcpy` and `memmove` are
//! all that allocators call there. One instruction of a `rep` loop traps each time round.
//!
//! The numbers are less those of a call to a function that does nothing, so neither `call` nor `ret` is in them.

use freestone_bench_bare::peer::Peer;
use libc::{REG_EFL, REG_RIP, SA_SIGINFO, SIGTRAP, c_int, c_void, siginfo_t, ucontext_t};
use std::alloc::Layout;
use std::arch::{asm, naked_asm};
use std::cell::{Cell, RefCell};
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::Once;

/// Where the count of a call ends; the call goes on without steps, and no other one of its kind is counted.
pub const LIMIT: u32 = 40_000;

/// Steps more than that are taken, since those around the call are counted at first.
const AROUND: u32 = 16;

/// Steps of one recording after which no call is counted any more.
const BUDGET: u32 = 400_000;

/// The trap flag among the processor's flags.
const TRAP: i64 = 0x100;

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An allocation that was served.
    Allocate,
    /// A free.
    Free,
    /// A reallocation that was served, without the copying.
    Resize,
    /// A request that was refused.
    Refused,
    /// The copying of a reallocation that copied.
    Copy,
}

/// Instructions, one number a call.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Counts {
    calls: [Vec<u32>; 5],
    spent: u32,
}

impl Counts {
    /// The counts of one kind, in no particular order.
    pub fn of(&self, kind: Kind) -> &[u32] {
        &self.calls[kind as usize]
    }

    /// Whether one more call of that kind is to be counted.
    fn wants(&self, kind: Kind) -> bool {
        self.spent < BUDGET && !self.of(kind).contains(&LIMIT)
    }

    fn add(&mut self, kind: Kind, steps: u32) {
        self.calls[kind as usize].push(steps);
        self.spent += steps;
    }
}

thread_local! {
    /// What is being recorded on this thread, if anything.
    static RECORDING: RefCell<Option<Counts>> = const { RefCell::new(None) };
    /// Steps of the call that runs, for the handler: no destructor, so that it can be reached at any moment.
    static STEPS: Cell<Steps> = const { Cell::new(Steps { own: 0, copy: 0 }) };
}

#[derive(Clone, Copy)]
struct Steps {
    own: u32,
    copy: u32,
}

/// Runs `work` and counts the calls that it makes, on this thread, to any [`Stepped`].
pub fn record(work: impl FnOnce()) -> Counts {
    RECORDING.set(Some(Counts::default()));
    work();
    RECORDING.take().unwrap_or_default()
}

/// An allocator whose calls are counted while [`record`] runs.
pub struct Stepped<P>(P);

/// A call to an allocator: the allocator, a block, its size and alignment, a new size. Each uses what it needs; the block or null.
type Call = unsafe extern "sysv64" fn(*mut (), *mut u8, usize, usize, usize) -> *mut u8;

unsafe extern "sysv64" fn allocate<P: Peer>(peer: *mut (), _: *mut u8, size: usize, align: usize, _: usize) -> *mut u8 {
    // SAFETY: the caller passes a `P` that nobody else uses, and a valid layout.
    let (peer, layout) = unsafe { (&mut *peer.cast::<P>(), Layout::from_size_align_unchecked(size, align)) };
    peer.allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
}

unsafe extern "sysv64" fn deallocate<P: Peer>(
    peer: *mut (),
    block: *mut u8,
    size: usize,
    align: usize,
    _: usize,
) -> *mut u8 {
    // SAFETY: as above, and the block is a live one of the peer, with this layout.
    unsafe {
        let layout = Layout::from_size_align_unchecked(size, align);
        (*peer.cast::<P>()).deallocate(NonNull::new_unchecked(block), layout);
    }
    ptr::null_mut()
}

unsafe extern "sysv64" fn reallocate<P: Peer>(
    peer: *mut (),
    block: *mut u8,
    size: usize,
    align: usize,
    new_size: usize,
) -> *mut u8 {
    // SAFETY: as above.
    let moved = unsafe {
        let layout = Layout::from_size_align_unchecked(size, align);
        (*peer.cast::<P>()).reallocate(NonNull::new_unchecked(block), layout, new_size)
    };
    moved.map_or(ptr::null_mut(), NonNull::as_ptr)
}

impl<P: Peer> Stepped<P> {
    /// Makes the call, counted if one of its kind is wanted.
    ///
    /// # Safety
    /// The arguments are what `call` needs of an allocator of type `P`.
    unsafe fn call(&mut self, kind: Kind, call: Call, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let peer = (&raw mut self.0).cast();
        if !RECORDING.with_borrow(|counts| counts.as_ref().is_some_and(|counts| counts.wants(kind))) {
            // SAFETY: the caller answers for the arguments.
            return unsafe { call(peer, block, layout.size(), layout.align(), new_size) };
        }
        // SAFETY: as above.
        let (result, steps) = unsafe { counted(call, peer, block, layout, new_size) };
        let kind = if result.is_null() && kind != Kind::Free { Kind::Refused } else { kind };
        RECORDING.with_borrow_mut(|counts| counts.as_mut().map(|counts| note(counts, kind, steps)));
        result
    }
}

fn note(counts: &mut Counts, kind: Kind, steps: Steps) {
    counts.add(kind, steps.own.min(LIMIT));
    if steps.copy > 0 {
        counts.add(Kind::Copy, steps.copy.min(LIMIT));
    }
}

// SAFETY: the blocks are the peer's.
unsafe impl<P: Peer> Peer for Stepped<P> {
    fn empty() -> Self {
        Self(P::empty())
    }

    unsafe fn open(&mut self, arena: NonNull<[MaybeUninit<u8>]>) {
        // SAFETY: handed on.
        unsafe { self.0.open(arena) }
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: an allocation needs a layout only.
        NonNull::new(unsafe { self.call(Kind::Allocate, allocate::<P>, ptr::null_mut(), layout, 0) })
    }

    unsafe fn deallocate(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller answers for block and layout.
        unsafe { self.call(Kind::Free, deallocate::<P>, block.as_ptr(), layout, 0) };
    }

    unsafe fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller answers for block, layout and new size.
        NonNull::new(unsafe { self.call(Kind::Resize, reallocate::<P>, block.as_ptr(), layout, new_size) })
    }
}

/// Makes the call step by step; its result, and its steps less those of a call that does nothing.
///
/// # Safety
/// The arguments are what `call` needs.
unsafe fn counted(call: Call, peer: *mut (), block: *mut u8, layout: Layout, new_size: usize) -> (*mut u8, Steps) {
    listen();
    // SAFETY: handed on.
    let (result, steps) = unsafe { stepped(call, peer, block, layout, new_size) };
    // SAFETY: does nothing with its arguments.
    let (_, nothing) = unsafe { stepped(do_nothing, peer, block, layout, new_size) };
    (result, Steps { own: steps.own - nothing.own, copy: steps.copy - nothing.copy })
}

/// # Safety
/// The arguments are what `call` needs, and [`listen`] was called.
unsafe fn stepped(call: Call, peer: *mut (), block: *mut u8, layout: Layout, new_size: usize) -> (*mut u8, Steps) {
    STEPS.set(Steps { own: 0, copy: 0 });
    let result;
    // SAFETY: the flags are changed on the stack and back, with the stack as it was at the call: aligned, since `nostack` is not
    // said. The handler returns to where it came from. The caller answers for the call, whose clobbers are named.
    unsafe {
        asm!(
            "pushfq",
            "or qword ptr [rsp], {trap}",
            "popfq",
            "call {call}",
            "pushfq",
            "and qword ptr [rsp], ~{trap}",
            "popfq",
            trap = const TRAP,
            call = in(reg) call,
            in("rdi") peer,
            in("rsi") block,
            in("rdx") layout.size(),
            in("rcx") layout.align(),
            in("r8") new_size,
            lateout("rax") result,
            clobber_abi("sysv64"),
        );
    }
    (result, STEPS.get())
}

#[unsafe(naked)]
unsafe extern "sysv64" fn do_nothing(_: *mut (), _: *mut u8, _: usize, _: usize, _: usize) -> *mut u8 {
    naked_asm!("ret")
}

/// Sets the handler up, once.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an action of zeros is a valid one; the handler does nothing that a handler must not do.
        let failed = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_step as *const () as usize;
            action.sa_flags = SA_SIGINFO;
            libc::sigaction(SIGTRAP, &action, ptr::null_mut())
        };
        assert_eq!(failed, 0, "SIGTRAP can be handled");
    });
}

/// After each instruction of a call; the kernel takes the trap flag away while this runs, and brings it back with the context.
extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of this thread, which is this handler's to change.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let mut steps = STEPS.get();
    if is_in_this_program(registers[REG_RIP as usize] as usize) {
        steps.own += 1;
    } else {
        steps.copy += 1;
    }
    STEPS.set(steps);
    if steps.own.max(steps.copy) >= LIMIT + AROUND {
        registers[REG_EFL as usize] &= !TRAP;
    }
}

fn is_in_this_program(address: usize) -> bool {
    // The linker's names for the ends of a program's code.
    unsafe extern "C" {
        #[link_name = "__executable_start"]
        static START: u8;
        #[link_name = "etext"]
        static END: u8;
    }
    ((&raw const START).addr()..(&raw const END).addr()).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Ground, Size};
    use freestone_bench_bare::peers::Talc;
    use freestone_bench_bare::sizes::natural;
    use std::hint::black_box;

    const LAYOUT: Layout = Layout::new::<u64>();

    #[unsafe(naked)]
    unsafe extern "sysv64" fn seven(_: *mut (), _: *mut u8, _: usize, _: usize, _: usize) -> *mut u8 {
        naked_asm!("nop", "nop", "push rax", "pop rax", "mov ecx, 3", "dec ecx", "nop", "ret")
    }

    unsafe extern "sysv64" fn copies(_: *mut (), block: *mut u8, _: usize, _: usize, len: usize) -> *mut u8 {
        let from = [1_u8; 4096];
        // SAFETY: the block is as long.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), block, black_box(len)) };
        block
    }

    unsafe extern "sysv64" fn long(_: *mut (), _: *mut u8, _: usize, _: usize, rounds: usize) -> *mut u8 {
        (0..rounds).for_each(|round| _ = black_box(round));
        ptr::null_mut()
    }

    fn count(call: Call, block: *mut u8, number: usize) -> Steps {
        // SAFETY: the functions of these tests need at most a block and a number.
        unsafe { counted(call, ptr::null_mut(), block, LAYOUT, number).1 }
    }

    #[test]
    fn instructions_are_counted_one_by_one() {
        assert_eq!(count(do_nothing, ptr::null_mut(), 0).own, 0);
        assert_eq!(count(seven, ptr::null_mut(), 0).own, 7);
    }

    #[test]
    fn copying_is_counted_apart() {
        let mut block = [0_u8; 4096];
        let [few, many] = [64, 4096].map(|len| count(copies, block.as_mut_ptr(), len));
        assert!(few.copy > 0 && many.copy > few.copy, "{} {}", few.copy, many.copy);
        assert_eq!(block[4095], 1);
    }

    #[test]
    fn a_long_call_is_not_counted_to_its_end() {
        let [short, long] = [100, 1_000_000].map(|rounds| count(long, ptr::null_mut(), rounds));
        assert!((100..LIMIT).contains(&short.own));
        assert!((LIMIT..=LIMIT + AROUND).contains(&long.own));
    }

    #[test]
    fn a_recording_repeats_itself() {
        let once = || {
            Ground::new().on_a_heap::<Stepped<Talc>, _>(Size::Small, |heap| {
                heap.allocate(0, natural(100));
                record(|| {
                    heap.allocate(1, natural(1000));
                    heap.resize(0, 3000);
                    heap.allocate(2, natural(1 << 20));
                    heap.free(1);
                })
            })
        };
        let counts = once();
        for kind in [Kind::Allocate, Kind::Resize, Kind::Refused, Kind::Free, Kind::Copy] {
            assert!(matches!(counts.of(kind), [1..LIMIT]), "{kind:?} {:?}", counts.of(kind));
        }
        assert_eq!(counts, once());
    }
}
