//! Interrupts, as signals: whatever they come upon, they may allocate and free, and nothing is lost.

mod support;

use freestone_bare::{Heap, Lock, NoLock, OneThread, Spin, arena};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use support::{Filled, Thread};

/// A heap that a thread and its signal handler use.
trait Interrupted: 'static {
    type Lock: Lock + 'static;
    const SIGNAL: libc::c_int;
    fn heap() -> &'static Heap<Self::Lock>;
    fn blocks() -> &'static Blocks;
}

/// The handler's blocks.
struct Blocks(UnsafeCell<[Option<Filled>; 8]>);
// SAFETY: one thread's handler uses them, and the thread itself once no signal comes any more.
unsafe impl Sync for Blocks {}

impl Blocks {
    const NONE: Self = Self(UnsafeCell::new([const { None }; 8]));
}

extern "C" fn handler<I: Interrupted>(_: libc::c_int) {
    // SAFETY: no handler interrupts itself.
    let blocks = unsafe { &mut *I::blocks().0.get() };
    blocks.rotate_right(1);
    if let Some(block) = blocks[0].take() {
        support::free(I::heap(), block);
    }
    blocks[0] = support::allocate(I::heap(), 77);
}

/// Allocates and frees until signals have been refused memory and have left frees to this thread.
fn work<I: Interrupted>() {
    let (heap, start, mut step) = (I::heap(), Instant::now(), 0);
    let mut blocks = [const { None }; 16];
    loop {
        let block: &mut Option<Filled> = &mut blocks[step % 16];
        block.take().into_iter().for_each(|block| support::free(heap, block));
        *block = Some(support::allocate(heap, step).expect("a block"));
        step += 1;
        let stats = heap.stats();
        if stats.refused > 20 && stats.queued > 20 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no signal comes at the right moment: {stats}");
    }
    blocks.into_iter().flatten().for_each(|block| support::free(heap, block));
}

fn is_interrupted<I: Interrupted>() {
    let whole = I::heap().warm().unwrap();
    let done = AtomicBool::new(false);
    // SAFETY: the handler touches the heap and its own blocks only.
    unsafe { libc::signal(I::SIGNAL, handler::<I> as *const () as libc::sighandler_t) };
    // SAFETY: asks for the own id.
    let me = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(me, I::SIGNAL) };
                thread::sleep(Duration::from_micros(20));
            }
        });
        work::<I>();
        done.store(true, SeqCst);
    });
    // SAFETY: nobody sends the signal any more, and what was sent has come.
    let blocks = unsafe { &mut *I::blocks().0.get() };
    blocks.iter_mut().filter_map(Option::take).for_each(|block| support::free(I::heap(), block));
    support::all_is_free(I::heap(), whole);
}

#[test]
fn no_lock() {
    struct Program;
    // SAFETY: the test's thread and its handler.
    unsafe impl OneThread for Program {}
    impl Interrupted for Program {
        type Lock = NoLock<Program>;
        const SIGNAL: libc::c_int = libc::SIGUSR1;
        fn heap() -> &'static Heap<Self::Lock> {
            static HEAP: Heap<NoLock<Program>> = Heap::new(arena!(64 * 1024));
            &HEAP
        }
        fn blocks() -> &'static Blocks {
            static BLOCKS: Blocks = Blocks::NONE;
            &BLOCKS
        }
    }
    is_interrupted::<Program>();
}

#[test]
fn spin() {
    struct Program;
    impl Interrupted for Program {
        type Lock = Spin<Thread>;
        const SIGNAL: libc::c_int = libc::SIGUSR2;
        fn heap() -> &'static Heap<Self::Lock> {
            static HEAP: Heap<Spin<Thread>> = Heap::new(arena!(64 * 1024));
            &HEAP
        }
        fn blocks() -> &'static Blocks {
            static BLOCKS: Blocks = Blocks::NONE;
            &BLOCKS
        }
    }
    is_interrupted::<Program>();
}
