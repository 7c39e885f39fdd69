//! The pool of threads, with a real database.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::decider::Decider;
use super::event::{MailEvent, MailVerdict, REPLY_MAX};
use crate::event::session::SessionFacts;
use crate::event::{AclStage, Event, Origin};
use crate::policy::evaluator::PolicySession;
use crate::policy::image::{build, install};
use crate::policy::source::compile;
use crate::policy::word::Verdict;
use crate::serve::config::{Mail, check_mail};
use crate::serve::log::Log;
use crate::trace::{Access, Envelope, TraceStore, trace_directory};

/// Runs `test` in a directory with these policies and lines of `[mail]`.
fn with(policies: &str, mail: &str, test: impl AsyncFn(&Path, &Mail, Rc<Log>, Decider)) {
    let spool = tempfile::tempdir().unwrap();
    apply(spool.path(), policies);
    let directory = spool.path().display();
    let text = format!("[listen]\npolicy = \"/a\"\n[mail]\nspool = \"{directory}\"\n{mail}");
    let mail = check_mail(Path::new("f"), &text).config.unwrap();
    let log = Rc::new(Log::kept());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let decider = Decider::new(&mail, Rc::clone(&log)).unwrap();
        test(spool.path(), &mail, log, decider).await;
    });
}

fn apply(spool: &Path, policies: &str) {
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{policies}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    install(spool, &build(&policies)).unwrap();
}

fn rcpt(auth: &str) -> MailEvent {
    let event = Event {
        auth: Some(auth.to_owned()),
        recipient: Some("a@example.net".to_owned()),
        client: Origin::Client([192, 0, 2, 7].into()),
        ..Event::default()
    };
    let (facts, recipients) = (SessionFacts::default(), Vec::new());
    MailEvent {
        stage: AclStage::Rcpt,
        event,
        facts,
        recipients,
        exim: None,
        marked: false,
        hold: None,
    }
}

async fn decide(decider: &Decider, event: MailEvent) -> MailVerdict {
    decider.decide(PolicySession::default(), event).await.1
}

const TWO: &str = "[policy.out]
default.recipients = \"2.5/1w\"
[policy.late]
verdicts = { \"1%\" = \"delay\" }
longest_delay = \"10s\"
default.recipients = \"1000/1w\"
";

#[test]
fn policies_decide_in_the_order_that_is_set() {
    with(TWO, "policies = [\"late\", \"out\"]", async |_, mail, log, decider| {
        for _ in 0..2 {
            let verdict = decide(&decider, rcpt("a")).await;
            assert_eq!((verdict.outcome.verdict, &*verdict.policy), (Verdict::Accept, "late"));
        }
        let verdict = decide(&decider, rcpt("a")).await;
        assert_eq!((verdict.outcome.verdict, &*verdict.policy), (Verdict::Defer, "out"));
        assert_eq!(verdict.outcome.text, "Over the limit");
        let line =
            "policy out: defer [192.0.2.7]: 3.0 recipients, limit 2.5/1w, key auth:a (default)";
        assert_eq!(log.lines(), [line]);
        assert_eq!(decider.status(), "3 decisions, 1 refusals, 0 without a decision");
        // Only the other one from now on.
        let policies = Some(vec!["late".to_owned()]);
        decider.set(&Mail { policies, ..mail.clone() });
        for _ in 0..8 {
            decide(&decider, rcpt("a")).await;
        }
        let verdict = decide(&decider, rcpt("a")).await;
        assert_eq!(verdict.outcome.verdict, Verdict::Delay);
        assert!((0.0..=10.0).contains(&verdict.outcome.delay));
        decider.stop().await;
        // No thread takes a job any more.
        let verdict = decide(&decider, rcpt("a")).await;
        assert!(verdict.unavailable.is_some() && verdict.outcome.verdict == Verdict::Accept);
    });
}

#[test]
fn a_late_decision_shortens_its_delay() {
    let verdict = |verdict, delay| MailVerdict::of(verdict, delay, "");
    for (delay, decision, wait) in
        [(1.5, 0, 1.5), (1e9, 0, 8.0), (7.0, 5, 3.0), (1.0, 5, 1.0), (7.0, 9, 0.0), (-1.0, 0, 0.0)]
    {
        let waits = verdict(Verdict::Delay, delay).wait(Duration::from_secs(decision), REPLY_MAX);
        assert_eq!(waits.as_secs_f64(), wait, "{delay} {decision}");
    }
    assert!(verdict(Verdict::Hold, 5.0).wait(Duration::ZERO, REPLY_MAX).is_zero());
}

#[test]
fn a_panic_ends_nothing_but_the_step() {
    with(TWO, "workers = 1\non_error = \"fail-closed\"", async |_, _, log, decider| {
        for round in 1..3 {
            let mut event = rcpt("a");
            event.event.helo = Some("panic".to_owned());
            let verdict = decide(&decider, event).await;
            assert_eq!(
                (verdict.outcome.verdict, verdict.unavailable.is_some()),
                (Verdict::Defer, true)
            );
            assert!(!verdict.outcome.text.is_empty());
            assert_eq!(log.lines()[0], "cannot decide: internal error: a test");
            let verdict = decide(&decider, rcpt("a")).await;
            assert_eq!(
                (verdict.outcome.verdict, verdict.unavailable.is_some()),
                (Verdict::Accept, false),
                "{round}"
            );
        }
        assert_eq!(decider.status(), "2 decisions, 2 refusals, 2 without a decision");
    });
}

#[test]
fn too_many_steps_at_the_same_time_are_not_decided() {
    with(TWO, "max_in_flight = 3", async |_, _, log, decider| {
        let one = || decide(&decider, rcpt("a"));
        let all = tokio::join!(one(), one(), one(), one(), one());
        let all = [all.0, all.1, all.2, all.3, all.4];
        let unavailable = all.iter().filter(|verdict| verdict.unavailable.is_some());
        assert!(unavailable.clone().all(|verdict| verdict.outcome.verdict == Verdict::Accept));
        assert_eq!(unavailable.count(), 2);
        let text = "3 steps wait for a decision, and no more may".to_owned();
        assert!(log.lines().contains(&text), "{:?}", log.lines());
        assert_eq!(decide(&decider, rcpt("b")).await.unavailable, None);
    });
}

#[test]
fn a_policy_says_what_its_errors_mean() {
    let policies = "[policy.a]
on_error = \"fail-open\"
default.recipients = \"100/1w\"
[policy.b]
on_error = \"fail-closed\"
default.recipients = \"100/1w\"
";
    with(policies, "policies = \"a\"", async |spool, mail, log, decider| {
        // A file where the database should be: the policies are read, and nothing more.
        let database = spool.join("exirate");
        for entry in std::fs::read_dir(&database).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "image") {
                std::fs::remove_file(path).unwrap();
            }
        }
        std::fs::create_dir(database.join("database")).unwrap();
        let verdict = decide(&decider, rcpt("a")).await;
        assert_eq!(
            (verdict.outcome.verdict, verdict.unavailable.is_some()),
            (Verdict::Accept, true)
        );
        let line = &log.lines()[0];
        let start = "cannot evaluate the policy \"a\", so the mail is not limited by it \
                     (on_error = fail-open): ";
        assert!(line.starts_with(start), "{line}");
        let policies = Some(vec!["a".to_owned(), "b".to_owned()]);
        decider.set(&Mail { policies, ..mail.clone() });
        let verdict = decide(&decider, rcpt("a")).await;
        assert_eq!(
            (verdict.outcome.verdict, verdict.unavailable.is_some()),
            (Verdict::Defer, true)
        );
        assert_eq!(verdict.outcome.text, "Temporarily unavailable; try again later");
        // It is opened as soon as it can be.
        std::fs::remove_dir(database.join("database")).unwrap();
        let verdict = decide(&decider, rcpt("a")).await;
        assert_eq!(verdict.outcome.verdict, Verdict::Accept);
        assert_eq!(verdict.outcome.reason.map(|reason| reason.decision.rate), Some(1.0));
    });
}

#[test]
fn messages_are_recorded_and_a_panic_costs_one() {
    with(TWO, "", async |spool, _, log, decider| {
        let time = crate::sys::clock::now().0;
        let text = b"Subject: Quarterly\r\n\r\nThe figures of this quarter are attached.\r\n";
        for id in ["1", "panic", "2"] {
            let envelope = Envelope { time, id: id.to_owned(), ..Envelope::default() };
            decider.record(envelope, text.to_vec()).await;
        }
        assert_eq!(log.lines(), ["a message is not recorded: internal error: a test"]);
        let old = Envelope { time: 0, ..Envelope::default() };
        decider.record(old, text.to_vec()).await;
        assert_eq!(log.lines().len(), 1, "counted for later");
        decider.stop().await;
        let store = TraceStore::open(&trace_directory(spool), Access::Read).unwrap();
        assert_eq!(store.stats().unwrap().messages, 2);
        decider.record(Envelope::default(), Vec::new()).await;
    });
}
