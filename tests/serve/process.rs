//! The processes of a test: the agent and Redis. They end with the test.

use std::fs::File;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exirate::cluster::ClusterSettings;
use exirate::spool::open_directory;

use crate::client::Client;

pub(crate) use kit::{Process, TIMEOUT, until};

/// Stops the threads of a test that look at this, also when the test fails.
pub(crate) struct Stops<'s>(pub(crate) &'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A Redis on a unix socket in a folder.
pub(crate) struct Redis {
    pub(crate) process: Process,
}

impl Redis {
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        let socket = folder.join("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .args(options)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is needed: apt-get install redis-server");
        let redis = Self { process: Process(child) };
        until("Redis listens", || UnixStream::connect(&socket).is_ok());
        redis
    }
}

/// A machine with an agent.
pub(crate) struct Machine {
    pub(crate) folder: tempfile::TempDir,
}

impl Machine {
    /// One whose configuration has these lines in `[redis]` and `[agent]`.
    pub(crate) fn new(redis: &str, agent: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        machine.configure(redis, agent);
        machine
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One whose Redis is another than [`Machine::redis`].
    pub(crate) fn of(redis: &str, agent: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        machine.set(redis, agent);
        machine
    }

    pub(crate) fn configure(&self, redis: &str, agent: &str) {
        let socket = self.path("redis.sock");
        self.set(&format!("server = \"unix://{}\"\n{redis}", socket.display()), agent);
    }

    /// Writes a configuration with these lines in `[redis]` and `[agent]`.
    pub(crate) fn set(&self, redis: &str, agent: &str) {
        let text = format!(
            "[listen]\nagent = \"{}\"\n[redis]\n{redis}\n[agent]\nservers = 2\n{agent}\n",
            self.path("agent.sock").display(),
        );
        std::fs::write(self.path("exirate.toml"), text).unwrap();
    }

    /// Has the libraries there share their limits with those of another server, through the agent.
    /// The settings have these lines as well.
    pub(crate) fn share(&self, more: &str) {
        let directory = open_directory(self.folder.path(), true).unwrap();
        let socket = self.path("agent.sock");
        let config = self.path("exirate.toml");
        let text = format!(
            "agent_user 0\nservers 2\nsocket {}\nconfig {}\n{more}",
            socket.display(),
            config.display()
        );
        ClusterSettings::parse(text.as_bytes()).unwrap().write(&directory).unwrap();
    }

    /// What `exirate doctor` says.
    pub(crate) fn doctor(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.arg("doctor").arg("--spool").arg(self.folder.path());
        let output = command.stdin(Stdio::null()).env("NO_COLOR", "1").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // However wide the screen is.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn redis(&self) -> Redis {
        Redis::start(self.folder.path(), &[])
    }

    /// The command that starts the agent; its log is in the file `log`.
    pub(crate) fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(["serve", "agent", "--config"]).arg(self.path("exirate.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
        command
    }

    /// Starts the agent, and waits until it listens.
    pub(crate) fn start(&self) -> Process {
        let agent = Process(self.command().spawn().unwrap());
        let socket = self.path("agent.sock");
        until("the agent listens", || UnixStream::connect(&socket).is_ok());
        agent
    }

    /// Starts the agent, and waits until it decides.
    pub(crate) fn start_deciding(&self) -> Process {
        let agent = self.start();
        self.until_decided();
        agent
    }

    pub(crate) fn until_decided(&self) {
        let mut client = self.client();
        until("a request is decided", || client.ask("warm-up").is_ok());
    }

    /// A client of the agent that listens, or will.
    pub(crate) fn client_of_next(&self) -> Client {
        let mut client = None;
        until("the agent listens", || {
            client = Client::connect(&self.path("agent.sock")).ok();
            client.is_some()
        });
        client.unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.path("agent.sock")).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn until_logged(&self, text: &str) {
        let begun = Instant::now();
        while !self.log().contains(text) {
            assert!(begun.elapsed() < TIMEOUT, "{text} is not in\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What systemd would receive.
pub(crate) struct Manager {
    socket: UnixDatagram,
    pub(crate) path: PathBuf,
}

impl Manager {
    pub(crate) fn new(machine: &Machine) -> Self {
        let path = machine.path("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, path }
    }

    /// Waits for a message that begins like this, and returns it.
    pub(crate) fn next(&self, start: &str) -> String {
        let mut buffer = [0; 1000];
        loop {
            let bytes = self.socket.recv(&mut buffer).unwrap();
            let message = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
            if message.starts_with(start) {
                return message;
            }
        }
    }
}
