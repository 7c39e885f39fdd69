//! `[policy.NAME]`.

use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::super::model::{Grade, Identity, Limits, Location, Policy, PolicySettings, When};
use super::super::word::{Action, Counting, OnError, State, Verdict, Word as _};
use super::tables::{self, Listed, Packages};
use super::values::{networks, template};
use super::{amount, exempt, users};
use crate::policy::model::DomainPattern;
use crate::toml_file::diagnostic::{allowed_instead, similar};
use crate::toml_file::reader::{Reader, Value};
use crate::toml_file::text::Load;

const KEYS: &[&str] = &[
    "when",
    "action",
    "update",
    "on_error",
    "text",
    "key",
    "verdicts",
    "longest_delay",
    "bucket",
    "default",
    "package",
    "domain",
    "user",
    "users",
    "exempt",
];
const CONDITIONS: &[&str] = &["client", "sender_domain", "recipient_domain"];
/// The delay that a client waits for without giving up.
const LONGEST_DELAY: f64 = 30.0;
/// The longest delay: clients give up after five minutes.
const MOST_DELAY: f64 = 300.0;

/// Reads the policy `name`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    identity: &Identity,
    name: &Spanned<DeString<'_>>,
    value: Value<'_>,
    load: Load<'_>,
) -> Option<Policy> {
    let at = reader.at(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.get_ref().is_empty() || !name.get_ref().chars().all(plain) || name.get_ref().len() > 64
    {
        reader.error(
            name,
            format!(
                "{:?} is not a name of a policy; use up to 64 letters, digits, - and _",
                name.get_ref()
            ),
        );
    }
    let table = reader.table(value, "[policy.outbound]")?;
    let mut policy = empty(at);
    let mut packages = Packages::default();
    let (mut domains, mut users) = (Listed::default(), Listed::default());
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "when" => policy.settings.when = when(reader, identity, value),
            "action" => set(&mut policy.settings.action, reader.word(value, "action")),
            "update" => set(&mut policy.settings.update, reader.word(value, "update mode")),
            "on_error" => set(&mut policy.settings.on_error, reader.word(value, "on_error")),
            "text" => {
                let text = reader.string(value, "\"Over {limit} {unit} in {period}\"");
                policy.settings.text = text.and_then(|text| template(reader, value, text));
                if text.is_some_and(|text| text.contains(['\r', '\n', '\0'])) {
                    reader.error(value, "a reply to the client is one line");
                }
            }
            "key" => policy.settings.key = reader.words(value, "field").unwrap_or_default(),
            "verdicts" => policy.settings.verdicts = verdicts(reader, value),
            "longest_delay" => longest_delay(reader, value, &mut policy),
            "default" => {
                let place = format!("in [policy.{}.default]", name.get_ref());
                let bucket = policy.default.buckets.take();
                policy.default = tables::limits(reader, key, value, &place);
                if let (Some(bucket), Some(_)) = (&bucket, &policy.default.buckets) {
                    reader
                        .diagnostics
                        .error(bucket.at, "the policy has a bucket here and in its default");
                }
                policy.default.buckets = policy.default.buckets.take().or(bucket);
            }
            "bucket" => {
                let buckets = tables::buckets(reader, value);
                policy.default.buckets = buckets.map(Box::new);
            }
            "package" => policy.packages = tables::packages(reader, name.get_ref(), value),
            "domain" => {
                tables::domains(reader, name.get_ref(), key, value, &mut domains, &mut packages);
            }
            "user" => {
                let (name, folding) = (name.get_ref(), &identity.folding);
                tables::users(reader, folding, name, key, value, &mut users, &mut packages);
            }
            "users" | "exempt" => {}
            _ => reader.unknown_key(key, &format!("in [policy.{}]", name.get_ref()), KEYS),
        }
    }
    if let Some(value) = table.get("users") {
        users::read(reader, &identity.folding, value, load, &mut users, &mut packages);
    }
    (policy.domains, policy.users) = (domains.into_members(), users.into_members());
    if let Some(value) = table.get("exempt") {
        policy.exempt = exempt::read(reader, &identity.folding, name.get_ref(), value);
    }
    packages.check(reader, &policy);
    Some(policy)
}

fn empty(at: Location) -> Policy {
    Policy {
        at,
        settings: PolicySettings {
            when: Vec::new(),
            action: Action::Enforce,
            update: Counting::Leaky,
            on_error: OnError::FailOpen,
            text: None,
            key: Vec::new(),
            verdicts: vec![Grade { from: 1.0, verdict: Verdict::Defer, at }],
            longest_delay: LONGEST_DELAY,
        },
        default: Limits::default(),
        packages: Default::default(),
        domains: Default::default(),
        users: Default::default(),
        exempt: Vec::new(),
    }
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

/// `when`: a condition, or an array of which all must hold.
fn when(reader: &mut Reader<'_>, identity: &Identity, value: Value<'_>) -> Vec<When> {
    let mut all = Vec::new();
    match value.get_ref() {
        DeValue::Array(array) => {
            array.iter().for_each(|value| condition(reader, identity, value, &mut all));
        }
        _ => condition(reader, identity, value, &mut all),
    }
    for (at, one) in all.iter().enumerate() {
        let When::Is { state, not } = *one else { continue };
        let opposite = When::Is { state, not: !not };
        if all.iter().skip(at + 1).any(|other| *other == opposite) {
            reader.error(
                value,
                format!(
                    "{:?} and {:?} never hold together",
                    state.word(),
                    format!("!{}", state.word())
                ),
            );
        }
    }
    all
}

fn condition(reader: &mut Reader<'_>, identity: &Identity, value: Value<'_>, all: &mut Vec<When>) {
    match value.get_ref() {
        DeValue::Table(table) => {
            if table.is_empty() {
                reader.error(value, format!("no condition; allowed: {}", CONDITIONS.join(", ")));
            }
            for (key, value) in table {
                all.push(match key.get_ref().as_ref() {
                    "client" => When::Client(networks(reader, value)),
                    "sender_domain" => When::SenderDomain(domains(reader, value)),
                    "recipient_domain" => When::RecipientDomain(domains(reader, value)),
                    _ => {
                        reader.unknown_key(key, "in when", CONDITIONS);
                        continue;
                    }
                });
            }
        }
        _ => {
            let example =
                "\"authenticated\", \"!local\" or a table such as { client = [\"192.0.2.0/24\"] }";
            let Some(text) = reader.string(value, example) else { return };
            let (word, not) = match text.strip_prefix('!') {
                Some(word) => (word, true),
                None => (text, false),
            };
            let Some(state) = State::of(word) else {
                let table = match similar(word, CONDITIONS.iter().copied()) {
                    Some(known) => {
                        format!("; a condition with a value is a table: {{ {known} = [\"...\"] }}")
                    }
                    None => String::new(),
                };
                let instead = allowed_instead(word, &State::words());
                reader.error(value, format!("unknown condition {word:?}; {instead}{table}"));
                return;
            };
            if state == State::Relay && identity.relay.is_empty() {
                reader.error(
                    value,
                    "which clients are relays is missing: [identity] relay = [\"192.0.2.0/24\"]",
                );
            }
            if state == State::Always && not {
                reader.error(value, "\"!always\" never holds");
            }
            all.push(When::Is { state, not });
        }
    }
}

fn domains(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<DomainPattern> {
    reader.each(value, "[\"example.org\"]", amount::domain).unwrap_or_default()
}

/// `verdicts = { "80%" = "log", "100%" = "defer", "300%" = "reject" }`
fn verdicts(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<Grade> {
    let mut grades: Vec<Grade> = Vec::new();
    let Some(table) = reader.table(value, "{ \"80%\" = \"log\", \"100%\" = \"defer\" }") else {
        return grades;
    };
    for (key, value) in table {
        let text = key.get_ref().trim();
        let percent = text.strip_suffix('%').map(str::trim_end);
        let percent = percent.filter(|p| p.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
        let from = percent.and_then(|p| p.parse::<f64>().ok()).filter(|p| (1.0..=1e6).contains(p));
        let Some(from) = from.map(|percent| percent / 100.0) else {
            reader.error(key, format!("{text:?} is not a part of the limit; expected such as \"80%\", \"100%\" or \"300%\""));
            continue;
        };
        let at = reader.at(key);
        let Some(verdict) = reader.word::<Verdict>(value, "verdict") else { continue };
        if grades.iter().any(|grade| grade.from == from) {
            reader.error(key, format!("{text:?} is listed twice"));
        }
        grades.push(Grade { from, verdict, at });
    }
    grades.sort_by(|one, other| one.from.total_cmp(&other.from));
    if table.is_empty() {
        reader.error(value, "no verdict; expected such as { \"100%\" = \"defer\" }");
    }
    grades
}

fn longest_delay(reader: &mut Reader<'_>, value: Value<'_>, policy: &mut Policy) {
    let Some(text) = reader.string(value, "\"30s\"") else { return };
    match amount::period(text) {
        Ok(seconds) if seconds <= MOST_DELAY => policy.settings.longest_delay = seconds,
        Ok(_) => reader
            .error(value, format!("{text:?} is too long: clients give up after 5 minutes (5m)")),
        Err(message) => reader.error(value, message),
    }
}
