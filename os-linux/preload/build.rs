//! Link options of `libfreestone.so`, each with the reason why the library needs it.

fn main() {
    // Threads may be inside a restartable section, and blocks may be live: the code stays mapped after `dlclose`.
    link("-z,nodelete");
    // The dynamic linker allocates when it binds a symbol late, and so would re-enter `malloc` out of `malloc`.
    link("-z,now");
    // Nothing is left for the program to supply.
    link("-z,defs");
    // Our calls of our own functions stay ours, whatever a program interposes.
    link("-Bsymbolic-functions");
    // Tools tell an allocator by this name (valgrind: --soname-synonyms=somalloc=libfreestone*).
    link("-soname,libfreestone.so");
    // A debugger matches `break name` against the functions of every library: ours stay out of a user's way.
    if is_for_users() {
        link("--strip-all");
    }
    println!("cargo:rerun-if-env-changed=FREESTONE_SYMBOLS");
    println!("cargo:rerun-if-changed=build.rs");
}

fn link(option: &str) {
    println!("cargo:rustc-cdylib-link-arg=-Wl,{option}");
}

/// A release build, unless somebody who works on the library asks for its symbols (to profile it, say).
fn is_for_users() -> bool {
    std::env::var("PROFILE").is_ok_and(|profile| profile == "release") && std::env::var_os("FREESTONE_SYMBOLS").is_none()
}
