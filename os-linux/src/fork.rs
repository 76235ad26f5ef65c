//! Fork: heaps that are to work in the child of a threaded program. Called by [`Freestone`](crate::Freestone) and by the
//! preload library, once for each heap; calls the core's `freeze` and `thaw`.
//!
//! `freeze` waits for every lock of the heap, so that the child, in which only the forking thread lives on, finds none held
//! by a thread that is gone. libc calls the handlers before the fork in reverse order of registration and after it in that
//! order: registered early, ours are the last to close and the first to open, and the handlers of others may allocate.

use crate::sys;
use core::sync::atomic::{AtomicU64, Ordering};
use freestone_core::{Heap, Platform, Side};

/// A heap that lives as long as the process.
///
/// # Safety
/// [`heap`](Self::heap) always answers the same heap.
pub unsafe trait ProcessHeap: 'static {
    /// The heap's home.
    type Home: Platform;
    /// The heap.
    fn heap() -> &'static Heap<Self::Home>;
    /// A place for the signal mask of the thread that forks; zero at first, and nobody else's.
    fn mask() -> &'static AtomicU64;
}

/// Makes the heap of `H` survive forks. May allocate, so it is called with no lock of that heap held; once for an `H`.
/// `false`: libc had no memory for it.
pub fn guard<H: ProcessHeap>() -> bool {
    // SAFETY: the handlers call no libc function and stay loaded as long as the registration, which libc ties to this object.
    unsafe { libc::pthread_atfork(Some(before::<H>), Some(after_in_parent::<H>), Some(after_in_child::<H>)) == 0 }
}

/// The handler that is called before a fork, for those that register it themselves.
///
/// Signals wait until the fork is over: a handler that forks as well would find this thread's locks and leave them for it, in
/// the middle of the first fork.
pub extern "C" fn before<H: ProcessHeap>() {
    let mask = sys::set_signal_mask(sys::SIG_SETMASK, !0);
    H::heap().freeze();
    // Relaxed, here and below: only the thread that has frozen the heap uses it.
    H::mask().store(mask, Ordering::Relaxed);
}

/// The handler that is called in the parent after a fork.
pub extern "C" fn after_in_parent<H: ProcessHeap>() {
    let mask = H::mask().load(Ordering::Relaxed);
    // SAFETY: libc calls it after `before`, in the thread that forked, and no handler of this thread forked in between.
    unsafe { H::heap().thaw(Side::Parent) }
    sys::set_signal_mask(sys::SIG_SETMASK, mask);
}

/// The handler that is called in the child.
pub extern "C" fn after_in_child<H: ProcessHeap>() {
    let mask = H::mask().load(Ordering::Relaxed);
    // SAFETY: as for the parent; the child's only thread is the copy of the one that forked.
    unsafe { H::heap().thaw(Side::Child) }
    sys::set_signal_mask(sys::SIG_SETMASK, mask);
}
