//! A real Exim in its own folder.

use crate::smtp::Client;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Debian's Exim.
pub const PROGRAM: &str = "/usr/sbin/exim4";
/// The user it runs as.
pub const USER: &str = "Debian-exim";

/// The address of the proxy whose word Exim takes for a client's address, if there is one.
pub const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);

/// An Exim with its own configuration, spool and logs, which are removed with
/// it.
pub struct PrivateExim {
    folder: tempfile::TempDir,
    config: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    program: PathBuf,
    daemon: Option<(Child, u16)>,
    callers: Option<crate::Process>,
    runs: AtomicUsize,
}

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code, -1 if it was ended by a signal.
    pub code: i32,
    /// What it printed, bytes outside ASCII escaped line by line.
    pub stdout: String,
    /// Its standard error, likewise.
    pub stderr: String,
}

impl PrivateExim {
    /// One with this folder and configuration, whose daemon is not started.
    pub fn new(
        folder: tempfile::TempDir,
        config: PathBuf,
        environment: Vec<(&'static str, PathBuf)>,
        program: PathBuf,
    ) -> Self {
        let (daemon, callers, runs) = (None, None, AtomicUsize::new(0));
        Self { folder, config, environment, program, daemon, callers, runs }
    }

    /// And the daemon that decides about the accounts that start it themselves.
    #[must_use]
    pub fn with_callers(mut self) -> Self {
        self.callers = Some(crate::front_ends::serve_callers(self.folder()));
        self
    }

    /// The private folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The spool directory.
    pub fn spool(&self) -> PathBuf {
        self.folder().join("spool")
    }

    /// The path at which [`crate::Setup::library`] puts the library.
    pub fn library(&self) -> PathBuf {
        self.folder().join("exirate.so")
    }

    /// The configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The contents of a log: `main`, `reject` or `panic`; empty if it does not
    /// exist.
    pub fn log(&self, name: &str) -> String {
        let path = self.folder().join(format!("log/{name}log"));
        std::fs::read(path).map(|b| lossless(&b)).unwrap_or_default()
    }

    /// Exim with this configuration; the caller adds the arguments.
    ///
    /// It is killed after two minutes, so that a test fails instead of hanging.
    pub fn command(&self) -> Command {
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["--foreground", "120"]).arg(&self.program).arg("-C").arg(&self.config);
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.current_dir(self.folder());
        command
    }

    /// Starts the daemon on a free loopback port, and waits until it listens.
    pub fn start(&mut self) -> u16 {
        for _ in 0..5 {
            let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = probe.local_addr().unwrap().port();
            drop(probe);
            let mut command = Command::new(&self.program);
            command
                .arg("-C")
                .arg(&self.config)
                .args(["-bdf", "-oX", &format!("[127.0.0.1]:{port}")])
                .env_clear()
                .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
                .envs(self.environment.iter().map(|(k, v)| (k, v)))
                .current_dir(self.folder())
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            let logs = ["mainlog", "paniclog"].map(|name| self.folder().join("log").join(name));
            let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
            let lengths = logs.each_ref().map(length);
            let mut child = command.spawn().expect("Exim can be started");
            let deadline = Instant::now() + crate::TIMEOUT;
            // A connection to the port would be counted by the connect ACL, so
            // the log is used instead.
            loop {
                let listens = format!("pid={}, ", child.id());
                if self.log("main").lines().any(|l| l.contains(&listens) && l.contains("listening"))
                {
                    self.daemon = Some((child, port));
                    return port;
                }
                if child.try_wait().unwrap().is_some() {
                    break; // another program took the port
                }
                // Or it did, and Exim would wait 30 s and try again.
                let in_use = format!("bind() to port {port} for address 127.0.0.1 failed");
                if self.log("main").contains(&in_use) {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    for (path, length) in logs.iter().zip(lengths) {
                        if let Ok(log) = std::fs::File::options().write(true).open(path) {
                            log.set_len(length).unwrap();
                        }
                    }
                    break;
                }
                assert!(Instant::now() < deadline, "no daemon:\n{}", self.log("main"));
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("the daemon does not start:\n{}\n{}", self.log("main"), self.log("panic"));
    }

    /// Stops the daemon and its open connections: their processes would write
    /// into a folder that no longer exists.
    pub fn stop(&mut self) {
        let Some((mut daemon, _)) = self.daemon.take() else { return };
        let id = daemon.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let _ = daemon.kill();
        let _ = daemon.wait();
        for child in children.unwrap_or_default().split_whitespace() {
            let Some(pid) = child.parse().ok().and_then(rustix::process::Pid::from_raw) else {
                continue;
            };
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// The daemon's port.
    pub fn port(&self) -> u16 {
        self.daemon.as_ref().expect("the daemon was started").1
    }

    /// Connects to the daemon from a loopback address, or as a client with any other address
    /// (see [`crate::Setup::proxied`]).
    pub fn connect(&self, source: Ipv4Addr) -> Client {
        if source.is_loopback() {
            return Client::connect(self.port(), source);
        }
        let mut client = Client::connect(self.port(), PROXY);
        client.send(format!("PROXY TCP4 {source} {PROXY} 40000 25\r\n").as_bytes());
        client
    }

    /// Connects from 127.0.0.1, and sends EHLO.
    pub fn session(&self) -> Client {
        let mut client = self.connect(Ipv4Addr::LOCALHOST);
        let greeting = client.expect();
        assert_eq!(greeting.code, 220, "{}", greeting.text);
        client.command("EHLO client.test");
        client
    }

    /// SMTP on standard input and output: `-bs`, or `-bh` and an address.
    ///
    /// Its standard error is in the returned file.
    pub fn pipe(&self, args: &[&str]) -> (Client, PathBuf) {
        let stderr = self.scratch("stderr");
        let mut command = self.command();
        command.args(args).stderr(std::fs::File::create(&stderr).unwrap());
        (Client::program(command), stderr)
    }

    /// Runs Exim with this input until it ends.
    pub fn run(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command();
        command.args(args);
        run(command, input)
    }

    /// Expands a string with `-be`; macros of the configuration can be used.
    ///
    /// Exim accepts arguments of at most 256 bytes.
    pub fn expand(&self, text: &str) -> Ran {
        self.run(&["-be", text], b"")
    }

    /// Waits until the main log has `count` lines that contain `text`.
    pub fn wait_for_log(&self, text: &str, count: usize) {
        self.wait_until(text, |log| log.lines().filter(|l| l.contains(text)).count() >= count);
    }

    /// Waits until the main log meets a condition.
    pub fn wait_until(&self, what: &str, found: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + crate::TIMEOUT;
        while !found(&self.log("main")) {
            assert!(Instant::now() < deadline, "no {what}:\n{}", self.log("main"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The path of a new file.
    fn scratch(&self, name: &str) -> PathBuf {
        let n = self.runs.fetch_add(1, Ordering::Relaxed);
        self.folder().join(format!("{name}.{n}"))
    }
}

impl Drop for PrivateExim {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a program with this input until it ends.
pub fn run(mut command: Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut stdin = child.stdin.take().unwrap();
    // It may end without reading all input; its output shows why.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: lossless(&output.stdout),
        stderr: lossless(&output.stderr),
    }
}

/// What Exim's own statistics say of a log. It reads the log from its standard input: a path with
/// ".Z" or ".gz" anywhere, as a temporary directory's name may have it, is uncompressed.
pub fn eximstats(log: &str) -> String {
    let mut command = Command::new("/usr/sbin/eximstats");
    command.args(["-txt", "-nvr"]);
    let ran = run(command, log.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

/// The user and group ids of a system user.
pub fn user(name: &str) -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let fields: Vec<&str> = passwd
        .lines()
        .map(|l| l.split(':').collect::<Vec<_>>())
        .find(|f| f.first() == Some(&name))
        .unwrap_or_else(|| panic!("there is no user {name}"));
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}

/// Makes a path accessible to all users: Exim drops root before it reads most
/// files.
pub fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Converts to text; bytes outside ASCII become `\xNN`.
pub fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii() {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}
