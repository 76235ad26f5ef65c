//! Corruption that the heap sees ends the program, by a panic of one line that does not unwind.

use freestone_bare::{Heap, arena};
use std::alloc::Layout;
use std::process::Command;

/// Runs this test again in a process of its own, where `body` is to end it. What it printed on standard error.
fn stopped(test: &str, body: fn()) -> String {
    if std::env::var_os("FREESTONE_STOP").is_some() {
        body();
        unreachable!("nothing was seen");
    }
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program).args([test, "--exact", "--nocapture"]).env("FREESTONE_STOP", "").output().unwrap();
    assert!(!child.status.success());
    String::from_utf8_lossy(&child.stderr).into_owned()
}

#[test]
fn a_double_free_is_a_panic_with_one_line() {
    let printed = stopped("a_double_free_is_a_panic_with_one_line", || {
        static HEAP: Heap = Heap::new(arena!(4096));
        let layout = Layout::new::<[u8; 64]>();
        let block = HEAP.allocate(layout).unwrap();
        // SAFETY: none: the second free is the fault that is to be seen.
        unsafe {
            HEAP.deallocate(block, layout);
            HEAP.deallocate(block, layout);
        }
    });
    assert!(printed.contains("freestone: double free at 0x"), "{printed}");
    assert!(printed.contains("a block is freed once"), "{printed}");
}
