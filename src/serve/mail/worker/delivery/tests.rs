//! What waits, what leaves, and what is counted, with a real database.

use std::path::Path;

use super::*;
use crate::bypass::Bypass;
use crate::engine::Overridden;
use crate::event::session::SessionFacts;
use crate::event::{Event, Origin};
use crate::policy::image::{build, install};
use crate::policy::source::compile;
use crate::rate::Timestamp;
use crate::spool::{EventKind, EventReader, LoggedEvent, Options, Spool};
use crate::store::{FOREVER, Override, Target};

const FIVE: &str =
    "[policy.users]\nat = \"delivery\"\nkey = \"auth\"\ndefault.recipients = \"5.5/1w\"\n";

fn apply(spool: &Path, policies: &str) {
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{policies}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    install(spool, &build(&policies)).unwrap();
}

fn mail(login: &str, id: &str, recipients: u32) -> MailEvent {
    let event = Event {
        auth: Some(login.to_owned()),
        client: Origin::Client([192, 0, 2, 7].into()),
        sender: Some(format!("{login}@x.test")),
        message_id: Some(id.to_owned()),
        ..Event::default()
    };
    MailEvent {
        stage: AclStage::Data,
        event,
        facts: SessionFacts { recipients, message_size: 500, ..SessionFacts::default() },
        recipients: Vec::new(),
        exim: None,
        marked: false,
        hold: None,
    }
}

/// What becomes of a message.
fn decided(worker: &mut Worker, event: &MailEvent) -> MailVerdict {
    worker.decide(&mut PolicySession::default(), event, "*", OnError::FailOpen)
}

fn verdict(worker: &mut Worker, event: &MailEvent) -> Verdict {
    decided(worker, event).outcome.verdict
}

/// What waits by the notes.
fn waiting(spool: &Path) -> Vec<HeldNote> {
    let mut spool = Spool::open(spool, Options::default()).unwrap();
    let latest = spool.latest_held_notes().unwrap().into_iter().map(|(note, _)| note);
    latest.filter(|note| matches!(note.until, HeldUntil::Room(_))).collect()
}

fn message(note: &HeldNote) -> LaterMessage {
    let HeldUntil::Room(event) = &note.until else { panic!("{note:?}") };
    LaterMessage::from_json(event).unwrap()
}

/// A directory in which two messages of alice wait: one of two recipients, and then one of one.
fn with_two() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    apply(folder.path(), FIVE);
    // Two threads of a daemon.
    let (mut one, mut other) = (Worker::new(folder.path()), Worker::new(folder.path()));
    for id in ["a1", "a2"] {
        assert_eq!(verdict(&mut one, &mail("alice", id, 2)), Verdict::Accept);
    }
    assert_eq!(verdict(&mut one, &mail("alice", "a3", 2)), Verdict::Hold);
    // There is room for it, but not before the other.
    assert_eq!(verdict(&mut other, &mail("alice", "a4", 1)), Verdict::Hold);
    assert_eq!(verdict(&mut other, &mail("bob", "b1", 1)), Verdict::Accept);
    let refused = decided(&mut other, &mail("alice", "a5", 9));
    assert_eq!(refused.outcome.verdict, Verdict::Defer);
    assert_eq!(refused.outcome.text, "This message alone is over a limit of the policy users");
    folder
}

#[test]
fn what_does_not_fit_waits_in_its_order() {
    let folder = with_two();
    let notes = waiting(folder.path());
    let ids: Vec<&str> = notes.iter().map(|note| &*note.id).collect();
    assert_eq!(ids, ["a3", "a4"]);
    assert!(notes.iter().all(|note| note.key == b"auth:alice" && note.policy == "users"));
    assert!(notes.iter().all(|note| note.why.ends_with(" recipients, limit 5.5/1w")), "{notes:?}");
    let (first, second) = (message(&notes[0]), message(&notes[1]));
    assert_eq!((first.recipients, second.recipients, second.size), (2, 1, 500));
    assert_eq!(first.event, Event { once_a_message: false, ..mail("alice", "a3", 2).event });
    let (mut worker, mut queues) = (Worker::new(folder.path()), Queues::default());
    let wait = worker.still_waits(&first, "*", &queues).unwrap().unwrap();
    assert_eq!((&*wait.policy, &*wait.key, wait.fits), ("users", "auth:alice", true));
    queues.add(&wait);
    assert!(worker.still_waits(&second, "*", &queues).unwrap().unwrap().fits);
    // There is more room: each counts once, however often it is looked at.
    apply(folder.path(), &FIVE.replace("5.5", "9.5"));
    let mut worker = Worker::new(folder.path());
    for message in [&first, &first, &second, &second] {
        assert_eq!(worker.still_waits(message, "*", &Queues::default()), Ok(None));
    }
    // Seven have counted.
    let new = LaterMessage::new(&mail("alice", "a6", 3), second.at);
    assert!(worker.still_waits(&new, "*", &Queues::default()).unwrap().is_some());
    let new = LaterMessage::new(&mail("alice", "a7", 2), second.at);
    assert_eq!(worker.still_waits(&new, "*", &Queues::default()), Ok(None));
    // Nothing waits any more by the notes.
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    for note in notes {
        spool.note_held(&HeldNote { until: HeldUntil::Now, ..note }).unwrap();
    }
    apply(folder.path(), &FIVE.replace("5.5", "20"));
    assert_eq!(verdict(&mut worker, &mail("alice", "a8", 1)), Verdict::Accept);
}

#[test]
fn who_is_denied_stays_and_what_nothing_limits_leaves() {
    let folder = with_two();
    let spool = folder.path();
    let first = message(&waiting(spool)[0]);
    let out =
        "[policy.out]\nwhen = \"authenticated\"\nkey = \"auth\"\ndefault.messages = \"1/1w\"\n";
    apply(spool, &format!("{out}{FIVE}"));
    let wait = |spool: &Path| {
        let waits = Worker::new(spool).still_waits(&first, "*", &Queues::default()).unwrap();
        waits.map(|one| (one.why, one.fits))
    };
    let (why, fits) = wait(spool).unwrap();
    assert!(why.contains("limit 5.5/1w") && fits, "{why}");
    let denial = |argument: &str| Override {
        overridden: Overridden::Deny,
        target: Target::literal(argument.as_bytes()),
        argument: argument.to_owned(),
        until: FOREVER,
        since: 0,
        reason: String::new(),
        who: "root".to_owned(),
    };
    let change = |list: Vec<Override>| {
        let mut spool = Spool::open(spool, Options::default()).unwrap();
        spool.change_overrides(|there| *there = list).unwrap();
    };
    change(vec![denial("auth:alice")]);
    let denied = Some(("its sender is denied".to_owned(), false));
    assert_eq!(wait(spool), denied);
    // Without a policy at delivery, too.
    apply(spool, out);
    assert_eq!(wait(spool), denied);
    change(Vec::new());
    assert_eq!(wait(spool), None);
    apply(spool, FIVE);
    assert!(wait(spool).is_some());
    let now = clock::now().0;
    let (who, reason) = ("root".to_owned(), String::new());
    Bypass { since: now - 1, until: now + 600, who, reason }.begin(spool).unwrap();
    assert_eq!(wait(spool), None);
}

/// Nothing is returned at `longest`: it is in the journal once, however often that is looked at.
#[test]
fn what_has_waited_for_too_long_stays_and_is_said_once() {
    let folder = with_two();
    let spool = folder.path();
    let first = message(&waiting(spool)[0]);
    apply(spool, &format!("[on.crossing]\nlog = true\n{FIVE}longest = \"2h\"\n"));
    let said = || {
        let mut spool = Spool::open(spool, Options::default()).unwrap();
        let mut reader = EventReader::new(EventKind::Crossings);
        let mut all = spool.read_events(&mut reader, clock::now().into(), true).unwrap();
        all.retain(LoggedEvent::is_overdue);
        all
    };
    let now = clock::now().0;
    for (age, expected) in [(7000, 0), (7300, 1), (7400, 1)] {
        let at = Timestamp { seconds: now - age, micros: 0 };
        let waits = LaterMessage { event: first.event.clone(), at, ..first };
        let mut worker = Worker::new(spool);
        let wait = worker.still_waits(&waits, "*", &Queues::default()).unwrap().unwrap();
        assert!(wait.fits && wait.why.contains("limit 5.5/1w"), "{wait:?}");
        assert_eq!(said().len(), expected, "{age}");
    }
    assert_eq!(String::from_utf8_lossy(&said()[0].texts.evidence), "still held");
}

#[test]
fn where_notes_cannot_be_read_on_error_decides() {
    let folder = tempfile::tempdir().unwrap();
    apply(folder.path(), FIVE);
    let mut worker = Worker::new(folder.path());
    assert_eq!(verdict(&mut worker, &mail("alice", "a1", 2)), Verdict::Accept);
    std::fs::create_dir(folder.path().join("exirate/held.log")).unwrap();
    let mut session = PolicySession::default();
    for (id, on_error, expected) in
        [("a2", OnError::FailOpen, Verdict::Accept), ("a3", OnError::FailClosed, Verdict::Defer)]
    {
        let decided = worker.decide(&mut session, &mail("alice", id, 1), "*", on_error);
        assert_eq!(decided.outcome.verdict, expected, "{id}");
        let said: Vec<String> = worker.complaints().collect();
        assert!(said.iter().any(|line| line.contains("keeps none behind it")), "{said:?}");
    }
    // What is to wait could not be released.
    assert_eq!(verdict(&mut worker, &mail("alice", "a4", 5)), Verdict::Defer);
}
