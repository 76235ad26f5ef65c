//! The libraries to be preloaded: where they are found, and whether the loader has taken the right one.
//!
//! Called by [`crate::peers`].
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One library.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    /// Its file's name.
    pub file: &'static str,
    /// The Debian package that brings it; `None` for our own.
    pub package: Option<&'static str>,
}

/// Where Debian and others put libraries.
const FOLDERS: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

impl Library {
    /// Freestone's own.
    pub const FREESTONE: Self = Self { file: "libfreestone.so", package: None };
    /// mimalloc.
    pub const MIMALLOC: Self = Self { file: "libmimalloc.so.2", package: Some("libmimalloc2.0") };
    /// jemalloc.
    pub const JEMALLOC: Self = Self { file: "libjemalloc.so.2", package: Some("libjemalloc2") };
    /// The tcmalloc of gperftools.
    pub const TCMALLOC: Self = Self { file: "libtcmalloc_minimal.so.4", package: Some("libtcmalloc-minimal4") };

    const ALL: [Self; 4] = [Self::FREESTONE, Self::MIMALLOC, Self::JEMALLOC, Self::TCMALLOC];

    /// The library's file, if it is here: our own where `FREESTONE_SO` points or beside this program.
    pub fn path(&self) -> Option<PathBuf> {
        match self.package {
            None => own(self.file)?.canonicalize().ok(),
            Some(_) => FOLDERS.iter().map(|folder| Path::new(folder).join(self.file)).find(|path| path.exists()),
        }
    }

    /// What to do for a library that is not here, or that the loader does not take.
    pub fn missing(&self) -> Option<String> {
        let Self { file, package } = self;
        let advice = match package {
            None => "build it with `cargo build --release -p freestone-preload`, or set FREESTONE_SO".to_string(),
            Some(package) => format!("install Debian's {package}"),
        };
        let Some(path) = self.path() else { return Some(format!("{file} is left out: {advice}")) };
        let shown = Command::new("/bin/cat").arg("/proc/self/maps").env_clear().env("LD_PRELOAD", path).output();
        let loaded = shown.is_ok_and(|shown| self.is_in(&String::from_utf8_lossy(&shown.stdout)));
        (!loaded).then(|| format!("{file} is left out: it cannot be preloaded"))
    }

    /// Whether of all these libraries the one `wanted`, and no other, is in this process.
    pub fn check_loaded(wanted: Option<&Self>) -> Result<(), String> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
        for library in &Self::ALL {
            match (wanted == Some(library), library.is_in(&maps)) {
                (true, false) => return Err(format!("{} was not loaded", library.file)),
                (false, true) => return Err(format!("{} is loaded where it should not be", library.file)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The maps name files by their real names, which carry the version.
    fn is_in(&self, maps: &str) -> bool {
        maps.lines().filter_map(|line| line.rsplit_once('/')).any(|(_, name)| name.starts_with(self.file))
    }
}

fn own(file: &str) -> Option<PathBuf> {
    let beside = || env::current_exe().ok().map(|exe| exe.with_file_name(file));
    env::var_os("FREESTONE_SO").map(PathBuf::from).or_else(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_seen_through() {
        let maps = "7f00-7f01 r--p 0 fe:00 1 /usr/lib/libmimalloc.so.2.0\n7f02-7f03 rw-p 0 00:00 0 [heap]\n";
        assert!(Library::MIMALLOC.is_in(maps) && !Library::JEMALLOC.is_in(maps));
        assert_eq!(Library::check_loaded(None), Ok(()));
        assert!(Library::check_loaded(Some(&Library::FREESTONE)).is_err());
    }
}
