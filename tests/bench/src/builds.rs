//! The builds of this program: one binary cannot hold every peer, so that it builds itself again for some of them.
//!
//! Called by [`crate::peers`] for the program that holds an allocator, and by `main` for whether figures mean something.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The feature that puts mimalloc 2 in the place of mimalloc 3.
pub const MIMALLOC_2: &str = "mimalloc-v2";
/// The feature that adds rpmalloc.
pub const RPMALLOC: &str = "rpmalloc";
/// The feature that adds tcmalloc.
pub const TCMALLOC: &str = "tcmalloc";

/// The packages whose build scripts take a profile with debug information for a debug build, and then leave assertions on.
const MISTAKEN: [&str; 2] = ["libmimalloc-sys", "snmalloc-sys"];
/// The same for a package of the other builds only, where the manifest's line would be one for nobody.
const TCMALLOC_PROFILE: &str = "profile.release.package.libtcmalloc-sys.debug=false";
const MANIFEST: &str = include_str!("../../../Cargo.toml");
const NAME: &str = env!("CARGO_PKG_NAME");
/// The target directory of the other builds, within that of this one.
const PEERS: &str = "bench-peers";

/// The features that this program was built with; every build but the plain one has exactly one.
fn features() -> Vec<&'static str> {
    let all = [
        (MIMALLOC_2, cfg!(feature = "mimalloc-v2")),
        (RPMALLOC, cfg!(feature = "rpmalloc")),
        (TCMALLOC, cfg!(feature = "tcmalloc")),
    ];
    all.into_iter().filter_map(|(name, on)| on.then_some(name)).collect()
}

/// Whether this program is the build with `feature` and no other.
pub fn check(feature: Option<&str>) -> Result<(), String> {
    match features() == feature.as_slice() {
        true => Ok(()),
        false => Err(format!("this program was built with {:?}, the allocator needs {feature:?}", features())),
    }
}

/// The program of the build with `feature`.
pub fn program(feature: Option<&str>) -> Result<PathBuf, String> {
    let this = env::current_exe().map_err(|error| error.to_string())?;
    match feature {
        Some(feature) if check(Some(feature)).is_err() => Ok(release()?.join(format!("{NAME}-{feature}"))),
        _ => Ok(this),
    }
}

/// Builds the program with `feature`. Cargo sees whether there is anything to do. All builds share a target directory, and what
/// is the same in all of them; each program is copied to a name of its own, since Cargo has one name for them all.
pub fn build(feature: &str) -> Result<(), String> {
    eprintln!("building {NAME} with {feature}, where it is missing or older: some minutes the first time");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet", "--package", NAME, "--features", feature, "--config", TCMALLOC_PROFILE]);
    command.arg("--target-dir").arg(beside(PEERS)?).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("its build ended with {status}"));
    }
    let copied = fs::copy(release()?.join(NAME), program(Some(feature))?);
    copied.map(drop).map_err(|error| format!("its program cannot be copied: {error}"))
}

/// Where Cargo leaves the programs of the other builds.
fn release() -> Result<PathBuf, String> {
    Ok(beside(PEERS)?.join("release"))
}

/// Where the real programs have their files.
pub fn scratch() -> Result<PathBuf, String> {
    beside("bench-programs")
}

/// A folder within the target directory of this program, which is two levels up from it.
fn beside(name: &str) -> Result<PathBuf, String> {
    let this = env::current_exe().map_err(|error| error.to_string())?;
    Ok(this.ancestors().nth(2).ok_or("this program lies in no target directory")?.join(name))
}

/// Whether this program was built so that its figures mean something.
pub fn check_figures() -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("figures of a debug build mean nothing: use --release".into());
    }
    let unset = |package: &&&str| !MANIFEST.contains(&format!("\n{package} = {{ debug = false }}"));
    match MISTAKEN.iter().find(unset) {
        Some(package) => Err(format!(
            "{package} was built with its assertions, up to 15 times slower: the workspace's [profile.release.package] \
             needs `{package} = {{ debug = false }}`"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_build_is_told_from_the_others() {
        assert_eq!(check(None).is_ok(), features().is_empty());
        assert!(check(Some("no such feature")).is_err());
    }
}
