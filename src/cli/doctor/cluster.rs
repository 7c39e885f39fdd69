//! The limits that this server shares with others: its settings, the agent, and the Redis
//! servers behind it.

use std::path::Path;

use super::super::policy::many;
use super::finding::{Findings, quoted};
use crate::redis::{ServerState, examine};
use crate::remote::{ClusterSettings, probe};
use crate::serve::config::{Config, read};
use crate::spool::open_directory;

/// A clock that differs by more than this many seconds is reported: the agent's log and
/// Exim's are then hard to compare.
const CLOCK_TOLERANCE: f64 = 2.0;

/// Checks what `spool` says of sharing limits, and the agent's configuration in `file`.
pub(super) fn look(spool: &Path, file: &Path, findings: &mut Findings) {
    // What is wrong with the directory itself is reported with the database.
    let Ok(directory) = open_directory(spool, false) else { return };
    let settings = match ClusterSettings::read(&directory) {
        Ok(Some(settings)) => settings,
        Ok(None) => {
            if file.exists() {
                let file = file.display();
                findings
                    .note(format!("this server counts alone, although {file} is there"))
                    .fix("exirate cluster join --help");
            }
            return;
        }
        Err(error) => {
            findings.problem(error.to_string()).fix("exirate cluster join --help");
            return;
        }
    };
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
                .fix("systemctl status exirate-agent")
                .fix(format!("exirate serve agent --check --config {}", quoted(file)));
        }
    }
    if let Some(config) = configuration(file, findings) {
        if config.agent.servers != settings.servers {
            let (agent, joined) = (config.agent.servers, settings.servers);
            let file = file.display();
            findings.problem(format!(
                "{file} says that {agent} servers share the limits, and `exirate cluster join` \
                 was told {joined}"
            ));
        }
        servers(&config, findings);
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

/// The servers that the agent asks.
fn servers(config: &Config, findings: &mut Findings) {
    let shown = &config.redis.servers;
    let states = match examine(&config.redis) {
        Ok(states) => states,
        Err(error) if error.code() == Some("NOPERM") => {
            findings.note(format!(
                "{shown}: the eviction policy and the clock were not checked, as the ACL user may \
                 not use INFO: {error}"
            ));
            return;
        }
        Err(error) => {
            findings.problem(format!("{shown} cannot be used: {error}"));
            return;
        }
    };
    let mut sound = 0;
    for state in &states {
        sound += usize::from(is_sound(state, &shown.to_string(), findings));
    }
    if sound > 0 {
        let servers = many(sound, "server", "servers");
        let versions: std::collections::BTreeSet<&str> =
            states.iter().map(|state| state.version.as_str()).collect();
        let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
        findings.ok(format!("{shown}: {servers}, {versions}"));
    }
}

/// Whether a server keeps what it is given, by a clock like this one's.
fn is_sound(state: &ServerState, shown: &str, findings: &mut Findings) -> bool {
    let ServerState { port, eviction, ahead, .. } = state;
    let evicts = eviction.starts_with("allkeys-");
    if evicts {
        findings
            .problem(format!(
                "{shown}: its maxmemory-policy is {eviction} (port {port}): when its memory is \
                 full, it forgets rates that still limit somebody"
            ))
            .fix(format!("redis-cli -p {port} CONFIG SET maxmemory-policy volatile-ttl"));
    }
    let differs = ahead.abs() > CLOCK_TOLERANCE;
    if differs {
        let direction = if *ahead > 0.0 { "ahead of" } else { "behind" };
        let seconds = ahead.abs();
        findings.warning(format!(
            "{shown}: its clock (port {port}) is {seconds:.0} s {direction} this server's"
        ));
    }
    !evicts && !differs
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Level;
    use super::*;
    use crate::remote::Away;

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
        };
        settings.write(&directory).unwrap();
        let nothing_runs = found(dir, &file);
        let problems = of(Level::Problem, &nothing_runs);
        assert_eq!(problems.len(), 3, "{nothing_runs:?}");
        assert!(problems[0].contains("agent.sock does not decide: cannot connect"), "{problems:?}");
        assert!(problems[1].contains("2 servers share the limits"), "{problems:?}");
        assert!(problems[2].starts_with(&format!("{redis} cannot be used: ")), "{problems:?}");

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
            ahead,
        };
        for (state, expected) in [
            (state("noeviction", 1.5), None),
            (state("volatile-ttl", -1.5), None),
            (state("allkeys-lru", 0.0), Some((Level::Problem, "maxmemory-policy is allkeys-lru"))),
            (state("noeviction", 9.0), Some((Level::Warning, "is 9 s ahead of this server's"))),
            (state("noeviction", -9.0), Some((Level::Warning, "is 9 s behind this server's"))),
        ] {
            let mut findings = Findings::default();
            assert_eq!(
                is_sound(&state, "redis://192.0.2.1:6379", &mut findings),
                expected.is_none()
            );
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
}
