//! The same random mail through all front ends: a real Exim with the library, one that asks the
//! daemon's policy service, that service as Postfix asks it, and the milter. What is refused, what the client reads, and all rates must
//! be the same, and what replayed events come to. `src/serve/mail/agreement_tests.rs` has what
//! these policies do not count: bytes, other verdicts, and recipients that are asked about
//! twice.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::acl_files::{login, shipped};
use crate::mail_front_ends::{Daemon, Postfix, Sendmail};
use crate::policy::OVER;
use exirate::engine::Kind;
use exirate::event::{Event, Origin};
use exirate::policy::image::{Image, build, install};
use exirate::policy::model::Policies;
use exirate::policy::replay::{Recipients, Replay, ReplayEvent, Stage};
use exirate::policy::source::compile;
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::rate::usage::{DAYS, Usage};
use exirate::spool::{Options, Spool};
use exirate::store::{Entry, Inspect, Memory, OwnedKey};
use kit::agreement::{LOGINS, POLICIES, SENDERS};
use kit::front_ends::Machine;
use kit::{Client, PrivateExim, Process, Random, Reply, Setup, counts};

const FRONT_ENDS: [&str; 4] = ["Exim", "Exim by the socket", "policy service", "milter"];
/// The mails of one Exim.
const MESSAGES: usize = 60;
/// How often all begins again.
const ROUNDS: u64 = 6;

/// An SMTP connection to all servers, as replayed events describe it.
struct Connection {
    smtp: Client,
    by_socket: Client,
    postfix: Postfix,
    sendmail: Sendmail,
    session: String,
    client: Ipv4Addr,
    login: &'static str,
}

/// What became of a message.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fate {
    /// How many of its recipients were refused.
    pub(crate) refused: u32,
    /// What the client read at the first refusal of a step.
    text: Option<String>,
}

impl Fate {
    /// Adds what the client read at a recipient that was refused.
    pub(crate) fn recipient(&mut self, refused: Option<String>) {
        self.refused += u32::from(refused.is_some());
        self.end(refused);
    }

    /// Adds what the client read if the message was refused.
    pub(crate) fn end(&mut self, refused: Option<String>) {
        self.text = self.text.take().or(refused);
    }
}

fn policies() -> Policies {
    let none = |_: &Path| Err("no file".to_owned());
    let text = format!("version = 1\n{POLICIES}");
    let compiled = compile(Path::new("policy.toml"), &text, &none);
    compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics))
}

/// Exim evaluates all policies at RCPT and at DATA.
fn exim() -> PrivateExim {
    let over = OVER.replace("{p}", "{*}");
    let setup = Setup::new().library().auth().proxied();
    let setup = setup.acl("acl_smtp_rcpt", &over).acl("acl_smtp_data", &over);
    let mut exim = setup.build();
    install(&exim.spool(), &build(&policies())).unwrap();
    exim.start();
    exim
}

/// The same Exim without the library: its ACLs ask the policy service.
fn exim_by_socket() -> (PrivateExim, Machine, Process) {
    let machine = Machine::for_exim(POLICIES, "");
    let daemon = machine.start();
    let file = shipped().join("acl_policy.conf");
    let acl = format!("  .include {}\n  accept\n", file.display());
    let setup = Setup::new().socket(&machine.path("policy.sock")).auth().proxied();
    let setup = setup.main(&format!(".include {}", shipped().join("exirate.conf").display()));
    let setup = setup.acl("acl_smtp_rcpt", &acl).acl("acl_smtp_data", &acl);
    let mut exim = setup.build();
    exim.start();
    (exim, machine, daemon)
}

/// A connection of a client.
fn connected(exim: &PrivateExim, client: Ipv4Addr, name: &str) -> Client {
    let mut smtp = exim.connect(client);
    assert_eq!(smtp.expect().code, 220);
    assert!(smtp.command("EHLO client.test").is_ok());
    if !name.is_empty() {
        login(&mut smtp, name);
    }
    smtp
}

/// Sends a message by SMTP.
fn send(smtp: &mut Client, sender: &str, recipients: &[String]) -> Fate {
    let deferred = |reply: Reply| {
        let is_ok = reply.is_ok();
        assert!(is_ok || reply.code == 451, "{}", reply.text);
        (!is_ok).then_some(reply.text)
    };
    let mut fate = Fate::default();
    assert!(smtp.command(format!("MAIL FROM:<{sender}>")).is_ok());
    for recipient in recipients {
        fate.recipient(deferred(smtp.command(format!("RCPT TO:<{recipient}>"))));
    }
    if (fate.refused as usize) < recipients.len() {
        fate.end(deferred(smtp.data("Subject: x\n\nhello\n")));
    }
    smtp.command("RSET");
    fate
}

/// The rates of all records of policies, by their names.
fn rates(store: &mut impl Inspect) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    let visit = &mut |entry: Entry| {
        if entry.kind == Kind::Policy {
            let name = String::from_utf8_lossy(&entry.key).into_owned();
            rates.insert(name, entry.average.rate);
        }
    };
    store.for_each(visit).unwrap_or_else(|error| panic!("{error}"));
    rates
}

/// How many messages and recipients of each account were accepted.
type Sent = BTreeMap<String, (u64, u64)>;

/// What usage says of that.
fn usage(spool: &mut Spool) -> Sent {
    let (mut sent, now) = (Sent::new(), exirate::sys::clock::now().0);
    let visit = |key: OwnedKey, usage: Usage| {
        let name = String::from_utf8_lossy(key.key().identity()).into_owned();
        let all = usage.last(DAYS);
        sent.insert(name, (all.messages, all.recipients));
    };
    spool.for_each_usage(now, now.div_euclid(86_400), visit).unwrap();
    sent
}

#[test]
fn all_front_ends_and_replayed_events_agree() {
    let image = Image::from_bytes(build(&policies())).unwrap();
    let (mut refusals, mut accepted) = (0, 0);
    for round in 0..ROUNDS {
        let (exim, daemons) = (exim(), [(); 2].map(|()| Daemon::start(POLICIES)));
        let (by_socket, asked, _daemon) = exim_by_socket();
        let mut random = Random::new(round + 1);
        let mut replay = Replay::new(&image, "*").unwrap();
        let mut store = Memory::new();
        let mut sent = Sent::new();
        let mut connections: [Option<Connection>; 3] = [const { None }; 3];
        for message in 0..MESSAGES {
            let place = random.below(connections.len());
            if random.below(4) == 0 {
                connections[place] = None;
            }
            let connection = connections[place].get_or_insert_with(|| {
                let client = Ipv4Addr::new(192, 0, 2, 10 + random.below(3) as u8);
                let login_name = random.pick(&LOGINS);
                let smtp = connected(&exim, client, login_name);
                let by_socket = connected(&by_socket, client, login_name);
                let session = format!("{message}");
                let postfix = Postfix::connect(&daemons[0], client, login_name);
                let sendmail = Sendmail::connect(&daemons[1], client, login_name);
                let login = login_name;
                Connection { smtp, by_socket, postfix, sendmail, session, client, login }
            });
            let sender = random.pick(&SENDERS);
            let mut recipients: Vec<String> = (0..=random.below(4))
                .map(|_| format!("u{}@private.test", random.below(7)))
                .collect();
            recipients.sort();
            recipients.dedup();
            let seen = [
                send(&mut connection.smtp, sender, &recipients),
                send(&mut connection.by_socket, sender, &recipients),
                connection.postfix.send(sender, &recipients),
                connection.sendmail.send(sender, &recipients),
            ];
            let taken = recipients.len() as u64 - u64::from(seen[0].refused);
            if !connection.login.is_empty() && taken > 0 {
                let folded = connection.login.to_lowercase();
                let user = folded.split('+').next().unwrap();
                let account = sent.entry(format!("auth:{user}@x.test")).or_default();
                *account = (account.0 + 1, account.1 + taken);
            }
            let event = ReplayEvent {
                stage: Stage::Message,
                session: Some(connection.session.clone()),
                event: Event {
                    auth: Some(connection.login.to_owned()).filter(|login| !login.is_empty()),
                    client: Origin::Client(IpAddr::V4(connection.client)),
                    helo: Some("client.test".to_owned()),
                    sender: Some(sender.to_owned()),
                    ..Event::default()
                },
                recipients: Recipients::Addresses(recipients.clone()),
                ..ReplayEvent::at(Timestamp { seconds: 1_800_000_000 + message as i64, micros: 0 })
            };
            let decided = replay.decide(&event, &mut store).unwrap();
            let is_refused = decided.outcome.verdict >= Verdict::Defer;
            let text = is_refused.then(|| decided.outcome.text.trim_end());
            for (fate, front_end) in seen.iter().zip(FRONT_ENDS) {
                // Exim writes its code before the text.
                let same_text = match (&fate.text, text) {
                    (Some(seen), Some(text)) => seen.trim_end().ends_with(text),
                    (seen, text) => seen.is_none() && text.is_none(),
                };
                assert!(
                    fate.refused == decided.refused_recipients && same_text,
                    "round {round}, message {message}, {front_end}: {event:?}\n{fate:?}\n{decided:?}"
                );
            }
            refusals += u64::from(is_refused);
            accepted += u64::from(!is_refused);
        }
        let replayed = rates(&mut store);
        let [postfix, sendmail] = &daemons;
        let machines = [&asked, &postfix.machine, &sendmail.machine];
        for spool in machines.map(Machine::spool).into_iter().chain([exim.spool()]) {
            let mut spool = Spool::open(&spool, Options::default()).unwrap();
            let mut counted = usage(&mut spool);
            // Of some accounts, all recipients were refused.
            counted.retain(|_, sent| *sent != (0, 0));
            assert_eq!(counted, sent, "usage is what clients have sent");
            let real = rates(&mut spool);
            let names = |rates: &BTreeMap<String, f64>| rates.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&real), names(&replayed));
            for (name, rate) in &real {
                assert!((rate - replayed[name]).abs() < 0.2, "{name}: {rate} {}", replayed[name]);
            }
        }
        assert_eq!(exim.log("panic"), "");
    }
    assert!(refusals > 50 && accepted > 50, "{refusals} refused, {accepted} accepted");
    counts::record("messages that all front ends agree on", refusals + accepted);
}
