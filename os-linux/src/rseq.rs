//! Restartable sequences: where a thread's area is, registration, and the fence that stops another core's sections. Called by
//! `mode.rs`, `lists.rs` and, around `vfork`, by the preload library; calls `sys.rs`. The sections are in `sections.rs`.
//!
//! The kernel keeps the number of the core a thread runs on in that thread's *area*, and takes a thread that it preempts,
//! migrates or interrupts inside a section to the section's abort address (Linux 4.18, `rseq(2)`). A thread has one area:
//! - libc's, where libc registered one (glibc 2.35 and later), named by `__rseq_offset` and `__rseq_size`;
//! - otherwise our own, in initial-exec TLS, registered thread by thread in the slow path.
//!
//! Invariants: `R1` only `rseq_cs` of an area is written; `R2` a thread that is not registered reads a negative core, which
//! every section takes for a miss; `R3` an own area is unregistered before its thread's memory goes, and not registered again
//! (the kernel writes into it as long as it is registered).

use crate::sys::{self, EPERM, Errno, weak_symbol};
use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use freestone_core::Refused;

/// Offsets of the fields of an area that are used here.
pub(crate) const CORE: usize = 4;
pub(crate) const SECTION: usize = 8;
/// The length that every kernel accepts for a registration, and the alignment it then wants.
const LENGTH: usize = 32;
/// Precedes every abort address; the same word in all programs, since all share the area.
pub(crate) const SIGNATURE: u32 = 0x5305_3053;
const UNREGISTER: usize = 1;
/// Where our own area's thread notes that it was taken in, or is beyond that.
const TAKEN_IN: usize = LENGTH;

// Our own area in each thread's initial-exec TLS (64 bytes; under dlopen about 1,600 are left): core -1, "not registered",
// then the note. `thread_local!` would go through `__tls_get_addr` in a shared library.
global_asm!(
    ".pushsection .tdata.freestone_rseq_area, \"awT\", @progbits",
    ".balign 64",
    ".hidden freestone_rseq_area",
    ".globl freestone_rseq_area",
    ".type freestone_rseq_area, @tls_object",
    ".size freestone_rseq_area, 64",
    "freestone_rseq_area:",
    ".long 0, -1",
    ".zero 56",
    ".popsection",
);

fn own_area() -> isize {
    let offset: isize;
    // SAFETY: reads one word of the global offset table.
    unsafe {
        asm!("mov {}, qword ptr [rip + freestone_rseq_area@GOTTPOFF]", out(reg) offset,
             options(pure, nomem, nostack, preserves_flags));
    }
    offset
}

/// Libc's area, if libc has registered one in every thread.
fn libc_area() -> Option<(isize, usize)> {
    let offset = weak_symbol!("__rseq_offset", isize);
    let size = weak_symbol!("__rseq_size", u32);
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: libc's variables, set before any code of the program runs. Volatile: written behind the compiler's back.
    let (offset, size) = unsafe { (offset.read_volatile(), size.read_volatile() as usize) };
    if size == 0 { None } else { Some((offset, size)) }
}

/// The area that this process can use, as an offset from the thread pointer. Registers the calling thread where that is the
/// way; where another copy of this code has registered its own area, that fails, and there is none for us.
pub(crate) fn find_area() -> Option<isize> {
    match libc_area() {
        // A thread that libc did not register (the child of a vfork) tells nothing about the process.
        Some((offset, _)) => core_at(offset).map(|_| offset),
        None => {
            take_own_thread_in();
            core_at(own_area()).map(|_| own_area())
        }
    }
}

/// The core that the kernel last noted in this thread's area; `None` where the thread is not registered.
#[inline(always)]
pub(crate) fn core_at(area: isize) -> Option<usize> {
    let core: i32;
    // SAFETY: an area lies in the thread's own TLS block, at an offset that `libc_area` or `own_area` supplied.
    unsafe {
        asm!("mov {0:e}, dword ptr fs:[{1} + {2}]", out(reg) core, in(reg) area, const CORE,
             options(readonly, nostack, preserves_flags));
    }
    usize::try_from(core).ok()
}

/// Registers the calling thread if `area` is our own and the thread is new. Cheap where there is nothing to do.
pub(crate) fn take_thread_in(area: isize) {
    if core_at(area).is_none() && area == own_area() {
        take_own_thread_in();
    }
}

/// The note comes first, so that a signal handler or an allocation of `pthread_setspecific` finds nothing to do; it stays,
/// so that a thread whose key was destroyed is left alone (`R3`).
#[cold]
fn take_own_thread_in() {
    if note() != 0 {
        return;
    }
    set_note();
    let Some(key) = key() else { return };
    // SAFETY: any value that is not null makes libc call `let_thread_go` when the thread ends.
    if unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(1)) } == 0 {
        let _ = register(Area { start: own_address(), length: LENGTH });
    }
}

fn own_address() -> usize {
    sys::thread_pointer().wrapping_add_signed(own_area())
}

fn note() -> u8 {
    let note: u8;
    // SAFETY: reads a byte of our own TLS object.
    unsafe {
        asm!("mov {0}, byte ptr fs:[{1} + {2}]", out(reg_byte) note, in(reg) own_area(), const TAKEN_IN, options(nostack))
    }
    note
}

fn set_note() {
    // SAFETY: writes a byte of our own TLS object.
    unsafe { asm!("mov byte ptr fs:[{0} + {1}], 1", in(reg) own_area(), const TAKEN_IN, options(nostack)) }
}

/// The key whose destructor unregisters a dying thread, plus one; 0 before the first use.
static KEY: AtomicU32 = AtomicU32::new(0);

fn key() -> Option<libc::pthread_key_t> {
    // Relaxed, here and below: a key is only a number.
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        return Some(key);
    }
    let mut made = 0;
    // SAFETY: `made` takes the key; the destructor stays loaded (the preload library is linked with `nodelete`).
    if unsafe { libc::pthread_key_create(&mut made, Some(let_thread_go)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, made + 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(made),
        Err(theirs) => {
            // SAFETY: made above and never used.
            unsafe { libc::pthread_key_delete(made) };
            Some(theirs - 1)
        }
    }
}

extern "C" fn let_thread_go(_: *mut c_void) {
    let _ = unregister(Area { start: own_address(), length: LENGTH });
}

/// A registered area, as `rseq(2)` wants it named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Area {
    /// Its address, in the TLS of the thread it belongs to.
    pub start: usize,
    /// The length it was registered with.
    pub length: usize,
}

fn register(area: Area) -> Result<usize, Errno> {
    // SAFETY: the area lies in this thread's TLS, which lives until the thread has unregistered it (`R3`) or libc has.
    unsafe { sys::call(sys::RSEQ, [area.start, area.length, 0, SIGNATURE as usize, 0, 0]) }
}

fn unregister(area: Area) -> Result<usize, Errno> {
    // SAFETY: the kernel checks that this very area is registered; from then on it leaves the memory alone.
    unsafe { sys::call(sys::RSEQ, [area.start, area.length, UNREGISTER, SIGNATURE as usize, 0, 0]) }
}

/// What [`suspend`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspension {
    /// This thread has no area that the lists use: nothing to do.
    Unused,
    /// The thread is unregistered; [`resume`] registers it again.
    Done(Area),
    /// The thread is registered and stays so: its length is not known, or a sandbox forbids the call.
    Refused,
}

/// Before a `vfork`: unregisters the calling thread. The child shares the parent's memory, but the kernel does not keep an
/// area up to date for it: it would trust the core number of its parent. Unregistered it reads -1, and misses (`R2`).
///
/// The thread is taken in first if it is new: else the child would register itself on its parent's area, and leave it with the
/// core number that it had last, which the parent would trust (found as corruption by `tests/c_abi/vforks.c`).
pub fn suspend() -> Suspension {
    use crate::mode::{Mode, settle};
    let offset = match settle() {
        Mode::Claims => None,
        Mode::Rseq(offset) => Some(offset),
        // The child may be the one that decides. Where libc has no area it must not find this thread new.
        Mode::Undecided => libc_area().map(|(offset, _)| offset).or_else(|| {
            set_note();
            None
        }),
    };
    let Some(offset) = offset.filter(|offset| core_at(*offset).is_some()) else { return Suspension::Unused };
    let start = sys::thread_pointer().wrapping_add_signed(offset);
    // A libc that knows of longer areas may have registered the longer length.
    let longer = libc_area().map_or(LENGTH, |(_, size)| size.next_multiple_of(LENGTH));
    let area = [LENGTH, longer].map(|length| Area { start, length }).into_iter().find(|area| unregister(*area).is_ok());
    area.map_or(Suspension::Refused, Suspension::Done)
}

/// After the `vfork`, in the parent: registers again what [`suspend`] unregistered. Where that fails, the thread's lists miss
/// from now on.
pub fn resume(area: Area) {
    let _ = register(area);
}

const MEMBARRIER_FENCE: usize = 1 << 7;
const MEMBARRIER_REGISTER: usize = 1 << 8;
const MEMBARRIER_ONE_CORE: usize = 1;

/// Registers for [`fence`] early, since a program may forbid itself the call later; but not where threads would have to wait
/// for it: with more than one, the kernel takes milliseconds. Then the first fence registers.
pub(crate) fn announce_fence() {
    if sys::single_threaded() {
        register_fence();
    }
}

/// Tells the kernel that this process will use [`fence`].
fn register_fence() {
    // SAFETY: touches no memory.
    let _ = unsafe { sys::call(sys::MEMBARRIER, [MEMBARRIER_REGISTER, 0, 0, 0, 0, 0]) };
}

/// After this, no section that began on `core` before the call is still running there: each has ended or will abort, and those
/// that begin later see what the caller wrote before. 0.4–0.6 µs. While the process has only ever had one thread, which is the
/// one that asks, there is no such section, and no system call (which a program's sandbox might punish).
pub(crate) fn fence(core: usize) -> Result<(), Refused> {
    if sys::single_threaded() || fence_call(core).is_ok() {
        return Ok(());
    }
    Err(Refused)
}

fn fence_call(core: usize) -> Result<usize, Errno> {
    // SAFETY: touches no memory.
    let call = || unsafe { sys::call(sys::MEMBARRIER, [MEMBARRIER_FENCE, MEMBARRIER_ONE_CORE, core, 0, 0, 0]) };
    match call() {
        Err(EPERM) => {
            register_fence();
            call()
        }
        outcome => outcome,
    }
}
