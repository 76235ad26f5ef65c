//! Simulated interrupts: a handler that runs in the middle of the heap's slow paths, in the context that is inside them.
//!
//! `home` fires one wherever the core enters or leaves a lock or calls the page source; tests arm a handler for the length of
//! a closure. An interrupt does not interrupt itself.

use core::cell::Cell;
use core::marker::PhantomData;

/// A handler without its type.
#[derive(Clone, Copy)]
struct Handler {
    call: unsafe fn(*const ()),
    data: *const (),
}

std::thread_local! {
    static ARMED: Cell<Option<Handler>> = const { Cell::new(None) };
    static FIRED: Cell<usize> = const { Cell::new(0) };
}

/// Disarms when dropped, also by a panic.
struct Armed<'a>(PhantomData<&'a ()>);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        ARMED.set(None);
    }
}

/// Runs `body` with `handler` armed on this thread, and returns how often it fired.
pub fn with_handler<F: Fn()>(handler: &F, body: impl FnOnce()) -> usize {
    unsafe fn call<F: Fn()>(data: *const ()) {
        // SAFETY: `data` is the handler, borrowed until it is disarmed.
        unsafe { (*data.cast::<F>())() }
    }
    FIRED.set(0);
    ARMED.set(Some(Handler { call: call::<F>, data: core::ptr::from_ref(handler).cast() }));
    let armed = Armed(PhantomData);
    body();
    drop(armed);
    FIRED.get()
}

/// An interrupt may come here.
pub fn point() {
    let Some(handler) = ARMED.take() else { return };
    FIRED.set(FIRED.get() + 1);
    // Not armed while it runs, and armed again after a panic only by the next `with_handler`.
    // SAFETY: an armed handler's data is borrowed until it is disarmed.
    unsafe { (handler.call)(handler.data) }
    ARMED.set(Some(handler));
}
