//! Simulated interrupts: a handler that runs in the middle of the heap's slow paths, in the context that is inside them.
//!
//! `home` fires one wherever the core enters or leaves a lock or calls the page source; tests arm a handler for the length of
//! a closure. An interrupt does not interrupt itself. [`Requests`] counts what a handler is given.

use crate::piece::Piece;
use crate::subject::{Fill, Subject};
use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use std::vec::Vec;

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

/// What interrupts ask of a heap, and the blocks they keep from one to the next.
#[derive(Debug)]
pub struct Requests<'h, S: Subject> {
    heap: &'h S,
    /// How many were served.
    pub served: Cell<usize>,
    /// How many were refused.
    pub refused: Cell<usize>,
    /// The blocks.
    pub kept: RefCell<Vec<Piece<'h, S>>>,
}

impl<'h, S: Subject> Requests<'h, S> {
    /// With room for so many blocks from the start: a handler must not allocate anywhere else.
    pub fn new(heap: &'h S, room: usize) -> Self {
        let count = || Cell::new(0);
        Self { heap, served: count(), refused: count(), kept: RefCell::new(Vec::with_capacity(room)) }
    }

    /// A zeroed block, or null.
    pub fn allocate(&self, size: usize) -> Option<Piece<'h, S>> {
        let layout = Layout::from_size_align(size, 8).expect("a size");
        let piece = Piece::allocate(self.heap, layout, Fill::Zeroed, size as u64).expect("a right block");
        let count = if piece.is_some() { &self.served } else { &self.refused };
        count.set(count.get() + 1);
        piece
    }
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
