//! Programs of others, as people run them: what an allocator is worth where it is one part of the work among many.
//!
//! Called by [`crate::runner`] with the environment of an allocator that is preloaded, or with none for the C library's own.
//! A program gets inputs that are the same each time, made by the code here; what it prints is compared with what this code
//! computes or knows, since an allocator that breaks a program can be as fast as it likes. Figures are those that the kernel
//! keeps about the process and its children ([`stage`]).
//!
//! The programs are Debian's, from `/usr/bin` only: what stands earlier on somebody's path (a version manager's wrapper) would
//! be measured instead.

mod compilers;
mod ghostscript;
mod scripts;
mod server;
mod solver;
mod stage;

use crate::watch::Sample;
use stage::{Size, Stage};
use std::fs;
use std::path::Path;
use std::process::Command;

/// One program with its work.
pub struct Program {
    /// The name in tables and on the command line.
    pub name: &'static str,
    /// What it does, for the usage.
    pub what: &'static str,
    /// The files that it needs, each with its Debian package.
    needs: &'static [(&'static str, &'static str)],
    run: fn(&Stage) -> Result<Sample, String>,
}

/// All of them, in the order of the tables. Each takes 0.5 to 2 s on a machine of 2026.
pub const PROGRAMS: [Program; 9] = [
    Program {
        name: "sqlite3",
        what: "tables, indexes, joins and thousands of statements, in memory and in a file",
        needs: &[("/usr/bin/sqlite3", "sqlite3")],
        run: scripts::sqlite3,
    },
    Program {
        name: "python3",
        what: "objects, dictionaries, strings and JSON, with PYTHONMALLOC=malloc",
        needs: &[("/usr/bin/python3", "python3")],
        run: scripts::python3,
    },
    Program {
        name: "lua",
        what: "trees of tables, strings, closures",
        needs: &[("/usr/bin/lua5.4", "lua5.4")],
        run: scripts::lua,
    },
    Program {
        name: "ruby",
        what: "objects, strings, hashes, arrays that grow",
        needs: &[("/usr/bin/ruby", "ruby")],
        run: scripts::ruby,
    },
    Program {
        name: "ghostscript",
        what: "pages of text, curves and images out of PostScript and PDF, drawn into a bitmap",
        needs: &[("/usr/bin/gs", "ghostscript")],
        run: ghostscript::pages,
    },
    Program {
        name: "z3",
        what: "satisfiability of bit vectors, integers, arrays and quantified equations",
        needs: &[("/usr/bin/z3", "z3")],
        run: solver::z3,
    },
    Program {
        name: "clang",
        what: "compiles templates of C++ with -O1",
        needs: &[("/usr/bin/clang++", "clang"), ("/usr/bin/g++", "g++")],
        run: compilers::clang,
    },
    Program {
        name: "g++",
        what: "compiles templates of C++ with -O1",
        needs: &[("/usr/bin/g++", "g++")],
        run: compilers::gplusplus,
    },
    Program {
        name: "redis",
        what: "the server, filled by redis-cli and asked by redis-benchmark; their share is not counted",
        needs: &[
            ("/usr/bin/redis-server", "redis-server"),
            ("/usr/bin/redis-cli", "redis-tools"),
            ("/usr/bin/redis-benchmark", "redis-tools"),
        ],
        run: server::redis,
    },
];

impl Program {
    /// The program of that name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        PROGRAMS.iter().find(|program| program.name == name).ok_or_else(|| format!("no program is named {name:?}"))
    }

    /// Why it cannot be run here, if it cannot.
    pub fn missing(&self) -> Option<String> {
        let (file, package) = self.needs.iter().find(|(file, _)| !Path::new(file).exists())?;
        Some(format!("{} is left out: there is no {file}, the Debian package {package} brings it", self.name))
    }

    /// Does the work once. Inputs and whatever the program writes lie in a folder of its own within `scratch`; `prepare` clears
    /// the environment and says which allocator it is. An error if the program fails or prints something wrong.
    pub fn run(&self, scratch: &Path, prepare: &dyn Fn(&mut Command)) -> Result<Sample, String> {
        let sample = self.run_at(Size::Full, scratch, prepare)?;
        stage::check_peak(sample.grown_kib).map(|()| sample)
    }

    fn run_at(&self, size: Size, scratch: &Path, prepare: &dyn Fn(&mut Command)) -> Result<Sample, String> {
        let failed = |what: String| format!("{}: {what}", self.name);
        let folder = scratch.join(self.name);
        let made = fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
        let folder = made.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
        (self.run)(&Stage { size, folder, prepare }).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    /// The small size, twice in the same folder: as a first run, which makes the inputs, and as the next one finds them.
    fn runs_small(name: &str) {
        let program = Program::named(name).expect("it is in the list");
        assert_eq!(program.missing(), None);
        let scratch = env::temp_dir().join(format!("freestone-bench-{}", std::process::id()));
        let run = || {
            let sample = program.run_at(Size::Small, &scratch, &|command| {
                command.env_clear();
            });
            sample.expect("it does its work")
        };
        let (first, second) = (run(), run());
        assert_eq!(first.checksum, second.checksum);
        assert!(second.cpu_ns > 0 && second.minor_faults > 0);
        fs::remove_dir_all(scratch.join(name)).expect("the folder is this test's");
        let _ = fs::remove_dir(scratch);
    }

    macro_rules! run_small {
        ($($test:ident: $name:literal),+ $(,)?) => {$(
            #[test]
            fn $test() {
                runs_small($name);
            }
        )+};
    }

    run_small!(
        sqlite3: "sqlite3", python3: "python3", lua: "lua", ruby: "ruby", ghostscript: "ghostscript", z3: "z3",
        clang: "clang", gplusplus: "g++", redis: "redis",
    );

    #[test]
    fn a_missing_program_is_told_with_its_package() {
        let program = Program { needs: &[("/no/such/file", "the-package")], ..PROGRAMS[0] };
        assert!(program.missing().is_some_and(|why| why.contains("/no/such/file") && why.contains("the-package")));
    }
}
