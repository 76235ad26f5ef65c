//! Freestone for firmware and small kernels: a heap in memory that is given once, declared in one line.
//!
//! ```
//! #[global_allocator]
//! static HEAP: freestone_bare::Heap = freestone_bare::Heap::new(freestone_bare::arena!(64 * 1024));
//! # fn main() { assert_eq!(vec![1, 2, 3].iter().sum::<i32>(), 6); }
//! ```
//!
//! That is all: there is no init call, nothing to be forgotten, and no unsafe code. [`arena!`] declares 64 KiB in `.bss`;
//! the heap builds its own data at the start of them when memory is first wanted. What lies between the blocks is nothing:
//! no block has a header.
//!
//! [`Heap`] is [`RegionHeap`] of `freestone-core` on the home [`Bare`], which puts four parts together. They are types, so
//! what is not chosen costs nothing: `Heap<LOCK, GRAIN, CACHE>`, and the memory as the argument of
//! [`new`](RegionHeap::new).
//!
//! # Choosing
//!
//! **The lock** decides what happens when two contexts want the heap at once; the table in [`locks`] says which to take.
//! The default, [`Masked`], keeps interrupts away for the constant time of a call and is right for one core. It needs the
//! `critical-section` implementation that nearly every HAL has (a linker error about `_critical_section_1_0_acquire` says
//! that it is missing). It is behind the feature `critical-section`, which is on by default: a heap that somebody declares
//! without thinking of interrupts must not hang, or answer null, in the first one that allocates. Without the feature
//! `Heap` has no default lock.
//!
//! **The grain** is what blocks are cut in. It costs one bit a granule, and the heap's own data at the region's start:
//!
//! | grain | for regions below | blocks are multiples of | smallest block | own data (64-bit) |
//! |---|---|---|---|---|
//! | [`Tiny`] | 8 KiB | 8 B | 8 B | 168 B + 1.56 % |
//! | [`Compact`] (default) | 512 KiB | 8 B | 8 B | 272 B + 1.56 % |
//! | [`Fine`] | 512 MiB | 8 B | 16 B | 824 B + 1.56 % |
//! | [`Wide`] | 1 GiB | 16 B | 16 B | 824 B + 0.78 % |
//! | [`Coarse`] | 2 GiB | 32 B, a cache line for DMA | 32 B | 832 B + 0.39 % |
//!
//! **The cache** is lists of free blocks for each core, which are taken and given without the lock. [`NoCache`] is the
//! default: on one core the lock is cheap, and without a cache the worst case is that of one call. [`Cached`] says in its
//! type for how many cores, up to which length and how many blocks of each, which is the knob between throughput and worst
//! case.
//!
//! Three configurations to start from; [`Spin`] and [`Cached`] ask a hook which core runs:
//!
//! ```
//! use core::num::NonZeroUsize;
//! use freestone_bare::{Cached, Context, CoreId, Heap, Masked, OneCore, Spin, Tiny, Wide, arena};
//!
//! // The least: a few KiB of RAM.
//! static TINY: Heap<Masked, Tiny> = Heap::new(arena!(4 * 1024));
//! // The default: one core, up to half a MiB.
//! static HEAP: Heap = Heap::new(arena!(128 * 1024));
//! // Lists of up to 4 blocks of each length up to 32 granules (512 bytes), for one core ...
//! static CACHED: Heap<Masked, Wide, Cached<OneCore, 1, 32, 4>> = Heap::new(arena!(1024 * 1024));
//! // ... and for four, which spin.
//! static CORES: Heap<Spin<Cpu>, Wide, Cached<Cpu, 4, 32, 4>> = Heap::new(arena!(1024 * 1024));
//!
//! struct Cpu;
//! impl CoreId for Cpu {
//!     fn core() -> usize {
//!         0 // A register has it: `mhartid`, `MPIDR_EL1`, the GS base. (For the lists a wrong one is only slow.)
//!     }
//! }
//! // SAFETY: two cores have two numbers (here is one).
//! unsafe impl Context for Cpu {
//!     fn id() -> NonZeroUsize {
//!         NonZeroUsize::MIN.saturating_add(Self::core())
//!     }
//! }
//! # assert!(TINY.warm().is_ok() && HEAP.warm().is_ok() && CACHED.warm().is_ok() && CORES.warm().is_ok());
//! ```
//!
//! # Memory
//!
//! - **An arena** is [`arena!`]. It can be put into a section: `arena!(64 * 1024, #[unsafe(link_section = ".ccmram")])`.
//!   One heap has it; the second one gets [`Claimed`](RegionError::Claimed).
//! - **Symbols of the linker script** are [`StaticRegion::between`], a place that the data sheet names is
//!   [`StaticRegion::at`].
//! - **What is known at run time only**: a heap is declared with [`StaticRegion::NONE`], and given its region by
//!   [`init`](RegionHeap::init).
//! - **Several regions**: [`add_region`](RegionHeap::add_region), at any time. A request is served by the first region, in
//!   the order in which they were added, that can; so the fast memory comes first. They never join, adjoining or not.
//!   Memory with a capability (for DMA, say) is better a heap of its own: with the feature `allocator-api2`,
//!   `Vec::new_in(&DMA)` chooses it.
//! - **Growth**: a region that is added as [`Region::growable`] has room in its bitmap for what
//!   [`extend_region`](RegionHeap::extend_region) brings later.
//!
//! ```
//! use freestone_bare::{Heap, Region, RegionError, StaticRegion};
//!
//! static HEAP: Heap = Heap::new(StaticRegion::NONE);
//!
//! fn start(ram: *mut u8, len: usize, sram2: *mut u8, len2: usize) -> Result<(), RegionError> {
//!     // SAFETY: memory that nobody else uses, for as long as the program runs.
//!     unsafe {
//!         HEAP.init(Region::new(ram, len))?;
//!         HEAP.add_region(Region::new(sram2, len2))?;
//!     }
//!     Ok(())
//! }
//! # let memory = || Vec::leak(vec![0_u8; 4096]).as_mut_ptr();
//! # start(memory(), 4096, memory(), 4096).unwrap();
//! # assert_eq!(HEAP.stats().regions, 2);
//! ```
//!
//! Contents do not matter: memory need not be cleared, and none is ever taken for zero.
//!
//! # Bounds
//!
//! **Time.** Below the cache a call takes constant time, however many blocks there are and wherever they lie, plus up to
//! four queued frees each time that it takes the lock; a call of a heap of several regions takes a step a region. Copying and zeroing are done outside of the
//! lock. Two calls are longer: the first of all, which clears the region's bitmap, and one that finds no memory, which
//! takes everything cached and queued back first. So call [`warm`](RegionHeap::warm) at the start, which also says why
//! there is no memory where an allocation is merely null. [`stats`](RegionHeap::stats) walks what is cached and queued.
//!
//! **Memory.** The table above, and the heap's value of about a hundred bytes. A block is its size rounded up to the
//! granule.
//!
//! # When things go wrong
//!
//! **No memory** is null, changes nothing, and comes only after everything cached and queued was taken back. `try_reserve`
//! reports it; a `Box::new` ends the program. **Corruption that is seen** (a block that is free already, a pointer that is
//! none of the heap's, a length that does not fit) is a panic with one line that names the pointer, the fault and the
//! invariant. The panic handler may run inside the heap's lock (over a free that was queued); if it allocates then, it gets null. A write behind a block's end is
//! not seen when it happens: [`check_quiescent`](RegionHeap::check_quiescent) walks the whole heap and finds what it broke.
//!
//! # Coming from another allocator
//!
//! - `embedded-alloc`: `Heap::empty()` and `init!(HEAP, SIZE)` in `main` become `Heap::new(arena!(SIZE))`; `used()` and
//!   `free()` are the `live_bytes` and `free_bytes` of `stats()`.
//! - `linked_list_allocator`: `LockedHeap::empty()` becomes `Heap::new(StaticRegion::NONE)`, `lock().init(start, size)` is
//!   `init(Region::new(start, size))`, `extend(by)` is `extend_region`, for a region that was added as growable.
//! - `talc`: `Claim::array` is `arena!`, `claim(base, size)` is `init` or `add_region`. No source is asked when memory runs
//!   out: the caller gets null, may add a region, and tries again.
//!
//! # A reviewer's note on provenance
//!
//! Every pointer that the heap works with is derived from the one by which the region came in: an arena's is that of its
//! whole static, a linker symbol's is exposed (a symbol names a place, and not one byte). What a caller hands back on a
//! free is asked for its address only. The head of `block.rs` in `freestone-core`, the only file that touches a region's
//! memory, says how. The lists of the cache and of queued frees keep addresses in packed words; those pointers are exposed
//! where the words are made (`chain.rs`), which is also why this crate needs words of 64 bits so far.
#![no_std]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("freestone-bare needs 64-bit words so far: cached and queued blocks are linked by packed words");

mod arena;
mod home;
pub mod locks;
#[cfg(feature = "critical-section")]
mod masked;
#[cfg(feature = "lock_api")]
mod raw_lock;
mod static_region;

pub use arena::{Arena, Claim};
pub use freestone_core::{
    Coarse, Compact, Context, CoreId, Fine, Grain, Lock, Region, RegionError, RegionHeap, RegionStats, SpinLock as Spin,
    Tiny, Wide,
};
pub use home::{Bare, Cache, Cached, Heap, NoCache, OneCore};
pub use locks::{NoLock, NullOnContention, OneThread};
#[cfg(feature = "critical-section")]
pub use masked::Masked;
#[cfg(feature = "lock_api")]
pub use raw_lock::RawLock;
pub use static_region::StaticRegion;
