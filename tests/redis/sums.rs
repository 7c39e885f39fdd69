//! Several clients count on the same keys: the sum is exact, and each unique event is counted
//! once.

use exirate::engine::{Algorithm, Check};
use exirate::rate::CalendarWindow;
use exirate::redis::{Secret, Server, Servers, Settings, Transport};
use std::path::Path;
use std::process::Command;
use tokio::task::LocalSet;

use crate::asker::{Asker, average, level, runtime, settings, tcp, unique};
use kit::TIMEOUT;
use kit::redis::{Cluster, Program, RedisServer, Sentinels};

const CLIENTS: u64 = 8;
const EVENTS: u64 = 50;

/// A check by the calendar, in a window of decades. The clocks of the clients are decades apart.
fn in_window(identity: &str, client: u64) -> Check<'_> {
    const LENGTH: i64 = 1_200_000_000;
    let start = 1_500_000_000 + [0, 1, -1, 2][client as usize % 4] * LENGTH;
    let window = CalendarWindow { start, end: start + LENGTH };
    let algorithm = Algorithm::Calendar { limit: 1e6, window };
    Check { algorithm, ..level(identity) }
}

/// Counts from several clients at the same time, and looks at the sums of these keys, which
/// are new.
pub(crate) fn sums_are_exact(settings: &Settings, keys: &str) {
    let settings = &with_long_deadline(settings);
    let (shared, other, each) =
        (format!("{keys}-shared"), format!("{keys}-other"), format!("{keys}-each"));
    let campaign = format!("{keys}-campaign");
    let local = LocalSet::new();
    local.block_on(&runtime(), async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut asker = Asker::new(settings);
                let (shared, other) = (shared.clone(), other.clone());
                let (each, campaign) = (each.clone(), campaign.clone());
                tokio::task::spawn_local(async move {
                    asker.until_decided(&[]).await;
                    for number in 0..EVENTS {
                        let address = format!("{number}@example.org");
                        let own = format!("{each}-{}", number % 5);
                        let checks: [Check<'_>; 6] = [
                            level(&shared),
                            average(&shared),
                            level(&other),
                            level(&own),
                            unique(&campaign, &address),
                            in_window(&shared, client),
                        ];
                        let decisions = asker.ask(&checks).await.unwrap();
                        assert_eq!(decisions.len(), checks.len());
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let mut asker = Asker::new(settings);
        let all = CLIENTS * EVENTS;
        assert_eq!(asker.sum(level(&shared)).await, all);
        assert_eq!(asker.sum(average(&shared)).await, all);
        assert_eq!(asker.sum(level(&other)).await, all);
        assert_eq!(asker.sum(in_window(&shared, 0)).await, all);
        for number in 0..5 {
            assert_eq!(asker.sum(level(&format!("{each}-{number}"))).await, all / 5);
        }
        assert_eq!(asker.sum(unique(&campaign, "another@example.org")).await, EVENTS);
    });
}

#[test]
fn over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    sums_are_exact(&settings(Servers::Single(tcp(server.port))), "tcp");
    // Another database has other rates.
    let database = Server { database: 3, ..tcp(server.port) };
    sums_are_exact(&settings(Servers::Single(database)), "tcp");
}

#[test]
fn over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let transport = Transport::Unix(server.socket());
    sums_are_exact(&settings(Servers::Single(Server { transport, database: 0 })), "unix");
}

#[test]
fn on_valkey() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start_program(Program::Valkey, folder.path(), "valkey", &[]);
    assert!(server.ask(&["info", "server"]).contains("valkey_version:8."));
    sums_are_exact(&settings(Servers::Single(tcp(server.port))), "valkey");
}

#[test]
fn behind_sentinel() {
    let folder = tempfile::tempdir().unwrap();
    let sentinels = Sentinels::start(folder.path(), &[]);
    sums_are_exact(&settings(behind(&sentinels)), "sentinel");
}

#[test]
fn on_a_cluster_of_six_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    sums_are_exact(&settings(nodes(&cluster)), "cluster");
    // One node is enough to find the others.
    sums_are_exact(&settings(Servers::Cluster(vec![tcp(cluster.nodes[4].port)])), "one");
    // Each primary has rates.
    for number in cluster.primaries() {
        let keys = cluster.nodes[number].ask(&["dbsize"]);
        assert!(keys.trim().parse::<u32>().unwrap() > 0, "{number}: {keys}");
    }
}

/// With a deadline for a busy machine.
pub(crate) fn with_long_deadline(settings: &Settings) -> Settings {
    Settings { deadline: TIMEOUT, ..settings.clone() }
}

pub(crate) fn behind(sentinels: &Sentinels) -> Servers {
    let ports = sentinels.ports.iter();
    Servers::Sentinel {
        master: Sentinels::NAME.into(),
        sentinels: ports.map(|port| tcp(*port)).collect(),
    }
}

pub(crate) fn nodes(cluster: &Cluster) -> Servers {
    Servers::Cluster(cluster.nodes.iter().map(|node| tcp(node.port)).collect())
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Makes `NAME.crt` of an authority, and `NAME-server.crt` of a server of that.
fn authority(folder: &Path, name: &str) {
    openssl(
        folder,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
             -keyout {name}.key -out {name}.crt -subj /CN={name}"
        ),
    );
    openssl(
        folder,
        &format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}-server.key \
             -out {name}-server.csr -subj /CN=localhost"
        ),
    );
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    openssl(
        folder,
        &format!(
            "x509 -req -in {name}-server.csr -CA {name}.crt -CAkey {name}.key -CAcreateserial \
             -days 2 -extfile names -out {name}-server.crt"
        ),
    );
}

#[test]
fn over_tls_with_the_right_certificate_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    authority(folder, "ours");
    authority(folder, "other");
    let port = kit::redis::free_port();
    let path = |name: &str| folder.join(name).display().to_string();
    let server = RedisServer::start(
        folder,
        "redis",
        &[
            "--bind",
            "127.0.0.1",
            "127.0.0.2",
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &path("ours-server.crt"),
            "--tls-key-file",
            &path("ours-server.key"),
            "--tls-ca-cert-file",
            &path("ours.crt"),
            "--tls-auth-clients",
            "no",
            "--requirepass",
            "right",
        ],
    );
    let over = |host: &str| {
        let transport = Transport::Tcp { host: host.into(), port, tls: true };
        Settings {
            password: Some(Secret("right".into())),
            ca: Some(std::fs::read(path("ours.crt")).unwrap()),
            ..settings(Servers::Single(Server { transport, database: 0 }))
        }
    };
    sums_are_exact(&over("127.0.0.1"), "address");
    sums_are_exact(&over("localhost"), "name");
    let refused = |settings: &Settings| {
        runtime()
            .block_on(Asker::new(&with_long_deadline(settings)).ask(&[level("alice")]))
            .unwrap_err()
    };
    let ca = |name: &str| Some(std::fs::read(path(name)).unwrap());
    for (settings, expected) in [
        (Settings { ca: ca("other.crt"), ..over("127.0.0.1") }, "certificate"),
        (Settings { ca: None, ..over("127.0.0.1") }, "certificate"),
        // A name that the certificate does not have.
        (over("127.0.0.2"), "certificate"),
        (Settings { password: None, ..over("127.0.0.1") }, "a password is missing"),
        (Settings { password: Some(Secret("x".into())), ..over("127.0.0.1") }, "wrong user or"),
    ] {
        let why = refused(&settings);
        assert!(why.contains(expected), "{expected}: {why}");
    }
    drop(server);
}
