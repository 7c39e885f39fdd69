//! Simulations: as a real Exim counted the same sessions, and as replayed events.

use std::path::Path;
use std::rc::Rc;

use kit::quickcheck;

use super::*;
use crate::event::{AclStage, Event, Origin};
use crate::logs::item::Text;
use crate::policy::image::{Image, build};
use crate::policy::replay::{Recipients, Replay, ReplayEvent, Stage};
use crate::policy::source::compile;
use crate::policy::word::{Unit, Verdict};
use crate::rate::Timestamp;
use crate::store::Memory;

const START: i64 = 1_795_175_437;

fn image(text: &str) -> Image {
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{text}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    Image::from_bytes(build(&policies)).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds: START + seconds, micros: 0 }
}

/// A session of a client, whose steps are one second apart at most.
struct Dialogue {
    event: Event<Text>,
    session: u64,
    now: Timestamp,
    attempts: Vec<Attempt>,
}

impl Dialogue {
    fn of_server(session: u64, now: Timestamp) -> Self {
        let client = Origin::Client([192, 0, 2, 7].into());
        let sender = Some("s@y.test".into());
        let event = Event { client, sender, ..Event::default() };
        Self { event, session, now, attempts: Vec::new() }
    }

    fn of_user(session: u64, now: Timestamp, login: &str) -> Self {
        let mut dialogue = Self::of_server(session, now);
        dialogue.event.auth = Some(login.into());
        dialogue
    }

    fn add(&mut self, part: AttemptPart, in_log: InLog) -> &mut Self {
        let event = Rc::new(self.event.clone());
        let (at, session) = (self.now, self.session);
        self.attempts.push(Attempt { at, session, event, part, in_log });
        self
    }

    fn rcpt(&mut self, to: &str, in_log: InLog) -> &mut Self {
        self.add(AttemptPart::Rcpt { recipient: format!("{to}@x.test").into() }, in_log)
    }

    fn message(&mut self, to: &[&str]) -> &mut Self {
        self.add(AttemptPart::Mail, InLog::Accepted);
        for to in to {
            self.rcpt(to, InLog::Accepted);
        }
        self.add(AttemptPart::Data { size: Some(500) }, InLog::Accepted)
    }
}

/// What a simulation decided: time, kind of attempt, verdict, and the rate of the reason.
type Line = (i64, &'static str, Verdict, f64);

struct Ran {
    lines: Vec<Line>,
    totals: Totals,
    refused: Vec<Refused>,
    refused_events: u64,
    observed: u64,
}

fn run(image: &Image, settings: SimulationSettings, attempts: &[Attempt]) -> Ran {
    let mut simulation = Simulation::new(image, "*", settings).unwrap();
    let (mut lines, mut refusals) = (Vec::new(), Refusals::default());
    let mut visit = |decided: &Decided<'_>| {
        refusals.add(decided);
        let part = match decided.attempt.part {
            _ if decided.retry > 0 => "retry",
            AttemptPart::Auth => "auth",
            AttemptPart::Rcpt { .. } => "rcpt",
            AttemptPart::Data { .. } => "data",
            _ => "other",
        };
        let outcome = &decided.decisions.outcome;
        let rate = outcome.reason.as_ref().map_or(0.0, |reason| reason.decision.rate);
        let seconds = decided.attempt.at.seconds - START;
        lines.push((seconds, part, outcome.verdict, (rate * 10.0).round() / 10.0));
    };
    for attempt in attempts {
        simulation.decide(attempt, &mut visit).unwrap();
    }
    simulation.finish(&mut visit).unwrap();
    let totals = simulation.totals().clone();
    let end = totals.span.map_or(at(0), |(_, last)| last);
    let (refused_events, observed) = (refusals.events(), refusals.observed());
    Ran { lines, totals, refused: refusals.sorted(end), refused_events, observed }
}

/// The verdicts at one kind of attempt, with the rates.
fn verdicts(ran: &Ran, part: &str) -> Vec<(Verdict, f64)> {
    ran.lines.iter().filter(|line| line.1 == part).map(|line| (line.2, line.3)).collect()
}

/// The policy and the sessions whose rates an Exim 4.96 logged.
const REAL: &str = r#"
[policy.a]
when = "authenticated"
update = "strict"
default.recipients = "4/1h"
[policy.n]
when = "!authenticated"
key = ["client"]
update = "strict"
default.recipients = "5/1h"
default.auth_failures = "3/1h"
default.rejected_recipients = "2/1h"
"#;

#[test]
fn failed_logins_count_with_the_next_command() {
    let image = image(REAL);
    let mut client = Dialogue::of_server(1, at(0));
    for _ in 0..4 {
        client.add(AttemptPart::Auth, InLog::Rejected);
        // A rate just below a whole number, as in any real session.
        client.now.micros += 1000;
    }
    client.add(AttemptPart::Auth, InLog::Limited);
    client.add(AttemptPart::Mail, InLog::Accepted).rcpt("d", InLog::Limited);
    let ran = run(&image, SimulationSettings::default(), &client.attempts);
    use Verdict::{Accept, Defer};
    let logins = [(Accept, 0.0), (Accept, 1.0), (Accept, 2.0), (Accept, 3.0), (Defer, 4.0)];
    assert_eq!(verdicts(&ran, "auth"), logins);
    assert_eq!(verdicts(&ran, "rcpt"), [(Defer, 5.0)]);
    assert_eq!((ran.totals.logins, ran.totals.limited, ran.refused_events), (5, 2, 2));
    assert_eq!(ran.refused.len(), 1);
    let one = &ran.refused[0];
    assert_eq!((one.of.unit, one.of.key.as_str()), (Unit::AuthFailures, "client:192.0.2.7"));
    assert_eq!((one.events, one.recipients, one.messages), (2, 1, 1));
    // The one at MAIL is at a stage that is not evaluated.
    assert_eq!(ran.totals.undecided, 1);
}

#[test]
fn recipients_that_the_server_refused_count_with_the_next_one() {
    let image = image(REAL);
    let mut client = Dialogue::of_server(1, at(0));
    client.add(AttemptPart::Mail, InLog::Accepted);
    for to in ["n1", "n2", "n3"] {
        client.rcpt(to, InLog::Rejected);
        client.now.micros += 1000;
    }
    client.rcpt("c", InLog::Limited).add(AttemptPart::Incomplete, InLog::Accepted);
    client.add(AttemptPart::Mail, InLog::Accepted).rcpt("d", InLog::Limited);
    let ran = run(&image, SimulationSettings::default(), &client.attempts);
    use Verdict::{Accept, Defer};
    let verdicts: Vec<Verdict> = verdicts(&ran, "rcpt").iter().map(|one| one.0).collect();
    assert_eq!(verdicts, [Accept, Accept, Accept, Defer, Defer]);
    let one = &ran.refused[0];
    assert_eq!((one.of.unit, one.messages), (Unit::RejectedRecipients, 2));
    assert!((one.highest - 3.0).abs() < 0.1, "{one:?}");
}

#[test]
fn who_is_over_is_counted_by_limit_and_key() {
    let image = image(REAL);
    let mut alice = Dialogue::of_user(1, at(0), "alice");
    for _ in 0..3 {
        alice.message(&["a", "b"]);
        alice.now.seconds += 60;
    }
    // Much later, all is forgotten.
    alice.now = at(40_000);
    alice.message(&["a"]);
    let ran = run(&image, SimulationSettings::default(), &alice.attempts);
    assert_eq!((ran.totals.messages, ran.totals.recipients), (4, 7));
    assert_eq!(ran.refused_events, 2, "{:?}", ran.lines);
    let one = &ran.refused[0];
    let of = LimitKey {
        policy: "a".into(),
        rule: "default".into(),
        unit: Unit::Recipients,
        window: "4/1h".into(),
        key: "auth:alice".into(),
    };
    assert_eq!((&one.of, one.events, one.recipients, one.messages), (&of, 2, 2, 1));
    assert_eq!((one.crossings, one.retries, one.observed), (1, 0, false));
    assert_eq!((one.limit, one.highest.round()), (4.0, 6.0));
    assert_eq!(one.refused, Some((at(120), at(120))));
    // A strict rate of 5.9 takes until `5.9 e^-t + 1 < 4` to fall: about 40 minutes.
    assert!((2000.0..3000.0).contains(&one.over) && one.over == one.longest, "{one:?}");
    // A user does not try again, and nobody is left to write to at DATA.
    assert_eq!(ran.totals.retries, Retries::default());
    assert_eq!(verdicts(&ran, "data").len(), 3);
}

#[test]
fn times_over_the_limit_end_when_an_event_would_pass() {
    let image = image("[policy.p]\nbucket = { burst = 1.5, rate = 0.1 }\nkey = [\"client\"]\n");
    let mut attempts = Vec::new();
    // Pairs, of which the second is refused; the bucket has room again some seconds later.
    for (session, seconds) in [(1, 0), (2, 1), (3, 100), (4, 101), (5, 200)] {
        let mut client = Dialogue::of_user(session, at(seconds), "x");
        attempts.append(&mut client.message(&["a"]).attempts);
    }
    let ran = run(&image, SimulationSettings::default(), &attempts);
    let one = &ran.refused[0];
    assert_eq!((one.events, one.crossings), (2, 2));
    // Both times 0.9 is left in the bucket, and 0.5 may be there.
    assert!((one.over - 8.0).abs() < 0.1 && (one.longest - 4.0).abs() < 0.1, "{one:?}");
    // What comes after the end of the log is not known.
    let ran = run(&image, SimulationSettings::default(), &attempts[..attempts.len() - 3]);
    assert!((ran.refused[0].over - 4.0).abs() < 0.1, "{:?}", ran.refused);
}

#[test]
fn servers_try_again_until_they_are_accepted_or_give_up() {
    let policy = "[policy.p]\nkey = [\"client\"]\ndefault.recipients = \"2.5/1h\"\n";
    let mut server = Dialogue::of_server(1, at(0));
    server.message(&["a", "b", "c", "d"]);
    // So that the retries are within the log.
    let mut later = Dialogue::of_user(2, at(90_000), "x");
    later.event.client = Origin::Client([192, 0, 2, 8].into());
    server.attempts.append(&mut later.message(&["e"]).attempts);
    let schedule = |waits: &[f64]| SimulationSettings {
        retry: Schedule::new(waits.to_vec()),
        ..SimulationSettings::default()
    };
    let ran = run(&image(policy), schedule(&[900.0, 1800.0, 7200.0]), &server.attempts);
    let retries = ran.totals.retries;
    // One of two recipients passes after 15 minutes (2·e^(-1/4) + 0.88 = 2.44), the other
    // 30 minutes later.
    assert_eq!((retries.messages, retries.accepted, retries.given_up), (1, 1, 0), "{retries:?}");
    assert_eq!((retries.tries, retries.longest), (2, 2700.0), "{:?}", ran.lines);
    assert_eq!((ran.refused[0].events, ran.refused[0].recipients), (2, 2));
    assert_eq!(ran.refused[0].retries, 1);

    let ran = run(&image(policy), schedule(&[60.0]), &server.attempts);
    let retries = ran.totals.retries;
    assert_eq!((retries.tries, retries.accepted, retries.given_up), (1, 0, 1), "{retries:?}");
    let ran = run(&image(policy), schedule(&[]), &server.attempts);
    assert_eq!(ran.totals.retries, Retries::default());
    // Those that wait when the log ends.
    let ran = run(&image(policy), schedule(&[100_000.0]), &server.attempts);
    assert_eq!((ran.totals.retries.tries, ran.totals.retries.waiting), (0, 1));
    // What was refused then is tried again in the log, if at all.
    for attempt in &mut server.attempts {
        attempt.in_log = InLog::Limited;
    }
    let ran = run(&image(policy), schedule(&[900.0]), &server.attempts);
    assert_eq!(ran.totals.retries, Retries::default());
}

#[test]
fn what_was_refused_after_data_is_not_tried_again() {
    let image = image("[policy.p]\nkey = [\"client\"]\ndefault.messages = \"1.5/1h\"\n");
    let mut server = Dialogue::of_server(1, at(0));
    server.message(&["a"]);
    for in_log in [InLog::Limited, InLog::Rejected, InLog::Deferred] {
        server.add(AttemptPart::Mail, InLog::Accepted).rcpt("b", InLog::Accepted);
        server.add(AttemptPart::Data { size: None }, in_log);
    }
    let mut later = Dialogue::of_user(2, at(90_000), "x");
    server.attempts.append(&mut later.message(&["e"]).attempts);
    let ran = run(&image, SimulationSettings::default(), &server.attempts);
    assert_eq!((ran.refused_events, ran.totals.retries), (3, Retries::default()));
}

#[test]
fn events_at_the_same_time_count_in_full() {
    // With a week's period, no time between two events would make each 1 % larger or smaller.
    let image = image("[policy.p]\ndefault.recipients = \"1000.5/1w\"\n");
    let mut alice = Dialogue::of_user(1, at(0), "alice");
    let to: Vec<String> = (0..1002).map(|n| format!("r{n}")).collect();
    alice.message(&to.iter().map(String::as_str).collect::<Vec<_>>());
    let ran = run(&image, SimulationSettings::default(), &alice.attempts);
    assert_eq!(ran.refused_events, 2, "{:?}", ran.refused);
    assert!((ran.refused[0].highest - 1001.0).abs() < 0.1, "{:?}", ran.refused);
    // A time that goes back is none.
    let mut times = vec![at(3600), at(0), at(1)];
    let attempts = times
        .drain(..)
        .flat_map(|now| Dialogue::of_user(1, now, "alice").message(&["a"]).attempts.clone());
    let ran = run(&image, SimulationSettings::default(), &attempts.collect::<Vec<_>>());
    assert_eq!(ran.totals.back, 6);
    assert!(ran.lines.iter().all(|line| line.3 <= 3.0), "{:?}", ran.lines);
}

#[test]
fn a_policy_that_observes_refuses_nothing() {
    let image = image("[policy.p]\naction = \"observe\"\ndefault.messages = \"1.5/1h\"\n");
    let mut alice = Dialogue::of_user(1, at(0), "alice");
    alice.message(&["a"]).message(&["a"]);
    let ran = run(&image, SimulationSettings::default(), &alice.attempts);
    // At RCPT and, from memory, at DATA.
    assert_eq!((ran.refused_events, ran.observed), (0, 2));
    assert!(ran.refused[0].observed);
    assert_eq!(ran.totals.verdicts.of(Verdict::Log), 2);
    assert_eq!(ran.totals.verdicts.all(), 4);
}

#[test]
fn only_the_stages_of_the_acls_are_decided() {
    let image = image("[policy.p]\nkey = [\"client\"]\ndefault.connections = \"2.5/1h\"\n");
    let attempts: Vec<Attempt> = (0..4)
        .flat_map(|session| {
            let mut client = Dialogue::of_server(session, at(0));
            client.add(AttemptPart::Connect, InLog::Accepted);
            client.add(AttemptPart::Close, InLog::Accepted).attempts.clone()
        })
        .collect();
    let ran = run(&image, SimulationSettings::default(), &attempts);
    assert_eq!((ran.totals.verdicts.all(), ran.totals.undecided), (0, 4));
    let settings =
        SimulationSettings { stages: vec![AclStage::Connect], ..SimulationSettings::default() };
    let ran = run(&image, settings, &attempts);
    assert_eq!(ran.totals.verdicts.of(Verdict::Defer), 2);
}

#[test]
fn an_unknown_policy_is_named() {
    let image = image(REAL);
    let error =
        Simulation::new(&image, "b", SimulationSettings::default()).err().unwrap().to_string();
    assert!(error.contains("there is no policy \"b\""), "{error}");
}

#[test]
fn sessions_that_are_never_closed_are_forgotten() {
    let image = image(REAL);
    let mut simulation = Simulation::new(&image, "*", SimulationSettings::default()).unwrap();
    for session in 0..(engine::SESSIONS_MAX as u64 + 10) {
        let mut client = Dialogue::of_server(session, at(0));
        client.add(AttemptPart::Mail, InLog::Accepted);
        simulation.decide(&client.attempts[0], &mut |_| {}).unwrap();
    }
    assert!(simulation.open_sessions() <= engine::SESSIONS_MAX);
    assert!(simulation.open_sessions() >= engine::SESSIONS_MAX / 2);
}

#[test]
fn refusals_of_too_many_keys_are_only_counted() {
    let image = image(REAL);
    let mut simulation = Simulation::new(&image, "*", SimulationSettings::default()).unwrap();
    let mut refusals = Refusals::of_at_most(2);
    for (session, login) in (0..).zip(["alice", "bob", "carol"]) {
        let mut client = Dialogue::of_user(session, at(60 * session as i64), login);
        client.message(&["a", "b", "c", "d", "e"]);
        for attempt in &client.attempts {
            simulation.decide(attempt, &mut |decided| refusals.add(decided)).unwrap();
        }
    }
    // Of each, the fifth recipient is over the limit of four.
    assert_eq!((refusals.events(), refusals.omitted()), (3, 1));
    let keys: Vec<String> = refusals.sorted(at(600)).into_iter().map(|one| one.of.key).collect();
    assert_eq!(keys, ["auth:alice", "auth:bob"]);
}

quickcheck! {
    /// Messages by the steps of their sessions get what whole messages get.
    fn steps_decide_as_whole_messages_do(mails: Vec<(u8, u8, u16)>) -> bool {
        let image = image(
            "[policy.a]\nwhen = \"authenticated\"\ndefault.recipients = \"4.5/10m\"\n\
             default.bytes = \"3k/10m\"\ndefault.messages = \"3.5/10m\"\n\
             [policy.b]\nupdate = \"strict\"\nkey = [\"client\"]\n\
             default.recipients = \"9.5/1h\"\nverdicts = { \"100%\" = \"reject\" }\n",
        );
        let settings = SimulationSettings { retry: Schedule::new(Vec::new()), ..SimulationSettings::default() };
        let mut simulation = Simulation::new(&image, "*", settings).unwrap();
        let mut replay = Replay::new(&image, "*").unwrap();
        let mut store = Memory::new();
        let mut now = at(0);
        for (number, (who, count, pause)) in (0_u64..).zip(mails) {
            now.seconds += i64::from(pause % 300);
            let mut mail = match who % 3 {
                0 => Dialogue::of_server(number, now),
                who => Dialogue::of_user(number, now, ["alice", "bob"][usize::from(who) - 1]),
            };
            let to: Vec<String> = (0..=count % 5).map(|n| format!("r{n}")).collect();
            mail.message(&to.iter().map(String::as_str).collect::<Vec<_>>());
            let (mut refused, mut strictest) = (0, Verdict::Accept);
            for attempt in &mail.attempts {
                let visit = &mut |decided: &Decided<'_>| {
                    refused += decided.decisions.refused_recipients;
                    strictest = strictest.max(decided.decisions.outcome.verdict);
                };
                simulation.decide(attempt, visit).unwrap();
            }
            let event = ReplayEvent {
                stage: Stage::Message,
                event: mail.event.view().map(str::to_owned),
                recipients: Recipients::Addresses(
                    to.iter().map(|to| format!("{to}@x.test")).collect(),
                ),
                size: Some(500),
                ..ReplayEvent::at(now)
            };
            let whole = replay.decide(&event, &mut store).unwrap();
            if (refused, strictest) != (whole.refused_recipients, whole.outcome.verdict) {
                eprintln!("{event:?}: {refused} {strictest:?}, {whole:?}");
                return false;
            }
        }
        true
    }
}

/// What policies at delivery make of these attempts.
fn sent_later(policies: &str, attempts: &[Attempt]) -> SentLater {
    let image = image(policies);
    let mut simulation = Simulation::new(&image, "*", SimulationSettings::default()).unwrap();
    for attempt in attempts {
        simulation.decide(attempt, &mut |_| {}).unwrap();
    }
    simulation.finish(&mut |_| {}).unwrap();
    simulation.later().unwrap()
}

#[test]
fn mail_is_sent_later_at_the_pace_of_its_destination() {
    let to: Vec<String> = (0..100).map(|n| format!("to{n}")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let mut news = Dialogue::of_user(1, at(0), "alice");
    news.message(&to);
    let mut bounce = Dialogue::of_server(2, at(1));
    bounce.event.sender = Some("".into());
    bounce.message(&["bounced"]);
    let attempts = [news.attempts, bounce.attempts].concat();
    let pace =
        "[policy.pace]\nat = \"delivery\"\nkey = \"destination\"\ndefault.recipients = \"60/1m\"\n";
    let later = sent_later(pace, &attempts);
    // 60 at once, one a second until the run 23 seconds later, and the others a minute after that.
    let waits = Waits { median: 23, most: 83, longest: 83 };
    assert_eq!((later.recipients, later.waited, later.waits), (101, 40, waits));
    assert_eq!((later.queue, later.returned, later.waiting), (40, 0, 0));
    let [key] = &later.keys[..] else { panic!("{later:?}") };
    assert_eq!((&*key.policy, &*key.key, key.recipients), ("pace", "destination:x.test", 40));

    let slow = pace.replace("60/1m", "6/1m") + "longest = \"30s\"\n";
    let later = sent_later(&slow, &attempts);
    assert!(later.returned > 80 && later.waits.longest == 83, "{later:?}");
    let later = sent_later(&format!("{slow}after_longest = \"deliver\"\n"), &attempts);
    assert!(later.over > 80 && later.returned == 0, "{later:?}");
    let later = sent_later(&format!("{pace}action = \"observe\"\n"), &attempts);
    assert_eq!((later.waited, later.observed), (0, 40));
}

/// A bucket at acceptance, as `docs/later.md` has it, is a limit on how many wait.
#[test]
fn a_bucket_at_acceptance_bounds_the_queue() {
    let mut attempts = Vec::new();
    for minute in 0..36 * 60 {
        let mut dialogue = Dialogue::of_user(minute, at(minute as i64 * 60), "alice");
        let to: Vec<String> = (0..5).map(|n| format!("to{n}m{minute}")).collect();
        dialogue.message(&to.iter().map(String::as_str).collect::<Vec<_>>());
        attempts.extend(dialogue.attempts);
    }
    let later =
        "[policy.users]\nat = \"delivery\"\nkey = \"auth\"\ndefault.recipients = \"60/1h\"\n";
    let full = "[policy.full]\nkey = \"auth\"\nbucket = { burst = 260, rate = \"60/1h\" }\n";
    let unbounded = sent_later(later, &attempts);
    assert!(unbounded.queue > 5000, "{unbounded:?}");
    let bounded = sent_later(&format!("{full}{later}"), &attempts);
    assert!((190..=230).contains(&bounded.queue), "{bounded:?}");
}
