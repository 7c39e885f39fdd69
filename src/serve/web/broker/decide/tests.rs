use std::path::Path;

use super::*;
use crate::engine::{Algorithm, Check, Overridden, Update};
use crate::rate::Timestamp;
use crate::rate::habits::Sensitivity;
use crate::serve::config::FollowedLog;
use crate::serve::web::broker::wire;
use crate::serve::web::role::Member;
use crate::serve::web::token;
use crate::spool::habits::SentMessage;
use crate::spool::{Options, Spool};
use crate::standing::change::{self, NotSet};
use crate::standing::{alarm, pattern};
use crate::store::{FOREVER, Override, Store as _, habits_key};

const NOW: i64 = 1_800_000_000;

/// A database in which alice is over her limit, and the broker beside it.
struct Desk {
    folder: tempfile::TempDir,
    broker: Broker,
    help: String,
    view: String,
}

impl Desk {
    fn new(change: impl FnOnce(&mut Web)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let tokens = path.join("tokens");
        let add = |name: &str, role, until| {
            token::change(&tokens, |all| all.add(name, role, NOW, until, None)).unwrap()
        };
        let help = add("desk", Role::Help, NOW + 1000);
        let view = add("panel", Role::View, FOREVER);
        let mut web = Web::new();
        web.tokens.clone_from(&tokens);
        path.clone_into(&mut web.state);
        path.clone_into(&mut web.spool);
        web.help = vec![Member::Person("alice".to_owned())];
        web.view = vec![Member::Person("bob".to_owned()), Member::Group(0)];
        change(&mut web);
        let mut desk = Self { broker: Broker::new(web).unwrap(), folder, help, view };
        desk.count("1h/per_rcpt/alice@example.org");
        desk
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn spool(&self) -> Spool {
        Spool::open(self.path(), Options::default()).unwrap()
    }

    fn count(&mut self, name: &str) {
        let algorithm = Algorithm::MovingAverage { limit: 1.0, period: 3600.0 };
        let check = Check { update: Update::Strict, ..Check::new(name, algorithm) };
        self.spool().decide_one(&check, || Timestamp { seconds: NOW, micros: 0 }).unwrap();
    }

    fn ask(&mut self, who: Who, verb: Verb, key: &str, seconds: Option<i64>) -> Reply {
        let request = Request {
            who,
            verb,
            key: key.to_owned(),
            seconds,
            reply: None,
            reason: String::new(),
            id: None,
            delete: false,
        };
        match self.broker.answer(&request, NOW) {
            (Reply::Done(done), Some(later)) => later(done),
            (reply, _) => reply,
        }
    }

    /// An administrator denies this KEY.
    fn deny(&self, key: &str) -> Override {
        let (target, argument) =
            pattern::override_target(key.as_bytes(), false, &Folding::default()).unwrap();
        let denial = Override {
            overridden: Overridden::Deny,
            target,
            argument,
            until: FOREVER,
            since: NOW,
            reason: "password stolen".to_owned(),
            who: "uid=0".to_owned(),
        };
        let mut by = Changer::administrator("uid=0".to_owned());
        change::set_override(&mut self.spool(), &denial, NOW, &mut by).unwrap();
        denial
    }

    /// The habits of carol, which have raised an alarm.
    fn alarm(&self) {
        let mut name = Vec::new();
        let key = habits_key(b"auth:carol@example.org", &mut name);
        let mut spool = self.spool();
        let raised = (0..200).any(|number| {
            let all: Vec<String> = (0..20).map(|to| format!("{number}-{to}@a.test")).collect();
            let recipients = all.iter().map(String::as_bytes);
            let message = SentMessage { at: NOW + number, client: None, recipients };
            spool.learn_habits(key, message, Sensitivity::High).unwrap().alarm.is_some()
        });
        assert!(raised);
    }

    /// How many changes are counted.
    fn counted(&self) -> String {
        std::fs::read_to_string(self.path().join("changes")).unwrap_or_default()
    }

    /// As the token that may help.
    fn help(&mut self, verb: Verb, key: &str, seconds: Option<i64>) -> Reply {
        self.ask(Who::Token(self.help.clone()), verb, key, seconds)
    }

    fn records(&self) -> usize {
        let mut records = 0;
        self.spool().for_each(|_| records += 1).unwrap();
        records
    }

    fn overrides(&self) -> Vec<Override> {
        Inspect::overrides(&mut self.spool()).unwrap()
    }

    fn audit_log(&self) -> String {
        std::fs::read_to_string(self.spool().directory().join("audit.log")).unwrap_or_default()
    }
}

fn why(reply: &Reply) -> Why {
    match reply {
        Reply::Refused(refused) => refused.why,
        Reply::Done(done) => panic!("{done:?}"),
    }
}

fn said(reply: Reply) -> Done {
    match reply {
        Reply::Done(done) => done,
        Reply::Refused(refused) => panic!("{refused:?}"),
    }
}

#[test]
fn who_may_not_changes_nothing() {
    let mut desk = Desk::new(|_| {});
    let (help, view) = (desk.help.clone(), desk.view.clone());
    let mut all = vec![
        (Who::Token(view), Why::Role),
        (Who::Token(help[..help.len() - 1].to_owned()), Why::Unknown),
        (Who::Token(String::new()), Why::Unknown),
        (Who::Token("desk".to_owned()), Why::Unknown),
        (Who::Person("bob".to_owned()), Why::Role),
        // In a group is a user of this machine, and nobody named so by a proxy.
        (Who::User("root".to_owned()), Why::Role),
        (Who::Person("root".to_owned()), Why::Unknown),
        (Who::User("no such user".to_owned()), Why::Unknown),
        (Who::Person("mallory".to_owned()), Why::Unknown),
        (Who::Person("token:desk".to_owned()), Why::Unknown),
    ];
    for (who, expected) in all.drain(..) {
        // Whoever may look may see what is held.
        for verb in Verb::ALL.iter().filter(|verb| **verb != Verb::Held) {
            let seconds = matches!(verb, Verb::Allow | Verb::Deny).then_some(60);
            let reply = desk.ask(who.clone(), *verb, "alice@example.org", seconds);
            assert_eq!(why(&reply), expected, "{who:?} {verb:?}");
        }
    }
    let request = Request {
        who: Who::Token(help),
        verb: Verb::Unblock,
        key: "alice@example.org".to_owned(),
        seconds: None,
        reply: None,
        reason: String::new(),
        id: None,
        delete: false,
    };
    assert_eq!(why(&desk.broker.answer(&request, NOW + 1000).0), Why::Unknown, "it has ended");
    assert_eq!((desk.records(), desk.overrides().len()), (1, 0));
    assert_eq!(desk.audit_log(), "");
    assert!(!desk.path().join("changes").exists());
}

#[test]
fn a_key_is_unblocked_and_the_log_says_by_whom() {
    let mut desk = Desk::new(|_| {});
    let done = said(desk.help(Verb::Unblock, "Alice@Example.org", None));
    assert_eq!(done.records, 1);
    let [never, reset] = &done.said[..] else { panic!("{done:?}") };
    let alice = "alice@example.org (per_rcpt, 1h): ";
    assert_eq!(*never, format!("{alice}no event ever passes, as the limit is 1"));
    assert_eq!(*reset, format!("reset {alice}over the limit, rate 1.0, limit 1"));
    assert_eq!(desk.records(), 0);
    let log = desk.audit_log();
    assert!(log.contains(" web=token:desk unblock rate=1 limit=1 key=1h/per_rcpt/alice@"), "{log}");
    assert_eq!(why(&desk.help(Verb::Unblock, "alice@example.org", None)), Why::Nothing);
}

#[test]
fn an_override_lasts_as_long_as_was_asked_for_and_no_longer_than_may_be() {
    let mut desk = Desk::new(|web| web.longest = 7200);
    for seconds in [None, Some(0), Some(-1), Some(7201), Some(i64::MAX)] {
        assert_eq!(why(&desk.help(Verb::Allow, "alice", seconds)), Why::Bounds, "{seconds:?}");
    }
    assert_eq!(why(&desk.help(Verb::Unblock, "alice", Some(60))), Why::Malformed);
    let person = || Who::Person("alice".to_owned());
    let done = said(desk.ask(person(), Verb::Allow, "alice@example.org", Some(7200)));
    assert_eq!(done.until, Some(NOW + 7200));
    let done = said(desk.ask(person(), Verb::Deny, "alice@example.org", Some(60)));
    assert!(done.said[1].starts_with("before: alice@example.org is allowed"), "{done:?}");
    let [set] = &desk.overrides()[..] else { panic!() };
    assert_eq!((set.overridden, set.until), (Overridden::Deny, NOW + 60));
    assert_eq!(set.who, "web=person:alice");
    assert!(desk.audit_log().contains(" web=person:alice deny until=2027-"));
    // What one who helps has denied, another may end.
    assert_eq!(said(desk.help(Verb::Unblock, "alice@example.org", None)).records, 1);
    assert!(desk.overrides().is_empty());
}

#[test]
fn what_an_administrator_has_denied_stays() {
    for denied in ["alice@example.org", "auth:alice@example.org", "*@example.org", "auth:*"] {
        let mut desk = Desk::new(|_| {});
        let denial = desk.deny(denied);
        for (verb, seconds) in [(Verb::Unblock, None), (Verb::Allow, Some(60))] {
            for key in ["alice@example.org", "auth:alice@example.org"] {
                let reply = desk.help(verb, key, seconds);
                assert_eq!(why(&reply), Why::Bounds, "{denied} {verb:?} {key}");
                let Reply::Refused(Refused { detail, .. }) = reply else { panic!() };
                assert!(detail.contains("password stolen") && detail.contains("uid=0"), "{detail}");
            }
        }
        // Nothing was changed before that was found out.
        assert_eq!(desk.overrides(), std::slice::from_ref(&denial));
        assert_eq!((desk.records(), &*desk.counted()), (1, ""));
        // One that is denied as well takes nothing away.
        let reply = desk.help(Verb::Deny, denied, Some(60));
        assert_eq!(why(&reply), Why::Bounds, "{denied}: {reply:?}");
        assert_eq!(desk.overrides(), std::slice::from_ref(&denial));
    }
}

#[test]
fn what_another_denies_meanwhile_stays() {
    let desk = Desk::new(|_| {});
    let denial = desk.deny("alice@example.org");
    let mut by = Changer::helper("token:desk");
    let set = Override { overridden: Overridden::Allow, ..denial.clone() };
    let stays = change::set_override(&mut desk.spool(), &set, NOW, &mut by);
    assert!(matches!(stays, Err(NotSet::Stays(one)) if *one == denial));
    let removed = change::remove_denials(&mut desk.spool(), |_| true, &mut by).unwrap();
    assert_eq!((removed, desk.overrides()), (vec![], vec![denial]));
    assert!(!desk.audit_log().contains("web="));
}

#[test]
fn a_key_is_one_identity() {
    let mut desk = Desk::new(|_| {});
    let long = "x".repeat(KEY_MAX + 1);
    for (key, expected) in [
        ("*", Why::Bounds),
        ("*@example.org", Why::Bounds),
        ("[a-z]*", Why::Bounds),
        ("", Why::Malformed),
        (&*long, Why::Malformed),
        ("\\q", Why::Malformed),
        ("1h/per_rcpt/alice@example.org", Why::Malformed),
        ("customer:acme", Why::Bounds),
        ("domain:other.test", Why::Bounds),
        ("domain:other.test,server:mail1", Why::Bounds),
        ("sender_domain:other.test", Why::Bounds),
        ("recipient_domain:other.test", Why::Bounds),
        ("helo:mail.other.test", Why::Bounds),
        ("server:mail1", Why::Bounds),
        ("client_48:2001:db8::/48", Why::Bounds),
    ] {
        assert_eq!(why(&desk.help(Verb::Deny, key, Some(60))), expected, "{key}");
        if key.contains(':') {
            assert_eq!(why(&desk.help(Verb::Allow, key, Some(60))), expected, "{key}");
            // Only a total may be unblocked; these have no record.
            let is_total = ["customer:acme", "domain:other.test"].contains(&key);
            let expected = if is_total { Why::Nothing } else { expected };
            assert_eq!(why(&desk.help(Verb::Unblock, key, None)), expected, "{key}");
        }
    }
    assert!(desk.overrides().is_empty());
    // A line break in a key or a reason begins no line of the log.
    said(desk.help(Verb::Deny, "a\nb", Some(60)));
    let request = Request {
        who: Who::Token(desk.help.clone()),
        verb: Verb::Deny,
        key: "c".to_owned(),
        seconds: Some(60),
        reply: None,
        reason: "x\n2026 uid=0 y".to_owned(),
        id: None,
        delete: false,
    };
    said(desk.broker.answer(&request, NOW).0);
    let log = desk.audit_log();
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn so_many_changes_a_day_and_refusals_do_not_count() {
    let mut desk = Desk::new(|web| web.changes_a_day = 2);
    assert_eq!(why(&desk.help(Verb::Deny, "*", Some(60))), Why::Bounds);
    said(desk.help(Verb::Deny, "a", Some(60)));
    said(desk.help(Verb::Deny, "b", Some(60)));
    assert_eq!(why(&desk.help(Verb::Deny, "c", Some(60))), Why::Bounds);
    said(desk.ask(Who::Person("alice".to_owned()), Verb::Deny, "c", Some(60)));
    assert_eq!(desk.overrides().len(), 3);
}

#[test]
fn a_token_that_is_removed_is_of_no_use_from_then_on() {
    let mut desk = Desk::new(|_| {});
    said(desk.help(Verb::Deny, "a", Some(60)));
    token::change(&desk.path().join("tokens"), |all| Ok(all.remove("desk"))).unwrap();
    assert_eq!(why(&desk.help(Verb::Deny, "b", Some(60))), Why::Unknown);
}

#[test]
fn an_alarm_is_answered_once() {
    for verb in [Verb::Accept, Verb::Stolen] {
        let mut desk = Desk::new(|web| web.changes_a_day = 2);
        for _ in 0..3 {
            assert_eq!(why(&desk.help(verb, "carol@example.org", None)), Why::Nothing);
        }
        desk.alarm();
        let done = said(desk.help(verb, "carol@example.org", None));
        assert_eq!(done.records, 1);
        let denied = desk.overrides().iter().any(|one| {
            one.argument == "carol@example.org"
                && one.reason == alarm::REASON
                && one.until == FOREVER
        });
        assert_eq!(denied, verb == Verb::Stolen, "{done:?}");
        let log = desk.audit_log();
        let line = format!("web=token:desk habits {} alarm=", verb.word());
        assert!(log.contains(&line) && log.contains(" key=auth:carol@example.org"), "{log}");
        let again = desk.help(verb, "carol@example.org", None);
        if verb == Verb::Accept {
            assert!(
                done.said[0].starts_with("auth:carol@example.org is no longer suspected"),
                "{done:?}"
            );
            assert_eq!(why(&again), Why::Nothing);
        } else {
            // It only looks again who is to be warned.
            let again = said(again);
            assert_eq!(again.said[0], "auth:carol@example.org: the answer was given before");
            assert_eq!(desk.audit_log(), log);
        }
    }
}

#[test]
fn who_has_got_the_mail_of_a_thief_is_in_the_reply() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mainlog");
    let at = |seconds| text::time::local_second(NOW + seconds);
    let line = |id: u32, seconds: i64, login: &str, to: &str| {
        let at = at(seconds);
        format!(
            "{} 1xVmmN-{id:011}-2jEL <= {login} H=x.test [192.0.2.7] P=esmtpsa A=plain:{login} S=9 for {to}\n",
            at.rsplit_once(' ').map_or(&*at, |(at, _)| at)
        )
    };
    let people: Vec<String> = (0..600).map(|to| format!("u{to:03}@a.test")).collect();
    let log = line(1, -7200, "carol@example.org", "before@a.test")
        + &line(2, 10, "carol@example.org", &people.join(" "))
        + &line(3, 11, "dave@example.org", "other@a.test");
    std::fs::write(&path, log).unwrap();
    let mut desk = Desk::new(|web| web.log = FollowedLog::File(path.clone()));
    desk.alarm();
    let done = said(desk.help(Verb::Stolen, "carol@example.org", None));
    let sent = done.sent.clone().unwrap();
    assert_eq!((sent.messages, sent.recipients, sent.people.len()), (1, 600, 500), "{done:?}");
    assert_eq!((&sent.people[..], &*sent.clients), (&people[..500], &["192.0.2.7".to_owned()][..]));
    let all = done.said.join("\n");
    assert!(all.contains(": 1 message to 600 recipients\nnot all of it is here; an administrator"));
    assert!(all.ends_with("`exirate habits stolen --addresses carol@example.org`"), "{all}");
    assert!(wire::write(&Reply::Done(done)).is_ok());
    // It is denied all the same where the log cannot be read.
    let mut desk = Desk::new(|web| web.log = FollowedLog::File(folder.path().join("none/log")));
    desk.alarm();
    let done = said(desk.help(Verb::Stolen, "carol@example.org", None));
    assert_eq!((done.records, &done.sent, desk.overrides().len()), (1, &None, 1));
    let unknown = done.said.iter().filter(|said| said.contains("not known")).collect::<Vec<_>>();
    assert!(unknown[0].starts_with("what was sent is not known: "), "{done:?}");
    let named = unknown[0].contains("/none: ") && unknown[0].contains("--addresses carol@");
    assert!(unknown.len() == 1 && named, "{done:?}");
}
