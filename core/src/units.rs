//! Units: pages, page runs and alignment arithmetic.
//!
//! Everybody calls this file, and it calls nobody. Bytes are plain `usize`, as in [`core::alloc::Layout`]; a length in pages
//! is a [`Pages`], so that the two cannot be mixed up.
#![forbid(unsafe_code)]

use core::ptr::NonNull;

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// The page in bytes: the unit in which a page source maps, purges and unmaps.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Pages in a chunk.
pub const CHUNK_PAGES: usize = 512;
/// The chunk in bytes (2 MiB): the unit in which the page heap grows, aligned to its size.
pub const CHUNK_SIZE: usize = CHUNK_PAGES * PAGE_SIZE;

/// A length in pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Pages(pub usize);

impl Pages {
    /// The fewest pages that hold `bytes`; `None` where the sum would not fit `isize`.
    #[inline]
    pub const fn holding(bytes: usize) -> Option<Self> {
        if bytes > isize::MAX as usize - PAGE_SIZE {
            return None;
        }
        Some(Self(bytes.div_ceil(PAGE_SIZE)))
    }

    /// The length in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.0 << PAGE_SHIFT
    }
}

/// Contiguous pages, `start` aligned to [`PAGE_SIZE`].
///
/// A description, not a right: who owns the run says the function that takes or gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// First byte.
    pub start: NonNull<u8>,
    /// Length, at least one page.
    pub pages: Pages,
}

impl PageRun {
    /// The part of `pages` pages that begins `skip` pages into the run; must lie inside it.
    #[inline]
    pub fn part(self, skip: Pages, pages: Pages) -> Self {
        debug_assert!(skip.0 + pages.0 <= self.pages.0);
        let start = self.start.as_ptr().wrapping_byte_add(skip.bytes());
        // A run never reaches address 0: `start` plus an offset inside the run is not null.
        Self { start: NonNull::new(start).unwrap_or(self.start), pages }
    }

    /// The address just behind the last byte.
    #[inline]
    pub fn end(self) -> usize {
        self.start.addr().get() + self.pages.bytes()
    }

    /// Whether `address` lies in the run.
    #[inline]
    pub fn holds(self, address: usize) -> bool {
        address.wrapping_sub(self.start.addr().get()) < self.pages.bytes()
    }
}

/// `n` rounded up to a multiple of `align`, a power of two; `None` on overflow.
#[inline]
pub const fn align_up(n: usize, align: usize) -> Option<usize> {
    debug_assert!(align.is_power_of_two());
    match n.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_they_promise() {
        assert_eq!(Pages::holding(0), Some(Pages(0)));
        assert_eq!(Pages::holding(1), Some(Pages(1)));
        assert_eq!(Pages::holding(PAGE_SIZE), Some(Pages(1)));
        assert_eq!(Pages::holding(PAGE_SIZE + 1), Some(Pages(2)));
        assert_eq!(Pages::holding(usize::MAX), None);
        assert_eq!(Pages::holding(isize::MAX as usize), None);
    }

    #[test]
    fn align_up_is_checked() {
        assert_eq!(align_up(0, 16), Some(0));
        assert_eq!(align_up(17, 16), Some(32));
        assert_eq!(align_up(usize::MAX, 16), None);
    }
}
