//! What to do at step n: a pure function of the seed and n, so that any step can be named and a run replayed exactly.
//!
//! `replay` calls it. A step names a slot and both what to do if the slot is empty and what to do if it holds a block; so the
//! script knows nothing of the heap, and two heaps that serve every request see the same operations.
#![forbid(unsafe_code)]

use crate::subject::{Fill, Path};
use core::alloc::Layout;
use core::fmt;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A sequence of steps.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Where it starts from; the same seed gives the same steps.
    pub seed: u64,
    /// Which sizes it asks for.
    pub sizes: Sizes,
}

/// The sizes that a script asks for, each spread evenly over the powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// 0 to 2 KiB.
    Small,
    /// 0 to 4 MiB, three of four below 4 KiB; alignments to 4 MiB.
    All,
    /// 64 KiB to 8 MiB.
    Large,
    /// 0 to two to this power, and alignments below that: for small regions.
    Below(u32),
}

/// One step, read from the script.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The slot, to be taken modulo the number of slots.
    pub slot: usize,
    /// What to do there.
    pub action: Action,
    /// What to put there, should it be empty.
    pub request: Request,
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Fills an empty slot, frees a full one.
    Toggle(Path),
    /// Fills an empty slot, changes the size of a full one.
    Change(Path),
    /// Frees a full slot, and leaves an empty one.
    Clear(Path),
    /// Verifies every live block.
    Verify,
    /// Asks the heap to give back what it does not need.
    Trim,
}

/// An allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Size and alignment.
    pub layout: Layout,
    /// Contents.
    pub fill: Fill,
}

/// An operation: what a step came to, given what its slot held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Into an empty slot.
    Allocate(Request),
    /// Of the slot's block.
    Free(Layout, Path),
    /// From a layout to a size.
    Reallocate(Layout, usize, Path),
    /// The slot was empty and stays so.
    Nothing,
    /// Of all blocks.
    Verify,
    /// Of the heap.
    Trim,
    /// Everything that is live is freed, in the order of the slots.
    FreeAll,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate(r) => write!(f, "allocate({}, {}) {:?}", r.layout.size(), r.layout.align(), r.fill),
            Self::Free(l, path) => write!(f, "free({}, {}) by {path:?}", l.size(), l.align()),
            Self::Reallocate(l, to, path) => write!(f, "reallocate({}, {}) to {to} by {path:?}", l.size(), l.align()),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Steps in a phase of growth or of shrinking.
const PHASE: u64 = 512;

impl Script {
    /// The step with the number `n`.
    pub fn step(&self, n: u64) -> Step {
        let mut dice = SplitMix64::seed_from_u64(self.seed.wrapping_add(n.wrapping_mul(0xd134_2543_de82_ef95)));
        let slot = dice.next_u64() as usize;
        Step { slot, action: action(&mut dice, n), request: self.request(&mut dice) }
    }

    fn request(&self, dice: &mut SplitMix64) -> Request {
        let size = self.size(dice);
        let align = match (dice.next_u64() % 8, self.sizes) {
            (0, Sizes::All) => 1 << (dice.next_u64() % 23),
            (1, Sizes::Below(power)) => 1 << (dice.next_u64() % u64::from(power)),
            (1, _) => 1 << (dice.next_u64() % 13),
            _ => 1 << (dice.next_u64() % 5),
        };
        let fill = if dice.next_u64().is_multiple_of(3) { Fill::Zeroed } else { Fill::Any };
        // Sizes and alignments are far from the end of the address space, so the layout is valid.
        Request { layout: Layout::from_size_align(size, align).unwrap_or(Layout::new::<u8>()), fill }
    }

    fn size(&self, dice: &mut SplitMix64) -> usize {
        match self.sizes {
            Sizes::Small => spread(dice, 0, 11),
            Sizes::All if !dice.next_u64().is_multiple_of(4) => spread(dice, 0, 12),
            Sizes::All => spread(dice, 12, 22),
            Sizes::Large => spread(dice, 16, 23),
            Sizes::Below(power) => spread(dice, 0, power),
        }
    }
}

fn action(dice: &mut SplitMix64, n: u64) -> Action {
    let path = [Path::Layout, Path::Layout, Path::Address, Path::Checked][(dice.next_u64() % 4) as usize];
    let shrinking = (n / PHASE) % 3 == 2;
    match dice.next_u64() % 256 {
        0 => Action::Trim,
        1..=4 => Action::Verify,
        _ if shrinking => Action::Clear(path),
        n if n % 3 == 0 => Action::Change(path),
        _ => Action::Toggle(path),
    }
}

/// A size from 2^from to 2^to, even over the powers of two; often at a power or next to it, where mistakes live; rarely 0.
fn spread(dice: &mut SplitMix64, from: u32, to: u32) -> usize {
    let power = 1_u64 << (u64::from(from) + dice.next_u64() % u64::from(to - from));
    let size = match dice.next_u64() % 16 {
        0 => power,
        1 => power + 1,
        2 => 2 * power - 1,
        3 if from == 0 => 0,
        _ => power + dice.next_u64() % power,
    };
    size as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_depends_on_seed_and_number_only() {
        let script = Script { seed: 7, sizes: Sizes::All };
        let [a, b] = [script.step(1000), script.step(1000)];
        assert_eq!((a.slot, a.action, a.request), (b.slot, b.action, b.request));
        assert_ne!(a.slot, Script { seed: 8, sizes: Sizes::All }.step(1000).slot);
        assert_ne!(a.slot, script.step(1001).slot);
    }

    #[test]
    fn scripts_reach_every_kind_of_step() {
        let ranges = [(Sizes::Small, 0, 1 << 11), (Sizes::All, 0, 1 << 22), (Sizes::Large, 1 << 16, 1 << 23)];
        for (sizes, least, most) in ranges.into_iter().chain([(Sizes::Below(9), 0, 1 << 9)]) {
            let steps = || (0..20_000).map(|n| Script { seed: 1, sizes }.step(n));
            assert!(steps().all(|s| (least..=most).contains(&s.request.layout.size())));
            for action in [Action::Trim, Action::Verify, Action::Clear(Path::Address), Action::Change(Path::Checked)] {
                assert!(steps().any(|s| s.action == action), "{action:?}");
            }
            assert!(steps().any(|s| s.request.layout.size() <= least + 1));
            assert!(steps().any(|s| s.request.layout.size() >= most - 1));
        }
    }
}
