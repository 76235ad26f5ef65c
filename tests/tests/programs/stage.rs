//! Where a program is put on: a folder of its own, the library in `LD_PRELOAD`, a time limit, a look at what it said.
//!
//! All files of this test call it. Only the program and its children get the library, not the test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds after which a program that has not ended is killed.
const LIMIT: &str = "300";

/// One line a program and the Debian package that brings it.
const PACKAGES: &str = include_str!("../../programs/packages.tsv");

/// The backend of the per-core lists.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// What the library picks by itself: rseq where the kernel has it.
    Rseq,
    /// The fallback without rseq.
    Lists,
}

/// A folder and a mode to run a program in.
pub struct Stage {
    mode: Mode,
    library: PathBuf,
    /// Empty at the start, kept after a failure.
    pub folder: PathBuf,
}

impl Stage {
    /// An empty folder for `name`, which needs `programs`.
    pub fn new(name: &str, mode: Mode, programs: &[&str]) -> Self {
        programs.iter().for_each(|program| demand(program));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("programs/{name}-{mode:?}").to_lowercase());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the target folder can be written");
        Self { mode, library: library(), folder }
    }

    /// `program` on the library, in the folder, ended after [`LIMIT`].
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LIMIT, program]);
        self.prepare(&mut command);
        command
    }

    /// Gives `command` the library, the mode and the folder.
    pub fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.folder).stdin(Stdio::null()).env("LD_PRELOAD", &self.library);
        match self.mode {
            Mode::Rseq => command.env_remove("FREESTONE_CONF"),
            Mode::Lists => command.env("FREESTONE_CONF", "rseq=off"),
        };
    }

    /// Runs `program` to its end and returns what it printed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        self.output(self.command(program).args(arguments))
    }

    /// Runs `command` to its end and returns what it printed, without the last line's end.
    ///
    /// # Panics
    /// If it fails, or the library or the loader has complained.
    pub fn output(&self, command: &mut Command) -> String {
        let output = command.output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command:?} ended with {}\n{printed}\n{said}", output.status);
        assert_no_complaint(&said);
        printed.trim_end().to_owned()
    }
}

/// The library may stop a program, or report a word that it does not know; the loader may pass it over.
pub fn assert_no_complaint(said: &str) {
    let complaint = said.lines().find(|line| line.starts_with("freestone") || line.contains("cannot be preloaded"));
    assert_eq!(complaint, None, "in {said}");
}

/// A file of `tests/programs`.
pub fn script(name: &str) -> String {
    format!("{}/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn demand(program: &str) {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(
        found,
        "`{program}` is missing: install the package {} (`cargo verify --only packages` does)",
        package_of(program)
    );
}

fn package_of(program: &str) -> &'static str {
    let line = PACKAGES.lines().find_map(|line| line.strip_prefix(program)?.strip_prefix('\t'));
    line.unwrap_or("that brings it")
}

/// `FREESTONE_SO`, else what the release build of the preload package leaves in the target folder.
fn library() -> PathBuf {
    let built = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release/libfreestone.so");
    let library = env::var_os("FREESTONE_SO").map_or_else(built, PathBuf::from);
    let shown = library.display();
    library
        .canonicalize()
        .unwrap_or_else(|_| panic!("no {shown}: build it with `cargo build --release -p freestone-preload`"))
}
