//! Page frames: the physical memory that nobody uses, as one bit a frame.
//!
//! `source` takes frames for a heap and gives them back; the start calls `init`. Runs are found first fit, from the lowest
//! address, in a time bounded by the number of frames, 64 of them a step. Nothing is written into a free frame.
//!
//! Invariants: `F1` a frame's bit is set exactly while nobody has it; `F2` `LEFT` is the number of bits that are set. Both
//! hold outside the lock; a breach is a panic.

use crate::cpu::Cpu;
use crate::lock::Inside;
use crate::memory;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use freestone_core::{Lock, PAGE_SIZE, SpinLock};

const FRAMES: usize = memory::END / PAGE_SIZE;
const WORD: usize = u64::BITS as usize;

/// Everything here is relaxed: it is written inside the lock only.
static FREE: [AtomicU64; FRAMES / WORD] = [const { AtomicU64::new(0) }; FRAMES / WORD];
static LEFT: AtomicUsize = AtomicUsize::new(0);
static LOCK: SpinLock<Cpu> = SpinLock::NEW;

/// Why frames were not taken or given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declined {
    /// There are not so many, or not together.
    Scarce,
    /// The caller is an interrupt that came upon its own processor in the middle of another call.
    Reentered,
}

/// Takes `count` frames in a row that begin at a multiple of `align` bytes, a power of two; the physical address of the
/// first.
pub fn take(count: usize, align: usize) -> Result<usize, Declined> {
    let _inside = Inside::enter(&LOCK).ok_or(Declined::Reentered)?;
    let frames = find(count, align.div_ceil(PAGE_SIZE).max(1)).ok_or(Declined::Scarce)?;
    mark(frames.clone(), State::Taken);
    Ok(frames.start * PAGE_SIZE)
}

/// Takes the `count` frames that begin at `start`, if they are all free.
pub fn take_at(start: usize, count: usize) -> Result<(), Declined> {
    let _inside = Inside::enter(&LOCK).ok_or(Declined::Reentered)?;
    let frames = range(start, count);
    if frames.end > FRAMES || first(frames.clone(), State::Taken).is_some() {
        return Err(Declined::Scarce);
    }
    mark(frames, State::Taken);
    Ok(())
}

/// Gives `count` frames from `start` on back: all that were taken at a time, or some of them.
pub fn give(start: usize, count: usize) -> Result<(), Declined> {
    let _inside = Inside::enter(&LOCK).ok_or(Declined::Reentered)?;
    mark(range(start, count), State::Free);
    Ok(())
}

/// How many frames are free.
pub fn left() -> usize {
    LEFT.load(Relaxed)
}

/// Frees all memory that neither the loader nor the kernel has.
pub(crate) fn init() {
    for free in memory::free() {
        let (start, end) = (free.start.next_multiple_of(PAGE_SIZE), free.end / PAGE_SIZE * PAGE_SIZE);
        mark(range(start, end.saturating_sub(start) / PAGE_SIZE), State::Free);
    }
}

/// What a bit says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Taken,
}

fn range(start: usize, count: usize) -> Range<usize> {
    let first = start / PAGE_SIZE;
    first..first + count
}

fn find(count: usize, align: usize) -> Option<Range<usize>> {
    let mut from = 0;
    loop {
        let start = first(from..FRAMES, State::Free)?.next_multiple_of(align);
        let frames = start..start.checked_add(count).filter(|end| *end <= FRAMES)?;
        match first(frames.clone(), State::Taken) {
            None => return Some(frames),
            Some(taken) => from = taken,
        }
    }
}

/// The first frame of the range that is in this state.
fn first(frames: Range<usize>, state: State) -> Option<usize> {
    let mut frame = frames.start;
    while frame < frames.end {
        let word = FREE[frame / WORD].load(Relaxed);
        let wanted = if state == State::Free { word } else { !word };
        let rest = wanted >> (frame % WORD);
        if rest != 0 {
            return Some(frame + rest.trailing_zeros() as usize).filter(|frame| *frame < frames.end);
        }
        frame = (frame / WORD + 1) * WORD;
    }
    None
}

/// Changes every frame of the range to this state, in which none of them is.
fn mark(frames: Range<usize>, state: State) {
    let count = frames.len();
    for frame in frames {
        let bit = 1 << (frame % WORD);
        let before = FREE[frame / WORD].fetch_xor(bit, Relaxed);
        assert!((before & bit == 0) == (state == State::Free), "F1: frame {frame:#x} is {state:?} already");
    }
    match state {
        State::Free => LEFT.fetch_add(count, Relaxed),
        State::Taken => LEFT.fetch_sub(count, Relaxed),
    };
}
