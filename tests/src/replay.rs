//! Drives a heap by a script, one step at a time, and audits the heap after each.
//!
//! Tests (and a kernel's self-test) call it; it calls `script`, `shadow` and the heap's own checker. Steps have numbers, so a
//! failure names one and a replay of the same script up to it sees the same operations.
#![forbid(unsafe_code)]

use crate::piece::{Served, Wrong};
use crate::script::{Action, Operation, Script, Step};
use crate::shadow::Shadow;
use crate::subject::{Audited, Path, Subject};
use core::fmt;

/// Whether null is a right answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supply {
    /// No: the source has memory for all of the script.
    Ample,
    /// Yes: the source runs out or fails.
    Failing,
}

/// A run of a script on a heap.
#[derive(Debug)]
pub struct Replay<'h, S: Subject, const SLOTS: usize> {
    subject: &'h S,
    script: Script,
    supply: Supply,
    shadow: Shadow<'h, S, SLOTS>,
    next: u64,
    refusals: usize,
}

/// Which step went wrong, and how.
pub struct Failure<W> {
    /// The script.
    pub script: Script,
    /// The step's number.
    pub step: u64,
    /// What it did.
    pub operation: Operation,
    /// What is wrong after it.
    pub why: W,
}

/// Who found it.
pub enum Why<B> {
    /// The oracle.
    Oracle(Wrong),
    /// The heap's own check.
    Checker(B),
}

/// What a thread that shares the heap can do.
impl<'h, S: Subject, const SLOTS: usize> Replay<'h, S, SLOTS> {
    /// Nothing done yet.
    pub fn new(subject: &'h S, script: Script, supply: Supply) -> Self {
        Self { subject, script, supply, shadow: Shadow::new(), next: 0, refusals: 0 }
    }

    /// Requests that the heap answered with null.
    pub fn refusals(&self) -> usize {
        self.refusals
    }

    /// The live blocks.
    pub fn shadow(&mut self) -> &mut Shadow<'h, S, SLOTS> {
        &mut self.shadow
    }

    /// Does the next step.
    pub fn step(&mut self) -> Result<Operation, Failure<Wrong>> {
        let number = self.next;
        self.next += 1;
        let step = self.script.step(number);
        let (slot, operation) = self.operation(step);
        self.perform(slot, operation, number).map(|()| operation).map_err(|wrong| self.failure(operation, wrong))
    }

    /// Frees everything.
    pub fn free_all(&mut self) -> Result<(), Failure<Wrong>> {
        let mut slots = 0..SLOTS;
        slots
            .try_for_each(|slot| self.shadow.free(slot, Path::Layout))
            .map_err(|wrong| self.failure(Operation::FreeAll, wrong))
    }

    /// What `step` comes to, given what its slot holds.
    fn operation(&self, step: Step) -> (usize, Operation) {
        let slot = step.slot % SLOTS;
        let held = self.shadow.get(slot).map(|piece| piece.layout());
        let operation = match (step.action, held) {
            (Action::Verify, _) => Operation::Verify,
            (Action::Trim, _) => Operation::Trim,
            (Action::Toggle(_) | Action::Change(_), None) => Operation::Allocate(step.request),
            (Action::Clear(_), None) => Operation::Nothing,
            (Action::Toggle(path) | Action::Clear(path), Some(held)) => Operation::Free(held, path),
            (Action::Change(path), Some(held)) => Operation::Reallocate(held, step.request.layout.size(), path),
        };
        (slot, operation)
    }

    fn perform(&mut self, slot: usize, operation: Operation, stamp: u64) -> Result<(), Wrong> {
        let served = match operation {
            Operation::Allocate(request) => self.shadow.allocate(slot, self.subject, request, stamp)?,
            Operation::Reallocate(_, size, path) => self.shadow.reallocate(slot, size, path, stamp)?,
            Operation::Free(_, path) => self.shadow.free(slot, path).map(|()| Served::Yes)?,
            Operation::Verify => self.shadow.verify().map(|()| Served::Yes)?,
            Operation::Trim => {
                self.subject.trim();
                Served::Yes
            }
            Operation::Nothing | Operation::FreeAll => Served::Yes,
        };
        self.note(served)
    }

    fn note(&mut self, served: Served) -> Result<(), Wrong> {
        match (served, self.supply) {
            (Served::Yes, _) => Ok(()),
            (Served::No, Supply::Ample) => Err(Wrong::NoMemory),
            (Served::No, Supply::Failing) => {
                self.refusals += 1;
                Ok(())
            }
        }
    }

    fn failure<W>(&self, operation: Operation, why: W) -> Failure<W> {
        Failure { script: self.script, step: self.next.saturating_sub(1), operation, why }
    }
}

/// What needs the heap for itself.
impl<S: Audited, const SLOTS: usize> Replay<'_, S, SLOTS> {
    /// Does `steps` steps and audits after each.
    pub fn run(&mut self, steps: u64) -> Result<(), Failure<Why<S::Broken>>> {
        for _ in 0..steps {
            let operation = self.step()?;
            self.audit(operation)?;
        }
        Ok(())
    }

    /// Frees everything, and audits.
    pub fn finish(mut self) -> Result<(), Failure<Why<S::Broken>>> {
        self.free_all()?;
        self.audit(Operation::FreeAll)
    }

    /// The heap's own check, and its live bytes against the oracle's.
    pub fn audit(&self, after: Operation) -> Result<(), Failure<Why<S::Broken>>> {
        self.subject.check().map_err(|broken| self.failure(after, Why::Checker(broken)))?;
        let (oracle, heap) = (self.shadow.live_bytes(), self.subject.live_bytes());
        if oracle == heap { Ok(()) } else { Err(self.failure(after, Why::Oracle(Wrong::LiveBytes { oracle, heap }))) }
    }
}

impl<B> From<Failure<Wrong>> for Failure<Why<B>> {
    fn from(failure: Failure<Wrong>) -> Self {
        let Failure { script, step, operation, why } = failure;
        Self { script, step, operation, why: Why::Oracle(why) }
    }
}

impl<B: fmt::Display> fmt::Display for Why<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oracle(wrong) => write!(f, "{wrong}"),
            Self::Checker(broken) => write!(f, "the heap's check: {broken}"),
        }
    }
}

/// `seed 0x7, step 31, allocate(64, 8) Any: block at … overlaps …`.
impl<W: fmt::Display> fmt::Display for Failure<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {:#x}, step {}, {}: {}", self.script.seed, self.step, self.operation, self.why)
    }
}

impl<W: fmt::Display> fmt::Debug for Failure<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
