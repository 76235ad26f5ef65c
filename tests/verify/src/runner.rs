//! Runs the commands of a step, in the workspace's folder, with their output in the step's log.
//!
//! `main` makes one [`Runner`] and a [`Log`] a step; the [`steps`](crate::steps) call [`Log`]'s methods. Each command line
//! stands in the log before its output, so that a person can repeat it.

use crate::steps::Step;
use duct::{Expression, cmd};
use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// How many lines of its log a failed step shows.
const LINES_SHOWN: usize = 60;

/// What becomes of a step's output, besides its log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Its last lines are shown if the step fails.
    OnFailure,
    /// All of it is shown as it comes.
    Live,
}

/// The folders that a run works in.
pub struct Runner {
    root: PathBuf,
    target: PathBuf,
    logs: PathBuf,
}

impl Runner {
    /// Finds the folders and makes the one of the logs.
    pub fn new() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders below the workspace").into();
        let target = target_dir()?;
        let logs = target.join("verify");
        fs::create_dir_all(&logs)?;
        Ok(Self { root, target, logs })
    }

    /// Where the output of `step` goes.
    pub fn log_path(&self, step: &Step) -> PathBuf {
        self.logs.join(step.name).with_extension("log")
    }

    /// Starts the log of `step`.
    pub fn log(&self, step: &Step) -> io::Result<Log<'_>> {
        Ok(Log { runner: self, file: File::create(self.log_path(step))?, show: step.show })
    }

    /// Shows the end of the log of `step`, unless all of it was shown already.
    pub fn show_end(&self, step: &Step) {
        if step.show == Show::Live {
            return;
        }
        let text = fs::read(self.log_path(step)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
            println!("  {line}");
        }
    }
}

/// Cargo's target folder: this program lies in its `debug`, or in another profile's folder beside it.
fn target_dir() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    program.ancestors().nth(2).map(Path::to_path_buf).ok_or_else(|| io::Error::other("this program is in no target folder"))
}

/// Runs commands for one step.
pub struct Log<'a> {
    runner: &'a Runner,
    file: File,
    show: Show,
}

impl Log<'_> {
    /// The workspace's folder.
    pub fn root(&self) -> &Path {
        &self.runner.root
    }

    /// Cargo's target folder.
    pub fn target(&self) -> &Path {
        &self.runner.target
    }

    /// Where the build puts the library.
    pub fn library(&self) -> PathBuf {
        self.runner.target.join("release/libfreestone.so")
    }

    /// Runs cargo with the words of `line`.
    pub fn cargo(&self, line: &str) -> io::Result<()> {
        self.cargo_in(line, &[])
    }

    /// Runs cargo with the words of `line` and these variables besides.
    pub fn cargo_in(&self, line: &str, variables: &[(&str, &str)]) -> io::Result<()> {
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut words = vec![cargo.as_str()];
        words.extend(line.split_whitespace());
        self.run(&words, variables)
    }

    /// Runs the program `words[0]` with its arguments and these variables besides; an exit status other than 0 is an error.
    pub fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> io::Result<()> {
        let shown = command_line(words, variables);
        self.write(format!("+ {shown}\n").as_bytes())?;
        let mut command = cmd(words[0], &words[1..]).dir(&self.runner.root).stdin_null();
        for (name, value) in variables {
            command = command.env(name, value);
        }
        match self.copy_output(&command)? {
            0 => Ok(()),
            code => Err(io::Error::other(format!("`{shown}` ended with {code}"))),
        }
    }

    /// Runs `command` to its end, writes down what it prints, and returns its exit status (-1: ended by a signal).
    fn copy_output(&self, command: &Expression) -> io::Result<i32> {
        let mut reader = command.stderr_to_stdout().unchecked().reader()?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                length => self.write(&buffer[..length])?,
            }
        }
        let output = reader.try_wait()?.expect("it has closed its output and was waited for at the last read");
        Ok(output.status.code().unwrap_or(-1))
    }

    /// A line of the step's own.
    pub fn say(&self, line: &str) -> io::Result<()> {
        self.write(format!("{line}\n").as_bytes())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)?;
        match self.show {
            Show::Live => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Show::OnFailure => Ok(()),
        }
    }
}

/// The command as a person would type it.
fn command_line(words: &[&str], variables: &[(&str, &str)]) -> String {
    let quoted = variables.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
    let program = Path::new(words[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    quoted + &[&[program.as_str()], &words[1..]].concat().join(" ")
}
