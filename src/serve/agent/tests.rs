use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::decide::{LARGE_BYTES_MAX, Timeouts};
use super::{Agent, Backend, Failed};
use crate::cluster::wire::{
    MESSAGE_BYTES_MAX, Reply, ReplyStatus, message_bytes, read_reply, write_request,
};
use crate::engine::{Algorithm, Check, Decision, RecordKey, Update};
use crate::rate::Timestamp;
use crate::redis::{Announcement, KnownServers};
use crate::serve::config;
use crate::serve::log::Log;
use crate::store::{Memory, Store as _};

/// What the tests make the store do.
#[derive(Default)]
struct World {
    memory: RefCell<Memory>,
    /// The numbers of events that were counted.
    events: RefCell<HashMap<u128, Vec<Decision>>>,
    /// Why nobody can connect.
    refuses: RefCell<Option<String>>,
    /// Why no request is decided.
    fails: RefCell<Option<Failed>>,
    /// How long each request takes.
    delay: Cell<Duration>,
    /// Whether it has parts, and those that are away.
    has_parts: Cell<bool>,
    parts_away: RefCell<Vec<(String, String)>>,
    connections: Cell<usize>,
    most_at_once: Cell<usize>,
    at_once: Cell<usize>,
    /// The names that were published, and the numbers of decisions.
    announced: RefCell<Vec<(String, u64)>>,
    /// What each publication returns.
    announces: RefCell<Option<Result<bool, Failed>>>,
}

/// A store in the memory of the test.
struct Stored(Rc<World>);

#[derive(Clone)]
struct Place(Rc<World>, &'static str);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl Backend for Stored {
    type Settings = Place;

    async fn connect(settings: &Place, _: Option<&Self>) -> Result<Self, String> {
        let world = &settings.0;
        world.connections.set(world.connections.get() + 1);
        let refuses = world.refuses.borrow().clone();
        refuses.map_or_else(|| Ok(Self(Rc::clone(world))), Err)
    }

    async fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Failed> {
        let world = &self.0;
        world.at_once.set(world.at_once.get() + 1);
        world.most_at_once.set(world.most_at_once.get().max(world.at_once.get()));
        sleep(world.delay.get()).await;
        world.at_once.set(world.at_once.get() - 1);
        if let Some(failed) = &*world.fails.borrow() {
            return Err(failed.clone());
        }
        if let Some(known) = world.events.borrow().get(&event) {
            decisions.clone_from(known);
            return Ok(());
        }
        let now = || Timestamp { seconds: 1_000_000, micros: 0 };
        world.memory.borrow_mut().decide(checks, now, decisions).unwrap();
        world.events.borrow_mut().insert(event, decisions.clone());
        Ok(())
    }

    fn has_parts(&self) -> bool {
        self.0.has_parts.get()
    }

    fn is_away(&self) -> bool {
        false
    }

    fn parts_away(&self) -> Vec<(String, String)> {
        self.0.parts_away.borrow().clone()
    }

    fn take_incidents(&self) -> Vec<String> {
        Vec::new()
    }

    async fn watch(&self) -> String {
        std::future::pending().await
    }

    async fn announce(&self, announcement: &Announcement<'_>) -> Result<bool, Failed> {
        let &Announcement { name, decisions, .. } = announcement;
        self.0.announced.borrow_mut().push((name.to_owned(), decisions));
        let replies = self.0.announces.borrow().clone();
        match replies {
            Some(reply) => reply,
            None => std::future::pending().await,
        }
    }

    async fn servers(&self) -> Result<KnownServers, String> {
        Ok(KnownServers { now: 1000, ..KnownServers::default() })
    }
}

/// A running agent.
struct Running {
    agent: Rc<Agent<Stored>>,
    world: Rc<World>,
    log: Rc<Log>,
    folder: tempfile::TempDir,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

fn options() -> config::Agent {
    let users = BTreeSet::from([rustix::process::geteuid().as_raw()]);
    let peers = config::Peers { users, groups: BTreeSet::new() };
    let server_name = "mx1".to_owned();
    config::Agent {
        digest: 1,
        max_in_flight: 100,
        max_connections: 100,
        peers,
        servers: 4,
        server_name,
        socket_group: None,
    }
}

const DEADLINE: Duration = Duration::from_secs(2);

impl Running {
    fn start(options: config::Agent, timeouts: Option<Timeouts>) -> Self {
        let (world, log) = (Rc::new(World::default()), Rc::new(Log::kept()));
        let place = Place(Rc::clone(&world), "memory");
        let mut agent = Agent::<Stored>::new(options, DEADLINE, place, Rc::clone(&log));
        agent.timeouts = timeouts.unwrap_or_default();
        let agent = Rc::new(agent);
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let (stop, stopped) = watch::channel(false);
        let served = Rc::clone(&agent);
        let serving = spawn_local(async move { served.serve(listener, stopped).await });
        Self { agent, world, log, folder, stop, serving }
    }

    /// As [`Running::start`], and connected to its store.
    async fn connected(options: config::Agent) -> Self {
        let running = Self::start(options, None);
        running.connect_store();
        running.until("the store is connected", |r| r.logged("connected to memory")).await;
        running
    }

    fn connect_store(&self) {
        let agent = Rc::clone(&self.agent);
        spawn_local(async move { agent.keep_connected().await });
    }

    fn logged(&self, text: &str) -> bool {
        self.log.lines().iter().any(|line| line.contains(text))
    }

    async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < kit::TIMEOUT, "{what}: {:?}", self.log.lines());
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn client(&self) -> Client {
        Client::connect(&self.folder.path().join("s")).await
    }
}

/// A process that asks.
struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// How a request is replied to.
#[derive(Debug, PartialEq)]
enum Answer {
    Rate(f64),
    Refused(ReplyStatus, String),
    /// The connection has ended.
    Closed,
}

fn check(name: &[u8]) -> Check<'_> {
    let algorithm = Algorithm::MovingAverage { limit: 10.0, period: 3600.0 };
    let key = RecordKey::from(name);
    let (count, update) = (1.0, Update::Strict);
    Check { count, update, ..Check::new(key, algorithm) }
}

fn request(event: u128, deadline: Duration, name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_request(&mut bytes, event, deadline.as_micros() as u32, &[check(name)]).unwrap();
    bytes
}

impl Client {
    async fn connect(path: &Path) -> Self {
        Self { stream: UnixStream::connect(path).await.unwrap(), buffer: Vec::new() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The bytes of the next reply; none at the end of the connection.
    async fn reply(&mut self) -> Vec<u8> {
        let next = async {
            loop {
                match message_bytes(&self.buffer).unwrap() {
                    Some(size) if self.buffer.len() >= size => {
                        let after = self.buffer.split_off(size);
                        return std::mem::replace(&mut self.buffer, after);
                    }
                    _ => {}
                }
                if matches!(self.stream.read_buf(&mut self.buffer).await, Ok(0) | Err(_)) {
                    assert!(self.buffer.is_empty(), "a reply is cut: {:?}", self.buffer);
                    return Vec::new();
                }
            }
        };
        timeout(kit::TIMEOUT, next).await.expect("no reply")
    }

    async fn answer(&mut self, event: u128) -> Answer {
        let reply = self.reply().await;
        if reply.is_empty() {
            return Answer::Closed;
        }
        match read_reply(&reply, event, &[check(b"x")]).unwrap() {
            Reply::Decided(decisions) => Answer::Rate(decisions[0].rate.round()),
            Reply::Refused(status, why) => {
                Answer::Refused(status, String::from_utf8(why.to_vec()).unwrap())
            }
        }
    }

    async fn ask(&mut self, event: u128, name: &[u8]) -> Answer {
        self.send(&request(event, DEADLINE, name)).await;
        self.answer(event).await
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn requests_are_decided() {
    run(async {
        let running = Running::connected(options()).await;
        let mut client = running.client().await;
        for n in 1..=3 {
            assert_eq!(client.ask(n, b"alice").await, Answer::Rate(n as f64));
        }
        // The same number is not counted again.
        assert_eq!(client.ask(3, b"alice").await, Answer::Rate(3.0));
        assert_eq!(running.client().await.ask(4, b"bob").await, Answer::Rate(1.0));
        assert!(running.agent.status().contains("connected to memory; "));
        assert!(running.agent.status().ends_with(", 5 decisions"), "{}", running.agent.status());
    });
}

#[test]
fn requests_of_one_connection_are_decided_at_the_same_time() {
    run(async {
        let running = Running::connected(options()).await;
        running.world.delay.set(Duration::from_millis(50));
        let mut client = running.client().await;
        let all: Vec<u8> = (1..=50).flat_map(|n| request(n, DEADLINE, b"alice")).collect();
        // Cut anywhere.
        for part in all.chunks(701) {
            client.send(part).await;
            sleep(Duration::from_micros(100)).await;
        }
        let mut seen = BTreeSet::new();
        for _ in 1..=50 {
            let reply = client.reply().await;
            seen.insert(crate::cluster::wire::event_of(&reply));
        }
        assert_eq!(seen, (1..=50).collect());
        assert!(running.world.most_at_once.get() > 10, "{}", running.world.most_at_once.get());
    });
}

#[test]
fn it_starts_before_its_store_and_says_once_why_nothing_is_decided() {
    run(async {
        let running = Running::start(options(), None);
        let mut client = running.client().await;
        let not_yet = Answer::Refused(ReplyStatus::Unavailable, "not yet connected".to_owned());
        assert_eq!(client.ask(1, b"alice").await, not_yet);
        *running.world.refuses.borrow_mut() = Some("connection refused".to_owned());
        running.connect_store();
        running.until("several attempts", |r| r.world.connections.get() >= 4).await;
        let away = Answer::Refused(ReplyStatus::Unavailable, "connection refused".to_owned());
        assert_eq!(client.ask(2, b"alice").await, away);
        assert_eq!(running.log.lines(), ["memory is away: connection refused"]);
        *running.world.refuses.borrow_mut() = Some("wrong password".to_owned());
        running.until("the other reason", |r| r.log.lines().len() == 2).await;
        *running.world.refuses.borrow_mut() = None;
        running.until("it is connected", |r| r.log.lines().len() == 3).await;
        assert_eq!(client.ask(3, b"alice").await, Answer::Rate(1.0));
        let lines = running.log.lines();
        assert_eq!(lines[1], "memory is away: wrong password");
        assert!(lines[2].starts_with("connected to memory after "), "{lines:?}");
        assert!(lines[2].ends_with("; requests not decided meanwhile: 2"), "{lines:?}");
    });
}

#[test]
fn a_store_that_fails_is_connected_to_again() {
    run(async {
        let running = Running::connected(options()).await;
        let mut client = running.client().await;
        *running.world.fails.borrow_mut() = Some(Failed::Lost("read-only".to_owned()));
        *running.world.refuses.borrow_mut() = Some("refused".to_owned());
        let answer = |why: &str| Answer::Refused(ReplyStatus::Unavailable, why.to_owned());
        assert_eq!(client.ask(1, b"alice").await, answer("read-only"));
        running.until("it is away", |r| r.logged("memory is away: refused")).await;
        assert_eq!(client.ask(2, b"alice").await, answer("refused"));
        *running.world.fails.borrow_mut() = None;
        *running.world.refuses.borrow_mut() = None;
        running.until("it is back", |r| r.log.lines().len() == 4).await;
        assert_eq!(client.ask(3, b"alice").await, Answer::Rate(1.0));
        // One request that cannot be decided is no reason to connect again.
        let connections = running.world.connections.get();
        *running.world.fails.borrow_mut() = Some(Failed::Request("odd name".to_owned()));
        assert_eq!(client.ask(4, b"alice").await, answer("odd name"));
        *running.world.fails.borrow_mut() = None;
        assert_eq!(client.ask(5, b"alice").await, Answer::Rate(2.0));
        assert_eq!(running.world.connections.get(), connections);
    });
}

#[test]
fn a_part_that_is_away_is_no_reason_to_connect_again() {
    run(async {
        let running = Running::connected(options()).await;
        running.world.has_parts.set(true);
        let mut client = running.client().await;
        let answer = |why: &str| Answer::Refused(ReplyStatus::KeysAway, why.to_owned());
        *running.world.fails.borrow_mut() = Some(Failed::Part("one is away: refused".to_owned()));
        for n in 1..=5 {
            assert_eq!(client.ask(n, b"alice").await, answer("one is away: refused"));
        }
        running.world.delay.set(Duration::from_hours(1));
        client.send(&request(6, Duration::from_millis(30), b"alice")).await;
        assert_eq!(client.answer(6).await, answer("no reply within 30 ms"));
        *running.world.parts_away.borrow_mut() = vec![("one".to_owned(), "refused".to_owned())];
        let away = "one of memory is away: refused; this server decides alone for its keys";
        running.until("it is logged", |r| r.logged(away)).await;
        let status = running.agent.store_status();
        assert_eq!(status, "connected to memory, parts away: one: refused");
        running.world.parts_away.borrow_mut().clear();
        running.until("it is back", |r| r.logged("one of memory replies again after ")).await;
        running.world.delay.set(Duration::ZERO);
        *running.world.fails.borrow_mut() = None;
        assert_eq!(client.ask(7, b"alice").await, Answer::Rate(1.0));
        assert_eq!(running.world.connections.get(), 1);
    });
}

#[test]
fn records_of_a_later_version_concern_nobody_else() {
    run(async {
        let running = Running::connected(options()).await;
        let mut client = running.client().await;
        let why = "a record is of format version 2".to_owned();
        *running.world.fails.borrow_mut() = Some(Failed::Keys(why.clone()));
        assert_eq!(
            client.ask(1, b"alice").await,
            Answer::Refused(ReplyStatus::KeysAway, why.clone())
        );
        assert!(running.logged(&why));
        *running.world.fails.borrow_mut() = None;
        assert_eq!(client.ask(2, b"alice").await, Answer::Rate(1.0));
        assert_eq!(running.world.connections.get(), 1);
    });
}

#[test]
fn the_log_has_the_changes_of_each_part() {
    run(async {
        let running = Running::connected(options()).await;
        running.world.has_parts.set(true);
        // More than it has of one subject in a minute.
        let names: Vec<String> = (0..9).map(|number| format!("node-{number}")).collect();
        let away = |name: &String| (name.clone(), "refused".to_owned());
        *running.world.parts_away.borrow_mut() = names.iter().map(away).collect();
        let is_logged = |r: &Running, name| r.logged(&format!("{name} of memory is away: refused"));
        running.until("all are", |r| names.iter().all(|name| is_logged(r, name))).await;
    });
}

#[test]
fn a_silent_store_costs_each_request_its_deadline_and_then_nothing() {
    run(async {
        let running = Running::connected(options()).await;
        running.world.delay.set(Duration::from_hours(1));
        let mut client = running.client().await;
        let deadline = Duration::from_millis(30);
        let mut last = String::new();
        for n in 1..=200 {
            client.send(&request(n, deadline, b"alice")).await;
            let Answer::Refused(ReplyStatus::Unavailable, why) = client.answer(n).await else {
                panic!("decided");
            };
            last = why;
            if running.logged("memory is away") {
                break;
            }
        }
        assert_eq!(last, "no reply within 30 ms");
        running.world.delay.set(Duration::ZERO);
        running.until("it is back", |r| r.logged("connected to memory after ")).await;
        assert!(matches!(client.ask(999, b"alice").await, Answer::Rate(_)));
    });
}

#[test]
fn other_users_are_refused() {
    run(async {
        let mut others = options();
        others.peers.users = BTreeSet::from([4_000_000_000]);
        let running = Running::connected(others).await;
        let mut client = running.client().await;
        let Answer::Refused(ReplyStatus::NotAllowed, why) = client.answer(0).await else {
            panic!("allowed");
        };
        let own = rustix::process::geteuid().as_raw();
        assert!(why.starts_with(&format!("user {own} with group ")), "{why}");
        assert_eq!(client.answer(0).await, Answer::Closed);
        // A group is enough, and a reload is for new connections.
        let mut options = options();
        options.peers.users.clear();
        options.peers.groups = BTreeSet::from([rustix::process::getegid().as_raw()]);
        running.agent.set(options, DEADLINE, Place(Rc::clone(&running.world), "memory"));
        assert_eq!(running.client().await.ask(1, b"alice").await, Answer::Rate(1.0));
        let log = running.log.lines();
        let process = std::process::id();
        assert!(log.iter().any(|line| line.ends_with(&format!("(process {process})"))), "{log:?}");
    });
}

#[test]
fn too_many_requests_and_connections_are_replied_to_as_busy() {
    run(async {
        let few = config::Agent { max_in_flight: 2, max_connections: 2, ..options() };
        let running = Running::connected(few).await;
        running.world.delay.set(Duration::from_millis(300));
        let (mut one, mut two) = (running.client().await, running.client().await);
        let all: Vec<u8> = (1..=5).flat_map(|n| request(n, DEADLINE, b"alice")).collect();
        one.send(&all).await;
        let busy = |why: &str| Answer::Refused(ReplyStatus::Busy, why.to_owned());
        for n in 3..=5 {
            assert_eq!(one.answer(n).await, busy("too many requests at the same time"));
        }
        assert_eq!(one.answer(1).await, Answer::Rate(1.0));
        assert_eq!(one.answer(2).await, Answer::Rate(2.0));
        assert!(matches!(two.ask(6, b"alice").await, Answer::Rate(_)));
        let mut three = running.client().await;
        assert_eq!(three.answer(0).await, busy("too many processes are connected"));
        assert_eq!(three.answer(0).await, Answer::Closed);
        drop(one);
        running.until("there is room", |r| r.agent.connections.get() == 1).await;
        assert!(matches!(running.client().await.ask(7, b"alice").await, Answer::Rate(_)));
        assert!(matches!(two.ask(8, b"alice").await, Answer::Rate(_)));
    });
}

#[test]
fn slow_and_silent_processes_are_disconnected_and_others_are_served() {
    run(async {
        let message = Duration::from_millis(200);
        let timeouts = Timeouts { idle: Duration::from_millis(400), message };
        let running = Running::start(options(), Some(timeouts));
        running.connect_store();
        running.until("the store is connected", |r| r.logged("connected to memory")).await;
        let mut silent = running.client().await;
        let mut slow = running.client().await;
        let whole = request(1, DEADLINE, b"alice");
        slow.send(&whole[..whole.len() - 1]).await;
        assert_eq!(running.client().await.ask(2, b"alice").await, Answer::Rate(1.0));
        assert_eq!(slow.answer(1).await, Answer::Closed);
        assert!(running.logged("a request was not complete after 0.2s: the connection is closed"));
        assert_eq!(silent.answer(0).await, Answer::Closed);
        // One that takes no replies: they fill the socket, and then it is disconnected.
        let mut deaf = running.client().await;
        let all: Vec<u8> = (0..200).flat_map(|n| request(100 + n, DEADLINE, b"bob")).collect();
        let flood = async {
            loop {
                if deaf.stream.write_all(&all).await.is_err() {
                    return;
                }
            }
        };
        timeout(kit::TIMEOUT, flood).await.expect("it reads for ever");
        assert_eq!(running.client().await.ask(3, b"alice").await, Answer::Rate(2.0));
        running.until("all have ended", |r| r.agent.connections.get() == 0).await;
    });
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    run(async {
        let running = Running::connected(options()).await;
        let whole = request(7, DEADLINE, b"alice");
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] ^= 0x55;
            let mut client = running.client().await;
            client.send(&wrong).await;
            client.stream.shutdown().await.unwrap();
            // A wrong size may make it wait for more: then there is no reply.
            let reply = client.reply().await;
            if !reply.is_empty() {
                let event = crate::cluster::wire::event_of(&reply);
                let reply = read_reply(&reply, event, &[check(b"x")]).unwrap();
                let refused = matches!(
                    reply,
                    Reply::Refused(ReplyStatus::BadRequest | ReplyStatus::OtherVersion, _)
                );
                assert!(refused, "byte {at}: {reply:?}");
                assert!(client.reply().await.is_empty());
            }
        }
        for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"EXRQ\xff\xff\xff\xff", b"EXRP", &[0; 99]]
        {
            let mut client = running.client().await;
            client.send(garbage).await;
            let _ = client.stream.shutdown().await;
            client.reply().await;
        }
        // A request after one that is refused, but whose size is sound: of a later library, or of
        // another kind.
        let later = "the message is of format version 2, and this exirate knows no version above 1: \
                     restart the agent, and what asks it";
        for (offset, byte, status, why) in [
            (8, 2, ReplyStatus::OtherVersion, later),
            (10, 99, ReplyStatus::BadRequest, "unknown kind of request 99"),
        ] {
            let mut other = request(8, DEADLINE, b"alice");
            other[offset] = byte;
            let crc = crc32fast::hash(&other[..other.len() - 4]);
            let end = other.len() - 4;
            other[end..].copy_from_slice(&crc.to_le_bytes());
            let mut client = running.client().await;
            client.send(&[other, request(9, DEADLINE, b"alice")].concat()).await;
            let mut answers = Vec::new();
            for _ in 0..2 {
                let reply = client.reply().await;
                answers.push((crate::cluster::wire::event_of(&reply), reply));
            }
            answers.sort();
            let refused = Reply::Refused(status, why.as_bytes());
            assert_eq!(read_reply(&answers[0].1, 8, &[]), Ok(refused));
            let second = read_reply(&answers[1].1, 9, &[check(b"alice")]).unwrap();
            assert!(matches!(second, Reply::Decided(_)), "{second:?}");
        }
        running.until("all have ended", |r| r.agent.connections.get() <= 1).await;
    });
}

#[test]
fn memory_for_large_requests_is_bounded() {
    run(async {
        let running = Running::connected(options()).await;
        // Each claims to be as large as a message may be, and sends none of it.
        let mut start = request(1, DEADLINE, b"alice");
        start[4..8].copy_from_slice(&(MESSAGE_BYTES_MAX as u32).to_le_bytes());
        let most = LARGE_BYTES_MAX / MESSAGE_BYTES_MAX;
        let mut clients = Vec::new();
        for _ in 0..most {
            let mut client = running.client().await;
            client.send(&start).await;
            clients.push(client);
        }
        running.until("they fill it", |r| r.agent.large_bytes.get() == LARGE_BYTES_MAX).await;
        let mut one_more = running.client().await;
        one_more.send(&start).await;
        let busy = Answer::Refused(ReplyStatus::Busy, "too many large requests".to_owned());
        assert_eq!(one_more.answer(1).await, busy);
        assert_eq!(one_more.answer(1).await, Answer::Closed);
        assert_eq!(running.client().await.ask(2, b"alice").await, Answer::Rate(1.0));
        drop(clients);
        running.until("it is free again", |r| r.agent.large_bytes.get() == 0).await;
    });
}

#[test]
fn at_the_end_every_request_that_has_arrived_is_replied_to() {
    run(async {
        let running = Running::connected(options()).await;
        running.world.delay.set(Duration::from_millis(100));
        let mut clients = Vec::new();
        for n in 0..20 {
            let mut client = running.client().await;
            client.send(&request(n, DEADLINE, b"alice")).await;
            clients.push(client);
        }
        let mut idle = running.client().await;
        running.until("they are connected", |r| r.agent.connections.get() == 21).await;
        // One that nobody has accepted yet.
        let late = std::os::unix::net::UnixStream::connect(running.folder.path().join("s"));
        let mut late = late.unwrap();
        late.write_all(&request(20, DEADLINE, b"alice")).unwrap();
        late.set_nonblocking(true).unwrap();
        let stream = UnixStream::from_std(late).unwrap();
        clients.push(Client { stream, buffer: Vec::new() });
        running.stop.send(true).unwrap();
        for (n, client) in clients.iter_mut().enumerate() {
            let answer = client.answer(n as u128).await;
            assert!(matches!(answer, Answer::Rate(_)), "{n}: {answer:?}");
            assert_eq!(client.answer(0).await, Answer::Closed);
        }
        assert_eq!(idle.answer(0).await, Answer::Closed);
        timeout(Duration::from_secs(30), running.serving).await.unwrap().unwrap();
        assert!(UnixStream::connect(running.folder.path().join("s")).await.is_err());
    });
}

#[test]
fn other_settings_are_connected_to_at_once() {
    run(async {
        let running = Running::connected(options()).await;
        let other = Place(Rc::new(World::default()), "another");
        assert_eq!(running.client().await.ask(1, b"alice").await, Answer::Rate(1.0));
        running.agent.set(options(), DEADLINE, other);
        running.until("it is connected", |r| r.logged("connected to another")).await;
        assert_eq!(running.client().await.ask(2, b"alice").await, Answer::Rate(1.0));
    });
}

/// Here the store never replies to it, or replies what is no reason to be away.
#[test]
fn the_state_is_published_and_no_decision_depends_on_it() {
    run(async {
        let running = Running::connected(options()).await;
        let mut client = running.client().await;
        running.until("it is published", |r| r.world.announced.borrow().len() == 1).await;
        assert_eq!(*running.world.announced.borrow(), [("mx1".to_owned(), 0)]);
        for n in 1..=10 {
            assert_eq!(client.ask(n, b"alice").await, Answer::Rate(n as f64));
        }
        assert_eq!(running.log.lines(), ["connected to memory"]);

        let running = Running::start(options(), None);
        *running.world.announces.borrow_mut() =
            Some(Err(Failed::Request("no permission".to_owned())));
        running.agent.announcer.every.set(Duration::from_millis(5));
        running.connect_store();
        let mut client = running.client().await;
        running.until("it is tried", |r| r.world.announced.borrow().len() > 3).await;
        assert_eq!(client.ask(1, b"alice").await, Answer::Rate(1.0));
        *running.world.announces.borrow_mut() = Some(Ok(false));
        let count = running.world.announced.borrow().len();
        running.until("it goes on", |r| r.world.announced.borrow().len() > count + 1).await;
        assert_eq!(*running.world.announced.borrow().last().unwrap(), ("mx1".to_owned(), 1));
        *running.world.announces.borrow_mut() = Some(Ok(true));
        running.until("the other is known", |r| r.logged("another server has the name")).await;
        let count = running.world.announced.borrow().len();
        running.until("it goes on", |r| r.world.announced.borrow().len() > count + 3).await;
        let lines = running.log.lines();
        let expected = "`exirate cluster status` does not show all servers: no permission";
        assert!(lines.len() == 3 && lines[1] == expected, "{lines:?}");
        let connections = running.world.connections.get();
        assert_eq!(connections, 1);
        // A connection that has broken is found before a check needs it.
        let lost = Failed::Lost("it has broken".to_owned());
        *running.world.announces.borrow_mut() = Some(Err(lost));
        running.until("it connects again", |r| r.world.connections.get() > 1).await;
        *running.world.announces.borrow_mut() = Some(Ok(false));
        running.until("it is connected", |r| r.agent.store_status().starts_with("connected")).await;
        assert_eq!(client.ask(2, b"alice").await, Answer::Rate(2.0));
    });
}
