//! A server: Redis of this machine, or Valkey of the chroot that has one.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Process, until};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Redis,
    /// Redis with a clock that is an hour slow.
    SlowRedis,
    /// Valkey 8 of Debian trixie.
    Valkey,
}

/// The chroot with Valkey.
const VALKEY: &str = "/var/cache/exirate-chroots/trixie-valkey";

impl Program {
    /// The command that starts it. It also ends when the thread that starts it is killed.
    fn command(self, folder: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match self {
            Self::Redis => command.arg("redis-server"),
            Self::SlowRedis => {
                let (library, time) = (folder.join("clock.so"), folder.join("time"));
                std::fs::write(&library, crate::clock::LIBRARY).unwrap();
                std::fs::write(&time, "-3600").unwrap();
                command.env("LD_PRELOAD", library).env("FAKE_CLOCK", time).arg("redis-server")
            }
            Self::Valkey => {
                let root = Path::new(VALKEY);
                let program = root.join("usr/bin/valkey-server");
                let hint = "Valkey is needed: scripts/chroots make trixie-valkey";
                assert!(program.exists() && root.join(".complete").exists(), "{hint}");
                // With the libraries of its release, and outside of the chroot.
                let arch = std::env::consts::ARCH;
                let loader = match arch {
                    "x86_64" => "lib64/ld-linux-x86-64.so.2",
                    "aarch64" => "lib/ld-linux-aarch64.so.1",
                    other => panic!("where is the dynamic loader of {other}?"),
                };
                let libraries = root.join(format!("usr/lib/{arch}-linux-gnu"));
                command.arg(root.join(loader)).arg("--library-path").arg(libraries).arg(program)
            }
        };
        command
    }
}

/// A port of 127.0.0.1 that nothing uses, nor the one 10000 above it, which a node of a
/// cluster uses as well. Other test processes have others, most likely. Neither is one that the kernel gives to connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    loop {
        let number = START.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into());
        let port = 12000 + (number % 10000) as u16;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 10000) {
            return port;
        }
    }
}

/// A server that listens on a TCP port of 127.0.0.1 and on a unix socket.
pub struct RedisServer {
    process: Process,
    program: Program,
    pub folder: PathBuf,
    pub port: u16,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts Redis in the new folder `folder/name`, with these options. What it keeps is lost
    /// when it ends, unless they say otherwise.
    pub fn start(folder: &Path, name: &str, options: &[&str]) -> Self {
        Self::start_program(Program::Redis, folder, name, options)
    }

    /// As [`RedisServer::start`], of this program.
    pub fn start_program(program: Program, folder: &Path, name: &str, options: &[&str]) -> Self {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // Another process may have taken the port in between.
        for _ in 0..10 {
            let port = free_port();
            if let Some(process) = launch(program, &folder, port, &options) {
                return Self { process, program, folder, port, options };
            }
        }
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        panic!("{program:?} does not start: is redis-server installed? Its log:\n{log}");
    }

    /// Starts it again after [`RedisServer::kill`].
    pub fn restart(&mut self) {
        self.process = launch(self.program, &self.folder, self.port, &self.options).unwrap();
    }

    /// Kills it by SIGKILL.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    /// What `redis-cli` prints for this command.
    pub fn ask(&self, command: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        let output = cli.arg("-s").arg(self.socket()).args(command).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether it takes itself for a primary.
    pub fn is_primary(&self) -> bool {
        self.ask(&["role"]).starts_with("master")
    }

    /// Waits until its reply to a command contains `text`.
    pub fn until(&self, command: &[&str], text: &str) {
        until(&format!("{command:?} shows {text}"), || self.ask(command).contains(text));
    }
}

/// Starts a server, and waits until it replies; `None` if it ends instead.
fn launch(program: Program, folder: &Path, port: u16, options: &[String]) -> Option<Process> {
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let socket = folder.join("redis.sock");
    let _ = std::fs::remove_file(&socket);
    let mut command = program.command(folder);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "no", "--unixsocket", "redis.sock"]).args(options);
    command.current_dir(folder).stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
    let mut process = Process(command.spawn().unwrap());
    let mut replies = false;
    until("the server starts", || {
        replies = replied(&socket);
        replies || process.0.try_wait().unwrap().is_some()
    });
    replies.then_some(process)
}

/// Whether a server replies, be it with an error.
fn replied(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(b"PING\r\n").is_ok() && stream.read(&mut [0]).is_ok_and(|bytes| bytes == 1)
}
