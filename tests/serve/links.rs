//! The links between an agent, its Redis and the sentinels: cut in part, slow, idle.

use kit::redis::{Fault, Proxy, RedisServer, Sentinels, free_port};
use rustix::process::Signal;
use std::time::Duration;

use crate::process::{Machine, until};

/// This machine may be busy.
const DEADLINE: &str = "deadline = \"2s\"";

/// A machine whose agent asks these sentinels.
fn behind(sentinels: &[u16], name: &str) -> Machine {
    let urls: Vec<String> =
        sentinels.iter().map(|port| format!("\"redis://127.0.0.1:{port}\"")).collect();
    let redis = format!(
        "sentinel = {{ master = \"{}\", servers = [{}] }}\nuser = \"exirate\"\n\
         password_file = \"PASSWORD\"\n{DEADLINE}",
        Sentinels::NAME,
        urls.join(", ")
    );
    let machine = Machine::of("", "");
    let file = machine.path("password");
    std::fs::write(&file, "x\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let redis = redis.replace("PASSWORD", &file.display().to_string());
    machine.set(&redis, &format!("server_name = \"{name}\""));
    machine
}

/// The old primary is cut off from the sentinels, and agents reach it.
#[test]
fn agents_follow_a_majority_of_the_sentinels() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--user", "exirate", "on", ">x", "~*", "+@all"];
    let sentinels = Sentinels::start(folder.path(), &options);
    let machines = ["mx1", "mx2"].map(|name| behind(&sentinels.ports, name));
    let [_one, mut two] = machines.each_ref().map(Machine::start_deciding);
    // This one reaches one of three sentinels.
    let alone = behind(&[sentinels.ports[0], free_port(), free_port()], "mx3");
    let _alone = alone.start_deciding();
    let mut clients = machines.each_ref().map(Machine::client);
    assert_eq!(clients.each_mut().map(|client| client.ask("before").unwrap()), [1, 2]);
    let old = sentinels.primary();
    // The sentinels, whose user is the default one, get no reply but errors.
    assert_eq!(sentinels.servers[old].ask(&["acl", "setuser", "default", "-@all"]), "OK\n");
    until("another is the primary", || {
        (0..3).filter(|number| sentinels.primary_of(*number) != old).count() > 1
    });
    two.signal(Signal::TERM);
    two.wait();
    let _two = machines[1].start_deciding();
    machines[0].until_logged("the sentinels name another primary");
    machines[0].until_decided();
    let mut clients = machines.each_ref().map(Machine::client);
    let counts: Vec<u64> =
        (0..200).map(|number| clients[number % 2].ask("alice").unwrap()).collect();
    let accepted = counts.iter().filter(|count| **count <= 100).count();
    kit::counts::record("accepted of 100 while Sentinel's old primary is reached", accepted as u64);
    assert_eq!(accepted, 100);
    // Without a majority, nobody moves, and `doctor` says so.
    alone.share("");
    let said = alone.doctor();
    assert!(said.contains("1 of 3 sentinels reply, 1 name redis://127.0.0.1:"), "{said}");
    assert!(said.contains("no majority of them names the same server"), "{said}");
    assert!(!alone.log().contains("the sentinels name another primary"), "{}", alone.log());
    assert_eq!(alone.client().ask("alice").unwrap(), 1, "it counts apart");
}

/// An agent that counts in another database, or has not read its configuration again.
#[test]
fn doctor_finds_who_counts_elsewhere_and_who_was_not_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"];
    let server = RedisServer::start(folder.path(), "redis", &options);
    let redis = |database: &str| {
        format!("server = \"redis://127.0.0.1:{}{database}\"\n{DEADLINE}", server.port)
    };
    let machines = [("mx1", ""), ("mx2", "/3")].map(|(name, database)| {
        Machine::of(&redis(database), &format!("server_name = \"{name}\""))
    });
    let agents = machines.each_ref().map(Machine::start_deciding);
    machines.iter().for_each(|machine| machine.share(""));
    let said = machines[0].doctor();
    for expected in [
        "1 of 2 servers run: mx1. The others do not run, or count elsewhere: on another Redis, or in \
         another database (there are keys in 3 as well).",
        "its maxmemory-policy is volatile-lru",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("another configuration"), "{said}");
    machines[1].set(&redis(""), "server_name = \"mx2\"");
    let said = machines[1].doctor();
    assert!(said.contains("the agent uses another configuration than"), "{said}");
    agents[1].signal(Signal::HUP);
    until("it has read its configuration", || {
        let said = machines[1].doctor();
        !said.contains("another configuration") && said.contains("2 of 2 servers run: mx1, mx2")
    });
    // A password that nobody has given it.
    assert_eq!(server.ask(&["config", "set", "requirepass", "x"]), "OK\n");
    let said = machines[0].doctor();
    assert!(said.contains("cannot be used: a password is missing (password_file)"), "{said}");
}

/// A round trip of seven tenths of the deadline leaves room for one, not for two.
#[test]
fn what_is_looked_at_each_second_costs_no_check_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let proxy = Proxy::start(server.port);
    let redis = format!("server = \"redis://127.0.0.1:{}\"\ndeadline = \"4s\"", proxy.port);
    let machine = Machine::of(&redis, "");
    let _agent = machine.start_deciding();
    let mut client = machine.client();
    proxy.set(Fault::Far(Duration::from_millis(1400)));
    for _ in 0..5 {
        client.ask("alice").unwrap();
    }
}

/// Redis closes what is idle, or starts again while nobody asks.
#[test]
fn a_connection_that_broke_while_idle_costs_nobody_anything() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start(folder.path(), "redis", &[]);
    let redis = format!("server = \"redis://127.0.0.1:{}\"\n{DEADLINE}", server.port);
    let machine = Machine::of(&redis, "");
    let _agent = machine.start_deciding();
    for round in 0..3 {
        let mut clients: Vec<_> = (0..8).map(|_| machine.client()).collect();
        match round {
            0 => {
                server.ask(&["client", "kill", "type", "normal"]);
            }
            1 => {
                server.kill();
                server.restart();
            }
            _ => {}
        }
        // All ask before one has a reply.
        use std::io::Write as _;
        for client in &mut clients {
            let request = crate::client::request(crate::client::fresh(), "alice");
            client.stream.write_all(&request).unwrap();
        }
        let apart = clients.iter_mut().filter_map(|client| client.decision().err()).count();
        assert_eq!(apart, 0, "round {round}: {}", machine.log());
    }
}
