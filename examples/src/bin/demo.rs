//! `cargo demo [-- PROGRAM ARGUMENT...]`: a real program, a Rust program, a kernel and a firmware on Freestone, each with a
//! report of its heap.
//!
//! The first is python3 unless another is named; `libfreestone.so` is loaded into it (and into what it starts) by
//! `LD_PRELOAD` and prints the report when it exits. The second is the example `linux`. Both are built with the feature
//! `counters`, into a target folder of their own, so that the release build of the library stays without it. The kernel and
//! the firmware boot in QEMU, where that is installed.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // The alias passes all words on, so that `cargo demo PROGRAM` works too; then a `--` is one of them.
    let words: Vec<OsString> = env::args_os().skip(1).skip_while(|word| word == "--").collect();
    match demo(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("demo: {why}");
            ExitCode::FAILURE
        }
    }
}

fn demo(words: &[OsString]) -> Result<()> {
    let folder = demo_folder()?;
    println!("building libfreestone.so and the example, with counters");
    build(&folder, &["-p", "freestone-preload", "--features", "counters"])?;
    build(&folder, &["-p", "freestone-examples", "--bin", "linux", "--features", "counters"])?;

    let (name, mut program) = preloaded(words)?;
    println!("\n== {name} on libfreestone.so (LD_PRELOAD) ==");
    let library = folder.join("release/libfreestone.so");
    run(program.env("LD_PRELOAD", library).env("FREESTONE_CONF", conf()))?;

    println!("\n== a Rust program on #[global_allocator] ==");
    run(&mut Command::new(folder.join("release/linux")))?;

    if !is_installed("qemu-system-x86_64") {
        println!("\n== a kernel and a firmware: left out, qemu-system-x86_64 is not here (package qemu-system-x86) ==");
        return Ok(());
    }
    boot(&folder, "freestone-example-kernel", "example-kernel", "a no_std kernel on 4 processors, in QEMU")?;
    boot(&folder, "freestone-example-firmware", "example-firmware", "a firmware with two regions, in QEMU")
}

fn is_installed(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).is_file())
}

/// Builds an image (apart, so that it stays without what others need of `std`) and boots it.
fn boot(folder: &Path, package: &str, image: &str, title: &str) -> Result<()> {
    build(folder, &["-p", package])?;
    println!("\n== {title} ==");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machine/boot");
    run(Command::new(script).arg(folder.join("release").join(image)).env("CPUS", "4"))
}

/// `demo` in cargo's target folder: this program lies in its `release`.
fn demo_folder() -> Result<PathBuf> {
    let program = env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("this program is in no target folder")?.join("demo"))
}

fn build(folder: &Path, what: &[&str]) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--release", "--quiet"]);
    run(command.args(what).arg("--target-dir").arg(folder))
}

/// The program that was named with its arguments, or python3 with this package's script.
fn preloaded(words: &[OsString]) -> Result<(String, Command)> {
    if let [program, arguments @ ..] = words {
        let mut command = Command::new(program);
        command.args(arguments);
        return Ok((program.to_string_lossy().into_owned(), command));
    }
    let mut command = Command::new(interpreter()?);
    // Small objects come from Python's own arenas otherwise.
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/demo.py")).env("PYTHONMALLOC", "malloc");
    Ok(("python3".into(), command))
}

/// The interpreter itself: what the path finds may be a script that starts it, whose programs would report too.
fn interpreter() -> Result<String> {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).stderr(Stdio::null()).output();
    match found {
        Ok(output) if output.status.success() => Ok(String::from_utf8(output.stdout)?.trim().into()),
        _ => Err("python3 is not here; install it, or name a program: `cargo demo -- PROGRAM ARGUMENT...`".into()),
    }
}

/// The user's configuration, and the report.
fn conf() -> String {
    match env::var("FREESTONE_CONF") {
        Ok(words) if !words.is_empty() => format!("{words},stats=exit"),
        _ => "stats=exit".into(),
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|why| format!("{} does not start: {why}", command.get_program().display()))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{} ended with {status}", command.get_program().display()).into()),
    }
}
