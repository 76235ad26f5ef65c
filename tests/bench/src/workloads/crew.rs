//! Threads that live through all laps: [`crew`] does the same on each, [`relay`] has one allocate and another free.
//!
//! Called by [`super::articles`] and [`super::shared`]. They meet at barriers and channels, which sleep rather than spin,
//! because CPU time is what is compared; the channels are of fixed size and allocate nothing while they are used.
#![forbid(unsafe_code)]

use super::kit::{Slots, add, empty, sum};
use crate::watch::{Length, Sample, Watch};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Does `lap` with each of the states on a thread of its own, the measuring thread being the first; a lap of all together is
/// `operations`. The states belong to the harness, and are dropped unseen.
pub fn crew<S: Send>(states: Vec<S>, operations: u64, length: Length, lap: impl Fn(&mut S) -> u64 + Sync) -> Sample {
    let meeting = Meeting { barrier: Barrier::new(states.len()), over: AtomicBool::new(false) };
    let mut states = states.into_iter();
    let mut own = states.next().expect("a crew has a first thread");
    let sums: Vec<_> = states.as_slice().iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for (state, sum) in states.zip(&sums) {
            let (meeting, lap) = (&meeting, &lap);
            scope.spawn(move || meeting.work(state, sum, lap));
        }
        meeting.barrier.wait();
        let sample = Watch::new(length).laps(operations, || meeting.lap(&mut own, &sums, &lap));
        meeting.end();
        sample
    })
}

struct Meeting {
    barrier: Barrier,
    over: AtomicBool,
}

// Relaxed everywhere: the barrier orders what is before it on one thread and behind it on another.
impl Meeting {
    /// A thread of the crew: once it is there, laps until it is over.
    fn work<S>(&self, mut state: S, sum: &AtomicU64, lap: &impl Fn(&mut S) -> u64) {
        self.barrier.wait();
        loop {
            self.barrier.wait();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            sum.store(lap(&mut state), Ordering::Relaxed);
            self.barrier.wait();
        }
    }

    /// A lap of the measuring thread, and the sum of all.
    fn lap<S>(&self, own: &mut S, others: &[AtomicU64], lap: &impl Fn(&mut S) -> u64) -> u64 {
        self.barrier.wait();
        let own = lap(own);
        self.barrier.wait();
        add(sum(others, |sum| sum.load(Ordering::Relaxed)), own)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.barrier.wait();
    }
}

/// How the lists of a [`relay`] go around.
pub struct Relay {
    /// The lists under way at once.
    pub lists: usize,
    /// Blocks in a list.
    pub blocks: usize,
    /// Lists in a lap.
    pub lap: usize,
}

impl Relay {
    /// The measuring thread calls `fill` with an empty list, another one `drain` with the full one.
    /// A lap is over when its last list has come back.
    pub fn run(&self, length: Length, mut fill: impl FnMut(&mut Slots), drain: impl Fn(&mut Slots) -> u64 + Sync) -> Sample {
        let (full, arriving) = sync_channel::<Slots>(self.lists);
        let (back, returned) = sync_channel::<Slots>(self.lists);
        let (report, reports) = sync_channel::<u64>(1);
        (0..self.lists).for_each(|_| back.send(empty(self.blocks)).expect("the receiver is here"));
        thread::scope(|scope| {
            scope.spawn(|| self.consume(arriving, back, report, &drain));
            let sample = Watch::new(length).laps((self.lap * self.blocks) as u64, || {
                for mut list in returned.iter().take(self.lap) {
                    fill(&mut list);
                    full.send(list).expect("the consumer lives until this end is dropped");
                }
                reports.recv().expect("the consumer reports each lap")
            });
            drop(full);
            sample
        })
    }

    /// Drains each list that arrives and sends it back, and reports the sum of each lap, until there are no more.
    fn consume(
        &self,
        arriving: Receiver<Slots>,
        back: SyncSender<Slots>,
        report: SyncSender<u64>,
        drain: &impl Fn(&mut Slots) -> u64,
    ) {
        loop {
            let mut lists = 0;
            let total = sum(arriving.iter().take(self.lap), |mut list| {
                lists += 1;
                let sum = drain(&mut list);
                back.send(list).expect("the measuring thread waits for it");
                sum
            });
            if lists < self.lap {
                return;
            }
            report.send(total).expect("the measuring thread waits for it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_LAP: Length = Length::Laps(1);

    #[test]
    fn each_of_a_crew_does_each_lap() {
        let done = AtomicU64::new(0);
        let sample = crew(vec![1, 2, 3], 7, ONE_LAP, |state| {
            done.fetch_add(*state, Ordering::Relaxed);
            *state
        });
        assert_eq!((sample.operations, done.into_inner()), (7, 2 * 6));
        assert_eq!(sample.checksum, (2 * 5 + 3) * 5 + 1);
    }

    #[test]
    fn each_list_of_a_relay_is_filled_and_drained() {
        let (mut filled, drained) = (0, AtomicU64::new(0));
        let relay = Relay { lists: 2, blocks: 10, lap: 5 };
        let sample = relay.run(
            ONE_LAP,
            |list| filled += list.len(),
            |list| {
                drained.fetch_add(list.len() as u64, Ordering::Relaxed);
                1
            },
        );
        assert_eq!((sample.operations, filled, drained.into_inner()), (50, 100, 100));
        assert_eq!(sample.checksum, sum(0..5, |_| 1));
    }
}
