//! The store against a real Redis server, with a clock of the tests.

use std::sync::Mutex;
use std::time::Duration;

use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::engine::{Algorithm, BlockTime, Kind, RecordKey};
use crate::identity::fold::Folding;
use crate::rate::CalendarWindow;
use crate::store::{
    Counting, Entry, Inspect, Judged, Memory, Override, Sending, Store, Target, Wanted, conformance,
};

use kit::redis::RedisServer;

/// A Redis server on a unix socket, which ends with this.
struct TestServer {
    redis: RedisServer,
    _folder: tempfile::TempDir,
}

impl TestServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { redis: RedisServer::start(folder.path(), "redis", &[]), _folder: folder }
    }

    fn settings(&self) -> Settings {
        let transport = Transport::Unix(self.redis.socket());
        Settings {
            servers: Servers::Single(Server { transport, database: 0 }),
            user: None,
            password: None,
            ca: None,
            deadline: Duration::from_secs(60),
        }
    }

    /// A store whose time is what the test gives it, after an agent has used it.
    fn store(&self) -> SharedRates {
        let settings = self.settings();
        let agent = RedisStore::connect(&settings);
        tool::runtime().unwrap().block_on(agent).unwrap();
        let mut rates = SharedRates::connect(&settings, Box::new(Memory::new())).unwrap();
        rates.store.time = Some(Arc::default());
        rates.store.script = Arc::new(Loaded::new(&timed(SCRIPT)));
        rates.store.share_script = Arc::new(Loaded::new(&timed(&super::share_script())));
        rates
    }

    /// An empty store.
    fn fresh(&self) -> SharedRates {
        let store = self.store();
        store.ask(cmd("FLUSHALL").arg("SYNC"));
        store
    }
}

/// The script with the time of the test.
fn timed(script: &str) -> String {
    let asks = "local time = redis.call('TIME')";
    assert_eq!(script.matches(asks).count(), 1);
    script.replace(asks, "local time = {ARGV[#ARGV - 1], ARGV[#ARGV]}")
}

impl SharedRates {
    fn ask(&self, command: &Cmd) -> Value {
        self.send(command).unwrap()
    }

    fn decide_at(
        &self,
        event: u128,
        checks: &[Check<'_>],
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), RedisError> {
        *self.store.time.as_ref().unwrap().lock().unwrap() = now;
        self.runtime.block_on(self.store.decide(event, checks, decisions))
    }

    fn decide_event(&self, event: u128, checks: &[Check<'_>], now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.decide_at(event, checks, now, &mut decisions).unwrap();
        decisions
    }
}

impl Store for SharedRates {
    type Error = RedisError;

    fn decide(
        &mut self,
        checks: &[Check<'_>],
        clock: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), RedisError> {
        self.decide_at(u128::from_le_bytes(random()?), checks, clock(), decisions)
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

    fn habits_hash(&self, _: &[u8]) -> u64 {
        panic!("habits are not shared")
    }

    fn learn(
        &mut self,
        _: &Sending<'_>,
        _: impl FnOnce() -> Timestamp,
    ) -> Result<Judged, RedisError> {
        panic!("habits are not shared")
    }

    fn count_usage(
        &mut self,
        _: &Counting<'_>,
        _: impl FnOnce() -> Timestamp,
    ) -> Result<(), RedisError> {
        panic!("usage is not shared")
    }
}

#[test]
fn redis_conforms() {
    let server = TestServer::start();
    conformance::all(|| server.fresh());
}

#[test]
fn redis_is_inspected_as_any_store() {
    // Two at a time are needed.
    let servers = [TestServer::start(), TestServer::start()];
    let mut next = 0;
    conformance::inspection(|| {
        next += 1;
        servers[next % 2].fresh()
    });
}

const NAMES: [&str; 3] = ["1h/per_rcpt/alice", "1d/per_mail/alice", "1h/per_mail/bob"];

/// Checks of one event, as numbers.
#[derive(Clone, Debug)]
struct RandomCheck {
    name: u8,
    update: u8,
    algorithm: u8,
    /// By how many seconds the clock of who asks is ahead, or its zone.
    ahead: i64,
    refuses: u8,
    total: bool,
    overridden: u8,
    blocks: BlockTime,
    limit: f64,
    period: f64,
    count: f64,
    unique: Option<u8>,
}

impl Arbitrary for RandomCheck {
    fn arbitrary(g: &mut Gen) -> Self {
        let update = u8::arbitrary(g) % 4;
        Self {
            name: u8::arbitrary(g) % 3,
            update,
            algorithm: u8::arbitrary(g) % 4,
            ahead: [0, 0, 0, 7, -7, 1300, 100_000_000, -100_000_000]
                [usize::from(u8::arbitrary(g) % 8)],
            refuses: u8::arbitrary(g),
            total: u8::arbitrary(g).is_multiple_of(3),
            overridden: u8::arbitrary(g) % 12,
            blocks: BlockTime::arbitrary(g),
            limit: [0.5, 3.0, 10.0, 100.0, 3000.0][usize::from(u8::arbitrary(g) % 5)],
            period: [1.0, 60.0, 3600.0][usize::from(u8::arbitrary(g) % 3)],
            count: if update == 3 { 0.0 } else { f64::from(u8::arbitrary(g) % 9) / 4.0 },
            unique: Option::<u8>::arbitrary(g).map(|event| event % 16),
        }
    }
}

impl RandomCheck {
    /// The check at this second.
    fn check(&self, now: i64) -> Check<'static> {
        const EVENTS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let name = NAMES[usize::from(self.name)];
        let unique = self.unique.map(usize::from);
        Check {
            key: RecordKey { identity_start: name.rfind('/').unwrap() + 1, ..name.into() },
            algorithm: match self.algorithm {
                0 => Algorithm::Bucket { burst: self.limit, rate: self.limit / self.period },
                1 => {
                    let length = self.period as i64;
                    let start = (now + self.ahead).div_euclid(length) * length + self.ahead % 60;
                    let window = CalendarWindow { start, end: start + length };
                    Algorithm::Calendar { limit: self.limit, window }
                }
                _ => Algorithm::MovingAverage { limit: self.limit, period: self.period },
            },
            count: self.count,
            event: unique.map(|number| &EVENTS[number..=number]),
            update: [Update::Leaky, Update::Strict, Update::Leaky, Update::ReadOnly]
                [usize::from(self.update)],
            refuses: conformance::refuses(self.refuses),
            total: self.total,
            overridden: [Some(Overridden::Allow), Some(Overridden::Deny)]
                .get(usize::from(self.overridden))
                .copied()
                .flatten(),
            blocks: self.blocks,
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
        && (a.start, a.restarts, a.period) == (b.start, b.restarts, b.period)
        && (tie || a.blocked == b.blocked)
        && (a.overridden, a.at, a.details) == (b.overridden, b.at, b.details)
        && match (a.kept, b.kept) {
            (Some(a), Some(b)) => near(a.rate, b.rate) && a.at == b.at,
            (a, b) => a == b,
        }
}

#[test]
fn random_events_are_decided_as_in_memory() {
    let server = TestServer::start();
    let redis = Mutex::new(server.fresh());
    fn agree(redis: &Mutex<SharedRates>, events: Vec<(u32, Vec<RandomCheck>)>) -> bool {
        let mut redis = redis.lock().unwrap();
        redis.ask(cmd("FLUSHALL").arg("SYNC"));
        let mut memory = Memory::with_event_key(redis.store.secret.get().bytes());
        let mut now = 1_700_000_000_000_000_i64;
        for (pause, checks) in events {
            // The clock also goes back, as after a failover.
            now += match pause % 8 {
                0 => 0,
                1 => -i64::from(pause % 1_000_000),
                // By days.
                2 if pause % 64 == 2 => -i64::from(pause) * 100,
                2..5 => i64::from(pause % 100_000_000),
                _ => i64::from(pause),
            };
            let checks: Vec<_> =
                checks.iter().take(5).map(|one| one.check(now.div_euclid(1_000_000))).collect();
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
    let mut random = kit::generator(60);
    for _ in 0..if kit::counts::is_long() { 5000 } else { 300 } {
        assert!(agree(&redis, Vec::arbitrary(&mut random)));
    }
}

fn strict(limit: f64) -> Check<'static> {
    let algorithm = Algorithm::MovingAverage { limit, period: 3600.0 };
    let key = RecordKey { identity_start: 12, ..b"1h/per_rcpt/alice".into() };
    let (update, event) = (Update::Strict, None);
    Check { event, update, ..Check::new(key, algorithm) }
}

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, micros: 5 };

#[test]
fn an_event_that_is_asked_again_counts_once() {
    let server = TestServer::start();
    let store = server.fresh();
    let leaky = Check { update: Update::Leaky, ..strict(4.0) };
    for (check, name) in [(strict(4.0), "strict"), (leaky, "leaky")] {
        store.ask(cmd("FLUSHALL").arg("SYNC"));
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
    let server = TestServer::start();
    let store = server.fresh();
    for event in 1..=5_u8 {
        store.ask(cmd("SCRIPT").arg("FLUSH"));
        let decision = store.decide_event(event.into(), &[strict(100.0)], NOW)[0];
        assert!((decision.rate - f64::from(event)).abs() < 0.001, "{decision:?}");
    }
}

/// What another program has written there is replaced, and harms nothing.
#[test]
fn a_foreign_value_is_replaced() {
    let server = TestServer::start();
    let store = server.fresh();
    let check = Check { event: Some(b"bob@example.org"), ..strict(100.0) };
    let key = key(&check.record_key(), &store.store.secret.get().tag(b"alice"));
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
        store.ask(cmd("DEL").arg(&key));
        store.ask(command);
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
    let server = TestServer::start();
    let store = server.fresh();
    let tag = store.store.secret.get().tag(b"alice");
    let lives = |store: &SharedRates, check: Check<'_>| {
        store.ask(cmd("FLUSHALL").arg("SYNC"));
        store.decide_event(1, &[check], NOW);
        match store.ask(cmd("PTTL").arg(key(&check.record_key(), &tag))) {
            Value::Int(milliseconds) => milliseconds as f64 / 1000.0,
            other => panic!("{other:?}"),
        }
    };
    // 1 event an hour decays for 38 hours until nothing is left of it.
    let plain = lives(&store, strict(100.0));
    assert!((plain - 38.2 * 3600.0).abs() < 3600.0, "{plain}");
    let bucket = |rate: f64| Algorithm::Bucket { burst: 10.0, rate };
    let leaks = lives(&store, Check { algorithm: bucket(0.01), ..strict(1.0) });
    assert!((leaks - 1000.0).abs() < 10.0, "a period: {leaks}");
    let never = lives(&store, Check { algorithm: bucket(0.0), ..strict(1.0) });
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
    let server = TestServer::start();
    let store = server.fresh();
    let long = vec![b'}'; 40_000];
    let names: [&[u8]; 7] = [b"", b"}", b"{", b"a}b{c", b"\0\r\n$1\r\n*", b"\xff\xfe", &long];
    for (number, name) in names.iter().enumerate() {
        let check = Check { key: RecordKey::from(*name), ..strict(100.0) };
        let two = Check { key: RecordKey { kind: Kind::Policy, ..check.key }, ..check };
        let decisions = store.decide_event(number as u128 + 1, &[check, two], NOW);
        assert!(decisions.iter().all(|decision| decision.rate == 1.0), "{decisions:?}");
        let keys =
            [check, two].map(|one| key(&one.record_key(), &store.store.secret.get().tag(name)));
        let tag = |key: &[u8]| key[..key.iter().position(|byte| *byte == b'}').unwrap()].to_vec();
        assert_eq!(tag(&keys[0]), tag(&keys[1]));
        assert_eq!(tag(&keys[0]).len(), "exirate:{0123456789abcdef".len());
    }
    // The secret and the probe are two more; the probe may have expired.
    let Value::Int(size) = store.ask(&cmd("DBSIZE")) else { panic!() };
    assert!((14..=16).contains(&size), "{size}");
}

#[test]
fn commands_create_no_secret() {
    let server = TestServer::start();
    let error = SharedRates::connect(&server.settings(), Box::new(Memory::new())).unwrap_err();
    assert!(error.to_string().starts_with("no agent has ever used this Redis"), "{error}");
    assert_eq!(examine(&server.settings()).unwrap().states.len(), 1);
    assert_eq!(server.redis.ask(&["exists", "exirate:secret"]), "0\n");
    server.store();
    assert_eq!(server.redis.ask(&["exists", "exirate:secret"]), "1\n");
}

/// After a reload, an agent may have another Redis: what it knows of the first one is not put there.
#[test]
fn each_redis_has_a_secret_of_its_own() {
    let servers = [TestServer::start(), TestServer::start()];
    let [first, second] = servers.each_ref().map(TestServer::settings);
    let hash = "return redis.sha1hex(redis.call('GET', KEYS[1]))";
    let secret = |server: &TestServer| server.redis.ask(&["eval", hash, "1", "exirate:secret"]);
    tool::runtime().unwrap().block_on(async {
        let old = RedisStore::connect(&first).await.unwrap();
        let new = RedisStore::connect_again(&second, Some(&old)).await.unwrap();
        assert_ne!(secret(&servers[0]), secret(&servers[1]));
        assert_eq!(new.take_incidents(), Vec::<String>::new());
        // The same Redis, which has lost it.
        let known = secret(&servers[1]);
        let again = Settings { deadline: Duration::from_secs(50), ..second };
        servers[1].redis.ask(&["flushall"]);
        let again = RedisStore::connect_again(&again, Some(&new)).await.unwrap();
        assert_eq!(secret(&servers[1]), known);
        assert!(again.take_incidents()[0].contains("was lost, and is set again"));
    });
}

#[test]
fn the_state_of_a_server_is_known() {
    let server = TestServer::start();
    let store = server.store();
    for eviction in ["noeviction", "allkeys-lru"] {
        store.ask(cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(eviction));
        let states = examine(&server.settings()).unwrap();
        let [state] = &states.states[..] else { panic!("{states:?}") };
        assert!(state.version.starts_with("Redis ") && state.version.len() > 8, "{state:?}");
        let port = server.redis.port.to_string();
        assert_eq!((&*state.eviction, &state.port), (eviction, &port));
        assert!(state.ahead.abs() < 60.0, "{state:?}");
    }
    store.ask(
        cmd("ACL").arg("SETUSER").arg("limited").arg(&["on", "nopass", "+@all", "~*", "-info"]),
    );
    let limited = Settings {
        user: Some("limited".into()),
        password: Some(Secret("x".into())),
        ..server.settings()
    };
    let examined = examine(&limited).unwrap();
    assert!(examined.denied.is_some_and(|why| why.contains("lacks a permission")));
    assert_eq!(examined.states, []);
}

fn an_override(key: &[u8], overridden: Overridden) -> Override {
    Override {
        overridden,
        target: Target::literal(key),
        argument: String::from_utf8_lossy(key).into(),
        until: NOW.seconds + 100,
        since: NOW.seconds,
        reason: "".into(),
        who: "root".into(),
    }
}

#[test]
fn shared_overrides_decide_everywhere_a_second_later() {
    let server = TestServer::start();
    let [mut a, b] = [server.fresh(), server.store()];
    let decide = |limit: f64, seconds: i64| {
        let now = Timestamp { seconds: NOW.seconds + seconds, ..NOW };
        // As the agent does once a second.
        b.runtime.block_on(b.store.refresh()).unwrap();
        let event = u128::from_le_bytes(random().unwrap());
        b.decide_event(event, &[strict(limit)], now)[0]
    };
    assert!(decide(0.5, 0).over, "b has looked at the list, which is empty");
    let mut calls = 0;
    Inspect::change_overrides(&mut a, &mut |list| {
        calls += 1;
        list.push(an_override(b"alice", Overridden::Allow));
        list.push(an_override(b"bob", Overridden::Deny));
    })
    .unwrap();
    assert_eq!((calls, Inspect::overrides(&mut a).unwrap().len()), (1, 2));
    assert!(!decide(0.5, 0).over, "it is allowed");
    assert_eq!(decide(0.5, 0).overridden, Some(Overridden::Allow));
    assert!(decide(0.5, 100).over, "it has ended");
    // What this server has decided stays so.
    let denied = Check { overridden: Some(Overridden::Deny), ..strict(100.0) };
    assert!(b.decide_event(77, &[denied], NOW)[0].over);
    // A list that is damaged changes nothing but the message.
    a.ask(cmd("SET").arg("exirate:overrides").arg("x"));
    assert!(!decide(0.5, 0).over);
    let error = Inspect::overrides(&mut a).unwrap_err().to_string();
    assert!(error.contains("in the key exirate:overrides is damaged: delete this key"), "{error}");
    let said = b.store.take_incidents().join(" ");
    assert!(
        said.starts_with("overrides stay as they were: ") && said.contains("damaged"),
        "{said}"
    );
    assert!(b.store.take_incidents().is_empty());
    a.ask(cmd("DEL").arg("exirate:overrides"));
    assert!(decide(0.5, 0).over, "it is read again, and there is none");
}

/// The checks of what is kept: a rate with a filter, a bucket, a calendar window.
fn kept_checks() -> [Check<'static>; 3] {
    let window = CalendarWindow { start: NOW.seconds - 100, end: NOW.seconds + 86_300 };
    [
        Check { event: Some(b"bob@example.org"), ..strict(100.0) },
        of_a_policy(Algorithm::Bucket { burst: 10.0, rate: 0.001 }),
        of_a_policy(Algorithm::Calendar { limit: 20.0, window }),
    ]
}

fn of_a_policy(algorithm: Algorithm) -> Check<'static> {
    Check {
        key: RecordKey { kind: Kind::Policy, algorithm: algorithm.kind(), ..strict(1.0).key },
        algorithm,
        ..strict(1.0)
    }
}

/// A check that its first event crosses, and which blocks from then on.
fn kept_block() -> Check<'static> {
    let algorithm = Algorithm::MovingAverage { limit: 0.5, period: 3600.0 };
    Check { blocks: BlockTime::UntilLifted, ..of_a_policy(algorithm) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// What a release writes: each key that is a text, and its value.
fn written_keys(server: &TestServer, denial: &Override, blocks: bool) -> Vec<u8> {
    let mut store = server.fresh();
    // `fresh` has removed it.
    store.ask(cmd("SET").arg("exirate:secret").arg(&store.store.secret.get().bytes()));
    store.decide_event(1, &kept_checks(), NOW);
    if blocks {
        store.decide_event(3, &[kept_block()], NOW);
    }
    Inspect::change_overrides(&mut store, &mut |list| list.push(denial.clone())).unwrap();
    let Value::Array(keys) = store.ask(cmd("KEYS").arg("exirate:*")) else { panic!() };
    let mut lines = Vec::new();
    for key in keys {
        let Value::BulkString(key) = key else { panic!() };
        if let Ok(Value::BulkString(value)) = store.send(cmd("GET").arg(&key))
            && !key.starts_with(PROBE.as_bytes())
        {
            lines.push(format!("{} {}\n", hex(&key), hex(&value)));
        }
    }
    lines.sort();
    lines.concat().into_bytes()
}

#[test]
fn what_each_release_has_written_is_read() {
    let server = TestServer::start();
    for (release, denies, blocks) in
        [("0.1.0", Overridden::Deny, false), ("0.2.0", Overridden::Reject, true)]
    {
        let denial = an_override(b"carol", denies);
        let kept =
            kit::formats::kept(release, "redis.keys", || written_keys(&server, &denial, blocks));
        let store = server.fresh();
        store.ask(cmd("FLUSHALL").arg("SYNC"));
        let text = String::from_utf8(kept).unwrap();
        let count = 5 + usize::from(blocks);
        assert_eq!(text.lines().count(), count, "a secret, a list, and records");
        for line in text.lines() {
            let (key, value) = line.split_once(' ').unwrap();
            store.ask(cmd("SET").arg(from_hex(key)).arg(from_hex(value)));
        }
        let mut store = server.store();
        for check in kept_checks() {
            let found = Inspect::get(&mut store, check.record_key()).unwrap().unwrap();
            assert_eq!((found.average.rate, found.limit), (check.count, check.algorithm.limit()));
            assert_eq!(found.average.at, NOW);
        }
        assert_eq!(Inspect::overrides(&mut store).unwrap(), [denial]);
        let later = Timestamp { seconds: NOW.seconds + 1, ..NOW };
        let decisions = store.decide_event(2, &kept_checks(), later);
        assert_eq!(decisions[0].details.seen, Some(true), "the filter has it");
        assert!(decisions.iter().all(|decision| decision.details.found));
        let rates: Vec<f64> = decisions.iter().map(|one| one.rate.round()).collect();
        let count = strict(1.0).count;
        assert_eq!(rates, [count, 2.0 * count, 2.0 * count]);
        // The event was counted by that release already.
        let again = store.decide_event(1, &kept_checks()[1..], later);
        assert_eq!(again[1].rate, 2.0 * count);
        if blocks {
            let blocked = Check { count: 0.0, update: Update::ReadOnly, ..kept_block() };
            assert!(store.decide_event(4, &[blocked], later)[0].blocked.is_some());
        }
    }
    let state =
        b"v=1 release=0.1.0 id=5f0c6a3b9d1e2f40 started=1795171837 seen=1795171900 decisions=12 \
                  clock=-0.000123 servers=4 secret=0000000a of=later";
    let state = AgentState::of(state).unwrap();
    assert_eq!((state.release.as_str(), state.servers, state.secret), ("0.1.0", 4, Some(10)));
}

/// A record that a later agent has written is neither counted in nor replaced, and the server
/// that asks gets the reason.
#[test]
fn a_record_of_a_later_version_is_left_alone() {
    let server = TestServer::start();
    let mut store = server.fresh();
    store.decide_event(1, &[strict(100.0)], NOW);
    let key = key(&strict(1.0).record_key(), &store.store.secret.get().tag(b"alice"));
    let Value::BulkString(mut later) = store.ask(cmd("GET").arg(&key)) else { panic!() };
    for (version, length) in [(2, 92), (255, 5000), (2, 4)] {
        later[0] = version;
        later.resize(length, 7);
        store.ask(cmd("SET").arg(&key).arg(&later));
        let bob = Check { key: RecordKey { name: b"bob", ..strict(1.0).key }, ..strict(1.0) };
        let said = |error: String| {
            let version =
                format!("a record is of format version {version}, and this exirate knows");
            assert!(error.contains(&version), "{error}");
            assert!(error.contains("above 1: use the later exirate that wrote it"), "{error}");
        };
        // Nor is another record of the same event changed.
        let error = store.decide_at(2, &[bob, strict(100.0)], NOW, &mut Vec::new()).unwrap_err();
        assert!(!error.is_lost());
        said(error.to_string());
        said(Inspect::get(&mut store, strict(1.0).record_key()).unwrap_err().to_string());
        let unread = Inspect::for_each(&mut store, &mut |entry| panic!("{entry:?}")).unwrap();
        assert_eq!((unread.damaged, unread.parts.len()), (0, 1));
        let text = unread.parts[0].to_string();
        assert!(text.contains("1 record of a later format version: use the later"), "{text}");
        assert_eq!(store.ask(cmd("GET").arg(&key)), Value::BulkString(later.clone()));
    }
}

/// Changes of the list that are made at the same time are all made.
#[test]
fn no_change_of_the_overrides_is_lost() {
    let server = TestServer::start();
    server.fresh();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let server = &server;
            scope.spawn(move || {
                let mut rates = server.store();
                for number in 0..10_u8 {
                    let one = an_override(&[b'a' + thread, b'0' + number], Overridden::Deny);
                    Inspect::change_overrides(&mut rates, &mut |list| list.push(one.clone()))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(Inspect::overrides(&mut server.store()).unwrap().len(), 80);
}

/// The names of what an identity may have follow from those that agents count under.
#[test]
fn one_identity_is_found_without_reading_all_keys() {
    let server = TestServer::start();
    let mut store = server.fresh();
    let of = |name: &'static str, start: usize, kind: Kind| Check {
        key: RecordKey { name: name.as_bytes(), identity_start: start, kind, ..strict(1.0).key },
        ..strict(100.0)
    };
    let checks = [
        of("1h/per_rcpt/alice@example.org", 12, Kind::Spec),
        of("default/recipients/1h/auth:alice@example.org", 22, Kind::Policy),
        of("1h/per_rcpt/bob@example.org", 12, Kind::Spec),
        of("1d/per_mail/192.0.2.7", 12, Kind::Spec),
    ];
    for (number, check) in checks.iter().enumerate() {
        store.decide_event(number as u128, &[*check], NOW);
    }
    // As `cluster status` asks.
    let looks = Check { update: Update::ReadOnly, ..of("exirate cluster status", 0, Kind::Spec) };
    store.decide_event(8, &[looks], NOW);
    // As the agent does each second.
    store.runtime.block_on(store.store.refresh()).unwrap();
    let scans = |store: &SharedRates| {
        let Value::BulkString(info) = store.ask(cmd("INFO").arg("commandstats")) else { panic!() };
        let info = String::from_utf8(info).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls="));
        line.map_or(0, |line| line.split_once(',').unwrap().0.parse::<u64>().unwrap())
    };
    let identities =
        ["alice@example.org", "auth:alice@example.org"].map(|name| name.as_bytes().to_vec()).into();
    let find = |store: &mut SharedRates, folding: &Folding| {
        let before = scans(store);
        let mut names = Vec::new();
        let mut wanted = Wanted {
            selects: &mut |key| key.name.to_ascii_lowercase().ends_with(b"alice@example.org"),
            identities: Some((&identities, folding)),
        };
        let mut add = |entry: Entry| names.push(String::from_utf8(entry.key).unwrap());
        store.for_each_wanted(&mut wanted, &mut add).unwrap();
        names.sort();
        (names, scans(store) - before)
    };
    let both = vec![
        "1h/per_rcpt/alice@example.org".to_owned(),
        "default/recipients/1h/auth:alice@example.org".to_owned(),
    ];
    let folding = Folding::default();
    assert_eq!(find(&mut store, &folding), (both.clone(), 0));
    let mut of_alice = 0;
    Inspect::for_each_of(&mut store, &identities, &mut |_| of_alice += 1).unwrap();
    assert_eq!((of_alice, scans(&store)), (2, 0));
    // An identity of a spec is written otherwise than it is folded: all keys are looked at.
    store.decide_event(9, &[of("1h/per_rcpt/ALICE@example.org", 12, Kind::Spec)], NOW);
    store.runtime.block_on(store.store.refresh()).unwrap();
    let with_capitals = [vec!["1h/per_rcpt/ALICE@example.org".to_owned()], both].concat();
    assert_eq!(find(&mut store, &folding), (with_capitals.clone(), 1));
    store.ask(cmd("HDEL").arg("exirate:forms").arg("sm1:1h/per_rcpt/"));
    assert_eq!(find(&mut store, &folding).1, 0);
    // An agent of 0.1.0 adds no forms.
    let old = "v=1 release=0.1.0 id=5f0c6a3b9d1e2f40 started=1 seen=9999999999 decisions=1 \
               clock=0 servers=4";
    store.ask(cmd("HSET").arg("exirate:servers").arg("agent old").arg(old));
    assert_eq!(find(&mut store, &folding), (with_capitals.clone(), 1));
    store.ask(cmd("DEL").arg("exirate:servers"));
    // All keys were removed, and a new agent begins to count.
    store.ask(&cmd("FLUSHALL"));
    assert_eq!(find(&mut store, &folding), (vec![], 1));
    store.runtime.block_on(store.store.refresh()).unwrap();
    assert_eq!(find(&mut store, &folding).1, 1, "there are odd ones among those that it knows");
}
