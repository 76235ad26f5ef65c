//! git: a history made on the spot, packed, cloned, packed again, and checked whole.

use crate::stage::{Mode, Stage, assert_no_complaint};
use std::fmt::Write;
use std::fs::{self, File};

const COMMITS: usize = 20;
const FILES: usize = 150;

/// The name of the last commit stands for every byte of the history; it was made by git without the library.
const TIP: &str = "3fa8ea9a3071356c4135eea7974ba02a949c3470";

/// Import, gc, clone, gc, fsck; then the clone's history and files are those that went in.
pub fn git(mode: Mode) {
    let stage = Stage::new("git", mode, &["git"]);
    fs::write(stage.folder.join("history"), history()).expect("the folder can be written");
    run(&stage, &["init", "--quiet", "--bare", "origin"]);
    import(&stage);
    run(&stage, &["-C", "origin", "gc", "--quiet", "--aggressive", "--prune=now"]);
    run(&stage, &["clone", "--quiet", "--no-local", "--branch", "main", "origin", "copy"]);
    run(&stage, &["-C", "copy", "gc", "--quiet", "--prune=now"]);
    run(&stage, &["-C", "copy", "fsck", "--full", "--strict", "--no-progress"]);
    assert_eq!(run(&stage, &["-C", "copy", "rev-parse", "HEAD"]), TIP);
    assert_eq!(run(&stage, &["-C", "copy", "rev-list", "--count", "HEAD"]), COMMITS.to_string());
    assert_eq!(run(&stage, &["-C", "copy", "status", "--porcelain"]), "");
    let path = stage.folder.join("copy").join(path(3));
    assert_eq!(fs::read_to_string(path).expect("it was checked out"), contents(3, last_change(3)));
}

fn run(stage: &Stage, arguments: &[&str]) -> String {
    stage.output(command(stage).args(arguments))
}

/// git without the settings of whoever runs the test.
fn command(stage: &Stage) -> std::process::Command {
    let mut command = stage.command("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn import(stage: &Stage) {
    let history = File::open(stage.folder.join("history")).expect("it was written before");
    let mut command = command(stage);
    let output = command.args(["-C", "origin", "fast-import", "--quiet"]).stdin(history).output().expect("git starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_no_complaint(&said);
}

/// A stream for `git fast-import`: each commit writes every seventh file anew, the first one all files.
fn history() -> String {
    let mut stream = String::new();
    for commit in 0..COMMITS {
        let time = 1_700_000_000 + commit;
        let _ = writeln!(stream, "commit refs/heads/main\ncommitter A B <a@b> {time} +0000\ndata 7\nnumber\n");
        for file in (0..FILES).filter(|&file| commit == 0 || changes(file, commit)) {
            let text = contents(file, commit);
            let _ = writeln!(stream, "M 100644 inline {}\ndata {}\n{text}", path(file), text.len());
        }
    }
    stream
}

fn changes(file: usize, commit: usize) -> bool {
    (file + commit).is_multiple_of(7)
}

fn last_change(file: usize) -> usize {
    (0..COMMITS).rev().find(|&commit| changes(file, commit)).unwrap_or(0)
}

fn path(file: usize) -> String {
    format!("folder{}/file{file}.txt", file % 9)
}

fn contents(file: usize, commit: usize) -> String {
    (0..300).map(|line| format!("line {line} of file {file}, written {}\n", commit * (line % 5) + file % 11)).collect()
}
