//! What the servers that share limits publish of themselves, in the hash `exirate:servers`.
//!
//! The field `agent NAME` is written by the agent of the server with this name, `policy NAME`
//! by the commands that root runs there. A value is a version and pairs, such as
//!
//! `v=1 release=0.1.0 id=5f0c6a3b9d1e2f40 started=1795171837 seen=1795171900 decisions=12 clock=-0.000123 servers=4`
//!
//! `v=1 digest=9f2c41d07a3b5e8894e0a7c1d2f3b4a5 written=1795171900`
//!
//! A reader ignores pairs whose names it does not know. What it cannot read, it does not show:
//! whoever can write to Redis cannot make a terminal do anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The hash.
pub(super) const SERVERS: &str = "exirate:servers";
/// The start of a field that an agent writes.
const AGENT: &str = "agent ";
/// The start of a field with the digest of a policy.
const POLICY: &str = "policy ";
/// The start of each value. Another version is not read.
const VERSION: &str = "v=1";
/// The longest value that is read.
const VALUE_BYTES_MAX: usize = 1024;
/// The longest name of a server.
const NAME_BYTES_MAX: usize = 64;
/// The longest release.
const RELEASE_BYTES_MAX: usize = 32;
/// The longest URL of a server.
const URL_BYTES_MAX: usize = 300;
/// The digits of a digest.
const DIGEST_DIGITS: usize = 32;
/// A server that was not seen for so many seconds is gone: 30 days.
const GONE_AFTER: u64 = 30 * 86_400;
/// How often an agent publishes its state, in seconds.
pub const ANNOUNCED_EVERY: u64 = 30;
/// An agent that was not seen for so many seconds does not run, or cannot reach Redis.
pub const SEEN_LATELY: u64 = 4 * ANNOUNCED_EVERY;

/// What an agent publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentState {
    /// Its release.
    pub release: String,
    /// Chosen when it starts: tells apart two agents with one name.
    pub id: u64,
    /// When it started, by the clock of its server, in seconds since 1970.
    pub started: u64,
    /// When it published this, by the clock of Redis.
    pub seen: u64,
    /// How many requests it has decided since it started.
    pub decisions: u64,
    /// The clock of its server minus that of Redis, in seconds.
    pub clock: f64,
    /// How many servers share the limits, by its configuration.
    pub servers: u32,
    /// Tells apart the secrets that agents use; `None` of a release that does not say it.
    pub secret: Option<u32>,
    /// Whether another agent publishes under the same name.
    pub conflict: bool,
    /// The server that it counts on, if sentinels have named it.
    pub primary: Option<String>,
    /// Tells apart configurations, of one release; `None` of a release that does not say it.
    pub config: Option<u32>,
}

/// What is known of the policy of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyState {
    /// The same on servers with the same policies; hexadecimal digits.
    pub digest: String,
    /// When it was published, by the clock of Redis.
    pub written: u64,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownServer {
    /// What its agent has published.
    pub agent: Option<AgentState>,
    /// What is known of its policy.
    pub policy: Option<PolicyState>,
}

/// All servers that share the limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownServers {
    /// The time of Redis, in seconds since 1970.
    pub now: u64,
    /// By name.
    pub servers: BTreeMap<String, KnownServer>,
    /// How many fields cannot be read.
    pub unreadable: usize,
}

/// Whether a server may have this name.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The field that the agent of this server writes.
pub(super) fn agent_field(name: &str) -> String {
    format!("{AGENT}{name}")
}

/// The field with the digest of the policy of this server.
pub(super) fn policy_field(name: &str) -> String {
    format!("{POLICY}{name}")
}

impl KnownServer {
    /// When it was seen last, by the clock of Redis.
    #[must_use]
    pub fn seen(&self) -> u64 {
        let agent = self.agent.as_ref().map(|agent| agent.seen);
        agent.or(self.policy.as_ref().map(|policy| policy.written)).unwrap_or(0)
    }
}

impl KnownServers {
    /// Reads the fields of the hash and their values, at this time of Redis. Servers that are
    /// gone are not among them; their fields are the second result.
    pub(super) fn read<'a>(
        now: u64,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> (Self, Vec<String>) {
        let mut known = Self { now, ..Self::default() };
        for (field, value) in fields {
            if known.add(field, value).is_none() {
                known.unreadable += 1;
            }
        }
        let is_gone = |server: &KnownServer| now.saturating_sub(server.seen()) > GONE_AFTER;
        let gone = known.servers.extract_if(.., |_, server| is_gone(server));
        let gone = gone.flat_map(|(name, _)| [agent_field(&name), policy_field(&name)]).collect();
        (known, gone)
    }

    fn add(&mut self, field: &[u8], value: &[u8]) -> Option<()> {
        let field = std::str::from_utf8(field).ok()?;
        let pairs = pairs(value)?;
        if let Some(name) = field.strip_prefix(AGENT).filter(|name| is_server_name(name)) {
            let agent = AgentState::read(&pairs)?;
            self.servers.entry(name.to_owned()).or_default().agent = Some(agent);
        } else {
            let name = field.strip_prefix(POLICY).filter(|name| is_server_name(name))?;
            let policy = PolicyState::read(&pairs)?;
            self.servers.entry(name.to_owned()).or_default().policy = Some(policy);
        }
        Some(())
    }

    /// How long ago a server was seen, in seconds.
    #[must_use]
    pub fn age(&self, server: &KnownServer) -> u64 {
        self.now.saturating_sub(server.seen())
    }

    /// Whether the agent of a server has published its state lately.
    #[must_use]
    pub fn is_seen_lately(&self, server: &KnownServer) -> bool {
        server.agent.is_some() && self.age(server) <= SEEN_LATELY
    }

    /// The secrets of the agents that have published their state lately, and the servers of each.
    #[must_use]
    pub fn secrets(&self) -> BTreeMap<u32, BTreeSet<&str>> {
        let mut secrets: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for (name, server) in &self.servers {
            let secret = server.agent.as_ref().and_then(|agent| agent.secret);
            if let Some(secret) = secret.filter(|_| self.is_seen_lately(server)) {
                secrets.entry(secret).or_default().insert(name);
            }
        }
        secrets
    }
}

impl AgentState {
    /// Reads the value of a field.
    #[must_use]
    pub fn of(value: &[u8]) -> Option<Self> {
        Self::read(&pairs(value)?)
    }

    fn read(pairs: &BTreeMap<&str, &str>) -> Option<Self> {
        let value_of = |name: &str| pairs.get(name).copied();
        let release = value_of("release")?;
        let is_release = |byte: u8| byte.is_ascii_alphanumeric() || b".+~-".contains(&byte);
        let fits = (1..=RELEASE_BYTES_MAX).contains(&release.len());
        let clock = value_of("clock")?;
        let is_clock = clock.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        let id = value_of("id").filter(|id| is_hex(id, 16))?;
        (fits && is_clock && release.bytes().all(is_release)).then_some(())?;
        Some(Self {
            release: release.to_owned(),
            id: u64::from_str_radix(id, 16).ok()?,
            started: whole(value_of("started")?)?,
            seen: whole(value_of("seen")?)?,
            decisions: whole(value_of("decisions")?)?,
            clock: clock.parse().ok().filter(|clock: &f64| clock.abs() <= 1e12)?,
            servers: whole(value_of("servers")?)?.try_into().ok()?,
            secret: match value_of("secret") {
                None => None,
                Some(secret) => Some(hex32(secret)?),
            },
            conflict: value_of("conflict") == Some("1"),
            primary: match value_of("primary") {
                None => None,
                Some(url) => Some(is_url(url).then(|| url.to_owned())?),
            },
            config: match value_of("config") {
                None => None,
                Some(digest) => Some(hex32(digest)?),
            },
        })
    }
}

impl fmt::Display for AgentState {
    /// The value of the field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { release, id, started, seen, decisions, clock, servers, .. } = self;
        write!(
            f,
            "{VERSION} release={release} id={id:016x} started={started} seen={seen} \
             decisions={decisions} clock={clock:.6} servers={servers}"
        )?;
        if let Some(secret) = self.secret {
            write!(f, " secret={secret:08x}")?;
        }
        if let Some(primary) = self.primary.as_ref().filter(|url| is_url(url)) {
            write!(f, " primary={primary}")?;
        }
        if let Some(config) = self.config {
            write!(f, " config={config:08x}")?;
        }
        if self.conflict { f.write_str(" conflict=1") } else { Ok(()) }
    }
}

impl PolicyState {
    fn read(pairs: &BTreeMap<&str, &str>) -> Option<Self> {
        let digest = pairs.get("digest").filter(|digest| is_hex(digest, DIGEST_DIGITS))?;
        Some(Self { digest: (*digest).to_owned(), written: whole(pairs.get("written")?)? })
    }
}

impl fmt::Display for PolicyState {
    /// The value of the field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, written } = self;
        write!(f, "{VERSION} digest={digest} written={written}")
    }
}

/// The pairs of a value, each name once.
pub(super) fn pairs(value: &[u8]) -> Option<BTreeMap<&str, &str>> {
    let short = Some(value).filter(|value| value.len() <= VALUE_BYTES_MAX)?;
    let mut words = std::str::from_utf8(short).ok()?.split(' ');
    (words.next() == Some(VERSION)).then_some(())?;
    let mut pairs = BTreeMap::new();
    for word in words {
        let (name, value) = word.split_once('=')?;
        pairs.insert(name, value).is_none().then_some(())?;
    }
    Some(pairs)
}

/// A number in digits only.
pub(super) fn whole(text: &str) -> Option<u64> {
    // More is no number of seconds, and does not fit a number of JSON.
    const MOST: u64 = 1 << 53;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number <= MOST)
}

fn hex32(text: &str) -> Option<u32> {
    u32::from_str_radix(Some(text).filter(|text| is_hex(text, 8))?, 16).ok()
}

/// Whether this may be the URL of a server, without anything that a terminal or a pair could take
/// for something else.
fn is_url(text: &str) -> bool {
    (1..=URL_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_171_900;
    const AGENT_VALUE: &str = "v=1 release=0.1.0 id=5f0c6a3b9d1e2f40 started=1795171837 \
                               seen=1795171890 decisions=12 clock=-0.000123 servers=4";
    const POLICY_VALUE: &str = "v=1 digest=9f2c41d07a3b5e8894e0a7c1d2f3b4a5 written=1795171800";

    fn agent() -> AgentState {
        AgentState {
            release: "0.1.0".into(),
            id: 0x5f0c_6a3b_9d1e_2f40,
            started: 1_795_171_837,
            seen: NOW - 10,
            decisions: 12,
            clock: -0.000_123,
            servers: 4,
            secret: None,
            conflict: false,
            primary: None,
            config: None,
        }
    }

    fn read(fields: &[(&str, &str)]) -> (KnownServers, Vec<String>) {
        let fields = fields.iter().map(|(field, value)| (field.as_bytes(), value.as_bytes()));
        KnownServers::read(NOW, fields)
    }

    #[test]
    fn what_is_written_is_read() {
        let policy =
            PolicyState { digest: "9f2c41d07a3b5e8894e0a7c1d2f3b4a5".into(), written: NOW - 100 };
        assert_eq!(
            (agent().to_string(), policy.to_string()),
            (AGENT_VALUE.into(), POLICY_VALUE.into())
        );
        let conflict = AgentState { conflict: true, ..agent() };
        assert_eq!(AgentState::of(conflict.to_string().as_bytes()), Some(conflict));
        let with_secret = AgentState { secret: Some(0x5f0c), ..agent() };
        assert!(with_secret.to_string().ends_with(" secret=00005f0c"));
        assert_eq!(AgentState::of(with_secret.to_string().as_bytes()), Some(with_secret));
        let of_sentinel = AgentState {
            primary: Some("redis://[2001:db8::1]:6379".into()),
            config: Some(0xa),
            ..agent()
        };
        let value = of_sentinel.to_string();
        assert!(value.ends_with(" primary=redis://[2001:db8::1]:6379 config=0000000a"), "{value}");
        assert_eq!(AgentState::of(value.as_bytes()), Some(of_sentinel));
        let (known, gone) = read(&[
            ("agent mx1", AGENT_VALUE),
            ("policy mx1", POLICY_VALUE),
            ("policy mx2", POLICY_VALUE),
            // Of a later release.
            ("agent mx3", &format!("{AGENT_VALUE} color=blue a=b=c x=")),
        ]);
        let server = |agent: Option<_>, policy: Option<_>| KnownServer { agent, policy };
        let expected = [
            ("mx1".to_owned(), server(Some(agent()), Some(policy.clone()))),
            ("mx2".to_owned(), server(None, Some(policy))),
            ("mx3".to_owned(), server(Some(agent()), None)),
        ];
        assert_eq!(known, KnownServers { now: NOW, servers: expected.into(), unreadable: 0 });
        assert!(gone.is_empty());
        let lately = |name| known.is_seen_lately(&known.servers[name]);
        assert_eq!(["mx1", "mx2", "mx3"].map(lately), [true, false, true]);
        assert_eq!(known.age(&known.servers["mx2"]), 100);
    }

    #[test]
    fn what_is_not_seen_for_long_is_gone() {
        let of = |seen: u64| AgentState { seen, ..agent() }.to_string();
        let (known, gone) = read(&[
            ("agent old", &of(NOW - GONE_AFTER - 1)),
            ("policy old", POLICY_VALUE),
            ("agent kept", &of(NOW - GONE_AFTER)),
            // Redis has failed over to a server whose clock is slower.
            ("agent ahead", &of(NOW + 1000)),
        ]);
        assert_eq!(known.servers.keys().collect::<Vec<_>>(), ["ahead", "kept"]);
        assert_eq!(gone, ["agent old", "policy old"]);
        assert!(known.is_seen_lately(&known.servers["ahead"]));
        assert!(!known.is_seen_lately(&known.servers["kept"]));
    }

    #[test]
    fn what_is_wrong_is_counted_and_not_shown() {
        let change = |from: &str, to: &str| AGENT_VALUE.replace(from, to);
        let values = [
            String::new(),
            "v=1".into(),
            change("v=1", "v=2"),
            change("v=1 ", ""),
            change("release=0.1.0", "release=\u{1b}[2J"),
            change("release=0.1.0", "release="),
            change("release=0.1.0", &format!("release={}", "1".repeat(33))),
            change(" release=0.1.0", ""),
            change("0.1.0 ", "0.1.0  "),
            change("started=", "started=+"),
            change("decisions=12", "decisions=99999999999999999999"),
            change("decisions=12", "decisions=9007199254740993"),
            change("servers=4", "servers=4294967296"),
            change("servers=4", "servers=4 servers=5"),
            change("clock=-0.000123", "clock=NaN"),
            change("clock=-0.000123", "clock=-inf"),
            change("clock=-0.000123", "clock=1e300"),
            change("clock=-0.000123", "clock=1-2"),
            change("clock=-0.000123", &format!("clock={}", "9".repeat(40))),
            change("id=5", "id=5F"),
            change("id=5f", "id=5F"),
            format!("{AGENT_VALUE} secret=5F0C0000"),
            format!("{AGENT_VALUE} secret=5f0c"),
            format!("{AGENT_VALUE} config=5f0c"),
            format!("{AGENT_VALUE} primary="),
            format!("{AGENT_VALUE} primary=\u{1b}[2J"),
            format!("{AGENT_VALUE}\n"),
            format!("{AGENT_VALUE} x={}", "x".repeat(1024)),
        ];
        for value in &values {
            let (known, _) = read(&[("agent mx1", value)]);
            assert!(known.servers.is_empty() && known.unreadable == 1, "{value}: {known:?}");
        }
        for value in ["v=1 digest=9f2c written=1", "v=1 written=1", "v=2 digest=0 written=1"] {
            assert_eq!(read(&[("policy mx1", value)]).0.unreadable, 1, "{value}");
        }
        let long = format!("agent {}", "x".repeat(65));
        for field in ["agent ", "agent", "agents mx1", "agent a b", "agent \u{1b}[2J", "mx1", &long]
        {
            let (known, _) = read(&[(field, AGENT_VALUE)]);
            assert!(known.servers.is_empty() && known.unreadable == 1, "{field}: {known:?}");
        }
        let (known, _) = KnownServers::read(NOW, [(&b"agent \xff"[..], &b"\xff"[..])].into_iter());
        assert_eq!(known.unreadable, 1);
    }
}
