//! Links the kernels as `freestone-machine` says.

fn main() {
    let arguments = std::env::var("DEP_FREESTONE_MACHINE_LINK").expect("freestone-machine is a direct dependency");
    arguments.split('\t').for_each(|argument| println!("cargo::rustc-link-arg-bins={argument}"));
    println!("cargo::rerun-if-changed=build.rs");
}
