//! What servers publish of themselves, and what the tools read of it.

use exirate::redis::{
    AgentState, Announcement, PolicyState, RedisError, RedisStore, Register, Servers, Settings,
};

use crate::asker::{runtime, settings, tcp};
use crate::sums::{nodes, with_long_deadline};
use kit::redis::{Cluster, Program, RedisServer};

const DIGEST: &str = "9f2c41d07a3b5e8894e0a7c1d2f3b4a5";

pub(crate) fn announcement(name: &str, id: u64) -> Announcement<'_> {
    Announcement { name, id, started: 7, decisions: 12, servers: 3, again: false, config: 9 }
}

pub(crate) fn announce(
    settings: &Settings,
    announcement: &Announcement<'_>,
) -> Result<bool, RedisError> {
    runtime().block_on(async { RedisStore::connect(settings).await?.announce(announcement).await })
}

fn single(server: &RedisServer) -> Settings {
    with_long_deadline(&settings(Servers::Single(tcp(server.port))))
}

fn agent_of(register: &Register, name: &str) -> AgentState {
    register.servers().unwrap().servers[name].agent.clone().unwrap()
}

/// Publishes what two servers are, reads it by a third, and removes it.
fn shows(settings: &Settings) {
    for (name, id) in [("mx1", 1), ("mx2.example.org", u64::MAX)] {
        assert!(!announce(settings, &announcement(name, id)).unwrap());
    }
    let register = Register::open(settings).unwrap();
    register.set_policy("mx1", Some(DIGEST)).unwrap();
    let known = register.servers().unwrap();
    assert_eq!(known.servers.keys().collect::<Vec<_>>(), ["mx1", "mx2.example.org"]);
    assert_eq!(known.unreadable, 0);
    let first = &known.servers["mx1"];
    assert!(known.is_seen_lately(first) && known.age(first) <= 60);
    let agent = first.agent.as_ref().unwrap();
    assert_eq!((agent.id, agent.started, agent.decisions, agent.servers), (1, 7, 12, 3));
    assert_eq!(agent.release, env!("CARGO_PKG_VERSION"));
    assert!(agent.clock.abs() < 1.0 && !agent.conflict, "{agent:?}");
    let PolicyState { digest, written } = first.policy.as_ref().unwrap();
    assert!(digest == DIGEST && known.now - written <= 60);
    assert_eq!(known.servers["mx2.example.org"].policy, None);
    register.set_policy("mx1", None).unwrap();
    assert_eq!(register.servers().unwrap().servers["mx1"].policy, None);
    assert!(register.forget("mx1").unwrap() && !register.forget("mx1").unwrap());
    assert_eq!(register.servers().unwrap().servers.len(), 1);
}

#[test]
fn servers_are_known_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    shows(&single(&server));
}

#[test]
fn servers_on_a_cluster_are_known_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    shows(&with_long_deadline(&settings(nodes(&cluster))));
}

#[test]
fn a_clock_that_differs_and_a_second_server_of_the_name_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start_program(Program::SlowRedis, folder.path(), "redis", &[]);
    let settings = single(&server);
    let again = |id| Announcement { again: true, ..announcement("mx1", id) };
    assert!(!announce(&settings, &announcement("mx1", 1)).unwrap());
    assert!(!announce(&settings, &again(1)).unwrap());
    let register = Register::open(&settings).unwrap();
    let agent = agent_of(&register, "mx1");
    assert!((agent.clock - 3600.0).abs() < 2.0, "{agent:?}");
    // It has been started again, or is another server: its next publication shows which.
    assert!(!announce(&settings, &announcement("mx1", 2)).unwrap());
    assert!(!announce(&settings, &again(2)).unwrap());
    assert!(announce(&settings, &again(1)).unwrap());
    assert!(agent_of(&register, "mx1").conflict);
    assert!(announce(&settings, &again(2)).unwrap());
    assert!(!announce(&settings, &again(2)).unwrap());
    assert!(!agent_of(&register, "mx1").conflict);
    // Removed by somebody.
    register.forget("mx1").unwrap();
    assert!(!announce(&settings, &again(2)).unwrap());
}

#[test]
fn what_others_have_written_there_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let settings = single(&server);
    let register = Register::open(&settings).unwrap();
    assert_eq!(register.servers().unwrap().servers.len(), 0);
    let hset = |field: &str, value: &str| server.ask(&["hset", "exirate:servers", field, value]);
    let old =
        "v=1 release=0.1.0 id=5f0c6a3b9d1e2f40 started=1 seen=2 decisions=12 clock=0 servers=4";
    for (field, value) in [
        ("agent mx1", "\u{1b}[2J"),
        ("agent \u{1b}[2J", old),
        ("policy mx1", "v=1 digest=\u{1b}[2J written=1"),
        ("agent old", old),
    ] {
        hset(field, value);
    }
    let known = register.servers().unwrap();
    assert_eq!((known.servers.len(), known.unreadable), (0, 3), "{known:?}");
    let left = server.ask(&["hkeys", "exirate:servers"]);
    assert!(!left.contains("agent old") && left.lines().count() == 3, "{left}");
    // It is replaced, whatever it was.
    assert!(!announce(&settings, &Announcement { again: true, ..announcement("mx1", 1) }).unwrap());
    register.set_policy("mx1", Some(DIGEST)).unwrap();
    assert_eq!(register.servers().unwrap().unreadable, 1);
    // Another program uses the key.
    server.ask(&["set", "exirate:servers", "x"]);
    assert!(announce(&settings, &announcement("mx1", 1)).is_err());
    assert!(register.servers().is_err() && register.forget("mx1").is_err());
}
