//! redis-server on loopback. Its clients run without the allocator under test and are not counted.
//!
//! redis-cli fills it with known data; redis-benchmark then asks and overwrites at random, within the same keys: it takes no seed,
//! so that the number of keys is known but not their values.
//!
//! Debian's server is linked with jemalloc. Where no other allocator is preloaded, the C library is: its `malloc` comes first then.

use super::stage::{Running, Stage, checksum};
use crate::watch::Sample;
use fastrand::Rng;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// What is preloaded where nothing else is.
const C_LIBRARY: &str = "libc.so.6";

/// Polls of 5 ms each until the server listens: 30 seconds.
const POLLS: usize = 6000;

/// Keys that the benchmark leaves behind: a hash and a sorted set. Its list is empty again.
const LEFT: usize = 2;

/// The kinds of requests, in the order in which redis-benchmark makes them: as many pops as pushes.
const KINDS: &str = "set,get,lpush,rpop,hset,zadd";

/// Fills a server and asks it.
pub fn redis(stage: &Stage) -> Result<Sample, String> {
    let keys = stage.pick(30_000, 500);
    let (commands, left) = commands(keys);
    stage.input("commands", &commands)?;
    drop(commands);
    let server = Server::start(stage)?;
    server.fill()?;
    server.load(keys, stage.pick(100_000, 1000))?;
    let size = server.ask(&["dbsize"])?;
    let expected = (left + LEFT).to_string();
    if size != expected {
        return Err(format!("holds {size} keys in place of {expected}"));
    }
    Ok(Sample { checksum: checksum(&size), ..server.stop()? })
}

/// Strings that grow and are replaced, lists, hashes and sorted sets, some of which go again. With the keys that are left.
fn commands(keys: usize) -> (String, usize) {
    let random = &mut Rng::with_seed(1);
    let mut text = String::new();
    for key in 0..keys {
        // The name is that of redis-benchmark's keys.
        let _ = writeln!(text, "SET key:{key:012} {}", "v".repeat(random.usize(1..120)));
        let _ = writeln!(text, "RPUSH list:{} {}", key / 16, "l".repeat(random.usize(1..60)));
        let _ = writeln!(text, "HSET hash:{} field{} {}", key / 20, key % 20, "h".repeat(random.usize(1..70)));
        let _ = writeln!(text, "ZADD set:{} {} member{key}", key / 100, random.u16(..));
        let _ = writeln!(text, "APPEND key:{:012} more", random.usize(..=key));
    }
    let (lists, hashes, sets) = (keys.div_ceil(16), keys.div_ceil(20), keys.div_ceil(100));
    text.extend((0..hashes).step_by(2).map(|hash| format!("DEL hash:{hash}\n")));
    text.extend((0..lists).step_by(3).map(|list| format!("UNLINK list:{list}\n")));
    (text, keys + (lists - lists.div_ceil(3)) + hashes / 2 + sets)
}

/// A running server; asked to end when it is dropped.
struct Server<'a> {
    stage: &'a Stage<'a>,
    running: Option<Running>,
    port: u16,
}

impl<'a> Server<'a> {
    /// Starts a server and waits until it listens.
    fn start(stage: &'a Stage) -> Result<Self, String> {
        let port = free_port()?;
        let mut command = stage.command("redis-server");
        if !command.get_envs().any(|(name, _)| name == OsStr::new("LD_PRELOAD")) {
            command.env("LD_PRELOAD", C_LIBRARY);
        }
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let server = Self { stage, running: Some(stage.start(&mut command)?), port };
        match (0..POLLS).any(|_| listens(port) || pause()) {
            true => Ok(server),
            false => Err("does not listen".into()),
        }
    }

    fn client(&self, program: &str) -> Command {
        let mut command = self.stage.helper(program);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        command
    }

    fn ask(&self, words: &[&str]) -> Result<String, String> {
        self.stage.ask(self.client("redis-cli").args(words))
    }

    fn fill(&self) -> Result<(), String> {
        let commands = File::open(self.stage.folder.join("commands")).map_err(|error| error.to_string())?;
        let said = self.stage.ask(self.client("redis-cli").arg("--pipe").stdin(commands))?;
        said.contains("errors: 0,").then_some(()).ok_or(said)
    }

    /// So many requests of each kind over 20 connections, 64 at a time.
    fn load(&self, keys: usize, requests: usize) -> Result<(), String> {
        let mut command = self.client("redis-benchmark");
        command.args(["-q", "-c", "20", "-P", "64", "-d", "200", "-t", KINDS]);
        let said = self.stage.ask(command.args(["-r", &keys.to_string(), "-n", &requests.to_string()]))?;
        said.contains("ZADD").then_some(()).ok_or(said)
    }

    /// Ends the server; what it took from its start on.
    fn stop(mut self) -> Result<Sample, String> {
        self.ask(&["shutdown", "nosave"])?;
        self.running.take().ok_or("is stopped already")?.finish()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = self.ask(&["shutdown", "nosave"]);
            let _ = running.finish();
        }
    }
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Waits for the next poll; nothing has come about by that.
fn pause() -> bool {
    sleep(Duration::from_millis(5));
    false
}

/// The kernel names a port that is free at this moment.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no port: {error}"))
}
