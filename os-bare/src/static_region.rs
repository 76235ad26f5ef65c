//! [`StaticRegion`]: where a heap's first region comes from. The heap asks it once, when memory is first wanted.

use crate::arena::{Arena, Claim};
use core::ptr::with_exposed_provenance_mut;
use freestone_core::{Region, RegionError, RegionSource};

/// The memory that a heap starts with: an arena, a place that is known beforehand, or nothing.
///
/// Nothing is read or written before the heap asks for it, so a constant constructor does for memory whose length only the
/// linker knows.
#[derive(Debug)]
pub struct StaticRegion {
    memory: Memory,
    claim: Option<&'static Claim>,
}

#[derive(Clone, Copy, Debug)]
enum Memory {
    /// None yet.
    None,
    Known(Region),
    /// From the first address up to the second.
    Between(*mut u8, *mut u8),
}

// SAFETY: the pointers are only handed on, to the heap that asks; who may use the memory is settled by the constructors'
// contracts.
unsafe impl Sync for StaticRegion {}
// SAFETY: as above; memory is not tied to a context.
unsafe impl Send for StaticRegion {}

impl StaticRegion {
    /// No memory: the heap gets its regions by [`init`](crate::RegionHeap::init) or
    /// [`add_region`](crate::RegionHeap::add_region), and answers null until then.
    pub const NONE: Self = Self { memory: Memory::None, claim: None };

    /// The arena; [`arena!`](crate::arena) calls this.
    ///
    /// # Safety
    /// No other claim is ever paired with this arena, and nobody writes to it but the heap.
    pub const unsafe fn arena<const N: usize>(arena: &'static Arena<N>, claim: &'static Claim) -> Self {
        Self { memory: Memory::Known(Region::new(arena.start(), N)), claim: Some(claim) }
    }

    /// A place that is known when the program is built.
    ///
    /// ```no_run
    /// use core::ptr::with_exposed_provenance_mut;
    /// use freestone_bare::{Heap, Masked, Region, StaticRegion, Wide};
    ///
    /// // SAFETY: 8 MiB of external RAM, by the data sheet; nobody else uses it, and the heap only once it works.
    /// static EXTERNAL: Heap<Masked, Wide> =
    ///     Heap::new(unsafe { StaticRegion::at(Region::new(with_exposed_provenance_mut(0xc000_0000), 8 << 20)) });
    /// # fn main() { EXTERNAL.warm().unwrap(); }
    /// ```
    ///
    /// # Safety
    /// The region satisfies the contract of [`BlockHeap::add`](freestone_core::BlockHeap::add) from the first use of the
    /// heap on, and one heap is made of it (a constant of this type would make one at each use).
    pub const unsafe fn at(region: Region) -> Self {
        Self { memory: Memory::Known(region), claim: None }
    }

    /// The memory from `start` up to `end`, which are symbols of the linker script:
    ///
    /// ```no_run
    /// use freestone_bare::{Heap, StaticRegion};
    ///
    /// unsafe extern "C" {
    ///     static mut heap_start: u8;
    ///     static mut heap_end: u8;
    /// }
    ///
    /// // SAFETY: the linker script keeps these bytes for the heap.
    /// static HEAP: Heap = Heap::new(unsafe { StaticRegion::between(&raw mut heap_start, &raw mut heap_end) });
    /// # // No linker script has them here.
    /// # #[unsafe(export_name = "heap_start")] static START: u8 = 0;
    /// # #[unsafe(export_name = "heap_end")] static END: u8 = 0;
    /// # fn main() { HEAP.warm().unwrap(); }
    /// ```
    ///
    /// # Safety
    /// As for [`at`](Self::at).
    pub const unsafe fn between(start: *mut u8, end: *mut u8) -> Self {
        Self { memory: Memory::Between(start, end), claim: None }
    }
}

impl Memory {
    fn region(self) -> Option<Region> {
        match self {
            Self::None => None,
            Self::Known(region) => Some(region),
            Self::Between(start, end) => Some(between(start, end)),
        }
    }
}

/// Exposed provenance: a linker's symbol names a place, and its type, one byte, says nothing of how much lies there.
fn between(start: *mut u8, end: *mut u8) -> Region {
    Region::new(with_exposed_provenance_mut(start.expose_provenance()), end.addr().saturating_sub(start.addr()))
}

// SAFETY: an arena is the heap's that claims it first, and lives as long as the program; the other places are good by the
// contracts of the constructors.
unsafe impl RegionSource for StaticRegion {
    fn first(&self) -> Result<Region, RegionError> {
        let region = self.memory.region().ok_or(RegionError::Missing)?;
        if self.claim.is_none_or(Claim::take) { Ok(region) } else { Err(RegionError::Claimed) }
    }
}
