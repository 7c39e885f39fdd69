//! `exirate events deliver`.

mod digest;
mod post;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use kit::{FakeClock, Random, TIMEOUT, until};
use serde_json::Value;

use crate::{exirate, run, stderr, stdout};
use kit::exim::{USER, open_to_all, user};

/// A spool directory with a policy in use, and a directory for what is received.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// With this `[on.crossing]`, in which DIR is the directory.
    fn new(on: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display().to_string();
        let machine = Self { folder };
        machine.apply(&on.replace("DIR", &dir));
        machine
    }

    /// Puts this `[on.crossing]` in use.
    fn apply(&self, on: &str) {
        let file = self.path("policy.toml");
        std::fs::write(&file, format!("version = 1\n[on.crossing]\n{on}\n")).unwrap();
        let applied = run(self.spool(), &["policy", "apply", file.to_str().unwrap()]);
        assert_eq!(applied.status.code(), Some(0), "{}", stderr(&applied));
    }

    fn spool(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that runs these lines of shell.
    fn program(&self, name: &str, lines: &str) {
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn cross(&self, key: &str) {
        count(self.spool(), key);
    }

    fn deliver(&self, more: &[&str]) -> Output {
        run(self.spool(), &[&["events", "deliver"][..], more].concat())
    }

    /// At a time, as a clock shows it that stands still.
    fn at(&self, clock: &FakeClock, time: &str, arguments: &[&str]) -> Output {
        clock.freeze(time);
        let mut command = exirate();
        command.args(arguments).arg("--spool").arg(self.spool()).envs(clock.environment());
        command.output().unwrap()
    }

    /// The lines that a program has written to `name`.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// An event that takes alice over a limit.
const CROSS: [&str; 7] = ["check", "--count", "10 / 1w / strict", "--key", "alice", "--cost", "30"];

fn count(spool: &Path, key: &str) {
    let check = ["check", "--count", "10 / 1w / strict", "--key", key, "--cost", "30"];
    let output = run(spool, &check);
    assert_eq!(stderr(&output), "");
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn each_receiver_gets_each_crossing_once() {
    let (url, received) = post::server();
    let machine = Machine::new(&format!(
        "log = true\nrun = [\"DIR/over\", \"{{key}}\", \"at {{limit}}/{{period}}\"]\n\
         post = \"{url}\"\nmail = \"postmaster@example.org\""
    ));
    machine
        .program("over", "printf '%s|' \"$#\" \"$@\" \"$EXIRATE_REDELIVERED\" >>\"${0%/*}/ran\"; cat >\"${0%/*}/object\"");
    machine.program("sendmail", "{ echo \"ARGUMENTS $*\"; cat; } >>\"${0%/*}/mailed\"");
    let sendmail = machine.path("sendmail");
    let sendmail = ["--sendmail", sendmail.to_str().unwrap()];
    let hostile = "a;touch x'$(id)\"@example.org";
    machine.cross(hostile);

    let first = machine.deliver(&sendmail);
    assert_eq!((code(&first), stderr(&first)), (Some(0), String::new()));
    let line = stdout(&first);
    assert!(line.contains(" is over the limit: 30.0/10 in 1w id="), "{line}");
    assert_eq!(line.lines().count(), 1);
    assert_eq!(machine.lines("ran"), [format!("2|{hostile}|at 10/1w|no|")]);
    let mail = machine.lines("mailed");
    assert_eq!(mail[0], "ARGUMENTS -oi -f <> -- postmaster@example.org");
    assert!(mail.contains(&"Auto-Submitted: auto-generated".to_owned()), "{mail:?}");
    assert!(mail.contains(&"X-Exirate-Redelivered: no".to_owned()), "{mail:?}");
    let request = received.recv_timeout(TIMEOUT).unwrap();
    assert!(request.starts_with("POST /hook HTTP/1."), "{request}");
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&body["key"], &body["redelivered"]), (&hostile.into(), &false.into()));
    assert_eq!((&body["event"], &body["limit"]), (&"crossing".into(), &10.0.into()));
    // The program can read the same.
    assert_eq!(serde_json::from_str::<Value>(&machine.lines("object")[0]).unwrap(), body);
    let id = body["id"].as_str().unwrap();
    assert!(request.contains(&format!("X-Exirate-Event-Id: {id}\r\n")), "{request}");
    assert!(line.ends_with(&format!(" id={id}\n")), "{line}");
    assert!(mail.contains(&format!("X-Exirate-Event-Id: {id}")), "{mail:?}");

    // Nothing is sent twice, and what is new is sent.
    assert_eq!(stdout(&machine.deliver(&sendmail)), "");
    machine.cross("bob");
    assert!(stdout(&machine.deliver(&sendmail)).contains(" bob is over the limit"));
    assert_eq!(machine.lines("ran")[0].matches("no|").count(), 2);
    let other = received.recv_timeout(TIMEOUT).unwrap();
    assert!(other.contains("\"key\":\"bob\""), "{other}");
    assert!(received.try_recv().is_err());
}

#[test]
fn a_failed_attempt_is_repeated_later_and_marked_and_delays_nobody_else() {
    let machine = Machine::new("log = true\nrun = [\"DIR/over\", \"{key}\"]");
    let fails = "echo \"$1 $EXIRATE_ATTEMPT $EXIRATE_REDELIVERED\" >>\"${0%/*}/ran\"; \
                 { echo; echo no connection; echo more; } >&2; exit 3";
    machine.program("over", fails);
    let clock = FakeClock::new();
    let deliver = |time: &str| machine.at(&clock, time, &["events", "deliver", "--json"]);
    assert_eq!(stderr(&machine.at(&clock, "2026-12-01 10:00:00", &CROSS)), "");
    let first = deliver("2026-12-01 10:00:05");
    assert_eq!(code(&first), Some(1));
    let said = stderr(&first);
    assert!(said.contains("/over failed (exit status 3): no connection; event "), "{said}");
    assert!(said.ends_with(" is attempted again in 30s\n"), "{said}");
    let out = stdout(&first);
    assert!(out.contains("alice is over the limit"), "{out}");
    let report = |receiver: &str, sent: u32, remaining: u32, failed: bool| {
        format!(
            "{{\"receiver\":\"{receiver}\",\"sent\":{sent},\"given_up\":0,\
             \"remaining\":{remaining},\"failed\":{failed}}}\n"
        )
    };
    assert!(out.ends_with(&(report("log", 1, 0, false) + &report("run", 0, 1, true))), "{out}");
    // Not before half a minute has passed.
    let early = deliver("2026-12-01 10:00:20");
    assert_eq!((code(&early), machine.lines("ran").len()), (Some(1), 1));
    assert_eq!(stdout(&early), report("log", 0, 0, false) + &report("run", 0, 1, true));
    machine.program("over", "echo \"$1 $EXIRATE_ATTEMPT $EXIRATE_REDELIVERED\" >>\"${0%/*}/ran\"");
    assert_eq!(code(&deliver("2026-12-01 10:00:40")), Some(0));
    assert_eq!(machine.lines("ran"), ["alice 1 no", "alice 2 yes"]);
}

#[test]
fn who_stays_over_is_reported_again_after_a_while() {
    let machine = Machine::new("log = true\nrepeat = \"1h\"");
    let clock = FakeClock::new();
    for (time, alerts) in [
        ("2026-12-01 10:00:00", 1),
        ("2026-12-01 10:20:00", 0),
        ("2026-12-01 11:01:00", 1),
        ("2026-12-01 11:30:00", 0),
        ("2026-12-01 12:02:00", 1),
    ] {
        assert_eq!(stderr(&machine.at(&clock, time, &CROSS)), "");
        let output = machine.at(&clock, time, &["events", "deliver"]);
        assert_eq!((stdout(&output).lines().count(), stderr(&output)), (alerts, String::new()));
    }
}

#[test]
fn what_happened_before_repeat_or_a_receiver_was_set_is_not_sent() {
    let machine = Machine::new("log = true");
    let clock = FakeClock::new();
    let alerts = |time: &str| {
        assert_eq!(stderr(&machine.at(&clock, time, &CROSS)), "");
        let output = machine.at(&clock, time, &["events", "deliver"]);
        assert_eq!(stderr(&output), "");
        stdout(&output).lines().count()
    };
    assert_eq!(alerts("2026-12-01 10:00:00"), 1);
    assert_eq!(alerts("2026-12-01 12:00:00"), 0);
    assert_eq!(alerts("2026-12-01 14:00:00"), 0);
    machine.apply("log = true\nrepeat = \"1h\"");
    assert_eq!(alerts("2026-12-01 14:10:00"), 0);
    assert_eq!(alerts("2026-12-01 15:10:00"), 1);
    // Without a receiver for two weeks, in which bob crosses a limit.
    machine.apply("log = false");
    assert_eq!(alerts("2026-12-01 15:20:00"), 0);
    let bob = ["check", "--count", "10 / 1w / strict", "--key", "bob", "--cost", "30"];
    assert_eq!(stderr(&machine.at(&clock, "2026-12-02 10:00:00", &bob)), "");
    machine.apply("log = true");
    let again = machine.at(&clock, "2026-12-14 10:00:00", &["events", "deliver"]);
    assert_eq!(stdout(&again), "");
    let said = stderr(&again);
    assert!(said.contains("log begins with the last hour: 2 crossings of before"), "{said}");
}

/// Nobody has sent anything for a while: what crossed meanwhile is no flood.
#[test]
fn many_late_alerts_are_one_message_or_given_up() {
    let machine = Machine::new("log = true\nmail = \"ops@example.org\"");
    let mails = machine.path("mails");
    let sendmail = machine.path("sendmail");
    machine.program("sendmail", &format!("grep -m 1 ^Subject: >>{}", mails.display()));
    let clock = FakeClock::new();
    let cross = |time: &str, key: usize| {
        let key = format!("k{key}");
        let arguments = ["check", "--count", "1 / 1h / strict", "--cost", "3", "--key", &key];
        machine.at(&clock, time, &arguments);
    };
    let deliver = |time: &str| {
        let arguments = ["events", "deliver", "--sendmail", sendmail.to_str().unwrap()];
        let output = machine.at(&clock, time, &arguments);
        assert!(output.status.success(), "{output:?}");
        (stdout(&output).lines().count(), stderr(&output))
    };
    cross("2026-12-01 10:00:00", 0);
    assert_eq!(deliver("2026-12-01 10:00:00"), (1, String::new()));
    // Over some hours, none of them within a minute of another.
    (1..=30).for_each(|n| cross(&format!("2026-12-01 {:02}:{:02}:00", 10 + n / 6, n % 6 * 10), n));
    let (lines, said) = deliver("2026-12-01 16:00:00");
    assert_eq!((lines, &*said), (30, ""));
    let subjects = || std::fs::read_to_string(&mails).unwrap();
    assert_eq!(subjects().lines().count(), 2);
    assert!(subjects().contains("exirate: 30 keys are over limits on "), "{}", subjects());
    // Days later, who gets each by itself gets none of them.
    (31..=60).for_each(|n| cross(&format!("2026-12-02 {:02}:{:02}:00", n / 6, n % 6 * 10), n));
    let (lines, said) = deliver("2026-12-05 10:00:00");
    assert_eq!(lines, 0);
    assert!(said.contains("log: 30 events of more than a day ago given up"), "{said}");
    assert_eq!(subjects().lines().count(), 3);
}

#[test]
fn programs_get_nothing_of_the_environment_but_what_is_documented() {
    let (url, received) = post::server();
    let on = format!("run = [\"DIR/over\"]\nmail = \"a@example.org\"\npost = \"{url}\"");
    let machine = Machine::new(&on);
    let write = |file: &str| format!("env >\"${{0%/*}}/{file}\"; pwd >>\"${{0%/*}}/{file}\"");
    machine.program("over", &write("ran"));
    machine.program("sendmail", &write("mailed"));
    machine.cross("alice");
    let mut command = exirate();
    command.args(["events", "deliver", "--spool"]).arg(machine.spool());
    command.arg("--sendmail").arg(machine.path("sendmail"));
    for name in ["NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "TOKEN", "LD_PRELOAD", "HOME", "IFS"] {
        command.env(name, "/nonexistent/secret");
    }
    let output = command.output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let documented = ["PATH", "EXIRATE_EVENT_ID", "EXIRATE_ATTEMPT", "EXIRATE_REDELIVERED"];
    for (file, documented) in [("ran", &documented[..]), ("mailed", &documented[..1])] {
        let lines = machine.lines(file);
        // What the shell itself sets.
        let own = |line: &&String| {
            ["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|v| line.starts_with(v))
        };
        let variables = lines.iter().filter(|line| line.contains('=') && !own(line));
        let mut names: Vec<_> = variables.map(|line| line.split('=').next().unwrap()).collect();
        names.sort_unstable();
        let mut expected = documented.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected, "{lines:?}");
        assert!(!lines.concat().contains("secret"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "/");
    }
    drop(received);
}

#[test]
fn a_receiver_that_does_not_end_is_stopped() {
    let machine = Machine::new("run = [\"DIR/over\"]");
    machine.program("over", "sleep 3600 & echo $! >\"${0%/*}/child\"; wait");
    machine.cross("alice");
    let output = machine.deliver(&[]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).contains("over did not end within 10s"), "{}", stderr(&output));
    // With what it has started.
    let child = machine.lines("child").remove(0);
    let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    let is_gone = |state: &str| state.is_empty() || state.contains(") Z ");
    // A busy machine takes its time to end what was killed.
    until("it has ended", || is_gone(&state()));
}

/// Takes a key over a limit, by processes of which the first ones may be killed.
fn cross_with_kills(spool: &Path, key: &str, mode: &str, random: &mut Random) {
    for _ in 0..3 {
        let mut check = exirate();
        check.args(["check", "--count", &format!("10 / 1w / {mode}"), "--key", key]);
        check.args(["--cost", "30", "--spool"]).arg(spool);
        let mut check = check.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(60) as u64));
        check.kill().unwrap();
        if check.wait().unwrap().code().is_some() {
            return;
        }
    }
    let check = format!("10 / 1w / {mode} / {key}");
    assert_eq!(stderr(&run(spool, &["check", "--count", &check, "--cost", "30"])), "");
}

/// The processes in whose commands a text is.
fn processes_with(text: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let names_it = |process: &PathBuf| {
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(text)
    };
    all.filter(names_it).collect()
}

#[test]
fn nothing_is_lost_or_sent_twice_unmarked_whoever_is_killed() {
    let machine = Machine::new("run = [\"DIR/over\", \"{key}\"]");
    machine.program(
        "over",
        "echo >>\"${0%/*}/began\"
        echo \"$EXIRATE_EVENT_ID $EXIRATE_REDELIVERED $1\" >>\"${0%/*}/ran\"; sleep 0.01",
    );
    const PROCESSES: usize = 16;
    const EACH: usize = 6;
    let producers: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let spool = machine.spool().to_owned();
            std::thread::spawn(move || {
                let mut random = Random::new(process as u64);
                (0..EACH).for_each(|n| {
                    let mode = if n % 2 == 0 { "leaky" } else { "strict" };
                    cross_with_kills(&spool, &format!("user{process}.{n}"), mode, &mut random);
                });
            })
        })
        .collect();
    let (mut random, mut kills) = (Random::new(99), 0);
    while kills < 60 || producers.iter().any(|producer| !producer.is_finished()) {
        let mut command = exirate();
        command.args(["events", "deliver", "--spool"]).arg(machine.spool());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let begun = machine.lines("began").len();
        let mut deliverer = command.spawn().unwrap();
        // Every other one at any moment, the others while one is sent, if there is one.
        if kills % 2 == 0 {
            std::thread::sleep(Duration::from_millis(random.below(120) as u64));
        } else {
            until("one is sent, or all are", || {
                machine.lines("began").len() > begun || deliverer.try_wait().unwrap().is_some()
            });
        }
        deliverer.kill().unwrap();
        deliverer.wait().unwrap();
        kills += 1;
    }
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    // The crossings of killed processes have no details, and are waited for. A program that a
    // killed deliverer had started may still be at work: its path is in its command.
    let folder = machine.spool().to_str().unwrap();
    until("the programs have ended", || processes_with(folder).is_empty());
    let last = machine.deliver(&[]);
    assert_eq!((code(&last), stderr(&last)), (Some(0), String::new()));
    let mut sent: BTreeMap<String, (String, usize, usize)> = BTreeMap::new();
    for line in machine.lines("ran") {
        let [id, marked, key] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let one = sent.entry(key.to_owned()).or_insert((id.to_owned(), 0, 0));
        assert_eq!(one.0, id, "{key}");
        match marked {
            "no" => one.1 += 1,
            _ => one.2 += 1,
        }
    }
    assert_eq!(sent.len(), PROCESSES * EACH);
    assert!(sent.values().all(|(_, unmarked, _)| *unmarked <= 1), "{sent:?}");
    let repeated: usize = sent.values().map(|(_, _, marked)| marked).sum();
    assert!(repeated > 0, "no kill came while one was sent");
}

#[test]
fn without_a_database_or_receivers_nothing_is_sent() {
    // Exim creates the database at the first check.
    let output = Machine::new("log = true").deliver(&[]);
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    let machine = Machine::new("log = false");
    machine.cross("alice");
    // A timer that does this every minute need not say so.
    let output = machine.deliver(&[]);
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    assert_eq!(stdout(&machine.deliver(&["--json"])), "");
    let program = kit::shell_quoted(env!("CARGO_BIN_EXE_exirate"));
    let command = format!("{program} events deliver --spool {}", machine.spool().display());
    let terminal = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let note = "exirate: note: the policies in use have no receiver in [on.crossing]: nothing";
    assert!(stdout(&terminal).contains(note), "{terminal:?}");
}

/// The entries of the journal from byte `from` to `to` are removed, as a program that
/// erases a person does it.
fn erase(machine: &Machine, from: u64, to: u64) {
    let path = machine.path("exirate/crossings");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.drain(from as usize..to as usize);
    std::fs::write(machine.path("exirate/new"), bytes).unwrap();
    std::fs::rename(machine.path("exirate/new"), path).unwrap();
}

#[test]
fn a_rewritten_journal_is_read_on_from_the_same_place() {
    let machine = Machine::new("log = true");
    let size = || machine.path("exirate/crossings").metadata().map_or(0, |info| info.len());
    let sizes: Vec<u64> = ["anna", "bert", "carl"]
        .iter()
        .map(|key| {
            machine.cross(key);
            size()
        })
        .collect();
    assert_eq!(stdout(&machine.deliver(&[])).lines().count(), 3);
    // The last one is gone: the one before shows the place.
    erase(&machine, sizes[1], sizes[2]);
    assert_eq!(stdout(&machine.deliver(&[])), "");
    machine.cross("dora");
    let sent = stdout(&machine.deliver(&[]));
    assert!(sent.lines().count() == 1 && sent.contains(" dora is over "), "{sent}");
    assert!(!sent.contains("redelivered"), "{sent}");
    // So may be one that is not sent yet.
    machine.cross("emil");
    erase(&machine, sizes[0], size());
    assert_eq!(stdout(&machine.deliver(&[])), "");
}

#[test]
fn without_its_place_in_the_journal_it_sends_the_last_hour_again_and_marks_it() {
    let machine = Machine::new("log = true\nrun = [\"DIR/over\", \"{key}\"]");
    machine.program("over", "echo \"$1 $EXIRATE_REDELIVERED\" >>\"${0%/*}/ran\"");
    let clock = FakeClock::new();
    let cross = |key: &str, time: &str| {
        let check = ["check", "--count", "10 / 1w / strict", "--key", key, "--cost", "30"];
        assert_eq!(stderr(&machine.at(&clock, time, &check)), "");
        machine.path("exirate/crossings").metadata().unwrap().len()
    };
    cross("anna", "2026-12-01 10:00:00");
    let from = cross("bert", "2026-12-01 11:30:00");
    // More than a cursor remembers.
    let to = (0..40).fold(0, |_, n| cross(&format!("user{n}"), "2026-12-01 12:00:00"));
    let deliver = |time: &str| machine.at(&clock, time, &["events", "deliver"]);
    // What is older than an hour, a new receiver does not get.
    assert_eq!(stdout(&deliver("2026-12-01 12:00:05")).lines().count(), 41);
    assert_eq!(machine.lines("ran").len(), 41);
    erase(&machine, from, to);
    // One run is interrupted, and the next one marks the rest as well.
    machine.program("over", "exit 3");
    cross("carl", "2026-12-01 12:00:00");
    cross("dora", "2026-12-01 12:01:00");
    let sent = stdout(&deliver("2026-12-01 12:01:00"));
    let marked: Vec<bool> = sent.lines().map(|line| line.ends_with(" redelivered")).collect();
    assert_eq!(marked, [true, true, false], "{sent}");
    machine.program("over", "echo \"$1 $EXIRATE_REDELIVERED\" >>\"${0%/*}/ran\"");
    assert_eq!(code(&deliver("2026-12-01 12:02:00")), Some(0));
    assert_eq!(machine.lines("ran")[41..], ["bert yes", "carl yes", "dora no"]);
    assert_eq!(stdout(&deliver("2026-12-01 12:03:00")), "");
}

#[test]
fn a_damaged_cursor_is_replaced() {
    let machine = Machine::new("log = true");
    machine.cross("anna");
    machine.cross("bert");
    assert_eq!(stdout(&machine.deliver(&[])).lines().count(), 2);
    let cursor = machine.path("exirate/delivery.log");
    std::fs::write(&cursor, "exirate delivery 1\ndone=").unwrap();
    machine.cross("carl");
    let output = machine.deliver(&[]);
    let note = stderr(&output);
    assert!(note.contains("exirate/delivery.log is damaged: the crossings of the hour before 20"));
    assert!(note.ends_with(" and later are sent again\n"), "{note}");
    let sent = stdout(&output);
    assert!(sent.lines().count() == 3 && sent.contains(" anna is over "), "{sent}");
    assert!(sent.lines().take(2).all(|line| line.ends_with(" redelivered")), "{sent}");
    let again = machine.deliver(&[]);
    assert_eq!((stdout(&again), stderr(&again)), (String::new(), String::new()));
}

#[test]
fn what_a_receiver_never_accepts_is_given_up_after_a_day() {
    let machine = Machine::new("run = [\"DIR/over\", \"{key}\"]");
    let accept = "echo \"$1 $EXIRATE_ATTEMPT\" >>\"${0%/*}/ran\"";
    machine.program("over", &format!("[ \"$1\" != alice ] || exit 1\n{accept}"));
    let clock = FakeClock::new();
    assert_eq!(stderr(&machine.at(&clock, "2026-12-01 10:00:00", &CROSS)), "");
    let bob = ["check", "--count", "10 / 1w / strict", "--key", "bob", "--cost", "30"];
    assert_eq!(stderr(&machine.at(&clock, "2026-12-01 10:00:01", &bob)), "");
    let mut hours = Vec::new();
    for hour in 10..36 {
        let time = format!("2026-12-{:02} {:02}:30:00", 1 + hour / 24, hour % 24);
        let output = machine.at(&clock, &time, &["events", "deliver"]);
        if stderr(&output).contains(" is given up\n") {
            assert_eq!(code(&output), Some(0));
            hours.push(hour);
        } else {
            assert_eq!(code(&output), Some(i32::from(hours.is_empty())), "{time}");
        }
    }
    // Later ones wait for it, so that their order stays.
    assert_eq!(hours, [34]);
    assert_eq!(machine.lines("ran"), ["bob 1"]);
}

#[test]
fn programs_of_root_run_as_the_owner_of_the_spool_directory() {
    let machine = Machine::new("run = [\"DIR/over\"]");
    machine.cross("alice");
    machine.program("over", "echo \"$(id -u) $(id -g) $(id -G) $(pwd)\" >>\"${0%/*}/ran\"");
    let (uid, gid) = user(USER);
    let files = machine.path("exirate").read_dir().unwrap().map(|file| file.unwrap().path());
    for path in files.chain([machine.path("exirate"), machine.path("")]) {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
    open_to_all(machine.spool());
    let output = machine.deliver(&[]);
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    assert_eq!(machine.lines("ran"), [format!("{uid} {gid} {gid} /")]);
    let cursor = std::fs::metadata(machine.path("exirate/delivery.run")).unwrap();
    assert_eq!((cursor.uid(), cursor.mode() & 0o777), (uid, 0o640));
}

#[test]
fn the_examples_of_the_documentation_work() {
    let page = include_str!("../../../docs/alerts.md");
    let block = |start: &str| {
        let rest = page.split_once(&format!("\n```{start}")).unwrap().1;
        format!("{}\n", rest.split("\n```").next().unwrap())
    };
    let machine = Machine::new("run = [\"DIR/over\", \"{key}\", \"{limit}\"]");
    std::fs::write(machine.path("page.toml"), format!("version = 1\n{}", block("toml\n"))).unwrap();
    let lint = exirate().args(["policy", "lint"]).arg(machine.path("page.toml")).output().unwrap();
    // It warns that there is no policy.
    assert!(stdout(&lint).contains("; no error, 1 warning\n"), "{}", stdout(&lint));

    let program = kit::shell_quoted(env!("CARGO_BIN_EXE_exirate"));
    let command = format!("{program} deny --spool {}", machine.spool().display());
    machine.program("over", &block("\n#!/bin/sh\n").replace("exirate deny", &command));
    let keys = ["--help", "*", "alice@example.org"];
    keys.iter().for_each(|key| {
        let check = format!("10 / 1w / strict / {key}");
        assert_eq!(
            stderr(&run(machine.spool(), &["check", "--count", &check, "--cost", "30"])),
            ""
        );
    });
    let output = machine.deliver(&[]);
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    let denied = |key: &str| {
        let key = format!("--key={key}");
        let output = run(machine.spool(), &["check", "--json", "1M / 1s / strict", &key]);
        stdout(&output).contains("\"override\":\"deny\"")
    };
    assert!(
        keys.iter().all(|key| denied(key)),
        "{}",
        stdout(&run(machine.spool(), &["overrides"]))
    );
    assert!(!denied("bob"));

    // What the other one gives to curl, which it cannot reach.
    machine.program("chat", &block("\n#!/bin/sh\n# /usr/local/sbin/chat"));
    machine.program("curl", "cat >\"${0%/*}/sent\"");
    let object = "{\"key\":\"a\",\"limit\":10,\"period\":60,\"login\":\"b\",\"client\":null}";
    let path = format!("{}:/usr/bin:/bin", machine.spool().display());
    let chat = format!("printf '%s' '{object}' | {}", machine.path("chat").display());
    let ran = Command::new("/bin/sh").args(["-c", &chat]).env("PATH", path).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let sent: Value = serde_json::from_str(&machine.lines("sent").concat()).unwrap();
    assert_eq!(sent["text"], "a is over 10 in 60 s (login b, client null)");
}
