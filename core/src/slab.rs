//! The memory of one core's lists: a slot a class and a gauge, in a layout that assembly may rely on.
//!
//! All-zero memory is a valid slab: every list reads "empty and full", so that it misses both ways. The core cache steers the
//! limits from its slow paths; the backends read them in `push`.

use crate::chain::word_count;
use crate::claim::{CLAIMED, Head};
use crate::platform::Class;
use crate::size_class::SizeClass;
use crate::sync::HitCounter;
use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering::Relaxed};

/// One class's list on one core.
///
/// 16 bytes: the head word at offset 0, the limit at offset 8.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Slot {
    /// The list's word, see [`chain`](crate::chain).
    pub head: Head,
    /// The longest that `push` may make the list; 0 in a slab that was never used.
    pub limit: AtomicU16,
    /// The direction of the last miss, 0 before the first: the core cache grows lists whose misses alternate.
    pub last_miss: AtomicU8,
    /// Set by a miss, cleared by the clock hand: what the hand finds cleared has been idle for a round.
    pub recent: AtomicU8,
}

/// The lists of one core.
#[repr(C, align(64))]
pub struct Slab<K: Class = SizeClass> {
    /// A slot a class, by [`Class::index`].
    pub slots: K::Table<Slot>,
    /// What the limits of all slots allow together, by [`Class::cost`].
    pub allotted: AtomicUsize,
    /// The clock hand: the index of the slot that is asked next to give up room.
    pub hand: AtomicUsize,
    /// Misses so far, wrapping, but for those that raced: a core whose number has stood still is idle.
    pub misses: AtomicUsize,
    /// `misses` when another core last looked.
    pub seen: AtomicUsize,
}

impl Slot {
    /// A slot that was never used.
    pub const EMPTY: Self =
        Self { head: Head::EMPTY, limit: AtomicU16::new(0), last_miss: AtomicU8::new(0), recent: AtomicU8::new(0) };
}

impl<K: Class> Slab<K> {
    /// A slab that was never used.
    pub const EMPTY: Self = Self {
        slots: K::SLOTS,
        allotted: AtomicUsize::new(0),
        hand: AtomicUsize::new(0),
        misses: AtomicUsize::new(0),
        seen: AtomicUsize::new(0),
    };

    /// In the child of a fork: frees the slots that vanished threads had claimed. Their chains are lost to the child.
    pub fn drop_claims(&self) {
        self.slots.as_ref().iter().for_each(|slot| slot.head.drop_claim());
    }

    /// Blocks in the list of `class`, at some moment.
    pub fn blocks(&self, class: K) -> usize {
        match self.slot(class).head.load(Relaxed) {
            CLAIMED => 0,
            word => word_count(word),
        }
    }

    /// The slot of `class`.
    #[inline(always)]
    pub fn slot(&self, class: K) -> &Slot {
        &self.slots.as_ref()[class.index()]
    }
}

impl<K: Class> core::fmt::Debug for Slab<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let blocks: usize = K::all().map(|class| self.blocks(class)).sum();
        write!(f, "Slab({blocks} blocks)")
    }
}

const _: () = {
    assert!(size_of::<Slot>() == 16 && core::mem::offset_of!(Slot, limit) == 8);
    assert!(core::mem::offset_of!(Slab<SizeClass>, slots) == 0 && size_of::<Slab<SizeClass>>() <= crate::units::PAGE_SIZE);
};

/// What the lists of one class have done on all cores (Relaxed: nothing hangs on it).
#[derive(Debug)]
pub struct ListCounts {
    pub(crate) pops: HitCounter,
    pub(crate) pushes: HitCounter,
    pub(crate) misses_under: AtomicUsize,
    pub(crate) misses_over: AtomicUsize,
}

impl ListCounts {
    /// Nothing done.
    pub const ZERO: Self = Self {
        pops: HitCounter::ZERO,
        pushes: HitCounter::ZERO,
        misses_under: AtomicUsize::new(0),
        misses_over: AtomicUsize::new(0),
    };
}
