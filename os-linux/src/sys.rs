//! System calls, made by the `syscall` instruction and not through libc: programs interpose libc's `mmap`, and libc's
//! functions set `errno`, which `free` has to leave alone. Everybody here calls this file; it calls the kernel.
//!
//! Also the thread pointer and libc's weak symbols, the two other things for which Rust has no stable name.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;
pub(crate) const CLOSE: usize = 3;
pub(crate) const MMAP: usize = 9;
pub(crate) const MUNMAP: usize = 11;
pub(crate) const RT_SIGACTION: usize = 13;
pub(crate) const RT_SIGPROCMASK: usize = 14;
pub(crate) const MREMAP: usize = 25;
pub(crate) const MADVISE: usize = 28;
pub(crate) const GETPID: usize = 39;
pub(crate) const GETTID: usize = 186;
pub(crate) const FUTEX: usize = 202;
pub(crate) const SCHED_GETAFFINITY: usize = 204;
pub(crate) const EXIT_GROUP: usize = 231;
pub(crate) const TGKILL: usize = 234;
pub(crate) const OPENAT: usize = 257;
pub(crate) const PRLIMIT: usize = 302;
pub(crate) const MEMBARRIER: usize = 324;
pub(crate) const RSEQ: usize = 334;

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) usize);

pub(crate) const EPERM: Errno = Errno(1);

/// Makes system call `number`; what a call does not use of `arguments` may be anything.
///
/// # Safety
/// The call, with these arguments, does to memory only what its caller has the right to do.
#[inline]
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: usize;
    // SAFETY: `syscall` changes rax, rcx and r11 only, which are named here; its effects on memory are the caller's affair.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
             in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // The kernel answers -4095 to -1 for an error, and no call's result lies there.
    if result > usize::MAX - 4095 { Err(Errno(result.wrapping_neg())) } else { Ok(result) }
}

/// Writes to standard error; what cannot be written is dropped.
pub(crate) fn write_stderr(bytes: &[u8]) {
    // SAFETY: reads `bytes`.
    let _ = unsafe { call(WRITE, [2, bytes.as_ptr().addr(), bytes.len(), 0, 0, 0]) };
}

/// The thread pointer: differs between the live threads of a process, is is even, and a fork keeps it.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: on x86-64 the word at fs:0 holds its own address, in every libc.
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags)) }
    pointer
}

/// The address of a symbol of libc that may not exist; null then.
macro_rules! weak_symbol {
    ($name:literal, $type:ty) => {{
        let address: *const $type;
        // SAFETY: reads one word of the global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        address
    }};
}
pub(crate) use weak_symbol;

/// The entry `kind` of the auxiliary vector, 0 where there is none. Leaves `errno` alone.
pub(crate) fn auxiliary(kind: libc::c_ulong) -> usize {
    // SAFETY: `getauxval` reads the vector; where the entry is missing it sets errno, the calling thread's own variable.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let value = libc::getauxval(kind);
        *errno = before;
        value as usize
    }
}

/// How many cores there are.
pub(crate) struct Cores {
    /// In this process's affinity mask; 0 where the kernel does not say.
    pub(crate) allowed: usize,
    /// No core of this machine, now or later, has a number as high as this.
    pub(crate) possible: usize,
}

/// Asks for the affinity mask, which the kernel writes as long as its greatest core number takes.
pub(crate) fn cores() -> Cores {
    const MOST: usize = 8192;
    let mut mask = [0_u64; MOST / 64];
    // SAFETY: the kernel writes at most the given length.
    let written = unsafe { call(SCHED_GETAFFINITY, [0, size_of_val(&mask), (&raw mut mask).addr(), 0, 0, 0]) };
    let allowed = mask.iter().map(|word| word.count_ones() as usize).sum();
    Cores { allowed, possible: written.ok().filter(|bytes| *bytes > 0).map_or(MOST, |bytes| bytes * 8) }
}

/// Bytes that this process may map, by its limits of address space and of data; as many as there are where the kernel does not
/// say. Asked once: a sandbox that the process enters later may punish the question.
pub(crate) fn mapping_limit() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: one word. Whoever asks at the same time gets the same answer.
    match KNOWN.load(Relaxed) {
        0 => {
            let limit = ask_mapping_limit().max(1);
            KNOWN.store(limit, Relaxed);
            limit
        }
        known => known,
    }
}

fn ask_mapping_limit() -> usize {
    const DATA: usize = 2;
    const ADDRESS_SPACE: usize = 9;
    let limit = |kind| {
        // What holds, and to what the process may raise it. No limit is the greatest number.
        let mut limits = [usize::MAX; 2];
        // SAFETY: the kernel writes the two words.
        let _ = unsafe { call(PRLIMIT, [0, kind, 0, (&raw mut limits).expose_provenance(), 0, 0]) };
        limits[0]
    };
    limit(DATA).min(limit(ADDRESS_SPACE))
}

/// Whether the process has had one thread only, ever; `false` where libc does not say.
pub(crate) fn single_threaded() -> bool {
    let flag = weak_symbol!("__libc_single_threaded", u8);
    // SAFETY: where the symbol exists it is a byte that libc writes before it starts a second thread. Volatile, as the
    // compiler does not see that write.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

pub(crate) const SIG_UNBLOCK: usize = 1;
pub(crate) const SIG_SETMASK: usize = 2;
/// Bytes of a signal set in the kernel's interface.
pub(crate) const SET_BYTES: usize = 8;

/// Changes the calling thread's signal mask by `set`, as `how` says. Answers the mask before; what cannot be read is empty.
pub(crate) fn set_signal_mask(how: usize, set: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = ((&raw const set).addr(), (&raw mut before).expose_provenance());
    // SAFETY: reads one set and writes the other.
    let _ = unsafe { call(RT_SIGPROCMASK, [how, new, old, SET_BYTES, 0, 0]) };
    before
}
