//! All keys are removed from Redis while three servers count: they agree again, on the names of
//! the keys and on the sums.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use exirate::redis::Register;
use kit::counts;
use kit::redis::RedisServer;
use rustix::process::Signal;

use crate::process::{Machine, Process, Stops, until};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// FLUSHALL.
    Flush,
    /// FLUSHALL, and all connections break.
    FlushAndDisconnect,
    /// Connections break before and after FLUSHALL.
    DisconnectAround,
    /// The server ends, and comes back empty.
    Empty,
    /// FLUSHALL, and an agent starts that knows no secret.
    NewAgent,
    /// The secret alone is replaced, as by an agent of another release.
    Replaced,
}

const LOSSES: [Loss; 6] = [
    Loss::Flush,
    Loss::FlushAndDisconnect,
    Loss::DisconnectAround,
    Loss::Empty,
    Loss::NewAgent,
    Loss::Replaced,
];

impl Loss {
    fn happens(self, redis: &mut RedisServer, machine: &Machine, agent: &mut Process) {
        let disconnect = |redis: &RedisServer| redis.ask(&["client", "kill", "type", "normal"]);
        match self {
            Self::Flush => assert_eq!(redis.ask(&["flushall"]), "OK\n"),
            Self::FlushAndDisconnect => {
                redis.ask(&["flushall"]);
                disconnect(redis);
            }
            Self::DisconnectAround => {
                disconnect(redis);
                redis.ask(&["flushall"]);
                disconnect(redis);
                disconnect(redis);
            }
            Self::Empty => {
                redis.kill();
                redis.restart();
            }
            Self::NewAgent => {
                redis.ask(&["flushall"]);
                agent.signal(Signal::KILL);
                agent.wait();
                *agent = machine.start();
            }
            Self::Replaced => {
                redis.ask(&["set", "exirate:secret", "0123456789abcdef"]);
            }
        }
    }
}

#[test]
fn agents_agree_again_when_the_secret_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut redis = RedisServer::start(folder.path(), "redis", &[]);
    let settings = format!("server = \"redis://127.0.0.1:{}\"\ndeadline = \"3s\"", redis.port);
    let machines = ["mx1", "mx2", "mx3"]
        .map(|name| Machine::of(&settings, &format!("server_name = \"{name}\"")));
    let mut agents = machines.each_ref().map(Machine::start_deciding);
    let config = exirate::serve::config::read(&machines[0].path("exirate.toml")).unwrap();
    let redis_settings = config.config.unwrap().redis;
    let published = || -> Vec<u32> {
        let register = Register::open(&redis_settings).unwrap();
        let servers = register.servers().unwrap().servers;
        servers.values().filter_map(|one| one.agent.as_ref()?.secret).collect()
    };
    until("all are known", || published().len() == 3);
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        for machine in &machines {
            let (stop, asked) = (&stop, &asked);
            scope.spawn(move || {
                let mut client = None;
                while !stop.load(Ordering::Relaxed) {
                    let open = client.get_or_insert_with(|| machine.client_of_next());
                    if open.ask("traffic").is_ok() {
                        asked.fetch_add(1, Ordering::Relaxed);
                    } else {
                        client = None;
                    }
                }
            });
        }
        for (round, loss) in LOSSES.into_iter().enumerate() {
            let target = asked.load(Ordering::Relaxed) + 300;
            until("all count", || asked.load(Ordering::Relaxed) > target);
            let before = published();
            loss.happens(&mut redis, &machines[0], &mut agents[0]);
            let begun = Instant::now();
            let mut attempt = 0;
            until("they count together", || {
                attempt += 1;
                let name = format!("together-{round}-{attempt}");
                let rates = machines.each_ref().map(|machine| machine.client().ask(&name).ok());
                rates == [Some(1), Some(2), Some(3)]
            });
            let what = format!("ms until three agents count together again, {loss:?}");
            counts::record(&what, begun.elapsed().as_millis() as u64);
            // One that was replaced is noticed within a second by each, and not at once.
            until("all publish the same secret", || {
                let secrets = published();
                secrets.len() == 3
                    && secrets.iter().all(|secret| *secret == secrets[0])
                    && (!matches!(loss, Loss::Replaced) || secrets[0] != before[0])
            });
            // From now on, none has another.
            let mut clients = machines.each_ref().map(Machine::client);
            for number in 1..=300 {
                let client = &mut clients[number as usize % 3];
                assert_eq!(client.ask(&format!("alice-{round}")).ok(), Some(number), "{loss:?}");
            }
        }
    });
    for machine in &machines {
        machine.until_logged("exirate:secret");
        let log = machine.log();
        assert!(log.contains("the shared rates begin again"), "{log}");
    }
}
