//! The workloads: what is done with an allocator while [`crate::watch`] looks on.
//!
//! Called by [`crate::peers`], once compiled for each allocator. Names, sizes, seeds and the order of operations are fixed:
//! figures of different days are of the same work. [`basic`] has the pairs and windows that are held against the floor,
//! [`articles`] what the articles that started this project measured, the others our own versions of well-known shapes:
//! [`shapes`] on one thread, [`shared`] on several, [`structures`] with collections in place of bare blocks.
//!
//! Rules for all of them: each is deterministic by its seed, and its checksum does not depend on the allocator; a lap does
//! the same number of operations as every other lap; within a lap the harness allocates nothing for itself, save for the
//! threads that [`shared`] starts there. An operation is one block allocated and freed, where the line in the table says
//! nothing else.

mod articles;
mod basic;
mod crew;
mod kit;
mod latency;
mod shapes;
mod shared;
mod structures;

use crate::heap::Tested;
use crate::watch::{Length, Sample};
use articles::Article;
use basic::Basic;
use shapes::Shape;
use shared::Shared;
use std::alloc::GlobalAlloc;
use structures::Structure;

/// One workload, by its name.
pub struct Workload {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// What an operation is.
    pub what: &'static str,
    /// The bars it counts for.
    pub group: Group,
    /// The threads that work at once.
    pub threads: usize,
    /// Whether its memory is drawn over time.
    pub timeline: Timeline,
    task: Task,
}

/// The bars a workload counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Pairs and windows: held against the floor, a plain static free list.
    Basic,
    /// Of the articles: in the geometric mean.
    Article,
    /// Our own versions of well-known shapes: in the geometric mean.
    Shape,
    /// Made to watch memory, and asleep for most of its time: in no mean of times.
    Memory,
}

/// Whether a workload's resident size is drawn over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeline {
    /// It is sampled while the workload runs.
    Sampled,
    /// Only its peak is reported.
    Not,
}

enum Task {
    Basic(Basic),
    Article(Article),
    Shape(Shape),
    Shared(Shared),
    Structure(Structure),
}

/// All of them, in the order of the tables.
pub const WORKLOADS: [Workload; 37] = [
    basic("pair-16", "allocate 16 B, free it", Basic::Pair(16)),
    basic("pair-64", "allocate 64 B, free it", Basic::Pair(64)),
    basic("pair-64-inlined", "the same as a build with fat LTO has it", Basic::InlinedPair64),
    basic("window-64", "replace a random one of 64 blocks, 16 sizes", Basic::Window(64)),
    basic("window-64-inlined", "the same as a build with fat LTO has it", Basic::InlinedWindow(64)),
    basic("window-100k", "replace a random one of 100,000 blocks, 16 sizes (43 MiB live)", Basic::Window(100_000)),
    basic("batch", "allocate 10,000 of 64 B, then free them, oldest first", Basic::Batch(10_000)),
    basic("handoff", "one thread allocates 128 B, another frees it (ring of 1,024)", Basic::Handoff(1024)).on(2),
    article("single-1000k", "1,000,000 times: allocate 64 B, free it", Article::Pairs { threads: 1, pairs: 1_000_000 }),
    article("batch-alloc-10k", "allocate one of 10,000 of 64 B (freeing them is not timed)", Article::BatchAlloc),
    article("batch-free-10k", "free one of 10,000 of 64 B, oldest first (allocating them is not timed)", Article::BatchFree),
    article("mixed-100k", "100,000 blocks, 16 sizes of 16 B to 2 KiB in turn, then free them, oldest first", Article::Mixed),
    article("realloc-chain-100k", "realloc one of 16 blocks, by half from 16 B to 4.5 KiB and back", Article::ReallocChain),
    article("threads-8x5k", "8 threads, each 20 times: allocate 5,000 of 64 B, then free them", Article::Threads).on(8),
    article("bulk-small-200k", "allocate 200,000 of 64 B, then free them, oldest first", Article::Bulk),
    article("mixed-random-100k", "allocate 8 B to 2 KiB at random, free the oldest of 1,000", Article::MixedRandom),
    article("producer-consumer-50k", "one thread allocates 128 B, another frees it (lists of 100)", Article::Producer).on(2),
    article("pairs-1t", "2,000,000 times: allocate 64 B, free it", Article::Pairs { threads: 1, pairs: 2_000_000 }),
    article("pairs-2t", "the same on 2 threads", Article::Pairs { threads: 2, pairs: 2_000_000 }).on(2),
    article("pairs-3t", "the same on 3 threads", Article::Pairs { threads: 3, pairs: 2_000_000 }).on(3),
    article("pairs-4t", "the same on 4 threads", Article::Pairs { threads: 4, pairs: 2_000_000 }).on(4),
    article("interleaved-100", "one of 100 allocations and frees in random order, timed one by one", Article::Interleaved),
    shared("server", "replace a random one of 5,000 blocks; 4 tables go around 4 threads", Shared::Server).on(4).sampled(),
    shape("arrays", "replace one of 50,000 arrays, heavy-tailed sizes, most of them long-lived", Shape::Arrays),
    shared("bursts", "one thread allocates 20,000 blocks, another frees them, newest first", Shared::Bursts).on(2),
    shared("churn", "threads of 1,000 blocks: free half and what the last thread left, leave half", Shared::Churn).on(2),
    shape("vectors-doubled", "realloc one of 1,000 growing vectors to twice its size", Shape::VectorsDoubled),
    shape("vectors-pushed", "realloc one of 64 growing vectors to 16 B more", Shape::VectorsPushed),
    shape("calloc", "replace one of 4 zeroed tables, 64 KiB to 8 MiB, use 16 words", Shape::Calloc),
    shape(
        "large-sparse",
        "replace one of 16 blocks, 50 KB to 5 MB, use a word in 64 KiB",
        Shape::Large { step: 64 << 10, lap: 512 },
    ),
    shape(
        "large-full",
        "replace one of 16 blocks, 50 KB to 5 MB, use a word in each page",
        Shape::Large { step: 4 << 10, lap: 64 },
    ),
    shape("fragmentation", "100,000 of 16 sizes, free a random 90 %, allocate 10,000 of 3,000 B", Shape::Fragmentation)
        .sampled(),
    shared("sharing-active", "4 threads: allocate 8 B, add to it 100 times, free it", Shared::SharingActive).on(4),
    shared("sharing-passive", "4 threads: the same, beginning with blocks that one of them made", Shared::SharingPassive)
        .on(4),
    structure("tree", "a node: replace the oldest of 8 binary trees of 4,095 nodes, walk it", Structure::Tree),
    structure("parse", "a record of JSON into lists, maps and strings, walk it, drop it", Structure::Parse),
    shape("idle", "100,000 of 16 sizes, free all but 100, sleep 0.2 s", Shape::Idle).of(Group::Memory).sampled(),
];

const fn basic(name: &'static str, what: &'static str, task: Basic) -> Workload {
    Workload::new(name, what, Group::Basic, Task::Basic(task))
}

const fn article(name: &'static str, what: &'static str, task: Article) -> Workload {
    Workload::new(name, what, Group::Article, Task::Article(task))
}

const fn shape(name: &'static str, what: &'static str, task: Shape) -> Workload {
    Workload::new(name, what, Group::Shape, Task::Shape(task))
}

const fn shared(name: &'static str, what: &'static str, task: Shared) -> Workload {
    Workload::new(name, what, Group::Shape, Task::Shared(task))
}

const fn structure(name: &'static str, what: &'static str, task: Structure) -> Workload {
    Workload::new(name, what, Group::Shape, Task::Structure(task))
}

impl Workload {
    const fn new(name: &'static str, what: &'static str, group: Group, task: Task) -> Self {
        Self { name, what, group, threads: 1, timeline: Timeline::Not, task }
    }

    const fn on(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    const fn of(self, group: Group) -> Self {
        Self { group, ..self }
    }

    const fn sampled(self) -> Self {
        Self { timeline: Timeline::Sampled, ..self }
    }

    /// The workload of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        WORKLOADS.iter().find(|it| it.name == name).ok_or_else(|| format!("no workload is named {name:?}"))
    }

    /// Whether it counts in the geometric mean of the micro workloads.
    pub fn micro(&self) -> bool {
        matches!(self.group, Group::Article | Group::Shape)
    }

    /// Runs it with `allocator` for that length.
    pub fn run<A: GlobalAlloc + Sync>(&self, allocator: &A, length: Length) -> Sample {
        let heap = Tested(allocator);
        match &self.task {
            Task::Basic(task) => task.run(heap, length),
            Task::Article(task) => task.run(heap, length),
            Task::Shape(task) => task.run(heap, length),
            Task::Shared(task) => task.run(heap, length),
            Task::Structure(task) => task.run(heap, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;
    use std::collections::HashSet;

    #[test]
    fn a_workload_repeats_its_checksum() {
        for workload in &WORKLOADS {
            let [once, again] = [(); 2].map(|()| workload.run(&System, Length::Laps(1)));
            assert_eq!(once.checksum, again.checksum, "{}", workload.name);
            assert!(once.operations > 0 && once.nanoseconds > 0 && once.checksum != 0, "{}", workload.name);
        }
    }

    #[test]
    fn names_differ() {
        assert_eq!(WORKLOADS.iter().map(|it| it.name).collect::<HashSet<_>>().len(), WORKLOADS.len());
    }

    #[test]
    fn three_are_drawn_over_time() {
        let sampled = WORKLOADS.iter().filter(|it| it.timeline == Timeline::Sampled).map(|it| it.name);
        assert_eq!(sampled.collect::<Vec<_>>(), ["server", "fragmentation", "idle"]);
    }
}
