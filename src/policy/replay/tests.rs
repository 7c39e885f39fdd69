//! Replayed events, against a naive evaluator.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::policy::image::build;
use crate::policy::source::compile;
use crate::policy::word::Word as _;
use crate::store::Memory;

fn image(text: &str) -> Image {
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{text}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    Image::from_bytes(build(&policies)).unwrap()
}

/// What `naive` knows as well.
const POLICY: &str = r#"
[identity]
fold = { case = true, plus = true }
[policy.a]
when = "authenticated"
default.recipients = ["4/1m", "9/10m"]
default.unique_recipients = "3/2m"
default.total = { messages = "12/10m" }
package.gold.recipients = "8/1m"
[policy.a.user."carol@b.test"]
recipients = "unlimited"
[[policy.a.exempt]]
match = ["bob@a.test"]
until = 2023-11-14T22:33:20Z
[policy.b]
when = "authenticated"
action = "observe"
default.messages = "3/1m"
[policy.c]
when = "null_sender"
key = ["recipient"]
update = "strict"
bucket = { burst = 3, rate = 0.05 }
[policy.d]
when = "!authenticated"
update = "strict"
verdicts = { "50%" = "log", "100%" = "defer", "200%" = "reject" }
default.recipients = "4/1m"
"#;
const START: i64 = 1_700_000_000;
/// When the exemption of bob ends.
const UNTIL: i64 = 1_700_001_200;

#[derive(Clone, Copy, Debug)]
struct Rcpt {
    login: Option<usize>,
    gold: bool,
    bounce: bool,
    recipient: usize,
    pause: i64,
}

const LOGINS: [&str; 4] = ["alice@a.test", "Bob+x@A.test", "carol@b.test", "dave@a.test"];

impl Arbitrary for Rcpt {
    fn arbitrary(g: &mut Gen) -> Self {
        let number = |g: &mut Gen, most: usize| usize::arbitrary(g) % most;
        Self {
            login: (number(g, 5) > 0).then(|| number(g, 4)),
            gold: number(g, 4) == 0,
            bounce: number(g, 3) == 0,
            recipient: number(g, 5),
            // Mostly a few seconds; sometimes long, or back.
            pause: [2, 3, 5, 9, 0, 400, -3][number(g, 7)] * 1_000_000 + number(g, 1000) as i64,
        }
    }
}

/// A record of the naive evaluator: the rate or level and its time, and the unique
/// events with the second of the first.
#[derive(Clone, Default)]
struct Record {
    kept: Option<(f64, f64)>,
    seen: Option<(i64, HashSet<String>)>,
}

/// A limit, and what an event counts against it.
struct NaiveCheck {
    record: String,
    /// Limit and period, or burst and what leaks a second.
    bucket: bool,
    limit: f64,
    period: f64,
    unique: Option<String>,
    /// It counts nothing if an earlier check, which is none of these, refuses the event.
    total: bool,
}

#[derive(Default)]
struct Naive(HashMap<String, Record>);

impl Naive {
    /// The rate of each check and whether it is over.
    fn decide(&mut self, checks: &[NaiveCheck], leaky: bool, now: (i64, f64)) -> Vec<(f64, bool)> {
        let mut new: Vec<(Record, f64, bool)> = Vec::new();
        for check in checks {
            let looks = check.total && leaky && new.iter().any(|(_, _, over)| *over);
            let mut record = self.0.get(&check.record).cloned().unwrap_or_default();
            if record.seen.as_ref().is_some_and(|(e, _)| now.0 as f64 > *e as f64 + check.period) {
                record.seen = None;
            }
            let mut count = f64::from(u8::from(!looks));
            if let Some(unique) = &check.unique {
                let (_, seen) = record.seen.get_or_insert((now.0, HashSet::new()));
                count = f64::from(u8::from(seen.insert(unique.clone())));
            }
            let rate = match record.kept {
                None => count,
                Some((rate, then)) if check.bucket => {
                    rate - ((now.1 - then).max(0.0) * check.period).min(rate) + count
                }
                Some((rate, then)) => {
                    let i = (now.1 - then).max(1e-9) / check.period;
                    let a = (-i).exp();
                    f64::max((1.0 - a) * count / i + a * rate, count)
                }
            };
            let over =
                if check.bucket { rate > count && rate > check.limit } else { rate >= check.limit };
            record.kept = Some((rate, now.1));
            new.push((record, rate, over));
        }
        let refused = leaky && new.iter().any(|(_, _, over)| *over);
        let result = new.iter().map(|(_, rate, over)| (*rate, *over)).collect();
        for (check, (record, ..)) in checks.iter().zip(new) {
            if !refused {
                self.0.insert(check.record.clone(), record);
            }
        }
        result
    }

    /// The verdict for an event, and the rates of the limits.
    fn event(&mut self, event: Rcpt, now: (i64, f64)) -> (Verdict, Vec<(String, f64, bool)>) {
        let to = format!("r{}@x.test", event.recipient);
        let mut strictest = Verdict::Accept;
        let mut windows = Vec::new();
        // The total, as it was: it counts nothing that another policy refuses.
        let mut before: Option<(usize, String, Record)> = None;
        for policy in ["a", "b", "c", "d"] {
            let average = |unit: &str, limit, period, key: &str, unique| NaiveCheck {
                record: format!("{policy} {unit} {period} {key}"),
                bucket: false,
                limit,
                period,
                unique,
                total: unit == "messages" && policy == "a",
            };
            let login =
                event.login.map(|n| ["alice@a.test", "bob@a.test", LOGINS[2], LOGINS[3]][n]);
            let mut checks = Vec::new();
            let (mut leaky, mut exempt) = (policy == "a", false);
            match (policy, login) {
                ("a", Some(login)) => {
                    // One unlimited unit; the package of the front end, the default.
                    match (login, event.gold) {
                        (LOGIN_WITHOUT_LIMIT, _) => {}
                        (_, true) => checks.push(average("recipients", 8.0, 60.0, login, None)),
                        (_, false) => {
                            checks.push(average("recipients", 4.0, 60.0, login, None));
                            checks.push(average("recipients", 9.0, 600.0, login, None));
                        }
                    }
                    checks.push(average("unique", 3.0, 120.0, login, Some(to.clone())));
                    let domain = login.split('@').nth(1).unwrap();
                    checks.push(average("messages", 12.0, 600.0, domain, None));
                    exempt = login == "bob@a.test" && now.0 < UNTIL;
                    leaky = !exempt;
                }
                ("b", Some(login)) => checks.push(average("messages", 3.0, 60.0, login, None)),
                ("c", _) if event.bounce => checks.push(NaiveCheck {
                    record: format!("c {to}"),
                    bucket: true,
                    limit: 3.0,
                    period: 0.05,
                    unique: None,
                    total: false,
                }),
                ("d", None) => checks.push(average("recipients", 4.0, 60.0, "client", None)),
                _ => {}
            }
            if let Some(at) = checks.iter().position(|check| check.total) {
                let name = checks[at].record.clone();
                let record = self.0.get(&name).cloned().unwrap_or_default();
                before = Some((windows.len() + at, name, record));
            }
            let decided = self.decide(&checks, leaky, now);
            let over = decided.iter().any(|(_, over)| *over);
            let part = decided.iter().map(|(rate, _)| rate / 4.0).fold(0.0, f64::max);
            let verdict = match policy {
                "a" if over && !exempt => Verdict::Defer,
                "b" if over => Verdict::Log,
                "c" if over => Verdict::Defer,
                "d" if over && part >= 2.0 => Verdict::Reject,
                "d" if over => Verdict::Defer,
                "d" if part >= 0.5 => Verdict::Log,
                _ => Verdict::Accept,
            };
            let records = checks.iter().zip(decided);
            windows.extend(records.map(|(c, (rate, over))| (c.record.clone(), rate, over)));
            strictest = strictest.max(verdict);
            if verdict < Verdict::Defer {
                continue;
            }
            if let (true, Some((at, name, record))) = (policy != "a", before) {
                let decayed =
                    |(rate, then): (f64, f64)| rate * ((then - now.1).min(-1e-9) / 600.0).exp();
                let rate = record.kept.map_or(0.0, decayed);
                windows[at] = (name.clone(), rate, rate >= 12.0);
                self.0.insert(name, record);
            }
            break;
        }
        (strictest, windows)
    }
}

const LOGIN_WITHOUT_LIMIT: &str = LOGINS[2];

fn agrees(events: &[Rcpt]) -> bool {
    let image = image(POLICY);
    let mut replay = Replay::new(&image, "*").unwrap();
    let (mut store, mut naive) = (Memory::new(), Naive::default());
    let mut micros = START * 1_000_000;
    events.iter().all(|&event| {
        micros += event.pause;
        let time = Timestamp {
            seconds: micros.div_euclid(1_000_000),
            micros: micros.rem_euclid(1_000_000) as u32,
        };
        let described = ReplayEvent {
            stage: Stage::Rcpt,
            event: Event {
                auth: event.login.map(|n| LOGINS[n].to_owned()),
                client: Origin::Client([192, 0, 2, 7].into()),
                package: event.gold.then(|| "gold".to_owned()),
                sender: Some(if event.bounce { "" } else { "s@y.test" }.to_owned()),
                ..Event::default()
            },
            recipients: Recipients::Addresses(vec![format!("r{}@x.test", event.recipient)]),
            ..ReplayEvent::at(time)
        };
        let decisions = replay.decide(&described, &mut store).unwrap();
        let (verdict, windows) = naive.event(event, (time.seconds, time.as_seconds()));
        let (shown, naive) = (decisions.windows.iter(), windows.iter());
        let alike = shown.zip(naive).all(|(window, (_, rate, over))| {
            (window.decision.rate - rate).abs() < 1e-6 && window.decision.over == *over
        });
        let same = decisions.outcome.verdict == verdict
            && alike
            && decisions.windows.len() == windows.len();
        if !same {
            eprintln!("{event:?}\n{decisions:#?}\n{verdict:?} {windows:?}");
        }
        same
    })
}

quickcheck! {
    fn events_get_what_a_naive_evaluator_says(events: Vec<Rcpt>) -> bool {
        agrees(&events)
    }
}

#[test]
fn a_long_run_agrees_as_well() {
    let mut g = kit::generator(10);
    let events: Vec<Rcpt> = (0..2000).map(|_| Rcpt::arbitrary(&mut g)).collect();
    assert!(agrees(&events));
}

fn message(to: &[&str]) -> ReplayEvent {
    ReplayEvent {
        event: Event {
            auth: Some("alice".into()),
            sender: Some("alice@y.test".into()),
            client: Origin::Client([192, 0, 2, 7].into()),
            ..Event::default()
        },
        recipients: Recipients::Addresses(to.iter().map(|&to| to.to_owned()).collect()),
        size: Some(1000),
        ..ReplayEvent::at(Timestamp { seconds: START, micros: 0 })
    }
}

fn rates(replay: &mut Replay<'_>, store: &mut Memory, event: &ReplayEvent) -> Vec<(Unit, f64)> {
    let decisions = replay.decide(event, store).unwrap();
    let rate = |window: &Window| (window.unit, window.decision.rate.round());
    let mut rates: Vec<_> = decisions.windows.iter().map(rate).collect();
    rates.sort_by_key(|(unit, _)| *unit);
    rates
}

#[test]
fn each_stage_counts_each_thing_once() {
    let image = image(
        "[policy.all.default]\nmessages = \"90/1h\"\nrecipients = \"90/1h\"\n\
         unique_recipients = \"90/1h\"\nbytes = \"90k/1h\"\nconnections = \"90/1h\"\n\
         rejected_recipients = \"90/1h\"\nauth_failures = \"90/1h\"\n",
    );
    let (mut replay, mut store) = (Replay::new(&image, "*").unwrap(), Memory::new());
    use Unit as U;
    let all = |each: [f64; 7]| {
        let units = [
            U::Messages,
            U::Recipients,
            U::UniqueRecipients,
            U::Bytes,
            U::Connections,
            U::RejectedRecipients,
            U::AuthFailures,
        ];
        let all: Vec<_> = units.into_iter().zip(each).filter(|(_, rate)| *rate >= 0.0).collect();
        all
    };
    // A message is its RCPT commands and DATA, of one connection.
    let two = message(&["a@x.test", "b@x.test"]);
    let seen = rates(&mut replay, &mut store, &two);
    assert_eq!(seen, all([1.0, 2.0, 2.0, 1000.0, 1.0, 0.0, 0.0]));
    let seen = rates(&mut replay, &mut store, &message(&["a@x.test"]));
    assert_eq!(seen, all([2.0, 3.0, 2.0, 2000.0, 2.0, 0.0, 0.0]));
    // Handed over locally: all at once, and no connection.
    let local = ReplayEvent { stage: Stage::NotSmtp, ..message(&["c@x.test", "a@x.test"]) };
    let seen = rates(&mut replay, &mut store, &local);
    assert_eq!(seen, all([3.0, 5.0, 3.0, 3000.0, -1.0, -1.0, -1.0]));
    // Only their number is known.
    let counted = ReplayEvent { recipients: Recipients::Count(4), ..message(&[]) };
    let seen = rates(&mut replay, &mut store, &counted);
    assert_eq!(seen, all([4.0, 9.0, -1.0, 4000.0, 3.0, 0.0, 0.0]));
    // A session, step by step.
    let step = |stage, to: &[&str], outcome| ReplayEvent {
        stage,
        session: Some("1".into()),
        outcome,
        ..message(to)
    };
    let failed = step(Stage::Auth, &[], Some(ReplayOutcome::Failed));
    let seen = rates(&mut replay, &mut store, &failed);
    assert_eq!(seen, all([-1.0, -1.0, -1.0, -1.0, 4.0, 0.0, 1.0]));
    rates(&mut replay, &mut store, &step(Stage::Mail, &[], None));
    rates(&mut replay, &mut store, &step(Stage::Rcpt, &["a@x.test"], None));
    let rejected = step(Stage::Rcpt, &["d@x.test"], Some(ReplayOutcome::Rejected));
    let seen = rates(&mut replay, &mut store, &rejected);
    assert_eq!(seen, all([5.0, 11.0, 4.0, -1.0, 4.0, 1.0, 1.0]));
    let seen = rates(&mut replay, &mut store, &step(Stage::Data, &[], None));
    assert_eq!(seen, all([5.0, -1.0, -1.0, 5000.0, 4.0, 1.0, 1.0]));
}

#[test]
fn local_is_never_who_has_logged_in() {
    let image =
        image("[policy.p]\nwhen = \"local\"\nkey = \"sender\"\ndefault.messages = \"9/1h\"\n");
    for (auth, client, local, applies) in [
        (None, None, None, true),
        (None, None, Some(false), false),
        (None, Some("127.0.0.1"), None, true),
        (None, Some("127.0.0.1"), Some(false), false),
        (None, Some("192.0.2.1"), None, false),
        (None, Some("192.0.2.1"), Some(true), true),
        (Some(" "), Some("::1"), None, true),
        (Some("alice"), None, None, false),
        (Some("alice"), Some("::1"), None, false),
        (Some("alice"), Some("192.0.2.1"), Some(true), false),
    ] {
        let (mut replay, mut store) = (Replay::new(&image, "*").unwrap(), Memory::new());
        let event = Event {
            auth: auth.map(str::to_owned),
            client: Origin::of_client(client.map(|client| client.parse().unwrap())),
            ..message(&[]).event
        };
        let event = ReplayEvent { event, local, ..message(&["a@x.test"]) };
        let decisions = replay.decide(&event, &mut store).unwrap();
        assert_eq!(!decisions.windows.is_empty(), applies, "{auth:?} {client:?} {local:?}");
    }
}

#[test]
fn a_message_is_refused_recipient_by_recipient() {
    let image = image("[policy.out]\nupdate = \"strict\"\ndefault.recipients = \"3/1h\"\n");
    let (mut replay, mut store) = (Replay::new(&image, "out").unwrap(), Memory::new());
    let to: Vec<String> = (0..5).map(|n| format!("r{n}@x.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let decisions = replay.decide(&message(&to), &mut store).unwrap();
    assert_eq!((decisions.outcome.verdict, decisions.refused_recipients), (Verdict::Defer, 3));
    assert!(decisions.crossed);
    // The record as it was when it was over first.
    assert_eq!(decisions.windows.len(), 1);
    assert_eq!(decisions.windows[0].decision.rate.round(), 3.0);
    assert_eq!(decisions.windows[0].record(), "out/recipients/1h/auth:alice");
    let again = replay.decide(&message(&to), &mut store).unwrap();
    assert_eq!((again.refused_recipients, again.crossed), (5, false));
}

/// A recipient that was refused for another reason is none of the message.
#[test]
fn a_cap_counts_no_recipient_that_was_rejected() {
    let image = image("[policy.out]\ndefault.recipients_per_message = 2\n");
    let (mut replay, mut store) = (Replay::new(&image, "*").unwrap(), Memory::new());
    let mut verdict = |stage, to: &[&str], outcome| {
        let session = Some("1".to_owned());
        let event = ReplayEvent { stage, session, outcome, ..message(to) };
        replay.decide(&event, &mut store).unwrap().outcome.verdict
    };
    let rejected = Some(ReplayOutcome::Rejected);
    verdict(Stage::Mail, &[], None);
    for (to, outcome, expected) in [
        ("a@x.test", None, Verdict::Accept),
        ("d@x.test", rejected, Verdict::Accept),
        ("b@x.test", None, Verdict::Accept),
        ("c@x.test", None, Verdict::Defer),
    ] {
        assert_eq!(verdict(Stage::Rcpt, &[to], outcome), expected, "{to}");
    }
}

#[test]
fn a_router_counts_a_message_once_although_it_is_retried() {
    let image = image("[policy.out]\ndefault.messages = \"9/1h\"\ndefault.recipients = \"9/1h\"\n");
    let (mut replay, mut store) = (Replay::new(&image, "*").unwrap(), Memory::new());
    let mut retry = ReplayEvent { stage: Stage::Router, ..message(&["a@x.test", "b@x.test"]) };
    retry.event.message_id = Some("1abc".into());
    rates(&mut replay, &mut store, &retry);
    let seen = rates(&mut replay, &mut store, &retry);
    assert_eq!(seen, [(Unit::Messages, 1.0), (Unit::Recipients, 2.0)]);
}

#[test]
fn unknown_policies_are_named() {
    let image = image("[policy.out]\ndefault.messages = \"9/1h\"\n");
    let error = |names| Replay::new(&image, names).err().unwrap();
    assert_eq!(error("ot"), "there is no policy \"ot\"; did you mean \"out\"?");
    assert_eq!(error("out, x"), "there is no policy \"x\"; the policies are: out");
    assert_eq!(Verdict::Defer.word(), "defer");
}

#[test]
fn memory_forgets_what_decides_nothing() {
    let image = image(POLICY);
    let run = |forget: bool| {
        let (mut replay, mut store) = (Replay::new(&image, "*").unwrap(), Memory::new());
        let mut all = Vec::new();
        for n in 0..400_i64 {
            // Now and then nothing happens for longer than any period.
            let seconds = START + n * 7 + n / 50 * 40_000;
            let login = LOGINS[n as usize % 4];
            let mut event = message(&[["a@x.test", "b@x.test", "c@x.test"][n as usize % 3]]);
            event.event.auth = Some(login.to_owned());
            event.event.sender = Some(String::new());
            event.time = Timestamp { seconds, micros: 0 };
            all.push(replay.decide(&event, &mut store).unwrap().outcome.verdict);
            if forget {
                store.forget(event.time, LEAST_COUNT);
            }
        }
        (all, store.len())
    };
    let (kept, forgotten) = (run(false), run(true));
    assert_eq!(kept.0, forgotten.0);
    assert!(kept.0.contains(&Verdict::Defer));
    let image_of_one = |seconds| Timestamp { seconds, micros: 0 };
    let (mut replay, mut store) = (Replay::new(&image, "*").unwrap(), Memory::new());
    replay.decide(&message(&["a@x.test"]), &mut store).unwrap();
    store.forget(image_of_one(START + 60), LEAST_COUNT);
    assert!(!store.is_empty());
    // Sooner where all that is counted is at least one.
    store.forget(image_of_one(START + 7_200), 0.0);
    assert!(!store.is_empty());
    store.forget(image_of_one(START + 7_200), LEAST_COUNT);
    assert!(store.is_empty());
}
