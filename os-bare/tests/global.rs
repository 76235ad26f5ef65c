//! A program whose global allocator is declared in one line; this test runner is that program.
#![forbid(unsafe_code)]

use freestone_bare::{Heap, arena};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

#[global_allocator]
static HEAP: Heap = Heap::new(arena!(500 * 1024));

fn is_ours<T: ?Sized>(value: &T) -> bool {
    HEAP.owns(std::ptr::NonNull::from(value).cast()) == Some(true)
}

#[test]
fn collections_live_in_the_arena() {
    let mut map: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for n in 0..2000 {
        map.entry(n % 100).or_default().push(format!("value {n}"));
    }
    map.retain(|key, _| key % 3 != 0);
    assert!(map.iter().all(|(key, values)| values[7] == format!("value {}", 700 + key)));
    assert!(map.values().all(|values| is_ours(&values[..]) && is_ours(values[19].as_bytes())));
    let (boxed, shared) = (vec![0_u64; 1000].into_boxed_slice(), Arc::<str>::from("text"));
    assert!(is_ours(&*boxed) && is_ours(shared.as_bytes()) && boxed.iter().all(|word| *word == 0));
}

#[test]
fn threads_share_it() {
    let threads = [(); 4].map(|()| {
        thread::spawn(|| {
            (0..5000).map(|n| vec![n as u8; n % 500]).filter(|bytes| bytes.iter().all(|byte| *byte == bytes[0])).count()
        })
    });
    threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 5000));
}

#[test]
fn too_much_is_an_error_that_can_be_handled() {
    let mut bytes = Vec::<u8>::new();
    assert!(bytes.try_reserve(500 * 1024).is_err());
    assert!(bytes.try_reserve(100 * 1024).is_ok());
}
