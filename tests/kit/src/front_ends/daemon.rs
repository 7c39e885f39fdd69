//! A machine with the mail front ends: a directory for the database, policies that are in
//! use, and a configuration.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{Process, until};

/// The program.
pub fn exirate(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::exirate());
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The output of a command that must succeed.
pub fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The daemon that decides about the accounts that run an Exim with the library themselves, as
/// exirate-mail@Debian-exim.service runs it: as the owner of Exim's spool directory, which is in
/// `folder`.
pub fn serve_callers(folder: &Path) -> Process {
    let spool = folder.join("spool");
    let owner = spool.metadata().unwrap();
    // The program may be where that user cannot read.
    let program = folder.join("exirate-of-callers");
    if !program.exists() {
        crate::copy_program(crate::exirate(), &program);
    }
    let log = File::options().create(true).append(true).open(folder.join("log/callers")).unwrap();
    let config = folder.join("callers.toml");
    std::fs::write(&config, "").unwrap();
    let mut command = Command::new(program);
    command.args(["serve", "mail", "--config"]).arg(config).arg("--callers").arg(&spool);
    command.uid(owner.uid()).gid(owner.gid()).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log).env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
    let daemon = Process(command.spawn().unwrap());
    let socket = spool.join("exirate/callers");
    until("the daemon listens for accounts", || UnixStream::connect(&socket).is_ok());
    daemon
}

/// The machine. Its sockets are `policy.sock` and so on in its folder.
pub struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// One with these policies (without `version = 1`), and these lines in `[mail]`.
    pub fn new(policies: &str, mail: &str) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(machine.spool()).unwrap();
        machine.apply(policies);
        machine.configure(mail);
        machine
    }

    /// One whose milter listens too, at `milter.sock`, and its daemon.
    pub fn with_milter(policies: &str, mail: &str) -> (Self, Process) {
        let machine = Self::new(policies, mail);
        let [policy, milter] = ["policy.sock", "milter.sock"].map(|name| machine.path(name));
        let (policy, milter) = (policy.display(), milter.display());
        machine.write(&format!("policy = \"unix:{policy}\"\nmilter = \"unix:{milter}\""), mail);
        let daemon = machine.start();
        until("the milter listens", || UnixStream::connect(machine.path("milter.sock")).is_ok());
        (machine, daemon)
    }

    /// One that Exim's processes can connect to.
    pub fn for_exim(policies: &str, mail: &str) -> Self {
        let machine = Self::new(policies, &format!("socket_mode = \"0666\"\n{mail}"));
        crate::exim::open_to_all(machine.folder.path());
        machine
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The directory of the database.
    pub fn spool(&self) -> PathBuf {
        self.path("spool")
    }

    /// Puts these policies into use.
    pub fn apply(&self, policies: &str) {
        let file = self.path("policy.toml");
        std::fs::write(&file, format!("version = 1\n{policies}")).unwrap();
        succeeds(exirate(&["policy", "apply", "--spool"]).arg(self.spool()).arg(file));
    }

    /// Writes the configuration, with these lines in `[mail]`.
    pub fn configure(&self, mail: &str) {
        let listen = format!("policy = \"unix:{}\"", self.path("policy.sock").display());
        self.write(&listen, mail);
    }

    /// Writes the configuration, with these lines in `[listen]` and `[mail]`.
    pub fn write(&self, listen: &str, mail: &str) {
        let spool = self.spool();
        let text = format!("[listen]\n{listen}\n[mail]\nspool = \"{}\"\n{mail}\n", spool.display());
        std::fs::write(self.path("exirate.toml"), text).unwrap();
    }

    /// The command that starts the daemon; its log is in the file `log`.
    pub fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = exirate(&["serve", "mail", "--config"]);
        command.arg(self.path("exirate.toml"));
        command.stdout(Stdio::null()).stderr(log);
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
        command
    }

    /// Starts the daemon, and waits until it listens.
    pub fn start(&self) -> Process {
        let daemon = Process(self.command().spawn().unwrap());
        let socket = self.path("policy.sock");
        until("the daemon listens", || UnixStream::connect(&socket).is_ok());
        daemon
    }

    /// Its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// Waits until this is in its log.
    pub fn until_logged(&self, text: &str) {
        until(&format!("{text} is in the log"), || self.log().contains(text));
    }

    /// The rate of this key and unit, such as `auth:alice` and `recipients`, as `exirate list`
    /// has it; 0 if there is none.
    pub fn rate(&self, key: &str, unit: &str) -> f64 {
        let listed = succeeds(exirate(&["list", "--json", "--spool"]).arg(self.spool()));
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let rates = listed.as_array().unwrap().iter().filter(|one| {
            let mode = one["mode"].as_str().unwrap();
            one["key"] == key && mode.rsplit_once('/').unwrap().1 == unit
        });
        rates.map(|one| one["rate"].as_f64().unwrap()).fold(0.0, f64::max)
    }
}
