//! Policy files as text: TOML and CSV → [`Policies`].
//!
//! Every error is reported, not only the first, each with its file, line and
//! column, what is wrong and what is allowed. Where the text is no TOML, only that
//! is reported: all else would be a guess.

mod amount;
mod contact;
mod deny;
mod exempt;
pub(super) mod kind;
mod listed;
mod policy;
mod settings;
mod tables;
mod users;

use std::path::Path;

use toml::de::DeTable;

use super::destination::{Destination, Destinations};
use super::model::{Identity, Location, OnCrossing, Policies, Policy, PolicySettings};
use crate::calendar::{self, Zone};
use crate::toml_file::diagnostic::Diagnostics;
use crate::toml_file::reader::{Reader, Value, parse, shortened};
pub use crate::toml_file::text::Load;
use crate::toml_file::text::load;
use crate::versions::{USE_THE_LATER, Versions};
pub(crate) use amount::network;
use kind::{Context, Kind as _};
#[cfg(test)]
pub(super) use policy::TABLES;

/// The policy file that is used where none is named.
pub const FILE: &str = "/etc/exirate/policy.toml";
/// The versions of the policy language.
const VERSIONS: Versions = Versions::only(VERSION);
const VERSION: u32 = 1;
/// What is said of another one.
const WRITE_VERSION: &str =
    "this exirate reads version 1 of the policy language; write: version = 1";
/// The keys at the top of a policy file.
const TOP: &[&str] = &["version", ACTION, ZONE, USAGE, "identity", "destination", "on", "policy"];
/// The time zone of limits by the calendar.
const ZONE: &str = "timezone";
/// Whether what accounts send is counted.
const USAGE: &str = "usage";
/// What policies do that do not say so themselves.
const ACTION: &str = "action";

/// A policy file that was read.
#[derive(Debug)]
pub struct Compiled {
    /// The policies; `None` if there is an error.
    pub policies: Option<Policies>,
    /// What is wrong.
    pub diagnostics: Diagnostics,
}

/// Reads the policy file at `path`, and the files it names, which are relative to
/// its directory.
///
/// # Errors
/// Why the policy file cannot be read. If one that it names cannot, that is a
/// diagnostic.
pub fn read(path: &Path) -> Result<Compiled, String> {
    Ok(compile(path, &load(path)?, &load))
}

/// Checks `text`, the policy file at `path`; `load` reads the files it names.
#[must_use]
pub fn compile(path: &Path, text: &str, load: Load<'_>) -> Compiled {
    if let Some(compiled) = compile_long(path, text, load) {
        return compiled;
    }
    let mut diagnostics = Diagnostics::of(path);
    let Some(document) = parse(text, &mut diagnostics) else {
        return Compiled { policies: None, diagnostics };
    };
    let mut reader = Reader::new(text, diagnostics);
    let policies = read_document(&mut reader, document.get_ref(), load);
    compiled(policies, reader.diagnostics)
}

/// As [`compile`], for a text with very many users or domains; `None` if it has not, or if
/// anything is wrong with it.
fn compile_long(path: &Path, text: &str, load: Load<'_>) -> Option<Compiled> {
    let is_long = |header: &str| {
        let name = header.strip_prefix("policy.");
        let name = name.and_then(|n| n.strip_suffix(".user").or(n.strip_suffix(".domain")));
        name.is_some_and(|name| !name.contains(['.', '"', '\'', ' ']))
    };
    let short = shortened(text, is_long)?;
    let mut diagnostics = Diagnostics::of(path);
    let document = parse(&short.text, &mut diagnostics)?;
    let mut reader = Reader::of_shortened(text, &short, diagnostics);
    let policies = read_document(&mut reader, document.get_ref(), load);
    let sound = reader.is_complete() && !reader.diagnostics.has_errors();
    sound.then(|| compiled(policies, reader.diagnostics))
}

fn compiled(mut policies: Policies, diagnostics: Diagnostics) -> Compiled {
    policies.files.clone_from(&diagnostics.files);
    let policies = Some(policies).filter(|_| !diagnostics.has_errors());
    Compiled { policies, diagnostics }
}

fn read_document(reader: &mut Reader<'_>, table: &DeTable<'_>, load: Load<'_>) -> Policies {
    let mut policies = Policies::default();
    let mut common = PolicySettings::default();
    match table.get("version") {
        None => {
            reader
                .diagnostics
                .error(Location::START, "the version is missing; start with: version = 1");
        }
        Some(value) => match value.get_ref().as_integer() {
            Some(version) => match version.as_str().parse().map(|found| VERSIONS.check(found)) {
                Ok(Ok(())) => {}
                Ok(Err(other)) if other.is_later() => {
                    reader.error(
                        value,
                        format!("the file {other}: {USE_THE_LATER}, or write: version = 1"),
                    );
                }
                _ => reader.error(value, WRITE_VERSION),
            },
            None => reader.error(value, WRITE_VERSION),
        },
    }
    if let Some(value) = table.get("identity") {
        policies.identity = identity(reader, value);
    }
    if let Some(value) = table.get("destination") {
        policies.identity.destinations = destinations(reader, value);
    }
    if let Some(value) = table.get("on") {
        policies.on_crossing = on(reader, value);
    }
    let action = table.get(ACTION);
    if let Some(action) =
        action.and_then(|value| kind::OneOf(ACTION).parse(reader, value, Context::default()))
    {
        common.action = action;
    }
    let usage = table.get(USAGE);
    let usage = usage.and_then(|value| kind::Flag.parse(reader, value, Context::default()));
    policies.no_usage = usage == Some(false);
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "version" | ACTION | ZONE | USAGE | "identity" | "destination" | "on" => {}
            "policy" => {
                let Some(named) = reader.table(value, "[policy.outbound]") else { continue };
                for (name, value) in named {
                    let policy =
                        policy::read(reader, &policies.identity, &common, name, value, load);
                    policies
                        .policies
                        .extend(policy.map(|policy| (name.get_ref().to_string(), policy)));
                }
            }
            _ => reader.unknown_key(key, "at the top of the file", TOP),
        }
    }
    policies.zone = zone(reader, table, &policies);
    deny::check(&policies, &mut reader.diagnostics);
    contact::check(&policies, &mut reader.diagnostics);
    policies
}

/// The time zone: the one that is named, or that of the server if a limit needs one or usage is
/// counted.
fn zone(reader: &mut Reader<'_>, table: &DeTable<'_>, policies: &Policies) -> Option<Zone> {
    if let Some(value) = table.get(ZONE) {
        let name = reader.string(value, "\"Europe/Berlin\"")?;
        let found = calendar::load(Some(name));
        return found.map_err(|error| reader.error(value, error.to_string())).ok();
    }
    let found = calendar::load(None);
    let Some(at) = policies.policies.values().find_map(Policy::uses_calendar) else {
        // For the days of what is sent: a server that does not state its zone is on UTC.
        let is_counted = policies.counts_usage() && !policies.policies.is_empty();
        return found.ok().filter(|zone| is_counted && zone.is_ahead());
    };
    found.map_err(|error| reader.diagnostics.error(at, error.to_string())).ok()
}

/// `[identity]`
fn identity(reader: &mut Reader<'_>, value: Value<'_>) -> Identity {
    let mut identity = Identity::default();
    let Some(table) = reader.table(value, "[identity]") else { return identity };
    settings::read(reader, table, &mut identity, "in [identity]", &[], Context::default());
    identity.at = table.get("chain").map(|chain| reader.at(chain));
    identity
}

/// `[destination.NAME]`
fn destinations(reader: &mut Reader<'_>, value: Value<'_>) -> Destinations {
    const EXAMPLE: &str = "[destination.google]";
    let mut all: Vec<Destination> = Vec::new();
    for (name, value) in reader.table(value, EXAMPLE).into_iter().flatten() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let text = name.get_ref();
        if text.is_empty() || !text.chars().all(plain) || text.len() > 64 {
            reader.error(
                name,
                format!(
                    "invalid destination {text:?}; use up to 64 lower-case letters, digits, - and _"
                ),
            );
        }
        let place = format!("in [destination.{text}]");
        let mut domains = None;
        for (key, value) in reader.table(value, EXAMPLE).into_iter().flatten() {
            match key.get_ref().as_ref() {
                "domains" => domains = reader.each(value, "[\"example.org\"]", amount::domain),
                _ => reader.unknown_key(key, &place, &["domains"]),
            }
        }
        let domains = domains.unwrap_or_default();
        if domains.is_empty() {
            reader
                .error(name, format!("{text:?} has no domains; write domains = [\"example.org\"]"));
        }
        let twice = domains
            .iter()
            .find_map(|one| Some((one, all.iter().find(|other| other.domains.contains(one))?)));
        if let Some((domain, other)) = twice {
            let other = &other.name;
            reader.error(name, format!("{domain} is in [destination.{other}] as well"));
        }
        all.push(Destination { name: text.to_string(), domains });
    }
    Destinations(all)
}

/// `[on]`
fn on(reader: &mut Reader<'_>, value: Value<'_>) -> OnCrossing {
    let mut on_crossing = OnCrossing::default();
    let Some(table) = reader.table(value, "[on.crossing]") else { return on_crossing };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "crossing" => {
                let Some(table) = reader.table(value, "[on.crossing]") else { continue };
                let context = Context::default();
                settings::read(reader, table, &mut on_crossing, "in [on.crossing]", &[], context);
            }
            _ => reader.unknown_key(key, "in [on]", &["crossing"]),
        }
    }
    on_crossing
}

#[cfg(test)]
mod tests;
