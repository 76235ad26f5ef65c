//! Configuration: one variable, `FREESTONE_CONF=word=value,…`, read once. Called by the first slow path of the process
//! (through `Platform::ready`), by `mode.rs` and by the preload library; calls `report.rs`.
//!
//! | word | values | effect |
//! |---|---|---|
//! | `rseq` | `on` (default), `off` | `off`: no restartable sequences; the lists go by claims (`thread_lists.rs`) |
//! | `stats` | `exit` | the preload library prints a heap report when the program ends |
//! | `soft` | bytes, also as `64K`, `64M`, `64G` | each heap gives free memory back so that it takes no more, where it can |
//! | `hard` | the same | each heap maps no more than that for blocks: requests beyond are refused |
//! | `cgroup` | `on` (default), `off` | `off`: not looked at whether the control group's memory is nearly used up; no file is opened |
//!
//! What is not known is reported once on standard error and otherwise ignored. A program that runs with raised rights
//! (`AT_SECURE`) does not look at the variable. Nothing here allocates; `getenv` is not called, as it may be interposed.
//!
//! A preloaded library is asked for memory before libc knows the environment: until then the answer is "not yet".

use crate::report::report;
use crate::sys;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use freestone_core::Limits;

const NAME: &[u8] = b"FREESTONE_CONF=";

/// Whether restartable sequences are used where the system has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rseq {
    /// Where the system has them.
    On,
    /// Never.
    Off,
}

/// Whether the preload library reports on the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// No report.
    Never,
    /// When the program ends, on standard error.
    AtExit,
}

/// Whether the heap heeds the control group's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cgroup {
    /// When it is nearly used up, free memory is given back.
    On,
    /// Never looked at.
    Off,
}

/// What the variable says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conf {
    /// `rseq=`
    pub rseq: Rseq,
    /// `stats=`
    pub stats: Report,
    /// `cgroup=`
    pub cgroup: Cgroup,
    /// `soft=` and `hard=`
    pub limits: Limits,
}

impl Conf {
    /// What holds without the variable.
    pub const DEFAULT: Self = Self { rseq: Rseq::On, stats: Report::Never, cgroup: Cgroup::On, limits: Limits::NONE };

    const fn to_bits(self) -> u8 {
        READ | if matches!(self.rseq, Rseq::Off) { RSEQ_OFF } else { 0 }
            | if matches!(self.stats, Report::AtExit) { AT_EXIT } else { 0 }
            | if matches!(self.cgroup, Cgroup::Off) { CGROUP_OFF } else { 0 }
    }

    const fn from_bits(bits: u8, limits: Limits) -> Self {
        Self {
            rseq: if bits & RSEQ_OFF == 0 { Rseq::On } else { Rseq::Off },
            stats: if bits & AT_EXIT == 0 { Report::Never } else { Report::AtExit },
            cgroup: if bits & CGROUP_OFF == 0 { Cgroup::On } else { Cgroup::Off },
            limits,
        }
    }
}

const READ: u8 = 1;
const RSEQ_OFF: u8 = 2;
const AT_EXIT: u8 = 4;
const CGROUP_OFF: u8 = 8;

/// 0 until the variable has been read, then [`Conf::to_bits`].
static BITS: AtomicU8 = AtomicU8::new(0);
/// The limits, written before the bits are. Several first readers all write what the one variable says.
static SOFT: AtomicUsize = AtomicUsize::new(Limits::NONE.soft);
static HARD: AtomicUsize = AtomicUsize::new(Limits::NONE.hard);
static STARTED: AtomicBool = AtomicBool::new(false);

/// The configuration; `None` while libc does not know the environment yet. Cheap after the first answer.
pub fn get() -> Option<Conf> {
    // Acquire pairs with the Release in `read`: the limits are seen with the bits.
    match BITS.load(Ordering::Acquire) {
        0 => read(),
        bits => Some(Conf::from_bits(bits, limits())),
    }
}

/// The limits; none until the variable has been read.
pub(crate) fn limits() -> Limits {
    // Relaxed: each is a figure for itself, and the default until it is written.
    Limits { soft: SOFT.load(Ordering::Relaxed), hard: HARD.load(Ordering::Relaxed) }
}

/// To be called by a constructor: from now on a missing environment is an empty one.
pub fn process_started() {
    // Relaxed: nothing is published with it.
    STARTED.store(true, Ordering::Relaxed);
}

/// Reads a configuration; each item that is not known goes to `unknown`. Of an item given twice the last counts.
pub fn parse<'a>(text: &'a [u8], mut unknown: impl FnMut(&'a [u8])) -> Conf {
    let mut conf = Conf::DEFAULT;
    for item in text.split(|byte| *byte == b',').filter(|item| !item.is_empty()) {
        match item {
            b"rseq=on" => conf.rseq = Rseq::On,
            b"rseq=off" => conf.rseq = Rseq::Off,
            b"stats=exit" => conf.stats = Report::AtExit,
            b"cgroup=on" => conf.cgroup = Cgroup::On,
            b"cgroup=off" => conf.cgroup = Cgroup::Off,
            _ => match limit(item) {
                Some((Limit::Soft, bytes)) => conf.limits.soft = bytes,
                Some((Limit::Hard, bytes)) => conf.limits.hard = bytes,
                None => unknown(item),
            },
        }
    }
    conf
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    Soft,
    Hard,
}

/// `soft=SIZE` or `hard=SIZE`.
fn limit(item: &[u8]) -> Option<(Limit, usize)> {
    let soft = item.strip_prefix(b"soft=").map(|size| (Limit::Soft, size));
    let (which, size) = soft.or_else(|| item.strip_prefix(b"hard=").map(|size| (Limit::Hard, size)))?;
    Some((which, bytes(size)?))
}

/// A size in bytes, or in units of 1024, 1024² or 1024³ bytes. None of 0: it might stand for no limit.
fn bytes(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text {
        [digits @ .., b'K'] => (digits, 10),
        [digits @ .., b'M'] => (digits, 20),
        [digits @ .., b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let append = |number: usize, digit: &u8| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(usize::from(digit - b'0')),
        _ => None,
    };
    digits.iter().try_fold(0, append)?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

#[cold]
fn read() -> Option<Conf> {
    // SAFETY: libc's variable. Volatile, as libc writes it behind the compiler's back.
    let environment = unsafe { (&raw const environ).read_volatile() };
    if environment.is_null() && !STARTED.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: once it is not null it is a null-terminated array of strings.
    let text = if is_secure() { None } else { unsafe { find(environment) } }.unwrap_or(b"");
    let conf = parse(text, |_| {});
    SOFT.store(conf.limits.soft, Ordering::Relaxed);
    HARD.store(conf.limits.hard, Ordering::Relaxed);
    // Release pairs with the Acquire in `get`; the exchange picks one of several first readers to do the reporting.
    if BITS.compare_exchange(0, conf.to_bits(), Ordering::Release, Ordering::Relaxed).is_ok() {
        parse(text, report_unknown);
    }
    get()
}

/// # Safety
/// `environment` is null or a null-terminated array of strings.
unsafe fn find<'a>(environment: *const *const c_char) -> Option<&'a [u8]> {
    let mut place = environment;
    // SAFETY: the array ends with a null, behind which the walk does not go; each pointer before it is a string.
    unsafe {
        while !place.is_null() && !(*place).is_null() {
            if let Some(text) = CStr::from_ptr(*place).to_bytes().strip_prefix(NAME) {
                return Some(text);
            }
            place = place.add(1);
        }
    }
    None
}

fn is_secure() -> bool {
    sys::auxiliary(libc::AT_SECURE) != 0
}

fn report_unknown(item: &[u8]) {
    report(format_args!(
        "FREESTONE_CONF: \"{}\" is not known; known are rseq=on, rseq=off, stats=exit, soft=SIZE, hard=SIZE (as 500000, 64K, \
         64M, 64G), cgroup=on, cgroup=off",
        item.escape_ascii()
    ));
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn parsed(text: &[u8]) -> (Conf, Vec<&[u8]>) {
        let mut strangers = Vec::new();
        let conf = parse(text, |item| strangers.push(item));
        assert_eq!(Conf::from_bits(conf.to_bits(), conf.limits), conf);
        (conf, strangers)
    }

    #[test]
    fn known_words_are_taken() {
        let off = Conf { rseq: Rseq::Off, ..Conf::DEFAULT };
        assert_eq!(parsed(b""), (Conf::DEFAULT, Vec::new()));
        assert_eq!(parsed(b"rseq=off"), (off, Vec::new()));
        assert_eq!(parsed(b",rseq=off,,rseq=on,"), (Conf::DEFAULT, Vec::new()));
        assert_eq!(parsed(b"stats=exit,rseq=off"), (Conf { stats: Report::AtExit, ..off }, Vec::new()));
    }

    #[test]
    fn sizes_are_taken() {
        let limited = |soft, hard| Conf { limits: Limits { soft, hard }, cgroup: Cgroup::Off, ..Conf::DEFAULT };
        assert_eq!(parsed(b"hard=1,soft=4097,cgroup=off"), (limited(4097, 1), Vec::new()));
        assert_eq!(parsed(b"soft=3K,cgroup=off,hard=2M"), (limited(3 << 10, 2 << 20), Vec::new()));
        let most = (1 << 34) - 1;
        assert_eq!(parsed(b"hard=17179869183G,soft=5G,cgroup=off"), (limited(5 << 30, most << 30), Vec::new()));
        assert_eq!(parsed(b"cgroup=off,soft=7M,hard=08,soft=18446744073709551615"), (limited(usize::MAX, 8), Vec::new()));
    }

    #[test]
    fn sizes_that_are_none_are_named() {
        let strangers = "soft=,hard=,soft=0,hard=0K,soft=K,hard=12Q,soft=1KK,hard=+5,soft=-5,hard=0x10,soft=1.5G,hard=64m,soft,\
                         hard=18446744073709551616,soft=17179869184G,hard=99999999999999999999999";
        let (conf, named) = parsed(strangers.as_bytes());
        assert_eq!((conf, named), (Conf::DEFAULT, strangers.split(',').map(str::as_bytes).collect()));
    }

    #[test]
    fn unknown_words_and_values_are_named() {
        let (conf, strangers) = parsed(b"color=blue,rseq=maybe,stats=exit,rseq");
        assert_eq!(conf, Conf { stats: Report::AtExit, ..Conf::DEFAULT });
        assert_eq!(strangers, [&b"color=blue"[..], b"rseq=maybe", b"rseq"]);
    }

    #[test]
    fn the_variable_is_found() {
        let strings = [c"PATH=/bin", c"FREESTONE_CONFIG=rseq=on", c"FREESTONE_CONF=rseq=off", c"X="];
        let environment: Vec<_> = strings.iter().map(|s| s.as_ptr()).chain([core::ptr::null()]).collect();
        // SAFETY: null-terminated arrays of strings.
        unsafe {
            assert_eq!(find(environment.as_ptr()), Some(&b"rseq=off"[..]));
            assert_eq!(find(environment[3..].as_ptr()), None);
            assert_eq!(find(core::ptr::null()), None);
        }
    }
}
