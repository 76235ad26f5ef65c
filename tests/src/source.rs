//! A page source that trusts nobody: it counts, checks what is handed back, poisons what it takes, and fails on command.
//!
//! Tests put a `&'static TestSource` under a heap and keep another. It carves one region of address space, of which it knows
//! each page's state, and forgets nothing, so that it can say after a heap is dropped that every page came back. Pages are
//! handed out in the order of their addresses, round the region and back to its start: a stale pointer meets a closed page
//! for long, and yet addresses are used again.
//!
//! Invariants: `T1` a page is out once; `T2` what is unmapped or purged is out, and is one mapping or a part of one;
//! `T3` what is remapped is one whole mapping. A breach is a panic that names the call.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use freestone_core::{Contents, Entry, Lock, Mapped, PAGE_SIZE, PageRun, PageSource, Pages, Place, Purged, Refused};

/// What a run holds that is mapped with [`Contents::Unknown`].
pub const FRESH: u8 = 0xa5;
/// What a run holds that was purged with [`Purged::Unknown`], or closed where pages cannot be protected.
pub const DEAD: u8 = 0xde;

/// The memory under a test source.
///
/// # Safety
/// The region is address space that nobody else uses; between [`open`](Self::open) and [`close`](Self::close) a run in it is
/// readable and writable.
pub unsafe trait Backing: Sync {
    /// All of it.
    fn region(&self) -> PageRun;
    /// Makes a run usable and zero; `false`: no memory.
    fn open(&self, run: PageRun) -> bool;
    /// Makes a run unusable; where that cannot be had, fills it with [`DEAD`].
    fn close(&self, run: PageRun);
}

/// The calls that can be told to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Call {
    Map,
    Unmap,
    Purge,
    Remap,
}

/// Which calls fail, counted from the moment of the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fail {
    /// None.
    Never,
    /// That one, from 1.
    Nth(u32),
    /// Every multiple of the number.
    Every(u32),
    /// That one and all after it, from 1.
    From(u32),
}

/// The order for one kind of call.
#[derive(Debug, Default)]
struct Plan {
    calls: AtomicU32,
    /// The first call that fails; 0 for none.
    first: AtomicU32,
    /// The distance to the next one; 0 for no other.
    every: AtomicU32,
}

impl Plan {
    const fn new() -> Self {
        Self { calls: AtomicU32::new(0), first: AtomicU32::new(0), every: AtomicU32::new(0) }
    }

    fn set(&self, fail: Fail) {
        let (first, every) = match fail {
            Fail::Never => (0, 0),
            Fail::Nth(n) => (n, 0),
            Fail::Every(n) => (n, n),
            Fail::From(n) => (n, 1),
        };
        self.calls.store(0, Relaxed);
        self.first.store(first, Relaxed);
        self.every.store(every, Relaxed);
    }

    /// Counts a call; whether it may go on.
    fn admits(&self) -> bool {
        let call = self.calls.fetch_add(1, Relaxed) + 1;
        let (first, every) = (self.first.load(Relaxed), self.every.load(Relaxed));
        let fails = call == first || (first > 0 && every > 0 && call > first && (call - first).is_multiple_of(every));
        !fails
    }
}

const FREE: u8 = 0;
/// Out, and the first of its mapping.
const FIRST: u8 = 1;
/// Out, and belongs to the mapping of the page before it.
const MORE: u8 = 2;

/// See the head of this file. `L` guards its books; a call that comes upon another one of the same context is refused.
///
/// Everything atomic here is relaxed: the books are written inside the lock only, and what a test sets it sets before it
/// calls.
#[derive(Debug)]
pub struct TestSource<B, L> {
    backing: B,
    lock: L,
    states: &'static [AtomicU8],
    cursor: AtomicUsize,
    plans: [Plan; 4],
    out: AtomicUsize,
    most: AtomicUsize,
    limit: AtomicUsize,
    fresh: AtomicU8,
    purged: AtomicU8,
    has_huge_pages: AtomicBool,
}

/// Leaves the source's lock, also when a breach of contract unwinds.
struct Inside<'a, L: Lock>(&'a L);

impl<L: Lock> Drop for Inside<'_, L> {
    fn drop(&mut self) {
        // SAFETY: made by `enter` after the lock was entered, and dropped once.
        unsafe { self.0.leave() }
    }
}

impl<B: Backing, L: Lock> TestSource<B, L> {
    /// A source over `backing`, with one zero byte in `states` for each of its pages.
    pub fn new(backing: B, states: &'static [AtomicU8]) -> Self {
        assert!(states.len() >= backing.region().pages.0);
        Self {
            backing,
            lock: L::NEW,
            states,
            cursor: AtomicUsize::new(0),
            plans: [const { Plan::new() }; 4],
            out: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            fresh: AtomicU8::new(0),
            purged: AtomicU8::new(0),
            has_huge_pages: AtomicBool::new(true),
        }
    }

    /// Which calls of a kind fail from now on; starts their count again.
    pub fn fail(&self, call: Call, fail: Fail) {
        self.plans[call as usize].set(fail);
    }

    /// Lets every call succeed.
    pub fn heal(&self) {
        self.plans.iter().for_each(|plan| plan.set(Fail::Never));
        self.limit_to(Pages(usize::MAX));
    }

    /// Calls of a kind since [`fail`](Self::fail) or the start.
    pub fn calls(&self, call: Call) -> u32 {
        self.plans[call as usize].calls.load(Relaxed)
    }

    /// Refuses to have more pages out than this.
    pub fn limit_to(&self, pages: Pages) {
        self.limit.store(pages.0, Relaxed);
    }

    /// What fresh runs hold from now on.
    pub fn map_with(&self, contents: Contents) {
        self.fresh.store(if contents == Contents::Zeroed { 0 } else { FRESH }, Relaxed);
    }

    /// How purges end from now on.
    pub fn purge_with(&self, outcome: Purged) {
        self.purged.store(outcome as u8, Relaxed);
    }

    /// Takes no advice from now on.
    pub fn refuse_huge_pages(&self) {
        self.has_huge_pages.store(false, Relaxed);
    }

    /// Pages that are mapped now.
    pub fn pages_out(&self) -> Pages {
        Pages(self.out.load(Relaxed))
    }

    /// The most pages that were mapped at a time.
    pub fn most_out(&self) -> Pages {
        Pages(self.most.load(Relaxed))
    }

    fn enter(&self) -> Option<Inside<'_, L>> {
        match self.lock.try_enter() {
            Entry::Got => {}
            Entry::Mine => return None,
            Entry::Busy => self.lock.enter(),
        }
        Some(Inside(&self.lock))
    }

    fn state(&self, page: usize) -> u8 {
        self.states.get(page).map_or(FREE, |state| state.load(Relaxed))
    }

    fn run(&self, page: usize, pages: usize) -> PageRun {
        self.backing.region().part(Pages(page), Pages(pages))
    }

    /// The number of a run's first page; panics on a run that is not out, or reaches from one mapping into the next (`T2`).
    fn page_of(&self, run: PageRun, call: &str) -> usize {
        let region = self.backing.region();
        let offset = run.start.addr().get().checked_sub(region.start.addr().get());
        let page = offset.filter(|o| o.is_multiple_of(PAGE_SIZE)).map(|o| o / PAGE_SIZE);
        let page = page.filter(|p| run.pages.0 > 0 && p + run.pages.0 <= region.pages.0);
        let Some(page) = page else { panic!("{call} of {run:x?}, which is no run of this source") };
        assert!(self.state(page) != FREE, "{call} of {run:x?}, which is not mapped (T2)");
        let whole = (page + 1..page + run.pages.0).all(|p| self.state(p) == MORE);
        assert!(whole, "{call} of {run:x?}, which is not one mapping or a part of one (T2)");
        page
    }

    /// The first place from the cursor on, or from the start, where `pages` free pages begin at a multiple of `align`.
    fn find(&self, pages: usize, align: usize) -> Option<usize> {
        let cursor = self.cursor.load(Relaxed);
        self.find_in(cursor, pages, align).or_else(|| self.find_in(0, pages, align))
    }

    fn find_in(&self, from: usize, pages: usize, align: usize) -> Option<usize> {
        let region = self.backing.region();
        let base = region.start.addr().get();
        let mut page = from;
        loop {
            page = ((base + page * PAGE_SIZE).checked_next_multiple_of(align)? - base) / PAGE_SIZE;
            if page.checked_add(pages)? > region.pages.0 {
                return None;
            }
            match (page..page + pages).rev().find(|p| self.state(*p) != FREE) {
                None => return Some(page),
                Some(taken) => page = taken + 1,
            }
        }
    }

    /// Opens and marks; `first` is the state of the first page.
    fn open(&self, page: usize, pages: usize, first: u8) -> bool {
        let within = pages.checked_add(self.out.load(Relaxed)).is_some_and(|sum| sum <= self.limit.load(Relaxed));
        if !within || !self.backing.open(self.run(page, pages)) {
            return false;
        }
        (page..page + pages).for_each(|p| assert!(self.states[p].swap(MORE, Relaxed) == FREE, "T1"));
        self.states[page].store(first, Relaxed);
        let out = self.out.fetch_add(pages, Relaxed) + pages;
        self.most.fetch_max(out, Relaxed);
        self.cursor.store(page + pages, Relaxed);
        true
    }

    fn close(&self, page: usize, pages: usize) {
        if self.state(page + pages) == MORE {
            self.states[page + pages].store(FIRST, Relaxed);
        }
        (page..page + pages).for_each(|p| self.states[p].store(FREE, Relaxed));
        self.backing.close(self.run(page, pages));
        self.out.fetch_sub(pages, Relaxed);
    }

    fn admits(&self, call: Call) -> bool {
        self.plans[call as usize].admits()
    }

    fn move_to(&self, page: usize, pages: usize, to: usize) -> Option<usize> {
        let new = self.find(to, PAGE_SIZE)?;
        if !self.open(new, to, FIRST) {
            return None;
        }
        let (from, into) = (self.run(page, pages).start, self.run(new, to).start);
        // SAFETY: both runs are open, and a free run does not overlap one that is out.
        unsafe { into.copy_from_nonoverlapping(from, Pages(pages.min(to)).bytes()) }
        self.close(page, pages);
        Some(new)
    }
}

fn fill(run: PageRun, byte: u8) {
    // SAFETY: the callers own the run, which is open.
    unsafe { run.start.write_bytes(byte, run.pages.bytes()) }
}

// SAFETY: runs are handed out from free pages only and marked (`T1`), opened by the backing, whose region has neither page 0
// nor the top; all books are kept inside the lock, and a nested call is refused.
unsafe impl<B: Backing, L: Lock> PageSource for &'static TestSource<B, L> {
    fn map(&self, pages: Pages, align: usize) -> Option<Mapped> {
        assert!(pages.0 > 0 && align.is_power_of_two() && align >= PAGE_SIZE, "map of {pages:?} aligned to {align}");
        let _inside = self.enter()?;
        if !self.admits(Call::Map) {
            return None;
        }
        let page = self.find(pages.0, align)?;
        if !self.open(page, pages.0, FIRST) {
            return None;
        }
        let run = self.run(page, pages.0);
        if self.fresh.load(Relaxed) == 0 {
            return Some(Mapped { start: run.start, contents: Contents::Zeroed });
        }
        fill(run, FRESH);
        Some(Mapped { start: run.start, contents: Contents::Unknown })
    }

    unsafe fn unmap(&self, run: PageRun) -> Result<(), Refused> {
        let _inside = self.enter().ok_or(Refused)?;
        let page = self.page_of(run, "unmap");
        if !self.admits(Call::Unmap) {
            return Err(Refused);
        }
        self.close(page, run.pages.0);
        Ok(())
    }

    unsafe fn purge(&self, run: PageRun) -> Purged {
        let Some(_inside) = self.enter() else { return Purged::Refused };
        self.page_of(run, "purge");
        if !self.admits(Call::Purge) || self.purged.load(Relaxed) == Purged::Refused as u8 {
            return Purged::Refused;
        }
        if self.purged.load(Relaxed) == Purged::Zeroed as u8 {
            fill(run, 0);
            return Purged::Zeroed;
        }
        fill(run, DEAD);
        Purged::Unknown
    }

    unsafe fn remap(&self, run: PageRun, to: Pages, place: Place) -> Option<NonNull<u8>> {
        let _inside = self.enter()?;
        let (page, pages) = (self.page_of(run, "remap"), run.pages.0);
        let whole = self.state(page) == FIRST && self.state(page + pages) != MORE;
        assert!(whole && to.0 > 0, "remap of {run:x?} to {to:?}, which is not a whole mapping (T3)");
        if !self.admits(Call::Remap) {
            return None;
        }
        if to.0 <= pages {
            if to.0 < pages {
                self.close(page + to.0, pages - to.0);
            }
            return Some(run.start);
        }
        let free = page + to.0 <= self.states.len() && (page + pages..page + to.0).all(|p| self.state(p) == FREE);
        if free && page + to.0 <= self.backing.region().pages.0 && self.open(page + pages, to.0 - pages, MORE) {
            return Some(run.start);
        }
        let new = if place == Place::Move { self.move_to(page, pages, to.0)? } else { return None };
        Some(self.run(new, to.0).start)
    }

    fn advise_huge(&self, run: PageRun) -> Result<(), Refused> {
        let _inside = self.enter().ok_or(Refused)?;
        self.page_of(run, "advice");
        if self.has_huge_pages.load(Relaxed) { Ok(()) } else { Err(Refused) }
    }
}
