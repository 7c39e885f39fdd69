//! The desk on rates that servers share: what is blocked on one is shown on another, and unblocked for
//! all.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use exirate::engine::Overridden;
use exirate::rate::usage::Sent;
use exirate::redis::Servers;
use exirate::serve::web::role::Role;
use exirate::serve::web::token;
use exirate::spool::{Options, Spool};
use exirate::store::{Counting, FOREVER, Store as _};
use exirate::sys::clock;
use serde_json::{Value, json};

use crate::asker::{settings, tcp};
use crate::tools::{Site, on_cluster, set_user};
use kit::redis::{Cluster, RedisServer};
use kit::{Process, TIMEOUT, until};

/// The web service and the broker of a server.
struct Desk {
    folder: tempfile::TempDir,
    token: String,
    _processes: [Process; 2],
}

impl Desk {
    /// Of the first server of a site, with a user of its own in Redis.
    fn of(site: &Site) -> Self {
        // The configuration that the servers have joined with.
        let (config, password) = (site.path("exirate.toml"), site.path("web.password"));
        fs::write(&password, "looks\n").unwrap();
        fs::set_permissions(&password, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let before = fs::read_to_string(&config).unwrap();
        let web =
            format!("[web]\nredis_user = \"exirate-web\"\nredis_password_file = {password:?}\n");
        fs::write(&config, before + &web).unwrap();
        // As a server has one that has ever made a check.
        drop(Spool::open(&site.spool("mx1"), Options::default()).unwrap());
        Self::start(&site.spool("mx1"))
    }

    /// Of the server whose database is in `spool`.
    fn start(spool: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let tokens = at.join("tokens");
        let token =
            token::change(&tokens, |all| all.add("desk", Role::Help, 0, FOREVER, None)).unwrap();
        fs::create_dir(at.join("state")).unwrap();
        let shown = at.display();
        let text = format!(
            "[mail]\nspool = {spool:?}\n[web]\nlisten = \"unix:{shown}/web\"\nuser = \"root\"\n\
             broker = \"{shown}/broker\"\nstate = \"{shown}/state\"\ntokens = {tokens:?}\n"
        );
        fs::write(at.join("desk.toml"), text).unwrap();
        let processes = ["broker", "web"].map(|what| {
            let log = File::options().create(true).append(true).open(at.join("log")).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
            command.args(["serve", what, "--config"]).arg(at.join("desk.toml"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
            let process = Process(command.spawn().unwrap());
            until("it listens", || UnixStream::connect(at.join(what)).is_ok());
            process
        });
        Self { folder, token, _processes: processes }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.folder.path().join("web")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (token, length) = (&self.token, body.len());
        let request = format!(
            "{method} /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, &Value::Null)
    }

    fn change(&self, verb: &str, body: Value) -> (u16, Value) {
        self.ask("POST", verb, &body)
    }

    /// How many changes are counted.
    fn counted(&self) -> String {
        fs::read_to_string(self.folder.path().join("state/changes")).unwrap_or_default()
    }
}

/// The permissions of the user of the web service, as the documentation has them.
fn documented() -> Vec<String> {
    let text = include_str!("../../docs/desk.md");
    let start = "ACL SETUSER exirate-web on >PASSWORD ";
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.expect("docs/desk.md shows the user").split(' ').map(str::to_owned).collect()
}

/// Sets those of the user of the web service.
fn set_permissions(server: &RedisServer, permissions: &[&str]) {
    let start = ["acl", "setuser", "exirate-web", "reset", "on", ">looks"];
    assert_eq!(server.ask(&[&start[..], permissions].concat()), "OK\n");
}

#[test]
fn the_user_who_looks_may_do_enough_on_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    let permissions = documented();
    let all: Vec<&str> = permissions.iter().map(String::as_str).collect();
    for node in &cluster.nodes {
        set_user(node);
        set_permissions(node, &all);
    }
    let mut site = on_cluster(&cluster);
    let desk = Desk::of(&site);
    // Keys of all primaries.
    for number in 0..30 {
        site.count(&format!("u{number}"), None);
    }
    assert_eq!(desk.get("status").1["keys"], 30);
    assert_eq!(desk.get("identity?key=u7").1["records"].as_array().map(Vec::len), Some(1));
    assert_eq!(desk.change("unblock", json!({ "key": "u7" })).0, 200);
    assert_eq!(site.run("mx2", &["list", "u7"]).status.code(), Some(1));
    assert_eq!(desk.get("status").1["keys"], 29);
}

/// Counts recipients of an account on a server.
fn sends(site: &Site, server: &str, account: &str, recipients: u64) {
    let mut spool = Spool::open(&site.spool(server), Options::default()).unwrap();
    let day = |at: i64| at.div_euclid(86_400);
    let sent = Sent { messages: 1, recipients, ..Sent::default() };
    let counting = Counting { identity: account.as_bytes(), sent, day: &day };
    spool.count_usage(&counting, || clock::now().into()).unwrap();
}

/// Each server counts what it accepts, also while it is apart; all show the sum.
fn usage_is_that_of_all_servers(site: &Site, desk: &Desk) {
    let config = fs::read_to_string(site.path("exirate.toml")).unwrap();
    let named = config.replace("[agent]\n", "[agent]\nserver_name = \"mx2\"\n");
    let other = site.path("mx2.toml");
    fs::write(&other, &named).unwrap();
    let config = other.to_str().unwrap();
    let join = ["cluster", "join", "--servers", "2", "--agent-user", "0", "--config", config];
    site.run("mx2", &join);
    let publish = |server: &str| {
        let done = site.run(server, &["events", "deliver"]);
        String::from_utf8(done.stderr).unwrap()
    };
    let shown = |server: &str| {
        let text = site.output(server, &["usage", "--days", "2", "--json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let row = |row: &Value| {
            (row["key"].as_str().unwrap().to_owned(), row["recipients"].as_u64().unwrap())
        };
        list["rows"].as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    let rows = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
        all.iter().map(|(key, sent)| (format!("auth:{key}@x.test"), *sent)).collect()
    };
    sends(site, "mx1", "auth:ann@x.test", 3);
    sends(site, "mx2", "auth:ann@x.test", 40);
    sends(site, "mx2", "auth:bob@x.test", 5);
    for server in ["mx1", "mx2"] {
        assert_eq!(publish(server), "");
    }
    let all = rows(&[("ann", 43), ("bob", 5)]);
    assert_eq!((shown("mx1"), shown("mx2")), (all.clone(), all));
    let of_domain = |desk: &Desk| {
        let (status, found) = desk.get("usage?key=domain:x.test");
        assert_eq!(status, 200, "{found}");
        let members = found["sent"][0]["members"].as_array().unwrap();
        members.iter().map(|one| one["recipients"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of_domain(desk), [43, 5]);
    // Apart, it counts on, and shows its own.
    fs::write(&other, named.replace("127.0.0.1:", "127.0.0.1:1")).unwrap();
    sends(site, "mx2", "auth:bob@x.test", 600);
    assert!(publish("mx2").contains("other servers do not know what accounts send here"));
    assert_eq!(shown("mx2"), rows(&[("bob", 605), ("ann", 40)]));
    let said = String::from_utf8(site.run("mx2", &["usage"]).stderr).unwrap();
    assert!(said.contains("this is what this server alone has accepted"), "{said}");
    assert_eq!(shown("mx1"), rows(&[("ann", 43), ("bob", 5)]));
    // Back, all of it is known.
    fs::write(&other, &named).unwrap();
    assert_eq!(publish("mx2"), "");
    assert_eq!(shown("mx1"), rows(&[("bob", 605), ("ann", 43)]));
    assert_eq!(of_domain(desk), [605, 43]);
    site.output("mx1", &["erase", "bob@x.test", "--yes"]);
    assert_eq!(shown("mx1"), rows(&[("ann", 43)]));
    site.output("mx1", &["cluster", "forget", "mx2"]);
    assert_eq!(shown("mx1"), rows(&[("ann", 3)]));
}

#[test]
fn what_servers_share_is_shown_and_unblocked_on_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start(folder.path(), "redis", &[]);
    set_user(&server);
    let permissions = documented();
    let allow = |permissions: &[&str]| set_permissions(&server, permissions);
    let all: Vec<&str> = permissions.iter().map(String::as_str).collect();
    allow(&all);
    let url = format!("server = \"redis://127.0.0.1:{}\"", server.port);
    let mut site = Site::new(&url, &settings(Servers::Single(tcp(server.port))));
    let desk = Desk::of(&site);
    for key in ["alice", "bob"] {
        site.count(key, None);
        site.output("mx2", &["set", key, "--rate", "500"]);
    }
    // Blocked by what another server has counted, and shown here.
    let (status, identity) = desk.get("identity?key=alice");
    assert_eq!((status, &identity["refused"]), (200, &json!(true)), "{identity}");
    assert_eq!(desk.get("status").1["blocked"], 2);
    // Each permission is needed, and no other: the broker alone may change.
    for lacks in ["+get", "+scan", "+hgetall"] {
        let others: Vec<&str> = all.iter().copied().filter(|one| *one != lacks).collect();
        assert!(others.len() < all.len(), "{lacks}");
        allow(&others);
        let (status, found) = desk.get("identity?key=alice");
        if lacks == "+get" {
            let detail = found["detail"].as_str().unwrap();
            assert!(status == 503 && detail.contains("lacks a permission"), "{found}");
        } else {
            // By its names without +scan, among all keys without +hgetall.
            assert_eq!((status, &found["refused"]), (200, &json!(true)), "{lacks}: {found}");
        }
    }
    allow(&all);
    // Unblocked here, and seen by another.
    let (status, done) = desk.change("unblock", json!({ "key": "alice" }));
    assert_eq!((status, &done["said"][0]), (200, &json!("alice can send again now")), "{done}");
    assert_eq!(site.run("mx2", &["list", "alice"]).status.code(), Some(1));
    assert_eq!(site.count("alice", None), (1.0, None));
    assert_eq!(desk.get("status").1["blocked"], 1);
    let body = json!({ "key": "carol", "seconds": 3600, "reason": "call" });
    assert_eq!(desk.change("deny", body.clone()).0, 200);
    until("carol is denied everywhere", || site.count("carol", None).1 == Some(Overridden::Deny));
    let log = fs::read_to_string(site.spool("mx1").join("exirate/audit.log")).unwrap();
    assert!(log.contains("web=token:desk unblock rate=") && log.contains(" deny until="), "{log}");
    usage_is_that_of_all_servers(&site, &desk);
    // Redis is away: that is shown, and nothing is changed or counted.
    let counted = desk.counted();
    server.kill();
    for path in ["identity?key=bob", "keys", "status", "overrides"] {
        let (status, problem) = desk.get(path);
        let detail = problem["detail"].as_str().unwrap_or_default();
        let away = format!("the shared rates at redis://127.0.0.1:{}", server.port);
        assert!(status == 503 && detail.starts_with(&away), "{path}: {problem}");
    }
    for (verb, body) in [("unblock", json!({ "key": "bob" })), ("deny", body)] {
        let (status, problem) = desk.change(verb, body);
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 503 && detail.contains("cannot be used"), "{verb}: {problem}");
    }
    assert_eq!(desk.counted(), counted);
}
