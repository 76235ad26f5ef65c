//! Configuration: one variable, `FREESTONE_CONF=word=value,…`, read once. Called by the first slow path of the process
//! (through `Platform::ready`), by `mode.rs` and by the preload library; calls `report.rs`.
//!
//! | word | values | effect |
//! |---|---|---|
//! | `rseq` | `on` (default), `off` | `off`: no restartable sequences; the lists go by claims (`thread_lists.rs`) |
//! | `stats` | `exit` | the preload library prints a heap report when the program ends |
//!
//! What is not known is reported once on standard error and otherwise ignored. A program that runs with raised rights
//! (`AT_SECURE`) does not look at the variable. Nothing here allocates; `getenv` is not called, as it may be interposed.
//!
//! A preloaded library is asked for memory before libc knows the environment: until then the answer is "not yet".

use crate::report::report;
use crate::sys;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

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

/// What the variable says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conf {
    /// `rseq=`
    pub rseq: Rseq,
    /// `stats=`
    pub stats: Report,
}

impl Conf {
    /// What holds without the variable.
    pub const DEFAULT: Self = Self { rseq: Rseq::On, stats: Report::Never };

    const fn to_bits(self) -> u8 {
        READ | if matches!(self.rseq, Rseq::Off) { RSEQ_OFF } else { 0 }
            | if matches!(self.stats, Report::AtExit) { AT_EXIT } else { 0 }
    }

    const fn from_bits(bits: u8) -> Self {
        Self {
            rseq: if bits & RSEQ_OFF == 0 { Rseq::On } else { Rseq::Off },
            stats: if bits & AT_EXIT == 0 { Report::Never } else { Report::AtExit },
        }
    }
}

const READ: u8 = 1;
const RSEQ_OFF: u8 = 2;
const AT_EXIT: u8 = 4;

/// 0 until the variable has been read, then [`Conf::to_bits`].
static BITS: AtomicU8 = AtomicU8::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);

/// The configuration; `None` while libc does not know the environment yet. Cheap after the first answer.
pub fn get() -> Option<Conf> {
    // Relaxed: the bits are all there is to see.
    match BITS.load(Ordering::Relaxed) {
        0 => read(),
        bits => Some(Conf::from_bits(bits)),
    }
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
            _ => unknown(item),
        }
    }
    conf
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
    let bits = parse(text, |_| {}).to_bits();
    // Relaxed, as in `get`; the exchange picks one of several first readers to do the reporting.
    if BITS.compare_exchange(0, bits, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
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
        "FREESTONE_CONF: \"{}\" is not known; known are rseq=on, rseq=off, stats=exit",
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
        assert_eq!(Conf::from_bits(conf.to_bits()), conf);
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
