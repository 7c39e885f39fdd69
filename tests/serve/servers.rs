//! What the agents of several servers publish, what the commands show of it, and that no
//! decision depends on it.

use std::process::{Command, Output, Stdio};

use exirate::redis::{Register, Server, Servers, Settings, Transport};
use rustix::process::Signal;

use crate::process::{Machine, Redis, until};
use crate::stores::Store;

/// This machine may be busy.
const DEADLINE: &str = "deadline = \"2s\"";

/// How the tools reach the Redis of this machine.
fn settings(machine: &Machine) -> Settings {
    let transport = Transport::Unix(machine.path("redis.sock"));
    Settings {
        servers: Servers::Single(Server { transport, database: 0 }),
        user: None,
        password: None,
        ca: None,
        deadline: std::time::Duration::from_secs(3),
    }
}

/// A machine whose agent asks the Redis of the first.
fn other(first: &Machine, name: &str) -> Machine {
    let redis = format!("server = \"unix://{}\"\n{DEADLINE}", first.path("redis.sock").display());
    Machine::of(&redis, &format!("server_name = \"{name}\""))
}

#[test]
fn agents_publish_what_they_are() {
    let first = Machine::new(DEADLINE, "server_name = \"mx1\"");
    let _redis = first.redis();
    let agent = first.start_deciding();
    let others = ["mx2", "mx3"].map(|name| other(&first, name));
    let _agents = others.each_ref().map(Machine::start_deciding);
    let register = Register::open(&settings(&first)).unwrap();
    let servers = || register.servers().unwrap();
    until("all are known", || servers().servers.len() == 3);
    let known = servers();
    assert_eq!(known.servers.keys().collect::<Vec<_>>(), ["mx1", "mx2", "mx3"]);
    for server in known.servers.values() {
        let agent = server.agent.as_ref().unwrap();
        assert!(known.is_seen_lately(server) && server.policy.is_none(), "{server:?}");
        assert!(agent.started.abs_diff(known.now) < 60 && agent.clock.abs() < 1.0, "{agent:?}");
        assert_eq!((agent.servers, agent.conflict), (2, false));
    }
    // Another connection: the decisions so far are published.
    let decided = first.client().ask("alice").unwrap();
    assert_eq!(decided, 1);
    first.configure("deadline = \"3s\"", "server_name = \"mx1\"");
    agent.signal(Signal::HUP);
    let decisions = |known: &exirate::redis::KnownServers, name: &str| {
        known.servers[name].agent.as_ref().unwrap().decisions
    };
    until("the decisions are known", || decisions(&servers(), "mx1") >= 2);
    assert!(decisions(&servers(), "mx2") <= 1);
}

#[test]
fn two_servers_of_one_name_are_found() {
    let first = Machine::new(DEADLINE, "server_name = \"mx1\"");
    let _redis = first.redis();
    let second = other(&first, "mx1");
    let register = Register::open(&settings(&first)).unwrap();
    let published = || {
        let known = register.servers().unwrap();
        known.servers.get("mx1").and_then(|server| server.agent.clone())
    };
    let agent = first.start_deciding();
    until("the first is known", || published().is_some());
    let id = published().unwrap().id;
    let _other = second.start_deciding();
    until("the second is known", || published().unwrap().id != id);
    // Connected again, the first publishes again.
    first.configure("deadline = \"3s\"", "server_name = \"mx1\"");
    agent.signal(Signal::HUP);
    first.until_logged("another server has the name mx1 as well");
    until("it is published", || published().unwrap().conflict);
    assert!(second.client().ask("alice").is_ok() && first.client().ask("alice").is_ok());
}

#[test]
fn a_user_who_may_not_publish_decides() {
    let machine = Machine::new(DEADLINE, "");
    let options = ["--user", "default", "on", "nopass", "~*", "+@all", "-hset"];
    let _redis = Redis::start(machine.folder.path(), &options);
    let _agent = machine.start_deciding();
    machine
        .until_logged("`exirate cluster status` does not show all servers: the ACL user lacks a");
    for number in 1..=100 {
        assert_eq!(machine.client().ask("alice").unwrap(), number);
    }
    assert!(!machine.log().contains("is away: the ACL"), "{}", machine.log());
}

#[test]
fn agents_on_a_cluster_publish_what_they_are() {
    let store = Store::cluster();
    let redis = format!("{}\n{DEADLINE}", store.settings);
    let machines =
        ["mx1", "mx2"].map(|name| Machine::of(&redis, &format!("server_name = \"{name}\"")));
    let _agents = machines.each_ref().map(Machine::start_deciding);
    let config = exirate::serve::config::read(&machines[0].path("exirate.toml")).unwrap();
    let redis = config.config.unwrap().redis;
    let register = Register::open(&redis).unwrap();
    until("both are known", || register.servers().unwrap().servers.len() == 2);
}

/// Runs a command on a machine; its spool directory is the machine's folder.
fn run(machine: &Machine, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(arguments).arg("--spool").arg(machine.folder.path());
    command.stdin(Stdio::null()).env("NO_COLOR", "1").output().unwrap()
}

fn join(machine: &Machine) -> Output {
    let (socket, config) = (machine.path("agent.sock"), machine.path("exirate.toml"));
    let [socket, config] = [&socket, &config].map(|path| path.to_str().unwrap());
    let arguments = ["--servers", "2", "--agent-user", "0", "--socket", socket, "--config", config];
    run(machine, &[&["cluster", "join", "--deadline", "5000"][..], &arguments].concat())
}

fn apply(machine: &Machine, limit: &str) -> Output {
    let file = machine.path("policy.toml");
    std::fs::write(&file, format!("version = 1\n[policy.p]\ndefault.messages = \"{limit}\"\n"))
        .unwrap();
    run(machine, &["policy", "apply", file.to_str().unwrap()])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn status(machine: &Machine) -> serde_json::Value {
    serde_json::from_slice(&run(machine, &["cluster", "status", "--json"]).stdout).unwrap()
}

/// The digests of the policies of all servers, as a machine shows them.
fn policies(machine: &Machine) -> Vec<Option<String>> {
    let status = status(machine);
    let servers = status["servers_seen"].as_array().unwrap_or_else(|| panic!("{status}"));
    servers.iter().map(|one| one["policy"].as_str().map(str::to_owned)).collect()
}

/// What the doctor says of the shared limits: levels and texts.
fn doctor(machine: &Machine) -> Vec<(String, String)> {
    let output = run(machine, &["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap().to_owned();
    let all = found["findings"].as_array().unwrap().iter();
    let shared = all.filter(|one| one["about"] == "The shared limits");
    shared.map(|one| (of(one, "level"), of(one, "text"))).collect()
}

#[test]
fn commands_show_all_servers() {
    let first = Machine::new(DEADLINE, "server_name = \"mx1\"");
    let redis = first.redis();
    let second = other(&first, "mx2");
    let machines = [&first, &second];
    let _agents = machines.map(Machine::start_deciding);
    for machine in machines {
        let joined = join(machine);
        assert_eq!(joined.status.code(), Some(0), "{joined:?}");
    }
    until("both are known", || policies(&first) == [None, None]);
    // What means the same has the same digest, which the next command of any server shows.
    for (machine, limit) in [(&first, "100/1h"), (&second, "100 / 60m")] {
        let applied = apply(machine, limit);
        assert!(applied.status.success() && applied.stderr.is_empty(), "{applied:?}");
    }
    let [Some(one), Some(two)] = &policies(&first)[..] else { panic!("none") };
    assert!(one == two && one.len() == 32, "{one} {two}");
    let all_run = ("ok".to_owned(), "2 of 2 servers run: mx1, mx2".to_owned());
    assert_eq!(doctor(&first).last(), Some(&all_run));
    let shown = text(&run(&first, &["cluster", "status"]).stdout);
    let table: Vec<Vec<&str>> = shown
        .split("\n\n")
        .nth(1)
        .unwrap()
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
        .collect();
    assert_eq!(table.len(), 3, "{shown}");
    assert_eq!(table[0][..3], ["SERVER", "RELEASE", "SEEN"], "{shown}");
    for (row, name) in table[1..].iter().zip(["mx1", "mx2"]) {
        assert_eq!((row[0], row[1], row[6]), (name, env!("CARGO_PKG_VERSION"), &one[..12]));
        assert!(row[5].ends_with(" ms"), "{shown}");
    }
    // Another policy on one of them.
    assert!(apply(&second, "200/1h").status.success());
    let found = doctor(&first);
    let [.., (level, differ)] = &found[..] else { panic!("nothing") };
    assert!(level == "warning" && differ.starts_with("the policies of the servers differ: "));
    // A policy that was applied while Redis was down: any command shows it later.
    redis.process.signal(Signal::STOP);
    let applied = apply(&second, "100/1h");
    let said = text(&applied.stderr);
    assert!(applied.status.success() && said.contains("do not know"), "{applied:?}");
    // The agent has written what it knew; a file that was not there yet is no error.
    let seen = status(&second);
    assert!(seen["servers_seen"].is_array() || seen["servers_error"].is_string(), "{seen}");
    redis.process.signal(Signal::CONT);
    assert_eq!(policies(&second), [Some(one.clone()), Some(one.clone())]);
    assert_eq!(policies(&first), [Some(one.clone()), Some(one.clone())]);

    // The bound is wrong where there are more than expected.
    let third = other(&first, "mx3");
    let mut agent = third.start_deciding();
    until("all are known", || policies(&first).len() == 3);
    let found = doctor(&first);
    assert!(
        found.iter().any(|(level, text)| level == "problem" && text.starts_with("3 servers share")),
        "{found:?}"
    );
    // It ends, and is removed from another server.
    agent.signal(Signal::KILL);
    agent.wait();
    let forget = |name: &str| run(&first, &["cluster", "forget", name]);
    assert_eq!(text(&forget("mx3").stdout), "mx3 is forgotten\n");
    let again = forget("mx3");
    assert_eq!(
        (again.status.code(), &*text(&again.stdout)),
        (Some(1), "nothing is known of mx3\n")
    );
    assert_eq!(forget("a b").status.code(), Some(2));
    // One leaves, and its agent still runs.
    let left = run(&second, &["cluster", "leave"]);
    assert!(
        left.status.success() && text(&left.stderr).contains("the agent still runs"),
        "{left:?}"
    );
    assert_eq!(policies(&first), [Some(one.clone())]);
}

#[test]
fn the_agent_shows_all_servers_to_those_who_cannot_read_its_configuration() {
    let first = Machine::new(DEADLINE, "server_name = \"mx1\"");
    let _redis = first.redis();
    let second = other(&first, "mx2");
    let _agents = [&first, &second].map(Machine::start_deciding);
    let file = second.path("agent.servers");
    until("the second shows both", || {
        std::fs::read_to_string(&file).is_ok_and(|shown| shown.contains("agent mx1\t"))
    });
    assert!(join(&second).status.success());
    std::fs::rename(second.path("exirate.toml"), second.path("moved")).unwrap();
    let shown = status(&second);
    let servers = shown["servers_seen"].as_array().unwrap();
    let names: Vec<_> =
        servers.iter().map(|one| (one["name"].as_str().unwrap(), &one["this"])).collect();
    assert_eq!(names, [("mx1", &false.into()), ("mx2", &true.into())]);
    // What makes the database.
    let counted = run(&second, &["check", "--count", "10 / 1h / per_cmd / strict / alice"]);
    assert!(counted.status.success(), "{counted:?}");
    let metrics = text(&run(&second, &["stats", "--prometheus"]).stdout);
    assert!(metrics.contains("\nexirate_cluster_server_info{server=\"mx1\","), "{metrics}");
    // Of somebody else, it is not read.
    std::os::unix::fs::chown(&file, Some(7), None).unwrap();
    let shown = status(&second);
    assert!(shown["servers_error"].as_str().unwrap().contains("exirate.toml"), "{shown}");
    let shown = text(&run(&second, &["cluster", "status"]).stdout);
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("others     are not shown: cannot read "), "{shown}");
}
