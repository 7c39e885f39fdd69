//! The store against a real Redis server, with a clock of the tests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use quickcheck::{Arbitrary, Gen, QuickCheck};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::engine::Algorithm;
use crate::store::{Memory, Store, conformance};

/// A Redis server on a unix socket, which ends with this.
struct RedisServer {
    child: Child,
    directory: tempfile::TempDir,
}

impl RedisServer {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // It also ends with a test that is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "redis-server", "--port", "0", "--save", ""])
            .args(["--appendonly", "no", "--unixsocket", "redis.sock"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, directory };
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(server.socket()).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "redis-server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    fn settings(&self) -> Settings {
        Settings {
            servers: Servers::Single(Server {
                transport: Transport::Unix(self.socket()),
                database: 0,
            }),
            user: None,
            password: None,
            ca: None,
            deadline: Duration::from_secs(60),
        }
    }

    /// A store whose time is what the test gives it.
    fn store(&self) -> Blocking {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut store = runtime.block_on(RedisStore::connect(&self.settings())).unwrap();
        let time = Arc::new(Mutex::new(Timestamp::default()));
        store.time = Some(Arc::clone(&time));
        store.script = Arc::new(Loaded::new(timed_script()));
        Blocking { runtime, store, time, events: 0 }
    }

    /// An empty store.
    fn fresh(&self) -> Blocking {
        let mut store = self.store();
        store.send(cmd("FLUSHALL").arg("SYNC"));
        store
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The script with the time of the test.
fn timed_script() -> String {
    let asks = "local time = redis.call('TIME')";
    assert_eq!(SCRIPT.matches(asks).count(), 1);
    SCRIPT.replace(asks, "local time = {ARGV[#ARGV - 1], ARGV[#ARGV]}")
}

/// The store, for one thread that waits.
struct Blocking {
    runtime: Runtime,
    store: RedisStore,
    time: Arc<Mutex<Timestamp>>,
    events: u128,
}

impl Blocking {
    fn send(&mut self, command: &Cmd) -> Value {
        let mut connection = self.store.connection.clone();
        self.runtime.block_on(connection.send(command)).unwrap()
    }

    fn decide_event(&mut self, event: u128, checks: &[Check<'_>], now: Timestamp) -> Vec<Decision> {
        *self.time.lock().unwrap() = now;
        let mut decisions = Vec::new();
        self.runtime.block_on(self.store.decide(event, checks, &mut decisions)).unwrap();
        decisions
    }
}

impl Store for Blocking {
    type Error = RedisError;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), RedisError> {
        *self.time.lock().unwrap() = clock();
        self.events += 1;
        self.runtime.block_on(self.store.decide(self.events, checks, decisions))
    }

    fn decide_one(
        &mut self,
        check: &Check<'_>,
        clock: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, RedisError> {
        let mut decisions = Vec::new();
        self.decide(&[*check], clock, &mut decisions)?;
        Ok(decisions[0])
    }
}

#[test]
fn redis_conforms() {
    let server = RedisServer::start();
    conformance::all(|| server.fresh());
}

const NAMES: [&str; 3] = ["1h/per_rcpt/alice", "1d/per_mail/alice", "1h/per_mail/bob"];

/// Checks of one event, as numbers.
#[derive(Clone, Debug)]
struct RandomCheck {
    name: u8,
    update: u8,
    bucket: bool,
    observed: bool,
    forced: u8,
    limit: f64,
    period: f64,
    cost: f64,
    unique: Option<u8>,
}

impl Arbitrary for RandomCheck {
    fn arbitrary(g: &mut Gen) -> Self {
        let update = u8::arbitrary(g) % 4;
        Self {
            name: u8::arbitrary(g) % 3,
            update,
            bucket: u8::arbitrary(g).is_multiple_of(3),
            observed: u8::arbitrary(g).is_multiple_of(5),
            forced: u8::arbitrary(g) % 12,
            limit: [0.5, 3.0, 10.0, 100.0, 3000.0][usize::from(u8::arbitrary(g) % 5)],
            period: [1.0, 60.0, 3600.0][usize::from(u8::arbitrary(g) % 3)],
            cost: if update == 3 { 0.0 } else { f64::from(u8::arbitrary(g) % 9) / 4.0 },
            unique: Option::<u8>::arbitrary(g).map(|event| event % 16),
        }
    }
}

impl RandomCheck {
    fn check(&self) -> Check<'static> {
        const EVENTS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let name = NAMES[usize::from(self.name)];
        let unique = self.unique.map(usize::from);
        Check {
            key: RecordKey { identity_start: name.rfind('/').unwrap() + 1, ..name.into() },
            algorithm: match self.bucket {
                false => Algorithm::MovingAverage { limit: self.limit, period: self.period },
                true => Algorithm::Bucket { burst: self.limit, rate: self.limit / self.period },
            },
            cost: self.cost,
            event: unique.map(|number| &EVENTS[number..=number]),
            update: [Update::Leaky, Update::Strict, Update::Leaky, Update::ReadOnly]
                [usize::from(self.update)],
            observed: self.observed,
            forced: [Some(Forced::Allow), Some(Forced::Deny)]
                .get(usize::from(self.forced))
                .copied()
                .flatten(),
        }
    }
}

/// What must be the same in two decisions, but for rounding.
fn close(a: &Decision, b: &Decision) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
    // An exact tie may be rounded to either side.
    let tie = near(a.rate, a.limit);
    near(a.rate, b.rate)
        && (tie || (a.over, a.crossed, a.crossings) == (b.over, b.crossed, b.crossings))
        && near(a.count, b.count)
        && (a.forced, a.at, a.details) == (b.forced, b.at, b.details)
        && match (a.kept, b.kept) {
            (Some(a), Some(b)) => near(a.rate, b.rate) && a.at == b.at,
            (a, b) => a == b,
        }
}

#[test]
fn random_events_are_decided_as_in_memory() {
    let server = RedisServer::start();
    let redis = Mutex::new(server.fresh());
    fn agree(redis: &Mutex<Blocking>, events: Vec<(u32, Vec<RandomCheck>)>) -> bool {
        let mut redis = redis.lock().unwrap();
        redis.send(cmd("FLUSHALL").arg("SYNC"));
        let mut memory = Memory::with_event_key(redis.store.secret);
        let mut now = 1_700_000_000_000_000_i64;
        for (pause, checks) in events {
            // The clock also goes back, as after a failover.
            now += match pause % 8 {
                0 => 0,
                1 => -i64::from(pause % 1_000_000),
                2..5 => i64::from(pause % 100_000_000),
                _ => i64::from(pause),
            };
            let checks: Vec<_> = checks.iter().take(5).map(RandomCheck::check).collect();
            let time = Timestamp::from_micros(now);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            memory.decide(&checks, || time, &mut a).unwrap();
            redis.decide(&checks, || time, &mut b).unwrap();
            if !a.iter().zip(&b).all(|(a, b)| close(a, b)) || a.len() != b.len() {
                eprintln!("{checks:#?}\nmemory: {a:#?}\nRedis: {b:#?}");
                return false;
            }
        }
        true
    }
    let property = |events| agree(&redis, events);
    let run =
        |check: &mut dyn FnMut(u64)| check(if crate::sys::counts::is_long() { 5000 } else { 300 });
    run(&mut |tests| {
        let mut gen_ = Gen::new(60);
        for _ in 0..tests {
            assert!(property(Vec::arbitrary(&mut gen_)));
        }
    });
    let _ = QuickCheck::new;
}

fn strict(limit: f64) -> Check<'static> {
    let algorithm = Algorithm::MovingAverage { limit, period: 3600.0 };
    let key = RecordKey { identity_start: 12, ..b"1h/per_rcpt/alice".into() };
    let (update, event) = (Update::Strict, None);
    Check { key, algorithm, cost: 1.0, event, update, observed: false, forced: None }
}

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, micros: 5 };

#[test]
fn an_event_that_is_asked_again_counts_once() {
    let server = RedisServer::start();
    let mut store = server.fresh();
    let leaky = Check { update: Update::Leaky, ..strict(4.0) };
    for (check, name) in [(strict(4.0), "strict"), (leaky, "leaky")] {
        store.send(cmd("FLUSHALL").arg("SYNC"));
        for event in 1..=3_u128 {
            let first = store.decide_event(event, &[check], NOW)[0];
            let second = store.decide_event(event, &[check], NOW)[0];
            assert!((second.rate - first.rate).abs() < 1e-9, "{name}: {first:?} {second:?}");
            assert!(!second.over && second.details.written, "{name}: {second:?}");
        }
        // Up to three others may come between.
        let again = store.decide_event(1, &[check], NOW)[0];
        assert!((again.rate - 3.0).abs() < 0.001 && again.details.written, "{name}: {again:?}");
    }
    // One that was refused is refused again.
    let leaky = Check { update: Update::Leaky, ..strict(3.0) };
    let (a, b) = (store.decide_event(9, &[leaky], NOW)[0], store.decide_event(9, &[leaky], NOW)[0]);
    assert!(a.over && b.over && !b.details.written);
}

#[test]
fn the_script_is_loaded_again() {
    let server = RedisServer::start();
    let mut store = server.fresh();
    for event in 1..=5_u8 {
        store.send(cmd("SCRIPT").arg("FLUSH"));
        let decision = store.decide_event(event.into(), &[strict(100.0)], NOW)[0];
        assert!((decision.rate - f64::from(event)).abs() < 0.001, "{decision:?}");
    }
}

/// What another program has written there is replaced, and harms nothing.
#[test]
fn a_foreign_value_is_replaced() {
    let server = RedisServer::start();
    let mut store = server.fresh();
    let check = Check { event: Some(b"bob@example.org"), ..strict(100.0) };
    let key = key(&check.record_key(), &store.store.tag(b"alice"));
    let value = |length: usize, start: &[u8]| [start, &vec![0xff; length][..]].concat();
    let commands = [
        cmd("SET").arg(&key).arg("").clone(),
        cmd("SET").arg(&key).arg("x").clone(),
        cmd("SET").arg(&key).arg(value(91, &[])).clone(),
        cmd("SET").arg(&key).arg(value(91, &[1])).clone(),
        cmd("SET").arg(&key).arg(value(91, &[1, 1])).clone(),
        cmd("SET").arg(&key).arg(value(5000, &[2])).clone(),
        cmd("LPUSH").arg(&key).arg("x").clone(),
        cmd("HSET").arg(&key).arg("x").arg("y").clone(),
    ];
    for (number, command) in commands.iter().enumerate() {
        store.send(cmd("DEL").arg(&key));
        store.send(command);
        for event in 1..=2_u8 {
            let number = (number * 10) as u128 + u128::from(event);
            let unique = [event];
            let check = Check { event: Some(&unique), ..check };
            let decision = store.decide_event(number, &[check], NOW)[0];
            assert!((decision.rate - f64::from(event)).abs() < 0.001, "{command:?}: {decision:?}");
            assert_eq!(decision.details.seen, Some(false));
        }
    }
}

/// A key lives until it cannot change a decision any more, and not much longer.
#[test]
fn keys_expire() {
    let server = RedisServer::start();
    let mut store = server.fresh();
    let tag = store.store.tag(b"alice");
    let lives = |store: &mut Blocking, check: Check<'_>| {
        store.send(cmd("FLUSHALL").arg("SYNC"));
        store.decide_event(1, &[check], NOW);
        match store.send(cmd("PTTL").arg(key(&check.record_key(), &tag))) {
            Value::Int(milliseconds) => milliseconds as f64 / 1000.0,
            other => panic!("{other:?}"),
        }
    };
    // 1 event an hour decays for 38 hours until nothing is left of it.
    let plain = lives(&mut store, strict(100.0));
    assert!((plain - 38.2 * 3600.0).abs() < 3600.0, "{plain}");
    let bucket = |rate: f64| Algorithm::Bucket { burst: 10.0, rate };
    let leaks = lives(&mut store, Check { algorithm: bucket(0.01), ..strict(1.0) });
    assert!((leaks - 1000.0).abs() < 10.0, "a period: {leaks}");
    let never = lives(&mut store, Check { algorithm: bucket(0.0), ..strict(1.0) });
    assert!((never - 10.0 * 365.0 * 86400.0).abs() < 10.0, "{never}");
    // A decision is the same with the key and after it has gone.
    let mut memory = Memory::new();
    let decide = |memory: &mut Memory, now| memory.decide_one(&strict(100.0), || now).unwrap();
    decide(&mut memory, NOW);
    let later = Timestamp { seconds: NOW.seconds + plain as i64, ..NOW };
    let (with, without) = (decide(&mut memory, later), decide(&mut Memory::new(), later));
    assert_eq!((with.rate, with.over), (without.rate, without.over));
}

/// Identities are of clients: none of them reaches another key, or two slots.
#[test]
fn hostile_identities_stay_in_their_key() {
    let server = RedisServer::start();
    let mut store = server.fresh();
    let long = vec![b'}'; 40_000];
    let names: [&[u8]; 7] = [b"", b"}", b"{", b"a}b{c", b"\0\r\n$1\r\n*", b"\xff\xfe", &long];
    for (number, name) in names.iter().enumerate() {
        let check = Check { key: RecordKey::from(*name), ..strict(100.0) };
        let two = Check { key: RecordKey { kind: Kind::Policy, ..check.key }, ..check };
        let decisions = store.decide_event(number as u128 + 1, &[check, two], NOW);
        assert!(decisions.iter().all(|decision| decision.rate == 1.0), "{decisions:?}");
        let keys = [check, two].map(|one| key(&one.record_key(), &store.store.tag(name)));
        let tag = |key: &[u8]| key[..key.iter().position(|byte| *byte == b'}').unwrap()].to_vec();
        assert_eq!(tag(&keys[0]), tag(&keys[1]));
        assert_eq!(tag(&keys[0]).len(), "exirate:{0123456789abcdef".len());
    }
    // The secret and the probe are two more; the probe may have expired.
    let Value::Int(size) = store.send(&cmd("DBSIZE")) else { panic!() };
    assert!((14..=16).contains(&size), "{size}");
}

#[test]
fn the_state_of_a_server_is_known() {
    let server = RedisServer::start();
    let mut store = server.store();
    for eviction in ["noeviction", "allkeys-lru"] {
        store.send(cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(eviction));
        let states = examine(&server.settings()).unwrap();
        let [state] = &states[..] else { panic!("{states:?}") };
        assert!(state.version.starts_with("Redis ") && state.version.len() > 8, "{state:?}");
        assert_eq!((&*state.eviction, &*state.port), (eviction, "0"));
        assert!(state.ahead.abs() < 60.0, "{state:?}");
    }
    store.send(
        cmd("ACL").arg("SETUSER").arg("limited").arg(&["on", "nopass", "+@all", "~*", "-info"]),
    );
    let limited = Settings {
        user: Some("limited".into()),
        password: Some(Secret("x".into())),
        ..server.settings()
    };
    assert_eq!(examine(&limited).unwrap_err().code(), Some("NOPERM"));
}
