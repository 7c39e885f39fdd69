//! Three servers, each with an Exim, an agent and a database of its own, that share their
//! limits.

use std::thread;
use std::time::{Duration, Instant};

use crate::mail_server::Server;
use crate::stores::Store;
use kit::{Client, counts};

const SERVERS: usize = 3;
/// SMTP connections to each server at the same time.
const PROCESSES: usize = 8;
/// Recipients in each connection.
const EACH: usize = 12;

/// A MAIL and a RCPT, which must be accepted.
fn recipient(client: &mut Client, name: &str) {
    client.command("MAIL FROM:<a@client.test>");
    let reply = client.command(format!("RCPT TO:<{name}@private.test>"));
    assert!(reply.is_ok(), "{}", reply.text);
    client.command("RSET");
}

fn three(store: &Store, deadline: Duration) -> Vec<Server> {
    (0..SERVERS).map(|_| Server::start(store, deadline, ["shared", "addresses"])).collect()
}

/// Eight processes of each Exim count the same recipients.
fn the_sum_is_exact(store: &Store) {
    let servers = three(store, Duration::from_secs(5));
    let begun = Instant::now();
    thread::scope(|scope| {
        for server in servers.iter().cycle().take(SERVERS * PROCESSES) {
            scope.spawn(|| {
                let mut client = server.exim.session();
                for n in 0..EACH {
                    recipient(&mut client, &format!("u{n}"));
                }
                client.quit();
            });
        }
    });
    let sum = (SERVERS * PROCESSES * EACH) as u64;
    let rate = sum as f64 * 2.0 / begun.elapsed().as_secs_f64();
    counts::record(&format!("checks of three Exims, counted by {}", store.name), sum * 2);
    counts::record(&format!("  a second, {}", store.name), rate as u64);
    for server in &servers {
        assert_eq!(server.counted(), [sum, EACH as u64], "{}", store.name);
        assert_eq!(server.decided()[1], 0, "{}", store.name);
        assert_eq!(server.exim.log("panic"), "");
    }
}

#[test]
fn a_single_redis_counts_for_three_exims() {
    the_sum_is_exact(&Store::single());
}

#[test]
fn a_valkey_counts_for_three_exims() {
    the_sum_is_exact(&Store::valkey());
}

#[test]
fn a_redis_behind_sentinel_counts_for_three_exims() {
    the_sum_is_exact(&Store::sentinel());
}

#[test]
fn a_redis_cluster_counts_for_three_exims() {
    the_sum_is_exact(&Store::cluster());
}
