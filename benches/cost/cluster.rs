//! The cost of a check that several servers share, through the agent and Redis.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use exirate::cluster::wire::{message_bytes, write_request};
use exirate::engine::{Algorithm, Check as OneCheck};
use exirate::redis::{RedisStore, Server, Servers, Settings, Transport};
use tokio::runtime::{Builder, Runtime};

use crate::effort::Effort;
use crate::exim::{Check, sessions};
use crate::session::names;
use kit::exim::open_to_all;
use kit::table::{head, median, micros, print, row, times};
use kit::{Process, until};

/// Sessions at the same time.
const SESSIONS: usize = 16;
/// Connections that ask the agent as fast as they can.
const CONNECTIONS: u64 = 16;
/// How long a process waits here: a measurement is of what the agent decides.
const DEADLINE: Duration = Duration::from_secs(5);
/// The time in which checks are counted, for each key.
const SECONDS: f64 = 3.0;

/// Clock ticks in a second, as /proc counts them on Linux (`USER_HZ`).
const TICKS: f64 = 100.0;

fn start(command: &mut Command) -> Process {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    Process(command.spawn().unwrap())
}

/// The processor time that all threads of a process have used, in seconds.
pub(crate) fn processor_seconds(process: &Process) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.0.id())).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / TICKS
}

fn until_it_listens(socket: &Path) {
    until(&format!("{} is there", socket.display()), || UnixStream::connect(socket).is_ok());
}

/// Redis and an agent, on unix sockets in a folder.
struct World {
    folder: tempfile::TempDir,
    redis: Process,
    agent: Process,
    runtime: Runtime,
    store: RedisStore,
}

impl World {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        let [redis_socket, agent_socket] =
            ["redis.sock", "agent.sock"].map(|n| folder.path().join(n));
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        let redis = start(command.arg(&redis_socket).current_dir(folder.path()));
        until_it_listens(&redis_socket);
        let config = folder.path().join("exirate.toml");
        let text = format!(
            "[listen]\nagent = \"{}\"\n[redis]\nserver = \"unix://{}\"\ndeadline = \"5s\"\n\
             [agent]\nservers = 2\nusers = [\"root\", \"Debian-exim\"]\n",
            agent_socket.display(),
            redis_socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(["serve", "agent", "--config"]).arg(&config).stderr(Stdio::null());
        let agent = start(&mut command);
        until_it_listens(&agent_socket);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let settings = Settings {
            servers: Servers::Single(Server {
                transport: Transport::Unix(redis_socket),
                database: 0,
            }),
            user: None,
            password: None,
            ca: None,
            deadline: DEADLINE,
        };
        let store = runtime.block_on(RedisStore::connect(&settings)).unwrap();
        Self { folder, redis, agent, runtime, store }
    }

    /// An Exim with this check that shares its limits.
    fn exim(&self, specs: &[&str]) -> kit::PrivateExim {
        let exim = Check::Ours(specs.iter().map(|&s| s.to_owned()).collect()).exim();
        let joined = Command::new(env!("CARGO_BIN_EXE_exirate"))
            .args(["cluster", "join", "--servers", "2", "--agent-user", "0", "--deadline", "5000"])
            .arg("--socket")
            .arg(self.folder.path().join("agent.sock"))
            .arg("--spool")
            .arg(exim.spool())
            .output()
            .unwrap();
        assert!(joined.status.success(), "{joined:?}");
        exim
    }

    /// The median time of a request to Redis on an open connection.
    fn direct(&self, count: usize, mut request: impl FnMut(&Self, usize)) -> f64 {
        let mut taken = |n| {
            let start = Instant::now();
            request(self, n);
            start.elapsed()
        };
        median((0..count).map(&mut taken).collect())
    }

    /// A number that Redis shows.
    fn info(&self, name: &str) -> f64 {
        let shown = Command::new("redis-cli")
            .arg("-s")
            .arg(self.folder.path().join("redis.sock"))
            .args(["INFO", "memory"])
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let line = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    }
}

/// The check that is asked for in process.
fn check(key: &[u8]) -> OneCheck<'_> {
    OneCheck::new(key, Algorithm::MovingAverage { limit: 1000.0, period: 3600.0 })
}

/// Prints what shared checks cost.
pub(crate) fn run(effort: Effort) {
    let world = World::start();
    in_exim(&world, effort);
    let requests = effort.recipients;
    let mut ping = redis::cmd("PING");
    let ping = ping.arg("x").clone();
    let socket = world.folder.path().join("redis.sock");
    let client = redis::Client::open(format!("unix://{}", socket.display())).unwrap();
    let connection = world.runtime.block_on(client.get_multiplexed_async_connection()).unwrap();
    let of_ping = world.direct(requests, |world, _| {
        let mut connection = connection.clone();
        let reply = world.runtime.block_on(ping.query_async::<String>(&mut connection));
        reply.unwrap();
    });
    let mut decisions = Vec::new();
    let of_script = world.direct(requests, |world, n| {
        let one = [check(b"direct")];
        let decided = world.store.decide(n as u128 + 1, &one, &mut decisions);
        world.runtime.block_on(decided).unwrap();
    });
    println!(
        "(on an open connection to Redis: PING {}, the script {})",
        micros(of_ping),
        micros(of_script)
    );
    throughput(&world, if effort.rounds > 1 { SECONDS } else { 0.1 });
    memory(&world, effort.recipients);
}

/// Sessions in Exim, native and shared.
fn in_exim(world: &World, effort: Effort) {
    let spec = "1000 / 1h / per_rcpt / strict / $sender_helo_name";
    let native = Check::Native(vec![spec.to_owned()]).exim();
    let (bare, shared) = (Check::None.exim(), world.exim(&[spec]));
    head(&format!("A recipient's shared check in Exim, {} RCPTs", effort.recipients));
    let mut table = vec![row(["", "native, local", "shared", "native / shared"])];
    for count in [1, SESSIONS.min(effort.sessions * 2)] {
        let names = names(count);
        let mut taken = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..effort.rounds {
            for (exim, taken) in [&bare, &native, &shared].into_iter().zip(&mut taken) {
                taken.push(sessions(exim, &names, round, effort.recipients).time);
            }
        }
        let [bare, native, shared] = taken.map(median);
        let checks = (effort.recipients * count) as f64;
        let [native, shared] = [native, shared].map(|seconds| (seconds - bare) / checks);
        let name =
            if count == 1 { "one session".to_owned() } else { format!("{count} sessions at once") };
        table.push(vec![name, micros(native), micros(shared), times(native, shared)]);
    }
    print(&table);
    assert_eq!(shared.log("panic"), "");
}

/// How many checks an agent and a Redis decide, asked by many processes at once.
fn throughput(world: &World, seconds: f64) {
    let (stop, decided) = (AtomicBool::new(false), AtomicU64::new(0));
    let path = world.folder.path().join("agent.sock");
    let before = [&world.agent, &world.redis].map(processor_seconds);
    let begun = Instant::now();
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (stop, decided, path) = (&stop, &decided, &path);
            scope.spawn(move || {
                let mut stream = UnixStream::connect(path).unwrap();
                let key = format!("1h/per_rcpt/client{connection}");
                let (mut request, mut reply) = (Vec::new(), [0; 4096]);
                for event in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    request.clear();
                    let event = u128::from(connection) << 64 | event;
                    let time = DEADLINE.as_micros() as u32;
                    write_request(&mut request, event, time, &[check(key.as_bytes())]).unwrap();
                    stream.write_all(&request).unwrap();
                    let mut got = 0;
                    loop {
                        got += stream.read(&mut reply[got..]).unwrap();
                        if message_bytes(&reply[..got]).unwrap().is_some_and(|whole| got >= whole) {
                            break;
                        }
                    }
                    decided.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    let (all, elapsed) = (decided.into_inner() as f64, begun.elapsed().as_secs_f64());
    let [agent, redis] = [&world.agent, &world.redis].map(processor_seconds);
    let used = |after: f64, before: f64| micros((after - before) / all * 1e6);
    println!(
        "({CONNECTIONS} processes: {:.0} checks a second; processor time of a check: agent {}, Redis {})",
        all / elapsed,
        used(agent, before[0]),
        used(redis, before[1])
    );
}

/// The memory of a key in Redis.
fn memory(world: &World, keys: usize) {
    let before = world.info("used_memory");
    let mut decisions = Vec::new();
    for n in 0..keys {
        let key = format!("1h/per_rcpt/user{n}@example.org");
        let one = [check(key.as_bytes())];
        let decided = world.store.decide(n as u128 + 1, &one, &mut decisions);
        world.runtime.block_on(decided).unwrap();
    }
    let bytes = (world.info("used_memory") - before) / keys as f64;
    println!(
        "({bytes:.0} bytes of Redis's memory for a key such as 1h/per_rcpt/user123@example.org)"
    );
}
