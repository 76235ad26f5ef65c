//! The golden count: how many instructions a hit takes, of the code as it is linked. A change that lengthens a hit fails here,
//! whatever the noise of the machine that would have measured it.
//!
//! With restartable sequences the count is read off the code: `libfreestone.so` and the library of `examples/golden.rs`, which
//! this test builds, are disassembled. valgrind has no such sequences, and a debugger's single steps abort them. A hit runs
//! straight from the entry to the first `ret`: the compiler moves all that is rare out of the line, and a conditional jump
//! leaves it. So a count is the length of that line, and a call or a jump within it is a failure, as is an instruction that
//! locks the bus.
//!
//! Without them callgrind counts, as far as it is installed: what the second thousand of pairs adds to the first.
//!
//! `libfreestone.so` is the one that `FREESTONE_SO` names, or `target/release/libfreestone.so` of this workspace.

use iced_x86::{
    Decoder, DecoderOptions, FastFormatter, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};
use object::{Object, ObjectSection, ObjectSymbol};
use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

/// What is known of a function.
struct Golden {
    symbol: &'static str,
    /// From its entry to its first `ret`, this one included.
    instructions: usize,
    /// Restartable sequences on the way. Each begins with a store of its descriptor, the only store into the thread's area.
    sections: usize,
}

/// Of `libfreestone.so`.
const BY_C: [Golden; 2] = [golden("malloc", 26, 1), golden("free", 50, 1)];

/// Of `examples/golden.rs`.
const BY_RUST: [Golden; 3] =
    [golden("golden_alloc", 27, 1), golden("golden_dealloc", 30, 1), golden("golden_pair_64", 43, 2)];

/// What a pair of 64 bytes takes without restartable sequences, the loop of [`PAIRS`] and the program's jumps into the
/// library among it.
const WITHOUT_SECTIONS: u64 = 188;

/// In a message about a count that is another.
const ADVICE: &str =
    "The golden numbers are those of rustc 1.95. Change one only with a measurement that shows what it buys.";

/// A program that allocates 64 bytes and frees them, as often as it is told.
const PAIRS: &str = "#include <stdlib.h>
int main(int count, char **words) {
    for (long left = count > 1 ? atol(words[1]) : 0; left > 0; left--) free(malloc(64));
}
";

const fn golden(symbol: &'static str, instructions: usize, sections: usize) -> Golden {
    Golden { symbol, instructions, sections }
}

#[test]
fn a_hit_of_the_library() {
    all_hold(&library(), &BY_C);
}

#[test]
fn a_hit_of_a_rust_program() {
    all_hold(&rust_program(), &BY_RUST);
}

#[test]
fn a_pair_without_sections() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not run: valgrind is not installed");
        return;
    }
    let program = pairs();
    let pair = (counted(&program, 2000) - counted(&program, 1000)) / 1000;
    println!("{pair} instructions a pair");
    assert!(pair <= WITHOUT_SECTIONS * 11 / 10, "a pair takes {pair} instructions, not {WITHOUT_SECTIONS}. {ADVICE}");
}

#[track_caller]
fn all_hold(file: &Path, all: &[Golden]) {
    let bytes = fs::read(file).unwrap();
    let image = object::File::parse(&*bytes).unwrap();
    let wrong: Vec<String> = all.iter().filter_map(|golden| golden.check(&image).err()).collect();
    assert!(wrong.is_empty(), "{}\n{}\n{ADVICE}", file.display(), wrong.join("\n"));
}

impl Golden {
    fn check(&self, image: &object::File) -> Result<(), String> {
        let (address, code) = code(image, self.symbol);
        let line = Line::of(address, code).map_err(|error| format!("{}: {error}", self.symbol))?;
        let Self { symbol, instructions, sections } = *self;
        if (line.0.len(), line.thread_stores(), line.locks()) == (instructions, sections, 0) {
            return Ok(());
        }
        Err(format!("{symbol} was instructions: {instructions}, stores to fs: {sections}, locks: 0; now is {line}"))
    }
}

/// Where an exported function is, and its bytes.
fn code<'a>(image: &object::File<'a>, symbol: &str) -> (u64, &'a [u8]) {
    let symbol = image.dynamic_symbols().find(|it| it.name() == Ok(symbol)).unwrap_or_else(|| panic!("no {symbol}"));
    let section = image.section_by_index(symbol.section_index().unwrap()).unwrap();
    (symbol.address(), section.data_range(symbol.address(), symbol.size()).unwrap().unwrap())
}

/// The instructions of a function from its entry to its first `ret`, where no conditional jump is taken.
#[derive(Debug)]
struct Line(Vec<Instruction>);

impl Line {
    /// The line of the function at `address` that consists of `code`.
    ///
    /// # Errors
    /// If a call, a jump or the function's end comes before a `ret`.
    fn of(address: u64, code: &[u8]) -> Result<Self, String> {
        let mut line = Self(Vec::new());
        for instruction in &mut Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
            line.0.push(instruction);
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                FlowControl::Return => return Ok(line),
                _ => return Err(format!("the last one leaves the line: {line}")),
            }
        }
        Err(format!("no ret: {line}"))
    }

    /// How many of them store into the thread's area, which `fs` leads to.
    fn thread_stores(&self) -> usize {
        let mut factory = InstructionInfoFactory::new();
        self.0.iter().filter(|it| factory.info(it).used_memory().iter().any(is_thread_store)).count()
    }

    /// How many of them lock the bus; `xchg` with memory does without being told.
    fn locks(&self) -> usize {
        self.0.iter().filter(|it| it.has_lock_prefix() || it.mnemonic() == Mnemonic::Xchg && has_memory(it)).count()
    }
}

fn is_thread_store(memory: &UsedMemory) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    memory.segment() == Register::FS && matches!(memory.access(), Write | CondWrite | ReadWrite | ReadCondWrite)
}

fn has_memory(instruction: &Instruction) -> bool {
    instruction.op_kinds().any(|kind| kind == OpKind::Memory)
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let (count, stores, locks) = (self.0.len(), self.thread_stores(), self.locks());
        writeln!(f, "instructions: {count}, stores to fs: {stores}, locks: {locks}")?;
        let mut formatter = FastFormatter::new();
        self.0.iter().try_for_each(|instruction| {
            let mut text = String::new();
            formatter.format(instruction, &mut text);
            writeln!(f, "  {:6x}  {text}", instruction.ip())
        })
    }
}

/// Where `libfreestone.so` is.
fn library() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/libfreestone.so");
    let path = env::var_os("FREESTONE_SO").map_or(default, PathBuf::from);
    path.canonicalize().unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo build --release -p freestone-preload` builds it", path.display())
    })
}

/// The library of `examples/golden.rs`, built as a release is.
fn rust_program() -> PathBuf {
    let target = scratch().parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--release", "-p", "freestone-tests", "--example", "golden", "--target-dir"])
        .arg(target);
    succeeds(&mut build);
    target.join("release/examples/libgolden.so")
}

/// The program of [`PAIRS`], built without the compiler's own knowledge of what `malloc` does.
fn pairs() -> PathBuf {
    let program = scratch().join("golden-pairs");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin", "-x", "c", "-", "-o"]).arg(&program).stdin(Stdio::piped());
    let mut child = compiler.spawn().expect("a C compiler (Debian: apt-get install gcc)");
    child.stdin.take().unwrap().write_all(PAIRS.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{compiler:?}");
    program
}

/// How many instructions so many pairs take, with all that the process does besides.
fn counted(program: &Path, pairs: u32) -> u64 {
    let (library, profile) = (library(), scratch().join(format!("golden-{pairs}.callgrind")));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", &format!("--callgrind-out-file={}", profile.display())]);
    valgrind.arg(program).arg(pairs.to_string());
    succeeds(valgrind.env("LD_PRELOAD", &library).env("FREESTONE_CONF", "rseq=off"));
    let text = fs::read_to_string(&profile).unwrap();
    assert!(text.contains(&*library.to_string_lossy()), "{}: the library had no part in it", profile.display());
    text.lines().find_map(|line| line.strip_prefix("summary: ")).unwrap().parse().unwrap()
}

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let Output { status, stderr, .. } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
}

/// The line of a function that begins with these bytes, and goes on with two `nop` and two `ret`.
fn line(start: &[u8]) -> Result<Line, String> {
    Line::of(0x1000, &[start, &[0x90, 0x90, 0xc3, 0xc3]].concat())
}

#[test]
fn a_line_ends_at_the_first_ret() {
    assert_eq!(line(&[]).unwrap().0.len(), 3);
    assert!(Line::of(0, &[0x90, 0x90]).unwrap_err().starts_with("no ret"));
    assert!(Line::of(0, &[]).unwrap_err().starts_with("no ret"));
}

#[test]
fn a_line_passes_conditional_jumps() {
    let near = [0x0f, 0x84, 0, 1, 0, 0];
    for jump in [&[0x74, 0x01][..], &[0x75, 0xfe], &near] {
        assert_eq!(line(jump).unwrap().0.len(), 4, "{jump:x?}");
    }
}

#[test]
fn a_line_ends_in_failure_at_what_leaves_it() {
    const JUMPS: [&[u8]; 3] = [&[0xeb, 0x00], &[0xe9, 0, 0, 0, 0], &[0xff, 0xe0]];
    const CALLS: [&[u8]; 4] = [&[0xe8, 0, 0, 0, 0], &[0xff, 0xd0], &[0xff, 0x14, 0x25, 0, 0x10, 0, 0], &[0x0f, 0x05]];
    const FAULTS: [&[u8]; 2] = [&[0x0f, 0x0b], &[0x06]];
    for leaving in [&JUMPS[..], &CALLS, &FAULTS].concat() {
        let error = line(leaving).unwrap_err();
        assert!(error.starts_with("the last one leaves the line: instructions: 1,"), "{leaving:x?}: {error}");
    }
}

#[test]
fn locks_and_stores_to_the_thread_are_counted() {
    let seen = |start: &[u8]| line(start).map(|line| (line.0.len(), line.thread_stores(), line.locks())).unwrap();
    assert_eq!(seen(&[0xf0, 0xff, 0x00]), (4, 0, 1), "lock inc dword ptr [rax]");
    assert_eq!(seen(&[0x48, 0x87, 0x08]), (4, 0, 1), "xchg [rax], rcx");
    assert_eq!(seen(&[0x48, 0x87, 0xc8]), (4, 0, 0), "xchg rax, rcx");
    assert_eq!(seen(&[0x64, 0x48, 0x89, 0x4f, 0x08]), (4, 1, 0), "mov fs:[rdi + 8], rcx");
    assert_eq!(seen(&[0x64, 0x48, 0x63, 0x4f, 0x04]), (4, 0, 0), "movsxd rcx, fs:[rdi + 4]");
    assert_eq!(seen(&[0x48, 0x89, 0x4f, 0x08]), (4, 0, 0), "mov [rdi + 8], rcx");
}

#[test]
fn a_line_shows_what_is_in_it() {
    let text = line(&[0x64, 0x48, 0x89, 0x4f, 0x08]).unwrap().to_string();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.starts_with("instructions: 4, stores to fs: 1, locks: 0\n") && text.contains("  1000  mov"), "{text}");
}
