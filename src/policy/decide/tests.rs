//! Decisions by policies, on a memory store.

use std::collections::HashMap;
use std::path::Path;

use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::event::session::{AlreadyCounted, SessionFacts};
use crate::event::{AclStage, Local, Origin};
use crate::policy::image::{Image, build};
use crate::policy::model::Policies;
use crate::policy::source::compile;
use crate::rate::Average;
use crate::store::{Counting, Entry, Inspect, Judged, Memory, Sending};

const START: Timestamp = Timestamp { seconds: 1_700_000_000, micros: 0 };

fn later(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp { seconds: at.seconds + seconds, ..at }
}

fn policies(text: &str) -> Policies {
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{text}"), &none);
    compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics))
}

/// A session, of which each event is a command of its own.
struct Session<'p> {
    image: Image,
    store: Memory,
    cache: DecisionCache,
    counted: HashMap<&'p str, AlreadyCounted>,
    now: Timestamp,
    looks: bool,
}

impl<'p> Session<'p> {
    fn new(policies: &'p Policies) -> Self {
        Self {
            image: Image::from_bytes(build(policies)).unwrap(),
            store: Memory::new(),
            cache: DecisionCache::default(),
            counted: HashMap::new(),
            now: START,
            looks: false,
        }
    }

    fn new_message(&mut self) {
        self.cache.new_message();
        self.counted.values_mut().for_each(AlreadyCounted::new_message);
    }

    fn at(&mut self, stage: AclStage, name: &'p str, event: &Event<&str>) -> Outcome {
        self.with(stage, name, event, SessionFacts::default())
    }

    fn with(
        &mut self,
        stage: AclStage,
        name: &'p str,
        event: &Event<&str>,
        facts: SessionFacts,
    ) -> Outcome {
        self.cache.new_command();
        self.again(stage, name, event, facts)
    }

    fn again(
        &mut self,
        stage: AclStage,
        name: &'p str,
        event: &Event<&str>,
        facts: SessionFacts,
    ) -> Outcome {
        let policy = self.image.policy(name).unwrap().unwrap();
        let rules = Rules { name, identity: self.image.identity().unwrap(), policy };
        let mut occurrences = Vec::new();
        self.counted.entry(name).or_default().occurrences(stage, &facts, &mut occurrences);
        let now = self.now;
        let (cache, store) = (&mut self.cache, &mut self.store);
        let counts = if self.looks { CountedChecks::Nothing } else { CountedChecks::All };
        let to_count = ToCount {
            occurrences: &occurrences,
            all_exempt: false,
            counts,
            delivered_after: None,
            bypassed: false,
        };
        decide(&rules, event, to_count, cache, store, || now, |_| {}).unwrap()
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

fn to<'a>(event: Event<&'a str>, recipient: &'a str) -> Event<&'a str> {
    Event { recipient: Some(recipient), ..event }
}

#[test]
fn windows_are_decided_together() {
    let all = policies("[policy.out]\ndefault.recipients = [\"3/1h\", \"4/1d\"]\n");
    let mut session = Session::new(&all);
    let mut verdicts = Vec::new();
    for n in 0..12 {
        // An hour later the first window has room again, the second has not.
        session.now = later(START, if n < 6 { 0 } else { 3600 });
        verdicts.push(session.at(AclStage::Rcpt, "out", &to(alice(), "bob@x.test")));
    }
    let word =
        |outcome: &Outcome| (outcome.verdict, outcome.reason.as_ref().unwrap().window().to_owned());
    let over = |window: &str| (Verdict::Defer, window.to_owned());
    let seen: Vec<_> = verdicts.iter().map(word).collect();
    assert_eq!(seen.iter().filter(|(verdict, _)| *verdict == Verdict::Accept).count(), 4);
    assert!(seen[2..6].iter().all(|one| *one == over("3/1h")), "{seen:?}");
    assert!(seen[8..].iter().all(|one| *one == over("4/1d")), "{seen:?}");
    let reason = verdicts[3].reason.as_ref().unwrap();
    assert_eq!((reason.key(), &*reason.rule), ("auth:alice@example.org", "default"));
}

#[test]
fn a_message_is_counted_once_and_a_recipient_each_time() {
    let all = policies(
        "[policy.out]\ndefault = { messages = \"100/1h\", recipients = \"100/1h\", bytes = \"1M/1h\" }\n",
    );
    let mut session = Session::new(&all);
    for _ in 0..2 {
        session.new_message();
        session.at(AclStage::Mail, "out", &alice());
        for recipient in ["a@x.test", "b@x.test", "c@x.test"] {
            let event = to(alice(), recipient);
            session.at(AclStage::Rcpt, "out", &event);
            // Two lines of one ACL.
            session.again(AclStage::Rcpt, "out", &event, SessionFacts::default());
        }
        let facts = SessionFacts { recipients: 3, message_size: 1000, ..SessionFacts::default() };
        session.at(AclStage::Predata, "out", &alice());
        session.with(AclStage::Data, "out", &alice(), facts);
        session.with(AclStage::Data, "out", &alice(), facts);
    }
    session.looks = true;
    session.new_message();
    let rates = |session: &mut Session<'_>, unit: &str| {
        let text = format!("[policy.out]\ndefault.{unit} = \"7/1h\"\n");
        let one = policies(&text);
        let mut looks = Session::new(&one);
        std::mem::swap(&mut looks.store, &mut session.store);
        looks.looks = true;
        let facts = SessionFacts { recipients: 1, message_size: 1, ..SessionFacts::default() };
        let outcome = looks.with(AclStage::NotSmtp, "out", &alice(), facts);
        std::mem::swap(&mut looks.store, &mut session.store);
        outcome.reason.unwrap().decision.rate
    };
    let near =
        |rate: f64, expected: f64| assert!((rate - expected).abs() < 1e-3, "{rate} {expected}");
    near(rates(&mut session, "messages"), 2.0);
    near(rates(&mut session, "recipients"), 6.0);
    near(rates(&mut session, "bytes"), 2000.0);
}

#[test]
fn what_is_refused_is_still_to_be_counted() {
    // The first recipient is refused by its own limit, so the message is not counted
    // with it, but with the second.
    let all = policies(
        "[policy.to]\nkey = \"recipient\"\ndefault.recipients = \"2/1h\"\n\
         [policy.out]\ndefault = { messages = \"10/1h\", unique_recipients = \"2/1h\" }\n",
    );
    let mut session = Session::new(&all);
    session.at(AclStage::Rcpt, "out", &to(alice(), "a@x.test"));
    session.new_message();
    assert_eq!(session.at(AclStage::Rcpt, "out", &to(alice(), "b@x.test")).verdict, Verdict::Defer);
    let seen = session.at(AclStage::Rcpt, "out", &to(alice(), "a@x.test"));
    assert_eq!(seen.verdict, Verdict::Accept);
    let messages = |session: &mut Session<'_>| {
        session.new_message();
        session.looks = true;
        let outcome = session.at(AclStage::Mail, "out", &alice());
        session.looks = false;
        outcome.reason.unwrap().decision.rate
    };
    assert!((messages(&mut session) - 2.0).abs() < 1e-6);
    let to_a =
        |session: &mut Session<'_>| session.at(AclStage::Rcpt, "to", &to(alice(), "a@x.test"));
    assert_eq!(to_a(&mut session).verdict, Verdict::Accept);
    assert_eq!(to_a(&mut session).verdict, Verdict::Defer);
    assert_eq!(session.at(AclStage::Rcpt, "to", &to(alice(), "b@x.test")).verdict, Verdict::Accept);
}

#[test]
fn a_message_is_still_to_be_counted_after_the_same_refusal_twice() {
    let all = policies(
        "[policy.out]\ndefault = { messages = \"10/1h\", unique_recipients = \"2/1h\" }\n",
    );
    let mut session = Session::new(&all);
    session.at(AclStage::Rcpt, "out", &to(alice(), "a@x.test"));
    session.new_message();
    // Two lines of one ACL.
    let over = to(alice(), "b@x.test");
    let first = session.at(AclStage::Rcpt, "out", &over);
    let second = session.again(AclStage::Rcpt, "out", &over, SessionFacts::default());
    assert_eq!([first.verdict, second.verdict], [Verdict::Defer; 2]);
    session.at(AclStage::Rcpt, "out", &to(alice(), "a@x.test"));
    session.new_message();
    session.looks = true;
    let messages = session.at(AclStage::Mail, "out", &alice()).reason.unwrap().decision.rate;
    assert!((messages - 2.0).abs() < 1e-6, "{messages}");
}

#[test]
fn a_bounce_is_from_one_sender() {
    let all = policies("[policy.p]\nkey = \"client\"\ndefault.unique_senders = \"3/1h\"\n");
    let mut session = Session::new(&all);
    let rates = ["a@x.test", "", "", "b@x.test"].map(|sender| {
        session.new_message();
        let event = Event { sender: Some(sender), ..alice() };
        session.at(AclStage::Mail, "p", &event).reason.unwrap().decision.rate
    });
    let near = rates.iter().zip([1.0, 2.0, 2.0, 3.0]).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(near, "{rates:?}");
}

#[test]
fn buckets_of_different_rates_are_different_records() {
    let all = policies(
        "[policy.p]\nbucket = [{ burst = 2, rate = \"1/1h\" }, { burst = 9, rate = \"7/1h\" }]\n",
    );
    let mut session = Session::new(&all);
    let rcpt = |session: &mut Session<'_>| session.at(AclStage::Rcpt, "p", &to(alice(), "b@x"));
    let verdicts = [(); 4].map(|()| rcpt(&mut session).verdict);
    assert_eq!(verdicts[1..3], [Verdict::Accept, Verdict::Defer]);
    assert_eq!(session.store.len(), 2);
}

#[test]
fn the_reason_is_the_longest_wait() {
    let all =
        policies("[policy.p]\nupdate = \"strict\"\ndefault.recipients = [\"2/1m\", \"4/1d\"]\n");
    let mut session = Session::new(&all);
    let mut rcpt = || session.at(AclStage::Rcpt, "p", &to(alice(), "b@x.test"));
    let last = [(); 5].map(|()| rcpt()).into_iter().next_back().unwrap();
    // The first is 2.5 times its limit, the second 1.25 times.
    assert_eq!(last.reason.unwrap().window(), "4/1d");
}

#[test]
fn an_override_denies_what_is_exempt() {
    let all = policies("[policy.p]\ndefault.recipients = \"9/1h\"\n");
    let mut session = Session::new(&all);
    let outcome = session.at(AclStage::Rcpt, "p", &to(alice(), "b@x.test"));
    let mut decision = outcome.reason.unwrap().decision;
    let limit = Limit {
        unit: Unit::Recipients,
        per: Per::Key,
        algorithm: crate::engine::Algorithm::MovingAverage { limit: 9.0, period: 3600.0 },
        every: None,
        text: "9/1h",
        rule: crate::policy::limit::Rule::Default,
    };
    let (key, record) = ("auth:alice@example.org", "p/recipients/1h/auth:alice@example.org");
    let limit = |decision| Decided { policy: "p", limit, key, record, decision, exempt: true };
    let settings = &all.policies["p"].settings;
    let of = |decision| Outcome::of(settings, [limit(decision)].into_iter(), true, &alice());
    for (overridden, verdict) in [
        (crate::engine::Overridden::Deny, Verdict::Defer),
        (crate::engine::Overridden::Reject, Verdict::Reject),
    ] {
        decision.overridden = Some(overridden);
        let denied = of(decision);
        assert_eq!((denied.verdict, denied.observed), (verdict, false));
        assert_eq!(denied.text, "Blocked by the administrator");
    }
    decision.overridden = Some(crate::engine::Overridden::Allow);
    assert_eq!(of(decision).verdict, Verdict::Accept);
}

#[test]
fn a_policy_applies_where_its_conditions_hold() {
    for (when, applies) in [
        ("\"always\"", true),
        ("\"authenticated\"", true),
        ("\"!authenticated\"", false),
        ("\"local\"", false),
        ("\"null_sender\"", false),
        ("[\"!null_sender\", \"!local\"]", true),
        ("\"relay\"", true),
        ("{ client = \"192.0.2.0/24\" }", true),
        ("{ client = \"192.0.3.0/24\" }", false),
        ("{ sender_domain = \"example.org\" }", true),
        ("{ sender_domain = \"*.example.org\" }", false),
        ("{ recipient_domain = [\"y.test\", \"x.test\"] }", true),
        ("[\"authenticated\", { recipient_domain = \"y.test\" }]", false),
    ] {
        let all = policies(&format!(
            "[identity]\nrelay = \"192.0.2.0/24\"\n[policy.p]\nwhen = {when}\ndefault.recipients = \"9/1h\"\n"
        ));
        let outcome = Session::new(&all).at(AclStage::Rcpt, "p", &to(alice(), "b@X.test"));
        assert_eq!(outcome.reason.is_some(), applies, "{when}");
    }
    let all = policies(
        "[policy.p]\nwhen = \"null_sender\"\nkey = \"recipient\"\nbucket = { burst = 1, rate = \"1/1h\" }\n",
    );
    // At HELO there is no sender yet.
    let before = Event { sender: None, ..to(alice(), "b@x.test") };
    assert_eq!(Session::new(&all).at(AclStage::Rcpt, "p", &before).reason, None);
    let bounce = Event { sender: Some(""), ..to(alice(), "b@x.test") };
    let mut session = Session::new(&all);
    assert_eq!(session.at(AclStage::Rcpt, "p", &bounce).verdict, Verdict::Accept);
    let second = session.at(AclStage::Rcpt, "p", &bounce);
    assert_eq!(
        (second.verdict, second.reason.unwrap().key().to_owned()),
        (Verdict::Defer, "recipient:b@x.test".into())
    );
}

#[test]
fn only_a_policy_that_names_it_is_about_the_mail_servers_own_mail() {
    let bounce = Event {
        local_account: Some("Debian-exim"),
        sender: Some(""),
        local: Local::of(false, Origin::Program, || None),
        system: true,
        ..Event::default()
    };
    // What a web form can claim.
    let forged = Event { system: false, ..bounce };
    for (when, (own, others)) in [
        ("[]", (false, true)),
        ("\"always\"", (false, true)),
        ("\"local\"", (false, true)),
        ("[\"local\", \"null_sender\"]", (false, true)),
        ("[\"local\", \"!system\"]", (false, true)),
        ("\"system\"", (true, false)),
        ("[\"local\", \"system\"]", (true, false)),
    ] {
        let all = policies(&format!("[policy.p]\nwhen = {when}\ndefault.recipients = \"9/1h\"\n"));
        for (event, applies) in [(bounce, own), (forged, others)] {
            let outcome = Session::new(&all).at(AclStage::Rcpt, "p", &to(event, "b@x.test"));
            assert_eq!(outcome.reason.is_some(), applies, "{when}: {}", event.system);
        }
    }
}

#[test]
fn exempt_and_observed_events_are_measured_and_never_refused() {
    let limit = "default.recipients = \"2/1h\"\nverdicts = { \"100%\" = \"reject\" }\n";
    let exempt = "[[policy.p.exempt]]\nmatch = \"alice@example.org\"\n";
    for (more, verdict, observed) in [
        ("", Verdict::Reject, false),
        ("action = \"observe\"\n", Verdict::Log, true),
        (exempt, Verdict::Accept, true),
    ] {
        let all = policies(&format!("[policy.p]\n{limit}{more}"));
        let mut session = Session::new(&all);
        let outcomes: Vec<_> =
            (0..5).map(|_| session.at(AclStage::Rcpt, "p", &to(alice(), "b@x.test"))).collect();
        let last = outcomes.last().unwrap();
        assert_eq!(
            (last.verdict, last.measured, last.observed),
            (verdict, Verdict::Reject, observed)
        );
        assert_eq!(outcomes.iter().filter(|one| one.crossed).count(), 1, "{more}");
        let rate = last.reason.as_ref().unwrap().decision.rate;
        // Leaky counts up to the limit, and measures the one that was refused.
        let expected = if observed { 5.0 } else { 2.0 };
        assert!((rate - expected).abs() < 1e-6, "{more} {rate}");
    }
}

#[test]
fn verdicts_are_graded() {
    let all = policies(
        "[policy.p]\nupdate = \"strict\"\ndefault.recipients = \"10/1h\"\n\
         verdicts = { \"80%\" = \"log\", \"100%\" = \"defer\", \"300%\" = \"reject\" }\n\
         [policy.slow]\ndefault.recipients = \"2/1h\"\nverdicts = { \"100%\" = \"delay\" }\n\
         longest_delay = \"5s\"\n",
    );
    let mut session = Session::new(&all);
    let mut seen = Vec::new();
    for _ in 0..31 {
        seen.push(session.at(AclStage::Rcpt, "p", &to(alice(), "b@x.test")).verdict);
    }
    use Verdict::{Accept, Defer, Log, Reject};
    let expected = [&[Accept; 7][..], &[Log; 2], &[Defer; 20], &[Reject; 2]].concat();
    assert_eq!(seen, expected);
    // What is not refused counts, although the policy is leaky.
    let slow: Vec<_> =
        (0..4).map(|_| session.at(AclStage::Rcpt, "slow", &to(alice(), "b@x.test"))).collect();
    assert_eq!(slow[0].delay, 0.0);
    assert_eq!((slow[3].verdict, slow[3].delay), (Verdict::Delay, 5.0));
    assert!((slow[3].reason.as_ref().unwrap().decision.rate - 4.0).abs() < 1e-6);
}

/// Where `leaky`, the first grade that refuses keeps the rate from a stricter one.
#[test]
fn what_the_first_refusal_refuses_does_not_count() {
    let all = policies(
        "[policy.p]\ndefault.recipients = \"10/1h\"\n\
         verdicts = { \"80%\" = \"log\", \"100%\" = \"defer\", \"300%\" = \"reject\" }\n",
    );
    let mut session = Session::new(&all);
    for n in 1..=40 {
        let outcome = session.at(AclStage::Rcpt, "p", &to(alice(), "b@x.test"));
        assert_eq!(outcome.verdict == Verdict::Defer, n >= 10, "{n}");
        assert!(outcome.verdict <= Verdict::Defer && outcome.reason.unwrap().decision.rate < 10.5);
    }
    assert!(counted(&mut session, "p/recipients/1h/auth:alice@example.org") < 10.0);
}

#[test]
fn the_text_has_the_values() {
    let all = policies(
        "[policy.p]\nupdate = \"strict\"\ndefault.unique_recipients = \"2/1h\"\n\
         text = \"{policy} {key} {rule}: {rate} of {limit} {unit} in {period}; again in {retry_after}; {{{recipient}}}\"\n",
    );
    let mut session = Session::new(&all);
    let texts: Vec<_> = ["a@x", "a@x", "b\r\n@x"]
        .map(|recipient| session.at(AclStage::Rcpt, "p", &to(alice(), recipient)).text)
        .into();
    assert_eq!(texts[0], "");
    assert_eq!(texts[1], "");
    assert_eq!(
        texts[2],
        "p auth:alice@example.org default: 2.0 of 2 unique recipients in 1h; again in 31m; {b@x}"
    );
    let all = policies(
        "[policy.p]\nbucket = { burst = 3, rate = \"2/1m\" }\ntext = \"in {period}, {retry_after}\"\n",
    );
    let mut session = Session::new(&all);
    let last =
        (0..4).map(|_| session.at(AclStage::Rcpt, "p", &to(alice(), "a@x.test")).text).last();
    assert_eq!(last.as_deref(), Some("in 1m30s, 30s"));
}

#[test]
fn totals_are_of_all_users_of_a_domain() {
    let all = policies("[policy.p]\ndomain.\"example.org\".total.recipients = \"3/1h\"\n");
    let mut session = Session::new(&all);
    let mut last = Outcome::default();
    for auth in ["a@example.org", "b@example.org", "c@example.org"] {
        let event = Event { auth: Some(auth), ..to(alice(), "x@x.test") };
        last = session.at(AclStage::Rcpt, "p", &event);
    }
    let reason = last.reason.unwrap();
    assert_eq!((last.verdict, reason.key()), (Verdict::Defer, "domain:example.org"));
    assert_eq!(reason.rule, "domain example.org (total)");
    let other = Event { auth: Some("a@other.org"), ..to(alice(), "x@x.test") };
    assert_eq!(session.at(AclStage::Rcpt, "p", &other).reason, None);
}

#[test]
fn many_clients_of_one_login_are_a_stolen_password() {
    let all = policies("[policy.p]\ndefault.unique_clients = \"3/1h\"\n");
    let mut session = Session::new(&all);
    let mut over = 0;
    for n in 0..12_u8 {
        session.cache.new_connection();
        let event = Event { client: Origin::Client([192, 0, 2, n % 4].into()), ..alice() };
        over += u32::from(session.at(AclStage::Mail, "p", &event).verdict == Verdict::Defer);
    }
    // The third and the fourth are refused, each time.
    assert_eq!(over, 6);
}

#[test]
fn limits_that_only_look_refuse() {
    let all = policies(
        "[policy.p]\nkey = \"client\"\ndefault.rejected_recipients = \"2/1h\"\nupdate = \"strict\"\n",
    );
    let mut session = Session::new(&all);
    let facts =
        |rejected_recipients| SessionFacts { rejected_recipients, ..SessionFacts::default() };
    let event = to(alice(), "b@x.test");
    assert_eq!(session.with(AclStage::Rcpt, "p", &event, facts(1)).verdict, Verdict::Accept);
    assert_eq!(session.with(AclStage::Rcpt, "p", &event, facts(2)).verdict, Verdict::Defer);
    session.cache.new_connection();
    session.counted.clear();
    assert_eq!(session.at(AclStage::Connect, "p", &alice()).verdict, Verdict::Defer);
}

#[test]
fn a_router_counts_a_message_once() {
    let all =
        policies("[policy.p]\ndefault = { messages = \"100/1h\", recipients = \"100/1h\" }\n");
    let mut session = Session::new(&all);
    let mut rates = HashMap::new();
    for (id, recipient) in [("1", "a@x"), ("1", "b@x"), ("1", "a@x"), ("2", "a@x")] {
        let event = Event { message_id: Some(id), once_a_message: true, ..to(alice(), recipient) };
        let outcome = session.at(AclStage::Outside, "p", &event);
        let reason = outcome.reason.unwrap();
        rates.insert(reason.unit, reason.decision.rate);
    }
    // The reason is the limit that is the closest.
    assert!((rates[&Unit::Recipients] - 3.0).abs() < 1e-6, "{rates:?}");
}

/// Rounded rates by the end of the record's name.
fn counted(session: &mut Session<'_>, record: &str) -> f64 {
    let mut rate = 0.0;
    let visit = &mut |entry: Entry| {
        if entry.key == record.as_bytes() {
            rate = entry.average.rate.round();
        }
    };
    session.store.for_each(visit).unwrap();
    rate
}

#[test]
fn what_the_own_limit_refuses_uses_up_no_total() {
    for update in ["leaky", "strict"] {
        let all = policies(&format!(
            "[policy.p]\nupdate = \"{update}\"\ndefault.recipients = [\"5.5/1h\", \"90/1d\"]\n\
             default.total.recipients = [\"50/1h\", \"500/1d\"]\n"
        ));
        let mut session = Session::new(&all);
        let mut accepted = |auth, attempts| {
            let event = Event { auth: Some(auth), ..to(alice(), "x@x.test") };
            let all = (0..attempts).map(|_| session.at(AclStage::Rcpt, "p", &event));
            all.filter(|outcome| outcome.verdict == Verdict::Accept).count()
        };
        assert_eq!(accepted("carol@a.test", 200), 5);
        assert_eq!([accepted("dave@a.test", 5), accepted("erin@a.test", 5)], [5, 5], "{update}");
        assert_eq!(counted(&mut session, "p/recipients/1h/domain:a.test"), 15.0);
        assert_eq!(counted(&mut session, "p/recipients/1d/domain:a.test"), 15.0);
        let own = if update == "strict" { 200.0 } else { 5.0 };
        assert_eq!(counted(&mut session, "p/recipients/1h/auth:carol@a.test"), own);
    }
}

#[test]
fn what_a_total_refuses_uses_it_up_no_further_and_no_other() {
    for update in ["leaky", "strict"] {
        let all = policies(&format!(
            "[policy.p]\nupdate = \"{update}\"\ndefault.recipients = \"90/1h\"\n\
             default.total.recipients = [\"5.5/1h\", \"500/1d\"]\n\
             customer.acme.domains = [\"a.test\"]\n\
             customer.acme.total.recipients = [\"50/1h\"]\n"
        ));
        let mut session = Session::new(&all);
        for n in 0..20 {
            let event = Event { auth: Some("carol@a.test"), ..to(alice(), "x@x.test") };
            let refused = session.at(AclStage::Rcpt, "p", &event).verdict >= Verdict::Defer;
            assert_eq!(refused, n >= 5, "{update}");
        }
        for key in ["1h/domain:a.test", "1d/domain:a.test", "1h/customer:acme"] {
            let counted = counted(&mut session, &format!("p/recipients/{key}"));
            assert_eq!(counted, 5.0, "{update} {key}");
        }
        let own = if update == "strict" { 20.0 } else { 5.0 };
        assert_eq!(counted(&mut session, "p/recipients/1h/auth:carol@a.test"), own);
    }
}

/// The message is refused at each RCPT by what was decided at the first one.
#[test]
fn what_was_refused_before_in_a_message_uses_up_no_total() {
    let all = policies(
        "[policy.p]\nupdate = \"strict\"\ndefault.messages = \"1.5/1h\"\n\
         default.total = { recipients = \"50/1h\", messages = \"50/1h\" }\n",
    );
    let mut session = Session::new(&all);
    for n in 0..3 {
        session.new_message();
        for recipient in ["a@x", "b@x", "c@x"] {
            let event = to(alice(), recipient);
            let outcome = session.at(AclStage::Rcpt, "p", &event);
            // Another line of the same ACL.
            session.again(AclStage::Rcpt, "p", &event, SessionFacts::default());
            assert_eq!(outcome.verdict == Verdict::Accept, n == 0);
        }
    }
    assert_eq!(counted(&mut session, "p/recipients/1h/domain:example.org"), 3.0);
    assert_eq!(counted(&mut session, "p/messages/1h/domain:example.org"), 1.0);
    assert_eq!(counted(&mut session, "p/messages/1h/auth:alice@example.org"), 3.0);
    // One refused recipient does not keep the message from being counted with another.
    let all = policies(
        "[policy.p]\nupdate = \"strict\"\ndefault.unique_recipients = \"1.5/1h\"\n\
         default.total.messages = \"50/1w\"\n",
    );
    let mut session = Session::new(&all);
    let rcpt = |session: &mut Session<'_>, recipient| {
        let verdict = session.at(AclStage::Rcpt, "p", &to(alice(), recipient)).verdict;
        (verdict, counted(session, "p/messages/1w/domain:example.org"))
    };
    assert_eq!(rcpt(&mut session, "a@x"), (Verdict::Accept, 1.0));
    session.new_message();
    assert_eq!(rcpt(&mut session, "b@x"), (Verdict::Defer, 1.0));
    session.now = later(START, 7200);
    assert_eq!(rcpt(&mut session, "a@x"), (Verdict::Accept, 2.0));
    assert_eq!(rcpt(&mut session, "a@x"), (Verdict::Accept, 2.0));
}

/// What has already happened is counted, and what it refuses is not.
#[test]
fn outcomes_count_against_a_total_although_they_are_refused() {
    let all = policies(
        "[policy.p]\nupdate = \"strict\"\ndefault.rejected_recipients = \"1.5/1h\"\n\
         default.total = { rejected_recipients = \"9/1h\", connections = \"9/1h\", recipients = \"9/1h\" }\n",
    );
    let mut session = Session::new(&all);
    let event = to(alice(), "b@x.test");
    for rejected_recipients in [0, 1, 2, 2, 4] {
        let facts = SessionFacts { rejected_recipients, ..SessionFacts::default() };
        let refused = session.with(AclStage::Rcpt, "p", &event, facts).verdict == Verdict::Defer;
        assert_eq!(refused, rejected_recipients > 1);
    }
    let mut of_domain =
        |unit: &str| counted(&mut session, &format!("p/{unit}/1h/domain:example.org"));
    assert_eq!(of_domain("rejected_recipients"), 4.0);
    assert_eq!(of_domain("connections"), 1.0);
    assert_eq!(of_domain("recipients"), 2.0);
}

/// A connection has been made, although it is refused.
#[test]
fn connections_count_against_a_total_although_they_are_refused() {
    let all = policies(
        "[policy.p]\nupdate = \"strict\"\ndefault.connections = \"1.5/1h\"\n\
         default.total.connections = \"9/1h\"\n",
    );
    let mut session = Session::new(&all);
    for n in 1..=3 {
        session.cache.new_connection();
        let verdict = session.at(AclStage::Connect, "p", &alice()).verdict;
        assert_eq!(verdict == Verdict::Defer, n > 1);
        let counted = counted(&mut session, "p/connections/1h/domain:example.org");
        assert_eq!(counted, f64::from(n));
    }
}

/// A memory store whose overrides deny all checks of one identity.
struct Denying(Memory, &'static [u8]);

impl Store for Denying {
    type Error = std::convert::Infallible;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Self::Error> {
        let overridden = |check: &Check<'_>| {
            let denies = check.key.identity() == self.1;
            denies.then_some(crate::engine::Overridden::Deny)
        };
        let checks: Vec<_> =
            checks.iter().map(|check| Check { overridden: overridden(check), ..*check }).collect();
        self.0.decide(&checks, clock, decisions)
    }

    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, Self::Error> {
        let mut decisions = Vec::new();
        self.decide(std::slice::from_ref(check), clock, &mut decisions)?;
        Ok(decisions[0])
    }

    fn habits_hash(&self, text: &[u8]) -> u64 {
        self.0.habits_hash(text)
    }

    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, Self::Error> {
        self.0.learn(sending, clock)
    }

    fn count_usage(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), Self::Error> {
        self.0.count_usage(counting, clock)
    }
}

#[test]
fn what_an_override_denies_uses_up_no_total() {
    let exempt = "[[policy.p.exempt]]\nmatch = \"alice@example.org\"\n";
    for (more, verdict) in [
        ("", Verdict::Defer),
        (exempt, Verdict::Defer),
        ("verdicts = { \"100%\" = \"log\" }\n", Verdict::Defer),
        ("action = \"observe\"\n", Verdict::Log),
    ] {
        for update in ["leaky", "strict"] {
            let all = policies(&format!(
                "[policy.p]\nupdate = \"{update}\"\ndefault.recipients = \"9/1h\"\n\
                 default.total.recipients = \"50/1h\"\n{more}"
            ));
            let mut session = Session::new(&all);
            let image = Image::from_bytes(build(&all)).unwrap();
            let policy = image.policy("p").unwrap().unwrap();
            let rules = Rules { name: "p", identity: image.identity().unwrap(), policy };
            let once = [Occurrence::one(Unit::Recipients, crate::event::Scope::Command)];
            let mut store = Denying(Memory::new(), b"auth:alice@example.org");
            for _ in 0..5 {
                session.cache.new_command();
                let (event, cache) = (to(alice(), "b@x.test"), &mut session.cache);
                let counts = CountedChecks::All;
                let to_count = ToCount {
                    occurrences: &once,
                    all_exempt: false,
                    counts,
                    delivered_after: None,
                    bypassed: false,
                };
                let outcome = decide(&rules, &event, to_count, cache, &mut store, || START, |_| {});
                assert_eq!(outcome.unwrap().verdict, verdict, "{more}");
            }
            session.store = store.0;
            let total = counted(&mut session, "p/recipients/1h/domain:example.org");
            assert_eq!(total, if verdict == Verdict::Log { 5.0 } else { 0.0 }, "{more}");
        }
    }
}

/// A policy with a total, and the users of two domains who send.
#[derive(Clone, Debug)]
struct Shared {
    strict: bool,
    observes: bool,
    exempts: bool,
    /// The part of the limit from which it refuses, in percent.
    from: u8,
    own: u8,
    total: u8,
    customer: u8,
    users: Vec<u8>,
}

impl Arbitrary for Shared {
    fn arbitrary(g: &mut Gen) -> Self {
        Self {
            strict: bool::arbitrary(g),
            observes: u8::arbitrary(g).is_multiple_of(5),
            exempts: u8::arbitrary(g).is_multiple_of(4),
            from: *g.choose(&[100, 100, 50, 150]).unwrap(),
            own: u8::arbitrary(g) % 12,
            total: u8::arbitrary(g) % 24,
            customer: u8::arbitrary(g) % 40,
            users: (0..80).map(|_| u8::arbitrary(g)).collect(),
        }
    }
}

/// Random users against counts that are written out. No time passes.
#[test]
fn totals_count_as_a_plain_count() {
    fn run(shared: Shared) -> bool {
        let Shared { strict, observes, exempts, from, own, total, customer, users } = shared;
        let text = format!(
            "[policy.p]\nupdate = \"{}\"\naction = \"{}\"\n\
             verdicts = {{ \"40%\" = \"log\", \"{from}%\" = \"defer\" }}\n\
             default.recipients = [\"{own}.4/1h\", \"{own}.3/1d\"]\n\
             default.total.recipients = \"{total}.4/1h\"\n\
             customer.acme.domains = [\"a.test\", \"b.test\"]\n\
             customer.acme.total.recipients = \"{customer}.4/1h\"\n{}",
            if strict { "strict" } else { "leaky" },
            if observes { "observe" } else { "enforce" },
            if exempts { "[[policy.p.exempt]]\nmatch = \"u0@a.test\"\n" } else { "" },
        );
        let all = policies(&text);
        let mut session = Session::new(&all);
        let mut counts: HashMap<String, f64> = HashMap::new();
        let from = f64::from(from) / 100.0;
        for user in users {
            let domain = ["a.test", "b.test"][usize::from(user % 2)];
            let login = format!("u{}@{domain}", user / 2 % 3);
            session.new_message();
            let event = Event { auth: Some(&*login), ..to(alice(), "x@x.test") };
            let refused = session.at(AclStage::Rcpt, "p", &event).verdict == Verdict::Defer;
            let exempt = exempts && login == "u0@a.test";
            let enforced = !observes && !exempt;
            let mut with_this =
                |who: &str| counts.entry(who.to_owned()).or_default().to_owned() + 1.0;
            let (of_user, of_domain) = (with_this(&login), with_this(domain));
            let of_customer = with_this("acme");
            let refuses = |count: f64, limit: u8, part: f64| {
                let limit = f64::from(limit) + part;
                enforced && count / limit >= from && (count >= limit || from < 1.0)
            };
            let by_own = refuses(of_user, own, 0.4) || refuses(of_user, own, 0.3);
            let by_total =
                !by_own && (refuses(of_domain, total, 0.4) || refuses(of_customer, customer, 0.4));
            assert_eq!(refused, by_own || by_total, "{text} {login}");
            if strict || observes || !(by_own || by_total) {
                counts.insert(login.clone(), of_user);
            }
            if !by_own && (observes || !by_total) {
                counts.insert(domain.to_owned(), of_domain);
                counts.insert("acme".to_owned(), of_customer);
            }
            let mut rate = |key: String| counted(&mut session, &format!("p/recipients/1h/{key}"));
            assert_eq!(rate(format!("auth:{login}")), counts[&login], "{text} {login}");
            assert_eq!(rate(format!("domain:{domain}")), counts[domain], "{text} {login}");
            assert_eq!(rate("customer:acme".to_owned()), counts["acme"], "{text} {login}");
        }
        true
    }
    kit::quick_check().tests(300).quickcheck(run as fn(Shared) -> bool);
}

/// One recipient of a user, or a pause.
#[derive(Clone, Copy, Debug)]
enum Step {
    Recipient { user: u8, recipient: u8, message: bool },
    Wait(u16),
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        if u8::arbitrary(g) % 4 == 0 {
            return Self::Wait(u16::arbitrary(g) >> (u8::arbitrary(g) % 16));
        }
        let [user, recipient] = [(); 2].map(|()| u8::arbitrary(g) % 4);
        Self::Recipient { user, recipient, message: bool::arbitrary(g) }
    }
}

/// A moving average.
#[derive(Default)]
struct Model {
    average: Option<Average>,
}

impl Model {
    fn rate(&self, now: Timestamp, period: f64) -> f64 {
        self.average.map_or(1.0, |before| before.next(now, period, 1.0).rate)
    }
}

/// Random events of four users, against an evaluation that is written out.
#[test]
fn decides_as_a_plain_evaluation() {
    let all = policies(
        "[policy.p]\ndefault.recipients = [\"4/1m\", \"9/1h\"]\ndefault.messages = \"6/1h\"\n\
         user.u1.recipients = \"2/1h\"\nuser.u2.messages = \"unlimited\"\nuser.u3.package = \"gold\"\n\
         package.gold.recipients = \"8/1m\"\n",
    );
    // Unit, limit and period of each user.
    let limits = |user: u8| -> Vec<(&str, f64, f64)> {
        let messages = ("messages", 6.0, 3600.0);
        let default = [("recipients", 4.0, 60.0), ("recipients", 9.0, 3600.0)];
        match user {
            1 => vec![messages, ("recipients", 2.0, 3600.0)],
            2 => default.to_vec(),
            3 => vec![messages, ("recipients", 8.0, 60.0)],
            _ => [&[messages][..], &default].concat(),
        }
    };
    let run = |steps: Vec<Step>| {
        let mut session = Session::new(&all);
        let mut models: HashMap<(u8, &str, u64), Model> = HashMap::new();
        let mut of_message: HashMap<(u8, u64), (f64, bool)> = HashMap::new();
        for step in steps {
            let (user, recipient, message) = match step {
                Step::Wait(seconds) => {
                    session.now = later(session.now, i64::from(seconds));
                    continue;
                }
                Step::Recipient { user, recipient, message } => (user, recipient, message),
            };
            if message {
                session.new_message();
                of_message.clear();
            }
            let (login, recipient) = (format!("U{user}"), format!("r{recipient}@x.test"));
            let event = to(Event { auth: Some(&login), ..alice() }, &recipient);
            let outcome = session.at(AclStage::Rcpt, "p", &event);
            // All are computed first; a message that has been counted is not again.
            let computed: Vec<_> = limits(user)
                .into_iter()
                .map(|(unit, limit, period)| {
                    let kept =
                        of_message.get(&(user, period as u64)).filter(|_| unit == "messages");
                    let model = models.entry((user, unit, period as u64)).or_default();
                    let fresh = || model.rate(session.now, period);
                    let (rate, new) = kept.map_or_else(|| (fresh(), true), |kept| (kept.0, false));
                    (unit, limit, period, rate, new)
                })
                .collect();
            let over = computed.iter().any(|(_, limit, _, rate, _)| rate >= limit);
            for &(unit, limit, period, rate, new) in &computed {
                if new && !over {
                    let average = Average { at: session.now, rate };
                    models.entry((user, unit, period as u64)).or_default().average = Some(average);
                }
                if unit == "messages" && (!over || rate >= limit) {
                    of_message.insert((user, period as u64), (rate, true));
                }
            }
            let verdict = if over { Verdict::Defer } else { Verdict::Accept };
            assert_eq!(outcome.verdict, verdict, "{step:?} {computed:?} {outcome:?}");
        }
    };
    let mut g = kit::generator(200);
    (0..100).for_each(|_| run(Vec::arbitrary(&mut g)));
}
