//! The library's side against an agent of the tests, which can misbehave.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;
use crate::engine::{Algorithm, BlockTime, Update};
use crate::spool::open_directory;
use crate::store::{Counting, Inspect as _, Judged, Memory, Sending, conformance};

/// What the agent does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Decides,
    /// Reads the request and says nothing.
    IsSilent,
    /// Sends a byte, and then another one after a pause.
    Drips,
    /// Sends half of the reply and closes the connection.
    CutsOff,
    SendsGarbage,
    /// Replies to another event.
    MixesUp,
    /// Closes the connection after it has counted.
    LosesReply,
    Refuses(wire::ReplyStatus),
    /// Says after this time that it cannot decide these keys.
    HasLost(Duration),
    /// Replies, and sends more than was asked for.
    SendsTooMuch,
    /// Refuses in the next version of the protocol, as no agent does that knows this one.
    IsLater,
}

/// An agent with a store in memory.
struct TestAgent {
    path: PathBuf,
    behaviour: Arc<Mutex<Behaviour>>,
    store: Arc<Mutex<Memory>>,
    asked: Arc<AtomicU32>,
    /// The time of its store, if that is not the clock's.
    time: Arc<Mutex<Option<Timestamp>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestAgent {
    fn new(path: &Path, behaviour: Behaviour) -> Self {
        Self::sharing(path, behaviour, Arc::default())
    }

    fn sharing(path: &Path, behaviour: Behaviour, store: Arc<Mutex<Memory>>) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (asked, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let time = Arc::new(Mutex::new(None));
        let shared = (behaviour.clone(), store.clone(), asked.clone(), stop.clone(), time.clone());
        let thread = std::thread::spawn(move || {
            let (behaviour, store, asked, stop, time) = shared;
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let (behaviour, store, asked) = (behaviour.clone(), store.clone(), asked.clone());
                let time = time.clone();
                let serve = move || {
                    let _ = serve(stream?, &behaviour, &store, &asked, &time);
                    std::io::Result::Ok(())
                };
                // It ends with its connection.
                std::thread::spawn(serve);
            }
        });
        let thread = Some(thread);
        Self { path: path.to_owned(), behaviour, store, asked, time, stop, thread }
    }

    fn behaves(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    fn rate(&self, key: &[u8]) -> f64 {
        let entry = self.store.lock().unwrap().get((&key).into()).unwrap();
        entry.map_or(0.0, |entry| entry.average.rate)
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Serves one connection.
fn serve(
    mut stream: UnixStream,
    behaviour: &Mutex<Behaviour>,
    store: &Mutex<Memory>,
    asked: &AtomicU32,
    time: &Mutex<Option<Timestamp>>,
) -> std::io::Result<()> {
    let mut message = Vec::new();
    loop {
        message.clear();
        let bytes = loop {
            match wire::message_bytes(&message).unwrap() {
                Some(bytes) if message.len() >= bytes => break bytes,
                _ => {}
            }
            let mut part = [0; 100];
            let read = stream.read(&mut part)?;
            if read == 0 {
                return Ok(());
            }
            message.extend_from_slice(&part[..read]);
        };
        assert_eq!(message.len(), bytes, "one request at a time");
        let request = wire::read_request(&message).unwrap();
        assert!(request.deadline > 0 && request.deadline <= 5_000_000);
        let behaviour = *behaviour.lock().unwrap();
        asked.fetch_add(1, Ordering::SeqCst);
        let mut decisions = Vec::new();
        let decides = !matches!(
            behaviour,
            Behaviour::IsSilent
                | Behaviour::IsLater
                | Behaviour::Refuses(_)
                | Behaviour::HasLost(_)
        );
        if decides {
            let now = time.lock().unwrap().unwrap_or_else(|| {
                let (seconds, micros) = clock::now();
                // Its clock is an hour ahead.
                Timestamp { seconds: seconds + 3600, micros }
            });
            store.lock().unwrap().decide(&request.checks, || now, &mut decisions).unwrap();
        }
        let mut reply = Vec::new();
        match behaviour {
            Behaviour::HasLost(after) => {
                std::thread::sleep(after);
                wire::write_refusal(&mut reply, request.event, wire::ReplyStatus::KeysAway, "");
            }
            Behaviour::IsLater => {
                wire::write_refusal(&mut reply, request.event, wire::ReplyStatus::Busy, "");
                reply[8] += 1;
            }
            Behaviour::Refuses(status) => {
                wire::write_refusal(&mut reply, request.event, status, "as the test says");
            }
            Behaviour::MixesUp => wire::write_decisions(&mut reply, request.event ^ 1, &decisions),
            Behaviour::SendsGarbage => reply.extend_from_slice(&[b'?'; 200]),
            _ => wire::write_decisions(&mut reply, request.event, &decisions),
        }
        match behaviour {
            Behaviour::IsSilent => {}
            Behaviour::LosesReply => return Ok(()),
            Behaviour::CutsOff => {
                stream.write_all(&reply[..reply.len() / 2])?;
                return Ok(());
            }
            Behaviour::Drips => {
                for byte in reply {
                    stream.write_all(&[byte])?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Behaviour::SendsTooMuch => {
                reply.push(0);
                stream.write_all(&reply)?;
            }
            _ => stream.write_all(&reply)?,
        }
    }
}

/// A spool directory whose database shares its limits.
struct Host {
    spool: tempfile::TempDir,
}

impl Host {
    fn new(more: &str) -> Self {
        let spool = tempfile::tempdir().unwrap();
        let directory = open_directory(spool.path(), true).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let socket = spool.path().join("agent.sock");
        let text = format!("socket {}\nagent_user {user}\n{more}", socket.display());
        std::fs::write(directory.path().join("cluster"), text).unwrap();
        Self { spool }
    }

    fn socket(&self) -> PathBuf {
        self.spool.path().join("agent.sock")
    }

    fn open(&self) -> ClusterStore {
        let mut store = ClusterStore::open(self.spool.path(), Options::default()).unwrap();
        assert_eq!(store.take_incidents(), [""; 0]);
        store
    }
}

const KEY: &[u8] = b"1h/per_mail/alice";

fn check(limit: f64) -> Check<'static> {
    Check::new(KEY, Algorithm::MovingAverage { limit, period: 3600.0 })
}

fn decide(store: &mut ClusterStore, check: &Check<'_>) -> Result<Decision, ClusterError> {
    store.decide_one(check, || clock::now().into())
}

/// Long enough for any machine.
const LONG_DEADLINE: &str = "servers 4\ndeadline 5000ms\n";

#[test]
fn the_shared_store_decides_and_its_rate_is_stored() {
    let host = Host::new(LONG_DEADLINE);
    let agent = TestAgent::new(&host.socket(), Behaviour::Decides);
    let (mut a, mut b) = (host.open(), host.open());
    for expected in 1..=5_u8 {
        let decision =
            decide(if expected % 2 == 0 { &mut a } else { &mut b }, &check(4.9)).unwrap();
        assert!((decision.rate - f64::from(expected)).abs() < 0.1, "{decision:?}");
        assert_eq!(decision.over, expected >= 5);
        assert_eq!(decision.crossed, expected == 5);
        assert!(
            (decision.at.as_seconds() - Timestamp::from(clock::now()).as_seconds()).abs() < 600.0
        );
    }
    assert_eq!(agent.asked(), 5);
    let entry = a.spool_mut().get(KEY).unwrap().unwrap();
    assert!((entry.average.rate - 5.0).abs() < 0.1, "{entry:?}");
    assert_eq!((entry.limit, entry.period, entry.crossings), (4.9, 3600.0, 1));
    let crossed = b.spool().has_events();
    assert!(crossed, "the process that crossed the limit reports it");
    assert_eq!((a.take_incidents(), b.take_incidents()), (vec![], vec![]));
}

/// Two servers, one of which is apart: what is blocked in the shared store is blocked where it is
/// known, and what is blocked here alone ends when the shared store decides again.
#[test]
fn a_block_is_that_of_the_shared_store() {
    let (near, far) = (Host::new(LONG_DEADLINE), Host::new(LONG_DEADLINE));
    let agent = TestAgent::new(&near.socket(), Behaviour::Decides);
    let other = TestAgent::sharing(&far.socket(), Behaviour::Decides, agent.store.clone());
    let apart = || other.behaves(Behaviour::Refuses(wire::ReplyStatus::Unavailable));
    let back = || other.behaves(Behaviour::Decides);
    let (mut a, mut b) = (near.open(), far.open());
    let blocks = BlockTime::UntilLifted;
    let check = Check { blocks, update: Update::Leaky, ..check(8.9) };
    let looks = Check { update: Update::ReadOnly, count: 0.0, ..check };
    let over = |store: &mut ClusterStore, check: &Check<'_>| {
        let decision = decide(store, check).unwrap();
        assert_eq!(decision.blocked.is_some(), decision.over, "{decision:?}");
        decision.over
    };
    let until_over = |store: &mut ClusterStore| (1..20).find(|_| over(store, &check)).unwrap();
    assert_eq!(until_over(&mut a), 9);
    assert!(over(&mut a, &check) && over(&mut b, &check));
    apart();
    assert!(over(&mut b, &check), "it has a copy");
    // Somebody lifts it.
    agent.store.lock().unwrap().remove(KEY.into()).unwrap().unwrap();
    assert!(!over(&mut a, &looks) && over(&mut b, &looks));
    back();
    while over(&mut b, &looks) {
        // It asks again after a pause.
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(a.spool_mut().get(KEY).unwrap().map_or(0, |entry| entry.last_over), 0);
    apart();
    // Its share is a quarter.
    assert!(until_over(&mut b) < 4 && over(&mut b, &looks));
    assert!(!over(&mut a, &looks));
    back();
    while over(&mut b, &looks) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn without_the_file_the_limits_are_its_own() {
    let spool = tempfile::tempdir().unwrap();
    let mut store = ClusterStore::open(spool.path(), Options::default()).unwrap();
    for expected in 1..=3_u8 {
        let decision = decide(&mut store, &check(4.0)).unwrap();
        assert!((decision.rate - f64::from(expected)).abs() < 0.01);
    }
    assert!(!spool.path().join("exirate").join("cluster.state").exists());
}

#[test]
fn a_wrong_file_is_reported_and_the_limits_are_its_own() {
    let host = Host::new("server 4\n");
    let mut store = ClusterStore::open(host.spool.path(), Options::default()).unwrap();
    let incidents = store.take_incidents();
    assert_eq!(incidents.len(), 1);
    assert!(
        incidents[0].starts_with("this server shares no limits with others: "),
        "{incidents:?}"
    );
    assert!(incidents[0].contains("exirate/cluster:3: unknown name \"server\""), "{incidents:?}");
    assert!(decide(&mut store, &check(4.0)).unwrap().rate < 1.1);
}

/// Each fault: the check is decided for a share, within the deadline; nothing is taken for
/// a decision that is none; and the next one is decided by the shared store again.
#[test]
fn every_fault_is_survived() {
    for behaviour in [
        Behaviour::IsSilent,
        Behaviour::Drips,
        Behaviour::CutsOff,
        Behaviour::SendsGarbage,
        Behaviour::MixesUp,
        Behaviour::LosesReply,
        Behaviour::SendsTooMuch,
        Behaviour::IsLater,
        Behaviour::Refuses(wire::ReplyStatus::Unavailable),
        Behaviour::Refuses(wire::ReplyStatus::Busy),
        Behaviour::Refuses(wire::ReplyStatus::NotAllowed),
        Behaviour::Refuses(wire::ReplyStatus::BadRequest),
        Behaviour::Refuses(wire::ReplyStatus::OtherVersion),
    ] {
        let host = Host::new("servers 4\ndeadline 200ms\n");
        let agent = TestAgent::new(&host.socket(), Behaviour::Decides);
        let mut store = host.open();
        let first = loop {
            let decision = decide(&mut store, &check(8.9)).unwrap();
            // On a machine that is busy, the first one may be too late.
            if agent.rate(KEY) > 0.0 && store.spool_mut().get(KEY).unwrap().unwrap().apart == 0.0 {
                break decision;
            }
        };
        assert!(!first.over);
        let shared = agent.rate(KEY);
        agent.behaves(behaviour);
        // Each admits (8.9 - R)/4; it counts 4 times beside R. After the first failure
        // nobody is asked for a while.
        let asked = agent.asked();
        let decision = decide(&mut store, &check(8.9)).unwrap();
        assert!((decision.rate - (shared + 4.0)).abs() < 0.1, "{behaviour:?}: {decision:?}");
        assert!(!decision.over, "{behaviour:?}");
        assert!(agent.asked() - asked <= 2, "{behaviour:?}");
        let lost = matches!(
            behaviour,
            Behaviour::LosesReply
                | Behaviour::CutsOff
                | Behaviour::Drips
                | Behaviour::SendsGarbage
                | Behaviour::MixesUp
                | Behaviour::SendsTooMuch
        );
        // The memory store knows no event numbers, so a request that is repeated after a
        // closed connection is counted again here.
        let extra = agent.rate(KEY) - shared;
        assert!(if lost { extra > 0.5 && extra < 2.1 } else { extra < 0.1 }, "{behaviour:?}");
        let second = decide(&mut store, &check(8.9)).unwrap();
        assert!(second.over, "{behaviour:?}: {second:?}");
        agent.behaves(Behaviour::Decides);
        let started = Instant::now();
        loop {
            let decision = decide(&mut store, &check(100.0)).unwrap();
            if (decision.rate - agent.rate(KEY)).abs() < 0.01 {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{behaviour:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let entry = store.spool_mut().get(KEY).unwrap().unwrap();
        assert!(entry.apart > 1.5, "what was admitted apart is not forgotten: {entry:?}");
    }
}

#[test]
fn an_absent_agent_is_reported_once_and_its_return_too() {
    let host = Host::new(LONG_DEADLINE);
    let (mut a, mut b) = (host.open(), host.open());
    let started = Instant::now();
    let mut incidents = Vec::new();
    while incidents.is_empty() {
        decide(&mut a, &check(1e9)).unwrap();
        decide(&mut b, &check(1e9)).unwrap();
        incidents.extend(a.take_incidents());
        incidents.extend(b.take_incidents());
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    let [text] = &incidents[..] else { panic!("{incidents:?}") };
    assert!(
        text.starts_with("the shared limits cannot be reached through the agent at /"),
        "{text}"
    );
    assert!(text.contains("agent.sock (cannot connect to it: No such file or directory"), "{text}");
    assert!(text.ends_with("); this server admits 1/4 of what is left of each limit until it can"));
    for _ in 0..50 {
        decide(&mut a, &check(1e9)).unwrap();
        decide(&mut b, &check(0.0)).unwrap();
    }
    assert_eq!((a.take_incidents(), b.take_incidents()), (vec![], vec![]));
    let counts = read_counts(a.spool().secure_directory()).unwrap();
    assert!(counts.away_since.is_some() && counts.apart >= 100, "{counts:?}");
    assert_eq!((counts.shared, counts.apart_over), (0, 50));
    let _agent = TestAgent::new(&host.socket(), Behaviour::Decides);
    let started = Instant::now();
    // It is back when none has failed for some time.
    clock::shifted::by(11);
    while incidents.len() == 1 {
        decide(&mut a, &check(1e9)).unwrap();
        decide(&mut b, &check(1e9)).unwrap();
        incidents.extend(a.take_incidents());
        incidents.extend(b.take_incidents());
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    assert!(incidents[1].starts_with("the shared limits are reached again"), "{incidents:?}");
    assert!(incidents[1].contains("50 of them over a limit"), "{incidents:?}");
    let counts = read_counts(a.spool().secure_directory()).unwrap();
    assert!(counts.away_since.is_none() && counts.shared > 0, "{counts:?}");
}

/// One of several checks of an SMTP command fails, and another process reaches the shared
/// store: the next check of the command does not wait again.
#[test]
fn a_process_that_has_waited_does_not_wait_at_once_again() {
    let host = Host::new("servers 4\ndeadline 200ms\n");
    let agent = TestAgent::new(&host.socket(), Behaviour::IsSilent);
    let mut store = host.open();
    let mut other = Breaker::open(store.spool().secure_directory());
    let mut shown = 0;
    let started = Instant::now();
    while shown < 5 {
        let asked = agent.asked();
        // Once the pause after the last time is over.
        let waited = loop {
            decide(&mut store, &check(1e9)).unwrap();
            if agent.asked() > asked {
                break Instant::now();
            }
            assert!(started.elapsed() < Duration::from_secs(60));
        };
        assert_eq!(other.succeeded(1), None);
        decide(&mut store, &check(1e9)).unwrap();
        if waited.elapsed() < Duration::from_millis(40) {
            assert_eq!(agent.asked() - asked, 1);
            shown += 1;
        }
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn while_away_open_refuses_nothing_and_closed_decides_nothing() {
    let host = Host::new("servers 2\naway open\n");
    let mut store = host.open();
    for _ in 0..10 {
        let decision = decide(&mut store, &check(2.0)).unwrap();
        assert!(!decision.over && decision.overridden == Some(Overridden::Allow));
    }
    let host = Host::new("servers 2\naway closed\n");
    let error = decide(&mut host.open(), &check(2.0)).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the shared limits cannot be reached through /"), "{text}");
    assert!(text.ends_with("agent.sock (away = closed)"), "{text}");
}

/// Otherwise it would be dated before events that others have counted meanwhile.
#[test]
fn an_event_that_has_waited_is_counted_when_it_is_decided() {
    let host = Host::new("servers 2\ndeadline 300ms\n");
    let _agent = TestAgent::new(&host.socket(), Behaviour::IsSilent);
    let mut store = host.open();
    let asked_at = Timestamp::from(clock::now());
    let decision = store.decide_one(&check(1e9), || asked_at).unwrap();
    let waited = decision.at.as_micros() - asked_at.as_micros();
    assert!((300_000..60_000_000).contains(&waited), "{waited}");
    assert_eq!(decision.kept.map(|kept| kept.at), Some(decision.at));
}

#[test]
fn an_agent_that_was_restarted_is_asked_again_at_once() {
    let host = Host::new(LONG_DEADLINE);
    let agent = TestAgent::new(&host.socket(), Behaviour::Decides);
    let mut store = host.open();
    decide(&mut store, &check(100.0)).unwrap();
    drop(agent);
    let agent = TestAgent::new(&host.socket(), Behaviour::Decides);
    // The old connection is served by a thread of the old agent until it is closed: the
    // one that loses its replies closes it.
    drop(store);
    let mut store = host.open();
    decide(&mut store, &check(100.0)).unwrap();
    agent.behaves(Behaviour::LosesReply);
    // Asked twice: by the old connection, then by a new one.
    let asked = agent.asked();
    decide(&mut store, &check(100.0)).unwrap();
    assert_eq!(agent.asked() - asked, 2);
    assert_eq!(store.take_incidents(), [""; 0]);
}

/// A process of another user that has come by the socket must not decide anything.
#[test]
fn an_agent_of_another_user_is_not_asked() {
    let host = Host::new("servers 2\n");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(host.spool.path(), open_to_all).unwrap();
    let socket = host.socket();
    let script = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un($ARGV[0])); \
                  listen(S, 9); while (accept(C, S)) { sysread(C, $b, 1) and print \"asked\n\" }";
    // Root may become another user.
    let mut command = std::process::Command::new("setpriv");
    let mut other = command
        .args(["--reuid=12345", "--clear-groups", "perl", "-e", script])
        .arg(&socket)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut store = host.open();
    let mut incidents = Vec::new();
    while incidents.is_empty() {
        decide(&mut store, &check(1e9)).unwrap();
        incidents.extend(store.take_incidents());
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    let expected = "(a process of user 12345 listens there, not the agent's user)";
    assert!(incidents[0].contains(expected), "{incidents:?}");
    other.kill().unwrap();
    let output = other.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing was sent to it");
}

#[test]
fn overrides_of_this_server_hold() {
    use crate::store::{FOREVER, Override, Target};
    let host = Host::new(LONG_DEADLINE);
    let agent = TestAgent::new(&host.socket(), Behaviour::Decides);
    let mut store = host.open();
    assert!(!decide(&mut store, &check(100.0)).unwrap().over);
    let deny = Override {
        overridden: Overridden::Deny,
        target: Target::literal(KEY),
        argument: "alice".to_owned(),
        until: FOREVER,
        since: 0,
        reason: String::new(),
        who: "uid=0".to_owned(),
    };
    store.spool_mut().change_overrides(|list| list.push(deny)).unwrap();
    let decision = decide(&mut store, &check(100.0)).unwrap();
    assert!(decision.over && decision.overridden == Some(Overridden::Deny), "{decision:?}");
    assert_eq!(agent.asked(), 2, "the shared store has counted it");
}

/// A node of a cluster is away: the agent says so at once, but for the request that tries.
#[test]
fn keys_that_are_not_decided_in_time_count_as_late() {
    let host = Host::new("servers 4\ndeadline 300ms\n");
    let agent = TestAgent::new(&host.socket(), Behaviour::HasLost(Duration::from_millis(160)));
    let mut store = host.open();
    let directory = open_directory(host.spool.path(), false).unwrap();
    let counts = || read_counts(&directory).unwrap();
    decide(&mut store, &check(100.0)).unwrap();
    assert_eq!((counts().late, counts().shared, counts().apart), (1, 0, 1));
    agent.behaves(Behaviour::HasLost(Duration::ZERO));
    kit::until("none is late", || {
        let (asked, late) = (agent.asked(), counts().late);
        decide(&mut store, &check(100.0)).unwrap();
        decide(&mut store, &check(100.0)).unwrap();
        // Each asks: other keys may be decided.
        agent.asked() - asked == 2 && counts().late == late
    });
    assert_eq!(store.take_incidents(), [""; 0], "others are decided");
}

/// A server that shares its limits, at the times of a test.
struct Timed {
    store: ClusterStore,
    agent: TestAgent,
    _host: Host,
}

impl Timed {
    fn fresh() -> Self {
        let host = Host::new("servers 2\ndeadline 5000ms\n");
        let agent = TestAgent::new(&host.socket(), Behaviour::Decides);
        Self { store: host.open(), agent, _host: host }
    }
}

impl Store for Timed {
    type Error = ClusterError;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ClusterError> {
        let now = clock();
        *self.agent.time.lock().unwrap() = Some(now);
        self.store.decide(checks, || now, decisions)
    }

    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, ClusterError> {
        let now = clock();
        *self.agent.time.lock().unwrap() = Some(now);
        self.store.decide_one(check, || now)
    }

    fn habits_hash(&self, text: &[u8]) -> u64 {
        self.store.habits_hash(text)
    }

    fn learn(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, ClusterError> {
        self.store.learn(sending, clock)
    }

    fn count_usage(
        &mut self,
        counting: &Counting<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<(), ClusterError> {
        self.store.count_usage(counting, clock)
    }
}

#[test]
fn a_server_that_shares_its_limits_conforms() {
    conformance::all(Timed::fresh);
    conformance::habits(Timed::fresh);
}

/// The table of docs/cluster.md: how many recipients, a second apart, a server admits that is cut off
/// before it has seen any.
#[test]
fn the_documented_shares_are_those_that_are_admitted() {
    const LIMITS: [f64; 4] = [20.0, 100.0, 500.0, 1000.0];
    let admitted = |limit: f64, servers: u32| {
        let mut store = Memory::new();
        let algorithm = Algorithm::MovingAverage { limit, period: 3600.0 };
        let check = Check { update: Update::Leaky, ..Check::new("alice", algorithm) };
        let mut decisions = Vec::new();
        (0..)
            .take_while(|second| {
                let now = Timestamp { seconds: 1_000_000 + second, micros: 0 };
                let share = Authority::Share { servers };
                store.decide_as(share, &[check], now, &mut decisions);
                !decisions[0].over
            })
            .count()
    };
    let row = |servers: u32| {
        let cells: Vec<String> =
            LIMITS.iter().map(|limit| admitted(*limit, servers).to_string()).collect();
        format!("| {servers} | {} |\n", cells.join(" | "))
    };
    let table: String = [2, 3, 4, 5, 10, 20, 50, 100].map(row).concat();
    assert!(include_str!("../../docs/cluster.md").contains(&table), "write:\n{table}");
}
