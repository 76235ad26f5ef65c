//! Random actions up to the first request that is refused: how much of an arena can be live.
//!
//! Called by the host program; calls [`crate::heap`].
#![forbid(unsafe_code)]

use crate::heap::Heap;
use crate::peer::Peer;
use crate::sizes::{Sizes, natural};
use fastrand::Rng;

/// Which actions. All of them allocate more often than they free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Allocates (4 of 8), reallocates to a new size (2 of 8), frees (2 of 8); skewed sizes to 1/16 of the arena.
    Realloc,
    /// Allocates (5 of 8), frees (3 of 8); skewed sizes to 1/16 of the arena.
    NoRealloc,
    /// Allocates (5 of 8), frees (3 of 8); 4..128 B.
    Small,
}

impl Mix {
    /// The sizes, in an arena of `len` bytes.
    fn sizes(self, len: usize) -> Sizes {
        match self {
            Self::Realloc | Self::NoRealloc => Sizes::Skewed(len / 16),
            Self::Small => Sizes::Even(4, 128),
        }
    }

    fn act<P: Peer>(self, dice: u32, filling: &mut Filling<P>) -> bool {
        match (self, dice) {
            (_, 0..4) | (Self::NoRealloc | Self::Small, 4) => filling.allocate(),
            (Self::Realloc, 4..6) => filling.resize(),
            _ => filling.free(),
        }
    }
}

/// Acts at random until a request is refused; the bytes that are live then, as they were asked for. The heap is empty.
///
/// Takes as many slots as there are live blocks at most: one for every 16 bytes suffices for each [`Mix`].
pub fn live_at_failure<P: Peer>(heap: &mut Heap<P>, len: usize, mix: Mix, seed: u64) -> usize {
    let mut filling = Filling { heap, sizes: mix.sizes(len), count: 0, random: Rng::with_seed(seed) };
    loop {
        let dice = filling.random.u32(..8);
        if !mix.act(dice, &mut filling) {
            return filling.heap.live_bytes();
        }
    }
}

/// The live blocks are in the first `count` slots.
struct Filling<'f, 'a, P> {
    heap: &'f mut Heap<'a, P>,
    sizes: Sizes,
    count: usize,
    random: Rng,
}

impl<P: Peer> Filling<'_, '_, P> {
    fn allocate(&mut self) -> bool {
        let layout = natural(self.sizes.draw(&mut self.random));
        self.count += 1;
        self.heap.allocate(self.count - 1, layout)
    }

    fn resize(&mut self) -> bool {
        let size = self.sizes.draw(&mut self.random);
        self.count == 0 || self.heap.resize(self.random.usize(..self.count), size)
    }

    fn free(&mut self) -> bool {
        if self.count > 0 {
            let slot = self.random.usize(..self.count);
            self.count -= 1;
            self.heap.swap(slot, self.count);
            self.heap.free(self.count);
        }
        true
    }
}
