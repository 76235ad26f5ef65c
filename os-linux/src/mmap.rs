//! [`MmapPages`]: pages from the kernel. Called by the core's page heap; calls `sys.rs` and `huge_pages.rs`. Holds no state, so that signal
//! handlers and forked children find nothing half done.
//!
//! Invariants: `P1` a run that was mapped begins at a multiple of the alignment that was asked for; `P2` every mapping is
//! private, anonymous and fresh, so it reads zero.

use crate::{huge_pages, sys};
use core::ptr::{NonNull, with_exposed_provenance_mut};
use freestone_core::{Contents, Mapped, PAGE_SIZE, PageRun, PageSource, Pages, Place, Purged, Refused};

const READ_WRITE: usize = 1 | 2;
const PRIVATE_ANONYMOUS: usize = 0x02 | 0x20;
const NO_RESERVE: usize = 0x4000;
const FIXED_NOREPLACE: usize = 0x10_0000;
const MAY_MOVE: usize = 1;
const DONTNEED: usize = 4;
const HUGEPAGE: usize = 14;
const POPULATE_WRITE: usize = 23;

/// Tables up to this length are never refused for a limit: without them a heap does not work.
const SHORT_TABLE: usize = 4 << 20;
/// A longer table takes at most this part of what the process may map.
const PART_FOR_TABLE: usize = 32;

/// The page source of a Linux process.
#[derive(Clone, Copy, Debug, Default)]
pub struct MmapPages;

// SAFETY: private anonymous mappings at places that the kernel chose, or that it found free, are exclusive, readable and
// writable; it never places one on page 0 or at the top. There is no state, so calls may nest.
unsafe impl PageSource for MmapPages {
    /// The kernel joins neighbours of one kind, cuts mappings as it is told to, and unmaps across several.
    const JOINS: bool = true;

    fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        mapped(map_aligned(pages.bytes(), align)?)
    }

    /// Without a charge to what the kernel is ready to commit, unless it commits strictly (`vm.overcommit_memory` 2), where
    /// every mapping is charged. Limits of a process count all addresses: where one is low, a long table is refused.
    fn map_sparse(&self, pages: Pages) -> Option<Mapped> {
        let bytes = pages.bytes();
        if bytes > SHORT_TABLE && bytes > sys::mapping_limit() / PART_FOR_TABLE {
            return None;
        }
        mapped(map_at(0, bytes, NO_RESERVE)?)
    }

    unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused> {
        // SAFETY: the run is the caller's, who gives it up.
        unsafe { unmap(run.start.addr().get(), run.pages.bytes()) }
    }

    unsafe fn purge(&self, run: PageRun) -> Purged {
        // Fails on locked memory and in some sandboxes, and then leaves the data.
        if advise(run, DONTNEED) { Purged::Zeroed } else { Purged::Refused }
    }

    unsafe fn remap(&self, run: PageRun, to: Pages, place: Place) -> Option<NonNull<u8>> {
        let flags = match place {
            Place::Stay => 0,
            Place::Move => MAY_MOVE,
        };
        // The kernel cuts a part out of its mapping; a run of several it shortens, and refuses to lengthen.
        // SAFETY: the run is the caller's, who uses the new address from now on.
        let start = unsafe {
            sys::call(sys::MREMAP, [run.start.as_ptr().expose_provenance(), run.pages.bytes(), to.bytes(), flags, 0, 0])
        };
        NonNull::new(with_exposed_provenance_mut(start.ok()?))
    }

    fn advise_huge(&self, run: PageRun) -> Result<(), Refused> {
        // The kernel takes the advice also where it does not heed it.
        if huge_pages::are_offered() && advise(run, HUGEPAGE) { Ok(()) } else { Err(Refused) }
    }

    fn populate(&self, run: PageRun) {
        let _ = advise(run, POPULATE_WRITE);
    }
}

fn mapped(start: usize) -> Option<Mapped> {
    Some(Mapped { start: NonNull::new(with_exposed_provenance_mut(start))?, contents: Contents::Zeroed })
}

fn advise(run: PageRun, advice: usize) -> bool {
    // SAFETY: of the three advices used here only DONTNEED changes contents, and its caller owns the run.
    unsafe { sys::call(sys::MADVISE, [run.start.addr().get(), run.pages.bytes(), advice, 0, 0, 0]) }.is_ok()
}

/// Maps `bytes` at a multiple of `align`, with one call where the kernel's own choice fits.
///
/// The kernel places a mapping right below the lowest one, as a rule: after the first chunk the next ones come out aligned.
fn map_aligned(bytes: usize, align: usize) -> Option<usize> {
    let start = map_at(0, bytes, 0)?;
    if start.is_multiple_of(align) {
        return Some(start);
    }
    // Refused where the process has too many mappings: then the piece stays mapped and untouched.
    // SAFETY: mapped just now, and used by nobody.
    let _ = unsafe { unmap(start, bytes) };
    map_below(start & !(align - 1), bytes).or_else(|| map_within(bytes, align))
}

/// Tries `start`, an aligned place that begins below one that was free a moment ago; that one being the lowest, it is free
/// too.
fn map_below(start: usize, bytes: usize) -> Option<usize> {
    if start == 0 {
        return None;
    }
    let got = map_at(start, bytes, FIXED_NOREPLACE)?;
    if got != start {
        // A kernel before 4.17 takes the flag for a hint.
        // SAFETY: mapped just now, and used by nobody.
        let _ = unsafe { unmap(got, bytes) };
        return None;
    }
    Some(got)
}

/// Maps enough to hold an aligned run anywhere, and gives back what lies around the highest one (so that the next mapping
/// falls right below it). Where the kernel refuses to take a piece back, the piece stays mapped and untouched.
fn map_within(bytes: usize, align: usize) -> Option<usize> {
    let whole = bytes.checked_add(align - PAGE_SIZE)?;
    let outer = map_at(0, whole, 0)?;
    let start = (outer + whole - bytes) & !(align - 1);
    for (from, to) in [(outer, start), (start + bytes, outer + whole)] {
        if from < to {
            // SAFETY: the piece lies in the mapping made above and outside the run that is handed out.
            let _ = unsafe { unmap(from, to - from) };
        }
    }
    Some(start)
}

fn map_at(place: usize, bytes: usize, flags: usize) -> Option<usize> {
    // SAFETY: a fresh mapping; without MAP_FIXED the kernel replaces none.
    unsafe { sys::call(sys::MMAP, [place, bytes, READ_WRITE, PRIVATE_ANONYMOUS | flags, usize::MAX, 0]) }.ok()
}

/// # Safety
/// The pages are the caller's and nobody uses them any more.
unsafe fn unmap(start: usize, bytes: usize) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    unsafe { sys::call(sys::MUNMAP, [start, bytes, 0, 0, 0, 0]) }.map(|_| ()).map_err(|_| Refused)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const SOURCE: MmapPages = MmapPages;

    fn bytes(run: PageRun) -> &'static mut [u8] {
        // SAFETY: the tests use a run by one slice at a time.
        unsafe { core::slice::from_raw_parts_mut(run.start.as_ptr(), run.pages.bytes()) }
    }

    fn map(pages: usize, align: usize) -> PageRun {
        let mapped = SOURCE.map(Pages(pages), align).unwrap();
        assert_eq!(mapped.contents, Contents::Zeroed);
        PageRun { start: mapped.start, pages: Pages(pages) }
    }

    fn unmap(run: PageRun) {
        // SAFETY: the test's own run, not used again.
        unsafe { SOURCE.unmap(run) }.unwrap();
    }

    #[test]
    fn runs_are_aligned_zero_and_writable() {
        let mut runs = std::vec::Vec::new();
        for shift in 12..31 {
            for pages in [1, 3, 512, 513] {
                let run = map(pages, 1 << shift);
                assert!(run.start.addr().get().is_multiple_of(1 << shift));
                assert!(bytes(run).iter().step_by(509).all(|b| *b == 0));
                bytes(run).fill(0xa5);
                runs.push(run);
            }
        }
        runs.into_iter().for_each(unmap);
    }

    fn is_mapped(address: usize) -> bool {
        let mut resident = 0;
        // SAFETY: asks about a page, mapped or not; writes one byte.
        unsafe { libc::mincore(with_exposed_provenance_mut(address), PAGE_SIZE, &mut resident) == 0 }
    }

    /// What the kernel notes of the mapping that begins at `start`.
    fn flags(start: usize) -> std::string::String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&std::format!("{start:x}-")));
        lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("a mapping begins here").into()
    }

    #[test]
    fn sparse_tables_are_not_charged() {
        let pages = Pages(8 << 10);
        let run = PageRun { start: SOURCE.map_sparse(pages).unwrap().start, pages };
        let flags = flags(run.start.addr().get());
        // Under strict overcommit the kernel ignores what is asked for.
        let strict = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2");
        assert!(strict || (flags.contains(" nr") && !flags.contains(" ac")), "{flags}");
        unmap(run);
    }

    #[test]
    fn what_lies_around_an_aligned_run_is_given_back() {
        for align in [1 << 14, 1 << 21, 1 << 30] {
            // At least one side was cut off. Other tests map at the same time and may fill it, now and then.
            let is_cut = |start: usize| !is_mapped(start - PAGE_SIZE) || !is_mapped(start + 3 * PAGE_SIZE);
            let cut = (0..50).any(|_| {
                let start = map_within(3 * PAGE_SIZE, align).unwrap();
                assert!(start.is_multiple_of(align));
                let cut = is_cut(start);
                unmap(PageRun { start: NonNull::new(with_exposed_provenance_mut(start)).unwrap(), pages: Pages(3) });
                cut
            });
            assert!(cut, "aligned to {align:#x}");
        }
    }

    #[test]
    fn a_place_in_use_is_not_replaced() {
        let run = map(1, PAGE_SIZE);
        assert_eq!(map_below(run.start.addr().get(), PAGE_SIZE), None);
        unmap(run);
    }

    #[test]
    fn a_purged_run_reads_zero_and_a_locked_one_is_refused() {
        let run = map(4, PAGE_SIZE);
        bytes(run).fill(7);
        // SAFETY: the test's own run.
        let outcome = unsafe { SOURCE.purge(run.part(Pages(1), Pages(2))) };
        assert_eq!(outcome, Purged::Zeroed);
        let sums = bytes(run).chunks(PAGE_SIZE).map(|page| page.iter().map(|b| usize::from(*b)).sum::<usize>());
        assert!(sums.eq([7 * PAGE_SIZE, 0, 0, 7 * PAGE_SIZE]));
        // SAFETY: locks the test's own run.
        if unsafe { libc::mlock(run.start.as_ptr().cast(), PAGE_SIZE) } == 0 {
            // SAFETY: the test's own run.
            let outcome = unsafe { SOURCE.purge(run.part(Pages(0), Pages(1))) };
            assert_eq!((outcome, bytes(run)[0]), (Purged::Refused, 7));
        }
        unmap(run);
    }

    #[test]
    fn remap_keeps_contents_both_ways() {
        let run = map(4, PAGE_SIZE);
        bytes(run).fill(9);
        // SAFETY: a whole mapping of the test's.
        let moved = unsafe { SOURCE.remap(run, Pages(4096), Place::Move) }.unwrap();
        let long = PageRun { start: moved, pages: Pages(4096) };
        assert!(bytes(long)[..4 * PAGE_SIZE].iter().all(|b| *b == 9));
        assert!(bytes(long)[4 * PAGE_SIZE..].iter().step_by(1021).all(|b| *b == 0));
        // SAFETY: as above.
        let short = unsafe { SOURCE.remap(long, Pages(2), Place::Stay) };
        assert_eq!(short, Some(moved));
        unmap(PageRun { start: moved, pages: Pages(2) });
    }

    #[test]
    fn parts_of_mappings_and_several_are_resized_or_refused() {
        let run = map(12, PAGE_SIZE);
        bytes(run).fill(5);
        let part = run.part(Pages(2), Pages(4));
        // SAFETY: the test's own run, whose parts are used by one slice at a time.
        let moved = unsafe { SOURCE.remap(part, Pages(64), Place::Move) }.unwrap();
        let long = PageRun { start: moved, pages: Pages(64) };
        assert!(bytes(long)[..4 * PAGE_SIZE].iter().all(|b| *b == 5) && bytes(run.part(Pages(6), Pages(6)))[0] == 5);
        // A mark on its second half cuts what is left of the run in two.
        let (several, second) = (run.part(Pages(6), Pages(6)), run.part(Pages(9), Pages(3)));
        // SAFETY: as above; forks are told to leave the pages out, no more.
        assert_eq!(unsafe { libc::madvise(second.start.as_ptr().cast(), second.pages.bytes(), libc::MADV_DONTFORK) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { SOURCE.remap(several, Pages(64), Place::Move) }, None);
        assert!(bytes(several).iter().all(|b| *b == 5));
        // SAFETY: as above.
        assert_eq!(unsafe { SOURCE.remap(several, Pages(2), Place::Stay) }, Some(several.start));
        [long, run.part(Pages(0), Pages(2)), run.part(Pages(6), Pages(2))].into_iter().for_each(unmap);
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        assert!(SOURCE.map(Pages(1 << 40), PAGE_SIZE).is_none());
        assert!(SOURCE.map(Pages(1), 1 << 60).is_none());
    }
}
