//! The program's commands on rates that servers share.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use exirate::engine::{Algorithm, Check, Overridden, RecordKey};
use exirate::rate::Timestamp;
use exirate::rate::habits::Sensitivity;
use exirate::redis::{Secret, Servers, Settings};
use exirate::spool::habits::SentMessage;
use exirate::spool::{EventDetails, Options, Spool};
use exirate::store::Store as _;
use exirate::store::habits_key;
use tokio::runtime::Runtime;

use crate::asker::{Asker, runtime, settings, tcp};
use crate::permissions::documented;
use crate::sums::{nodes, with_long_deadline};
use kit::redis::{Cluster, RedisServer};
use kit::until;

/// Mail servers that share their limits, and what their agents would ask.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    runtime: Runtime,
    asker: Asker,
}

impl Site {
    /// Its servers are called `mx1` and `mx2`, and a third one, `alone`, shares nothing.
    pub(crate) fn new(redis: &str, settings: &Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("exirate.toml");
        let text = format!(
            "[redis]\n{redis}\nuser = \"exirate\"\npassword_file = \"{}\"\n[agent]\nservers = 2\n",
            folder.path().join("password").display()
        );
        fs::write(&config, text).unwrap();
        let password = folder.path().join("password");
        fs::write(&password, "right\n").unwrap();
        fs::set_permissions(&password, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let (user, password) = (Some("exirate".into()), Some(Secret("right".into())));
        let settings = with_long_deadline(&Settings { user, password, ..settings.clone() });
        let site = Self { folder, runtime: runtime(), asker: Asker::new(&settings) };
        fs::create_dir(site.spool("alone")).unwrap();
        for server in ["mx1", "mx2"] {
            fs::create_dir(site.spool(server)).unwrap();
            let config = config.to_str().unwrap();
            let join =
                ["cluster", "join", "--servers", "2", "--agent-user", "0", "--config", config];
            // No agent runs.
            assert_eq!(site.run(server, &join).status.code(), Some(1));
        }
        site
    }

    /// A file of the site.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn spool(&self, server: &str) -> PathBuf {
        self.folder.path().join(server)
    }

    pub(crate) fn run(&self, server: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(arguments).arg("--spool").arg(self.spool(server));
        command.output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn output(&self, server: &str, arguments: &[&str]) -> String {
        let output = self.run(server, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The keys and the rates that `exirate list` shows, in order.
    fn listed(&self, server: &str, arguments: &[&str]) -> Vec<(String, f64)> {
        let text = self.output(server, &[&["list", "--json"], arguments].concat());
        let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let facts = |one: &serde_json::Value| {
            let rate = one["last_rate"].as_f64().unwrap();
            (one["key"].as_str().unwrap().to_owned(), rate.round())
        };
        let mut all: Vec<_> = list.iter().map(facts).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Counts an event of `alice` or the like; the rate, and what an override has decided.
    pub(crate) fn count(&mut self, key: &str, event: Option<&str>) -> (f64, Option<Overridden>) {
        let name = format!("1d/per_rcpt{}/{key}", if event.is_some() { "/unique" } else { "" });
        let check = Check {
            event: event.map(str::as_bytes),
            ..Check::new(
                RecordKey { identity_start: name.len() - key.len(), ..name.as_str().into() },
                Algorithm::MovingAverage { limit: 100.0, period: 86400.0 },
            )
        };
        let decision = self.runtime.block_on(self.asker.ask(&[check])).unwrap()[0];
        (decision.rate.round(), decision.overridden)
    }
}

fn pairs(all: &[(&str, f64)]) -> Vec<(String, f64)> {
    all.iter().map(|(key, rate)| ((*key).to_owned(), *rate)).collect()
}

/// What a site may do with rates, on whatever Redis.
fn commands_work(site: &mut Site) {
    for _ in 0..3 {
        site.count("alice", None);
    }
    site.count("bob", None);
    for event in ["a", "b", "a"] {
        site.count("carol", Some(event));
    }
    let all = pairs(&[("alice", 3.0), ("bob", 1.0), ("carol", 2.0)]);
    for server in ["mx1", "mx2"] {
        assert_eq!(site.listed(server, &[]), all);
        assert_eq!(site.listed(server, &["a*"]), all[..1]);
    }
    // They are those of no server alone.
    let local = site.run("mx1", &["list", "--local"]);
    assert_eq!(local.status.code(), Some(2), "there is no database yet: {local:?}");
    let shown = site.output("mx2", &["show", "carol", "--event", "a"]);
    assert!(shown.contains("1d") && shown.contains("per_rcpt"), "{shown}");
    assert!(site.output("mx1", &["top", "--once"]).contains("alice"));

    let far = site.run("mx1", &["set", "bob", "--at", "2999-01-01 00:00", "--rate", "5"]);
    let words = String::from_utf8(far.stderr).unwrap();
    assert!(words.contains("a time more than a year ahead"), "{words}");
    assert_eq!(site.listed("mx2", &["bob"]), all[1..2], "it is unchanged");
    site.output("mx1", &["set", "bob", "--rate", "50"]);
    assert_eq!(site.count("bob", None).0, 51.0);
    site.output("mx1", &["set", "carol", "--event", "z"]);
    assert_eq!(site.count("carol", Some("z")).0, 2.0, "it is known");

    let stats = site.output("mx1", &["stats"]);
    assert!(stats.contains("\n  keys      3, 0 blocked now\n"), "{stats}");

    // What is exported and reset can be imported again, with the unique events.
    let file = site.folder.path().join("rates.jsonl");
    let file = file.to_str().unwrap();
    site.output("mx2", &["export", "-o", file]);
    site.output("mx1", &["unblock", "*", "--yes"]);
    assert_eq!(site.listed("mx2", &[]), []);
    assert_eq!(site.count("alice", None).0, 1.0, "it starts from nothing");
    let imported = site.output("mx2", &["import", file]);
    assert!(imported.starts_with("imported 2 records\n1 skipped"), "{imported}");
    assert_eq!(site.listed("mx1", &[]), pairs(&[("alice", 1.0), ("bob", 51.0), ("carol", 2.0)]));
    assert_eq!(site.count("carol", Some("b")).0, 2.0, "it is known");

    // The rates of a server from before it joined.
    Spool::open(&site.spool("alone"), Options::default()).unwrap();
    let dave = ["set", "dave", "--create", "--mode", "per_mail", "--period", "1d"];
    site.output("alone", &[&dave[..], &["--rate", "7", "--limit", "10"]].concat());
    site.output("alone", &["export", "-o", file]);
    site.output("mx1", &["import", file]);
    assert_eq!(site.listed("mx2", &["dave"]), pairs(&[("dave", 7.0)]));

    // Habits are of one server, also where the key of their hashes is that of all.
    let mut before = Spool::open(&site.spool("alone"), Options::default()).unwrap();
    let message = SentMessage { at: 1_800_000_000, client: None, recipients: [&b"a@x.test"[..]] };
    let mut name = Vec::new();
    let key = habits_key(b"auth:erin", &mut name);
    before.learn_habits(key, message, Sensitivity::Normal).unwrap();
    drop(before);
    let shared = site.output("mx1", &["export"]);
    let alone = site.output("alone", &["export"]);
    let habits = alone.lines().find(|line| line.contains("auth:erin")).unwrap();
    fs::write(file, format!("{}\n{habits}\n", shared.lines().next().unwrap())).unwrap();
    let imported = site.output("mx1", &["import", file]);
    assert!(imported.starts_with("imported 0 records\nhabits of 1 account left out"), "{imported}");
    let count = |text: String| text.lines().count();
    assert_eq!(count(site.output("mx1", &["export"])), count(shared));

    // What was changed is logged where it was done.
    let log = fs::read_to_string(site.spool("mx1").join("exirate/audit.log")).unwrap();
    assert!(
        log.contains(" set ") && log.contains(" unblock ") && log.contains(" import "),
        "{log}"
    );

    overrides_are_shared(site);
    crossings_are_shared(site);
}

/// The crossings of all servers are seen on each, and a person is removed from everything.
fn crossings_are_shared(site: &mut Site) {
    for (server, key) in [("mx1", "eve"), ("mx2", "mallory")] {
        let mut spool = Spool::open(&site.spool(server), Options::default()).unwrap();
        let name = format!("1h/per_rcpt/{key}");
        let check = Check::new(
            RecordKey { identity_start: 12, ..name.as_str().into() },
            Algorithm::MovingAverage { limit: 0.5, period: 3600.0 },
        );
        let now = Timestamp::from(exirate::sys::clock::now());
        assert!(spool.decide_one(&check, || now).unwrap().crossed);
        let details = EventDetails { login: key.as_bytes(), ..EventDetails::default() };
        spool.describe(&details);
    }
    let shown = |site: &Site, server: &str, more: &[&str]| {
        let text = site.output(server, &[&["events", "--json"], more].concat());
        let event = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let of = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
            [of("login"), of("key"), of("server")].join(" ")
        };
        text.lines().map(event).collect::<Vec<_>>()
    };
    assert_eq!(shown(site, "mx1", &["--local"]), ["eve eve -"]);
    // What has not been sent to the others yet is explained as well.
    let unsent = site.run("mx1", &["explain", "eve", "--crossing"]);
    assert!(unsent.stdout.starts_with(b"eve: no messages are recorded here\n"), "{unsent:?}");
    // Both have the name of this machine; a second run sends nothing again.
    for server in ["mx1", "mx2", "mx1"] {
        site.output(server, &["events", "deliver"]);
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    let both = [format!("eve eve {host}"), format!("mallory mallory {host}")];
    assert_eq!(shown(site, "mx1", &[]), both);
    assert_eq!(shown(site, "mx2", &["mallory"]), both[1..]);
    let table = site.output("mx2", &["events"]);
    assert!(table.contains("SERVER") && table.contains(host), "{table}");

    explanations_are_of_all_servers(site, host);
    site.output("mx1", &["deny", "eve"]);
    let found = site.output("mx2", &["erase", "eve", "--dry-run"]);
    assert!(found.contains("would be removed: 1 record, 1 crossing, 1 override"), "{found}");
    let erased = site.output("mx1", &["erase", "eve", "--yes"]);
    assert!(erased.contains("removed: 2 records, 2 crossings, 1 refusal, 1 override"), "{erased}");
    assert_eq!(shown(site, "mx2", &[]), both[1..]);
    assert_eq!(site.run("mx2", &["list", "eve"]).status.code(), Some(1));
    assert_eq!(site.run("mx2", &["overrides"]).stdout, b"");
}

/// Each server explains the crossings of all and the shared rates, and names the server that
/// knows more. `eve` has crossed a limit on the server `host`, which both are called.
fn explanations_are_of_all_servers(site: &mut Site, host: &str) {
    site.count("eve", None);
    let explain = |site: &Site, server: &str, more: &[&str]| {
        let output = site.run(server, &[&["explain", "eve"], more].concat());
        let [out, noted] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), out, noted)
    };
    let now = "now, eve, per_rcpt\n  next      100/1d: rate 1.0 before, 2.0 with this event";
    let (code, out, noted) = explain(site, "mx1", &["--since", "1d", "--limit", "9"]);
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    assert!(out.starts_with("eve can send now\neve: refused at ") && out.contains(now), "{out}");
    assert_eq!(out.matches("eve: ").count(), 1, "it is the same event in both logs: {out}");
    let (_, out, _) = explain(site, "mx2", &[]);
    let over = "eve can send now\neve: over its limit, no refusal is logged, at ";
    assert!(out.starts_with(over), "{out}");
    assert!(out.contains(&format!("server {host}\n")) && out.contains(now), "{out}");

    // A server of another name.
    let config = site.folder.path().join("exirate.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{before}server_name = \"mx9\"\n")).unwrap();
    let (code, out, _) = explain(site, "mx2", &[]);
    assert_eq!(code, Some(0));
    assert!(
        out.starts_with("eve can send now\neve: over its limit at ") && out.contains(now),
        "{out}"
    );
    assert!(out.contains("refusals are logged where they happen"), "{out}");
    let (code, _, noted) = explain(site, "mx2", &["--crossing"]);
    assert_eq!(code, Some(1));
    let there = format!("on {host}, run `exirate explain --crossing eve`\n");
    assert!(noted.ends_with(&there), "{noted}");
    fs::write(&config, before).unwrap();

    let (code, _, noted) = explain(site, "mx2", &["--local"]);
    assert_eq!(code, Some(1));
    assert!(noted.contains("no refusal or crossing of eve is logged"), "{noted}");
}

fn overrides_are_shared(site: &mut Site) {
    site.output("mx1", &["allow", "alice", "--until", "1d"]);
    site.output("mx2", &["deny", "bob"]);
    let both = site.output("mx1", &["overrides"]);
    assert!(both.contains("alice") && both.contains("bob"), "{both}");
    let listed = site.output("mx2", &["list"]);
    assert!(listed.contains("denied"), "{listed}");
    // An agent looks at them once a second.
    // What is set last is seen last.
    site.output("mx2", &["deny", "zed"]);
    until("zed is denied", || site.count("zed", None).1 == Some(Overridden::Deny));
    assert_eq!(site.count("alice", None).1, Some(Overridden::Allow));
    assert_eq!(site.count("bob", None).1, Some(Overridden::Deny));
    let unblocked = site.output("mx1", &["unblock", "bob"]);
    assert!(unblocked.contains("removed: bob is denied"), "{unblocked}");
    site.output("mx2", &["overrides", "--remove", "alice"]);
    site.output("mx2", &["overrides", "--remove", "zed"]);
    assert_eq!(site.run("mx1", &["overrides"]).stdout, b"");
    until("zed is not denied", || site.count("zed", None).1.is_none());
    assert_eq!(site.count("bob", None), (1.0, None));
}

/// The user and its permissions, as the documentation has them.
pub(crate) fn set_user(server: &RedisServer) {
    let documented = documented();
    let mut command = vec!["acl", "setuser", "exirate", "reset", "on", ">right"];
    command.extend(documented.iter().map(String::as_str));
    assert_eq!(server.ask(&command), "OK\n");
}

#[test]
fn the_commands_work_on_one_redis_and_say_when_it_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start(folder.path(), "redis", &[]);
    set_user(&server);
    let url = format!("server = \"redis://127.0.0.1:{}\"", server.port);
    let mut site = Site::new(&url, &settings(Servers::Single(tcp(server.port))));
    commands_work(&mut site);
    // What another program has put there is left alone, and reported.
    server.ask(&["set", "exirate:{0000000000000000}sm0:nobody", "y"]);
    server.ask(&["lpush", "exirate:{0000000000000000}sm0:1h/nobody", "y"]);
    // A user that was set up as 0.1.0 said may not use MGET.
    let listed = ["+mget", "-mget"].map(|right| {
        server.ask(&["acl", "setuser", "exirate", right]);
        let listed = site.run("mx1", &["list"]);
        let words = String::from_utf8(listed.stderr).unwrap();
        assert!(words.contains("left out 2 damaged records in redis://127.0.0.1"), "{words}");
        let table = String::from_utf8(listed.stdout).unwrap();
        let keys = table.lines().map(|line| line.split_whitespace().last().unwrap().to_owned());
        keys.collect::<BTreeSet<_>>()
    });
    let all = ["KEY", "alice", "bob", "carol", "dave", "zed"].map(str::to_owned);
    assert_eq!(listed, [BTreeSet::from(all.clone()), BTreeSet::from(all)]);
    server.ask(&["xadd", "exirate:events", "*", "server", "mx3", "id", "1", "event", "later"]);
    let events = site.run("mx1", &["events", "nobody"]);
    let words = String::from_utf8(events.stderr).unwrap();
    assert!(words.contains("left out 1 event in redis://127.0.0.1"), "{words}");
    // Of another key, the value is not read.
    server.ask(&["set", "exirate:{0000000000000000}sm0:another", "y"]);
    let erased = site.run("mx1", &["erase", "nobody", "--yes"]);
    let words = String::from_utf8(erased.stderr).unwrap();
    assert_eq!(erased.status.code(), Some(1), "{words}");
    assert!(words.contains("left: 2 damaged records in redis://127.0.0.1"), "{words}");
    let unread = format!("left: 1 crossing in redis://127.0.0.1:{}", server.port);
    assert!(words.contains(&unread), "{words}");
    assert_eq!(server.ask(&["xlen", "exirate:events"]), "2\n", "it is kept");
    server.kill();
    for command in [&["list"][..], &["unblock", "alice"], &["allow", "alice"], &["export"]] {
        let output = site.run("mx1", command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let words = String::from_utf8(output.stderr).unwrap();
        let begin = format!("exirate: the shared rates at redis://127.0.0.1:{}", server.port);
        assert!(words.starts_with(&begin), "{words}");
        assert!(words.contains("cannot be used: the connection is refused"), "{words}");
        assert!(words.contains("--local uses the copies"), "{words}");
    }
    assert!(site.run("mx1", &["list", "--local"]).status.success());
    // What the settings do not say cannot be searched.
    let joined = site.spool("mx2").join("exirate/cluster");
    fs::write(&joined, "servers many\n").unwrap();
    let erased = site.run("mx2", &["erase", "nobody", "--dry-run"]);
    let words = String::from_utf8(erased.stderr).unwrap();
    assert_eq!(erased.status.code(), Some(1), "{words}");
    assert!(words.contains("left: what is shared with other servers: "), "{words}");
    // Without the configuration nothing can be connected to.
    let config = site.folder.path().join("exirate.toml");
    fs::write(&config, "[redis]\nserver = 7\n").unwrap();
    let output = site.run("mx1", &["list"]);
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        words.contains("exirate.toml has errors, which `exirate serve agent --check"),
        "{words}"
    );
    fs::remove_file(&config).unwrap();
    let words = String::from_utf8(site.run("mx1", &["list"]).stderr).unwrap();
    assert!(words.contains("exirate.toml"), "{words}");
}

pub(crate) fn on_cluster(cluster: &Cluster) -> Site {
    let url = |node: &RedisServer| format!("\"redis://127.0.0.1:{}\"", node.port);
    let urls: Vec<String> = cluster.nodes.iter().map(url).collect();
    let redis = format!("cluster = [{}]", urls.join(", "));
    Site::new(&redis, &settings(nodes(cluster)))
}

#[test]
fn the_commands_work_on_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    cluster.nodes.iter().for_each(set_user);
    let mut site = on_cluster(&cluster);
    commands_work(&mut site);
    // Keys of all primaries.
    let names: Vec<String> = (0..300).map(|number| format!("u{number:03}")).collect();
    for name in &names {
        site.count(name, None);
    }
    let expected: Vec<_> = names.iter().map(|name| (name.clone(), 1.0)).collect();
    assert_eq!(site.listed("mx2", &["u*"]), expected);
    site.output("mx1", &["unblock", "u*", "--yes"]);
    assert_eq!(site.run("mx2", &["list", "u*"]).status.code(), Some(1));
}

#[test]
fn the_keys_of_the_other_nodes_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::of_primaries(folder.path(), &[5461, 5461, 5462]);
    cluster.nodes.iter().for_each(set_user);
    let mut site = on_cluster(&cluster);
    let names: Vec<String> = (0..60).map(|number| format!("u{number:02}")).collect();
    for name in &names {
        site.count(name, None);
    }
    // Without the secret nobody can tell which key is whose.
    let has_secret = |node: &RedisServer| node.ask(&["exists", "exirate:secret"]) == "1\n";
    let away = cluster.nodes.iter().position(|node| !has_secret(node)).unwrap();
    cluster.nodes[away].kill();
    let port = cluster.nodes[away].port;
    let mut listed = String::new();
    kit::until("the others go on", || {
        let output = site.run("mx1", &["list", "u*"]);
        let words = String::from_utf8(output.stderr).unwrap();
        listed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
        words.contains(&format!("the keys of the node 127.0.0.1:{port} are missing: "))
            && words.contains("the output is incomplete: 1 part of the rates could not be read")
    });
    let found = names.iter().filter(|name| listed.contains(*name)).count();
    assert!(found > 0 && found < names.len(), "{found} of {}", names.len());
    let output = site.run("mx1", &["unblock", "u*", "--yes"]);
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("1 part of the rates could not be read: their keys were"), "{words}");
    assert_eq!(output.status.code(), Some(2));
}
