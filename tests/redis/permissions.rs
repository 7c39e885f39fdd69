//! The permissions that docs/cluster.md gives the ACL user.

use exirate::redis::{RedisError, Register, Secret, Servers, Settings};

use crate::asker::{Asker, level, runtime, settings, tcp, unique};
use crate::servers::{announce, announcement};
use crate::sums::{nodes, sums_are_exact, with_long_deadline};
use kit::redis::{Cluster, RedisServer};

/// What is needed to decide.
const COMMANDS: [&str; 10] = [
    "+set",
    "+evalsha",
    "+eval",
    "+time",
    "+getrange",
    "+strlen",
    "+setrange",
    "+setbit",
    "+getbit",
    "+pexpire",
];

/// What the program's commands need besides to read records.
const READ: [&str; 2] = ["+get", "+mget"];

/// What is needed besides to show the servers to each other.
const SHOW: [&str; 4] = ["+hset", "+hget", "+hgetall", "+hdel"];

/// The permissions in the documentation: the line of the user after its password.
pub(crate) fn documented() -> Vec<String> {
    let text = include_str!("../../docs/cluster.md");
    let start = "ACL SETUSER exirate on >PASSWORD ";
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.expect("docs/cluster.md shows the user").split(' ').map(str::to_owned).collect()
}

fn as_user(servers: Servers) -> Settings {
    let (user, password) = (Some("exirate".into()), Some(Secret("right".into())));
    with_long_deadline(&Settings { user, password, ..settings(servers) })
}

#[test]
fn a_user_with_the_documented_permissions_may_decide_and_needs_each() {
    let folder = tempfile::tempdir().unwrap();
    let documented = documented();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let set = |permissions: &[&str]| {
        let start = ["acl", "setuser", "exirate", "reset", "on", ">right"];
        assert_eq!(server.ask(&[&start[..], permissions].concat()), "OK\n");
    };
    let all: Vec<&str> = documented.iter().map(String::as_str).collect();
    set(&all);
    let settings = as_user(Servers::Single(tcp(server.port)));
    sums_are_exact(&settings, "user");
    // Nothing but deciding.
    let mut exact = vec!["~exirate:*"];
    exact.extend(COMMANDS);
    for one in exact.iter().chain(&READ).chain(&SHOW) {
        assert!(all.contains(one), "docs/cluster.md lacks {one}");
    }
    // Nobody can load the script before, in the absence of +eval.
    let mut wrong: Vec<Vec<&str>> = Vec::new();
    for lacks in &exact {
        wrong.push(exact.iter().filter(|one| *one != lacks).copied().collect());
    }
    let asked = || {
        runtime().block_on(async {
            let mut asker = Asker::new(&settings);
            for number in 0..3 {
                let address = number.to_string();
                asker.ask(&[level("alice"), unique("bob", &address)]).await?;
            }
            Ok::<(), String>(())
        })
    };
    for permissions in &wrong {
        server.ask(&["flushall"]);
        server.ask(&["script", "flush"]);
        set(permissions);
        let why = asked().expect_err(&format!("{permissions:?} are enough"));
        assert!(why.contains("lacks a permission"), "{permissions:?}: {why}");
    }
    set(&exact);
    asked().unwrap();
}

#[test]
fn they_are_enough_on_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    let documented = documented();
    for node in &cluster.nodes {
        let mut command = vec!["acl", "setuser", "exirate", "reset", "on", ">right"];
        command.extend(documented.iter().map(String::as_str));
        assert_eq!(node.ask(&command), "OK\n");
    }
    sums_are_exact(&as_user(nodes(&cluster)), "user");
}

#[test]
fn servers_are_shown_with_the_documented_permissions_and_needs_each() {
    let folder = tempfile::tempdir().unwrap();
    let documented = documented();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let settings = as_user(Servers::Single(tcp(server.port)));
    let shown = |lacks: &str| {
        server.ask(&["flushall"]);
        let mut command = vec!["acl", "setuser", "exirate", "reset", "on", ">right"];
        command.extend(documented.iter().map(String::as_str).filter(|one| *one != lacks));
        assert_eq!(server.ask(&command), "OK\n");
        announce(&settings, &announcement("mx1", 1)).map_err(|error| error.to_string())?;
        let show = || {
            let register = Register::open(&settings)?;
            register.set_policy("mx1", Some(&"0".repeat(32)))?;
            register.set_policy("mx1", None)?;
            assert_eq!(register.servers()?.servers.len(), 1);
            register.forget("mx1")
        };
        show().map_err(|error: RedisError| error.to_string())
    };
    assert_eq!(shown(""), Ok(true));
    for lacks in SHOW {
        let why = shown(lacks).expect_err(lacks);
        assert!(why.contains("lacks a permission"), "{lacks}: {why}");
    }
}
