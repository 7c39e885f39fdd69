//! `exirate top`, on a terminal: a pseudo-terminal that `script` makes.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use kit::TIMEOUT;

use crate::{json, run, stderr, stdout};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// A shell command on a terminal of 100 columns and 24 rows.
struct Pty {
    child: Child,
    output: Receiver<Vec<u8>>,
    /// What it has written so far, and how much of it was looked at.
    seen: Vec<u8>,
    looked: usize,
}

impl Pty {
    /// Runs `exirate top ARGUMENTS`, and afterwards shows the terminal's state.
    fn top(spool: &Path, arguments: &str) -> Self {
        let command = format!(
            "stty rows 24 cols 100; sh -c 'echo pid $$; exec \"$EXIRATE\" top {arguments} --spool {spool}'; \
             echo status $?; stty -a; echo the end",
            spool = spool.display(),
        );
        let mut child = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("EXIRATE", env!("CARGO_BIN_EXE_exirate"))
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, output, seen: Vec::new(), looked: 0 }
    }

    /// Waits until it has written `text`, after what was waited for before;
    /// gives what came up to there.
    fn expect(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let new = String::from_utf8_lossy(&self.seen[self.looked..]).into_owned();
            if let Some(at) = new.find(text) {
                self.looked += at + text.len();
                return new[..at].to_owned();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(error) => {
                    assert!(new.contains(text), "{error} while waiting for {text:?} in {new:?}");
                }
            }
        }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Waits for the end: the terminal must be as it was before.
    fn end(mut self) {
        let before = self.expect(LEAVE);
        assert!(before.contains(SHOW_CURSOR), "{before:?}");
        self.expect("status 0");
        let state = self.expect("the end");
        for setting in ["icanon", "echo", "isig", "icrnl", "opost"] {
            let on = state.split([' ', ';', '\r', '\n']).any(|word| word == setting);
            assert!(on, "{setting} is off: {state}");
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn count(spool: &Path, key: &str, count: &str) {
    run(spool, &["check", "--count", "10 / 1w / strict", "--key", key, "--cost", count]);
}

#[test]
fn it_redraws_in_place_and_obeys_keys() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "low", "1");
    count(spool.path(), "high", "20");
    let mut pty = Pty::top(spool.path(), "--interval 0.1");
    pty.expect(ENTER);
    pty.expect("2 keys, 1 blocked");
    let heads = pty.expect("high");
    assert!(heads.contains("by share of the limit") && heads.contains("FREE AGAIN"), "{heads:?}");
    assert!(heads.contains("\x1b[31m"), "what is over is red: {heads:?}");
    pty.expect("low");
    // A page begins at the top left corner: nothing scrolls.
    pty.expect("\x1b[1;1H");
    count(spool.path(), "newcomer", "15");
    pty.expect("3 keys, 2 blocked");
    pty.expect("newcomer");
    pty.press("o");
    pty.expect("only those that are blocked");
    pty.expect("3 keys, 2 blocked");
    let page = pty.expect("\x1b[J");
    assert!(page.contains("high") && !page.contains("low"), "{page:?}");
    pty.press("ok");
    pty.expect("\x1b[2;1Hby key");
    let page = pty.expect("\x1b[J");
    let place = |key: &str| page.find(key).unwrap();
    assert!(place("high") < place("low") && place("low") < place("newcomer"), "{page:?}");
    pty.press("q");
    pty.end();
}

#[test]
fn the_terminal_is_restored_on_every_way_out() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "alice", "1");
    for way in ["\x03", "\x1b", "HUP", "INT", "QUIT", "TERM"] {
        let mut pty = Pty::top(spool.path(), "--interval 3600");
        pty.expect("pid ");
        let pid = pty.expect("\r\n");
        pty.expect(ENTER);
        pty.expect("alice");
        if way.len() == 1 {
            pty.press(way);
        } else {
            let kill = format!("kill -s {way} {pid}");
            let status = Command::new("sh").args(["-c", &kill]).status().unwrap();
            assert!(status.success());
        }
        pty.end();
    }
}

/// As when a connection of ssh breaks: it must not go on without a terminal.
#[test]
fn it_ends_with_its_terminal() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "alice", "1");
    let mut pty = Pty::top(spool.path(), "--interval 3600");
    pty.expect("pid ");
    let pid = pty.expect("\r\n");
    pty.expect("alice");
    pty.child.kill().unwrap();
    pty.child.wait().unwrap();
    // Nobody may have waited for it yet.
    let is_there = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
    };
    let deadline = Instant::now() + TIMEOUT;
    while is_there() {
        assert!(Instant::now() < deadline, "it still runs");
        std::thread::yield_now();
    }
}

#[test]
fn a_database_that_goes_away_may_come_back() {
    let spool = tempfile::tempdir().unwrap();
    count(spool.path(), "alice", "1");
    let mut pty = Pty::top(spool.path(), "--interval 0.1");
    pty.expect("alice");
    let (here, away) = (spool.path().join("exirate"), spool.path().join("away"));
    std::fs::rename(&here, &away).unwrap();
    pty.expect("no rate database at");
    std::fs::rename(&away, &here).unwrap();
    pty.expect("alice");
    pty.press("q");
    pty.end();
}

#[test]
fn without_a_terminal_it_looks_once() {
    let spool = tempfile::tempdir().unwrap();
    for n in 0..30 {
        count(spool.path(), &format!("key{n}"), &(2 * n).to_string());
    }
    let text = stdout(&run(spool.path(), &["top", "--interval", "86400"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("30 keys, 25 blocked, 30 active in the last 1d"), "{text}");
    assert!(lines[3].ends_with("key29"), "{text}");
    assert_eq!(lines.len(), 3 + 20);
    let look = json(&run(spool.path(), &["top", "key1*", "--over", "--json", "--limit", "3"]));
    assert_eq!((&look["keys"], &look["over"]), (&11.into(), &10.into()), "{look}");
    let keys: Vec<_> = look["records"].as_array().unwrap().iter().map(|r| &r["key"]).collect();
    assert_eq!(keys, ["key19", "key18", "key17"]);

    let output = run(spool.path(), &["top", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no key matches nobody"));
    let output = run(spool.path(), &["top", "--interval", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("0.1 to 86400"), "{}", stderr(&output));
}
