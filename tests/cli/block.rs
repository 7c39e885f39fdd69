//! `deny` of `[on.crossing]`: what blocks an account, what is shown of that, and what ends it.

use std::process::Output;
use std::time::SystemTime;

use exirate::event::{AclStage, Event, Origin};
use exirate::policy::evaluator::{Evaluator, Observer, PolicySession, Step};
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::spool::{Options, Spool};

use crate::{exirate, json, stderr, stdout};

const POLICY: &str = r#"version = 1
[on.crossing]
log = true
deny = "1d"
[policy.out]
when = "authenticated"
key = "auth"
default.messages = "2/1h"
[policy.out.domain."b.test"]
messages = "unlimited"
total = { messages = "2/1h" }
"#;

/// A spool directory with the policies in use.
struct Machine(tempfile::TempDir);

struct Nothing;

impl Observer for Nothing {}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("spool")).unwrap();
        let machine = Self(dir);
        machine.apply(POLICY);
        machine
    }

    fn apply(&self, text: &str) {
        std::fs::write(self.0.path().join("p.toml"), text).unwrap();
        let output = self.run(&["policy", "apply", "p.toml"]);
        assert_eq!(stderr(&output), "");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = exirate();
        command.args(arguments).args(["--spool", "spool"]).current_dir(&self.0);
        command.env("TZ", "UTC").output().unwrap()
    }

    fn shows(&self, arguments: &[&str], parts: &[&str]) {
        let text = stdout(&self.run(arguments));
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {arguments:?}:\n{text}");
        }
    }

    /// Counts a message of `login`; the verdict, and what the client reads.
    fn sends(&self, login: &str) -> (Verdict, String) {
        let spool = self.0.path().join("spool");
        let mut database = Spool::open(&spool, Options::default()).unwrap();
        let client = Origin::Client([192, 0, 2, 7].into());
        let event = Event { auth: Some(login), client, ..Event::default() };
        let step = Step::new(AclStage::Mail, event);
        let (session, database) = (&mut PolicySession::default(), Ok(&mut database));
        let mut evaluator = Evaluator::open(&spool);
        let evaluated = evaluator.evaluate(session, "out", &step, database, now, &mut Nothing);
        assert_eq!(evaluated.failure, None);
        (evaluated.outcome.verdict, evaluated.outcome.text)
    }

    /// Three messages, of which the last crosses the limit.
    fn crosses(&self, login: &str) {
        let verdicts = [(); 3].map(|()| self.sends(login).0);
        assert_eq!(verdicts, [Verdict::Accept, Verdict::Accept, Verdict::Defer]);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp { seconds: since.as_secs() as i64, micros: since.subsec_micros() }
}

fn blocked(verdict: Verdict) -> (Verdict, String) {
    (verdict, "Blocked after too much mail; please ask the administrator".to_owned())
}

#[test]
fn an_account_is_blocked_and_everything_says_until_when_and_what_ends_it() {
    let machine = Machine::new();
    machine.crosses("ann@c.test");
    assert_eq!(machine.sends("ann@c.test"), blocked(Verdict::Reject));
    assert_eq!(machine.sends("bob@c.test").0, Verdict::Accept);

    let shown = json(&machine.run(&["show", "ann@c.test", "--json"]));
    let decided_by = &shown[0]["decided_by"];
    assert_eq!(decided_by, "blocked", "{shown}");
    let lifted = ["`exirate unblock ann@c.test --spool spool`: the block ends"];
    machine.shows(&["list"], &["ann@c.test (blocked)", "1d"]);
    machine.shows(
        &["show", "ann@c.test"],
        &[", and blocked by a crossing", "a crossing of this limit has blocked it until 20"],
    );
    machine.shows(
        &["explain", "ann@c.test"],
        &[
            "ann@c.test cannot send now: blocked until 20",
            ", as it crossed a limit (out/messages: ",
            "\n  blocked   until 20",
        ],
    );
    machine.shows(&["explain", "ann@c.test"], &lifted);
    machine.shows(&["explain", "ann@c.test", "--now"], &lifted);
    machine.shows(&["status"], &["a crossing of this limit has blocked it until 20"]);
    machine.shows(&["events"], &["ann@c.test blocked until 20"]);
    let event = json(&machine.run(&["events", "--json"]));
    assert!(event["blocked_until"].as_str().unwrap().starts_with("20"), "{event}");
    assert_eq!(event["evidence"], serde_json::Value::Null);
    machine
        .shows(&["events", "deliver"], &["ann@c.test is over the limit and blocked: 3.0/2 in 1h"]);

    // It is not its rate that blocks it.
    machine.shows(&["unblock", "--over", "--yes"], &["no key is blocked by its rate"]);
    assert_eq!(machine.sends("ann@c.test"), blocked(Verdict::Reject));
    machine.shows(
        &["unblock", "ann@c.test"],
        &["reset auth:ann@c.test (out/messages, 1h): over the limit (blocked)"],
    );
    machine.crosses("ann@c.test");
    // An allowance is stronger, and so is an exemption.
    let allowed = machine.run(&["allow", "ann@c.test", "--until", "1h"]);
    assert_eq!(stderr(&allowed), "");
    assert_eq!(machine.sends("ann@c.test").0, Verdict::Accept);
    machine.run(&["allow", "ann@c.test", "--end"]);
    assert_eq!(machine.sends("ann@c.test").0, Verdict::Reject);
    machine.apply(&format!("{POLICY}[[policy.out.exempt]]\nmatch = \"ann@c.test\"\n"));
    assert_eq!(machine.sends("ann@c.test").0, Verdict::Accept);
}

#[test]
fn the_policies_say_who_is_blocked_and_with_which_reply() {
    let machine = Machine::new();
    // The total would block everybody whom it counts.
    machine.crosses("x@b.test");
    assert_eq!(machine.sends("y@b.test"), (Verdict::Defer, "Over the limit".to_owned()));
    machine.apply(&POLICY.replace("1d\"", "until-lifted\"\ndeny_reply = \"defer\""));
    machine.crosses("ann@c.test");
    assert_eq!(machine.sends("ann@c.test"), blocked(Verdict::Defer));
    machine.shows(&["explain", "ann@c.test"], &["cannot send now: blocked until it is lifted, as"]);
    let text = stdout(&machine.run(&["events", "--json"]));
    assert!(text.contains("\"blocked_until\":\"lifted\""), "{text}");
    // What is blocked stays so without the setting, until somebody ends that; nobody else is.
    machine.apply(&POLICY.replace("deny = \"1d\"\n", ""));
    assert_eq!(machine.sends("ann@c.test"), blocked(Verdict::Reject));
    machine.crosses("bob@c.test");
    assert_eq!(machine.sends("bob@c.test").1, "Over the limit");
    // A policy that observes sets none, and refuses nothing.
    machine.apply(&POLICY.replace("key = \"auth\"", "key = \"auth\"\naction = \"observe\""));
    for login in ["ann@c.test", "carl@c.test"] {
        for _ in 0..4 {
            assert!(machine.sends(login).0 < Verdict::Defer);
        }
    }
    machine.apply(POLICY);
    assert_eq!(machine.sends("carl@c.test").1, "Over the limit");
}

#[test]
fn whoever_has_the_account_is_told_once_a_day_at_another_address() {
    let machine = Machine::new();
    let file = |contact: &str| {
        POLICY.replace("log = true", "contact = true")
            + &format!("[policy.out.user.\"ann@c.test\"]\ncontact = \"{contact}\"\n")
    };
    std::fs::write(machine.0.path().join("own.toml"), file("Ann@C.test")).unwrap();
    let wrong = machine.run(&["policy", "apply", "own.toml"]);
    let why = stderr(&wrong);
    assert!(why.contains("Ann@C.test is the mailbox of ann@c.test itself"), "{why}");
    machine.apply(&file("ann@home.test"));
    let sendmail = machine.0.path().join("sendmail");
    let script = "#!/bin/sh\nn=$(ls mail.* 2>/dev/null | wc -l); { echo \"$*\"; cat; } >mail.$n\n";
    std::fs::write(
        &sendmail,
        script.replace("mail.", &format!("{}/mail.", machine.0.path().display())),
    )
    .unwrap();
    std::fs::set_permissions(&sendmail, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let mails = || {
        let read = |n| std::fs::read_to_string(machine.0.path().join(format!("mail.{n}"))).ok();
        (0..).map_while(read).collect::<Vec<String>>()
    };
    let deliver = || {
        let arguments = ["events", "deliver", "--sendmail", sendmail.to_str().unwrap()];
        assert_eq!(stderr(&machine.run(&arguments)), "");
    };
    machine.crosses("ann@c.test");
    machine.crosses("bob@c.test");
    machine.crosses("x@b.test");
    deliver();
    let told = mails();
    let [mail] = &told[..] else { panic!("{told:?}") };
    assert!(mail.starts_with("-oi -f <> -- ann@home.test\nTo: ann@home.test\n"), "{mail}");
    assert!(mail.contains("The mail of the account ann@c.test on "), "{mail}");
    assert!(mail.contains("All of it is refused until 20"), "{mail}");
    assert!(!mail.contains("exirate ") && !mail.contains("192.0.2.7"), "{mail}");
    machine.run(&["unblock", "ann@c.test"]);
    machine.crosses("ann@c.test");
    deliver();
    assert_eq!(mails().len(), 1, "once a day");
}

#[test]
fn a_simulation_shows_for_how_long_each_would_have_been_blocked() {
    let machine = Machine::new();
    let message = |hour: u32, minute: u32| {
        format!(
            "2026-11-20 {hour:02}:{minute:02}:07 1vM1aC-000000001Ac-1aBc <= s@x.test H=(h.test) [192.0.2.7]:7{hour:02}{minute:02} \
             P=esmtp A=plain:ann@c.test S=1000 for a@y.test\n"
        )
    };
    let log: String = [(10, 0), (10, 1), (10, 2), (14, 0), (22, 2)]
        .iter()
        .map(|(h, m)| message(*h, *m))
        .collect();
    std::fs::write(machine.0.path().join("mainlog"), log).unwrap();
    let simulate = |policy: &str| {
        std::fs::write(machine.0.path().join("p.toml"), policy).unwrap();
        let mut command = exirate();
        command.args(["simulate", "--policy", "p.toml", "mainlog", "--json"]);
        let found = json(&command.current_dir(&machine.0).output().unwrap());
        let one = &found["limits"][0];
        (one["refused"].as_u64(), one["rejected"].as_u64(), one["blocked"].as_f64().map(f64::round))
    };
    // Until the log ends, twelve hours after the crossing, or for two hours.
    assert_eq!(simulate(POLICY), (Some(3), Some(2), Some(43_200.0)));
    assert_eq!(simulate(&POLICY.replace("1d", "until-lifted")), (Some(3), Some(2), Some(43_200.0)));
    let (refused, _, blocked) = simulate(&POLICY.replace("1d", "2h"));
    assert_eq!(refused, Some(1));
    assert!((7200.0..=7260.0).contains(&blocked.unwrap()));
    assert_eq!(simulate(&POLICY.replace("deny = \"1d\"\n", "")), (Some(1), Some(0), Some(0.0)));
}
