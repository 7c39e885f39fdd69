//! `[[policy.NAME.exempt]]`.

use toml::de::{DeTable, DeValue};

use super::super::model::{Exempt, Match};
use super::amount;
use super::listed::Naming;
use crate::toml_file::reader::{Reader, Value};

const KEYS: &[&str] = &["match", "recipients", "until", "reason"];

/// Reads the entries.
pub(super) fn read(
    reader: &mut Reader<'_>,
    naming: Naming<'_>,
    policy: &str,
    value: Value<'_>,
) -> Vec<Exempt> {
    let Some(entries) = reader.array(value, &format!("[[policy.{policy}.exempt]]")) else {
        return Vec::new();
    };
    let tables = entries.iter().filter_map(|value| {
        let table = reader.table(value, "{ match = [\"192.0.2.0/24\"] }")?;
        Some(entry(reader, naming, policy, value, table))
    });
    tables.collect()
}

fn entry(
    reader: &mut Reader<'_>,
    naming: Naming<'_>,
    policy: &str,
    value: Value<'_>,
    table: &DeTable<'_>,
) -> Exempt {
    let (matches, recipients) = (Vec::new(), Vec::new());
    let mut exempt =
        Exempt { at: reader.at(value), matches, recipients, until: None, reason: None };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "match" => exempt.matches = matches_of(reader, naming, value, true),
            "recipients" => exempt.recipients = matches_of(reader, naming, value, false),
            "until" => exempt.until = until(reader, value),
            "reason" => {
                let reason = reader.string(value, "\"year-end letter\"");
                exempt.reason = reason.map(str::to_owned);
            }
            _ => reader.unknown_key(key, &format!("in [[policy.{policy}.exempt]]"), KEYS),
        }
    }
    if !table.contains_key("match") && !table.contains_key("recipients") {
        let example = "match = [\"ceo@example.org\", \"192.0.2.0/24\"]";
        reader.error(value, format!("who is exempt is missing; expected such as {example}"));
    }
    exempt
}

/// Addresses, logins, domains and, with `clients`, networks.
fn matches_of(
    reader: &mut Reader<'_>,
    naming: Naming<'_>,
    value: Value<'_>,
    clients: bool,
) -> Vec<Match> {
    let each = |text: &str| matches(naming, text, clients);
    reader.each(value, "[\"ceo@example.org\"]", each).unwrap_or_default().concat()
}

fn matches(naming: Naming<'_>, text: &str, clients: bool) -> Result<Vec<Match>, String> {
    let network = text.contains('/') || text.parse::<std::net::IpAddr>().is_ok();
    if network {
        return match amount::network(text) {
            Ok(network) if clients => Ok(vec![Match::Client(network)]),
            Ok(network) => {
                Err(format!("{network} is a client; a recipient is an address or a domain"))
            }
            Err(message) => Err(message),
        };
    }
    if let Some(domain) = text.strip_prefix('@').or(text.starts_with("*.").then_some(text)) {
        return Ok(vec![Match::Domain(amount::domain(domain)?)]);
    }
    let expected = if clients {
        "expected an address, a login, a domain or a network"
    } else {
        "expected an address or a domain"
    };
    let identity = naming.folding.identity(text).filter(|_| !text.contains(['*', '?', ' ']));
    let identity = identity.ok_or_else(|| format!("{text:?} matches nobody; {expected}"))?;
    // A recipient is always folded.
    let written = naming.written(text, &identity).filter(|_| clients);
    let mut all = vec![Match::Identity(identity)];
    all.extend(written.map(Match::Identity));
    // A name with a dot is a domain, or a login.
    if !text.contains('@') && text.contains('.') {
        all.extend(amount::domain(text).map(Match::Domain));
    }
    Ok(all)
}

/// A moment, in seconds since 1970.
fn until(reader: &mut Reader<'_>, value: Value<'_>) -> Option<i64> {
    const EXAMPLE: &str = "2026-12-31T00:00:00Z";
    let written = match value.get_ref() {
        DeValue::Datetime(time) => time.to_string(),
        _ => reader.string(value, EXAMPLE)?.to_owned(),
    };
    match written.parse::<jiff::Timestamp>() {
        Ok(time) => Some(time.as_second()),
        Err(_) => {
            let message =
                format!("{written} is not a moment with its time zone; expected such as {EXAMPLE}");
            reader.error(value, message);
            None
        }
    }
}
