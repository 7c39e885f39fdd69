//! The limits that this server shares with others: its settings, the agent, and the Redis
//! servers behind it.

use std::path::Path;

use super::finding::{Findings, quoted};
use super::servers::join;
use super::units;
use crate::cli::shared::servers::look as look_at_servers;
use crate::cluster::{ClusterCounts, ClusterSettings, probe, read_counts};
use crate::redis::{ServerState, ServerStates, examine};
use crate::serve::config::{Config, read};
use crate::spool::open_directory;
use crate::text::{counted_or_no, duration};

/// A clock that differs by more than this many seconds is reported: the agent's log and
/// Exim's are then hard to compare.
const CLOCK_TOLERANCE: f64 = 2.0;

/// Checks what `spool` says of sharing limits, and the agent's configuration. Where no limits
/// are shared, `usual` is the file in which that would be.
pub(super) fn look(spool: &Path, usual: &Path, findings: &mut Findings) {
    // What is wrong with the directory itself is reported with the database.
    let Ok(directory) = open_directory(spool, false) else { return };
    let settings = match ClusterSettings::read(&directory) {
        Ok(Some(settings)) => settings,
        Ok(None) => {
            // The file may be for the mail front ends alone.
            let text = std::fs::read_to_string(usual);
            if text.map_or_else(|_| usual.exists(), |text| text.contains("[redis]")) {
                let usual = usual.display();
                findings
                    .note(format!("this server counts alone, although {usual} exists"))
                    .fix("exirate cluster join --help");
            }
            return;
        }
        Err(error) => {
            findings.problem(error.to_string()).fix("exirate cluster join --help");
            return;
        }
    };
    let file = &*settings.config;
    match probe(&settings) {
        Ok(_) => findings.ok(format!(
            "the agent at {} decides, for {} servers",
            settings.socket.display(),
            settings.servers
        )),
        Err(error) => {
            let socket = settings.socket.display();
            findings
                .problem(format!("the agent at {socket} does not decide: {error}"))
                .fix(format!("exirate serve agent --check --config {}", quoted(file)))
                .fix(units::start("exirate-agent.service"));
        }
    }
    let counts = read_counts(&directory).unwrap_or_default();
    if counts.is_often_late() {
        let ClusterCounts { late, all_since, apart_since, .. } = counts;
        let deadline = settings.deadline.as_millis();
        findings
            .warning(format!(
                "{late} times there was no reply within the deadline of {deadline} ms, and \
                 {apart_since} of {all_since} events were decided without the shared limits: this \
                 machine is busy, or Redis is slow or far away. With a longer deadline, here and as \
                 `deadline` of [redis] in {}, by which the agent replies:",
                file.display()
            ))
            .fix(join(&settings, settings.servers, settings.deadline * 5));
    }
    // `exirate events deliver` writes this file when it first sends something.
    if !directory.path().join("delivery.shared").exists() {
        findings
            .note(
                "the other servers do not show the crossings of this one: `exirate events deliver` \
                 must run",
            )
            .fix("systemctl enable --now exirate-deliver.path exirate-deliver.timer");
    }
    let mut usable = true;
    if let Some(config) = configuration(file, findings) {
        if config.agent.servers != settings.servers {
            let (agent, joined) = (config.agent.servers, settings.servers);
            let file = file.display();
            findings.problem(format!(
                "{file} says that {agent} servers share the limits, and `exirate cluster join` \
                 was given --servers {joined}"
            ));
        }
        if let Some(why) = config.unreachable() {
            findings.problem(why).fix("systemctl restart exirate-agent");
        }
        usable = servers(&config, findings);
    }
    if usable {
        match look_at_servers(&settings, spool, false) {
            Ok(seen) => super::servers::look(&seen, &settings, CLOCK_TOLERANCE, findings),
            Err(why) => {
                findings.note(format!("the servers that share the limits are not known: {why}"));
            }
        }
    }
}

/// The agent's configuration, if it can be used.
fn configuration(file: &Path, findings: &mut Findings) -> Option<Config> {
    let shown = file.display();
    match read(file) {
        Ok(checked) if checked.config.is_some() => checked.config,
        Ok(_) => {
            findings
                .problem(format!("{shown} has errors: the agent does not start with it"))
                .fix(format!("exirate serve agent --check --config {}", quoted(file)));
            None
        }
        Err(error) if rustix::process::geteuid().is_root() => {
            findings.note(format!("the Redis servers were not checked: {error}"));
            None
        }
        Err(error) => {
            findings.hidden(format!("the Redis servers were not checked: {error}"));
            None
        }
    }
}

/// The servers that the agent asks. Whether they can be used.
fn servers(config: &Config, findings: &mut Findings) -> bool {
    let shown = &config.redis.servers;
    let ServerStates { states, away } = match examine(&config.redis) {
        Ok(all) => all,
        Err(error) if error.code() == Some("NOPERM") => {
            findings.note(format!(
                "{shown}: the eviction policy and the clock were not checked, as the ACL user may \
                 not use INFO: {error}"
            ));
            return true;
        }
        Err(error) => {
            findings.problem(format!("{shown} cannot be used: {error}"));
            return false;
        }
    };
    for (node, why) in away {
        findings.problem(format!(
            "{node} of {shown} does not reply: {why}. Until it does, or a replica replaces it, each \
             server decides alone for its keys"
        ));
    }
    let mut sound = 0;
    for state in &states {
        sound += usize::from(is_sound(state, &shown.to_string(), findings));
    }
    if sound > 0 {
        let servers = counted_or_no(sound, "server", "servers");
        let versions: std::collections::BTreeSet<&str> =
            states.iter().map(|state| state.version.as_str()).collect();
        let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
        findings.ok(format!("{shown}: {servers}, {versions}"));
    }
    true
}

/// Whether a server keeps what it is given, by a clock like this one's.
fn is_sound(state: &ServerState, shown: &str, findings: &mut Findings) -> bool {
    let ServerState { port, eviction, memory_max, ahead, .. } = state;
    // A server without a port is reached by its socket.
    let client = match shown.strip_prefix("unix://") {
        Some(socket) if port == "0" => format!("redis-cli -s {}", quoted(Path::new(socket))),
        _ => format!("redis-cli -p {port}"),
    };
    let limited = format!("{client} CONFIG SET maxmemory-policy volatile-ttl");
    let evicts = eviction.starts_with("allkeys-");
    if evicts {
        findings
            .problem(format!(
                "{shown}: its maxmemory-policy is {eviction} (port {port}): when its memory is \
                 full, it forgets rates that still limit somebody"
            ))
            .fix(limited.clone());
    }
    if *memory_max == 0 {
        findings
            .note(format!(
                "{shown}: its memory has no limit (maxmemory, port {port}), and clients can choose \
                 keys, such as HELO names: with volatile-ttl, it would remove those that matter least"
            ))
            .fix(format!("{client} CONFIG SET maxmemory 1gb"))
            .fix(limited);
    } else if eviction == "noeviction" {
        findings
            .note(format!(
                "{shown}: its maxmemory-policy is noeviction (port {port}): when its memory is \
                 full, for example with keys that clients choose, the shared limits cannot be used"
            ))
            .fix(limited);
    }
    let differs = ahead.abs() > CLOCK_TOLERANCE;
    if differs {
        let direction = if *ahead > 0.0 { "ahead of" } else { "behind" };
        let seconds = duration(ahead.abs().round());
        findings.warning(format!(
            "{shown}: its clock (port {port}) is {seconds} {direction} this server's"
        ));
    }
    !evicts && !differs
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Level;
    use super::*;
    use crate::cluster::Away;

    fn found(spool: &Path, file: &Path) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        look(spool, file, &mut findings);
        findings.list.into_iter().map(|one| (one.level, one.text)).collect()
    }

    fn of(level: Level, found: &[(Level, String)]) -> Vec<&str> {
        found.iter().filter(|(one, _)| *one == level).map(|(_, text)| &**text).collect()
    }

    #[test]
    fn what_does_not_work_is_a_problem() {
        let spool = tempfile::tempdir().unwrap();
        let (dir, file) = (spool.path(), spool.path().join("exirate.toml"));
        assert_eq!(found(dir, &file), []);
        let directory = open_directory(dir, true).unwrap();
        assert_eq!(found(dir, &file), []);
        let redis = format!("unix://{}/redis.sock", dir.display());
        std::fs::write(&file, format!("[redis]\nserver = \"{redis}\"\n[agent]\nservers = 2\n"))
            .unwrap();
        let alone = found(dir, &file);
        assert!(of(Level::Note, &alone)[0].starts_with("this server counts alone"), "{alone:?}");

        let settings = ClusterSettings {
            socket: dir.join("agent.sock"),
            agent_user: 0,
            servers: 3,
            deadline: Duration::from_millis(20),
            away: Away::Local,
            config: file.clone(),
        };
        settings.write(&directory).unwrap();
        let nothing_runs = found(dir, &file);
        let problems = of(Level::Problem, &nothing_runs);
        assert_eq!(problems.len(), 3, "{nothing_runs:?}");
        assert!(problems[0].contains("agent.sock does not decide: cannot connect"), "{problems:?}");
        assert!(problems[1].contains("2 servers share the limits"), "{problems:?}");
        assert!(problems[2].starts_with(&format!("{redis} cannot be used: ")), "{problems:?}");
        let notes = of(Level::Note, &nothing_runs);
        assert!(notes[0].contains("`exirate events deliver` must run"), "{notes:?}");

        std::fs::write(&file, "[redis]\nserver = 6379\n").unwrap();
        let wrong = found(dir, &file);
        assert!(of(Level::Problem, &wrong)[1].contains("exirate.toml has errors"), "{wrong:?}");
        std::fs::write(dir.join("exirate/cluster"), "servers many\n").unwrap();
        let damaged = found(dir, &file);
        assert!(of(Level::Problem, &damaged)[0].contains("/cluster:"), "{damaged:?}");
    }

    #[test]
    fn a_server_that_forgets_or_has_another_time_is_reported() {
        let state = |eviction: &str, ahead| ServerState {
            port: "6379".into(),
            version: "Redis 7.0.15".into(),
            eviction: eviction.into(),
            memory_max: 1 << 30,
            ahead,
        };
        for (state, expected) in [
            (state("volatile-ttl", -1.5), None),
            (state("noeviction", 1.5), Some((Level::Note, "maxmemory-policy is noeviction"))),
            (
                ServerState { memory_max: 0, ..state("volatile-ttl", 0.0) },
                Some((Level::Note, "its memory has no limit")),
            ),
            (state("allkeys-lru", 0.0), Some((Level::Problem, "maxmemory-policy is allkeys-lru"))),
            (state("volatile-ttl", 9.0), Some((Level::Warning, "is 9s ahead of this server's"))),
            (state("volatile-ttl", -9.0), Some((Level::Warning, "is 9s behind this server's"))),
        ] {
            let mut findings = Findings::default();
            let is_note = expected.is_none_or(|(level, _)| level == Level::Note);
            assert_eq!(is_sound(&state, "redis://192.0.2.1:6379", &mut findings), is_note);
            let found = findings.list.first().map(|one| (one.level, &*one.text));
            match (found, expected) {
                (None, None) => {}
                (Some((level, text)), Some((expected, part))) => {
                    assert_eq!(level, expected);
                    assert!(text.contains(part), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_fix_reaches_a_server_by_its_socket_or_its_port() {
        for (port, shown, client) in [
            ("0", "unix:///run/redis/redis.sock", "redis-cli -s /run/redis/redis.sock CONFIG"),
            ("6380", "redis://192.0.2.1:6380", "redis-cli -p 6380 CONFIG"),
        ] {
            let state = ServerState {
                port: port.into(),
                version: "Redis 7.0.15".into(),
                eviction: "noeviction".into(),
                memory_max: 0,
                ahead: 0.0,
            };
            let mut findings = Findings::default();
            is_sound(&state, shown, &mut findings);
            let fix = &findings.list[0].fix;
            assert!(fix.len() == 2 && fix.iter().all(|line| line.starts_with(client)), "{fix:?}");
        }
    }
}
