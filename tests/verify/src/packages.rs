//! The programs that the tests start, and the Debian packages they come in.
//!
//! Called by the first step. As root on Debian it installs what is missing; elsewhere it says the command that would. It never
//! touches a Rust toolchain. The list is `tests/programs/packages.tsv`, which the tests read too.

use crate::runner::Log;
use std::env;
use std::io;
use std::path::Path;

/// One line a program: its name (or a file's path), the package, who needs it.
const LIST: &str = include_str!("../../programs/packages.tsv");

/// Makes sure that every program of the list is there.
pub fn install(log: &Log) -> io::Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return log.say("all programs are there");
    }
    let install = [&["apt-get", "install", "--yes", "--no-install-recommends"], missing.as_slice()].concat();
    if !can_install() {
        return Err(io::Error::other(format!("these programs are needed, install them: {}", install.join(" "))));
    }
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    log.run(&["apt-get", "update"], &quiet)?;
    log.run(&install, &quiet)?;
    match missing_packages().as_slice() {
        [] => Ok(()),
        still => Err(io::Error::other(format!("still missing after the installation: {}", still.join(" ")))),
    }
}

fn missing_packages() -> Vec<&'static str> {
    let mut packages: Vec<_> = entries().filter(|(program, _)| !is_there(program)).map(|(_, package)| package).collect();
    packages.dedup();
    packages
}

fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        Some((fields.next()?, fields.next()?))
    })
}

fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_absolute() && Path::new(program).exists()
        || env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether this process is root, by the owner of its own entry in `/proc`, and `apt-get` is there.
fn can_install() -> bool {
    use std::os::unix::fs::MetadataExt;
    let root = Path::new("/proc/self").metadata().is_ok_and(|entry| entry.uid() == 0);
    root && is_there("apt-get")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_names_a_program_and_a_package() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(entries().count(), lines);
        assert!(entries().all(|(program, package)| !program.is_empty() && !package.is_empty()));
    }

    #[test]
    fn a_program_is_found_on_the_path_and_a_file_by_itself() {
        assert!(is_there("sh") && is_there("/bin/sh"));
        assert!(!is_there("no such program") && !is_there("/no/such/file"));
    }
}
