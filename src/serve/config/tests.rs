use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keys::Key;
use super::{Checked, Config, Peers, check};
use crate::redis::Servers;
use crate::toml_file::diagnostic::{Severity, place};

/// A folder with the files that a configuration names.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("password", "geheim\nmore\n", 0o600);
    write("open", "geheim\n", 0o640);
    write("empty", "\n", 0o600);
    write("ca.pem", "-----BEGIN CERTIFICATE-----\n", 0o644);
    folder
}

/// What is found in a configuration in that folder, without the name of the file.
fn found(folder: &Path, text: &str) -> (Option<Config>, Vec<String>) {
    let Checked { config, diagnostics } = check(&folder.join("exirate.toml"), text);
    let files = [PathBuf::from("f")];
    let folder = format!("{}/", folder.display());
    let lines = diagnostics.sorted().into_iter().map(|one| {
        let mark = if one.severity == Severity::Warning { "warning: " } else { "" };
        format!("{}: {mark}{}", place(&files, one.at), one.message.replace(&folder, "DIR/"))
    });
    (config, lines.collect())
}

fn sound(text: &str) -> Config {
    let folder = folder();
    let (config, lines) = found(folder.path(), text);
    assert_eq!(lines, [""; 0]);
    config.unwrap()
}

const AGENT: &str = "[agent]\nservers = 4\n";

#[test]
fn a_small_configuration_has_defaults() {
    let config = sound("[redis]\nserver = \"redis://localhost\"\n[agent]\nservers = 4\n");
    assert_eq!(config.agent_socket, Path::new("/run/exirate/agent.sock"));
    assert_eq!(config.redis.servers.to_string(), "redis://localhost:6379");
    assert_eq!(config.redis.deadline, Duration::from_millis(100));
    assert_eq!((config.redis.user, config.redis.password, config.redis.ca), (None, None, None));
    let agent = config.agent;
    assert_eq!((agent.servers, agent.max_in_flight, agent.max_connections), (4, 1000, 4000));
    assert!(agent.peers.allow(0, 12345) && !agent.peers.allow(4_000_000_000, 0));
    assert!(!agent.server_name.is_empty());
}

#[test]
fn everything_can_be_set() {
    let config = sound(
        r#"
        [listen]
        agent = "/srv/agent.sock"
        policy = "inet:127.0.0.1:8892" # of the mail front ends, as [mail]
        milter = "inet:127.0.0.1:8893"
        [mail]
        record = true
        [redis]
        sentinel = { master = "mail", servers = ["rediss://s1.example.org", "rediss://[2001:db8::1]:26380"] }
        user = "exirate"
        password_file = "password"
        ca_file = "ca.pem"
        deadline = "2s"
        [agent]
        servers = 2
        server_name = "mx1"
        users = "root"
        groups = ["root"]
        max_in_flight = 5
        max_connections = 6
        "#,
    );
    assert_eq!(config.agent_socket, Path::new("/srv/agent.sock"));
    let redis = config.redis;
    let shown = "mail of the sentinels rediss://s1.example.org:26379, rediss://[2001:db8::1]:26380";
    assert_eq!(redis.servers.to_string(), shown);
    let password = redis.password.unwrap();
    assert_eq!((redis.user.as_deref(), password.0.as_str()), (Some("exirate"), "geheim"));
    assert_eq!(format!("{password:?}"), "***");
    assert_eq!(redis.deadline, Duration::from_secs(2));
    let peers = Peers { users: [0].into(), groups: [0].into() };
    assert_eq!((config.agent.peers, config.agent.server_name.as_str()), (peers, "mx1"));
    assert_eq!((config.agent.max_in_flight, config.agent.max_connections), (5, 6));
    for (line, shown) in [
        ("server = \"unix:///run/redis.sock\"", "unix:///run/redis.sock"),
        ("server = \"redis://192.0.2.1:7000/3\"", "redis://192.0.2.1:7000/3"),
        (
            "cluster = [\"redis://a\", \"redis://b:7001\"]",
            "the cluster of redis://a:6379, redis://b:7001",
        ),
    ] {
        let config = sound(&format!("[redis]\n{line}\n{AGENT}"));
        assert_eq!(config.redis.servers.to_string(), shown);
        assert_eq!(matches!(config.redis.servers, Servers::Cluster(_)), line.starts_with('c'));
    }
}

#[test]
fn every_error_says_where_and_what_would_be_right() {
    let folder = folder();
    let redis = |line: &str| format!("[redis]\n{line}\n{AGENT}");
    let agent = |line: &str| format!("[redis]\nserver = \"redis://a\"\n{AGENT}{line}\n");
    let address = "expected such as redis://192.0.2.1:6379, rediss://redis.example.org for TLS, \
                   or unix:///run/redis/redis.sock";
    let cases: &[(String, &[&str])] = &[
        ("[redis".to_owned(), &["f:1:7: not TOML: unclosed table, expected `]`"]),
        (
            "[redis]\n[redis]".to_owned(),
            &["f:2:2: not TOML: duplicate key redis; the first is in line 1"],
        ),
        (
            String::new(),
            &[
                "f:1:1: [agent] is missing: it says how many mail servers share the limits, such as servers = 4",
                "f:1:1: [redis] is missing: it names the server, such as server = \"redis://127.0.0.1:6379\"",
            ],
        ),
        (
            agent("[lisen]\nagent = \"/x\""),
            &[
                "f:5:2: unknown key \"lisen\" at the top of the file; did you mean \"listen\"? Allowed: listen, redis, agent, mail, follow, web",
            ],
        ),
        (
            agent("[listen]\nagent = \"agent.sock\""),
            &[
                "f:6:9: \"agent.sock\" is not the full path of a socket; expected such as \"/run/exirate/agent.sock\"",
            ],
        ),
        (
            agent(&format!("[listen]\nagent = \"/{}\"", "x".repeat(120))),
            &["f:6:9: the path of a socket has at most 107 bytes"],
        ),
        (
            redis("user = \"exirate\""),
            &[
                "f:1:1: the servers are missing; write server = \"redis://192.0.2.1:6379\", sentinel = { master = \"…\", servers = […] } or cluster = […]",
                "f:1:1: the user has no password; add password_file = \"…\"",
            ],
        ),
        (
            redis("server = \"redis://a\"\ncluster = [\"redis://b\"]"),
            &["f:3:1: cluster and server exclude each other; remove one of them"],
        ),
        (
            redis("server = [\"redis://a\", \"redis://b\"]"),
            &[
                "f:2:10: expected one address, found an array; for a Redis Cluster, write cluster = […]",
            ],
        ),
        (
            redis("servers = [\"redis://a\"]"),
            &[
                "f:1:1: the servers are missing; write server = \"redis://192.0.2.1:6379\", sentinel = { master = \"…\", servers = […] } or cluster = […]",
                "f:2:1: unknown key \"servers\" in [redis]; did you mean \"server\"? Allowed: server, sentinel, cluster, user, password_file, ca_file, deadline",
            ],
        ),
        (
            redis("server = \"http://a\""),
            &[&format!("f:2:10: \"http://a\" is not the address of a server; {address}")],
        ),
        (
            redis("server = \"redis://user:geheim@a\""),
            &[
                "f:2:10: a user or password does not belong in the address; write user = \"…\" and password_file = \"…\"",
            ],
        ),
        (redis("server = \"redis://a/x\""), &["f:2:10: \"x\" is not the number of a database"]),
        (
            redis("cluster = [\"redis://a\", \"rediss://b\", \"redis://c/1\", \"unix:///d\"]"),
            &[
                "f:2:25: some addresses have rediss:// and some redis://; use one of them for all",
                "f:2:39: only a single server has numbered databases; remove the number",
                "f:2:54: a unix socket is for a single server: server = \"unix:///…\"",
            ],
        ),
        (
            redis("sentinel = { servers = [\"redis://a\"] }"),
            &[
                "f:2:12: master is missing; expected such as { master = \"mymaster\", servers = [\"redis://192.0.2.1:26379\"] }",
            ],
        ),
        (
            redis("server = \"redis://localhost\"\npassword_file = \"open\""),
            &[
                "f:3:17: other users can read DIR/open, which has mode 640: chmod 600 DIR/open, and change the password",
            ],
        ),
        (
            redis("server = \"redis://localhost\"\npassword_file = \"empty\""),
            &["f:3:17: DIR/empty is empty; its first line is the password"],
        ),
        (
            redis("server = \"redis://localhost\"\npassword_file = \"none\""),
            &["f:3:17: cannot read DIR/none: No such file or directory (os error 2)"],
        ),
        (
            redis("server = \"redis://localhost\"\npassword_file = \".\""),
            &["f:3:17: DIR/. is a directory, not a file"],
        ),
        (
            redis("server = \"rediss://localhost\"\nca_file = \"empty\""),
            &["f:3:11: DIR/empty has no certificate in PEM form"],
        ),
        (
            redis("server = \"redis://a\"\ndeadline = \"20\""),
            &["f:3:12: \"20\" is not a time; expected such as \"100ms\""],
        ),
        (
            redis("server = \"redis://a\"\ndeadline = \"1000s\""),
            &["f:3:12: \"1000s\" is not a time from 1ms to 10000ms"],
        ),
        (
            "[redis]\nserver = \"redis://a\"\n[agent]\n".to_owned(),
            &[
                "f:3:1: servers is missing: how many mail servers share the limits, such as servers = 4",
            ],
        ),
        (
            "[redis]\nserver = \"redis://a\"\n[agent]\nservers = 0\n".to_owned(),
            &["f:4:11: 0 is not a number from 1 to 10000"],
        ),
        (
            agent("server_name = \"mx 1\""),
            &[
                "f:5:15: \"mx 1\" is not a name of a server; expected up to 64 letters, digits and signs without blanks, such as mx1",
            ],
        ),
        (
            agent("users = [\"root\", \"nobody-here\"]\ngroups = [\"none-here\"]"),
            &[
                "f:5:18: there is no user \"nobody-here\" on this machine",
                "f:6:11: there is no group \"none-here\" on this machine",
            ],
        ),
        (agent("max_in_flight = -1"), &["f:5:17: -1 is not a number from 1 to 100000"]),
        (
            agent("max_connections = \"many\""),
            &["f:5:19: expected a number from 1 to 100000, found a string"],
        ),
    ];
    for (text, expected) in cases {
        let (config, lines) = found(folder.path(), text);
        assert_eq!(lines, *expected, "{text}");
        assert!(config.is_none(), "{text}");
    }
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let folder = folder();
    let text = format!(
        "[redis]\nserver = \"redis://192.0.2.1\"\npassword_file = \"password\"\nca_file = \"ca.pem\"\n{AGENT}"
    );
    let (config, lines) = found(folder.path(), &text);
    assert_eq!(
        lines,
        [
            "f:1:1: warning: ca_file has no effect without rediss:// addresses",
            "f:1:1: warning: the password and all keys go to redis://192.0.2.1:6379 in clear text; \
             use rediss:// unless the network is safe",
        ]
    );
    assert!(config.is_some());
    for local in ["redis://127.0.0.1", "redis://[::1]", "redis://localhost", "unix:///run/r"] {
        sound(&format!("[redis]\nserver = \"{local}\"\npassword_file = \"password\"\n{AGENT}"));
    }
}

/// The line of `key` in a section of the example, which may be a comment: its value.
fn example<'e>(example: &'e str, section: &str, key: &str) -> Option<&'e str> {
    let (_, own) = example.split_once(&format!("[{section}]\n"))?;
    let own = own.split("\n[").next()?;
    let value = |line: &'e str| {
        line.strip_prefix("# ").unwrap_or(line).strip_prefix(key)?.strip_prefix(" = ")
    };
    own.lines().find_map(value)
}

/// A key for the reference: its name, its default as the file would say it, and its row.
fn row<C>(section: &str, key: &Key<C>) -> (String, Option<&'static str>, String) {
    let [default, help] = key.about;
    let in_words = default.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let shown = match in_words {
        Some(text) => text.trim_matches('"').replace("\\\"", "\""),
        None => format!("`{default}`"),
    };
    let row = format!("| `{section}.{}` | {shown} | {} |\n", key.name, help.trim());
    (key.name.to_owned(), in_words.is_none().then_some(default), row.replace("|  |", "| |"))
}

fn rows<C>(section: &str, keys: &[Key<C>]) -> Vec<(String, Option<&'static str>, String)> {
    keys.iter().map(|key| row(section, key)).collect()
}

#[test]
fn documents_and_the_example_have_each_key_and_its_default() {
    let read =
        |path| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let shown = read("scripts/maintenance/exirate.toml");
    let (mail, cluster) = (read("docs/serve-mail.md"), read("docs/cluster.md"));
    let (failed, desk) = (read("docs/failed-deliveries.md"), read("docs/desk.md"));
    let agent = |line: &str, section: &str| {
        let mut text = [("redis", "server = \"redis://127.0.0.1\""), ("agent", "servers = 2")]
            .map(|(name, own)| format!("[{name}]\n{own}\n"));
        let at = usize::from(section == "agent");
        text[at] += line;
        let checked = check(Path::new("/f"), &text.concat());
        checked.config.unwrap_or_else(|| panic!("{:?}", checked.diagnostics))
    };
    let front_ends = |line: &str| {
        let text = format!("[listen]\npolicy = \"unix:/run/a\"\n[mail]\n{line}");
        super::check_mail(Path::new("/f"), &text).config.unwrap()
    };
    let followed = |line: &str| {
        let read = super::follow::read;
        super::checked(Path::new("/f"), &format!("[follow]\n{line}"), read).config.unwrap()
    };
    let web = |line: &str| {
        let read = super::web::read;
        super::checked(Path::new("/f"), &format!("[web]\n{line}"), read).config.unwrap()
    };
    let front_ends_listen = rows("listen", &super::mail::LISTEN[1..]);
    for (section, document, rows) in [
        ("listen", &mail, front_ends_listen),
        ("listen", &cluster, rows("listen", &super::LISTEN[..1])),
        ("mail", &mail, rows("mail", super::mail::KEYS)),
        ("redis", &cluster, rows("redis", super::redis::KEYS)),
        ("agent", &cluster, rows("agent", super::KEYS)),
        ("follow", &failed, rows("follow", super::follow::KEYS)),
        ("web", &desk, rows("web", super::web::KEYS)),
    ] {
        let table: String = rows.iter().map(|(.., row)| &**row).collect();
        assert!(document.contains(&table), "the document has other rows than\n{table}");
        for (name, default, _) in rows {
            let value = example(&shown, section, &name);
            let value = value.unwrap_or_else(|| panic!("the example has no {section}.{name}"));
            let Some(default) = default else { continue };
            assert_eq!(default, value, "{section}.{name}");
            let line = format!("{name} = {value}\n");
            match section {
                "mail" => assert_eq!(front_ends(&line), front_ends(""), "{name}"),
                "follow" => assert_eq!(followed(&line), followed(""), "{name}"),
                "web" => assert_eq!(web(&line), web(""), "{name}"),
                "listen" => assert_eq!(
                    agent("", "agent").agent_socket,
                    Path::new(default.trim_matches('"'))
                ),
                _ => assert_eq!(agent(&line, section), agent("", section), "{name}"),
            }
        }
    }
}

#[test]
fn an_example_of_a_log_is_a_log() {
    for (log, instead) in [
        ("Journal", "did you mean \"journal\"?"),
        ("mail.log", "expected such as \"/var/log/mail.log\""),
        ("journal:x", "expected such as \"/var/log/journal\""),
    ] {
        let text = format!("follow.log = {log:?}");
        let checked = super::checked(Path::new("f"), &text, super::follow::read);
        let message = checked.diagnostics.sorted().remove(0).message;
        assert!(message.ends_with(&format!("is not a full path; {instead}")), "{message}");
    }
}
