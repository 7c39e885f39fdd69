//! The same random mail through several front ends: replayed events, Postfix's policy
//! delegation and the milter over real sockets. What is accepted, what the client reads, and
//! all rates that are counted must be the same. `tests/exim/policy_replayed.rs` sends simpler
//! mail through all of them and a real Exim.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kit::agreement::{LOGINS, POLICIES, SENDERS};
use quickcheck::{Arbitrary, Gen};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use super::decider::Decider;
use super::milter::{Milter, packet};
use super::postfix::PolicyService;
use crate::event::{Event, Origin};
use crate::policy::image::{Image, build, install};
use crate::policy::replay::{Recipients, Replay, ReplayEvent, Stage};
use crate::policy::source::compile;
use crate::policy::word::{Verdict, Word as _};
use crate::serve::config::{Mail, check_mail};
use crate::serve::listen::{Bound, Peers};
use crate::serve::log::Log;
use crate::spool::{HELD_BY, Options, Spool};
use crate::sys::clock;

/// What else these front ends decide alike: Exim's test has messages of one size, and rules that
/// only defer.
const MORE: &str = r#"
[policy.k]
when = "authenticated"
text = "{policy} {unit} {limit} {key}"
default.bytes = "8000.5/2h"
default.total = { messages = "8.5/2h" }
[policy.h]
when = ["!authenticated", "!local"]
key = ["client"]
update = "strict"
text = "very many {unit} for {client} {sender}"
verdicts = { "50%" = "log", "70%" = "hold", "100%" = "defer", "150%" = "reject" }
default.recipients = "3.5/2h"
default.connections = "5.5/2h"
default.unique_clients = "2.5/2h"
[policy.i]
when = "authenticated"
update = "strict"
text = "{rule} {unit} {limit} {key}"
default.recipients = "5.5/2h"
default.messages = "4.5/4h"
default.total = { recipients = "8.5/2h", messages = "7.5/4h", unique_recipients = "7.5/2h" }
[policy.j]
when = "local"
key = ["sender"]
text = "local {unit}"
default.messages = "3.5/2h"
default.unique_recipients = "4.5/2h"
[[policy.j.exempt]]
recipients = "u1@private.test"
[policy.l]
when = "authenticated"
default.habits = "observe"
[[policy.l.exempt]]
recipients = "u2@private.test"
[policy.m]
when = "authenticated"
update = "strict"
default.messages = "2.5/2h"
[on.crossing]
deny = "until-lifted"
deny_policies = ["m"]
"#;

const CLIENTS: [&str; 4] = ["192.0.2.1", "2001:db8::7", "127.0.0.1", "198.51.100.9"];

/// A message of one of three SMTP connections that are open at the same time.
#[derive(Clone, Debug)]
struct Message {
    connection: usize,
    /// The connection is closed, and another one opened, before it.
    reconnects: bool,
    sender: usize,
    recipients: Vec<usize>,
    size: u64,
    /// How often each recipient is asked about, and by which policy connection: one for
    /// each bit.
    repeats: u64,
}

/// What there is of each connection: login and client.
#[derive(Clone, Debug)]
struct Mails {
    peers: Vec<(usize, usize)>,
    messages: Vec<Message>,
}

impl Arbitrary for Mails {
    fn arbitrary(g: &mut Gen) -> Self {
        let number = |g: &mut Gen, most: usize| usize::arbitrary(g) % most;
        let peers = (0..12).map(|_| (number(g, LOGINS.len()), number(g, CLIENTS.len()))).collect();
        let messages = (0..number(g, 25) + 5).map(|_| {
            let mut recipients: Vec<usize> = (0..=number(g, 4)).map(|_| number(g, 7)).collect();
            recipients.sort_unstable();
            recipients.dedup();
            Message {
                connection: number(g, 3),
                reconnects: number(g, 3) == 0,
                sender: number(g, SENDERS.len()),
                recipients,
                size: [2, 100, 1000, 3000][number(g, 4)],
                repeats: u64::arbitrary(g),
            }
        });
        Self { peers, messages: messages.collect() }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let peers = self.peers.clone();
        let all = (0..self.messages.len()).map({
            let messages = self.messages.clone();
            move |left_out| {
                let mut messages = messages.clone();
                messages.remove(left_out);
                Self { peers: peers.clone(), messages }
            }
        });
        Box::new(all)
    }
}

/// A message as a front end gets it.
struct Sent<'a> {
    /// The number of its SMTP connection.
    connection: usize,
    /// The number of the message in its connection.
    number: usize,
    login: &'a str,
    client: &'a str,
    sender: &'a str,
    recipients: Vec<String>,
    size: u64,
    repeats: u64,
}

/// What came of a message.
#[derive(Debug, Default, PartialEq)]
struct Came {
    refused_recipients: u32,
    /// The strictest of hold, defer and reject, and the first text that goes with it.
    strictest: Option<(Verdict, String)>,
}

/// A front end.
trait FrontEnd {
    async fn send(&mut self, message: &Sent<'_>) -> Came;
}

/// Exim's rules.
struct Replayed<'i> {
    replay: Replay<'i>,
    store: Spool,
}

impl FrontEnd for Replayed<'_> {
    async fn send(&mut self, message: &Sent<'_>) -> Came {
        let event = ReplayEvent {
            stage: Stage::Message,
            session: Some(message.connection.to_string()),
            event: Event {
                auth: Some(message.login.to_owned()),
                client: Origin::of_client(message.client.parse().ok()),
                sender: Some(message.sender.to_owned()),
                ..Event::default()
            },
            recipients: Recipients::Addresses(message.recipients.clone()),
            size: Some(message.size),
            ..ReplayEvent::at(clock::now().into())
        };
        let decisions = self.replay.decide(&event, &mut self.store).unwrap();
        let (verdict, text) = (decisions.outcome.verdict, decisions.outcome.text);
        Came {
            refused_recipients: decisions.refused_recipients,
            strictest: (verdict >= Verdict::Hold).then_some((verdict, text)),
        }
    }
}

/// Postfix's policy delegation, by two connections.
struct Delegated {
    connections: [UnixStream; 2],
    /// To tell the runs apart.
    run: u64,
}

impl Delegated {
    async fn ask(&mut self, by: usize, message: &Sent<'_>, more: &str) -> String {
        let Sent { connection, number, login, client, sender, .. } = message;
        let request = format!(
            "request=smtpd_access_policy\nclient_address={client}\nsasl_username={login}\n\
             sender={sender}\nhelo_name=h\ninstance={connection:x}.{:x}.5.{number:x}\n{more}\n\n",
            self.run
        );
        let stream = &mut self.connections[by];
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"\n\n") {
            reply.push(stream.read_u8().await.unwrap());
        }
        let reply = String::from_utf8(reply).unwrap();
        let action = reply.strip_prefix("action=").and_then(|rest| rest.strip_suffix("\n\n"));
        action.unwrap().to_owned()
    }
}

impl Came {
    fn add(&mut self, action: &str) -> bool {
        let verdict = [
            ("HOLD ", Verdict::Hold),
            ("DEFER_IF_PERMIT 4.7.1 ", Verdict::Defer),
            ("REJECT 5.7.1 ", Verdict::Reject),
        ];
        let found = verdict.iter().find_map(|(start, verdict)| {
            action.strip_prefix(start).map(|text| (*verdict, text.to_owned()))
        });
        assert!(found.is_some() || action == "DUNNO", "{action}");
        let Some((verdict, text)) = found else { return true };
        if self.strictest.as_ref().is_none_or(|(strictest, _)| verdict > *strictest) {
            self.strictest = Some((verdict, text));
        }
        verdict < Verdict::Defer
    }
}

impl FrontEnd for Delegated {
    async fn send(&mut self, message: &Sent<'_>) -> Came {
        let mut came = Came::default();
        let (mut accepted, mut bits) = (0, message.repeats);
        for recipient in &message.recipients {
            let more = format!("protocol_state=RCPT\nrecipient={recipient}\nrecipient_count=0");
            let action = self.ask((bits & 1) as usize, message, &more).await;
            // Asked once more, by another restriction list.
            if bits & 2 != 0 {
                let again = self.ask((bits >> 2 & 1) as usize, message, &more).await;
                assert_eq!(again, action);
            }
            bits >>= 3;
            match came.add(&action) {
                true => accepted += 1,
                false => came.refused_recipients += 1,
            }
        }
        if accepted > 0 {
            let more = format!(
                "protocol_state=END-OF-MESSAGE\nrecipient=\nrecipient_count={accepted}\nsize={}",
                message.size
            );
            let action = self.ask((bits & 1) as usize, message, &more).await;
            came.add(&action);
        }
        came
    }
}

/// The milter: a connection for each SMTP connection.
struct Filtered {
    socket: PathBuf,
    connections: BTreeMap<usize, UnixStream>,
}

/// A connection of a mail server to the milter.
struct Mta<'a>(&'a mut UnixStream);

impl Mta<'_> {
    async fn say(&mut self, command: u8, data: &[u8]) {
        let mut bytes = Vec::new();
        packet::write(&mut bytes, command, data);
        self.0.write_all(&bytes).await.unwrap();
    }

    /// The next reply: its code, and its text without the zero byte and doubled signs.
    async fn reply(&mut self) -> (u8, String) {
        let length = self.0.read_u32().await.unwrap();
        let mut bytes = vec![0; length as usize];
        self.0.read_exact(&mut bytes).await.unwrap();
        let code = bytes.remove(0);
        let text = String::from_utf8_lossy(&bytes);
        (code, text.trim_end_matches('\0').replace("%%", "%"))
    }
}

/// A reply of the milter as an action of the policy delegation.
fn action((code, text): (u8, String)) -> String {
    let text = match (code, text.split_at_checked(10)) {
        (b'c', _) => return "DUNNO".to_owned(),
        (b'q', _) => {
            let reason = text.strip_prefix(HELD_BY).unwrap();
            return format!("HOLD {}", reason.split_once(": ").unwrap().1);
        }
        (b'y', Some(("451 4.7.1 ", text))) => return format!("DEFER_IF_PERMIT 4.7.1 {text}"),
        (b'y', Some(("550 5.7.1 ", text))) => return format!("REJECT 5.7.1 {text}"),
        _ => text,
    };
    panic!("{} {text}", char::from(code));
}

impl FrontEnd for Filtered {
    async fn send(&mut self, message: &Sent<'_>) -> Came {
        let is_new = !self.connections.contains_key(&message.connection);
        if is_new {
            let stream = UnixStream::connect(&self.socket).await.unwrap();
            self.connections.insert(message.connection, stream);
        }
        let mut mta = Mta(self.connections.get_mut(&message.connection).unwrap());
        if is_new {
            mta.say(packet::NEGOTIATE, &[0, 0, 0, 6, 0, 0, 1, 255, 0, 31, 255, 255]).await;
            assert_eq!(mta.reply().await.0, packet::NEGOTIATE);
            let family = if message.client.contains(':') { '6' } else { '4' };
            let connect = format!("client\0{family}\x01\x02{}\0", message.client);
            mta.say(packet::CONNECT, connect.as_bytes()).await;
            mta.say(packet::HELO, b"h\0").await;
        }
        let mut came = Came::default();
        let macros = format!("M{{auth_authen}}\0{}\0", message.login);
        mta.say(packet::MACRO, macros.as_bytes()).await;
        mta.say(packet::MAIL, format!("<{}>\0SIZE=1\0", message.sender).as_bytes()).await;
        for recipient in &message.recipients {
            mta.say(packet::RCPT, format!("<{recipient}>\0").as_bytes()).await;
            let accepted = came.add(&action(mta.reply().await));
            came.refused_recipients += u32::from(!accepted);
        }
        if came.refused_recipients as usize == message.recipients.len() {
            mta.say(packet::ABORT, b"").await;
            return came;
        }
        // With the line between headers and body.
        mta.say(packet::BODY, &vec![b'x'; message.size as usize - 2]).await;
        mta.say(packet::END, b"").await;
        let reply = mta.reply().await;
        if reply.0 == b'q' {
            assert_eq!(mta.reply().await.0, b'c');
        }
        came.add(&action(reply));
        came
    }
}

/// All rates of a database, by the names of their records.
fn rates(store: &mut Spool) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    let add = &mut |entry: crate::store::Entry| {
        let name = String::from_utf8_lossy(&entry.key).into_owned();
        rates.insert(name, entry.state().rate());
    };
    store.for_each(add).unwrap();
    rates
}

/// How many messages of each account were learned, and the strangers among their recipients.
fn habits(store: &mut Spool) -> BTreeMap<String, (u16, u32)> {
    let mut all = BTreeMap::new();
    let left_out = store.for_each_habits(|key, habits| {
        let name = String::from_utf8_lossy(key.key().identity()).into_owned();
        let strangers = habits.evidence(habits.at()).strangers;
        all.insert(name, (habits.messages(), strangers));
    });
    assert!(left_out.unwrap().shards.is_empty());
    all
}

/// Sends all mail through all front ends.
async fn agree(mails: &Mails, run: u64, seen: &mut BTreeSet<&'static str>) {
    let [exim, postfix, sendmail] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1{POLICIES}{MORE}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    let image = Image::from_bytes(build(&policies)).unwrap();
    let mut exim_store = Spool::open(exim.path(), Options::default()).unwrap();
    // The same key: known recipients are short hashes under it, of which two may be the same.
    for other in [&postfix, &sendmail] {
        let key = |folder: &tempfile::TempDir| folder.path().join("exirate/database");
        std::fs::create_dir(other.path().join("exirate")).unwrap();
        std::fs::copy(key(&exim), key(other)).unwrap();
    }
    let store = Spool::open(exim.path(), Options::default()).unwrap();
    let mut replayed = Replayed { replay: Replay::new(&image, "*").unwrap(), store };

    let (stop, stopped) = watch::channel(false);
    let serve = |key: &str, spool: &Path| {
        install(spool, &build(&policies)).unwrap();
        let (socket, directory) = (spool.join("socket"), spool.display());
        let text = format!(
            "[listen]\n{key} = \"unix:{}\"\n[mail]\nspool = \"{directory}\"\nworkers = 2",
            socket.display()
        );
        let mail: Mail = check_mail(Path::new("f"), &text).config.unwrap();
        let log = Rc::new(Log::kept());
        let decider = Rc::new(Decider::new(&mail, Rc::clone(&log)).unwrap());
        let address = mail.policy.as_ref().or(mail.milter.as_ref()).unwrap();
        let mut bound = Bound::bind(address, mail.access).unwrap();
        let (acceptor, peers) = (bound.acceptor().unwrap(), Peers::new(100, Rc::clone(&log)));
        let (stopped, decides) = (stopped.clone(), Rc::clone(&decider));
        let serving = match &mail.policy {
            Some(_) => {
                let service = PolicyService::new(&mail, decides, log);
                spawn_local(service.serve(acceptor, peers, stopped))
            }
            None => {
                let milter = Milter::new(&mail, decides, log);
                spawn_local(milter.serve(acceptor, peers, stopped))
            }
        };
        (socket, bound, decider, serving)
    };
    let (socket, _policy, policy_decider, policy_serving) = serve("policy", postfix.path());
    let connections =
        [UnixStream::connect(&socket).await.unwrap(), UnixStream::connect(&socket).await.unwrap()];
    let mut delegated = Delegated { connections, run };
    let (socket, _milter, milter_decider, milter_serving) = serve("milter", sendmail.path());
    let mut filtered = Filtered { socket, connections: BTreeMap::new() };

    let mut open: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut next = 0;
    for message in &mails.messages {
        let (connection, number) = match open.get(&message.connection) {
            Some(&(connection, number)) if !message.reconnects => (connection, number + 1),
            _ => {
                next += 1;
                (next, 0)
            }
        };
        open.insert(message.connection, (connection, number));
        let (login, client) = mails.peers[connection % mails.peers.len()];
        let recipients = message.recipients.iter().map(|n| format!("U{n}@private.test")).collect();
        let sent = Sent {
            connection,
            number,
            login: LOGINS[login],
            client: CLIENTS[client],
            sender: SENDERS[message.sender],
            recipients,
            size: message.size,
            repeats: message.repeats,
        };
        let expected = replayed.send(&sent).await;
        seen.insert(match &expected.strictest {
            Some((_, text)) if text.starts_with("Blocked") => "blocked",
            strictest => strictest.as_ref().map_or("none", |(verdict, _)| verdict.word()),
        });
        assert_eq!(delegated.send(&sent).await, expected, "policy delegation: {message:?}");
        assert_eq!(filtered.send(&sent).await, expected, "milter: {message:?}");
    }
    let _ = stop.send(true);
    policy_serving.await.unwrap();
    milter_serving.await.unwrap();
    policy_decider.stop().await;
    milter_decider.stop().await;
    let expected = rates(&mut exim_store);
    let learned = habits(&mut exim_store);
    for directory in [&postfix, &sendmail] {
        let mut store = Spool::open(directory.path(), Options::default()).unwrap();
        assert_eq!(habits(&mut store), learned);
        let found = rates(&mut store);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, rate) in &expected {
            let found = found[name];
            assert!((found - rate).abs() < 0.01 * rate.max(1.0), "{name}: {found}, not {rate}");
        }
    }
}

thread_local! {
    /// The number of the run, and what came of mail so far.
    static RUNS: RefCell<(u64, BTreeSet<&'static str>)> = RefCell::default();
}

#[test]
fn front_ends_decide_and_count_the_same() {
    fn property(mails: Mails) -> bool {
        let (run, mut seen) = RUNS.take();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, agree(&mails, run, &mut seen));
        RUNS.set((run + 1, seen));
        true
    }
    kit::quick_check().tests(60).quickcheck(property as fn(Mails) -> bool);
    let (_, seen) = RUNS.take();
    let expected = ["blocked", "defer", "hold", "none", "reject"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}
