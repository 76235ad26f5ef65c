//! Links the kernel as `freestone-machine` says. A kernel of your own has its linker script already.

fn main() {
    let arguments = std::env::var("DEP_FREESTONE_MACHINE_LINK").expect("freestone-machine is a direct dependency");
    arguments.split('\t').for_each(|argument| println!("cargo::rustc-link-arg-bins={argument}"));
    println!("cargo::rerun-if-changed=build.rs");
}
