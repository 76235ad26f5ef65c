//! The per-core lists under all that may come between two instructions: other threads of the core, migrations, signal handlers
//! that use the same lists, thieves, forks, dying threads. Every object has an owner word; whoever takes an object out of a
//! list has to find it ownerless, and at the end each is found once.
//!
//! Each mode runs in a process of its own, since it is decided once. The negative control does the same with lists that are
//! not restartable, and has to break: otherwise the test would prove nothing.

mod support;

use freestone_core::chain::{word_block, word_count, word_of};
use freestone_core::{Block, Chain, CoreLists, Side, SizeClass, Slab, Tables};
use freestone_linux::{LinuxLists, mode};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use support::{Random, Way, corrupt, going_on};

const OBJECTS: usize = 3000;
const OBJECT: usize = 64;
const WORKERS: usize = 6;
const CLASSES: usize = 3;
const LIMIT: u16 = 120;
const TIME: Duration = Duration::from_millis(2500);

#[test]
fn lists_on_the_area_of_libc() {
    match support::role() {
        None => support::run_well("lists_on_the_area_of_libc", "lists", Way::Libc),
        Some(_) => play_linux_lists(),
    }
}

#[test]
fn lists_on_an_own_area() {
    match support::role() {
        None => support::run_well("lists_on_an_own_area", "lists", Way::Own),
        Some(_) => play_linux_lists(),
    }
}

#[test]
fn lists_by_claims() {
    match support::role() {
        None => support::run_well("lists_by_claims", "lists", Way::Claims),
        Some(_) => play_linux_lists(),
    }
}

#[test]
fn lists_that_do_not_restart_break() {
    if support::role().is_some() {
        return play(PlainLists::new());
    }
    let broke = (0..6).any(|_| {
        let (status, text) = support::run("lists_that_do_not_restart_break", "plain", Way::Libc);
        // Ended by the test's own check, or killed: a broken link was followed.
        let broken = status.code().is_none() || status.code() == Some(support::CORRUPT);
        assert!(broken || status.success(), "neither broken nor well: {status}\n{text}");
        broken
    });
    assert!(broke, "plain loads and stores passed the test six times: it proves nothing");
}

/// Plays in the mode that the environment brings about, after a check that it did.
fn play_linux_lists() {
    static LISTS: LinuxLists = LinuxLists::NEW;
    LISTS.prepare(&Leaked);
    support::insist_on_mode();
    play(&LISTS);
}

/// The lists as the test uses them.
trait Lists: Sync + 'static {
    fn pop(&self, class: SizeClass) -> Option<Block>;
    fn push(&self, class: SizeClass, block: Block) -> Result<(), Block>;
    fn take_all(&self, class: SizeClass) -> Chain;
    fn put_chain(&self, class: SizeClass, chain: Chain) -> Result<(), Chain>;
    fn steal(&self, core: usize, sink: &mut dyn FnMut(Chain));
    fn prepare(&self);
    fn slabs(&self) -> Vec<&Slab>;
    fn freeze(&self);
    fn thaw(&self, side: Side);
}

impl Lists for &'static LinuxLists {
    fn pop(&self, class: SizeClass) -> Option<Block> {
        CoreLists::pop(*self, class).or_else(|| self.pop_again(class))
    }
    fn push(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        CoreLists::push(*self, class, block).or_else(|block| self.push_again(class, block))
    }
    fn take_all(&self, class: SizeClass) -> Chain {
        CoreLists::take_all(*self, class)
    }
    fn put_chain(&self, class: SizeClass, chain: Chain) -> Result<(), Chain> {
        CoreLists::put_chain(*self, class, chain)
    }
    fn steal(&self, core: usize, sink: &mut dyn FnMut(Chain)) {
        let _ = CoreLists::steal(*self, core, &mut |_, chain| sink(chain));
    }
    fn prepare(&self) {
        CoreLists::prepare(*self, &Leaked);
    }
    fn slabs(&self) -> Vec<&Slab> {
        (0..self.cores()).filter_map(|core| self.slab(core)).collect()
    }
    fn freeze(&self) {
        CoreLists::freeze(*self);
    }
    fn thaw(&self, side: Side) {
        CoreLists::thaw(*self, side);
    }
}

/// The negative control: the same lists, picked by the same core number, but by plain loads and stores.
struct PlainLists(Vec<Slab>);

impl PlainLists {
    fn new() -> Self {
        Self((0..64).map(|_| Slab::EMPTY).collect())
    }
    fn head(&self, class: SizeClass) -> &AtomicUsize {
        // SAFETY: a plain call.
        let core = unsafe { libc::sched_getcpu() } as usize % self.0.len();
        // SAFETY: none: that these lists give blocks out twice is what the control is for.
        unsafe { self.0[core].slot(class).head.word() }
    }
}

impl Lists for PlainLists {
    fn pop(&self, class: SizeClass) -> Option<Block> {
        let head = self.head(class);
        let block = word_block(head.load(Ordering::Relaxed))?;
        // SAFETY: not at all, which is what this control shows: the block may be somebody else's by now.
        unsafe {
            head.store(block.cast::<usize>().read_volatile(), Ordering::Relaxed);
            Some(Block::from_ptr(block))
        }
    }
    fn push(&self, class: SizeClass, block: Block) -> Result<(), Block> {
        let head = self.head(class);
        let word = head.load(Ordering::Relaxed);
        if word_count(word) >= LIMIT.into() {
            return Err(block);
        }
        let block = block.into_ptr();
        // SAFETY: the block is the caller's.
        unsafe { block.cast::<usize>().write_volatile(word) }
        head.store(word_of(block, word_count(word) + 1), Ordering::Relaxed);
        Ok(())
    }
    fn take_all(&self, class: SizeClass) -> Chain {
        let head = self.head(class);
        let word = head.load(Ordering::Relaxed);
        head.store(0, Ordering::Relaxed);
        // SAFETY: not at all, as above.
        unsafe { Chain::from_word(word) }
    }
    fn put_chain(&self, _: SizeClass, chain: Chain) -> Result<(), Chain> {
        Err(chain)
    }
    fn steal(&self, _: usize, _: &mut dyn FnMut(Chain)) {}
    fn prepare(&self) {}
    fn slabs(&self) -> Vec<&Slab> {
        self.0.iter().collect()
    }
    fn freeze(&self) {}
    fn thaw(&self, _: Side) {}
}

/// Tables that are never given back.
struct Leaked;

impl Tables for Leaked {
    fn table(&self, bytes: usize) -> Option<NonNull<u8>> {
        use freestone_core::{PAGE_SIZE, PageSource, Pages};
        Some(freestone_linux::MmapPages.map(Pages::holding(bytes)?, PAGE_SIZE)?.start)
    }
}

/// Nobody; the object is in a list.
const FREE: u32 = 0;
const HANDLER: u32 = 1000;
const THIEF: u32 = 1001;
const CHILD: u32 = 1002;
const COUNTED: u32 = 1003;
const POOL: u32 = 1004;
/// Those above are threads that come and go.
const LAST: u32 = POOL;

/// The owner word of an object, behind the two words that belong to the heap while it is free.
fn owner(block: &Block) -> &AtomicU32 {
    // SAFETY: an object of the test is 64 bytes long and never goes away.
    unsafe { block.as_ptr().byte_add(16).cast().as_ref() }
}

fn change_owner(block: &Block, from: u32, to: u32) {
    let found = owner(block).swap(to, Ordering::Relaxed);
    if found != from {
        corrupt(&format!("{:#x}: {to} took it from {found}, not from {from}", block.addr()));
    }
}

struct Stress<L> {
    lists: L,
    classes: [SizeClass; CLASSES],
    /// Objects that nobody has a place for at the moment.
    pool: Mutex<Vec<Block>>,
    /// The same for signal handlers, which cannot take a lock; an address each.
    stash: [AtomicUsize; 256],
    handled: AtomicU64,
    hits: AtomicU64,
}

fn play<L: Lists>(lists: L) {
    let classes = [1, 17, SizeClass::COUNT].map(|index| SizeClass::from_index(index).unwrap());
    let stress: &'static Stress<L> = Box::leak(Box::new(Stress {
        lists,
        classes,
        pool: Mutex::new(objects()),
        stash: [const { AtomicUsize::new(0) }; 256],
        handled: AtomicU64::new(0),
        hits: AtomicU64::new(0),
    }));
    INTERRUPTED.store((&raw const *stress).cast_mut().cast(), Ordering::Release);
    support::handle(interrupt::<L>);
    stress.run();
    let found = stress.count();
    let (hits, handled) = (stress.hits.load(Ordering::Relaxed), stress.handled.load(Ordering::Relaxed));
    println!("{:?}: {hits} hits, {handled} in handlers, {found} objects found", mode());
    if found != OBJECTS {
        corrupt(&format!("{found} of {OBJECTS} objects at the end"));
    }
    assert!(hits > 100_000 && handled > 100, "too few operations to tell anything: {hits} hits, {handled} in handlers");
}

fn objects() -> Vec<Block> {
    let memory = Leaked.table(OBJECTS * OBJECT).unwrap();
    // SAFETY: each object is its own 64 bytes of fresh memory.
    let object = |n: usize| unsafe { Block::from_ptr(memory.byte_add(n * OBJECT)) };
    let objects: Vec<_> = (0..OBJECTS).map(object).collect();
    objects.iter().for_each(|block| change_owner(block, FREE, POOL));
    objects
}

impl<L: Lists> Stress<L> {
    fn run(&'static self) {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=WORKERS as u32).map(|me| scope.spawn(move || self.work(me))).collect();
            let pest = scope.spawn(support::pester);
            let thief = scope.spawn(|| self.rob());
            let mut passing = LAST;
            support::for_a_while(TIME, || {
                self.fork();
                passing += 1;
                std::thread::spawn(move || self.some_operations(&mut Random(passing.into()), 50, passing));
                std::thread::sleep(Duration::from_millis(5));
            });
            pest.join().unwrap();
            thief.join().unwrap();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        std::thread::sleep(Duration::from_millis(100));
    }

    fn work(&self, me: u32) {
        support::enlist();
        let mut random = Random(0x9e37 + u64::from(me) * 0x1234_5677);
        let mut turn = me as usize;
        while going_on() {
            turn += 1;
            support::hop(turn);
            self.some_operations(&mut random, 3000, me);
        }
    }

    /// Does `count` operations as `me`, who holds some objects meanwhile and none after.
    fn some_operations(&self, random: &mut Random, count: usize, me: u32) {
        let mut held: Vec<Block> = Vec::with_capacity(128);
        let mut hits = 0;
        for _ in 0..count {
            let class = self.classes[random.below(CLASSES)];
            match random.below(64) {
                0 => self.take_and_put(class, me, &mut held),
                1 => self.refill(me, &mut held),
                n if n % 2 == 0 => hits += self.pop(class, me, &mut held),
                _ => hits += self.push(class, me, &mut held),
            }
        }
        self.hits.fetch_add(hits, Ordering::Relaxed);
        held.iter().for_each(|block| change_owner(block, me, POOL));
        self.pool.lock().unwrap().append(&mut held);
    }

    fn pop(&self, class: SizeClass, me: u32, held: &mut Vec<Block>) -> u64 {
        if held.len() > 64 {
            return 0;
        }
        let Some(block) = self.lists.pop(class) else { return 0 };
        change_owner(&block, FREE, me);
        held.push(block);
        1
    }

    fn push(&self, class: SizeClass, me: u32, held: &mut Vec<Block>) -> u64 {
        let Some(block) = held.pop() else { return 0 };
        change_owner(&block, me, FREE);
        let Err(block) = self.lists.push(class, block) else { return 1 };
        change_owner(&block, FREE, me);
        held.push(block);
        self.prepare();
        0
    }

    fn take_and_put(&self, class: SizeClass, me: u32, held: &mut Vec<Block>) {
        let mut chain = self.lists.take_all(class);
        let mut again = Chain::EMPTY;
        while let Some(block) = chain.pop() {
            change_owner(&block, FREE, me);
            if again.len() < 8 {
                change_owner(&block, me, FREE);
                again.push(block);
            } else {
                held.push(block);
            }
        }
        if let Err(mut chain) = self.lists.put_chain(class, again) {
            while let Some(block) = chain.pop() {
                change_owner(&block, FREE, me);
                held.push(block);
            }
        }
    }

    fn refill(&self, me: u32, held: &mut Vec<Block>) {
        let mut pool = self.pool.lock().unwrap();
        let from = pool.len().saturating_sub(32);
        for block in pool.drain(from..) {
            change_owner(&block, POOL, me);
            held.push(block);
        }
    }

    /// Makes lists where there are none yet.
    fn prepare(&self) {
        self.lists.prepare();
        for slab in self.lists.slabs() {
            self.classes.iter().for_each(|class| slab.slot(*class).limit.store(LIMIT, Ordering::Relaxed));
        }
    }

    fn rob(&self) {
        let mut core = 0;
        while going_on() {
            core = (core + 1) % (self.lists.slabs().len() + 1);
            let mut loot = self.steal(core);
            self.pool.lock().unwrap().append(&mut loot);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// What the lists of `core` held; belongs to the pool.
    fn steal(&self, core: usize) -> Vec<Block> {
        let mut loot = Vec::new();
        self.lists.steal(core, &mut |mut chain| {
            while let Some(block) = chain.pop() {
                change_owner(&block, FREE, THIEF);
                change_owner(&block, THIEF, POOL);
                loot.push(block);
            }
        });
        loot
    }

    /// Forks; the child empties what it finds on its core and puts it back, undisturbed.
    fn fork(&self) {
        self.lists.freeze();
        support::fork_and(|| {
            self.lists.thaw(Side::Child);
            for class in self.classes {
                let mut chain = Chain::EMPTY;
                while let Some(block) = self.lists.pop(class) {
                    change_owner(&block, FREE, CHILD);
                    chain.push(block);
                }
                let _ = self.lists.put_chain(class, chain);
            }
            self.prepare();
        });
        self.lists.thaw(Side::Parent);
    }

    fn handle(&self) {
        for class in self.classes {
            let Some(block) = self.lists.pop(class) else { continue };
            change_owner(&block, FREE, HANDLER);
            self.handled.fetch_add(1, Ordering::Relaxed);
            change_owner(&block, HANDLER, FREE);
            let Err(block) = self.lists.push(class, block) else { continue };
            self.put_by(block);
        }
    }

    /// Keeps an object for which a handler found no list.
    fn put_by(&self, block: Block) {
        change_owner(&block, FREE, HANDLER);
        let address = block.into_ptr().as_ptr().expose_provenance();
        let is_put = |place: &AtomicUsize| place.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !self.stash.iter().any(is_put) {
            corrupt("no room in the handlers' stash");
        }
    }

    /// The objects that are found, each once, when nobody works any more.
    fn count(&self) -> usize {
        let mut all = std::mem::take(&mut *self.pool.lock().unwrap());
        all.iter().for_each(|block| change_owner(block, POOL, COUNTED));
        for place in &self.stash {
            if let Some(block) = NonNull::new(std::ptr::with_exposed_provenance_mut(place.load(Ordering::Relaxed))) {
                // SAFETY: put by from a token, and taken out once.
                all.push(unsafe { Block::from_ptr(block) });
                change_owner(&all[all.len() - 1], HANDLER, COUNTED);
            }
        }
        let heads = self.lists.slabs().into_iter().flat_map(|slab| self.classes.map(|class| &slab.slot(class).head));
        for head in heads {
            // SAFETY: nobody else is left; the list is taken over as it is.
            let mut chain = unsafe { Chain::from_word(head.word().swap(0, Ordering::Relaxed)) };
            while let Some(block) = chain.pop() {
                change_owner(&block, FREE, COUNTED);
                all.push(block);
            }
        }
        all.len()
    }
}

static INTERRUPTED: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn interrupt<L: Lists>(_: i32) {
    // SAFETY: set to a leaked value of this type before the handler was installed.
    let stress = unsafe { &*INTERRUPTED.load(Ordering::Acquire).cast::<Stress<L>>() };
    stress.handle();
}
