//! Habits in policies: what is learned, and what becomes of the mail of a suspected account.

use super::tests::bytes;
use super::*;
use crate::event::Origin;
use crate::policy::word::Verdict;
use crate::rate::habits::UNTIL_ANSWERED;
use crate::spool::Options;
use crate::store::{Memory, habits_key};

const START: i64 = 1_800_000_000;

/// Policies with a store in memory, and the time.
struct Server {
    image: Image,
    store: Memory,
    now: i64,
}

#[derive(Default)]
struct Seen {
    judged: Vec<(String, Judged)>,
}

impl Observer for Seen {
    fn judged(&mut self, key: &str, judged: &Judged) {
        self.judged.push((key.to_owned(), *judged));
    }
}

fn alice() -> Event<&'static str> {
    Event {
        auth: Some("Alice@Example.org"),
        client: Origin::Client([192, 0, 2, 7].into()),
        sender: Some("alice@example.org"),
        ..Event::default()
    }
}

impl Server {
    fn new(policies: &str) -> Self {
        let image = Image::from_bytes(bytes(policies)).unwrap();
        Self { image, store: Memory::new(), now: START }
    }

    /// Sends a message in a session of its own; what was seen.
    fn step(&mut self, step: Step<'_>, names: &[&str], to: &[&str]) -> (Evaluated, Seen) {
        let mut seen = Seen::default();
        let mut session = PolicySession::default();
        let mut last = Evaluated::default();
        self.now += 60;
        let now = Timestamp { seconds: self.now, micros: 0 };
        let recipients = || to.iter().map(|to| Cow::Borrowed(*to)).collect();
        let facts = SessionFacts { recipients: to.len() as u32, ..SessionFacts::default() };
        let step = Step { recipients: &recipients, facts, ..step };
        for name in names {
            let mut evaluator = Evaluator::of_image(&self.image);
            let store = Ok(&mut self.store);
            last = evaluator.evaluate(&mut session, name, &step, store, || now, &mut seen);
            assert_eq!(last.failure, None);
        }
        (last, seen)
    }

    fn send(&mut self, event: Event<&str>, to: &[&str]) -> (Evaluated, Seen) {
        self.step(Step::new(AclStage::Data, event), &["*"], to)
    }

    /// Messages to somebody known, then to strangers until one is not accepted; the strangers.
    fn theft(&mut self) -> (u32, Evaluated) {
        self.theft_by(|stranger| vec![stranger])
    }

    /// The same, where a message to a stranger names these recipients.
    fn theft_by(&mut self, to: impl Fn(String) -> Vec<String>) -> (u32, Evaluated) {
        for _ in 0..60 {
            let (evaluated, _) = self.send(alice(), &["bob@x.test"]);
            assert_eq!(evaluated.outcome.verdict, Verdict::Accept);
            self.now += 20_000;
        }
        for n in 1..100 {
            let to = to(format!("s{n}@y.test"));
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            let (evaluated, _) = self.send(alice(), &to);
            if evaluated.outcome.verdict != Verdict::Accept {
                return (n, evaluated);
            }
        }
        panic!("no alarm");
    }

    fn messages(&self) -> Option<u16> {
        self.store.habits(b"auth:alice@example.org").map(|habits| habits.messages())
    }
}

#[test]
fn an_account_is_suspected_after_strangers_and_not_for_ever() {
    for (habits, action, verdict, learned) in [
        ("observe", "enforce", Verdict::Log, 1),
        ("hold", "enforce", Verdict::Hold, 0),
        ("defer", "enforce", Verdict::Defer, 0),
        ("defer", "observe", Verdict::Log, 1),
    ] {
        let policy = format!("[policy.out]\naction = \"{action}\"\nhabits = \"{habits}\"\n");
        let mut server = Server::new(&policy);
        let (strangers, Evaluated { policy, outcome, .. }) = server.theft();
        assert!((5..30).contains(&strangers), "{strangers}");
        assert_eq!((&*policy, outcome.verdict), ("out", verdict), "{habits}");
        assert_eq!(outcome.text, "Held for now; please ask the administrator");
        assert!(outcome.reason.is_none());
        let suspicion = outcome.habits.as_ref().unwrap();
        assert_eq!((&*suspicion.key, &*suspicion.rule), ("auth:alice@example.org", "default"));
        assert_eq!(suspicion.judged.alarm.unwrap().strangers, strangers);
        // The message that raises the alarm is learned.
        let messages = server.messages().unwrap();
        assert_eq!(u32::from(messages), 60 + strangers);
        // Also where the recipients are not known.
        assert_eq!(server.send(alice(), &[]).0.outcome.verdict, verdict);
        let (next, seen) = server.send(alice(), &["bob@x.test"]);
        assert_eq!(next.outcome.verdict, verdict);
        assert_eq!(seen.judged.len(), 1);
        assert_eq!(server.messages().unwrap(), messages + learned);
        let now = Timestamp { seconds: server.now, micros: 0 };
        let info = |name: &str| {
            let info = crate::policy::info::PolicyInfo::from(&next);
            info.field(name.as_bytes(), now).unwrap().to_string()
        };
        let fields = ["unit", "key", "rule"].map(info);
        assert_eq!(fields, ["habits", "auth:alice@example.org", "default"]);
        let observed = if action == "observe" { " (observed, else defer)" } else { "" };
        let explained = info("explain");
        assert!(
            explained.starts_with(&format!("{}{observed} by policy out", verdict.word())),
            "{explained}"
        );
        let ends = "rule default: habits of auth:alice@example.org: an alarm was raised 2m ago";
        assert!(explained.ends_with(ends), "{explained}");
        server.now += 86_400;
        let (later, _) = server.send(alice(), &["bob@x.test"]);
        assert_eq!(later.outcome, Outcome::default());
    }
}

#[test]
fn a_stranger_who_is_named_twice_is_one() {
    let of = |to: fn(String) -> Vec<String>| {
        Server::new("[policy.out]\nhabits = \"hold\"\n").theft_by(to).0
    };
    let once = of(|stranger| vec![stranger]);
    assert_eq!(of(|stranger| vec![stranger.to_uppercase(), stranger.clone(), stranger]), once);
}

#[test]
fn a_message_is_learned_once_if_all_policies_accept_it() {
    let policies = "[policy.a]\nhabits = \"hold\"\n[policy.b]\nhabits = \"observe\"\n\
                    [policy.c]\ndefault.messages = \"2/1h\"\n";
    let mut server = Server::new(policies);
    server.send(alice(), &["bob@x.test", "carl@x.test"]);
    assert_eq!(server.messages(), Some(1));
    // Two calls in one ACL.
    let (_, seen) = server.step(Step::new(AclStage::Data, alice()), &["a", "b"], &["bob@x.test"]);
    assert_eq!((server.messages(), seen.judged.len()), (Some(2), 1));
    server.send(alice(), &["bob@x.test"]);
    let (refused, seen) = server.send(alice(), &["bob@x.test"]);
    assert_eq!((refused.outcome.verdict, seen.judged.len()), (Verdict::Defer, 0));
    assert_eq!(server.messages(), Some(3));
}

#[test]
fn what_is_no_mail_of_an_account_is_not_learned() {
    let mut server = Server::new("[policy.a]\nhabits = \"hold\"\nwhen = [\"!system\"]\n");
    let none = Event { auth: None, ..alice() };
    let program = Event { client: Origin::Program, ..none };
    for (event, stage, key) in [
        (alice(), AclStage::Data, Some("auth:alice@example.org")),
        (alice(), AclStage::NotSmtp, Some("auth:alice@example.org")),
        (alice(), AclStage::Mime, None),
        (alice(), AclStage::Prdr, None),
        (alice(), AclStage::Predata, None),
        (Event { recipient: Some("b@x.test"), ..alice() }, AclStage::Rcpt, None),
        (alice(), AclStage::Outside, None),
        // Else a thief would send all without a sender.
        (Event { sender: Some(""), ..alice() }, AclStage::Data, Some("auth:alice@example.org")),
        (none, AclStage::Data, None),
        (Event { local_account: Some("www"), ..none }, AclStage::Data, None),
        (
            Event { local_account: Some("www"), ..program },
            AclStage::NotSmtp,
            Some("local_account:www"),
        ),
        (
            Event { local_account: Some("www"), sender: Some(""), ..program },
            AclStage::NotSmtp,
            None,
        ),
        (Event { system: true, ..alice() }, AclStage::NotSmtp, None),
    ] {
        let (_, seen) = server.step(Step::new(stage, event), &["a"], &["b@x.test"]);
        let keys: Vec<&str> = seen.judged.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, Vec::from_iter(key), "{stage:?} {event:?}");
    }
    // Nor one of which the recipients are not known.
    let before = server.messages();
    server.step(Step::new(AclStage::Data, alice()), &["a"], &[]);
    assert_eq!(server.messages(), before);
    // Looking learns nothing.
    let before = server.messages();
    let step = Step { only_looks: true, ..Step::new(AclStage::Data, alice()) };
    let (_, seen) = server.step(step, &["a"], &["b@x.test"]);
    assert_eq!((server.messages(), seen.judged.len()), (before, 1));
}

#[test]
fn tables_and_exemptions_say_whose_habits_are_compared() {
    let policies = "[policy.a]\nhabits = \"hold\"\n[policy.a.package.news]\nhabits = \"off\"\n\
                    [policy.a.user.carl]\nhabits = \"observe\"\n\
                    [[policy.a.exempt]]\nmatch = \"dora\"\n\
                    [[policy.a.exempt]]\nrecipients = \"abuse@x.test\"\n";
    let mut server = Server::new(policies);
    for (auth, package, to, learned) in [
        ("bob", None, "b@x.test", true),
        ("bob", Some("news"), "b@x.test", false),
        ("carl", Some("news"), "b@x.test", true),
        ("dora", None, "b@x.test", false),
        ("bob", None, "Abuse@x.test", false),
    ] {
        let event = Event { auth: Some(auth), package, ..alice() };
        let (_, seen) = server.send(event, &[to]);
        assert_eq!(!seen.judged.is_empty(), learned, "{auth} {package:?} {to}");
    }
}

#[test]
fn recipients_that_fail_are_evidence_where_a_policy_says_so() {
    let (mut counted, mut limited) = (Vec::new(), Vec::new());
    for (settings, is_counted) in [
        ("habits_failures = true\n", true),
        ("", false),
        ("habits_failures = true\npackage.p.habits = \"off\"\n", false),
        (
            "habits_failures = true\nexempt = [{ match = \"@example.org\", recipients = \"@y.test\" }]\n",
            false,
        ),
    ] {
        let package = settings.contains("package").then_some("p");
        let policy = format!(
            "[policy.out]\nhabits = \"hold\"\n{settings}default.failed_recipients = \"0.5/1w\"\n"
        );
        let mut server = Server::new(&policy);
        for n in 0..20 {
            server.send(alice(), &["bob@x.test", &format!("c{}@x.test", n % 3)]);
            server.now += 20_000;
        }
        let to = "Gone@y.test";
        server.send(alice(), &[to, "other@z.test"]);
        let score = |server: &Server| {
            let habits = server.store.habits(b"auth:alice@example.org").unwrap();
            (habits.score(habits.at()), habits.messages())
        };
        let before = score(&server);
        let event = Event { recipient: Some(to), package, ..alice() };
        let step = Step {
            is_one_of: Some(Unit::UnknownRecipients),
            ..Step::new(AclStage::Delivery, event)
        };
        let (evaluated, seen) = server.step(step, &["*"], &[]);
        limited.push(evaluated.outcome.verdict);
        let after = score(&server);
        assert_eq!(after.1, before.1);
        assert_eq!(seen.judged.len(), usize::from(is_counted), "{settings}");
        counted.push((after.0 - before.0 > 2.0) == is_counted);
        // Of an account that is not known, nothing is remembered.
        let event = Event { auth: Some("new"), recipient: Some(to), ..alice() };
        let step = Step { event, ..step };
        server.step(step, &["*"], &[]);
        assert!(server.store.habits(b"auth:new").is_none());
    }
    assert_eq!(counted, [true; 4]);
    // The limit on failed recipients is over, which keeps no failure from being evidence.
    assert!(limited.iter().take(2).all(|verdict| *verdict == Verdict::Defer), "{limited:?}");
}

#[test]
fn nothing_is_refused_while_a_bypass_is_in_force() {
    struct Lifts;
    impl Observer for Lifts {
        fn lifts(&mut self, _: &dyn fmt::Display) -> bool {
            true
        }
    }
    let mut server = Server::new("[policy.out]\nhabits = \"defer\"\n");
    server.theft();
    let messages = server.messages().unwrap();
    let now = Timestamp { seconds: server.now + 1, micros: 0 };
    let recipients = || vec![Cow::Borrowed("new@y.test")];
    let step =
        Step { recipients: &recipients, bypassed: true, ..Step::new(AclStage::Data, alice()) };
    let mut evaluator = Evaluator::of_image(&server.image);
    let (mut session, store) = (PolicySession::default(), Ok(&mut server.store));
    let evaluated = evaluator.evaluate(&mut session, "*", &step, store, || now, &mut Lifts);
    assert_eq!(evaluated.outcome.verdict, Verdict::Log);
    // It is accepted, and so it is learned.
    assert_eq!(server.messages().unwrap(), messages + 1);
}

#[test]
fn mail_of_a_login_without_a_sender_is_for_the_second_rule() {
    let mut server = Server::new("[policy.out]\nhabits = \"hold\"\n");
    let receipt = Event { sender: Some(""), ..alice() };
    let until_held = |server: &mut Server| {
        (1..200).find(|n| {
            let to = format!("s{n}@y.test");
            server.send(receipt, &[&to]).0.outcome.verdict == Verdict::Hold
        })
    };
    for n in 0..30 {
        server.send(alice(), &[&format!("known{n}@x.test")]);
        server.now += 20_000;
    }
    let before = server.messages();
    assert!(until_held(&mut server).is_some_and(|sent| sent > 60));
    assert_eq!(server.messages(), before, "it is not learned");
}

#[test]
fn the_lock_is_kept_from_the_decision_until_the_message_is_learned_and_no_longer() {
    /// Looks whether another process could learn of alice now.
    struct Looks<'f> {
        folder: &'f Path,
        found: Vec<bool>,
        panics: bool,
    }
    fn is_free(folder: &Path) -> bool {
        let options = Options { timeout: std::time::Duration::ZERO };
        let mut other = Spool::open(folder, options).unwrap();
        let mut name = Vec::new();
        let key = habits_key(b"auth:alice@example.org", &mut name);
        other.update(key, None, |_, _| ((), None)).is_ok()
    }
    impl Observer for Looks<'_> {
        fn decided(&mut self, _: &Decided<'_>) {
            self.found.push(is_free(self.folder));
            assert!(!self.panics, "on purpose");
        }
    }
    let policy = "[policy.out]\nhabits = \"hold\"\ndefault.messages = \"1000/1h\"\n";
    let image = Image::from_bytes(bytes(policy)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    let mut evaluator = Evaluator::of_image(&image);
    let recipients = || vec![Cow::Borrowed("bob@x.test")];
    for (stage, panics) in
        [(AclStage::Mail, false), (AclStage::Data, false), (AclStage::Data, true)]
    {
        let step = Step { recipients: &recipients, ..Step::new(stage, alice()) };
        let mut looks = Looks { folder: folder.path(), found: Vec::new(), panics };
        let mut session = PolicySession::default();
        let now = || Timestamp { seconds: START, micros: 0 };
        let evaluated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let store = Ok(&mut spool);
            evaluator.evaluate(&mut session, "out", &step, store, now, &mut looks)
        }));
        assert_eq!(evaluated.is_err(), panics);
        assert_eq!(looks.found, [stage == AclStage::Mail], "{stage:?}");
        assert!(is_free(folder.path()), "{stage:?}");
    }
    let mut name = Vec::new();
    let habits = spool.habits(habits_key(b"auth:alice@example.org", &mut name)).unwrap();
    assert_eq!(habits.unwrap().messages(), 1);
}

#[test]
fn an_alarm_blocks_an_account_until_the_time_is_over_or_somebody_answers() {
    let policies = |lasts: &str, on: &str| {
        format!("[on.crossing]\ndeny_habits = \"{lasts}\"\n[policy.out]\nhabits = \"{on}\"\n")
    };
    for (lasts, until) in [("2d", Some(2 * 86_400)), ("until-lifted", None)] {
        let mut server = Server::new(&policies(lasts, "hold"));
        let (_, alarm) = server.theft();
        // The message that raises the alarm has the verdict of the policy, and says how long it holds.
        assert_eq!(alarm.outcome.verdict, Verdict::Hold);
        assert!(alarm.outcome.why().contains("; blocked "), "{}", alarm.outcome.why());
        let begun = server.now;
        let (refused, seen) = server.send(alice(), &["bob@x.test"]);
        assert_eq!(refused.outcome.verdict, Verdict::Reject);
        let text = "Blocked after too much mail; please ask the administrator";
        assert_eq!(refused.outcome.text, text);
        assert!(refused.outcome.why().starts_with("blocked "), "{}", refused.outcome.why());
        let judged = seen.judged[0].1;
        let ends = judged.blocked.unwrap().end();
        assert_eq!(ends.map(|end| (end - begun) / 60 * 60), until);
        let habits = |server: &Server| server.store.habits(b"auth:alice@example.org").cloned();
        assert_eq!(habits(&server).unwrap().held(), 0, "what is refused prolongs nothing");
        server.now += 8 * 86_400;
        let (later, _) = server.send(alice(), &["bob@x.test"]);
        let expected = if until.is_some() { Verdict::Accept } else { Verdict::Reject };
        assert_eq!(later.outcome.verdict, expected);
        let mut answered = habits(&server).unwrap();
        assert_eq!(answered.suspected_until() == Some(UNTIL_ANSWERED), until.is_none());
        answered.accept();
        server.store.put_habits(b"auth:alice@example.org", answered);
        assert_eq!(server.send(alice(), &["bob@x.test"]).0.outcome.verdict, Verdict::Accept);
    }
    // What only observes blocks nobody.
    let mut server = Server::new(&policies("1d", "observe"));
    let (_, alarm) = server.theft();
    assert_eq!(alarm.outcome.habits.unwrap().judged.alarm.unwrap().blocked, None);
    assert_eq!(server.send(alice(), &["bob@x.test"]).0.outcome.verdict, Verdict::Log);
    let mut server =
        Server::new(&policies("1d", "defer").replace("1d\"", "1d\"\ndeny_reply = \"defer\""));
    server.theft();
    assert_eq!(server.send(alice(), &["bob@x.test"]).0.outcome.verdict, Verdict::Defer);
}
