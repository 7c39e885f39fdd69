//! Shared limits with very many keys, and far away from Redis: what commands and the desk take, and
//! how many checks are undecided.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use exirate::cluster::wire::{Reply, message_bytes, read_reply, write_request};
use exirate::engine::{Algorithm, Check, RecordKey};
use exirate::redis::{RedisStore, Server, Servers, Settings, Transport};
use exirate::spool::{Options, Spool};
use futures_util::future::join_all;
use kit::redis::{Cluster, RedisServer};
use kit::table::{head, middle, print, ratio, row};
use kit::{Process, until};
use tokio::runtime::Builder;

use crate::effort::Effort;
use crate::exim::compile;
use crate::web::Desk;

/// Events that are counted at the same time while a server is filled.
const AT_ONCE: usize = 1000;
/// Round trips, in milliseconds.
const ROUND_TRIPS: [u64; 3] = [20, 60, 80];
/// How long a check waits, as where nothing else is set.
const DEADLINE: Duration = Duration::from_millis(100);
/// How long an agent has to connect.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A session asks no more often.
const PACE: Duration = Duration::from_millis(20);
/// Who asks at the same time: one session, or a server under load.
const ASKING: [usize; 2] = [1, 32];
/// Where Redis listens in the network of `far.c`, and how it is reached from far away.
const NEAR: &str = "198.18.0.1";
const FAR: &str = "198.18.0.2";

/// This program, and the one that it is compared with.
fn programs(before: Option<&Path>) -> Vec<(&'static str, &Path)> {
    let now = Path::new(env!("CARGO_BIN_EXE_exirate"));
    before.map(|before| ("before", before)).into_iter().chain([("now", now)]).collect()
}

/// A mail server that shares its limits, with an agent.
struct Sharing {
    folder: tempfile::TempDir,
    _agent: Process,
}

impl Sharing {
    /// With this program, in the namespaces into which `inside` leads.
    fn start(program: &Path, redis: &str, inside: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = format!(
            "[listen]\nagent = {:?}\n[redis]\n{redis}\n[agent]\nservers = 2\nusers = [\"root\"]\n",
            at("agent")
        );
        fs::write(at("exirate.toml"), text).unwrap();
        fs::create_dir(at("spool")).unwrap();
        drop(Spool::open(&at("spool"), Options::default()).unwrap());
        let line: Vec<&str> =
            inside.iter().map(String::as_str).chain([program.to_str().unwrap()]).collect();
        let mut agent = Command::new(line[0]);
        agent.args(&line[1..]).args(["serve", "agent", "--config"]).arg(at("exirate.toml"));
        let agent = agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let agent = Process(agent.spawn().unwrap());
        until("the agent listens", || UnixStream::connect(at("agent")).is_ok());
        let sharing = Self { folder, _agent: agent };
        let (socket, config) = (sharing.path("agent"), sharing.path("exirate.toml"));
        let [socket, config] = [&socket, &config].map(|path| path.to_str().unwrap());
        let join = ["cluster", "join", "--servers", "2", "--agent-user", "0", "--socket", socket];
        sharing.take(program, &[&join[..], &["--config", config]].concat());
        sharing
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command, and returns how long it takes.
    fn take(&self, program: &Path, arguments: &[&str]) -> Duration {
        let mut command = Command::new(program);
        command.args(arguments).arg("--spool").arg(self.path("spool")).stdin(Stdio::null());
        command.stdout(File::create(self.path("output")).unwrap()).stderr(Stdio::null());
        let begun = Instant::now();
        let status = command.status().unwrap();
        let taken = begun.elapsed();
        assert!(matches!(status.code(), Some(0 | 1)), "{arguments:?}: {status}");
        taken
    }
}

fn identity(number: usize) -> String {
    format!("user{number:08}@example.org")
}

fn check<'n>(name: &'n str, identity: &str) -> Check<'n> {
    let key = RecordKey { identity_start: name.len() - identity.len(), ..name.into() };
    Check::new(key, Algorithm::MovingAverage { limit: 1000.0, period: 3600.0 })
}

fn tcp(port: u16) -> Server {
    Server { transport: Transport::Tcp { host: "127.0.0.1".into(), port, tls: false }, database: 0 }
}

/// Counts an event of each of so many identities.
fn fill(servers: Servers, keys: usize) {
    let deadline = Duration::from_mins(1);
    let settings = Settings { servers, user: None, password: None, ca: None, deadline };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedisStore::connect(&settings).await.unwrap();
        for first in (0..keys).step_by(AT_ONCE) {
            let one = |number: usize| {
                let store = &store;
                async move {
                    let (identity, mut decisions) = (identity(number), Vec::new());
                    let name = format!("1h/per_rcpt/{identity}");
                    let check = [check(&name, &identity)];
                    store.decide(number as u128 + 1, &check, &mut decisions).await.unwrap();
                }
            };
            join_all((first..keys.min(first + AT_ONCE)).map(one)).await;
        }
        store.refresh().await.unwrap();
    });
}

/// What one identity may take with a million keys: on one server, and in a Cluster.
const GOALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];
/// How many rows of the table read all keys, which come first.
const OF_ALL: usize = 3;
/// The part that reading all keys may take of what it took in 0.1.0.
const GOAL_OF_ALL: f64 = 1.0 / 3.0;

/// A figure, and whether its goal was missed.
fn held(shown: &str, is_met: bool) -> String {
    if is_met { shown.to_owned() } else { format!("{shown}, missed") }
}

fn shown(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

/// Prints what commands and the desk take with a million keys, on one server and on a Cluster of
/// three.
pub(crate) fn keys(effort: Effort, before: Option<&Path>) {
    let keys = effort.keys.iter().copied().filter(|&keys| keys <= 1_000_000).max().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let one = RedisServer::start(folder.path(), "redis", &[]);
    let cluster = Cluster::of_primaries(folder.path(), &[5462, 5461, 5461]);
    let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.port).collect();
    let urls: Vec<String> =
        ports.iter().map(|port| format!("\"redis://127.0.0.1:{port}\"")).collect();
    for (name, servers, redis) in [
        (
            "one Redis",
            Servers::Single(tcp(one.port)),
            format!("server = \"redis://127.0.0.1:{}\"", one.port),
        ),
        (
            "a Cluster of three",
            Servers::Cluster(ports.iter().map(|&port| tcp(port)).collect()),
            format!("cluster = [{}]", urls.join(", ")),
        ),
    ] {
        let goal = GOALS[usize::from(matches!(servers, Servers::Cluster(_)))];
        fill(servers, keys);
        on(name, &redis, (keys, goal), effort, before);
    }
}

/// With so many keys, and a goal for one identity among them.
fn on(
    name: &str,
    redis: &str,
    (keys, goal): (usize, Duration),
    effort: Effort,
    before: Option<&Path>,
) {
    // The agent writes what is known of names.
    let sharing = Sharing::start(programs(None)[0].1, redis, &[]);
    let programs = programs(before);
    let desks: Vec<Desk> = programs
        .iter()
        .map(|(what, program)| {
            fs::create_dir(sharing.path(what)).unwrap();
            Desk::start(program, &sharing.path(what), &sharing.path("spool"))
        })
        .collect();
    head(&format!("Commands and the desk with {keys} keys in {name}"));
    let export = sharing.path("export");
    let export = export.to_str().unwrap();
    let rows: [(&str, usize, &[&str]); 6] = [
        ("list", 1, &["list"]),
        ("export --output FILE", 1, &["export", "--output", export]),
        ("erase PERSON --yes", 1, &["erase", "PERSON", "--yes"]),
        ("show KEY", effort.rounds, &["show", "PERSON"]),
        ("unblock KEY", effort.rounds, &["unblock", "PERSON"]),
        ("deny KEY", effort.rounds, &["deny", "PERSON"]),
    ];
    let mut person = 0;
    let mut all: Vec<(String, Vec<Duration>)> = Vec::new();
    let mut measure = |name: &str, rounds: usize, take: &mut dyn FnMut(usize, &str) -> Duration| {
        let mut times = vec![Vec::new(); programs.len()];
        for _ in 0..rounds {
            for (program, times) in times.iter_mut().enumerate() {
                person += 1;
                times.push(take(program, &identity(person % keys)));
            }
        }
        all.push((name.to_owned(), times.into_iter().map(middle).collect()));
    };
    for (name, rounds, arguments) in rows {
        measure(name, rounds, &mut |program, person| {
            let given =
                |&one: &&str| if one == "PERSON" { person.to_owned() } else { one.to_owned() };
            let arguments: Vec<String> = arguments.iter().map(given).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            sharing.take(programs[program].1, &arguments)
        });
    }
    measure("the desk: GET identity", effort.rounds, &mut |program, person| {
        let desk = &desks[program];
        desk.ask(&mut desk.connect(), &format!("/api/v1/identity?key={person}"))
    });
    let mut table = vec![row([""])];
    table[0].extend(programs.iter().map(|(what, _)| (*what).to_owned()));
    if before.is_some() {
        table[0].push("now / before".to_owned());
    }
    for (number, (name, times)) in all.into_iter().enumerate() {
        let reads_all = number < OF_ALL;
        let mut cells = vec![name];
        let (now, others) = times.split_last().unwrap();
        cells.extend(others.iter().copied().map(shown));
        cells.push(held(&shown(*now), reads_all || *now <= goal));
        if let [before] = others {
            let part = now.as_secs_f64() / before.as_secs_f64();
            let shown = ratio(now.as_secs_f64(), before.as_secs_f64());
            cells.push(held(&shown, !reads_all || part <= GOAL_OF_ALL));
        }
        table.push(cells);
    }
    print(&table);
}

/// Prints how many checks are undecided where Redis is far away.
pub(crate) fn far(effort: Effort, before: Option<&Path>) {
    head("Checks that the agent has not decided within 100 ms, by the round trip to Redis");
    let mut table = vec![row(["round trip", "sessions", "", "checks", "undecided", "median"])];
    for round_trip in ROUND_TRIPS {
        let folder = tempfile::tempdir().unwrap();
        let far = folder.path().join("far");
        compile("far.c", &far, &[]);
        let half = (round_trip * 500).to_string();
        let mut network = Command::new("unshare");
        network.arg("--net").arg(&far).arg(half).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut network = Process(network.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(network.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            eprintln!("left out: `far` needs /dev/net/tun, a network of its own, and iproute2");
            return;
        }
        let inside = ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", network.0.id())];
        let mut redis = Command::new(&inside[0]);
        redis.arg(&inside[1]).args(["redis-server", "--bind", NEAR, "--protected-mode", "no"]);
        redis.args(["--save", "", "--appendonly", "no", "--unixsocket", "redis.sock"]);
        redis.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let _redis = Process(redis.spawn().unwrap());
        until("Redis listens", || UnixStream::connect(folder.path().join("redis.sock")).is_ok());
        for (what, program) in programs(before) {
            let sharing =
                Sharing::start(program, &format!("server = \"redis://{FAR}:6379\""), &inside);
            let agent = sharing.path("agent");
            // It connects, and loads what it needs, if it can.
            let begun = Instant::now();
            while ask(&agent, Duration::ZERO, 0).decided == 0 && begun.elapsed() < CONNECT_MAX {}
            for sessions in ASKING {
                let of = |session| {
                    let (agent, time) = (&agent, effort.asked * 3);
                    move || ask(agent, time, session)
                };
                let all: Vec<Asked> = thread::scope(|scope| {
                    let all: Vec<_> = (0..sessions).map(|one| scope.spawn(of(one))).collect();
                    all.into_iter().map(|one| one.join().unwrap()).collect()
                });
                let undecided: usize = all.iter().map(|one| one.undecided).sum();
                let decided: usize = all.iter().map(|one| one.decided).sum();
                let times: Vec<Duration> = all.into_iter().flat_map(|one| one.times).collect();
                table.push(row([
                    &format!("{round_trip} ms"),
                    &sessions.to_string(),
                    what,
                    &(decided + undecided).to_string(),
                    &undecided.to_string(),
                    &shown(middle(times)),
                ]));
            }
        }
    }
    print(&table);
}

/// What became of checks.
struct Asked {
    decided: usize,
    undecided: usize,
    times: Vec<Duration>,
}

/// Asks the agent for so long, one check after the other and at least one, as a session of Exim does.
fn ask(agent: &Path, time: Duration, session: usize) -> Asked {
    static EVENT: AtomicU64 = AtomicU64::new(1);
    let (identity, mut asked) =
        (identity(session), Asked { decided: 0, undecided: 0, times: Vec::new() });
    let name = format!("1h/per_rcpt/{identity}");
    let check = [check(&name, &identity)];
    let begun = Instant::now();
    let mut stream = UnixStream::connect(agent).unwrap();
    loop {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let event = EVENT.fetch_add(1, Ordering::Relaxed).into();
        write_request(&mut request, event, DEADLINE.as_micros() as u32, &check).unwrap();
        let sent = Instant::now();
        stream.write_all(&request).unwrap();
        let is_decided = loop {
            let left = DEADLINE.saturating_sub(sent.elapsed());
            let mut part = [0; 4096];
            if left.is_zero() {
                break false;
            }
            stream.set_read_timeout(Some(left)).unwrap();
            match stream.read(&mut part) {
                Ok(bytes) => reply.extend_from_slice(&part[..bytes]),
                Err(_) => break false,
            }
            if message_bytes(&reply).unwrap().is_some_and(|whole| reply.len() >= whole) {
                break matches!(read_reply(&reply, event, &check), Ok(Reply::Decided(_)));
            }
        };
        asked.times.push(sent.elapsed());
        if is_decided {
            asked.decided += 1;
        } else {
            asked.undecided += 1;
            stream = UnixStream::connect(agent).unwrap();
        }
        if begun.elapsed() >= time {
            return asked;
        }
        thread::sleep(PACE.saturating_sub(sent.elapsed()));
    }
}
