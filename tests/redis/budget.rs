//! Keys that clients choose fill the memory of Redis, and harm nobody else.

use exirate::engine::{Algorithm, Check, RecordKey};
use exirate::redis::{RedisStore, Servers};

use crate::asker::{average, fresh, runtime, settings, tcp};
use crate::sums::with_long_deadline;
use kit::counts;
use kit::redis::RedisServer;

/// Users whose rates matter.
const USERS: usize = 200;
/// The names that a client sends, one after the other.
const NAMES: usize = 40_000;
/// How many events are asked at the same time.
const AT_ONCE: usize = 200;

/// A moving average of an hour.
fn hourly(name: &str) -> Check<'_> {
    let algorithm = Algorithm::MovingAverage { limit: 100.0, period: 3600.0 };
    Check { key: RecordKey::from(name), algorithm, ..average(name) }
}

#[test]
fn names_that_clients_choose_displace_no_rate_that_matters() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--maxmemory", "0", "--maxmemory-policy", "volatile-ttl"];
    let server = RedisServer::start(folder.path(), "redis", &options);
    let settings = with_long_deadline(&settings(Servers::Single(tcp(server.port))));
    let runtime = runtime();
    runtime.block_on(async {
        let store = RedisStore::connect(&settings).await.unwrap();
        let users: Vec<String> = (0..USERS).map(|number| format!("user{number}")).collect();
        let mut decisions = Vec::new();
        for user in &users {
            // As 50 recipients at once.
            let check = Check { count: 50.0, ..hourly(user) };
            store.decide(fresh(), &[check], &mut decisions).await.unwrap();
        }
        // There is room for about a thousand keys more.
        let used = server.ask(&["info", "memory"]);
        let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        let most = used.trim().parse::<u64>().unwrap() + 300_000;
        server.ask(&["config", "set", "maxmemory", &most.to_string()]);
        for first in (0..NAMES).step_by(AT_ONCE) {
            let tasks = tokio::task::LocalSet::new();
            for number in first..first + AT_ONCE {
                let store = store.clone();
                tasks.spawn_local(async move {
                    let name = format!("helo{number}.example.net");
                    let decided = store.decide(fresh(), &[hourly(&name)], &mut Vec::new()).await;
                    decided.unwrap();
                });
            }
            tasks.await;
        }
        let mut kept = 0;
        for user in &users {
            store.decide(fresh(), &[hourly(user)], &mut decisions).await.unwrap();
            kept += usize::from(decisions[0].rate > 40.0);
        }
        let keys: usize = server.ask(&["dbsize"]).trim().parse().unwrap();
        assert!(keys < NAMES / 10, "{keys} keys fit: nothing was removed");
        counts::record("users whose rates remained while clients filled Redis", kept as u64);
        // Redis chooses from samples.
        assert!(kept >= USERS * 99 / 100, "{kept} of {USERS}");
    });
}
