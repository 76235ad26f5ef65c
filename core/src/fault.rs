//! Faults: what the heap saw that must not be. A home's [`Platform::stop`](crate::Platform::stop) prints one and ends the
//! program.
#![forbid(unsafe_code)]

use core::fmt;

/// A detected misuse or corruption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address that was handed in.
    pub pointer: usize,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// The kinds of fault, each with the invariant that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The pointer does not belong to this heap, or its large block was freed already.
    Foreign,
    /// The pointer points into a block, not at its start.
    Interior,
    /// The block is free already.
    DoubleFree,
    /// The size or alignment given to a sized free is not that of the block.
    WrongSize,
}

impl FaultKind {
    /// The invariant's number and what it says.
    pub const fn invariant(self) -> &'static str {
        match self {
            Self::Foreign => "M1: a live block lies where the heap has memory, and the page map names its first page",
            Self::Interior => "S1: a block starts at a multiple of its granule, or of its class's size in its span",
            Self::DoubleFree => "S2: a block is freed once",
            Self::WrongSize => "M2: a block is freed with the layout it was allocated with",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Foreign => "free of a pointer that is no live block of this heap",
            Self::Interior => "free of a pointer into the middle of a block",
            Self::DoubleFree => "double free",
            Self::WrongSize => "free with a wrong size or alignment",
        }
    }
}

/// `double free at 0x7f…: S2: a block is freed once`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x} ({})", self.kind.name(), self.pointer, self.kind.invariant())
    }
}
