//! [`LinuxLists`]: the per-core lists of a heap. Called by the core through [`CoreLists`]; calls `sections.rs` or the
//! core's [`claim`], as `mode.rs` says, and `rseq.rs` for the fence.
//!
//! "Core" is the processor's number where restartable sequences work, otherwise a slot picked by the thread pointer. Lists
//! start without a board, so that everything misses; the first [`prepare`](CoreLists::prepare) makes one, and each core's first
//! one opens its slab, a page of it.
//!
//! Invariants: `I1` board and slabs are made, and cores parked, under `lock` only, which is never waited for but by a fork;
//! `I2` the head words of one slab are touched by sections of its own core only, or by whoever has parked that core.

use crate::board::Board;
use crate::lock::FutexLock;
use crate::mode::{Mode, area, mode, settle};
use crate::{rseq, sections, sys, thread_lists};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use freestone_core::{Block, Chain, CoreLists, Entry, Lock, Refused, Side, SizeClass, Slab, Slot, Tables};

/// Looks at a lock that is taken.
const LOOKS: usize = 1000;

/// The lists of one heap: for each core and class a list of free blocks, worked on by restartable sequences or by claims.
#[derive(Debug)]
pub struct LinuxLists {
    board: AtomicPtr<Board>,
    /// The board, once it is there, if the lists go by sections: the one thing that the fast path asks.
    sections: AtomicPtr<Board>,
    /// Cores that the board has pages for.
    room: AtomicUsize,
    /// One more than the highest core that has a slab.
    cores: AtomicUsize,
    lock: FutexLock,
    /// Whether [`freeze`](CoreLists::freeze) holds the lock.
    frozen: AtomicBool,
}

// SAFETY: by sections, a block goes in and comes out by one store of the thread that runs on its core (`A1`), which the kernel
// aborts where another thread of that core came between; a thief parks the core and waits for the fence (`I2`). By claims,
// only the claimer touches a list (the core's `claim`). A thread that takes a block on a core sees what others wrote there
// before: the scheduler's barrier lies between them; for a thief it is the fence, and by claims Release and Acquire.
unsafe impl CoreLists for LinuxLists {
    type Class = SizeClass;

    const NEW: Self = Self {
        board: AtomicPtr::new(null_mut()),
        sections: AtomicPtr::new(null_mut()),
        room: AtomicUsize::new(0),
        cores: AtomicUsize::new(0),
        lock: FutexLock::NEW,
        frozen: AtomicBool::new(false),
    };

    #[inline(always)]
    fn pop(&self, class: SizeClass) -> Option<Block> {
        let (area, board) = self.sections()?;
        // SAFETY: all lists of this board go by sections, on this area.
        let block = NonNull::new(unsafe { sections::pop(area, board, class) })?;
        // SAFETY: the section took it out of the list, which owned it.
        Some(unsafe { Block::from_ptr(block) })
    }

    #[inline(always)]
    fn push(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        let Some((area, board)) = self.sections() else { return Err(block) };
        let block = block.into_ptr();
        // SAFETY: as for `pop`; the block was a token a line above.
        if unsafe { sections::push(area, board, class, block.as_ptr()) } {
            return Ok(());
        }
        // SAFETY: the list did not take it.
        Err(unsafe { Block::from_ptr(block) })
    }

    fn pop_again(&self, class: SizeClass) -> Option<Block> {
        match self.claimable(class) {
            Some(slot) => slot.head.pop(),
            None => self.pop(class),
        }
    }

    fn push_again(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        match self.claimable(class) {
            // Relaxed: a limit is only a number.
            Some(slot) => slot.head.push(slot.limit.load(Ordering::Relaxed), block),
            None => self.push(class, block),
        }
    }

    fn take_all(&self, class: SizeClass) -> Chain {
        if let Some(slot) = self.claimable(class) {
            return slot.head.take_all();
        }
        let Some((area, board)) = self.sections() else { return Chain::EMPTY };
        // SAFETY: as for `pop`; the section took the list's word out, so that its blocks are owned here.
        unsafe { Chain::from_word(sections::take_all(area, board, class)) }
    }

    fn put_chain(&self, class: SizeClass, chain: Chain) -> Result<(), Chain> {
        if let Some(slot) = self.claimable(class) {
            return slot.head.put_chain(chain);
        }
        let Some((area, board)) = self.sections() else { return Err(chain) };
        let word = chain.into_word();
        // SAFETY: as for `pop`; the chain was owned a line above.
        if unsafe { sections::put_chain(area, board, class, word) } {
            return Ok(());
        }
        // SAFETY: the list did not take it.
        Err(unsafe { Chain::from_word(word) })
    }

    fn steal(&self, core: usize, sink: &mut dyn FnMut(SizeClass, Chain)) -> Result<(), Refused> {
        let Some(slab) = self.slab(core) else { return Ok(()) };
        self.exclusively(|| match mode() {
            Mode::Rseq(_) => self.steal_parked(core, slab, sink),
            _ => {
                steal_claimed(slab, sink);
                Ok(())
            }
        })
        .unwrap_or(Err(Refused))
    }

    fn prepare(&self, tables: &dyn Tables) -> bool {
        settle();
        let Some(core) = here() else { return false };
        // Not waited for (`I1`), but looked at for about as long as it takes another core to make the board: who goes away
        // without lists takes a single block, whose neighbours then go to other cores, to share its line of the cache.
        for _ in 0..LOOKS {
            if self.slab(core).is_some() {
                return true;
            }
            if self.lock.is_mine() {
                return false;
            }
            if let Some(made) = self.exclusively(|| self.furnish(core, tables)) {
                return made;
            }
            core::hint::spin_loop();
        }
        false
    }

    fn cores(&self) -> usize {
        // Acquire pairs with the Release in `furnish`: the slabs below are seen.
        self.cores.load(Ordering::Acquire)
    }

    #[inline]
    fn current(&self) -> Option<usize> {
        here().filter(|core| self.slab(*core).is_some())
    }

    #[inline]
    fn slab(&self, core: usize) -> Option<&Slab> {
        // Relaxed: written before the board was published.
        let board = self.board().filter(|_| core < self.room.load(Ordering::Relaxed))?;
        // SAFETY: the board has a page for this core.
        unsafe { board.slab(core) }
    }

    fn freeze(&self) {
        // A fork by a signal handler that came upon this thread's own steal: the child goes on with it, like the parent.
        if !self.lock.is_mine() {
            self.lock.enter();
            // Relaxed, here and in `thaw`: written and read by the holder of the lock only.
            self.frozen.store(true, Ordering::Relaxed);
        }
    }

    fn thaw(&self, side: Side) {
        if side == Side::Child && mode() == Mode::Claims {
            (0..self.cores()).filter_map(|core| self.slab(core)).for_each(Slab::drop_claims);
        }
        if self.lock.is_mine() && self.frozen.swap(false, Ordering::Relaxed) {
            // SAFETY: entered by `freeze`, in this thread or in the one that it is the fork of.
            unsafe { self.lock.leave() }
        }
    }
}

/// The core that runs this thread, or the slot of this thread; `None` where the lists cannot work.
#[inline]
fn here() -> Option<usize> {
    match mode() {
        Mode::Rseq(area) => rseq::core_at(area),
        Mode::Claims => Some(thread_lists::slot_number()),
        Mode::Undecided => None,
    }
}

impl LinuxLists {
    /// Area and board of the sections; `None` where lists go by claims, or there is no board yet.
    #[inline(always)]
    fn sections(&self) -> Option<(isize, &Board)> {
        // Acquire pairs with the Release in `make_board`: board and mode are seen before the board's address.
        // SAFETY: null, or a board that lives as long as the heap, and so as these lists.
        let board = unsafe { self.sections.load(Ordering::Acquire).as_ref()? };
        Some((area(), board))
    }

    #[inline(always)]
    fn board(&self) -> Option<&Board> {
        // Acquire pairs with the Release in `make_board`: the board is seen before its address.
        // SAFETY: as for `sections`.
        unsafe { self.board.load(Ordering::Acquire).as_ref() }
    }

    /// This thread's list of `class`, where lists go by claims.
    #[inline]
    fn claimable(&self, class: SizeClass) -> Option<&Slot> {
        match mode() {
            Mode::Claims => Some(self.slab(thread_lists::slot_number())?.slot(class)),
            _ => None,
        }
    }

    /// Does `work` inside the lock; `None` where somebody else is inside, or this thread is already (`I1`).
    fn exclusively<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        if self.lock.try_enter() != Entry::Got {
            return None;
        }
        let result = work();
        // SAFETY: entered above.
        unsafe { self.lock.leave() }
        Some(result)
    }

    /// Makes the slab of `core`, and the board before it.
    #[cold]
    fn furnish(&self, core: usize, tables: &dyn Tables) -> bool {
        if self.slab(core).is_some() {
            return true;
        }
        // Relaxed: written under the lock of the lists, which this context holds.
        let Some(board) = self.make_board(tables).filter(|_| core < self.room.load(Ordering::Relaxed)) else { return false };
        // SAFETY: the board has a page for this core.
        unsafe { board.make(core) };
        // Release pairs with the Acquire in `cores`.
        self.cores.fetch_max(core + 1, Ordering::Release);
        true
    }

    fn make_board(&self, tables: &dyn Tables) -> Option<&Board> {
        if self.board().is_none() {
            let room = sys::cores().possible;
            let zeroes = tables.table(Board::bytes(room))?;
            // SAFETY: a zeroed table of that size, aligned to a page, for as long as the heap lives.
            let board = unsafe { Board::in_place(zeroes) }.as_ptr();
            // Relaxed: published with the board.
            self.room.store(room, Ordering::Relaxed);
            if matches!(mode(), Mode::Rseq(_)) {
                rseq::announce_fence();
                // Release pairs with the Acquire in `sections`.
                self.sections.store(board, Ordering::Release);
            }
            // Release pairs with the Acquire in `board`.
            self.board.store(board, Ordering::Release);
        }
        self.board()
    }

    /// Takes all lists of `core` while its sections miss, and hands them out after they work again. The lock is held to the
    /// end, so that no fork comes upon chains that only this thread knows.
    fn steal_parked(&self, core: usize, slab: &Slab, sink: &mut dyn FnMut(SizeClass, Chain)) -> Result<(), Refused> {
        let Some(board) = self.board() else { return Ok(()) };
        // SAFETY: the core has a slab, so the board has its page.
        unsafe { board.park(core) };
        let fenced = rseq::fence(core);
        let mut words = [0; SizeClass::INDEXES];
        if fenced.is_ok() {
            for (word, slot) in words.iter_mut().zip(&slab.slots) {
                // Relaxed: nobody else touches the heads now (`I2`); the fence ordered what was written before.
                *word = slot.head.load(Ordering::Relaxed);
                // SAFETY: the list is taken out by the word that was read, and empty from now on.
                unsafe { slot.head.word() }.store(0, Ordering::Relaxed);
            }
        }
        // SAFETY: as above.
        unsafe { board.unpark(core) };
        for (class, word) in SizeClass::all().zip(&words[1..]).filter(|(_, word)| **word != 0) {
            // SAFETY: the list's word, taken out of it above.
            sink(class, unsafe { Chain::from_word(*word) });
        }
        fenced
    }
}

/// Takes all lists of a slab that nobody has claimed.
fn steal_claimed(slab: &Slab, sink: &mut dyn FnMut(SizeClass, Chain)) {
    for class in SizeClass::all() {
        let chain = slab.slot(class).head.take_all();
        if !chain.is_empty() {
            sink(class, chain);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::alloc::Layout;
    use freestone_core::PAGE_SIZE;

    /// Tables that are never given back.
    struct Leaky;

    impl Tables for Leaky {
        fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
            // SAFETY: not of size 0.
            NonNull::new(unsafe { std::alloc::alloc_zeroed(Layout::from_size_align(bytes, PAGE_SIZE).ok()?) })
        }
    }

    #[test]
    fn a_core_without_a_page_has_no_lists() {
        let lists = LinuxLists::NEW;
        crate::conf::process_started();
        assert!(lists.prepare(&Leaky));
        let (room, cores) = (lists.room.load(Ordering::Relaxed), lists.cores());
        for core in [room, room + 1, usize::MAX] {
            assert!(lists.slab(core).is_none() && !lists.furnish(core, &Leaky), "core {core} of {room}");
            assert_eq!(lists.steal(core, &mut |_, _| panic!("a list of core {core}")), Ok(()));
        }
        assert_eq!(lists.cores(), cores);
    }
}
