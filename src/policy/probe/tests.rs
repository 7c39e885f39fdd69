//! Who is recognised as the probe, and that everybody else counts.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::*;
use crate::event::Origin;
use crate::event::session::SessionFacts;
use crate::policy::evaluator::{Evaluated, Evaluator, Observer, PolicySession, Step};
use crate::policy::image::{build, install};
use crate::policy::source::compile;
use crate::rate::Timestamp;
use crate::store::Memory;

const NOW: i64 = 1_800_000_000;
const POLICIES: &str = "version = 1
[policy.p]
key = [\"client\"]
update = \"strict\"
default.recipients = \"0.5/1h\"
default.messages = \"0.5/1h\"
";
const LOOPBACK: Origin = Origin::Client(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

/// A server, whose policies refuse everything.
struct Server {
    spool: tempfile::TempDir,
    decided: u32,
}

impl Observer for Server {
    fn decided(&mut self, _: &crate::policy::decide::Decided<'_>) {
        self.decided += 1;
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        assert_eq!(evaluated.failure, None);
    }
}

impl Server {
    fn new() -> Self {
        let spool = tempfile::tempdir().unwrap();
        let none = |_: &Path| Err(String::new());
        let compiled = compile(Path::new("p"), POLICIES, &none);
        install(spool.path(), &build(&compiled.policies.unwrap())).unwrap();
        Self { spool, decided: 0 }
    }

    fn ticket(&self) -> Ticket {
        Ticket::issue(self.spool.path(), NOW).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.spool.path().join("exirate/probe")
    }

    /// The verdict on a step, and whether anything was counted.
    fn step(
        &mut self,
        helo: &str,
        client: Origin,
        stage: AclStage,
        now: i64,
    ) -> (Verdict, String, bool) {
        let mut evaluator = Evaluator::open(self.spool.path());
        let event = Event { client, helo: Some(helo), sender: Some(""), ..Event::default() };
        let step = Step {
            facts: SessionFacts { recipients: 1, has_message: true, ..SessionFacts::default() },
            // It hides nothing.
            bypassed: true,
            ..Step::new(stage, event)
        };
        let before = self.decided;
        let (mut session, mut store) = (PolicySession::default(), Memory::default());
        let now = || Timestamp { seconds: now, micros: 0 };
        let evaluated = evaluator.evaluate(&mut session, "*", &step, Ok(&mut store), now, self);
        (evaluated.outcome.verdict, evaluated.outcome.text, self.decided > before)
    }

    /// Whether a recipient counts, as that of any other client.
    fn counts(&mut self, helo: &str, client: Origin, now: i64) -> bool {
        let (verdict, text, counted) = self.step(helo, client, AclStage::Rcpt, now);
        assert_eq!(counted, verdict == Verdict::Defer, "{verdict:?}");
        assert_eq!(counted, !text.starts_with("exirate probe"), "{text}");
        counted
    }
}

#[test]
fn its_verdicts_show_the_stage_and_let_nothing_through() {
    let mut server = Server::new();
    let ticket = server.ticket();
    for (part, stage, verdict, text) in [
        (Part::Rcpt, AclStage::Rcpt, Verdict::Reject, "exirate probe: RCPT"),
        (Part::Rcpt, AclStage::Data, Verdict::Reject, "exirate probe: DATA"),
        (Part::Rcpt, AclStage::Auth, Verdict::Reject, "exirate probe: AUTH"),
        (Part::Data, AclStage::Auth, Verdict::Reject, "exirate probe: AUTH"),
        (Part::Data, AclStage::Rcpt, Verdict::Hold, "exirate probe: RCPT"),
        (Part::Data, AclStage::Predata, Verdict::Hold, "exirate probe"),
        (Part::Data, AclStage::Data, Verdict::Reject, "exirate probe: DATA"),
        (Part::Data, AclStage::Helo, Verdict::Accept, ""),
        (Part::Data, AclStage::Mail, Verdict::Accept, ""),
        (Part::Data, AclStage::Quit, Verdict::Accept, ""),
    ] {
        for client in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            let client = Origin::Client(client.parse().unwrap());
            let step = server.step(&ticket.helo(part), client, stage, NOW + 1);
            assert_eq!(step, (verdict, text.to_owned(), false), "{part:?} {stage:?}");
        }
    }
    assert_eq!(server.decided, 0);
}

#[test]
fn only_the_loopback_address_is() {
    let mut server = Server::new();
    let helo = server.ticket();
    let helo = helo.helo(Part::Rcpt);
    for client in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "0.0.0.0", "::"] {
        let client = Origin::Client(client.parse().unwrap());
        assert!(server.counts(&helo, client, NOW), "{client:?}");
    }
    for client in [Origin::Program, Origin::Unknown] {
        let (verdict, text, _) = server.step(&helo, client, AclStage::Rcpt, NOW);
        assert!(verdict != Verdict::Reject && !text.starts_with("exirate probe"));
    }
}

#[test]
fn another_name_counts() {
    let mut server = Server::new();
    let ticket = server.ticket();
    let right = ticket.helo(Part::Rcpt);
    assert!(!server.counts(&right, LOOPBACK, NOW));
    let start = START.len() + Part::Rcpt.word().len();
    for at in start..start + DIGITS {
        let mut wrong = right.clone();
        let other = if wrong.as_bytes()[at] == b'0' { "1" } else { "0" };
        wrong.replace_range(at..=at, other);
        assert!(server.counts(&wrong, LOOPBACK, NOW), "{wrong}");
        // A part of it, and with something in between.
        assert!(server.counts(&right[..at], LOOPBACK, NOW));
        for inserted in ["0", "\0", "é", "\u{1F600}", " "] {
            let mut longer = right.clone();
            longer.insert_str(at, inserted);
            assert!(server.counts(&longer, LOOPBACK, NOW), "{longer:?}");
        }
    }
    let upper = right.to_uppercase();
    for wrong in [
        "",
        START,
        END,
        &upper,
        &right[1..],
        &right.replace("rcpt", "all"),
        &right.replace("rcpt-", ""),
        &format!("{right}."),
        &format!("{START}rcpt-{}{END}", "é".repeat(DIGITS / 2)),
        &format!("{START}rcpt-{END}"),
        &format!("{START}rcpt-{}{END}", "0".repeat(1 << 16)),
    ] {
        assert!(server.counts(wrong, LOOPBACK, NOW), "{wrong}");
    }
    // A new one ends it, and so does its own end.
    let next = server.ticket();
    assert!(server.counts(&right, LOOPBACK, NOW));
    assert!(!server.counts(&next.helo(Part::Rcpt), LOOPBACK, NOW));
    let helo = next.helo(Part::Rcpt);
    drop(next);
    assert!(!server.file().exists());
    assert!(server.counts(&helo, LOOPBACK, NOW));
}

#[test]
fn it_ends_after_a_minute_and_by_a_clock_that_is_set_back() {
    let mut server = Server::new();
    let helo = server.ticket();
    let helo = helo.helo(Part::Rcpt);
    for (after, counts) in
        [(0, false), (LONGEST, false), (LONGEST + 1, true), (i64::MAX - NOW, true), (-1, true)]
    {
        assert_eq!(server.counts(&helo, LOOPBACK, NOW + after), counts, "{after}");
    }
    assert!(server.counts(&helo, LOOPBACK, i64::MIN));
}

#[test]
fn a_file_that_others_could_read_or_make_holds_no_secret() {
    let mut server = Server::new();
    let ticket = server.ticket();
    let helo = ticket.helo(Part::Rcpt);
    let (file, aside) = (server.file(), server.spool.path().join("aside"));
    let right = fs::read(&file).unwrap();
    for mode in [0o644, 0o640, 0o660, 0o602, 0o604, 0o4600, 0o600] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(server.counts(&helo, LOOPBACK, NOW), mode != 0o600, "{mode:o}");
    }
    fs::hard_link(&file, &aside).unwrap();
    assert!(server.counts(&helo, LOOPBACK, NOW), "another name");
    fs::remove_file(&file).unwrap();
    symlink(&aside, &file).unwrap();
    assert!(server.counts(&helo, LOOPBACK, NOW), "a symbolic link");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(server.counts(&helo, LOOPBACK, NOW), "a directory");
    fs::remove_dir(&file).unwrap();
    fs::rename(&aside, &file).unwrap();
    assert!(!server.counts(&helo, LOOPBACK, NOW));
    // As root alone.
    if chown(&file, Some(4321), None).is_ok() {
        assert!(server.counts(&helo, LOOPBACK, NOW), "another owner");
        chown(&file, Some(0), None).unwrap();
    }

    let mut texts: Vec<Vec<u8>> = (0..right.len()).map(|length| right[..length].to_vec()).collect();
    texts.extend((0..right.len()).map(|at| {
        let mut text = right.clone();
        text[at] = 0xff;
        text
    }));
    texts.push([&right[..], b"until 1\n"].concat());
    texts.push(vec![b'a'; 1 << 16]);
    for text in texts {
        fs::write(&file, &text).unwrap();
        assert!(server.counts(&helo, LOOPBACK, NOW), "{:?}", text.escape_ascii().to_string());
    }
    fs::write(&file, &right).unwrap();
    assert!(!server.counts(&helo, LOOPBACK, NOW));
}

kit::quickcheck! {
    fn any_name_counts_and_does_not_panic(name: String, at: usize) -> bool {
        let mut server = Server::new();
        let ticket = server.ticket();
        let right = ticket.helo(Part::Data);
        let at = at % (right.len() + 1);
        let within = format!("{}{name}{}", &right[..at], &right[at..]);
        let names = [format!("{START}{name}"), within];
        names.iter().filter(|name| **name != right).all(|name| server.counts(name, LOOPBACK, NOW))
    }
}
