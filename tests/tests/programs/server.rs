//! redis-server on loopback under redis-benchmark, with saves in the background, and a second server that reads what was
//! saved.

use crate::stage::{Mode, Stage, assert_no_complaint};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

/// Keys whose values this test writes itself.
const KNOWN: usize = 20000;

/// Polls of 50 ms each: 60 seconds.
const POLLS: usize = 1200;

/// A load, two saves while it runs and one after it; the server that starts from the file holds the same data.
pub fn redis(mode: Mode) {
    let stage = Stage::new("redis", mode, &["redis-server", "redis-cli", "redis-benchmark"]);
    let first = Server::start(&stage, "first");
    let fill =
        format!("for i = 1, {KNOWN} do redis.call('SET', 'known:' .. i, string.rep('v', i % 300)) end return 'filled'");
    assert_eq!(first.ask(&["eval", &fill, "0"]), "filled");
    let load = first.load();
    first.save();
    first.save();
    first.finish(load);
    first.save();
    let (digest, size) = (first.ask(&["debug", "digest"]), first.ask(&["dbsize"]));
    first.stop();

    let second = Server::start(&stage, "second");
    assert_eq!(second.ask(&["debug", "digest"]), digest);
    assert_eq!(second.ask(&["dbsize"]), size);
    assert_eq!(second.ask(&["strlen", "known:299"]), "299");
    second.stop();
}

/// A running server; ended when it is dropped.
struct Server<'a> {
    stage: &'a Stage,
    child: Child,
    port: String,
    log: PathBuf,
}

impl<'a> Server<'a> {
    /// Starts a server on a free port of the loopback interface and waits until it answers.
    fn start(stage: &'a Stage, name: &str) -> Self {
        let port = free_port().to_string();
        let log = stage.folder.join(name).with_extension("log");
        let file = File::create(&log).expect("the folder can be written");
        let mut command = Command::new("redis-server");
        stage.prepare(&mut command);
        command.args(["--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "local", "--port", &port]);
        let child = command.stdout(file.try_clone().expect("a second handle")).stderr(file).spawn().expect("it starts");
        let server = Self { stage, child, port, log };
        server.wait_for("it answers", || server.try_ask(&["ping"]).as_deref() == Some("PONG"));
        server
    }

    fn ask(&self, words: &[&str]) -> String {
        self.stage.output(self.client("redis-cli").args(words))
    }

    /// `None` where the server does not answer (yet).
    fn try_ask(&self, words: &[&str]) -> Option<String> {
        let output = self.client("redis-cli").args(words).output().expect("redis-cli starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn client(&self, program: &str) -> Command {
        let mut command = self.stage.command(program);
        command.args(["-h", "127.0.0.1", "-p", &self.port]);
        command
    }

    /// A bounded load: 30,000 requests of each kind over 20 connections.
    fn load(&self) -> Child {
        let kinds = "set,get,incr,lpush,lpop,sadd,hset,zadd,lrange_100";
        let mut command = self.client("redis-benchmark");
        command.args(["-q", "-n", "30000", "-c", "20", "-r", "5000", "-d", "100", "-t", kinds]);
        let file = File::create(self.load_log()).expect("the folder can be written");
        command.stdout(file.try_clone().expect("a second handle")).stderr(file).spawn().expect("redis-benchmark starts")
    }

    fn load_log(&self) -> PathBuf {
        self.log.with_extension("load")
    }

    fn finish(&self, mut load: Child) {
        let status = load.wait().expect("it can be waited for");
        let said = fs::read_to_string(self.load_log()).unwrap_or_default();
        assert!(status.success(), "redis-benchmark ended with {status}\n{said}");
        assert_no_complaint(&said);
        assert!(said.contains("ZADD") && said.contains("requests per second"), "{said}");
    }

    /// A child of the server, made by fork under load, writes the data to the file.
    fn save(&self) {
        assert_eq!(self.ask(&["bgsave"]), "Background saving started");
        self.wait_for("the save ends", || self.ask(&["info", "persistence"]).contains("rdb_bgsave_in_progress:0"));
        assert!(self.ask(&["info", "persistence"]).contains("rdb_last_bgsave_status:ok"), "{}", self.said());
    }

    fn stop(mut self) {
        let _ = self.try_ask(&["shutdown", "nosave"]);
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "redis-server ended with {status}\n{}", self.said());
        assert_no_complaint(&self.said());
    }

    fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        for _ in 0..POLLS {
            if done() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("waited in vain until {what}\n{}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel names a port that is free at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface is there");
    listener.local_addr().expect("it is bound").port()
}
