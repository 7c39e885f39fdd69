//! Policy files as text: TOML and CSV → [`Policies`].
//!
//! Every error is reported, not only the first, each with its file, line and
//! column, what is wrong and what is allowed. Where the text is no TOML, only that
//! is reported: all else would be a guess.

mod amount;
mod exempt;
mod policy;
mod tables;
mod users;
mod values;

use std::path::Path;

use toml::de::DeTable;

use super::model::{Identity, Location, OnCrossing, Policies, Template};
use super::word::Field;
use crate::toml_file::diagnostic::Diagnostics;
use crate::toml_file::reader::{Reader, Value, parse, shortened};
pub use crate::toml_file::text::Load;
use crate::toml_file::text::load;
use values::{networks, template};

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
    const KEYS: &[&str] = &["version", "identity", "on", "policy"];
    let mut policies = Policies::default();
    match table.get("version") {
        None => {
            reader
                .diagnostics
                .error(Location::START, "the version is missing; start with: version = 1");
        }
        Some(value) => match value.get_ref().as_integer() {
            Some(version) if version.as_str() == "1" => {}
            _ => reader.error(
                value,
                "this exirate reads version 1 of the policy language; write: version = 1",
            ),
        },
    }
    if let Some(value) = table.get("identity") {
        policies.identity = identity(reader, value);
    }
    if let Some(value) = table.get("on") {
        policies.on_crossing = on(reader, value);
    }
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "version" | "identity" | "on" => {}
            "policy" => {
                let Some(named) = reader.table(value, "[policy.outbound]") else { continue };
                for (name, value) in named {
                    let policy = policy::read(reader, &policies.identity, name, value, load);
                    policies
                        .policies
                        .extend(policy.map(|policy| (name.get_ref().to_string(), policy)));
                }
            }
            _ => reader.unknown_key(key, "at the top of the file", KEYS),
        }
    }
    policies
}

/// `[identity]`
fn identity(reader: &mut Reader<'_>, value: Value<'_>) -> Identity {
    const KEYS: &[&str] = &["chain", "fold", "mask", "qualify", "relay"];
    let mut identity = Identity::default();
    let Some(table) = reader.table(value, "[identity]") else { return identity };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "chain" => {
                if let Some(chain) = reader.words(value, "identity") {
                    identity.chain = chain;
                    identity.at = Some(reader.at(value));
                }
                for field in [Field::Recipient, Field::RecipientDomain] {
                    if identity.chain.contains(&field) {
                        reader.error(value, "a recipient is not who sends; name it in the key of a policy: key = [\"recipient\"]");
                    }
                }
            }
            "fold" => fold(reader, value, &mut identity),
            "mask" => mask(reader, value, &mut identity),
            "qualify" => {
                let Some(text) = reader.string(value, "\"example.org\"") else { continue };
                match amount::one_domain(text) {
                    Some(domain) => identity.folding.qualify = Some(domain),
                    None => reader.error(
                        value,
                        format!("{text:?} is not a domain; expected such as example.org"),
                    ),
                }
            }
            "relay" => identity.relay = networks(reader, value),
            _ => reader.unknown_key(key, "in [identity]", KEYS),
        }
    }
    identity
}

fn fold(reader: &mut Reader<'_>, value: Value<'_>, identity: &mut Identity) {
    const KEYS: &[&str] = &["case", "plus", "dots"];
    let Some(table) = reader.table(value, "{ case = true, plus = true }") else { return };
    let folding = &mut identity.folding;
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "case" => folding.case = reader.boolean(value).unwrap_or(true),
            "plus" => folding.plus = reader.boolean(value).unwrap_or(false),
            "dots" => {
                let domain = |text: &str| {
                    amount::one_domain(text).ok_or_else(|| {
                        format!("{text:?} is not a domain; expected such as gmail.com")
                    })
                };
                folding.dots = reader.each(value, "[\"gmail.com\"]", domain).unwrap_or_default();
            }
            _ => reader.unknown_key(key, "in fold", KEYS),
        }
    }
}

fn mask(reader: &mut Reader<'_>, value: Value<'_>, identity: &mut Identity) {
    let Some(table) = reader.table(value, "{ v4 = 32, v6 = 64 }") else { return };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "v4" => identity.folding.v4 = reader.integer(value, 0..=32).unwrap_or(32),
            "v6" => identity.folding.v6 = reader.integer(value, 0..=128).unwrap_or(64),
            _ => reader.unknown_key(key, "in mask", &["v4", "v6"]),
        }
    }
}

/// `[on]`
fn on(reader: &mut Reader<'_>, value: Value<'_>) -> OnCrossing {
    let mut on_crossing = OnCrossing::default();
    let Some(table) = reader.table(value, "[on.crossing]") else { return on_crossing };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "crossing" => on_crossing = crossing(reader, value),
            _ => reader.unknown_key(key, "in [on]", &["crossing"]),
        }
    }
    on_crossing
}

/// `[on.crossing]`
fn crossing(reader: &mut Reader<'_>, value: Value<'_>) -> OnCrossing {
    const KEYS: &[&str] = &["log", "run", "post", "mail", "repeat", "observed"];
    let mut on = OnCrossing::default();
    let Some(table) = reader.table(value, "[on.crossing]") else { return on };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "log" => on.log = reader.boolean(value).unwrap_or(false),
            "observed" => on.observed = reader.boolean(value).unwrap_or(false),
            "run" => on.run = command(reader, value),
            "post" => {
                let url = reader.string(value, "\"https://ops.example/hook\"");
                on.post = url.map(str::to_owned);
                let host =
                    url.map(|url| ["https://", "http://"].iter().find_map(|s| url.strip_prefix(s)));
                if host.is_some_and(|host| {
                    host.is_none_or(|host| {
                        host.is_empty()
                            || host.starts_with('/')
                            || host.contains(char::is_whitespace)
                    })
                }) {
                    reader.error(value, "not a URL; expected such as https://ops.example/hook");
                }
            }
            "mail" => {
                on.mail = reader.string(value, "\"postmaster@example.org\"").map(str::to_owned);
                let sound = |a: &String| {
                    a.split_once('@')
                        .is_some_and(|(l, d)| !l.is_empty() && amount::one_domain(d).is_some())
                        && !a.contains(char::is_whitespace)
                };
                if on.mail.as_ref().is_some_and(|address| !sound(address)) {
                    reader.error(
                        value,
                        "not one mail address; expected such as postmaster@example.org",
                    );
                }
            }
            "repeat" => {
                let Some(text) = reader.string(value, "\"1d\"") else { continue };
                match amount::period(text) {
                    Ok(seconds) => on.repeat = Some(seconds),
                    Err(message) => reader.error(value, message),
                }
            }
            _ => reader.unknown_key(key, "in [on.crossing]", KEYS),
        }
    }
    on
}

/// A program and its arguments.
fn command(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<Template> {
    const EXAMPLE: &str = "[\"/usr/local/sbin/over\", \"{policy}\", \"{key}\"]";
    let mut run = Vec::new();
    let Some(words) = reader.array(value, EXAMPLE) else { return run };
    if words.is_empty() {
        reader.error(value, format!("the array is empty; expected such as {EXAMPLE}"));
    }
    for word in words.iter() {
        let Some(text) = reader.string(word, "\"{key}\"") else { continue };
        if run.is_empty() && (!text.starts_with('/') || text.contains('{')) {
            reader.error(word, format!("{text:?} is not the absolute path of a program"));
        }
        run.extend(template(reader, word, text));
    }
    run
}

#[cfg(test)]
mod tests;
