//! The memory control group of this process: where its files are, and what they say (`cgroups(7)`). Called by `pressure.rs`, in
//! the middle of an allocation; makes system calls, with buffers on the stack.
//!
//! `/proc/self/cgroup` names the group, as a path in its hierarchy; `/proc/self/mountinfo` says where that hierarchy, or a part
//! of it, is mounted. Of the group and those above it, as far as they are visible, the one with the smallest limit is taken:
//! what other groups inside a larger one use is not seen.
//!
//! | | version 2 | version 1 |
//! |---|---|---|
//! | limit | `memory.max`, `memory.high` | `memory.limit_in_bytes` |
//! | usage | `memory.current` | `memory.usage_in_bytes` |
//! | of it inactive file pages | `memory.stat`: `inactive_file` | `memory.stat`: `total_inactive_file` |
//!
//! Usage counts file pages, which fill every group in time and are dropped without loss. So the inactive ones are taken off
//! (what Kubernetes calls the working set); the active ones are not, as dropping them costs reads.

use crate::sys;
use core::ffi::CStr;
use core::ops::ControlFlow;

/// The longest path of a file here, its zero byte included.
const LONGEST: usize = 512;

/// Bytes of the longest line of `/proc` that is looked at. Those of control groups are shorter.
const LONGEST_LINE: usize = 1024;

/// From here on a limit is none: version 1 writes it as the greatest number of pages there is.
const NO_LIMIT: usize = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    const fn limits(self) -> &'static [&'static [u8]] {
        match self {
            Self::One => &[b"/memory.limit_in_bytes"],
            Self::Two => &[b"/memory.max", b"/memory.high"],
        }
    }

    const fn usage(self) -> &'static [u8] {
        match self {
            Self::One => b"/memory.usage_in_bytes",
            Self::Two => b"/memory.current",
        }
    }

    const fn inactive_file(self) -> &'static [u8] {
        match self {
            Self::One => b"total_inactive_file ",
            Self::Two => b"inactive_file ",
        }
    }
}

/// A directory with the files of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    version: Version,
    directory: Path,
}

impl Group {
    /// No group: nothing about it can be read.
    pub(crate) const NONE: Self = Self { version: Version::One, directory: Path::EMPTY };

    /// Becomes the group that limits this process the most; `None` where none does. In place, and by small steps: whoever
    /// allocates may have little stack.
    #[cold]
    pub(crate) fn find(&mut self) -> Option<()> {
        let mut path = Path::EMPTY;
        self.version = own_group(&mut path)?;
        let top = self.enter(path.bytes())?;
        self.climb(top)
    }

    /// Becomes the group at `path`; returns the length of the path of the mount point.
    fn enter(&mut self, path: &[u8]) -> Option<usize> {
        let mut top = None;
        each_line::<LONGEST_LINE>(c"/proc/self/mountinfo", |line| {
            let Some((root, point)) = mount(line, self.version) else { return ControlFlow::Continue(()) };
            top = self.directory.set(&[point, below(path, root)]).map(|()| point.len());
            if top.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        top
    }

    /// Becomes the group with the smallest limit of this one and those above, down to a path as long as `top`.
    fn climb(&mut self, top: usize) -> Option<()> {
        let mut best: Option<(usize, usize)> = None;
        let mut path = self.directory.bytes();
        loop {
            let limit = limit(self.version, path).filter(|limit| best.is_none_or(|(least, _)| *limit < least));
            best = limit.map(|limit| (limit, path.len())).or(best);
            if path.len() <= top {
                break;
            }
            path = parent(path, top);
        }
        best.map(|(_, length)| self.directory.cut(length))
    }

    /// The limit that is in force now, in bytes.
    pub(crate) fn limit(&self) -> Option<usize> {
        limit(self.version, self.directory.bytes())
    }

    /// Bytes in use, without inactive file pages where it is more than `enough`. `None`: not readable.
    pub(crate) fn used(&self, enough: usize) -> Option<usize> {
        let usage = number(self.directory.bytes(), self.version.usage())?;
        if usage <= enough {
            return Some(usage);
        }
        // The kernel adds these figures up when they are asked for, which takes longer.
        let (mut inactive, mut stat) = (0, Path::EMPTY);
        stat.set(&[self.directory.bytes(), b"/memory.stat"])?;
        each_line::<128>(stat.c_str(), |line| {
            match line.strip_prefix(self.version.inactive_file()).and_then(decimal) {
                Some(bytes) => inactive = bytes,
                None => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        });
        Some(usage.saturating_sub(inactive))
    }
}

/// The limit of the group in `directory`.
fn limit(version: Version, directory: &[u8]) -> Option<usize> {
    let limits = version.limits().iter().filter_map(|name| number(directory, name));
    limits.min().filter(|limit| *limit < NO_LIMIT)
}

/// Finds the path of this process's group in its hierarchy.
fn own_group(path: &mut Path) -> Option<Version> {
    let mut version = None;
    each_line::<LONGEST_LINE>(c"/proc/self/cgroup", |line| {
        // Version 1's line counts where there is one: a controller is in one hierarchy only.
        match (membership(line), version) {
            (None, _) | (Some((Version::Two, _)), Some(_)) => {}
            (Some((found, text)), _) => version = path.set(&[text]).map(|()| found),
        }
        ControlFlow::Continue(())
    });
    version
}

/// The memory group's version and path in a line of `/proc/self/cgroup`: `4:memory:/path`, or `0::/path`.
fn membership(line: &[u8]) -> Option<(Version, &[u8])> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if has_word(controllers, b"memory") {
        return Some((Version::One, path));
    }
    (number == b"0" && controllers.is_empty()).then_some((Version::Two, path))
}

/// Which part of the hierarchy is mounted, and where, in a line of `/proc/self/mountinfo`, if that is the hierarchy of memory:
/// `42 32 0:27 /part /mount/point rw shared:9 - cgroup cgroup rw,memory`.
fn mount(line: &[u8], version: Version) -> Option<(&[u8], &[u8])> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let fits = match version {
        Version::One => kind == b"cgroup" && has_word(options, b"memory"),
        Version::Two => kind == b"cgroup2",
    };
    fits.then_some((root, point))
}

/// What to add to a mount point for the group at `path`, where the part of the hierarchy below `root` is mounted. A group
/// outside that part has its container's at the mount point.
fn below<'a>(path: &'a [u8], root: &[u8]) -> &'a [u8] {
    let root = if root == b"/" { b"" } else { root };
    match path.strip_prefix(root) {
        Some(rest) if rest.len() > 1 && rest.starts_with(b"/") && !rest.starts_with(b"/..") => rest,
        _ => b"",
    }
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|item| item == word)
}

/// A number in decimal; `None` for anything else, as version 2's `max`.
fn decimal(text: &[u8]) -> Option<usize> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// The number that a file of a directory holds.
#[inline(never)]
fn number(directory: &[u8], name: &[u8]) -> Option<usize> {
    let (mut found, mut path) = (None, Path::EMPTY);
    path.set(&[directory, name])?;
    each_line::<64>(path.c_str(), |line| {
        found = decimal(line);
        ControlFlow::Break(())
    });
    found
}

/// A path without its last part; no shorter than `least`.
fn parent(path: &[u8], least: usize) -> &[u8] {
    let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..cut.max(least)).unwrap_or_default()
}

/// A path that fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Path {
    /// Zeroes behind `length`, one of them at least.
    bytes: [u8; LONGEST],
    length: usize,
}

impl Path {
    const EMPTY: Self = Self { bytes: [0; LONGEST], length: 0 };

    /// Becomes the parts, one behind the other; `None` where that is too long.
    fn set(&mut self, parts: &[&[u8]]) -> Option<()> {
        self.cut(0);
        for part in parts {
            let end = self.length + part.len();
            // The last byte stays zero.
            self.bytes[..LONGEST - 1].get_mut(self.length..end)?.copy_from_slice(part);
            self.length = end;
        }
        Some(())
    }

    /// Becomes shorter.
    fn cut(&mut self, length: usize) {
        self.bytes.iter_mut().skip(length).for_each(|byte| *byte = 0);
        self.length = self.length.min(length);
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// Shows the lines of a file that are shorter than `N` bytes; none where it cannot be read.
#[inline(never)]
pub(crate) fn each_line<const N: usize>(path: &CStr, visit: impl FnMut(&[u8]) -> ControlFlow<()>) {
    if let Some(file) = File::open(path) {
        lines::<N>(|room| file.read(room), visit);
    }
}

/// The same of what `read` puts into the room that it is given, up to the first 0.
fn lines<const N: usize>(mut read: impl FnMut(&mut [u8]) -> usize, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) {
    let (mut buffer, mut held, mut is_cut) = ([0; N], 0, false);
    loop {
        let filled = held + read(&mut buffer[held..]);
        let mut rest = &buffer[..filled];
        while let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(length);
            if !core::mem::take(&mut is_cut) && visit(line).is_break() {
                return;
            }
            rest = &behind[1..];
        }
        if filled == held {
            if held > 0 && !is_cut {
                let _ = visit(rest);
            }
            return;
        }
        held = rest.len();
        buffer.copy_within(filled - held..filled, 0);
        // A line that is too long: what follows of it is left out as well.
        if held == N {
            (held, is_cut) = (0, true);
        }
    }
}

/// A file that is open for reading.
struct File(usize);

impl File {
    const HERE: usize = (-100_isize).cast_unsigned();
    const CLOSE_ON_EXEC: usize = 0x8_0000;

    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: reads the path.
        let opened = unsafe { sys::call(sys::OPENAT, [Self::HERE, path.as_ptr().addr(), Self::CLOSE_ON_EXEC, 0, 0, 0]) };
        opened.ok().map(Self)
    }

    /// Reads into `room`. Returns bytes: 0 at the end, and where it fails.
    fn read(&self, room: &mut [u8]) -> usize {
        // SAFETY: writes `room`, at most.
        let read = unsafe { sys::call(sys::READ, [self.0, room.as_mut_ptr().expose_provenance(), room.len(), 0, 0, 0]) };
        read.unwrap_or(0).min(room.len())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the file is this value's own.
        let _ = unsafe { sys::call(sys::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    use std::vec::Vec;
    use std::{fs, string::String};

    #[test]
    fn the_group_is_named_by_the_line_of_its_version() {
        assert_eq!(membership(b"4:memory:/a/b"), Some((Version::One, &b"/a/b"[..])));
        assert_eq!(membership(b"9:cpu,memory,pids:/a:b"), Some((Version::One, &b"/a:b"[..])));
        assert_eq!(membership(b"0::/user.slice"), Some((Version::Two, &b"/user.slice"[..])));
        for line in ["1:cpu:/", "2:name=memory:/", "3:memory2:/", "0:x:/", "0:", "", "memory"] {
            assert_eq!(membership(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_hierarchy_is_found_among_the_mounts() {
        let one = b"42 32 0:27 /part /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup none rw,memory";
        let two = b"35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(mount(one, Version::One), Some((&b"/part"[..], &b"/sys/fs/cgroup/memory"[..])));
        assert_eq!(mount(two, Version::Two), Some((&b"/"[..], &b"/sys/fs/cgroup"[..])));
        assert_eq!((mount(one, Version::Two), mount(two, Version::One)), (None, None));
        for line in
            [&b"42 32 0:27 / /cpu rw - cgroup none rw,cpu"[..], b"21 1 8:1 / / rw - ext4 /dev/memory rw,memory", b"42", b""]
        {
            assert_eq!(mount(line, Version::One), None);
        }
    }

    #[test]
    fn a_part_of_the_hierarchy_may_be_mounted() {
        for (path, root, expected) in [
            ("/a/b", "/", "/a/b"),
            ("/", "/", ""),
            ("/docker/1", "/docker/1", ""),
            ("/docker/1/in", "/docker/1", "/in"),
            ("/docker/12", "/docker/1", ""),
            ("/other", "/docker/1", ""),
            ("/../other", "/", ""),
        ] {
            assert_eq!(below(path.as_bytes(), root.as_bytes()), expected.as_bytes(), "{path} in {root}");
        }
    }

    /// The lines of `text`, read by `step` bytes at a time, through a buffer of eight.
    fn lines_of(text: &str, step: usize) -> Vec<String> {
        let (mut rest, mut found) = (text.as_bytes(), Vec::new());
        let read = |room: &mut [u8]| {
            let (now, later) = rest.split_at(step.min(room.len()).min(rest.len()));
            room[..now.len()].copy_from_slice(now);
            rest = later;
            now.len()
        };
        lines::<8>(read, |line| {
            found.push(String::from_utf8_lossy(line).into_owned());
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn lines_come_whole_or_not_at_all() {
        for step in 1..20 {
            assert_eq!(lines_of("ab\n\nseven77\nlast", step), ["ab", "", "seven77", "last"]);
            assert_eq!(lines_of("eight888\nok\nfar too long for it\nfine\n", step), ["ok", "fine"]);
            assert_eq!(lines_of("no end in sight", step), [""; 0]);
            assert_eq!(lines_of("", step), [""; 0]);
        }
    }

    #[test]
    fn paths_are_built_and_cut_within_their_bounds() {
        let mut path = Path::EMPTY;
        assert_eq!(path.set(&[b"/mount", b"/a/b"]), Some(()));
        assert_eq!((path.bytes(), path.c_str()), (&b"/mount/a/b"[..], c"/mount/a/b"));
        path.cut(8);
        assert_eq!((path.bytes(), path.c_str()), (&b"/mount/a"[..], c"/mount/a"));
        assert_eq!(path.set(&[&[b'x'; LONGEST - 1]]), Some(()));
        assert_eq!((path.bytes().len(), path.c_str().to_bytes().len()), (LONGEST - 1, LONGEST - 1));
        assert_eq!(path.set(&[&[b'x'; LONGEST - 1], b"y"]), None);
        assert_eq!(parent(b"/mount/a/b", 6), b"/mount/a");
        assert_eq!(
            (parent(b"/mount/a", 6), parent(b"/mount", 6), parent(b"", 0)),
            (&b"/mount"[..], &b"/mount"[..], &b""[..])
        );
    }

    /// A directory with files, removed when dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let tree = Self(std::env::temp_dir().join(std::format!("freestone-cgroup-{}-{name}", std::process::id())));
            for (file, text) in files {
                let path = tree.0.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }

        fn group(&self, version: Version, path: &str) -> Option<Group> {
            let (mut group, top) = (Group { version, ..Group::NONE }, self.0.as_os_str().as_bytes());
            group.directory.set(&[top, path.as_bytes()])?;
            group.climb(top.len()).map(|()| group)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let tree = Tree::new(
            "two",
            &[
                ("a/memory.max", "900\n"),
                ("a/memory.high", "max\n"),
                ("a/memory.current", "850\n"),
                ("a/memory.stat", "anon 500\ninactive_anon 7\ninactive_file 200\nactive_file 100\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/memory.high", "1000\n"),
                ("c/memory.max", "max\n"),
                ("c/memory.high", "max\n"),
                ("d/memory.max", "900\n"),
                ("d/memory.high", "300\n"),
            ],
        );
        let group = tree.group(Version::Two, "/a/b").unwrap();
        assert!(group.directory.bytes().ends_with(b"/a"), "{group:?}");
        assert_eq!((group.limit(), group.used(900), group.used(849)), (Some(900), Some(850), Some(650)));
        assert_eq!(tree.group(Version::Two, "/c"), None);
        assert_eq!(tree.group(Version::Two, "/nowhere"), None);
        assert_eq!(tree.group(Version::Two, "/d").and_then(|group| group.limit()), Some(300));
        assert_eq!(tree.group(Version::Two, "/d").and_then(|group| group.used(0)), None);
    }

    #[test]
    fn version_one_says_no_limit_by_the_greatest_number() {
        let files = [
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("a/memory.limit_in_bytes", "4096\n"),
            ("a/memory.usage_in_bytes", "4000\n"),
            ("a/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n"),
        ];
        let tree = Tree::new("one", &files);
        let group = tree.group(Version::One, "/a").unwrap();
        assert_eq!((group.limit(), group.used(4000), group.used(3999)), (Some(4096), Some(4000), Some(3000)));
        assert_eq!(tree.group(Version::One, ""), None);
    }

    #[test]
    fn a_group_that_cannot_be_read_limits_nothing() {
        assert_eq!((Group::NONE.limit(), Group::NONE.used(0)), (None, None));
        // Whatever this machine has: it is looked at without harm.
        let mut group = Group::NONE;
        std::eprintln!("this process: {:?}", group.find().and_then(|()| group.limit()));
    }
}
