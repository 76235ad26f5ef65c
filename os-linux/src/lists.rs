//! [`LinuxLists`]: the per-core lists of a heap. Called by the core through [`CoreLists`]; calls `sections.rs` or the
//! core's [`claim`], as `mode.rs` says, and `rseq.rs` for the fence.
//!
//! "Core" is the processor's number where restartable sequences work, otherwise a slot picked by the thread pointer. Lists
//! start on a static board without slabs, on which everything misses; the first [`prepare`](CoreLists::prepare) makes a board,
//! and each core's first one its slab, a page long.
//!
//! Invariants: `I1` board and slabs are made, and cores parked, under `lock` only, which is never waited for but by a fork;
//! `I2` the head words of one slab are touched by sections of its own core only, or by whoever has parked that core.

use crate::board::{Board, CORES, NO_SLABS};
use crate::lock::FutexLock;
use crate::mode::{Mode, mode, settle};
use crate::{rseq, sections, thread_lists};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use freestone_core::{Block, Chain, CoreLists, Entry, Lock, PAGE_SIZE, Refused, Side, SizeClass, Slab, Slot, Tables};

/// The lists of one heap: for each core and class a list of free blocks, worked on by restartable sequences or by claims.
#[derive(Debug)]
pub struct LinuxLists {
    board: AtomicPtr<Board>,
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
        board: AtomicPtr::new((&raw const NO_SLABS).cast_mut()),
        cores: AtomicUsize::new(0),
        lock: FutexLock::NEW,
        frozen: AtomicBool::new(false),
    };

    #[inline(always)]
    fn pop(&self, class: SizeClass) -> Option<Block> {
        let Mode::Rseq(area) = mode() else { return self.pop_claimed(class) };
        // SAFETY: the mode names the area, and says that all lists go by sections.
        let block = NonNull::new(unsafe { sections::pop(area, self.board(), class) })?;
        // SAFETY: the section took it out of the list, which owned it.
        Some(unsafe { Block::from_ptr(block) })
    }

    #[inline(always)]
    fn push(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        let Mode::Rseq(area) = mode() else { return self.push_claimed(class, block) };
        let block = block.into_ptr();
        // SAFETY: as for `pop`; the block was a token a line above.
        if unsafe { sections::push(area, self.board(), class, block.as_ptr()) } {
            return Ok(());
        }
        // SAFETY: the list did not take it.
        Err(unsafe { Block::from_ptr(block) })
    }

    #[inline]
    fn take_all(&self, class: SizeClass) -> Chain {
        let Mode::Rseq(area) = mode() else { return self.take_all_claimed(class) };
        // SAFETY: as for `pop`; the section took the list's word out, so that its blocks are owned here.
        unsafe { Chain::from_word(sections::take_all(area, self.board(), class)) }
    }

    #[inline]
    fn put_chain(&self, class: SizeClass, chain: Chain) -> Result<(), Chain> {
        let Mode::Rseq(area) = mode() else { return self.put_chain_claimed(class, chain) };
        let word = chain.into_word();
        // SAFETY: as for `pop`; the chain was owned a line above.
        if unsafe { sections::put_chain(area, self.board(), class, word) } {
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
        let Some(core) = here().filter(|core| *core < CORES) else { return false };
        self.slab(core).is_some() || self.exclusively(|| self.furnish(core, tables)).unwrap_or(false)
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
        self.board().slab(core)
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
            self.board().all(self.cores()).for_each(Slab::drop_claims);
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
    #[inline(always)]
    fn board(&self) -> &Board {
        // Acquire pairs with the Release in `make_board`: the board's zeroes are seen before its address.
        // SAFETY: the static board, or one that lives as long as the heap, and so as these lists.
        unsafe { &*self.board.load(Ordering::Acquire) }
    }

    /// This thread's list of `class`, where lists go by claims. Out of line, with all that use it: the sections are the fast
    /// path, of which every caller has a copy.
    #[inline(always)]
    fn claimable(&self, class: SizeClass) -> Option<&Slot> {
        match mode() {
            Mode::Claims => Some(self.board().slab(thread_lists::slot_number())?.slot(class)),
            _ => None,
        }
    }

    #[inline(never)]
    fn pop_claimed(&self, class: SizeClass) -> Option<Block> {
        self.claimable(class)?.head.pop()
    }

    #[inline(never)]
    fn push_claimed(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        let Some(slot) = self.claimable(class) else { return Err(block) };
        // Relaxed: a limit is only a number.
        slot.head.push(slot.limit.load(Ordering::Relaxed), block)
    }

    #[inline(never)]
    fn take_all_claimed(&self, class: SizeClass) -> Chain {
        self.claimable(class).map_or(Chain::EMPTY, |slot| slot.head.take_all())
    }

    #[inline(never)]
    fn put_chain_claimed(&self, class: SizeClass, chain: Chain) -> Result<(), Chain> {
        let Some(slot) = self.claimable(class) else { return Err(chain) };
        slot.head.put_chain(chain)
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
        let Some(board) = self.make_board(tables) else { return false };
        let Some(slab) = tables.table(PAGE_SIZE) else { return false };
        board.publish(core, slab.cast());
        // Release pairs with the Acquire in `cores`.
        self.cores.fetch_max(core + 1, Ordering::Release);
        true
    }

    fn make_board(&self, tables: &dyn Tables) -> Option<&Board> {
        if core::ptr::eq(self.board(), &NO_SLABS) {
            let board = tables.table(size_of::<Board>())?;
            if matches!(mode(), Mode::Rseq(_)) {
                rseq::register_fence();
            }
            // Release pairs with the Acquire in `board`.
            self.board.store(board.cast().as_ptr(), Ordering::Release);
        }
        Some(self.board())
    }

    /// Takes all lists of `core` while its sections miss, and hands them out after they work again. The lock is held to the
    /// end, so that no fork comes upon chains that only this thread knows.
    fn steal_parked(&self, core: usize, slab: &Slab, sink: &mut dyn FnMut(SizeClass, Chain)) -> Result<(), Refused> {
        let board = self.board();
        board.park(core);
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
        board.unpark(core);
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
