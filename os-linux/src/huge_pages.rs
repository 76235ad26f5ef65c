//! Whether this process gets huge pages where it advises them: the kernel takes the advice in any case. Called by `mmap.rs`,
//! inside the page heap's lock; reads files through `cgroup.rs`, once in a process, when advice is first given.
//!
//! The system may have them switched off (`/sys/kernel/mm/transparent_hugepage`, since Linux 6.8 also by their length), or the
//! process (`PR_SET_THP_DISABLE` of `prctl(2)`), which its status tells since Linux 5.0. What cannot be read, and what changes
//! later, counts as if there were huge pages: then a heap takes more for resident than is, and gives back sooner.

use crate::cgroup::each_line;
use crate::conf;
use core::ffi::CStr;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Relaxed throughout: the state is all there is to see, and several that ask at once find the same.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

const UNKNOWN: u8 = 0;
const OFFERED: u8 = 1;
const NONE: u8 = 2;

/// See the head of this file.
pub(crate) fn are_offered() -> bool {
    match STATE.load(Relaxed) {
        UNKNOWN => ask(),
        known => known == OFFERED,
    }
}

#[cold]
fn ask() -> bool {
    // Where no file may be opened, or it is not known yet whether one may, the kernel's word has to do.
    if conf::get().is_none_or(|conf| conf.cgroup == conf::Cgroup::Off) {
        return true;
    }
    let are_offered = !are_off_in_system() && !are_off_in_process();
    STATE.store(if are_offered { OFFERED } else { NONE }, Relaxed);
    are_offered
}

/// What a switch of the system is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    Never,
    /// As the one for all lengths.
    Inherit,
    /// Always, or where advised.
    On,
}

fn are_off_in_system() -> bool {
    let of_length = switch(c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled").unwrap_or(Switch::Inherit);
    match of_length {
        Switch::Inherit => switch(c"/sys/kernel/mm/transparent_hugepage/enabled") == Some(Switch::Never),
        own => own == Switch::Never,
    }
}

fn switch(path: &CStr) -> Option<Switch> {
    first(path, switch_in)
}

/// The word in brackets is the one that holds.
fn switch_in(line: &[u8]) -> Option<Switch> {
    match line.split(|byte| b"[]".contains(byte)).nth(1)? {
        b"never" => Some(Switch::Never),
        b"inherit" => Some(Switch::Inherit),
        _ => Some(Switch::On),
    }
}

fn are_off_in_process() -> bool {
    let value = |line: &[u8]| Some(line.strip_prefix(b"THP_enabled:")?.trim_ascii() == b"0");
    first(c"/proc/self/status", value).unwrap_or(false)
}

/// The first thing that `find` finds in a line of a file.
fn first<T>(path: &CStr, find: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let mut found = None;
    each_line::<128>(path, |line| {
        found = find(line);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_switch_is_set_to_what_stands_in_brackets() {
        assert_eq!(switch_in(b"always madvise [never]"), Some(Switch::Never));
        assert_eq!(switch_in(b"always [madvise] never"), Some(Switch::On));
        assert_eq!(switch_in(b"[always] madvise never"), Some(Switch::On));
        assert_eq!(switch_in(b"always [inherit] madvise never"), Some(Switch::Inherit));
        assert_eq!((switch_in(b"never"), switch_in(b"")), (None, None));
        assert_eq!(switch(c"/proc/self/no such file"), None);
    }

    #[test]
    fn a_process_may_do_without() {
        let set = |is_off: core::ffi::c_ulong| {
            // SAFETY: of no effect but on which pages this process gets.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_off, 0, 0, 0) }, 0);
            are_off_in_process()
        };
        assert!(!are_off_in_process());
        assert_eq!((set(1), set(0)), (true, false));
    }

    #[test]
    fn the_answer_is_the_systems() {
        let file = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        assert_eq!(switch(c"/sys/kernel/mm/transparent_hugepage/enabled") == Some(Switch::Never), file.contains("[never]"));
    }
}
