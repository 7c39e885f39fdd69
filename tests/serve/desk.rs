//! A machine with a database, the web service and its broker as processes, and what is asked of them over
//! real sockets.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exirate::engine::{Algorithm, Check, RecordKey, Update};
use exirate::rate::Timestamp;
use exirate::serve::web::role::Role;
use exirate::serve::web::token;
use exirate::spool::{Options, Spool};
use exirate::store::{FOREVER, Store as _};
use kit::{Process, TIMEOUT, until};
use serde_json::Value;

/// A machine with a database, the broker and the web service.
pub(super) struct Desk {
    pub(super) folder: tempfile::TempDir,
    pub(super) help: String,
    pub(super) view: String,
}

/// What was replied.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// What is in it, which cannot drive a terminal.
    pub(super) fn json(&self) -> Value {
        let is_shown = |c: char| !c.is_control() && !('\u{202a}'..='\u{2069}').contains(&c);
        assert!(String::from_utf8_lossy(&self.body).chars().all(is_shown), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The kind of the problem.
    pub(super) fn problem(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{}", self.head);
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert!(!json["detail"].as_str().unwrap().is_empty());
        json["type"].as_str().unwrap().trim_start_matches("urn:exirate:problem:").to_owned()
    }
}

impl Desk {
    /// With some keys that are blocked.
    pub(super) fn new(web: &str) -> Self {
        let desk = Self::empty(web);
        for key in ["alice@example.org", "<script>alert(1)</script>@x", "bob@example.net"] {
            desk.block(key);
        }
        desk
    }

    pub(super) fn empty(web: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        let add = |name: &str, role| {
            token::change(&tokens, |all| all.add(name, role, 0, FOREVER, None)).unwrap()
        };
        let (help, view) = (add("desk", Role::Help), add("panel", Role::View));
        std::fs::create_dir(folder.path().join("state")).unwrap();
        let desk = Self { folder, help, view };
        desk.configure(web);
        desk
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn configure(&self, web: &str) {
        let at = self.folder.path().display();
        let text = format!(
            "[mail]\nspool = \"{at}\"\n[web]\nbroker = \"{at}/broker\"\nheld = \"{at}/held\"\nstate = \"{at}/state\"\n\
             tokens = \"{at}/tokens\"\nuser = \"root\"\n{}\n{web}\n",
            if web.contains("listen") {
                String::new()
            } else {
                format!("listen = \"unix:{at}/web\"")
            }
        );
        std::fs::write(self.path("exirate.toml"), text).unwrap();
    }

    /// Counts two events of the key, whose limit is 2 an hour.
    pub(super) fn block(&self, key: &str) {
        let name = format!("1h/per_rcpt/{key}");
        let algorithm = Algorithm::MovingAverage { limit: 2.0, period: 3600.0 };
        let identity_start = "1h/per_rcpt/".len();
        let key = RecordKey { identity_start, ..name.as_bytes().into() };
        let check = Check { update: Update::Strict, ..Check::new(key, algorithm) };
        let mut spool = Spool::open(self.folder.path(), Options::default()).unwrap();
        for _ in 0..2 {
            spool.decide_one(&check, now).unwrap();
        }
    }

    pub(super) fn command(&self, what: &str) -> Command {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(["serve", what, "--config"]).arg(self.path("exirate.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").env("TZ", "UTC");
        command
    }

    pub(super) fn start(&self, what: &str, socket: Option<&str>) -> Process {
        let process = Process(self.command(what).spawn().unwrap());
        if let Some(socket) = socket {
            let path = self.path(socket);
            until("it listens", || UnixStream::connect(&path).is_ok());
        }
        process
    }

    pub(super) fn both(&self) -> (Process, Process) {
        (self.start("broker", Some("broker")), self.start("web", Some("web")))
    }

    pub(super) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path("web")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    pub(super) fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        read(stream)
    }

    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<Value>,
    ) -> Answer {
        let body = body.map_or_else(String::new, |body| body.to_string());
        let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[&bearer(&self.view)], None)
    }

    pub(super) fn change(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, &[&bearer(&self.help)], Some(body))
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    pub(super) fn audit_log(&self) -> String {
        std::fs::read_to_string(self.path("exirate/audit.log")).unwrap_or_default()
    }
}

pub(super) fn now() -> Timestamp {
    let (seconds, micros) = exirate::sys::clock::now();
    Timestamp { seconds, micros }
}

pub(super) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

pub(super) fn read(mut stream: impl std::io::Read) -> Answer {
    let mut bytes = Vec::new();
    // The service may close a connection of which it has not read all.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(&bytes)));
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body }
}

/// Asks the broker.
pub(super) fn broker(path: &Path, line: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // It may have replied before it has read all.
    let _ = stream.write_all(line);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    reply
}
