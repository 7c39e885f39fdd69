//! The limits that this server shares with others: its settings, the agent, and the Redis
//! servers behind it.

use std::collections::BTreeSet;
use std::path::Path;

use super::finding::{Findings, quoted};
use super::servers::join;
use super::units;
use crate::cluster::{Away, ClusterCounts, ClusterSettings, probe, read_counts};
use crate::policy::image::PolicyFile;
use crate::policy::model::Window;
use crate::policy::word::Unit;
use crate::redis::{AgentState, SentinelStates, ServerState, ServerStates, Servers, examine};
use crate::serve::config::{Config, read};
use crate::serve::servers::{Seen, look as look_at_servers, shown};
use crate::spool::open_directory;
use crate::sys::secure_dir::SecureDir;
use crate::text::{counted_or_no, duration};

/// A clock that differs by more than this many seconds is reported: the agent's log and
/// Exim's are then hard to compare.
const CLOCK_TOLERANCE: f64 = 2.0;

/// Checks what `spool` says of sharing limits, and the agent's configuration. Where no limits
/// are shared, `usual` is the file in which that would be.
pub(super) fn look(spool: &Path, usual: &Path, findings: &mut Findings) {
    // What is wrong with the directory itself is reported with the database.
    let Ok(directory) = open_directory(spool, false) else { return };
    let Some(settings) = joined(&directory, usual, findings) else { return };
    agent(&settings, &directory, findings);
    // Whoever first sends something writes this file.
    if !directory.path().join("delivery.shared").exists() {
        findings
            .note(
                "the other servers do not show the crossings of this one: the daemon of alerts must \
                 run, or `exirate events deliver`",
            )
            .fix(units::start(units::ALERTS));
    }
    let usable = configured(&settings, findings);
    shares(spool, &settings, findings);
    if let Some(elsewhere) = usable {
        match look_at_servers(&settings, spool, false) {
            Ok(seen) => {
                super::servers::look(&seen, &settings, &elsewhere, CLOCK_TOLERANCE, findings);
            }
            Err(why) => {
                findings.note(format!("the servers that share the limits are not known: {why}"));
            }
        }
    }
}

/// The settings of a server that shares its limits.
fn joined(directory: &SecureDir, usual: &Path, findings: &mut Findings) -> Option<ClusterSettings> {
    match ClusterSettings::read(directory) {
        Ok(settings @ Some(_)) => settings,
        Ok(None) => {
            // The file may be for the mail front ends alone.
            let text = std::fs::read_to_string(usual);
            if text.map_or_else(|_| usual.exists(), |text| text.contains("[redis]")) {
                let usual = usual.display();
                findings
                    .note(format!("this server counts alone, although {usual} exists"))
                    .fix("exirate cluster join --help");
            }
            None
        }
        Err(error) => {
            findings.problem(error.to_string()).fix("exirate cluster join --help");
            None
        }
    }
}

/// Whether the agent decides, and in time.
fn agent(settings: &ClusterSettings, directory: &SecureDir, findings: &mut Findings) {
    match probe(settings) {
        Ok(_) => findings.ok(format!(
            "the agent at {} decides, for {} servers",
            settings.socket.display(),
            settings.servers
        )),
        Err(error) => {
            let socket = settings.socket.display();
            findings
                .problem(format!("the agent at {socket} does not decide: {error}"))
                .fix(format!("exirate serve agent --check --config {}", quoted(&settings.config)))
                .fix(units::start("exirate-agent.service"));
        }
    }
    let counts = read_counts(directory).unwrap_or_default();
    if counts.is_often_late() {
        let ClusterCounts { late, all_since, apart_since, .. } = counts;
        let deadline = settings.deadline.as_millis();
        findings
            .warning(format!(
                "{late} times there was no reply within the deadline of {deadline} ms, and \
                 {apart_since} of {all_since} events were decided without the shared limits: this \
                 machine is busy, or Redis is slow or far away. With a longer deadline, here and as \
                 `deadline` of [redis] in {}, by which the agent replies:",
                settings.config.display()
            ))
            .fix(join(settings, settings.servers, settings.deadline * 5));
    }
}

/// Checks the agent's configuration, whether the agent has read it, and the servers that it names:
/// see [`servers`].
fn configured(settings: &ClusterSettings, findings: &mut Findings) -> Option<String> {
    let file = &*settings.config;
    let Some(config) = configuration(file, findings) else { return Some(String::new()) };
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
    let own = own_agent(settings);
    if own.as_ref().is_some_and(|own| is_before(own, &config)) {
        findings
            .warning(format!(
                "the agent uses another configuration than {}: it was changed, and the agent has \
                 not read it since",
                file.display()
            ))
            .fix("systemctl reload exirate-agent");
    }
    servers(&config, own.as_ref(), findings)
}

/// How many events one message may need, as far as its share of a limit is concerned.
fn needed(unit: Unit) -> f64 {
    match unit {
        _ if unit.is_of_bytes() => 10.0 * 1024.0 * 1024.0,
        Unit::Recipients | Unit::UniqueRecipients => 10.0,
        _ => 1.0,
    }
}

/// Reports limits of which this server's share is too small for one message while it is apart.
fn shares(spool: &Path, settings: &ClusterSettings, findings: &mut Findings) {
    /// So many are named.
    const NAMED: usize = 3;
    let file = PolicyFile::open(spool);
    // What is wrong with the image is reported with the policies.
    let Ok(Ok(policies)) = file.image().map(|image| image.policies()) else { return };
    if settings.away != Away::Local {
        return;
    }
    let mut small = BTreeSet::new();
    for (name, policy) in &policies.policies {
        for (unit, amount) in
            policy.tables().flat_map(|limits| limits.each.iter().chain(&limits.total))
        {
            let windows = amount.windows.iter().filter(|window| window.period < Window::NO_PERIOD);
            // A limit of 0 refuses everything anyway.
            for window in windows.filter(|window| window.limit > 0.0) {
                let share = window.limit / f64::from(settings.servers);
                // A moving average at its limit is over it.
                let is_enough = match window.every {
                    Some(_) => share >= needed(*unit),
                    None => share > needed(*unit),
                };
                if !is_enough {
                    small.insert(format!("{} = {} of {name}", unit.word(), window.text));
                }
            }
        }
    }
    if !small.is_empty() {
        let named = small.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = match small.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {}", counted_or_no(more, "other", "others")),
        };
        findings.warning(format!(
            "while the shared limits cannot be reached, this server admits 1/{} of each, and that is \
             less than one message may need: {named}{more}. docs/cluster.md says what to do",
            settings.servers
        ));
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

/// What the agent of this server says of itself, if it has lately.
fn own_agent(settings: &ClusterSettings) -> Option<AgentState> {
    let Seen { mut known, own } = shown(settings).ok()?;
    let server = known.servers.remove(&own).filter(|server| known.is_seen_lately(server));
    server?.agent
}

/// Whether an agent of this release has read another configuration than this one.
fn is_before(agent: &AgentState, config: &Config) -> bool {
    agent.release == env!("CARGO_PKG_VERSION")
        && agent.config.is_some_and(|digest| digest != config.agent.digest)
}

/// The servers that the agent asks. `None` if they cannot be used, else in which other databases
/// of theirs somebody may count, in words.
fn servers(config: &Config, own: Option<&AgentState>, findings: &mut Findings) -> Option<String> {
    let shown = &config.redis.servers;
    let ServerStates { states, away, denied, sentinels } = match examine(&config.redis) {
        Ok(all) => all,
        Err(error) => {
            findings.problem(format!("{shown} cannot be used: {error}"));
            return None;
        }
    };
    if let Some(why) = denied {
        findings.note(format!(
            "{shown}: the eviction policy and the clock were not checked, as the ACL user may \
             not use INFO: {why}"
        ));
    }
    if let Some(SentinelStates { primary, said }) = sentinels {
        let connected = own.and_then(|own| own.primary.as_ref());
        match (primary, connected) {
            (None, _) => {
                findings.warning(format!(
                    "{shown}: {said}: no majority of them names the same server, so the agents stay \
                     where they are, and may count apart from each other"
                ));
            }
            (Some(primary), Some(connected)) if primary != *connected => {
                findings
                    .problem(format!(
                        "{shown}: the agent is connected to {connected}, and the sentinels name \
                         {primary}: it counts apart from others"
                    ))
                    .fix("systemctl restart exirate-agent");
            }
            (Some(_), _) => {}
        }
    }
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
        let versions: BTreeSet<&str> = states.iter().map(|state| state.version.as_str()).collect();
        let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
        findings.ok(format!("{shown}: {servers}, {versions}"));
    }
    let own = match shown {
        Servers::Single(server) => server.database,
        Servers::Sentinel { .. } | Servers::Cluster(_) => 0,
    };
    let others = states.iter().flat_map(|state| &state.databases).filter(|one| **one != own);
    let others: Vec<String> = others.map(ToString::to_string).collect();
    Some(match &others[..] {
        [] => String::new(),
        some => format!(" (there are keys in {} as well)", some.join(", ")),
    })
}

/// Whether a server keeps what it is given, by a clock like this one's.
fn is_sound(state: &ServerState, shown: &str, findings: &mut Findings) -> bool {
    let ServerState { port, eviction, memory_max, evicted, ahead, .. } = state;
    // A server without a port is reached by its socket.
    let client = match shown.strip_prefix("unix://") {
        Some(socket) if port == "0" => format!("redis-cli -s {}", quoted(Path::new(socket))),
        _ => format!("redis-cli -p {port}"),
    };
    let limited = format!("{client} CONFIG SET maxmemory-policy volatile-ttl");
    // Each rate expires, so whatever removes keys that do may remove it.
    let evicts = !matches!(&**eviction, "noeviction" | "volatile-ttl" | "");
    let since = counted_or_no(usize::try_from(*evicted).unwrap_or(usize::MAX), "key", "keys");
    if evicts {
        findings
            .problem(format!(
                "{shown}: its maxmemory-policy is {eviction} (port {port}): when its memory is \
                 full, it forgets rates that still limit somebody; since it was started, it has \
                 removed {since}"
            ))
            .fix(limited.clone());
    } else if *evicted > 0 {
        findings
            .note(format!(
                "{shown}: its memory was full (port {port}): since it was started, it has removed \
                 {since}, by {eviction} those that would have expired first. With more memory:"
            ))
            .fix(format!("{client} CONFIG SET maxmemory {}", memory_max.saturating_mul(2)));
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
    use crate::policy::{image, source::compile};

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
        assert!(
            notes[0].contains("the daemon of alerts must run, or `exirate events deliver`"),
            "{notes:?}"
        );

        std::fs::write(&file, "[redis]\nserver = 6379\n").unwrap();
        let wrong = found(dir, &file);
        assert!(of(Level::Problem, &wrong)[1].contains("exirate.toml has errors"), "{wrong:?}");
        std::fs::write(dir.join("exirate/cluster"), "servers many\n").unwrap();
        let damaged = found(dir, &file);
        assert!(of(Level::Problem, &damaged)[0].contains("/cluster:"), "{damaged:?}");
    }

    #[test]
    fn a_share_that_is_less_than_one_message_may_need_is_reported() {
        let text = "version = 1\n[policy.small]\nkey = \"auth\"\n\
            default = { recipients = \"100/1h\", bytes = \"200M/1d\", messages = \"10 daily\" }\n\
            package.none.recipients = \"0/1h\"\npackage.any.recipients = \"unlimited\"\n\
            package.gold.recipients = \"100000/1h\"\n";
        let spool = tempfile::tempdir().unwrap();
        drop(open_directory(spool.path(), true).unwrap());
        let warned = |servers, away| {
            let settings = ClusterSettings {
                socket: "agent.sock".into(),
                agent_user: 0,
                servers,
                deadline: Duration::from_millis(20),
                away,
                config: "exirate.toml".into(),
            };
            let mut findings = Findings::default();
            shares(spool.path(), &settings, &mut findings);
            let all = findings.list;
            assert!(all.iter().all(|one| one.level == Level::Warning) && all.len() < 2);
            all.into_iter().next().map(|one| one.text)
        };
        assert_eq!(warned(100, Away::Local), None, "there is no policy");
        let none = |_: &Path| Err(String::new());
        let compiled = compile(Path::new("p"), text, &none);
        let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
        image::install(spool.path(), &image::build(&policies)).unwrap();
        // A window of the calendar admits its share whole, a moving average not quite.
        let recipients = "recipients = 100/1h of small";
        let bytes = "bytes = 200M/1d of small";
        let messages = "messages = 10 daily of small";
        for (servers, expected) in [
            (2, vec![]),
            (9, vec![]),
            (10, vec![recipients]),
            (11, vec![messages, recipients]),
            (100, vec![bytes, messages, recipients]),
        ] {
            match warned(servers, Away::Local) {
                None => assert!(expected.is_empty(), "{servers}"),
                Some(text) => {
                    let of = format!("this server admits 1/{servers} of each, ");
                    let end = format!("less than one message may need: {}.", expected.join(", "));
                    assert!(text.contains(&of) && text.contains(&end), "{text}");
                }
            }
        }
        for away in [Away::Open, Away::Closed] {
            assert_eq!(warned(100, away), None);
        }
    }

    #[test]
    fn a_server_that_forgets_or_has_another_time_is_reported() {
        let state = |eviction: &str, ahead| ServerState {
            port: "6379".into(),
            version: "Redis 7.0.15".into(),
            eviction: eviction.into(),
            memory_max: 1 << 30,
            ahead,
            ..ServerState::default()
        };
        for (state, expected) in [
            (state("volatile-ttl", -1.5), None),
            (state("noeviction", 1.5), Some((Level::Note, "maxmemory-policy is noeviction"))),
            (
                ServerState { memory_max: 0, ..state("volatile-ttl", 0.0) },
                Some((Level::Note, "its memory has no limit")),
            ),
            (state("allkeys-lru", 0.0), Some((Level::Problem, "maxmemory-policy is allkeys-lru"))),
            (
                state("volatile-lru", 0.0),
                Some((Level::Problem, "maxmemory-policy is volatile-lru")),
            ),
            (state("volatile-lfu", 0.0), Some((Level::Problem, "it forgets rates"))),
            (state("volatile-random", 0.0), Some((Level::Problem, "it forgets rates"))),
            (
                ServerState { evicted: 4100, ..state("volatile-lru", 0.0) },
                Some((Level::Problem, "since it was started, it has removed 4100 keys")),
            ),
            (
                ServerState { evicted: 1, ..state("volatile-ttl", 0.0) },
                Some((Level::Note, "it has removed 1 key, by volatile-ttl")),
            ),
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
                ..ServerState::default()
            };
            let mut findings = Findings::default();
            is_sound(&state, shown, &mut findings);
            let fix = &findings.list[0].fix;
            assert!(fix.len() == 2 && fix.iter().all(|line| line.starts_with(client)), "{fix:?}");
        }
    }
}
