//! Says how a kernel is linked. A package of kernels depends on this one and hands the arguments on in its own build script:
//!
//! ```ignore
//! let arguments = std::env::var("DEP_FREESTONE_MACHINE_LINK").expect("freestone-machine is a direct dependency");
//! arguments.split('\t').for_each(|argument| println!("cargo::rustc-link-arg-bins={argument}"));
//! ```

/// No start files and no libraries of the host, whose target this is; addresses that the linker script gives; nothing in the
/// image that a loader would have to relocate, and no padding between its segments to a page of 2 MiB.
const ARGUMENTS: [&str; 6] =
    ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,max-page-size=4096"];

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    let script = format!("-T{folder}/kernel.ld");
    println!("cargo::metadata=link={}\t{script}", ARGUMENTS.join("\t"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernel.ld");
}
