//! Being inside a lock of this machine: [`Inside`] leaves it when dropped. `serial` and `frames` call it.

use crate::cpu::Cpu;
use freestone_core::{Entry, Lock, SpinLock};

/// The right to be inside.
pub(crate) struct Inside<'a>(&'a SpinLock<Cpu>);

impl<'a> Inside<'a> {
    /// Enters, waiting for other processors. `None`: this one is inside already, and an interrupt has come upon it.
    pub(crate) fn enter(lock: &'a SpinLock<Cpu>) -> Option<Self> {
        loop {
            match lock.try_enter() {
                Entry::Got => return Some(Self(lock)),
                Entry::Mine => return None,
                Entry::Busy => lock.wait(),
            }
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SAFETY: `enter` entered it, and this is dropped once.
        unsafe { self.0.leave() }
    }
}
