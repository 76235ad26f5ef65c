//! Every sequence of operations on tiny regions, against a model that knows which bytes are live and nothing else.
//!
//! The regions are so small that they are full after a few steps, and every block has both neighbours free now and then.
//! What the heap is after a step is a state: the bytes of its regions, and which blocks are live. Every operation is done
//! once in each state, however many sequences lead there. Each test goes on until no new state is left: then all sequences
//! of any length are covered.
//!
//! In a tiny region every bin is exact and few blocks are free, so the model knows each answer: which requests are served,
//! and where.

use core::alloc::Layout;
use core::cell::Cell;
use core::ops::Range;
use core::ptr::NonNull;
use freestone_core::{Compact, FaultKind, Fine, Grain, Region, Tiny, Wide};
use freestone_tests::regions::{Plain, Regional};
use freestone_tests::subject::{Audited, Fill, Path, Subject};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

const LEN: usize = 4096;
/// Where the first region begins: odd, and its first granule is aligned to a granule only.
const START: usize = 41;
const CANARY: u8 = 0xc3;
/// The contents of what the heap should not care for.
const DIRT: u8 = 0x5a;

#[repr(align(256))]
struct Memory([u8; LEN]);

/// A live block; places are bytes from the memory's start, lengths and alignments are in granules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Live {
    at: usize,
    granules: usize,
    align: usize,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Allocate(usize, usize),
    Free(Live),
    Resize(Live, usize),
    /// Of the last region, by a granule.
    Extend,
}

/// What a heap may be asked for, in granules.
struct Requests {
    /// Lengths and alignments.
    blocks: &'static [(usize, usize)],
    /// Lengths to resize to.
    sizes: &'static [usize],
}

#[derive(Clone)]
struct State {
    bytes: Box<[u8]>,
    /// In the order of their places.
    live: Vec<Live>,
    /// Bytes by which the last region was extended.
    grown: usize,
}

/// A heap over regions in memory that can be put back to any state.
struct World<G: Grain> {
    /// `LEN` bytes that live as long as the program.
    base: *mut u8,
    heap: Plain<G>,
    /// The regions as they were added, and their parts that are for blocks. Between two regions lies a control block.
    parts: Vec<Range<usize>>,
    wholes: Vec<Range<usize>>,
    /// Bytes by which the last region is extended, and may be.
    grown: Cell<usize>,
    growth: usize,
    /// The bytes that change with the most that was ever used, and say nothing else; with what they were at first.
    peaks: Vec<(usize, u8)>,
}

impl<G: Grain> World<G> {
    /// Regions of so many granules each; the last may be extended by `growth` granules.
    fn new(regions: &[usize], growth: usize) -> Self {
        let base = Box::leak(Box::new(Memory([CANARY; LEN]))).0.as_mut_ptr();
        let (heap, growth) = (Plain::new(), growth * G::GRANULE);
        let mut world =
            Self { base, heap, parts: Vec::new(), wholes: Vec::new(), grown: Cell::new(0), growth, peaks: Vec::new() };
        regions.iter().for_each(|granules| world.add(granules * G::GRANULE));
        world.find_peaks();
        world
    }

    /// Adds the shortest region that has `bytes` for blocks.
    fn add(&mut self, bytes: usize) {
        let at = self.parts.last().map_or(START, |part| part.end);
        let region = |len| Region::growable(self.base.wrapping_add(at), len, len + self.growth);
        // SAFETY: the memory is the heap's and not used by it yet; this one is only asked.
        let fits = |len: &usize| unsafe { Plain::<G>::new().add(region(*len)) }.is_ok_and(|found| found == bytes);
        let len = (1..2048).find(fits).expect("a length for a region");
        // What asked for the length has been further behind.
        self.write(at, &vec![CANARY; LEN - at]);
        // SAFETY: the memory is the heap's.
        assert_eq!(unsafe { self.heap.add(region(len)) }, Ok(bytes));
        let end = (self.base.addr() + at + len) / G::GRANULE * G::GRANULE - self.base.addr();
        self.wholes.push(end - bytes..end);
        self.parts.push(at..at + len);
    }

    /// A block of everything, taken and given back, changes nothing but the record of it.
    fn find_peaks(&mut self) {
        let before = self.state(Vec::new()).bytes;
        for whole in self.wholes.clone() {
            let layout = Layout::from_size_align(whole.len(), 1).unwrap();
            let ptr = self.heap.allocate(layout, Fill::Any).expect("the whole of a region");
            // SAFETY: allocated just now.
            unsafe { self.heap.free(ptr, layout, Path::Layout) };
        }
        let after = self.state(Vec::new()).bytes;
        self.peaks = (0..LEN).filter(|at| before[*at] != after[*at]).map(|at| (at, before[at])).collect();
        assert!(self.peaks.len() <= 4 * self.wholes.len(), "a number a region");
        assert!(self.peaks.iter().all(|(at, _)| !self.wholes.iter().any(|whole| whole.contains(at))));
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: all of the memory, which nobody writes during the borrow.
        unsafe { core::slice::from_raw_parts(self.base, LEN) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= LEN);
        // SAFETY: inside the memory, which only this thread uses.
        unsafe { self.base.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// What there is now; bytes that mean nothing are dirt.
    fn state(&self, mut live: Vec<Live>) -> State {
        live.sort_by_key(|block| block.at);
        let slot = size_of::<G::Index>();
        for run in self.free_runs(&live) {
            // A free block's contents, but its four words.
            let inside = (run.start + 3 * slot).min(run.end - slot)..run.end - slot;
            self.write(inside.start, &vec![DIRT; inside.len()]);
        }
        self.peaks.iter().for_each(|(at, byte)| self.write(*at, &[*byte]));
        State { bytes: self.bytes().into(), live, grown: self.grown.get() }
    }

    fn restore(&self, state: &State) {
        self.write(0, &state.bytes);
        self.grown.set(state.grown);
    }

    fn pointer(&self, at: usize) -> NonNull<u8> {
        NonNull::new(self.base.wrapping_add(at)).unwrap()
    }

    fn at(&self, ptr: NonNull<u8>) -> usize {
        ptr.addr().get() - self.base.addr()
    }
}

/// The model.
impl<G: Grain> World<G> {
    fn wholes(&self) -> Vec<Range<usize>> {
        let mut wholes = self.wholes.clone();
        wholes.last_mut().into_iter().for_each(|whole| whole.end += self.grown.get());
        wholes
    }

    /// The free runs, by a map of which bytes are live.
    fn free_runs(&self, live: &[Live]) -> Vec<Range<usize>> {
        let mut map = [false; LEN];
        live.iter().for_each(|block| map[block.at..block.at + block.granules * G::GRANULE].fill(true));
        let mut runs = Vec::new();
        for whole in self.wholes() {
            let mut free = whole.filter(|at| !map[*at]).peekable();
            while let Some(start) = free.next() {
                let mut end = start + 1;
                while free.next_if_eq(&end).is_some() {
                    end += 1;
                }
                runs.push(start..end);
            }
        }
        runs
    }

    /// Where in `run` a block goes.
    fn place(&self, run: &Range<usize>, granules: usize, align: usize) -> Option<usize> {
        let at = (self.base.addr() + run.start).next_multiple_of(align * G::GRANULE) - self.base.addr();
        (at + granules * G::GRANULE <= run.end).then_some(at)
    }

    /// Where in `run` a block goes that slides to become longer: no further than it must, and still over its old end.
    fn place_at_end(&self, run: &Range<usize>, block: Live, granules: usize) -> Option<usize> {
        let latest = run.end.checked_sub(granules * G::GRANULE)?;
        let at = latest.checked_sub((self.base.addr() + latest) % (block.align * G::GRANULE))?;
        (at >= run.start && at + granules * G::GRANULE >= block.at + block.granules * G::GRANULE).then_some(at)
    }

    /// Where a block may go: into one of the shortest runs of the first region that has one, as low as may be.
    fn places(&self, live: &[Live], granules: usize, align: usize) -> Vec<usize> {
        let runs = self.free_runs(live);
        let in_region = |whole: Range<usize>| {
            let inside = runs.iter().filter(|run| whole.contains(&run.start));
            let places: Vec<_> = inside.filter_map(|run| Some((run.len(), self.place(run, granules, align)?))).collect();
            let shortest = places.iter().map(|(len, _)| *len).min()?;
            Some(places.into_iter().filter(|(len, _)| *len == shortest).map(|(_, at)| at).collect())
        };
        self.wholes().into_iter().find_map(in_region).unwrap_or_default()
    }

    /// Where a block that becomes `granules` long may be then; nowhere, if it cannot.
    fn places_after(&self, live: &[Live], block: Live, granules: usize) -> Vec<usize> {
        let (end, runs) = (block.at + block.granules * G::GRANULE, self.free_runs(live));
        let from = runs.iter().find(|run| run.end == block.at).map_or(block.at, |run| run.start);
        let to = runs.iter().find(|run| run.start == end).map_or(end, |run| run.end);
        if block.at + granules * G::GRANULE <= to {
            return vec![block.at];
        }
        let elsewhere = self.places(live, granules, block.align);
        if elsewhere.is_empty() { self.place_at_end(&(from..to), block, granules).into_iter().collect() } else { elsewhere }
    }
}

/// The heap against the model.
impl<G: Grain> World<G> {
    fn layout(granules: usize, align: usize) -> Layout {
        Layout::from_size_align(granules * G::GRANULE, align * G::GRANULE).unwrap()
    }

    /// Does `operation` in `state`, and checks everything about what comes of it.
    fn step(&self, state: &State, operation: Operation) -> Result<State, String> {
        self.restore(state);
        let mut live = state.live.clone();
        match operation {
            Operation::Allocate(granules, align) => live.extend(self.allocate(&live, granules, align)?),
            Operation::Free(block) => {
                let layout = Self::layout(block.granules, block.align);
                // SAFETY: a live block, by its layout.
                unsafe { self.heap.free(self.pointer(block.at), layout, Path::Layout) };
                live.retain(|other| *other != block);
            }
            Operation::Resize(block, granules) => {
                let resized = self.resize(&live, block, granules)?;
                live.retain(|other| *other != block);
                live.push(resized);
            }
            Operation::Extend => {
                self.grown.set(state.grown + G::GRANULE);
                let part = self.parts.last().expect("a region");
                // SAFETY: the memory is the heap's.
                let brought = unsafe { self.heap.extend(self.base.wrapping_add(part.start), part.len() + self.grown.get()) };
                ensure(brought == Ok(G::GRANULE), "what an extension brings")?;
            }
        }
        self.audit(&live)?;
        Ok(self.state(live))
    }

    fn allocate(&self, live: &[Live], granules: usize, align: usize) -> Result<Option<Live>, String> {
        let places = self.places(live, granules, align);
        let ptr = self.heap.allocate(Self::layout(granules, align), Fill::Any);
        expect(ptr.map(|ptr| self.at(ptr)), &places)?;
        let block = ptr.map(|ptr| Live { at: self.at(ptr), granules, align });
        block.iter().for_each(|block| self.write(block.at, &contents(block.at, granules * G::GRANULE)));
        Ok(block)
    }

    /// The block as it is then: as it was, if that cannot be.
    fn resize(&self, live: &[Live], block: Live, granules: usize) -> Result<Live, String> {
        let (places, old) = (self.places_after(live, block, granules), Self::layout(block.granules, block.align));
        // SAFETY: a live block, by its layout.
        let ptr = unsafe { self.heap.reallocate(self.pointer(block.at), old, granules * G::GRANULE, Path::Layout) };
        expect(ptr.map(|ptr| self.at(ptr)), &places)?;
        let Some(ptr) = ptr else { return Ok(block) };
        let (at, kept) = (self.at(ptr), granules.min(block.granules) * G::GRANULE);
        ensure(self.bytes()[at..at + kept] == contents(block.at, kept), "contents that must be kept")?;
        self.write(at, &contents(at, granules * G::GRANULE));
        Ok(Live { at, granules, ..block })
    }

    /// The heap's own check, its figures, the contents of all blocks, and the bytes outside of the regions.
    fn audit(&self, live: &[Live]) -> Result<(), String> {
        self.heap.check().map_err(|broken| broken.to_string())?;
        let (runs, figures) = (self.free_runs(live), self.heap.figures());
        let longest = runs.iter().map(Range::len).filter(|len| *len >= G::SMALLEST).max().unwrap_or(0);
        ensure(figures.free_bytes == runs.iter().map(Range::len).sum(), "free bytes")?;
        ensure(figures.largest_free == longest, "the longest free block")?;
        for block in live {
            let bytes = block.granules * G::GRANULE;
            ensure(self.bytes()[block.at..block.at + bytes] == contents(block.at, bytes), "contents of a live block")?;
        }
        // The regions lie side by side.
        let end = self.parts.last().expect("a region").end + self.grown.get();
        let mut outside = self.bytes()[..START].iter().chain(&self.bytes()[end..]);
        ensure(outside.all(|byte| *byte == CANARY), "bytes outside of the regions")
    }

    /// What is seen to be no block is refused in every state, and changes nothing.
    fn misuse(&self, state: &State) -> Result<(), String> {
        self.restore(state);
        let wholes = self.wholes();
        let end_of = |at: usize| wholes.iter().find(|whole| whole.contains(&at)).map_or(at, |whole| whole.end);
        let free = |at: usize, granules: usize| {
            // SAFETY: none: a misuse that the heap must see before it touches anything.
            unsafe { self.heap.inner().deallocate(self.pointer(at), Self::layout(granules, 1)) }
        };
        for run in self.free_runs(&state.live) {
            let room = run.start + G::SMALLEST <= end_of(run.start);
            let kind = if room { FaultKind::DoubleFree } else { FaultKind::WrongSize };
            ensure(free(run.start, 1) == Err(kind), "a free of a free block is seen")?;
        }
        for block in &state.live {
            let too_many = (end_of(block.at) - block.at) / G::GRANULE + 1;
            ensure(free(block.at, too_many) == Err(FaultKind::WrongSize), "a wrong size is seen")?;
            ensure(free(block.at + 1, 1) == Err(FaultKind::Interior), "an odd pointer is seen")?;
        }
        for whole in &wholes {
            ensure(free(whole.end, 1) == Err(FaultKind::Foreign), "a pointer behind a region is seen")?;
            ensure(free(whole.start - G::GRANULE, 1) == Err(FaultKind::Foreign), "a pointer before the blocks is seen")?;
        }
        ensure(self.bytes() == &*state.bytes, "a misuse that is seen changes nothing")
    }

    fn operations(&self, state: &State, requests: &Requests) -> Vec<Operation> {
        let allocate = requests.blocks.iter().map(|(granules, align)| Operation::Allocate(*granules, *align));
        let free = state.live.iter().map(|block| Operation::Free(*block));
        let pairs = state.live.iter().flat_map(|block| requests.sizes.iter().map(move |to| (*block, *to)));
        let resize = pairs.filter(|(block, to)| block.granules != *to).map(|(block, to)| Operation::Resize(block, to));
        let extend = (state.grown < self.growth).then_some(Operation::Extend);
        allocate.chain(free).chain(resize).chain(extend).collect()
    }
}

/// What a block's owner writes into it.
fn contents(at: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (at * 37 + n * 11) as u8).collect()
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("wrong: {what}")) }
}

fn expect(found: Option<usize>, places: &[usize]) -> Result<(), String> {
    let right = found.map_or(places.is_empty(), |at| places.contains(&at));
    if right { Ok(()) } else { Err(format!("at {found:?}, the model says {places:?}")) }
}

/// Where each operation leads from each state. The first state is the empty heap.
struct Explored(Vec<Vec<usize>>);

impl Explored {
    /// Sequences of `length` operations.
    fn sequences(&self, length: usize) -> u128 {
        let mut ways = vec![0_u128; self.0.len()];
        ways[0] = 1;
        for _ in 0..length {
            let mut after = vec![0; ways.len()];
            for (state, next) in self.0.iter().enumerate() {
                next.iter().for_each(|to| after[*to] += ways[state]);
            }
            ways = after;
        }
        ways.iter().sum()
    }
}

fn key(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&state.bytes, &state.live).hash(&mut hasher);
    hasher.finish()
}

/// Every operation in every state that operations lead to.
fn explore<G: Grain>(regions: &[usize], growth: usize, requests: &Requests) -> Explored {
    let world = World::<G>::new(regions, growth);
    let first = world.state(Vec::new());
    let mut known = HashMap::from([(key(&first), 0)]);
    let mut next = Vec::new();
    // By depth; each state with the operations that led to it.
    let mut frontier = vec![(first, Vec::new())];
    while !frontier.is_empty() {
        let mut beyond = Vec::new();
        for (state, way) in frontier {
            world.misuse(&state).unwrap_or_else(|why| panic!("{why}\nafter {way:?}"));
            let leads = world.operations(&state, requests).into_iter().map(|operation| {
                let way = || way.iter().copied().chain([operation]).collect::<Vec<_>>();
                let after = world.step(&state, operation).unwrap_or_else(|why| panic!("{why}\nafter {:?}", way()));
                let fresh = known.len();
                *known.entry(key(&after)).or_insert_with(|| {
                    beyond.push((after, way()));
                    fresh
                })
            });
            next.push(leads.collect());
        }
        frontier = beyond;
    }
    Explored(next)
}

/// Explores, says how much there was, and sees that it was not little.
fn exhaust<G: Grain>(regions: &[usize], growth: usize, requests: &Requests) {
    let explored = explore::<G>(regions, growth, requests);
    let (states, steps, ten) = (explored.0.len(), explored.0.iter().map(Vec::len).sum::<usize>(), explored.sequences(10));
    eprintln!("{regions:?} and {growth} granules: {states} states, {steps} steps, {ten} sequences of ten operations");
    assert!(states > 1000 && ten > 1_000_000_000);
}

const FROM_ONE: Requests = Requests { blocks: &[(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 4)], sizes: &[1, 2, 3, 4, 6] };
const FROM_TWO: Requests = Requests { blocks: &[(2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (3, 4)], sizes: &[2, 3, 4, 5, 8] };

#[test]
fn tiny() {
    exhaust::<Tiny>(&[7], 0, &FROM_ONE);
}

#[test]
fn compact() {
    exhaust::<Compact>(&[7], 0, &FROM_ONE);
}

#[test]
fn compact_in_two_regions() {
    exhaust::<Compact>(&[3, 4], 0, &FROM_ONE);
}

#[test]
fn compact_that_grows() {
    exhaust::<Compact>(&[3], 3, &FROM_ONE);
}

/// A remainder of one granule is in no bin, and must be found again by its neighbours.
#[test]
fn fine() {
    exhaust::<Fine>(&[12], 0, &FROM_TWO);
}

#[test]
fn fine_that_grows() {
    exhaust::<Fine>(&[6], 5, &FROM_TWO);
}

#[test]
fn fine_in_two_regions() {
    exhaust::<Fine>(&[6, 7], 0, &FROM_TWO);
}

#[test]
fn wide() {
    exhaust::<Wide>(&[7], 0, &FROM_ONE);
}
