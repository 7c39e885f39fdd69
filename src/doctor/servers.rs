//! The servers that share the limits: whether they are as many as they are said to be, run,
//! and are alike.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::finding::{Findings, quoted};
use super::units;
use crate::cluster::{
    Away, CONFIG_DEFAULT, ClusterSettings, DEADLINE_DEFAULT, DEADLINE_MAX, SOCKET_DEFAULT,
};
use crate::redis::{KnownServer, KnownServers};
use crate::serve::agent::USER as AGENT_USER;
use crate::serve::servers::{Seen, short, unreadable};
use crate::sys::users;
use crate::text;
use crate::text::counted_or_no;

/// Checks what the servers have published. `settings` are those of this one; `elsewhere` says in
/// which other databases somebody else may count.
pub(super) fn look(
    seen: &Seen,
    settings: &ClusterSettings,
    elsewhere: &str,
    tolerance: f64,
    findings: &mut Findings,
) {
    let (known, expected) = (&seen.known, settings.servers);
    let lately = |server: &KnownServer| known.is_seen_lately(server);
    let agents = || known.servers.iter().filter(|(_, server)| server.agent.is_some());
    let running: BTreeMap<&str, &KnownServer> =
        agents().filter(|(_, one)| lately(one)).map(|(name, one)| (name.as_str(), one)).collect();
    let count = running.len();
    let wanted = usize::try_from(expected).unwrap_or(usize::MAX);
    if count > wanted {
        findings
            .problem(format!(
                "{count} servers share the limits ({}), and this one is configured for {expected}: while \
                 they are apart, they admit more than docs/cluster.md says. On each of them, \
                 write servers = {count} in {}, and then:",
                names(running.keys().copied()),
                settings.config.display()
            ))
            .fix("systemctl reload exirate-agent")
            .fix(join(settings, u32::try_from(count).unwrap_or(u32::MAX), settings.deadline));
    } else if count > 0 {
        let names = names(running.keys().copied());
        let text = format!("{count} of {expected} servers run: {names}");
        // Those that were seen before are named below.
        if agents().count() < wanted {
            findings.warning(format!(
                "{text}. The others do not run, or count elsewhere: on another Redis, or in another \
                 database{elsewhere}. On each of them, `exirate doctor` shows which"
            ));
        } else {
            findings.ok(text);
        }
    }
    not_seen(seen, agents().count() > wanted && count <= wanted, findings);
    for (name, server) in &running {
        let Some(agent) = &server.agent else { continue };
        if agent.conflict {
            findings.problem(format!(
                "several servers have the name {name}, so this shows only one of them: set \
                 another server_name in [agent] of {}",
                settings.config.display()
            ));
        }
        if agent.servers != expected {
            let theirs = agent.servers;
            findings.problem(format!(
                "the agent of {name} is configured for {theirs} servers, and this server for \
                 {expected}: write the same in all files, and join again"
            ));
        }
        if agent.clock.abs() > tolerance {
            let direction = if agent.clock > 0.0 { "ahead of" } else { "behind" };
            let seconds = text::duration(agent.clock.abs());
            findings.warning(format!("the clock of {name} is {seconds} {direction} that of Redis"));
        }
    }
    secrets(known, findings);
    let primaries = groups(&running, |server| server.agent.as_ref()?.primary.clone());
    if primaries.len() > 1 {
        findings.problem(format!(
            "the agents are connected to different servers, and so count apart: {}. Each goes where a \
             majority of the sentinels leads, if it reaches one",
            list(&primaries)
        ));
    }
    alike(&running, findings);
    if known.unreadable > 0 {
        findings.note(unreadable(known.unreadable));
    }
}

/// The command that joins again, with the same settings but for the number of servers and the
/// deadline.
pub(super) fn join(settings: &ClusterSettings, count: u32, deadline: Duration) -> String {
    let ClusterSettings { socket, agent_user, servers: _, deadline: _, away, config } = settings;
    let deadline = deadline.min(DEADLINE_MAX);
    let mut command = format!("exirate cluster join --servers {count}");
    if socket != Path::new(SOCKET_DEFAULT) {
        command += &format!(" --socket {}", quoted(socket));
    }
    if users::name_of(*agent_user).is_none_or(|name| name != AGENT_USER) {
        command += &format!(" --agent-user {agent_user}");
    }
    if deadline != DEADLINE_DEFAULT {
        command += &format!(" --deadline {}", deadline.as_millis());
    }
    if *away != Away::default() {
        command += &format!(" --away {}", away.word());
    }
    if config != Path::new(CONFIG_DEFAULT) {
        command += &format!(" --config {}", quoted(config));
    }
    command
}

/// Reports the servers that have not published anything lately.
fn not_seen(seen: &Seen, too_many: bool, findings: &mut Findings) {
    let KnownServers { servers, .. } = &seen.known;
    for (name, server) in servers {
        if seen.known.is_seen_lately(server) {
            continue;
        }
        let Some(agent) = &server.agent else {
            if *name == seen.own {
                let text = "the agent of this server has published nothing: its log says why";
                findings.warning(text).fix(units::start("exirate-agent.service"));
            }
            continue;
        };
        let age = text::duration(seen.known.now.saturating_sub(agent.seen) as f64);
        let more =
            if too_many { "; if it still runs, there are more servers than expected" } else { "" };
        findings
            .warning(format!(
                "{name} was not seen for {age}: its agent does not run, or cannot reach Redis{more}. \
                 If it is gone for good:"
            ))
            .fix(format!("exirate cluster forget {}", shlex::try_quote(name).unwrap_or_default()));
    }
}

/// Reports agents that use different secrets: they count under different names.
fn secrets(known: &KnownServers, findings: &mut Findings) {
    let secrets = known.secrets().into_iter();
    let secrets: BTreeMap<String, _> =
        secrets.map(|(secret, servers)| (format!("{secret:08x}"), servers)).collect();
    if secrets.len() > 1 {
        findings
            .problem(format!(
                "the agents of the servers use different secrets, so they do not count together: {}. \
                 They agree within a second; an agent that does not:",
                list(&secrets)
            ))
            .fix("systemctl restart exirate-agent");
    }
}

/// Reports releases and policies that differ.
fn alike(running: &BTreeMap<&str, &KnownServer>, findings: &mut Findings) {
    let releases = groups(running, |server| Some(server.agent.as_ref()?.release.clone()));
    let same_release = releases.len() <= 1;
    if !same_release {
        findings.warning(format!("the releases of the servers differ: {}", list(&releases)));
    }
    let policies = groups(running, |server| {
        let policy = server.policy.as_ref();
        Some(policy.map_or("none".to_owned(), |policy| short(&policy.digest)))
    });
    if policies.len() > 1 {
        let hint = if same_release { "" } else { " (they may be of one text: releases differ)" };
        let list = list(&policies);
        findings.warning(format!("the policies of the servers differ{hint}: {list}"));
    }
}

/// The names of the servers with the same value.
fn groups<'a>(
    running: &BTreeMap<&'a str, &KnownServer>,
    value: impl Fn(&KnownServer) -> Option<String>,
) -> BTreeMap<String, BTreeSet<&'a str>> {
    let mut groups: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, server) in running {
        if let Some(value) = value(server) {
            groups.entry(value).or_default().insert(name);
        }
    }
    groups
}

/// `0.1.0 on mx1, mx2; 0.2.0 on mx3`
fn list(groups: &BTreeMap<String, BTreeSet<&str>>) -> String {
    let one = |(value, servers): (&String, &BTreeSet<&str>)| {
        format!("{value} on {}", names(servers.iter().copied()))
    };
    groups.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Some names: all of a few, else the first.
fn names<'a>(all: impl Iterator<Item = &'a str> + Clone) -> String {
    const MOST: usize = 8;
    let first = all.clone().take(MOST).collect::<Vec<_>>().join(", ");
    match all.count().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {}", counted_or_no(more, "other", "others")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::redis::{AgentState, PolicyState};

    const NOW: u64 = 1_795_171_900;

    fn agent() -> AgentState {
        AgentState {
            release: "0.1.0".into(),
            id: 1,
            started: NOW - 1000,
            seen: NOW - 10,
            decisions: 5,
            clock: 0.001,
            servers: 3,
            secret: Some(7),
            conflict: false,
            primary: None,
            config: None,
        }
    }

    fn settings() -> ClusterSettings {
        ClusterSettings::parse(b"agent_user 0\nservers 3\naway closed\n").unwrap()
    }

    fn policy(digit: char) -> Option<PolicyState> {
        Some(PolicyState { digest: digit.to_string().repeat(32), written: NOW - 5000 })
    }

    fn three() -> KnownServers {
        let server = || KnownServer { agent: Some(agent()), policy: policy('a') };
        let servers = ["mx1", "mx2", "mx3"].map(|name| (name.to_owned(), server())).into();
        KnownServers { now: NOW, servers, unreadable: 0 }
    }

    /// What is found of three servers, one of which is changed so; the last is the command.
    fn found(change: impl FnOnce(&mut KnownServers)) -> Vec<(Level, String, Vec<String>)> {
        let mut known = three();
        change(&mut known);
        let mut findings = Findings::default();
        look(&Seen { known, own: "mx1".to_owned() }, &settings(), "", 2.0, &mut findings);
        findings.list.into_iter().map(|one| (one.level, one.text, one.fix)).collect()
    }

    fn of_agent(change: impl FnOnce(&mut AgentState)) -> Vec<(Level, String, Vec<String>)> {
        found(|known| change(known.servers.get_mut("mx2").unwrap().agent.as_mut().unwrap()))
    }

    #[test]
    fn servers_that_are_alike_are_sound() {
        let all = found(|_| {});
        assert_eq!(all, [(Level::Ok, "3 of 3 servers run: mx1, mx2, mx3".into(), vec![])]);
        assert_eq!(found(|known| known.servers.clear()), []);
    }

    #[test]
    fn more_servers_than_expected_are_a_problem() {
        let all = found(|known| {
            let new = known.servers["mx1"].clone();
            known.servers.insert("mx4".into(), new);
        });
        let [(Level::Problem, text, fix)] = &all[..] else { panic!("{all:?}") };
        assert!(text.starts_with("4 servers share the limits (mx1, mx2, mx3, mx4)"), "{text}");
        assert!(text.contains("write servers = 4 in /etc/exirate/exirate.toml"), "{text}");
        let again = "exirate cluster join --servers 4 --agent-user 0 --away closed";
        assert_eq!(*fix, ["systemctl reload exirate-agent", again]);
        let other = ClusterSettings {
            socket: "/run/o ther.sock".into(),
            config: "/etc/other.toml".into(),
            deadline: std::time::Duration::from_millis(50),
            away: Away::Local,
            ..settings()
        };
        let again = "exirate cluster join --servers 9 --socket '/run/o ther.sock' --agent-user 0 \
                     --deadline 50 --config /etc/other.toml";
        assert_eq!(join(&other, 9, other.deadline), again);
        // One of them may have been replaced.
        let all = found(|known| {
            let mut old = known.servers["mx1"].clone();
            old.agent.as_mut().unwrap().seen = NOW - 7200;
            known.servers.insert("mx4".into(), old);
        });
        let [(Level::Ok, ..), (Level::Warning, text, fix)] = &all[..] else { panic!("{all:?}") };
        assert!(text.starts_with("mx4 was not seen for 2h: ") && text.contains("more servers"));
        assert_eq!(*fix, ["exirate cluster forget mx4"]);
    }

    #[test]
    fn servers_that_differ_are_named() {
        for (all, level, expected) in [
            (
                of_agent(|agent| agent.release = "0.2.0".into()),
                Level::Warning,
                "the releases of the servers differ: 0.1.0 on mx1, mx3; 0.2.0 on mx2",
            ),
            (
                of_agent(|agent| agent.clock = -3.0),
                Level::Warning,
                "the clock of mx2 is 3s behind that of Redis",
            ),
            (
                of_agent(|agent| agent.clock = 7200.0),
                Level::Warning,
                "the clock of mx2 is 2h ahead of that of Redis",
            ),
            (
                of_agent(|agent| agent.conflict = true),
                Level::Problem,
                "several servers have the name mx2, ",
            ),
            (
                of_agent(|agent| agent.servers = 4),
                Level::Problem,
                "the agent of mx2 is configured for 4 servers, and this server for 3: ",
            ),
            (
                of_agent(|agent| agent.secret = Some(0x5f0c)),
                Level::Problem,
                "the agents of the servers use different secrets, so they do not count together: \
                 00000007 on mx1, mx3; 00005f0c on mx2",
            ),
            (
                found(|known| known.servers.get_mut("mx3").unwrap().policy = policy('b')),
                Level::Warning,
                "the policies of the servers differ: aaaaaaaaaaaa on mx1, mx2; bbbbbbbbbbbb on mx3",
            ),
            (
                found(|known| known.servers.get_mut("mx3").unwrap().policy = None),
                Level::Warning,
                "the policies of the servers differ: aaaaaaaaaaaa on mx1, mx2; none on mx3",
            ),
            (
                found(|known| {
                    for (name, server) in &mut known.servers {
                        let port = if name == "mx2" { 6380 } else { 6379 };
                        let agent = server.agent.as_mut().unwrap();
                        agent.primary = Some(format!("redis://192.0.2.1:{port}"));
                    }
                }),
                Level::Problem,
                "the agents are connected to different servers, and so count apart: \
                 redis://192.0.2.1:6379 on mx1, mx3; redis://192.0.2.1:6380 on mx2",
            ),
            (found(|known| known.unreadable = 2), Level::Note, "2 fields of exirate:servers in"),
        ] {
            let [(Level::Ok, ..), (found, text, _)] = &all[..] else { panic!("{all:?}") };
            assert_eq!(*found, level, "{text}");
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn servers_that_nobody_has_seen_may_count_elsewhere() {
        let all = found(|known| {
            known.servers.remove("mx2");
            known.servers.remove("mx3");
        });
        let [(Level::Warning, text, _)] = &all[..] else { panic!("{all:?}") };
        assert!(text.starts_with("1 of 3 servers run: mx1. The others do not run, or"), "{text}");
    }

    #[test]
    fn servers_that_are_not_seen_are_named() {
        let all = of_agent(|agent| agent.seen = NOW - 86_400);
        let [(Level::Ok, count, _), (Level::Warning, text, fix)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(count, "2 of 3 servers run: mx1, mx3");
        assert!(text.starts_with("mx2 was not seen for 1d: its agent does not run, or"), "{text}");
        assert_eq!(*fix, ["exirate cluster forget mx2"]);
        // Its release does not matter.
        let all = of_agent(|agent| (agent.seen, agent.release) = (1, "0.0.1".into()));
        assert_eq!(all.len(), 2);
        // It was joined, and its agent never ran.
        let all = found(|known| known.servers.get_mut("mx1").unwrap().agent = None);
        assert!(all[1].1.starts_with("the agent of this server has published nothing"), "{all:?}");
        let all = found(|known| known.servers.get_mut("mx2").unwrap().agent = None);
        assert_eq!(all.len(), 1);
    }
}
