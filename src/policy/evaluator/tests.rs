//! Exemptions at every stage and for every unit, and policies that cannot be evaluated.

use std::path::Path;

use super::*;
use crate::engine::AlgorithmKind;
use crate::event::{Local, Origin};
use crate::policy::image::{build, install};
use crate::policy::source::compile;
use crate::rate::Timestamp;
use crate::store::{Inspect as _, Memory};

pub(super) fn bytes(policies: &str) -> Vec<u8> {
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{policies}"), &none);
    build(&compiled.policies.unwrap_or_else(|| panic!("{policies}: {:?}", compiled.diagnostics)))
}

/// A stranger writes to an account that replies by itself, and has the replies refused.
#[test]
fn failures_of_replies_count_for_nobody_or_apart() {
    let policies = "[policy.web]\nwhen = \"local\"\nkey = \"local_account\"\n\
         update = \"strict\"\ndefault.unknown_recipients = \"3/1h\"\n\
         [policy.replies]\nwhen = [\"local\", \"null_sender\"]\nkey = \"local_account\"\n\
         action = \"observe\"\ndefault.unknown_recipients = \"3/1h\"\n";
    let image = Image::from_bytes(bytes(policies)).unwrap();
    let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
    let mut step = |stage, sender, is_one_of| {
        let event = Event {
            client: Origin::Program,
            local_account: Some("shop"),
            sender: Some(sender),
            local: Local::of(false, Origin::Program, || None),
            ..Event::default()
        };
        let step = Step { is_one_of, ..Step::new(stage, event) };
        let (session, mut seen) = (&mut PolicySession::default(), Seen::default());
        let at = Timestamp { seconds: 1_800_000_000, micros: 0 };
        let store = Ok(&mut store);
        let evaluated = evaluator.evaluate(session, "*", &step, store, || at, &mut seen);
        (evaluated.outcome.verdict, seen.rate.round())
    };
    let unknown = Some(Unit::UnknownRecipients);
    for n in 1..=5 {
        // Of the policy for such mail alone.
        assert_eq!(step(AclStage::Delivery, "", unknown).1, f64::from(n));
    }
    assert_eq!(step(AclStage::NotSmtp, "shop@x.test", None), (Verdict::Accept, 0.0));
    for _ in 0..4 {
        step(AclStage::Delivery, "shop@x.test", unknown);
    }
    // Who is over the limit is not let through by an empty sender.
    for sender in ["shop@x.test", ""] {
        assert_eq!(step(AclStage::NotSmtp, sender, None).0, Verdict::Defer, "{sender}");
    }
}

/// At delivery, neither an empty sender nor other spellings of one recipient leave uncounted.
#[test]
fn a_limit_at_delivery_holds_whatever_the_sender_writes() {
    let policies = "[policy.users]\nat = \"delivery\"\nkey = \"auth\"\n\
         default.recipients = \"3.5/1h\"\n\
         [policy.accounts]\nat = \"delivery\"\nkey = \"local_account\"\n\
         default.recipients = \"3.5/1h\"\n\
         [policy.pace]\nat = \"delivery\"\nkey = \"destination\"\nburst = 9\ndefault.recipients = \"9/1h\"\n";
    let image = Image::from_bytes(bytes(policies)).unwrap();
    let client = Origin::Client([192, 0, 2, 1].into());
    let login = Event { auth: Some("alice"), client, ..Event::default() };
    let account =
        Event { local_account: Some("www-data"), client: Origin::Program, ..Event::default() };
    let stranger = Event { client, ..Event::default() };
    let server = Event { system: true, client: Origin::Program, ..Event::default() };
    let leave = |event: Event<&'static str>, sender: &'static str, address: fn(u32) -> String| {
        let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
        let mut one = |n| {
            let to = address(n);
            let event: Event<&str> = Event {
                sender: Some(sender),
                recipient: Some(&to),
                message_id: Some("1"),
                once_a_message: true,
                ..event
            };
            let (step, session) =
                (Step::new(AclStage::Route, event), &mut PolicySession::default());
            let at = Timestamp { seconds: 1_800_000_000, micros: 0 };
            let store = Ok(&mut store);
            let mut seen = Seen::default();
            evaluator.evaluate(session, "*", &step, store, || at, &mut seen).outcome.verdict
        };
        (0..20).filter(|&n| one(n) < Verdict::Defer).count()
    };
    let others: fn(u32) -> String = |n| format!("to{n}@x.test");
    let spellings: fn(u32) -> String = |n| {
        let letter = |bit: u32| if n >> bit & 1 == 1 { 'A' } else { 'a' };
        (0..5).map(letter).chain("@x.test".chars()).collect()
    };
    // Bytes that are not UTF-8, as front ends read them.
    let bytes_apart: fn(u32) -> String = |n| {
        let address = [&[0xe0 + n as u8][..], b"@x.test"].concat();
        crate::identity::written(address.into()).into_owned()
    };
    for address in [others, spellings, bytes_apart] {
        for sender in ["alice@x.test", ""] {
            assert_eq!(leave(login, sender, address), 3, "{sender}");
            assert_eq!(leave(account, sender, address), 3, "{sender}");
        }
    }
    // Bounces, those of other machines as well, never wait.
    assert_eq!([leave(server, "", others), leave(stranger, "", others)], [20, 20]);
    assert_eq!(leave(stranger, "eve@x.test", others), 9);
}

/// What has waited too long is in the journal once a day for each key, however many recipients there are
/// and whatever became of them; what no limit keeps waiting is not.
#[test]
fn what_has_waited_too_long_is_said_once_a_day() {
    for after in ["return", "deliver"] {
        let policies = format!(
            "[policy.users]\nat = \"delivery\"\nkey = \"auth\"\nlongest = \"2h\"\n\
             after_longest = \"{after}\"\ndefault.recipients = \"0/1h\"\n\
             user.bob.recipients = \"unlimited\"\n"
        );
        let image = Image::from_bytes(bytes(&policies)).unwrap();
        let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
        let mut overdue = |auth, message_age, minutes: i64, only_looks| {
            let event = Event { auth: Some(auth), sender: Some(""), ..Event::default() };
            let facts = SessionFacts { message_age, ..SessionFacts::default() };
            let step = Step { facts, only_looks, ..Step::new(AclStage::Route, event) };
            let (session, mut seen) = (&mut PolicySession::default(), Seen::default());
            let at = Timestamp { seconds: 1_800_000_000 + minutes * 60, micros: 0 };
            evaluator.evaluate(session, "*", &step, Ok(&mut store), || at, &mut seen);
            let name = format!("users/{OVERDUE}/daily/auth:{auth}");
            let identity_start = name.len() - "auth:".len() - auth.len();
            let (name, algorithm) = (name.as_bytes(), AlgorithmKind::Calendar);
            let key = RecordKey { name, identity_start, kind: Kind::Policy, algorithm };
            store.get(key).unwrap().map_or(0, |one| one.state().crossings)
        };
        assert_eq!(overdue("alice", 7199, 0, false), 0);
        assert_eq!(overdue("alice", 7200, 0, true), 0);
        let mut each = |minutes| overdue("alice", 7200, minutes, false);
        let days = (0..3 * 24).map(|hour| each(hour * 60)).collect::<Vec<_>>();
        // Days of UTC; it begins at eight.
        assert_eq!([days[0], days[15], days[16], days[39], days[71]], [1, 1, 2, 2, 4], "{days:?}");
        assert_eq!(overdue("bob", 7200, 0, false), 0);
    }
}

/// Waiting is no reason to be blocked.
#[test]
fn what_waits_blocks_nobody() {
    let policies = "[on.crossing]\ndeny = \"until-lifted\"\n\
         [policy.out]\nwhen = \"authenticated\"\nkey = \"auth\"\ndefault.recipients = \"9/1h\"\n\
         [policy.users]\nat = \"delivery\"\nwhen = \"authenticated\"\nkey = \"auth\"\n\
         default.recipients = \"3/1h\"\n";
    let image = Image::from_bytes(bytes(policies)).unwrap();
    let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
    let mut step = |stage, seconds: i64, id| {
        let event = Event {
            auth: Some("alice"),
            client: Origin::Client([192, 0, 2, 1].into()),
            sender: Some("alice@x.test"),
            recipient: Some("bob@x.test"),
            message_id: Some(id),
            ..Event::default()
        };
        let (step, session) = (Step::new(stage, event), &mut PolicySession::default());
        let at = Timestamp { seconds: 1_800_000_000 + seconds, micros: 0 };
        let store = Ok(&mut store);
        let mut seen = Seen::default();
        evaluator.evaluate(session, "*", &step, store, || at, &mut seen).outcome.verdict
    };
    let mut route = |seconds| {
        ["1", "2", "3", "4", "5"].map(|id| step(AclStage::Route, seconds, id) < Verdict::Defer)
    };
    assert!(route(0).contains(&false));
    assert!(route(86_400).contains(&true), "it is blocked");
}

/// Whose failures become known hours later is refused by the share of what he sent.
#[test]
fn a_share_is_of_what_went_out() {
    let policies = "[policy.p]\nwhen = \"authenticated\"\nkey = \"auth\"\n\
         default.failed_share = [{ limit = \"30%\", period = \"1d\" }, \
         { limit = \"50%\", of = \"unknown\", period = \"1d\", least = 10 }]\n\
         user.carol.failed_share = \"unlimited\"\n";
    let image = Image::from_bytes(bytes(policies)).unwrap();
    for lists in [false, true] {
        let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
        let mut step = |stage, (login, sender): (&str, &str), is_one_of, now: i64| {
            let event = Event { auth: Some(login), sender: Some(sender), ..Event::default() };
            let facts =
                SessionFacts { recipients: 5, message_age: 7200, ..SessionFacts::default() };
            let step = Step { is_one_of, facts, ..Step::new(stage, event) };
            let (session, mut seen) = (&mut PolicySession::default(), Seen::default());
            let at = Timestamp { seconds: 1_800_000_000 + now, micros: 0 };
            let evaluated =
                evaluator.evaluate(session, "*", &step, Ok(&mut store), || at, &mut seen);
            (evaluated.outcome.verdict, evaluated.outcome.why())
        };
        // Fifty recipients, one by one or five at a time.
        let (stage, count) = if lists { (AclStage::NotSmtp, 10) } else { (AclStage::Rcpt, 50) };
        for login in ["alice", "bob", "carol"] {
            for _ in 0..count {
                assert_eq!(step(stage, (login, "a@x.test"), None, 0).0, Verdict::Accept);
            }
            // Replies of a program go out for nobody.
            step(stage, (login, ""), None, 0);
        }
        let other = Some(Unit::FailedRecipients);
        for n in 1..=15 {
            step(AclStage::Delivery, ("carol", "a@x.test"), other, 7200);
            step(AclStage::Delivery, ("alice", ""), other, 7200);
            let known = step(AclStage::Delivery, ("alice", "a@x.test"), other, 7200);
            let text = format!("{n} of 50 recipients failed ({}%), limit 30% in 1d", n * 2);
            assert_eq!(known.1, text);
        }
        let refused = step(AclStage::Mail, ("alice", "a@x.test"), None, 7201);
        let text = "15 of 50 recipients failed (30%), limit 30% in 1d";
        assert_eq!(refused, (Verdict::Defer, text.to_owned()));
        assert_eq!(step(stage, ("alice", ""), None, 7202).0, Verdict::Defer);
        for login in ["bob", "carol"] {
            assert_eq!(step(stage, (login, "a@x.test"), None, 7202).0, Verdict::Accept, "{login}");
        }
        // What left the period takes its failures along.
        assert_eq!(step(stage, ("alice", "a@x.test"), None, 90_000).0, Verdict::Accept);
    }
}

/// Whoever has a whole network tries a password from each part of it.
#[test]
fn what_is_shipped_counts_the_failures_of_a_network_and_refuses_none_of_it() {
    let shipped = include_str!("../../../exim/policy.toml");
    let image = Image::from_bytes(bytes(shipped.split_once("version = 1\n").unwrap().1)).unwrap();
    let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
    let mut step = |policy, client: String, is_one_of| {
        let client = Origin::Client(client.parse().unwrap());
        let local = Local::of(false, client, || None);
        let step = Step {
            is_one_of,
            ..Step::new(AclStage::Auth, Event { client, local, ..Event::default() })
        };
        let (session, mut seen) = (&mut PolicySession::default(), Seen::default());
        let at = Timestamp { seconds: 1_800_000_000, micros: 0 };
        let evaluated =
            evaluator.evaluate(session, policy, &step, Ok(&mut store), || at, &mut seen);
        (evaluated.outcome.verdict, seen.rate.round())
    };
    let failed = Some(Unit::AuthFailures);
    let client = |n: u32| format!("2001:db8:1:{:x}::{n:x}", n % 20 * 0x100);
    for n in 1..=240 {
        let (verdict, rate) = step("ipv6_networks", client(n), failed);
        assert_eq!(rate, f64::from(n));
        let is_over = n >= 200;
        assert_eq!(verdict, if is_over { Verdict::Log } else { Verdict::Accept }, "{n}");
    }
    // Each /56 of them has tried a dozen.
    for n in 1..=60 {
        let (verdict, rate) = step("ipv6_sites", format!("2001:db8:2:{n:x}::1"), failed);
        assert_eq!(
            (verdict, rate),
            (if n < 60 { Verdict::Accept } else { Verdict::Log }, f64::from(n))
        );
    }
    // Others of that network are served, and other networks are not concerned.
    for client in ["2001:db8:1:ff00::1", "2001:db8:2:ff::1", "2001:db8:3::1"] {
        for policy in ["ipv6_networks", "ipv6_sites"] {
            let verdict = step(policy, client.to_owned(), None).0;
            assert!(matches!(verdict, Verdict::Accept | Verdict::Log), "{client} {policy}");
        }
    }
}

/// A policy evaluated at some stages of messages, in memory.
struct Server<'i> {
    evaluator: Evaluator<'i>,
    store: Memory,
    stages: &'static [AclStage],
    /// Whether the front end knows the recipients when the message has been received.
    lists: bool,
    messages: u8,
}

/// What comes of a message.
#[derive(Debug, PartialEq)]
struct Sent {
    /// The stage at which it, or a recipient of it, was refused first.
    refused: Option<AclStage>,
    /// The verdict then, and its text.
    reply: Option<(Verdict, String)>,
    /// The highest rate that was met.
    rate: f64,
}

#[derive(Default)]
struct Seen {
    rate: f64,
    failures: u64,
}

impl Observer for Seen {
    fn decided(&mut self, decided: &Decided<'_>) {
        self.rate = self.rate.max(decided.decision.rate);
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        self.failures += u64::from(evaluated.failure.is_some());
    }
}

impl Server<'_> {
    /// Sends a message of 1000 bytes by a connection of its own, from a new client and sender,
    /// after a failed login and with a recipient that does not exist.
    fn send(&mut self, recipients: &[&str]) -> Sent {
        use AclStage as S;
        self.messages += 1;
        let n = self.messages;
        let (sender, id) = (format!("s{n}@y.test"), format!("id{n}"));
        let mut session = PolicySession::default();
        let mut sent = Sent { refused: None, reply: None, rate: 0.0 };
        let mut accepted = Vec::new();
        for &stage in self.stages {
            let is_of_one = matches!(stage, S::Rcpt | S::Prdr | S::Outside);
            let all: Vec<Option<&str>> = match stage {
                S::Rcpt => recipients.iter().map(|&to| Some(to)).collect(),
                _ if is_of_one => accepted.iter().map(|&to| Some(to)).collect(),
                _ => vec![None],
            };
            for recipient in all {
                session.new_command();
                let count = accepted.len() as u32;
                let step = Step {
                    stage,
                    event: Event {
                        client: Origin::Client([192, 0, 2, n].into()),
                        helo: Some("h.test"),
                        sender: (stage != S::Auth).then_some(&sender),
                        recipient,
                        message_id: Some(&id),
                        once_a_message: stage == S::Outside,
                        local: Local::default(),
                        ..Event::default()
                    },
                    facts: SessionFacts {
                        message_age: 0,
                        recipients: if stage.has_all_recipients() { count } else { 0 },
                        message_size: 1000,
                        rejected_recipients: u32::from(stage == S::Rcpt),
                        auth_failed: true,
                        has_message: true,
                    },
                    recipients: &|| match self.lists {
                        true => accepted.iter().map(|&to| Cow::Borrowed(to)).collect(),
                        false => Vec::new(),
                    },
                    is_one_of: None,
                    marked: &|| false,
                    only_looks: false,
                    bypassed: false,
                    on_error: OnErrors::default(),
                };
                let now = Timestamp { seconds: 1_800_000_000 + i64::from(n), micros: 0 };
                let mut seen = Seen::default();
                let evaluated = self.evaluator.evaluate(
                    &mut session,
                    "p",
                    &step,
                    Ok(&mut self.store),
                    || now,
                    &mut seen,
                );
                assert_eq!(evaluated.failure, None);
                sent.rate = sent.rate.max(seen.rate);
                let outcome = evaluated.outcome;
                if outcome.verdict >= Verdict::Defer {
                    sent.refused.get_or_insert(stage);
                    sent.reply.get_or_insert((outcome.verdict, outcome.text));
                } else if stage == S::Rcpt {
                    session.accept_recipient();
                    accepted.push(recipient.unwrap());
                }
            }
            // Where nothing is evaluated at RCPT, everybody is accepted there.
            if accepted.is_empty() && !self.stages.contains(&S::Rcpt) {
                accepted = recipients.to_vec();
            }
            if accepted.is_empty() && stage == S::Rcpt {
                break;
            }
        }
        sent
    }
}

/// The stages at which a policy is evaluated, and whether the recipients are listed at the end.
const PLANS: [(&[AclStage], bool); 10] = {
    use AclStage as S;
    [
        (&[S::Rcpt], true),
        (&[S::Rcpt, S::Data], true),
        (&[S::Rcpt, S::Data], false),
        (&[S::Auth, S::Mail, S::Rcpt, S::Predata, S::Mime, S::Data], true),
        (&[S::Auth, S::Mail, S::Rcpt, S::Predata, S::Data], false),
        (&[S::Rcpt, S::Prdr, S::Data], true),
        (&[S::Connect, S::Data], true),
        (&[S::Connect, S::Predata, S::Data], true),
        (&[S::NotSmtpStart, S::NotSmtp], true),
        (&[S::Connect, S::Outside], true),
    ]
};

/// Calls `test` with each unit, plan of stages, way to write a limit and mode of update.
fn each(exempt: &str, test: impl Fn(&mut Server<'_>, Unit, &str)) {
    for &unit in Unit::ALL.iter().filter(|unit| !unit.is_cap() && !unit.is_share()) {
        let (most, word) = (if unit == Unit::Bytes { 2500.5 } else { 2.5 }, unit.word());
        let window = format!("default.{word} = \"{most}/1w\"");
        let bucket = format!("bucket = {{ burst = {most}, rate = 0.0000001, unit = \"{word}\" }}");
        for (limit, update) in
            [(&window, "leaky"), (&window, "strict"), (&bucket, "leaky"), (&bucket, "strict")]
        {
            let text =
                format!("[policy.p]\nkey = \"helo\"\nupdate = \"{update}\"\n{limit}\n{exempt}\n");
            let image = Image::from_bytes(bytes(&text)).unwrap();
            for (stages, lists) in PLANS {
                let evaluator = Evaluator::of_image(&image);
                let store = Memory::new();
                let mut server = Server { evaluator, store, stages, lists, messages: 0 };
                test(&mut server, unit, &format!("{text}{stages:?} {lists}"));
            }
        }
    }
}

/// Whether a message counts for `unit` at one of the stages of `server`.
fn counts(server: &Server<'_>, unit: Unit) -> bool {
    use AclStage as S;
    let has = |stages: &[AclStage]| server.stages.iter().any(|stage| stages.contains(stage));
    match unit {
        Unit::Connections => !has(&[S::NotSmtp]),
        Unit::Bytes => !matches!(server.stages, [S::Rcpt]),
        Unit::RejectedRecipients => has(&[S::Rcpt]),
        Unit::AuthFailures => has(&[S::Auth]),
        // The log says later what becomes of it.
        Unit::FailedRecipients | Unit::UnknownRecipients | Unit::ThrottledRecipients => false,
        _ => true,
    }
}

/// Whether `unit` is of the connection, before there is a recipient.
fn is_of_connection(server: &Server<'_>, unit: Unit) -> bool {
    let is_smtp = server.stages.iter().all(|stage| *stage != AclStage::NotSmtp);
    match unit {
        Unit::Connections | Unit::RejectedRecipients | Unit::AuthFailures => true,
        Unit::UniqueClients => is_smtp,
        _ => false,
    }
}

const TO: &str = "[[policy.p.exempt]]\nrecipients = [\"ok@x.test\", \"fine@x.test\"]";

#[test]
fn without_an_exemption_every_limit_holds() {
    for exempt in [
        "",
        "[[policy.p.exempt]]\nmatch = \"other.test\"",
        "[[policy.p.exempt]]\nrecipients = \"no@x.test\"",
        "[[policy.p.exempt]]\nmatch = \"other.test\"\nrecipients = \"ok@x.test\"",
        "[[policy.p.exempt]]\nmatch = \"h.test\"\nrecipients = \"no@x.test\"",
        "[[policy.p.exempt]]\nmatch = \"h.test\"\nuntil = 2001-01-01T00:00:00Z",
    ] {
        each(exempt, |server, unit, what| {
            let to = ["ok@x.test", "a@x.test", "b@x.test", "c@x.test", "d@x.test"];
            let sent: Vec<Sent> = to.iter().map(|&to| server.send(&[to])).collect();
            let refused = sent.iter().any(|sent| sent.refused.is_some());
            assert_eq!(refused, counts(server, unit), "{what}: {sent:?}");
        });
    }
}

#[test]
fn an_exempt_identity_is_measured_and_refused_nowhere() {
    for exempt in [
        "[[policy.p.exempt]]\nmatch = \"h.test\"",
        "[[policy.p.exempt]]\nmatch = \"192.0.2.0/24\"",
        "[[policy.p.exempt]]\nrecipients = \"ok@x.test\"\n[[policy.p.exempt]]\nmatch = \"h.test\"",
    ] {
        each(exempt, |server, unit, what| {
            let to = ["ok@x.test", "a@x.test", "b@x.test", "c@x.test"];
            let sent: Vec<Sent> = (0..12).map(|n| server.send(&[to[n % 4]])).collect();
            assert!(sent.iter().all(|sent| sent.refused.is_none()), "{what}: {sent:?}");
            let last = sent[11].rate / if unit == Unit::Bytes { 1000.0 } else { 1.0 };
            assert_eq!(last > 3.5, counts(server, unit), "{what}: {sent:?}");
        });
    }
}

#[test]
fn what_is_for_exempt_recipients_counts_nothing_and_is_refused_nowhere() {
    for exempt in
        [TO, &format!("{TO}\nmatch = [\"h.test\"]"), &format!("{TO}\nmatch = \"192.0.2.0/24\"")]
    {
        each(exempt, |server, unit, what| {
            let of_connection = is_of_connection(server, unit);
            for n in 0..12 {
                let sent = server.send(&["ok@x.test", "fine@x.test"][..1 + n % 2]);
                // Before RCPT no recipient is known.
                let before = |stage| {
                    use AclStage as S;
                    matches!(stage, S::Connect | S::Auth | S::Mail) && of_connection
                };
                assert!(sent.refused.is_none_or(before), "{what}: {sent:?}");
            }
            if of_connection {
                return;
            }
            // Others are counted as if nothing had been.
            let one = server.send(&["a@x.test"]);
            let expected = if unit == Unit::Bytes { 1000.0 } else { 1.0 };
            let expected = if counts(server, unit) { expected } else { 0.0 };
            assert!((one.rate - expected).abs() < 0.01, "{what}: {one:?}");
            let others = ["b@x.test", "c@x.test", "d@x.test"].map(|to| server.send(&[to]));
            let refused = others.iter().any(|sent| sent.refused.is_some());
            assert_eq!(refused, counts(server, unit), "{what}: {others:?}");
            let sent = server.send(&["ok@x.test"]);
            assert_eq!(sent.refused, None, "{what}: {sent:?}");
        });
    }
}

#[test]
fn a_message_for_others_too_counts() {
    each(TO, |server, unit, what| {
        if is_of_connection(server, unit) {
            return;
        }
        let mut refused = 0;
        for to in ["a", "b", "c", "d", "e", "f"] {
            let other = format!("{to}@x.test");
            refused += u32::from(server.send(&["ok@x.test", &other]).refused.is_some());
        }
        let expected = if counts(server, unit) { 4 } else { 0 };
        assert_eq!(refused, expected, "{what}");
        // One that is for nobody else after all is exempt.
        let last = server.send(&["ok@x.test", "fine@x.test"]);
        assert_eq!(last.refused, None, "{what}");
    });
}

/// What becomes of mail counts when it is known, in both units if the recipient does not exist,
/// and refuses at the next stage, whatever it is.
#[test]
fn what_becomes_of_mail_refuses_at_the_next_submission() {
    for update in ["leaky", "strict"] {
        let text = format!(
            "[policy.p]\nkey = \"helo\"\nupdate = \"{update}\"\n\
             default = {{ failed_recipients = \"3.5/1w\", unknown_recipients = \"1.5/1w\", \
             messages = \"9/1w\" }}\n"
        );
        let image = Image::from_bytes(bytes(&text)).unwrap();
        for (stages, lists) in PLANS {
            for (of, most) in [(Unit::FailedRecipients, 4), (Unit::UnknownRecipients, 2)] {
                let evaluator = Evaluator::of_image(&image);
                let store = Memory::new();
                let mut server = Server { evaluator, store, stages, lists, messages: 0 };
                for n in 1..=most {
                    assert!(server.send(&["a@x.test"]).refused.is_none(), "{n} {stages:?}");
                    let event = Event { helo: Some("h.test"), ..Event::default() };
                    let step = Step { is_one_of: Some(of), ..Step::new(AclStage::Delivery, event) };
                    let now = Timestamp { seconds: 1_800_000_000 + i64::from(n), micros: 5 };
                    let session = &mut PolicySession::default();
                    let (store, seen) = (Ok(&mut server.store), &mut Seen::default());
                    server.evaluator.evaluate(session, "p", &step, store, || now, seen);
                }
                assert!(server.send(&["a@x.test"]).refused.is_some(), "{of:?} {stages:?}");
            }
        }
    }
}

/// `recipients_per_message = 2` refuses the third recipient of a message where one is asked
/// for, and a message with three where all are known; the next message begins afresh.
#[test]
fn a_cap_is_held_by_each_message_alone() {
    use AclStage as S;
    for update in ["leaky", "strict"] {
        let text = format!(
            "[policy.p]\nkey = \"helo\"\nupdate = \"{update}\"\n\
             default.recipients_per_message = 2\ndefault.recipients = \"99.5/1w\"\n"
        );
        let image = Image::from_bytes(bytes(&text)).unwrap();
        for (stages, lists) in PLANS {
            let evaluator = Evaluator::of_image(&image);
            let store = Memory::new();
            let mut server = Server { evaluator, store, stages, lists, messages: 0 };
            let at_rcpt = stages.contains(&S::Rcpt);
            let at_once = stages.iter().copied().find(|stage| stage.has_all_recipients());
            let refused = if at_rcpt { Some(S::Rcpt) } else { at_once };
            for _ in 0..3 {
                assert_eq!(server.send(&["a@x.test", "b@x.test"]).refused, None, "{stages:?}");
                let three = server.send(&["a@x.test", "b@x.test", "c@x.test"]);
                assert_eq!(three.refused, refused, "{stages:?} {lists}");
            }
        }
    }
}

/// A message that is too large is refused as soon as that is known, for good, and with a text that
/// says nothing of trying again.
#[test]
fn a_message_that_is_too_large_is_rejected() {
    use AclStage as S;
    for (cap, texts, expected) in [
        ("\"1k\"", "", None),
        ("999", "", Some("A message may have at most 999 bytes")),
        ("999", "texts.message_size = \"{limit} and no more\"\n", Some("999 and no more")),
        ("999", "texts.bytes = \"another unit\"\n", Some("A message may have at most 999 bytes")),
    ] {
        let text = format!(
            "[policy.p]\nkey = \"helo\"\ntext = \"try again in {{retry_after}}\"\n{texts}\
             default.message_size = {cap}\ndefault.messages = \"99/1h\"\n"
        );
        let image = Image::from_bytes(bytes(&text)).unwrap();
        for (stages, lists) in PLANS {
            let (evaluator, store) = (Evaluator::of_image(&image), Memory::new());
            let mut server = Server { evaluator, store, stages, lists, messages: 0 };
            let first = stages.iter().copied().find(|stage| {
                stage.has_all_recipients() || matches!(stage, S::Mail | S::Rcpt | S::Outside)
            });
            for _ in 0..2 {
                let sent = server.send(&["a@x.test"]);
                assert_eq!(sent.refused, expected.and(first), "{cap} {stages:?}");
                let reply = expected.map(|text| (Verdict::Reject, text.to_owned()));
                assert_eq!(sent.reply, reply, "{cap} {stages:?}");
            }
        }
    }
}

/// A recipient that is refused for now is none of the message, which is then for exempt ones
/// only.
#[test]
fn a_refused_recipient_makes_no_message_count() {
    use AclStage as S;
    let text = format!(
        "[policy.p]\nkey = \"helo\"\ndefault.recipients = \"0.5/1h\"\n\
         default.bytes = \"1M/1h\"\n{TO}\n"
    );
    let image = Image::from_bytes(bytes(&text)).unwrap();
    let (evaluator, store) = (Evaluator::of_image(&image), Memory::new());
    let stages = &[S::Rcpt, S::Data];
    let mut server = Server { evaluator, store, stages, lists: false, messages: 0 };
    let sent = server.send(&["ok@x.test", "a@x.test"]);
    assert_eq!(sent.refused, Some(S::Rcpt));
    // The 1000 bytes are not counted.
    assert!(sent.rate < 10.0, "{sent:?}");
}

/// Recipients that are counted when all are known are decided at the first stage that knows
/// them.
#[test]
fn all_recipients_are_decided_at_one_stage() {
    #[derive(Default)]
    struct Decisions(usize);
    impl Observer for Decisions {
        fn decided(&mut self, decided: &Decided<'_>) {
            self.0 += usize::from(decided.limit.unit == Unit::UniqueRecipients);
        }
    }
    let text = "[policy.p]\nkey = \"helo\"\ndefault.unique_recipients = \"9/1h\"\n";
    let image = Image::from_bytes(bytes(text)).unwrap();
    let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
    let mut session = PolicySession::default();
    let mut decisions = Decisions::default();
    for message in 1..=2 {
        session.new_message();
        for stage in [AclStage::Predata, AclStage::Mime, AclStage::Data] {
            session.new_command();
            let step = Step {
                event: Event { helo: Some("h.test"), ..Event::default() },
                facts: SessionFacts { recipients: 2, ..SessionFacts::default() },
                recipients: &|| vec!["a@x.test".into(), "b@x.test".into()],
                ..a_step(stage)
            };
            let now = || Timestamp { seconds: 1_800_000_000, micros: 0 };
            let store = Ok(&mut store);
            evaluator.evaluate(&mut session, "p", &step, store, now, &mut decisions);
            assert_eq!(decisions.0, 2 * message, "{stage:?}");
        }
    }
}

/// A step of which little is known.
fn a_step(stage: AclStage) -> Step<'static> {
    let client = Origin::Client([192, 0, 2, 1].into());
    Step::new(stage, Event { client, ..Event::default() })
}

#[test]
fn counters_tell_what_could_refuse_from_what_could_not() {
    let spool = tempfile::tempdir().unwrap();
    install(spool.path(), &bytes("[policy.p]\ndefault.recipients = \"1.5/1h\"\n")).unwrap();
    let (mut evaluator, mut store) = (Evaluator::open(spool.path()), Memory::new());
    let mut counted = |bypassed, only_looks| {
        let step = Step { bypassed, only_looks, ..a_step(AclStage::Rcpt) };
        let mut session = PolicySession::default();
        let now = || Timestamp { seconds: 1_800_000_000, micros: 0 };
        let (store, mut seen) = (Ok(&mut store), Seen::default());
        evaluator.evaluate(&mut session, "p", &step, store, now, &mut seen);
        let counts = crate::policy::counters::read(spool.path()).unwrap().unwrap_or_default();
        let of = |counters: &[u64]| {
            let all = Verdict::ALL.iter().zip(counters);
            let counted = all.filter(|(_, count)| **count > 0);
            counted.map(|(verdict, count)| (*verdict, *count)).collect::<Vec<_>>()
        };
        counts.rules.first().map(|rule| (of(&rule.enforced), of(&rule.observed)))
    };
    use Verdict::{Accept, Defer};
    assert_eq!(counted(false, true), None);
    assert_eq!(counted(false, false), Some((vec![(Accept, 1)], vec![])));
    assert_eq!(counted(true, false), Some((vec![(Accept, 1)], vec![(Defer, 1)])));
    let enforced = vec![(Accept, 1), (Defer, 1)];
    assert_eq!(counted(false, false), Some((enforced.clone(), vec![(Defer, 1)])));
    assert_eq!(counted(true, true), Some((enforced, vec![(Defer, 1)])));
}

#[test]
fn one_rule_says_what_an_error_means() {
    let spool = tempfile::tempdir().unwrap();
    let limits = "default.recipients = \"9/1h\"\n";
    let text =
        format!("[policy.open]\n{limits}[policy.closed]\non_error = \"fail-closed\"\n{limits}");
    install(spool.path(), &bytes(&text)).unwrap();
    let errors =
        || crate::policy::counters::read(spool.path()).unwrap().map_or(0, |all| all.errors);
    let (open, closed) = (OnError::FailOpen, OnError::FailClosed);
    let evaluate = |names: &str, of_call, of_front_end, store: Result<&mut Memory, &str>| {
        let mut evaluator = Evaluator::open(spool.path());
        let mut session = PolicySession::default();
        let now = || Timestamp { seconds: 1_800_000_000, micros: 0 };
        let on_error = OnErrors { of_call, of_front_end, of_store: None };
        let step = Step { on_error, ..a_step(AclStage::Rcpt) };
        let (before, mut seen) = (errors(), Seen::default());
        let evaluated = evaluator.evaluate(&mut session, names, &step, store, now, &mut seen);
        assert_eq!(errors() - before, seen.failures, "{names}");
        let text = evaluated.outcome.text.clone();
        assert_eq!(text == UNAVAILABLE, evaluated.outcome.verdict == Verdict::Defer);
        (evaluated.outcome.verdict, evaluated.failure.map(|failure| failure.to_string()))
    };
    let line = |name: &str, on_error: OnError, what: &str| {
        let done = if on_error == open { "not limited by it" } else { "deferred" };
        let on_error = on_error.word();
        Some(format!(
            "cannot evaluate the policy \"{name}\", so the mail is {done} (on_error = {on_error}): {what}"
        ))
    };
    use Verdict::{Accept, Defer};
    assert_eq!(evaluate("open", None, open, Ok(&mut Memory::new())), (Accept, None));
    // The policy can be read: it decides, if the call does not.
    for (name, of_call, of_front_end, verdict) in [
        ("open", None, open, Accept),
        ("open", None, closed, Accept),
        ("open", Some(closed), open, Defer),
        ("closed", None, open, Defer),
        ("closed", Some(open), closed, Accept),
    ] {
        let on_error = if verdict == Accept { open } else { closed };
        let expected = (verdict, line(name, on_error, "no disk"));
        assert_eq!(evaluate(name, of_call, of_front_end, Err("no disk")), expected);
    }
    // It cannot: the front end does.
    let unknown = "there is no policy \"x\" (the policies are: closed, open)";
    for (of_call, of_front_end, on_error) in
        [(None, open, open), (None, closed, closed), (Some(open), closed, open)]
    {
        let verdict = if on_error == open { Accept } else { Defer };
        let found = evaluate("x", of_call, of_front_end, Ok(&mut Memory::new()));
        assert_eq!(found, (verdict, line("x", on_error, unknown)));
    }
    // What can be evaluated is, whatever cannot.
    let before = errors();
    let (verdict, _) = evaluate("x, open", None, open, Ok(&mut Memory::new()));
    assert_eq!((verdict, errors() - before), (Accept, 1));
    std::fs::remove_file(spool.path().join("exirate/policy.image")).unwrap();
    let (verdict, failure) = evaluate("open", None, closed, Ok(&mut Memory::new()));
    assert_eq!(verdict, Defer);
    assert!(failure.unwrap().contains(": no policy image at "));
}

/// Policies are asked in turn: what a later one refuses, or its total, counts in no total.
#[test]
fn what_another_policy_refuses_uses_up_no_total() {
    let first = "[policy.a]\nkey = \"auth\"\nupdate = \"strict\"\ndefault.recipients = \"90/1h\"\n\
                 default.total.recipients = \"50/1h\"\n";
    for later in [
        "[policy.b]\nkey = \"auth\"\ndefault.recipients = \"3.5/1h\"\n",
        "[policy.b]\nkey = \"auth\"\ndefault.recipients = \"90/1h\"\n\
         [policy.c]\nkey = \"auth\"\ndefault.recipients = \"3 daily\"\n",
        "[policy.b]\nkey = \"auth\"\nupdate = \"strict\"\ndefault.recipients = \"3.5/1h\"\n",
        "[policy.b]\nkey = \"auth\"\nupdate = \"strict\"\ndefault.recipients = \"90/1h\"\n\
         default.total.recipients = \"3.5/1h\"\n",
    ] {
        let last = if later.contains("policy.c") { "a,b,c" } else { "a,b" };
        for names in ["*", last] {
            let image = Image::from_bytes(bytes(&format!("{first}{later}"))).unwrap();
            let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
            let mut session = PolicySession::default();
            let event = Event { auth: Some("alice@a.test"), ..Event::default() };
            let now = Timestamp { seconds: 1_800_000_000, micros: 0 };
            for n in 0..9 {
                session.new_command();
                let step = Step::new(AclStage::Rcpt, Event { recipient: Some("x@y"), ..event });
                let store = Ok(&mut store);
                let seen = &mut Seen::default();
                let done = evaluator.evaluate(&mut session, names, &step, store, || now, seen);
                assert_eq!(done.outcome.verdict >= Verdict::Defer, n >= 3, "{later} {n}");
                assert_eq!(done.failure, None);
            }
            let mut counted = |name: &str| {
                let mut found = None;
                let mut see = |entry: crate::store::Entry| {
                    if entry.key == name.as_bytes() {
                        found = Some(entry.average.rate.round());
                    }
                };
                crate::store::Inspect::for_each(&mut store, &mut see).unwrap();
                found
            };
            assert_eq!(counted("a/recipients/1h/domain:a.test"), Some(3.0), "{later}");
            assert_eq!(counted("a/recipients/1h/auth:alice@a.test"), Some(9.0), "{later}");
        }
    }
}

/// What a later policy would refuse if its recipient was new, and that is known, counts.
#[test]
fn a_known_recipient_counts_in_the_total_of_another_policy() {
    let image = Image::from_bytes(bytes(
        "[policy.a]\nkey = \"auth\"\ndefault.total.messages = \"50/1h\"\n\
         [policy.b]\nkey = \"auth\"\ndefault.unique_recipients = \"1.5/1h\"\n",
    ));
    let image = image.unwrap();
    let (mut evaluator, mut store) = (Evaluator::of_image(&image), Memory::new());
    let now = Timestamp { seconds: 1_800_000_000, micros: 0 };
    let mut session = PolicySession::default();
    for (recipient, refused) in [("x@y", false), ("x@y", false), ("z@y", true), ("x@y", false)] {
        session.new_message();
        session.new_command();
        let event = Event { auth: Some("alice@a.test"), ..Event::default() };
        // Two ACLs ask.
        for _ in 0..2 {
            let step = Step::new(AclStage::Rcpt, Event { recipient: Some(recipient), ..event });
            let (store, seen) = (Ok(&mut store), &mut Seen::default());
            let done = evaluator.evaluate(&mut session, "*", &step, store, || now, seen);
            assert_eq!(done.outcome.verdict >= Verdict::Defer, refused, "{recipient}");
        }
    }
    let mut found = Vec::new();
    let mut see = |entry: crate::store::Entry| found.push((entry.key, entry.average.rate.round()));
    crate::store::Inspect::for_each(&mut store, &mut see).unwrap();
    assert!(found.contains(&(b"a/messages/1h/domain:a.test".to_vec(), 3.0)), "{found:?}");
}

/// A message of alice's to three recipients, of which the policy refuses the third, at all stages, and
/// a failed delivery of it later; then what is known of her.
fn sent_by_alice(policies: &str, names: &str) -> Option<crate::rate::usage::Usage> {
    let spool = tempfile::tempdir().unwrap();
    install(spool.path(), &bytes(policies)).unwrap();
    let (mut evaluator, mut store) = (Evaluator::open(spool.path()), Memory::new());
    let mut session = PolicySession::default();
    // 00:30 in Berlin.
    let now = 1_790_548_200;
    let mut step = |stage, to: Option<&str>, facts, is_one_of, only_looks| {
        let event = Event {
            auth: Some("Alice@example.org"),
            client: Origin::Client([192, 0, 2, 1].into()),
            sender: Some("alice@example.org"),
            recipient: to,
            ..Event::default()
        };
        let step = Step { facts, is_one_of, only_looks, ..Step::new(stage, event) };
        let (seen, now) = (&mut Seen::default(), Timestamp { seconds: now, micros: 0 });
        if stage == AclStage::Delivery {
            session = PolicySession::default();
        }
        session.new_command();
        let evaluated =
            evaluator.evaluate(&mut session, names, &step, Ok(&mut store), || now, seen);
        evaluated.outcome.verdict
    };
    let facts = |recipients, rejected_recipients, message_size| SessionFacts {
        recipients,
        rejected_recipients,
        message_size,
        ..SessionFacts::default()
    };
    let (none, rcpt) = (None, AclStage::Rcpt);
    step(AclStage::Mail, none, facts(0, 0, 0), None, false);
    for n in 0..2 {
        let accepted = step(rcpt, Some("b@b.test"), facts(n, 0, 0), None, false);
        assert_eq!(accepted, Verdict::Accept);
    }
    step(rcpt, Some("c@b.test"), facts(2, 0, 0), None, true);
    let refused = step(rcpt, Some("c@b.test"), facts(2, 0, 0), None, false);
    assert_eq!(refused, Verdict::Defer);
    step(AclStage::Data, none, facts(2, 1, 5000), None, false);
    for unit in [Unit::UnknownRecipients, Unit::FailedRecipients] {
        step(AclStage::Delivery, Some("b@b.test"), facts(0, 0, 0), Some(unit), false);
    }
    let zone = crate::calendar::load(Some("Europe/Berlin")).unwrap();
    let found = store.usage(b"auth:alice@example.org", now, zone.day(now));
    let yesterday = store.usage(b"auth:alice@example.org", now - 3600, zone.day(now - 3600));
    assert!(yesterday.is_none_or(|usage| usage.last(1).is_nothing()));
    found
}

#[test]
fn what_an_account_sends_is_counted_once_by_several_policies_unless_they_say_that_it_is_not() {
    let policies = "[policy.a]\ndefault.recipients = \"2.5/1h\"\nupdate = \"leaky\"\n\
         [policy.b]\ndefault.messages = \"9/1h\"\ndefault.total.recipients = \"90/1h\"\n";
    let zone = "timezone = \"Europe/Berlin\"\n";
    let sent =
        crate::rate::usage::Sent { messages: 1, recipients: 2, bytes: 5000, refused: 1, failed: 2 };
    for names in ["*", "a,b", "a"] {
        let found = sent_by_alice(&format!("{zone}{policies}"), names).unwrap();
        assert_eq!((found.last(1), found.last(35)), (sent, sent), "{names}");
        let hour = found.hours[23];
        assert_eq!((hour.recipients, hour.refused), (2, 1));
    }
    assert_eq!(sent_by_alice(&format!("usage = false\n{zone}{policies}"), "*"), None);
}
