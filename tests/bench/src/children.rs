//! One run of a workload in a process of its own: timed, or counted, or watched from outside.
//!
//! Called by [`crate::runner`]; starts this program again through [`Peer::program`].
#![forbid(unsafe_code)]

use crate::peers::Peer;
use crate::watch::{Length, Sample};
use crate::workloads::Workload;
use freestone_syscalls::{Calls, MEMORY};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use wait_timeout::ChildExt;

/// A run that has not ended so long after its shortest time hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Laps of the runs whose system calls are counted, after the one to warm up.
pub const COUNTED_LAPS: u64 = 3;

/// How often a process is asked for its resident size.
const TICK: Duration = Duration::from_millis(4);

/// Runs `workload` once and times it.
pub fn timed(peer: &Peer, workload: &Workload, time: Duration) -> Result<Sample, String> {
    let mut child = start(peer, workload, time)?;
    let Some(status) = child.wait_timeout(time + PATIENCE).map_err(text)? else {
        child.kill().and_then(|()| child.wait()).map_err(text)?;
        return Err(format!("had not ended after {} s", (time + PATIENCE).as_secs()));
    };
    let mut printed = String::new();
    child.stdout.take().ok_or("has no output")?.read_to_string(&mut printed).map_err(text)?;
    if status.success() { printed.parse() } else { Err(status.to_string()) }
}

/// Runs it for a few laps and counts the system calls that manage memory.
pub fn counted(peer: &Peer, workload: &Workload) -> Result<BTreeMap<String, u64>, String> {
    let mut command = command(peer, workload, Length::Laps(COUNTED_LAPS))?;
    command.stdout(Stdio::null());
    let counts = freestone_syscalls::count(command, Calls::Memory)?;
    Ok(MEMORY.iter().map(|&name| (name.to_string(), counts.of(name))).collect())
}

/// Runs it and looks at its resident size meanwhile: milliseconds and KiB.
pub fn watched(peer: &Peer, workload: &Workload, time: Duration) -> Result<Vec<[u64; 2]>, String> {
    let mut child = start(peer, workload, time)?;
    let begin = Instant::now();
    let mut line = Vec::new();
    while child.try_wait().map_err(text)?.is_none() {
        if let Some(kib) = resident_kib(child.id()) {
            line.push([begin.elapsed().as_millis() as u64, kib]);
        }
        thread::sleep(TICK);
    }
    // The last look may have met the process as it was being taken down.
    line.pop();
    Ok(line)
}

fn start(peer: &Peer, workload: &Workload, time: Duration) -> Result<Child, String> {
    command(peer, workload, Length::Time(time))?.stdout(Stdio::piped()).spawn().map_err(text)
}

fn command(peer: &Peer, workload: &Workload, length: Length) -> Result<Command, String> {
    let mut command = peer.program()?;
    command.args(["--child", peer.name, workload.name]);
    match length {
        Length::Time(time) => command.args(["--ms", &time.as_millis().to_string()]),
        Length::Laps(laps) => command.args(["--laps", &laps.to_string()]),
    };
    Ok(command)
}

/// `None` for a process that has just ended: the kernel then says zero or nothing.
fn resident_kib(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
