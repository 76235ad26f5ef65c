//! Planted failures: each must make the run fail, or nobody could believe a run that passes. `tests/kernel.rs` plants every
//! one.

use core::hint::{black_box, spin_loop};
use core::ptr::{NonNull, with_exposed_provenance_mut};
use freestone_machine::println;
use freestone_tests::replay::{Replay, Supply};
use freestone_tests::script::{Script, Sizes};
use freestone_tests::subject::Audited;

/// Fails in the way that `name` says. `corrupt` breaks an invariant of the heap that its check executes.
pub fn plant<S: Audited>(name: &str, heap: &S, corrupt: fn(&S)) {
    println!("planting {name}");
    match name {
        "panic" => panic!("planted"),
        "fault" => wild_write(),
        "overflow" => assert!(deeper(1) > 0),
        "hang" => loop {
            spin_loop();
        },
        "oracle" => flip_a_byte(heap),
        "check" => {
            corrupt(heap);
            heap.check().unwrap_or_else(|broken| panic!("the heap's check: {broken}"));
        }
        stranger => panic!("nobody knows how to plant `{stranger}`"),
    }
}

/// Writes where no memory is.
fn wild_write() {
    let nowhere = with_exposed_provenance_mut::<u8>(black_box(0x5_0000_0000));
    // SAFETY: not sound, which is the point: it lies above what is mapped, and the processor stops the write.
    unsafe { nowhere.write_volatile(1) }
}

/// Calls itself until the stack is used up.
fn deeper(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    if frame[0] == 0 { 0 } else { deeper(depth + 1) + frame[63] }
}

/// Changes a byte of a live block behind its owner's back; the replay that owns it finds out.
fn flip_a_byte<S: Audited>(heap: &S) {
    let mut replay = Replay::<_, 16>::new(heap, Script { seed: 1, sizes: Sizes::Small }, Supply::Failing);
    replay.run(100).unwrap_or_else(|failure| panic!("{failure}"));
    let shadow = replay.shadow();
    let victim = (0..16).find_map(|slot| shadow.get(slot).filter(|piece| piece.layout().size() > 8));
    let byte = victim.expect("a live block after 100 steps").as_ptr();
    flip(byte);
    replay.run(1000).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Changes one bit of a byte.
pub fn flip(byte: NonNull<u8>) {
    // SAFETY: not sound where somebody owns the byte, which is the point; it can be read and written, as all memory of heaps
    // here.
    unsafe { byte.write(byte.read() ^ 1) }
}
