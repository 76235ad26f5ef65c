//! Test tools for Freestone's heaps: they decide by an oracle of their own, never by what the heap says of itself.
//!
//! ```text
//!   script.rs    what to do at step n, a pure function of (seed, n)
//!      │
//!   replay.rs    does it to a heap, one step at a time, and audits the heap after each
//!      │
//!   shadow.rs    which blocks are live and where; piece.rs: one block, its contents, and every way to free it
//!      │
//!   subject.rs   what a heap must offer to be driven; regions.rs: how a heap over regions offers it
//!      ┊
//!   digest.rs    what a heap did with a script, as one number
//!   source.rs    the page source under it: counts, checks, poisons, fails on command
//!   home.rs      a home for tests (std): cores set by the test, simulated interrupts (interrupt.rs), guarded pages
//! (reserve.rs)
//!   arena.rs     memory with canaries for heaps over regions, and their homes (std)
//!   gaps.rs      what must be free between live blocks, so what such a heap may refuse (std)
//!   run.rs       seeds from the environment, and the command that replays a failure (std)
//! ```
//!
//! All but the files marked std are `no_std` and allocate nothing, so that a kernel can run the same scripts.
#![no_std]

#[cfg(feature = "std")]
extern crate std;

pub mod digest;
pub mod piece;
pub mod regions;
pub mod replay;
pub mod script;
pub mod shadow;
pub mod source;
pub mod subject;

#[cfg(feature = "std")]
pub mod arena;
#[cfg(feature = "std")]
pub mod gaps;
#[cfg(feature = "std")]
pub mod home;
#[cfg(feature = "std")]
pub mod interrupt;
#[cfg(feature = "std")]
pub mod reserve;
#[cfg(feature = "std")]
pub mod run;
