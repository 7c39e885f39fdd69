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

/// Servers are upgraded one by one: new connections have the library of a made-up next version, the
/// open ones keep this one, and the agents are restarted meanwhile.
#[test]
fn the_next_version_counts_with_this_one() {
    let next = kit::library::build("next-version", "rates", "--cfg exirate_next_version");
    let store = Store::single();
    let servers = three(&store, Duration::from_secs(5));
    let mut open: Vec<Client> = servers.iter().map(|server| server.exim.session()).collect();
    let mut sum = 0;
    let mut all_count = || {
        for (server, client) in servers.iter().zip(&mut open) {
            recipient(client, "open");
            let mut client = server.exim.session();
            recipient(&mut client, "new");
            client.quit();
            sum += 2;
        }
        for server in &servers {
            assert_eq!(server.counted(), [sum, 2]);
            assert_eq!((server.decided()[1], server.exim.log("panic")), (0, String::new()));
        }
    };
    all_count();
    for server in &servers {
        // As packages are installed: what is in use stays.
        let library = server.exim.library();
        let beside = library.with_extension("new");
        std::fs::copy(&next, &beside).unwrap();
        std::fs::rename(&beside, &library).unwrap();
        all_count();
        server.restart_agent();
        all_count();
    }
}
