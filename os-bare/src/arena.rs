//! Arenas: memory that the linker sets aside for a heap. Declared by [`arena!`](crate::arena), handed to a heap by
//! `static_region`.
//!
//! An arena is two statics. The memory has no value, so it lies in `.bss` and costs nothing in the image; any other section
//! will do, also one that is not cleared at the start and where no atomic instruction works. The [`Claim`] is a flag in
//! `.bss`: it says whether a heap has the memory, whatever section that is in.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `N` bytes for a heap.
#[repr(C, align(16))]
pub struct Arena<const N: usize>(UnsafeCell<MaybeUninit<[u8; N]>>);

// SAFETY: a value of this type gives its address away and no more.
unsafe impl<const N: usize> Sync for Arena<N> {}

impl<const N: usize> Arena<N> {
    /// An arena, for a `static`.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// The first byte, by a pointer that is good for all.
    pub const fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }
}

impl<const N: usize> Default for Arena<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for Arena<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({N} bytes at {:p})", self.start())
    }
}

/// Whether a heap has an arena. It never gives one back.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

impl Claim {
    /// No heap has it.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether the caller is the first to ask.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: it only tells the first from the others, who get nothing.
        !self.0.swap(true, Relaxed)
    }
}

/// Declares an arena and yields the [`StaticRegion`](crate::StaticRegion) that hands it to a heap: `arena!(BYTES)`, or
/// `arena!(BYTES, ATTRIBUTES)` with attributes for the static that is the memory.
///
/// ```
/// use freestone_bare::{Heap, arena};
///
/// // In `.bss`.
/// static INTERNAL: Heap = Heap::new(arena!(64 * 1024));
/// // Where the linker script puts this section; `(NOLOAD)` keeps it out of the image. It need not be cleared.
/// static EXTERNAL: Heap = Heap::new(arena!(256 * 1024, #[unsafe(link_section = ".sdram")]));
/// # assert!(INTERNAL.warm().unwrap() > 62 * 1024 && EXTERNAL.warm().is_ok());
/// ```
///
/// Each place where it is written is one arena, which one heap can have. A second one (of a constant, or of a function that
/// is called twice) gets [`Claimed`](crate::RegionError::Claimed).
#[macro_export]
macro_rules! arena {
    ($bytes:expr $(, $(#[$attribute:meta])+)? $(,)?) => {{
        $($(#[$attribute])+)?
        static ARENA: $crate::Arena<{ $bytes }> = $crate::Arena::new();
        static CLAIM: $crate::Claim = $crate::Claim::new();
        // SAFETY: the two statics are one another's, and nothing else can name them.
        unsafe { $crate::StaticRegion::arena(&ARENA, &CLAIM) }
    }};
}
