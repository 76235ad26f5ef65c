//! Code that runs before everything else in a program: what it asks of an allocator, it asks of a cold one.
//!
//! Called by the C library, in a program that says [`run_cold!`](crate::run_cold). The loader has mapped all libraries then
//! and resolved their names; of their constructors, and of the runtime's, none has run, so that nobody has allocated.

use core::ffi::{CStr, c_char, c_int};

/// The command line, as it stands before the runtime has read it.
pub struct Words {
    count: usize,
    first: *const *const c_char,
}

impl Words {
    /// The word at `place` (0: the program); `None` if there are fewer, or it is no UTF-8.
    pub fn get(&self, place: usize) -> Option<&'static str> {
        if place >= self.count {
            return None;
        }
        // SAFETY: by the contract of `start` so many pointers stand here, to strings that last as long as the program.
        unsafe { CStr::from_ptr(*self.first.add(place)) }.to_str().ok()
    }
}

/// What the C library calls.
pub type Hook = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

/// Lets `work` run. The C library's own constructor, which tells it the environment, has not run either: allocators that
/// look for their settings would see none, so they are told here.
///
/// # Safety
///
/// To be called by the C library with what the kernel gave the program: words, and an environment that ends in null.
pub unsafe fn start(count: c_int, words: *const *const c_char, environment: *const *const c_char, work: fn(&Words)) {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    // SAFETY: this is what the C library does next; there is one thread.
    unsafe { environ = environment };
    work(&Words { count: count as usize, first: words });
}

/// Has `$work`, a `fn(&Words)`, run before everything else in this program. For glibc, and for programs, not libraries.
#[macro_export]
macro_rules! run_cold {
    ($work:path) => {
        #[used]
        #[unsafe(link_section = ".preinit_array")]
        static RUN_COLD: $crate::cold::Hook = {
            unsafe extern "C" fn hook(
                count: core::ffi::c_int,
                words: *const *const core::ffi::c_char,
                environment: *const *const core::ffi::c_char,
            ) {
                // SAFETY: the C library calls the functions of this section with just that.
                unsafe { $crate::cold::start(count, words, environment, $work) }
            }
            hook
        };
    };
}
