//! `vfork`, such that its child may allocate.
//!
//! Called by programs. A child of `vfork` runs in its parent's memory, on its parent's thread area, but the kernel does not
//! know it for a restartable sequence: it reads the core number that the parent had, and its section is not restarted when
//! the thread is moved or preempted. With other threads running in the parent, a `malloc` of the child would corrupt that
//! core's lists. So the parent's thread is unregistered before the call (the core number then reads as none, and every
//! section of the child misses) and registered again after it. Where that cannot be done the call is served by `fork`, which
//! POSIX allows.
//!
//! Invariants: `V1` between the system call and the return to the caller nothing of the stack is relied on: the child
//! returns through the same frames first, and overwrites them; `V2` the child changes no registration.

use crate::set_errno;
use core::arch::naked_asm;
use core::ffi::c_int;
use freestone_linux::rseq::{self, Area, Suspension};

/// No registration to give up or to return to. No area starts at this address.
const PLAIN: usize = 0;
/// The registration cannot be given up. No area starts at this address.
const FORK: usize = usize::MAX;

/// As libc's. The answer of `leave` waits in rsi and rdx, where it is `rejoin`'s second argument, and the return address in
/// r8: the system call keeps these registers, in parent and child (`V1`).
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> c_int {
    naked_asm!(
        // A call wants the stack aligned to 16.
        "sub rsp, 8",
        "call {leave}",
        "add rsp, 8",
        "cmp rax, {FORK}",
        "je {fork}",
        "mov rsi, rax",
        "pop r8",
        "mov eax, {VFORK}",
        "syscall",
        "push r8",
        "mov rdi, rax",
        "test rax, rax",
        // The parent, or a failure: `rejoin` returns to our caller.
        "jne {rejoin}",
        // The child, with 0 in rax.
        "ret",
        leave = sym leave,
        fork = sym fork,
        rejoin = sym rejoin,
        FORK = const FORK as isize,
        VFORK = const libc::SYS_vfork,
    )
}

/// libc's internal name.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn __vfork() -> c_int {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

/// Gives up this thread's registration. Answers in rax and rdx, as the C ABI has it for a structure of two words.
extern "C" fn leave() -> Area {
    match rseq::suspend() {
        Suspension::Done(area) => area,
        Suspension::Unused => Area { start: PLAIN, length: 0 },
        Suspension::Refused => Area { start: FORK, length: 0 },
    }
}

/// Registers again where there was a registration, and gives the system call's answer in libc's form.
extern "C" fn rejoin(answer: isize, area: Area) -> c_int {
    if area.start != PLAIN {
        rseq::resume(area);
    }
    if answer < 0 {
        set_errno(-answer as c_int);
        return -1;
    }
    answer as c_int
}

extern "C" fn fork() -> c_int {
    // SAFETY: as for the program's own call.
    unsafe { libc::fork() }
}
