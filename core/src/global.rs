//! Rust's allocator traits for both kinds of heap.

use crate::heap::Heap;
use crate::platform::{Platform, RegionPlatform};
use crate::region_heap::RegionHeap;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};

fn or_null(ptr: Option<NonNull<u8>>) -> *mut u8 {
    ptr.map_or(null_mut(), NonNull::as_ptr)
}

macro_rules! global {
    ($heap:ident, $home:ident) => {
        // SAFETY: the heap hands out blocks that fit their layout and are nobody else's, and never unwinds.
        unsafe impl<P: $home> GlobalAlloc for $heap<P>
        where
            P::Source: Sync,
        {
            #[inline]
            unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
                or_null(self.allocate(layout))
            }

            #[inline]
            unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
                or_null(self.allocate_zeroed(layout))
            }

            #[inline]
            unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
                // SAFETY: the caller's promise: a live block, so not null, and `deallocate`'s.
                unsafe { self.deallocate(NonNull::new_unchecked(ptr), layout) }
            }

            #[inline]
            unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
                // SAFETY: the caller's promise is `reallocate`'s.
                or_null(NonNull::new(ptr).and_then(|ptr| unsafe { self.reallocate(ptr, layout, new_size) }))
            }
        }
    };
}

global!(Heap, Platform);
global!(RegionHeap, RegionPlatform);

/// Collections in a chosen heap: `Vec::new_in(&heap)` with allocator-api2's `Vec`.
#[cfg(feature = "allocator-api2")]
mod api2 {
    use super::*;
    use allocator_api2::alloc::{AllocError, Allocator};

    fn slice(ptr: Option<NonNull<u8>>, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        ptr.map(|ptr| NonNull::slice_from_raw_parts(ptr, layout.size())).ok_or(AllocError)
    }

    macro_rules! allocator {
        ($heap:ident, $home:ident) => {
            // SAFETY: blocks live until they are freed or the heap is dropped (or its regions go away, which their owner has
            // promised they do not), which the borrow outlives; clones of a reference name the same heap.
            unsafe impl<P: $home> Allocator for $heap<P> {
                #[inline]
                fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                    slice($heap::allocate(self, layout), layout)
                }

                #[inline]
                fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                    slice($heap::allocate_zeroed(self, layout), layout)
                }

                #[inline]
                unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
                    // SAFETY: the caller's promise.
                    unsafe { $heap::deallocate(self, ptr, layout) }
                }

                #[inline]
                unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
                    // SAFETY: the caller's promise.
                    slice(unsafe { self.change(ptr, old, new) }, new)
                }

                #[inline]
                unsafe fn shrink(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
                    // SAFETY: the caller's promise.
                    slice(unsafe { self.change(ptr, old, new) }, new)
                }
            }

            impl<P: $home> $heap<P> {
                /// # Safety
                /// As for `reallocate`; the alignments may differ.
                unsafe fn change(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
                    if old.align() == new.align() {
                        // SAFETY: the caller's promise.
                        return unsafe { self.reallocate(ptr, old, new.size()) };
                    }
                    let moved = $heap::allocate(self, new)?;
                    // SAFETY: two blocks, both at least that long; then the old one is freed.
                    unsafe {
                        moved.copy_from_nonoverlapping(ptr, old.size().min(new.size()));
                        $heap::deallocate(self, ptr, old);
                    }
                    Some(moved)
                }
            }
        };
    }

    allocator!(Heap, Platform);
    allocator!(RegionHeap, RegionPlatform);
}
