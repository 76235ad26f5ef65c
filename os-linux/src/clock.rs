//! The clock: milliseconds that never go back. Called by the page heap, in the middle of an allocation, through
//! `Platform::now_ms`; calls the kernel's own function, in the object that it maps into every process (the vDSO, `vdso(7)`).
//!
//! Not through libc's `clock_gettime`: programs interpose it to lie about the time, and what they interpose may allocate, or
//! wait for a lock whose holder does. Not by a system call either, which a sandbox may punish. Where there is no such object
//! (valgrind), there is no clock, and the heap goes without.

use crate::sys;
use core::ffi::CStr;
use core::mem::transmute;
use core::ptr::{null_mut, with_exposed_provenance};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Sym, PT_DYNAMIC, PT_LOAD, timespec};

type GetTime = unsafe extern "C" fn(clock: libc::clockid_t, time: *mut timespec) -> core::ffi::c_int;

const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;

/// Null until looked for; [`NONE`], or the function.
static GET_TIME: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// Stands for "there is none": an address that no function has.
const NONE: *mut () = core::ptr::without_provenance_mut(1);

/// Milliseconds since some moment, to the kernel's tick (1 to 10 ms).
pub(crate) fn now_ms() -> Option<u64> {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel's function writes `time`.
    if unsafe { get_time()?(libc::CLOCK_MONOTONIC_COARSE, &mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec.cast_unsigned() * 1000 + time.tv_nsec.cast_unsigned() / 1_000_000)
}

fn get_time() -> Option<GetTime> {
    // Relaxed, here and below: the function was there before the process; its address is all there is to see.
    match GET_TIME.load(Ordering::Relaxed) {
        found if found.is_null() => find(),
        NONE => None,
        // SAFETY: `find` stored a function of this type.
        found => Some(unsafe { transmute::<*mut (), GetTime>(found) }),
    }
}

#[cold]
fn find() -> Option<GetTime> {
    let image = sys::auxiliary(libc::AT_SYSINFO_EHDR);
    // SAFETY: the kernel's word for where its object lies, which stays mapped.
    let found = if image == 0 { None } else { unsafe { find_in(image, c"__vdso_clock_gettime") } };
    GET_TIME.store(found.unwrap_or(NONE), Ordering::Relaxed);
    // SAFETY: that symbol is a function of this type.
    found.map(|function| unsafe { transmute::<*mut (), GetTime>(function) })
}

/// The address of the symbol `name` in the object mapped at `image`. Its hash table only tells how many symbols there are.
///
/// # Safety
/// A loaded ELF object lies there, whose addresses are not relocated (as in the vDSO).
unsafe fn find_in(image: usize, name: &CStr) -> Option<*mut ()> {
    // SAFETY: the tables are where the headers say, inside the object.
    unsafe {
        let (bias, dynamic) = segments(image)?;
        let at = |tag| tagged(dynamic, tag).map(|address| bias.wrapping_add(address));
        let (symbols, strings, hash) = (at(DT_SYMTAB)?, at(DT_STRTAB)?, at(DT_HASH)?);
        let count = *with_exposed_provenance::<u32>(hash + 4) as usize;
        let symbols = core::slice::from_raw_parts(with_exposed_provenance::<Elf64_Sym>(symbols), count);
        let is_it = |symbol: &&Elf64_Sym| {
            symbol.st_value != 0 && CStr::from_ptr(with_exposed_provenance(strings + symbol.st_name as usize)) == name
        };
        let symbol = symbols.iter().find(is_it)?;
        Some(with_exposed_provenance::<()>(bias.wrapping_add(symbol.st_value as usize)).cast_mut())
    }
}

/// What to add to the object's addresses, and where its dynamic section lies.
///
/// # Safety
/// As for [`find_in`].
unsafe fn segments(image: usize) -> Option<(usize, usize)> {
    // SAFETY: the caller's promise.
    let headers = unsafe {
        let header = &*with_exposed_provenance::<Elf64_Ehdr>(image);
        let first = with_exposed_provenance::<Elf64_Phdr>(image + header.e_phoff as usize);
        core::slice::from_raw_parts(first, header.e_phnum.into())
    };
    let load = headers.iter().find(|header| header.p_type == PT_LOAD)?;
    let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC)?;
    let bias = image.wrapping_add(load.p_offset as usize).wrapping_sub(load.p_vaddr as usize);
    Some((bias, image + dynamic.p_offset as usize))
}

/// The value of `tag` in a dynamic section, which ends with tag 0.
///
/// # Safety
/// A dynamic section lies at `dynamic`.
unsafe fn tagged(dynamic: usize, tag: usize) -> Option<usize> {
    let mut entry = with_exposed_provenance::<[usize; 2]>(dynamic);
    // SAFETY: the walk ends at the last entry.
    unsafe {
        while (*entry)[0] != 0 {
            if (*entry)[0] == tag {
                return Some((*entry)[1]);
            }
            entry = entry.add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_clock_runs() {
        let (Some(before), begin) = (now_ms(), Instant::now()) else {
            return std::eprintln!("no vDSO here, so no clock");
        };
        std::thread::sleep(Duration::from_millis(60));
        let (after, passed) = (now_ms().unwrap(), begin.elapsed().as_millis() as u64);
        assert!((40..=passed + 20).contains(&(after - before)), "{before} to {after}, and {passed} passed");
    }

    #[test]
    fn a_symbol_that_is_not_there_is_not_found() {
        let image = sys::auxiliary(libc::AT_SYSINFO_EHDR);
        // SAFETY: the kernel's object.
        assert!(image == 0 || unsafe { find_in(image, c"__vdso_malloc") }.is_none());
    }
}
