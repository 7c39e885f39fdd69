//! The tables of a policy: limits by default, package, domain and user.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::super::fold::Folding;
use super::super::model::{
    Amount, Bucket, Buckets, ByUnit, Limits, Location, Member, Members, Policy,
};
use super::super::word::{Unit, Word as _};
use super::amount::{self, UNLIMITED};
use crate::toml_file::diagnostic::similar;
use crate::toml_file::reader::{Reader, Value};

/// The packages that domains and users name, and where; they must exist.
#[derive(Default)]
pub(super) struct Packages(BTreeMap<Arc<str>, Vec<Location>>);

impl Packages {
    /// Adds a place; returns the name, which all places share.
    pub(super) fn add(&mut self, name: &str, at: Location) -> Arc<str> {
        let known = self.0.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| name.into());
        self.0.entry(Arc::clone(&name)).or_default().push(at);
        name
    }

    pub(super) fn check(self, reader: &mut Reader<'_>, policy: &Policy) {
        for (name, places) in self.0 {
            if policy.packages.contains_key(&*name) {
                continue;
            }
            let known = || policy.packages.keys().map(String::as_str);
            let instead = match similar(&name, known()) {
                Some(known) => format!("did you mean {known:?}?"),
                None if policy.packages.is_empty() => "this policy has no packages".to_owned(),
                None => {
                    format!("its packages: {}", known().take(20).collect::<Vec<_>>().join(", "))
                }
            };
            for at in places {
                reader.diagnostics.error(at, format!("unknown package {name:?}; {instead}"));
            }
        }
    }
}

/// The domains or users that were read so far.
#[derive(Default)]
pub(super) struct Listed {
    all: Vec<(Box<str>, Member)>,
    /// By the hash of its name, where each is.
    places: HashMap<u64, usize>,
    hasher: RandomState,
}

impl Listed {
    /// Adds a user or a domain, once.
    pub(super) fn add(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        written: &str,
        folded: String,
        member: Member,
    ) {
        let hash = self.hasher.hash_one(folded.as_str());
        let first = self.places.get(&hash).and_then(|at| self.all.get(*at));
        if let Some((_, first)) = first.filter(|(name, _)| **name == *folded) {
            let files = &reader.diagnostics.files;
            let place = crate::toml_file::diagnostic::place(files, first.limits.at);
            let folding =
                if written == folded { String::new() } else { format!(", folded to {folded:?},") };
            let message = format!("{what} {written:?}{folding} is listed twice; first at {place}");
            reader.diagnostics.error(member.limits.at, message);
            return;
        }
        self.places.insert(hash, self.all.len());
        self.all.push((folded.into(), member));
    }

    pub(super) fn into_members(self) -> Members {
        self.all.into()
    }
}

type Key<'a> = Spanned<DeString<'a>>;

/// The words of all units, and more.
fn allowed(more: &[&'static str]) -> Vec<&'static str> {
    [&Unit::words(), more].concat()
}

/// Reads `key = value` into `limits` if it is a limit.
fn limit(
    reader: &mut Reader<'_>,
    key: &str,
    value: Value<'_>,
    place: &str,
    limits: &mut Limits,
) -> bool {
    if let Some(unit) = Unit::of(key) {
        if let Some(amount) = amount(reader, unit, value) {
            limits.each.insert(unit, amount);
        }
    } else if key == "bucket" {
        limits.buckets = buckets(reader, value).map(Box::new);
    } else if key == "total" {
        limits.total = total(reader, value, place);
    } else {
        return false;
    }
    true
}

/// A table of limits only.
pub(super) fn limits(
    reader: &mut Reader<'_>,
    key: &Key<'_>,
    value: Value<'_>,
    place: &str,
) -> Limits {
    let mut limits = Limits { at: reader.at(key), ..Limits::default() };
    let Some(table) = reader.table(value, "{ recipients = \"100/1h\" }") else { return limits };
    for (key, value) in table {
        if !limit(reader, key.get_ref(), value, place, &mut limits) {
            reader.unknown_key(key, place, &allowed(&["bucket", "total"]));
        }
    }
    limits
}

/// The limits of a unit.
pub(super) fn amount(reader: &mut Reader<'_>, unit: Unit, value: Value<'_>) -> Option<Amount> {
    let mut amount = Amount { at: reader.at(value), windows: Box::default() };
    if value.get_ref().as_str().is_some_and(|text| text.trim() == UNLIMITED) {
        return Some(amount);
    }
    if unit.is_cap() {
        let text = number_text(reader, value, "100")?;
        match amount::limit(unit, &text) {
            Ok(cap) => amount.windows = [cap].into(),
            Err(message) => reader.error(value, message),
        }
        return Some(amount);
    }
    let example = "\"100/1h\", [\"100/1h\", \"500/1d\"] or \"unlimited\"";
    amount.windows = reader.each(value, example, |text| amount::limit(unit, text))?.into();
    Some(amount)
}

fn total(reader: &mut Reader<'_>, value: Value<'_>, place: &str) -> ByUnit {
    let mut total = ByUnit::default();
    let Some(table) = reader.table(value, "{ recipients = \"3000/1h\" }") else { return total };
    for (key, value) in table {
        match Unit::of(key.get_ref()) {
            Some(cap) if cap.is_cap() => {
                let text = format!("{} is a number of one message: no total counts it", cap.word());
                reader.error(value, text);
            }
            Some(unit) => {
                if let Some(amount) = amount(reader, unit, value) {
                    total.insert(unit, amount);
                }
            }
            None => reader.unknown_key(key, &format!("in total {place}"), &allowed(&[])),
        }
    }
    total
}

/// `bucket`: a bucket, an array of them, or "unlimited".
pub(super) fn buckets(reader: &mut Reader<'_>, value: Value<'_>) -> Option<Buckets> {
    const EXAMPLE: &str = "{ burst = 5, rate = \"1 / 1h\" }";
    let mut buckets = Buckets { at: reader.at(value), buckets: Vec::new() };
    match value.get_ref() {
        DeValue::String(text) if text.trim() == UNLIMITED => {}
        DeValue::Array(array) => {
            if array.is_empty() {
                reader.error(value, format!("the array is empty; expected such as [{EXAMPLE}]"));
            }
            for value in array.iter() {
                let table = reader.table(value, EXAMPLE);
                buckets.buckets.extend(table.and_then(|table| bucket(reader, value, table)));
            }
        }
        _ => {
            let table = reader.table(value, EXAMPLE)?;
            buckets.buckets.extend(bucket(reader, value, table));
        }
    }
    Some(buckets)
}

fn bucket(reader: &mut Reader<'_>, value: Value<'_>, table: &DeTable<'_>) -> Option<Bucket> {
    let (mut burst, mut rate, mut unit) = (None, None, Some(Unit::Recipients));
    for (key, value) in table {
        let result = match key.get_ref().as_ref() {
            "burst" => number_text(reader, value, "5")
                .map(|text| amount::burst(&text).map(|b| burst = Some(b))),
            "rate" => number_text(reader, value, "\"1 / 1h\"")
                .map(|text| amount::leak(&text).map(|r| rate = Some(r))),
            "unit" => {
                unit = reader.word(value, "unit");
                if let Some(cap) = unit.filter(|unit| unit.is_cap()) {
                    let text =
                        format!("{} is a number of one message: no bucket counts it", cap.word());
                    reader.error(value, text);
                }
                None
            }
            _ => {
                reader.unknown_key(key, "in bucket", &["burst", "rate", "unit"]);
                None
            }
        };
        if let Some(Err(message)) = result {
            reader.error(value, message);
        }
    }
    for name in ["burst", "rate"].into_iter().filter(|name| !table.contains_key(*name)) {
        reader.error(
            value,
            format!(
                "the bucket has no {name}; expected such as {{ burst = 5, rate = \"1 / 1h\" }}"
            ),
        );
    }
    let (text, leak) = rate?;
    Some(Bucket { unit: unit?, burst: burst?, leak, text })
}

/// The text of a number, or a string.
fn number_text(reader: &mut Reader<'_>, value: Value<'_>, example: &str) -> Option<String> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => reader.string(value, example).map(str::to_owned),
    }
}

/// `[policy.NAME.package.…]`
pub(super) fn packages(
    reader: &mut Reader<'_>,
    policy: &str,
    value: Value<'_>,
) -> BTreeMap<String, Limits> {
    let mut packages = BTreeMap::new();
    let Some(table) = reader.table(value, "[policy.outbound.package.gold]") else {
        return packages;
    };
    for (key, value) in table {
        let place = format!("in [policy.{policy}.package.{}]", key.get_ref());
        packages.insert(key.get_ref().to_string(), limits(reader, key, value, &place));
    }
    packages
}

/// A user or a domain.
fn member(
    reader: &mut Reader<'_>,
    key: &Key<'_>,
    value: Value<'_>,
    place: &str,
    is_domain: bool,
    packages: &mut Packages,
) -> Member {
    let mut member = Member::default();
    member.limits.at = reader.at(key);
    let Some(table) = reader.table(value, "{ package = \"gold\" }") else { return member };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "package" => {
                let Some(name) = reader.string(value, "\"gold\"") else { continue };
                member.package = Some(packages.add(name, reader.at(value)));
            }
            "total" if !is_domain => {
                reader.error(key, "total is for all users of a domain; write it in a domain, a package or the default");
            }
            name if limit(reader, name, value, place, &mut member.limits) => {}
            _ => {
                let more = if is_domain {
                    &["package", "total", "bucket"][..]
                } else {
                    &["package", "bucket"]
                };
                reader.unknown_key(key, place, &allowed(more));
            }
        }
    }
    member
}

/// The entries of a table in the order in which they are written.
fn as_written<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Key<'i>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// `[policy.NAME.domain."…"]`
pub(super) fn domains(
    reader: &mut Reader<'_>,
    name: &str,
    key: &Key<'_>,
    value: Value<'_>,
    listed: &mut Listed,
    packages: &mut Packages,
) {
    let Some(table) = reader.table(value, "[policy.outbound.domain.\"example.org\"]") else {
        return;
    };
    some_domains(reader, name, table, listed, packages);
    reader.cut_out(key, |reader, table| some_domains(reader, name, table, listed, packages));
}

fn some_domains(
    reader: &mut Reader<'_>,
    name: &str,
    table: &DeTable<'_>,
    listed: &mut Listed,
    packages: &mut Packages,
) {
    for (key, value) in as_written(table) {
        let text = key.get_ref();
        let domain = match amount::domain(text) {
            Ok(pattern) if !pattern.below => pattern.domain,
            Ok(_) => {
                reader.error(key, format!("{text:?} stands for many domains; a table is for one"));
                continue;
            }
            Err(_) => {
                reader.error(
                    key,
                    format!("{text:?} is not a domain; expected such as \"example.org\" in quotes"),
                );
                continue;
            }
        };
        let place = format!("in [policy.{name}.domain.{text:?}]");
        let member = member(reader, key, value, &place, true, packages);
        listed.add(reader, "domain", text, domain, member);
    }
}

/// `[policy.NAME.user."…"]`
pub(super) fn users(
    reader: &mut Reader<'_>,
    folding: &Folding,
    name: &str,
    key: &Key<'_>,
    value: Value<'_>,
    listed: &mut Listed,
    packages: &mut Packages,
) {
    let Some(table) = reader.table(value, "[policy.outbound.user.\"news@example.org\"]") else {
        return;
    };
    some_users(reader, folding, name, table, listed, packages);
    reader.cut_out(key, |reader, table| some_users(reader, folding, name, table, listed, packages));
}

fn some_users(
    reader: &mut Reader<'_>,
    folding: &Folding,
    name: &str,
    table: &DeTable<'_>,
    listed: &mut Listed,
    packages: &mut Packages,
) {
    for (key, value) in as_written(table) {
        let text = key.get_ref();
        let place = format!("in [policy.{name}.user.{text:?}]");
        let member = member(reader, key, value, &place, false, packages);
        match folding.identity(text) {
            Some(user) => listed.add(reader, "user", text, user, member),
            None => reader
                .error(key, format!("{text:?} is not a user: nothing is left of it after folding")),
        }
    }
}
