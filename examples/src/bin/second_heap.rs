//! A heap of one's own beside the program's allocator: filled, looked at, and dropped at once with everything in it.
//!
//! This suits work with a clear end (a request, a frame, a document): nothing is freed piece by piece, and the memory goes
//! back to the system with the heap. The collections are `allocator-api2`'s, which take an allocator; `&heap` is one.

use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use freestone_linux::{LinuxHeap, MmapPages};
use std::fs;
use std::mem;

/// A node of a tree whose memory is in `heap`.
struct Node<'heap> {
    text: Vec<u8, &'heap LinuxHeap>,
    children: Vec<Box<Node<'heap>, &'heap LinuxHeap>, &'heap LinuxHeap>,
}

fn main() {
    let heap = std::boxed::Box::new(LinuxHeap::new(MmapPages));
    let tree = grow(&heap, 7);
    println!("a tree of {} nodes, {} bytes of text", tree.nodes(), tree.letters());
    let stats = heap.stats();
    println!("its heap: {} KiB live, {} KiB held", stats.live_bytes >> 10, stats.held_bytes >> 10);
    println!("resident: {} KiB", resident_kib());

    // Nobody walks the tree to free it. The borrow checker sees to it that no node outlives the heap.
    mem::forget(tree);
    drop(heap);
    println!("resident after the heap was dropped: {} KiB", resident_kib());
}

fn grow(heap: &LinuxHeap, depth: usize) -> Box<Node<'_>, &LinuxHeap> {
    let mut node = Node { text: Vec::new_in(heap), children: Vec::new_in(heap) };
    node.text.resize(depth * 100, b'x');
    if depth > 0 {
        (0..depth + 1).for_each(|_| node.children.push(grow(heap, depth - 1)));
    }
    Box::new_in(node, heap)
}

impl Node<'_> {
    fn nodes(&self) -> usize {
        1 + self.children.iter().map(|child| child.nodes()).sum::<usize>()
    }

    fn letters(&self) -> usize {
        self.text.len() + self.children.iter().map(|child| child.letters()).sum::<usize>()
    }
}

/// The resident size of this process, as the kernel counts it.
fn resident_kib() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or("unknown".into(), |rest| rest.trim().trim_end_matches(" kB").into())
}
