//! A simulation of a log is what happened: random sessions through a real Exim with policies,
//! and what `exirate simulate` makes of its main log by the same policies. The verdicts are
//! equal at every event of the classes that a log shows, and these are at least 99 % of all
//! events.
//!
//! A log does not show the recipients and the size of a message that was refused after DATA,
//! nor the account and the recipients of a local one that was refused. Those are the events
//! that are left out here, and few. Three more things that a log does not show have no part in
//! these sessions, as docs/simulate.md says:
//!
//! - in which order a message without DATA had accepted recipients and those that the server
//!   refused for its own reasons: here the latter come last;
//! - what two sessions of one key did within one message: here one message follows the other,
//!   though of several sessions that are open at a time;
//! - the time below a millisecond: the periods are hours, and the limits lie between two whole
//!   numbers (of bytes, far from any sum of sizes), so that no verdict depends on it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::acl_files::base64;
use crate::policy::{apply, shipped_acl_before};
use exirate::history::simulate::{
    Attempt, AttemptPart, Converter, Decided, InLog, Schedule, Simulation, SimulationSettings,
};
use exirate::logs::files::LogFiles;
use exirate::logs::messages::{JoinSettings, Joiner};
use exirate::policy::image::{Image, build};
use exirate::policy::source::compile;
use kit::{Client, PrivateExim, Random, Reply, Setup, counts};

const POLICIES: &str = r#"
[policy.a]
when = "authenticated"
text = "LIMIT of {policy}"
default.recipients = ["9.5/2h", "14.5/4h"]
default.unique_recipients = "5.5/2h"
default.messages = "8.5/2h"
[policy.a.user."carol"]
recipients = "unlimited"
unique_recipients = "unlimited"
messages = "unlimited"
bytes = "270k/2h"
[policy.n]
when = "!authenticated"
key = ["client"]
update = "strict"
text = "LIMIT of {policy}"
default.recipients = "14.5/2h"
default.unique_senders = "4.5/2h"
default.connections = "6.5/2h"
default.auth_failures = "4.5/2h"
default.rejected_recipients = "3.5/2h"
[policy.z]
when = "null_sender"
key = ["recipient"]
text = "LIMIT of {policy}"
bucket = { burst = 2.5, rate = 0.00001 }
[policy.l]
when = "local"
key = ["local_account"]
text = "LIMIT of {policy}"
default.messages = "21.5/2h"
"#;

/// What the server itself refuses, after the policies.
const OWN: &str = "  deny local_parts = ^nobody\n       message = unknown user\n  \
                   defer local_parts = ^later\n        message = try later\n  accept\n";
const LOGINS: [&str; 4] = ["alice", "Bob", "carol", "dora"];
const SENDERS: [&str; 6] = ["", "a@a.test", "b@b.test", "c@c.test", "d@d.test", "e@e.test"];
/// How often all begins again, each time with other numbers.
fn rounds() -> std::ops::Range<u64> {
    0..if counts::is_long() { 12 } else { 2 }
}
/// The sessions of a round.
const SESSIONS: usize = 70;

/// An event: the session's HELO name (or of a local one its sender), what it is, whether a
/// policy refused it.
type Event = (String, String, bool);

/// What a round comes to.
#[derive(Default)]
struct Seen {
    shown: Vec<Event>,
    /// Events that a log does not show.
    hidden: usize,
    /// Messages of carol, of which some are large.
    of_carol: usize,
}

/// A session, and what the log has shown of it.
struct Session {
    smtp: Client,
    name: String,
    login: Option<&'static str>,
    /// Messages still to send.
    messages: usize,
    /// A line of the log has shown the login.
    is_shown: bool,
}

fn is_limited(reply: &Reply) -> bool {
    assert!(reply.is_ok() || [451, 535, 550].contains(&reply.code), "{reply:?}");
    reply.text.contains("LIMIT of ")
}

/// Begins the session at one of three places. Those that are open have clients of their own: a log
/// shows a login only later, so that of two of one client it does not say which was first.
fn begin(
    exim: &PrivateExim,
    random: &mut Random,
    place: usize,
    name: String,
    seen: &mut Seen,
) -> Session {
    let client = Ipv4Addr::new(192, 0, 2, (10 + 3 * random.below(5) + place) as u8);
    let login = (random.below(3) > 0).then(|| random.pick(&LOGINS));
    let is_piped = login.is_none() && random.below(4) == 0;
    let (mut smtp, name) = match is_piped {
        // SMTP by standard input: its log has no HELO name.
        true => (exim.pipe(&["-bs"]).0, format!("{name}@local.test")),
        false => (exim.connect(client), name),
    };
    assert_eq!(smtp.expect().code, 220);
    assert!(smtp.command(format!("EHLO {}", name.replace('@', "."))).is_ok());
    let mut session = Session { smtp, name, login: None, messages: 0, is_shown: false };
    let failures = if is_piped || random.below(3) > 0 { 0 } else { 1 + random.below(2) };
    for attempt in 0..failures + usize::from(login.is_some()) {
        let password = if attempt < failures { "bad" } else { "good" };
        let user = login.unwrap_or("mallory");
        let plain = base64(format!("\0{user}\0{password}").as_bytes());
        let reply = session.smtp.command(format!("AUTH PLAIN {plain}"));
        let limited = is_limited(&reply);
        seen.shown.push((session.name.clone(), "auth".to_owned(), limited));
        if reply.is_ok() {
            session.login = login;
        }
    }
    session.messages = 1 + random.below(4);
    session
}

/// Sends a message, or begins one.
fn message(session: &mut Session, random: &mut Random, seen: &mut Seen) {
    session.messages -= 1;
    let is_local = session.name.contains('@');
    let is_carol = session.login == Some("carol");
    // What is refused after DATA counts for no other limit: its recipients are not shown.
    let sender = match random.pick(&SENDERS) {
        _ if is_local => &session.name,
        _ if is_carol => "carol@a.test",
        sender => sender,
    };
    let reply = session.smtp.command(format!("MAIL FROM:<{sender}>"));
    assert!(reply.is_ok(), "{reply:?}");
    // The session's last message shows its login, if nothing has before.
    let is_needed = session.login.is_some() && !session.is_shown && session.messages == 0;
    let with_data = is_needed || random.below(6) > 0;
    let mut names: Vec<String> = (0..=random.below(4))
        .map(|_| match random.below(12) {
            0 => format!("later{}", random.below(2)),
            1 | 2 => format!("nobody{}", random.below(4)),
            _ => format!("u{}", random.below(9)),
        })
        .collect();
    if is_carol {
        names = vec!["u1".to_owned()];
    }
    // A client may name a recipient twice.
    names.sort();
    if with_data {
        // In any order, but one that exists is the last: then DATA is accepted unless it is
        // large.
        let last = random.below(names.len());
        names.rotate_left(last);
        if !names.last().is_some_and(|name| name.starts_with('u')) {
            names.push("u10".to_owned());
        }
    } else {
        names.sort_by_key(|name| !name.starts_with('u'));
    }
    let (mut events, mut accepted, mut is_last_accepted) = (Vec::new(), 0, false);
    for name in &names {
        let recipient = format!("{name}@private.test");
        let reply = session.smtp.command(format!("RCPT TO:<{recipient}>"));
        is_last_accepted = reply.is_ok();
        accepted += usize::from(is_last_accepted);
        session.is_shown |= !is_last_accepted;
        events.push((session.name.clone(), format!("rcpt {recipient}"), is_limited(&reply)));
    }
    if !with_data || !is_last_accepted || accepted == 0 {
        seen.shown.append(&mut events);
        session.smtp.command("RSET");
        return;
    }
    seen.of_carol += usize::from(is_carol);
    let is_large = is_carol && seen.of_carol.is_multiple_of(5);
    let lines = if is_large { 4096 } else { 1 + random.below(20) };
    let text = format!("Subject: x\n\n{}", "0123456789abcd\n".repeat(lines));
    let reply = session.smtp.data(&text);
    session.is_shown = true;
    events.push((session.name.clone(), "data".to_owned(), is_limited(&reply)));
    if reply.is_ok() {
        seen.shown.append(&mut events);
    } else {
        assert!(is_limited(&reply), "{reply:?}");
        seen.hidden += events.len();
    }
}

/// Hands over a message without SMTP.
fn submit(exim: &PrivateExim, random: &mut Random, name: &str, seen: &mut Seen) {
    let sender = format!("{name}@submit.test");
    // With -oep, no bounce is sent.
    let mut arguments = vec!["-oep".to_owned(), "-f".to_owned(), sender.clone()];
    arguments.extend((0..=random.below(2)).map(|n| format!("u{n}@private.test")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = exim.run(&arguments, b"Subject: x\n\nx\n");
    let limited = (ran.stdout + &ran.stderr).contains("LIMIT of ");
    assert_eq!(ran.code != 0, limited, "{sender}");
    match limited {
        true => seen.hidden += 1,
        false => seen.shown.push((sender, "local".to_owned(), limited)),
    }
}

/// The sessions of a round, through Exim.
fn sessions(exim: &PrivateExim, random: &mut Random) -> Seen {
    let mut seen = Seen::default();
    let mut open: [Option<Session>; 3] = [const { None }; 3];
    let mut begun = 0;
    while begun < SESSIONS || open.iter().any(Option::is_some) {
        let place = random.below(open.len());
        match &mut open[place] {
            None if begun < SESSIONS => {
                begun += 1;
                let name = format!("s{begun}.test");
                if random.below(6) == 0 {
                    submit(exim, random, &name, &mut seen);
                } else {
                    open[place] = Some(begin(exim, random, place, name, &mut seen));
                }
            }
            None => {}
            Some(session) if session.messages > 0 => message(session, random, &mut seen),
            Some(_) => {
                if let Some(mut session) = open[place].take() {
                    session.smtp.send_quit();
                    while session.smtp.reply().is_some() {}
                }
            }
        }
    }
    seen
}

/// What the simulation makes of the log.
fn simulated(log: &Path, image: &Image) -> Vec<Event> {
    let settings =
        SimulationSettings { retry: Schedule::new(Vec::new()), ..SimulationSettings::default() };
    let mut simulation = Simulation::new(image, "*", settings).unwrap();
    let (mut joiner, mut converter) = (Joiner::new(JoinSettings::default()), Converter::default());
    let mut events = Vec::new();
    let mut visit = |decided: &Decided<'_>| {
        let Attempt { event, part, in_log, .. } = decided.attempt;
        let what = match part {
            AttemptPart::Auth => "auth".to_owned(),
            // Of a message that was refused after DATA.
            AttemptPart::Rcpt { recipient } if recipient.is_empty() => return,
            AttemptPart::Data { .. } | AttemptPart::NotSmtp { .. }
                if *in_log != InLog::Accepted =>
            {
                return;
            }
            AttemptPart::Rcpt { recipient } => format!("rcpt {recipient}"),
            AttemptPart::Data { .. } => "data".to_owned(),
            AttemptPart::NotSmtp { .. } => "local".to_owned(),
            other => panic!("{other:?}"),
        };
        let name = event.helo.as_deref().or(event.sender.as_deref()).unwrap().to_owned();
        events.push((name, what, decided.is_refused()));
    };
    let mut decide = |attempt: &Attempt| simulation.decide(attempt, &mut visit).unwrap();
    let files = LogFiles::find(&[log.to_owned()]).unwrap();
    let see = |line: exirate::logs::files::Stamped<'_>| {
        joiner.line(&line, &mut |item| converter.add(item, &mut decide));
    };
    files.read(see, |_| {}).unwrap();
    joiner.finish(&mut |item| converter.add(item, &mut decide));
    converter.finish(&mut decide);
    events
}

/// The panic log, without what exim4-daemon-mod 4.100 writes to it with `log_selector = +all`
/// (which has `spf_verbose` in it) where the package with its SPF module is not installed.
fn panics(exim: &PrivateExim) -> Vec<String> {
    let log = exim.log("panic");
    let is_spf = |line: &&str| line.contains("failed to find spf module for spf_result: ");
    log.lines().filter(|line| !is_spf(line)).map(str::to_owned).collect()
}

/// A round through an Exim with this log selector: what happened, and what the simulation
/// makes of its log.
fn round(image: &Image, selector: &str, seed: u64) -> (Seen, Vec<Event>, String) {
    let mut exim = shipped_acl_before(Setup::new().proxied().main(selector), OWN);
    apply(&exim, POLICIES);
    exim.start();
    let mut seen = sessions(&exim, &mut Random::new(seed));
    exim.stop();
    assert_eq!(panics(&exim), [""; 0]);
    let mut found = simulated(&exim.folder().join("log/mainlog"), image);
    seen.shown.sort();
    found.sort();
    (seen, found, exim.log("main"))
}

fn image() -> Image {
    let none = |_: &Path| Err("no file".to_owned());
    let compiled = compile(Path::new("policy.toml"), &format!("version = 1\n{POLICIES}"), &none);
    Image::from_bytes(build(&compiled.policies.unwrap())).unwrap()
}

#[test]
fn the_simulation_of_a_log_is_what_happened() {
    let image = image();
    let (mut shown, mut hidden) = (0, 0);
    let mut kinds: BTreeMap<(String, bool), usize> = BTreeMap::new();
    for number in rounds() {
        let (seen, found, log) = round(&image, "log_selector = +all +millisec", number + 1);
        for (_, what, limited) in &seen.shown {
            let kind = what.split(' ').next().unwrap_or(what).to_owned();
            *kinds.entry((kind, *limited)).or_default() += 1;
        }
        shown += seen.shown.len();
        hidden += seen.hidden;
        for (real, simulated) in seen.shown.iter().zip(&found) {
            assert_eq!(real, simulated, "round {number}:\n{log}");
        }
        assert_eq!(seen.shown.len(), found.len(), "round {number}:\n{log}");
    }
    assert!(hidden > 0, "some messages are too large");
    assert!(100 * hidden <= shown + hidden, "{hidden} of {} events", shown + hidden);
    for kind in ["auth", "rcpt", "data", "local"] {
        for limited in [false, true] {
            let count = kinds.get(&(kind.to_owned(), limited)).copied().unwrap_or(0);
            let is_hidden = limited && (kind == "data" || kind == "local");
            assert_eq!(count > 4, !is_hidden, "{kind} {limited}: {kinds:?}");
        }
    }
    counts::record("events of a real Exim's log that the simulation decides alike", shown as u64);
}

/// How many events are in both, which are sorted.
fn common(one: &[Event], other: &[Event]) -> usize {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut count = 0;
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let order = a.cmp(b);
        count += usize::from(order.is_eq());
        if order.is_le() {
            one.next();
        }
        if order.is_ge() {
            other.next();
        }
    }
    count
}

/// With seconds, and without ports, processes, and the ends of sessions.
#[test]
fn without_sessions_in_the_log_most_of_it_is_what_happened() {
    let image = image();
    let (mut alike, mut all) = (0, 0);
    for number in rounds() {
        let selector = "log_selector = +received_recipients +smtp_incomplete_transaction";
        let (seen, found, _) = round(&image, selector, number + 1);
        alike += common(&seen.shown, &found);
        all += seen.shown.len() + seen.hidden;
    }
    assert!(100 * alike >= 90 * all, "{alike} of {all} events");
}
