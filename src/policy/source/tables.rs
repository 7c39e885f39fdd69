//! The tables of a policy: limits by default, package, customer, domain and user.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::super::fold::LONGEST;
use super::super::model::{
    Amount, Bucket, Buckets, ByUnit, HabitsSettings, Limits, Member, MemberKind, Members, Window,
};
use super::super::settings::{Group as _, Setting};
use super::super::word::{Unit, Word as _};
use super::amount::{self, UNLIMITED};
use super::contact::CONTACT;
use super::kind::{Context, number_text};
use super::listed::{Listed, Names, Naming};
use crate::toml_file::diagnostic::allowed_instead;
use crate::toml_file::reader::{Reader, Value};

type Key<'a> = Spanned<DeString<'a>>;

/// The words of all units and of the settings of habits, and more; for a user also what only a user
/// has.
fn allowed(is_user: bool, more: &[&'static str]) -> Vec<&'static str> {
    let habits = HabitsSettings::SETTINGS.iter().map(|setting| setting.name);
    let habits: Vec<_> = habits.filter(|name| is_user || *name != CONTACT).collect();
    [&Unit::words(), &habits, more].concat()
}

/// The setting of habits of this name.
pub(super) fn of_habits(name: &str) -> Option<&'static Setting<HabitsSettings>> {
    HabitsSettings::SETTINGS.iter().find(|setting| setting.name == name)
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
        amounts(reader, unit, value, &mut limits.each);
    } else if key == "bucket" {
        limits.buckets = buckets(reader, value).map(Box::new);
    } else if key == "total" {
        limits.total = total(reader, value, place);
    } else if let Some(setting) = of_habits(key) {
        (setting.parse)(&mut limits.habits, reader, value, Context::default());
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
            reader.unknown_key(key, place, &allowed(false, &["bucket", "total"]));
        }
    }
    limits
}

/// Reads the limits of a unit.
fn amounts(reader: &mut Reader<'_>, unit: Unit, value: Value<'_>, all: &mut ByUnit) {
    if unit.is_share() {
        return shares(reader, unit, value, all);
    }
    if let Some(amount) = amount(reader, unit, value) {
        all.insert(unit, amount);
    }
}

/// A share, an array of them, or "unlimited", which lifts those of all recipients and of some.
fn shares(reader: &mut Reader<'_>, unit: Unit, value: Value<'_>, all: &mut ByUnit) {
    let at = reader.at(value);
    let units = || {
        let of_some = Unit::ALL.iter().filter(|one| one.is_share() && unit == Unit::FailedShare);
        std::iter::once(unit).chain(of_some.copied())
    };
    if value.get_ref().as_str().is_some_and(|text| text.trim() == UNLIMITED) {
        units().for_each(|unit| all.insert(unit, Amount { at, windows: Box::default() }));
        return;
    }
    let entries: Vec<Value<'_>> = match value.get_ref() {
        DeValue::Array(array) => array.iter().collect(),
        _ => vec![value],
    };
    if entries.is_empty() {
        reader.error(value, format!("the array is empty; expected such as [{SHARE}]"));
    }
    let mut found: Vec<(Unit, Window)> = Vec::new();
    for entry in entries {
        let Some((of, window)) = share(reader, unit, entry) else { continue };
        if found.iter().any(|(unit, one)| *unit == of && one.period == window.period) {
            reader.error(entry, "there is another share of the same recipients and period");
        }
        found.push((of, window));
    }
    for unit in units() {
        let windows = found.iter().filter(|(of, _)| *of == unit).map(|(_, one)| one.clone());
        let windows: Box<[Window]> = windows.collect();
        if !windows.is_empty() {
            all.insert(unit, Amount { at, windows });
        }
    }
}

const SHARE: &str = "{ limit = \"30%\", of = \"recipients\", period = \"1d\", least = 50 }";

fn share(reader: &mut Reader<'_>, unit: Unit, value: Value<'_>) -> Option<(Unit, Window)> {
    let (mut limit, mut period, mut least, mut of) = (None, None, amount::LEAST, unit);
    let mut is_sound = true;
    if value.get_ref().as_str().is_some() {
        let text = reader.string(value, SHARE)?;
        return match amount::limit(unit, text) {
            Ok(window) => Some((unit, window)),
            Err(message) => {
                reader.error(value, message);
                None
            }
        };
    }
    let table = reader.table(value, SHARE)?;
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "limit" => limit = reader.string(value, "\"30%\""),
            "period" => period = reader.string(value, "\"1d\""),
            "least" => match reader.integer(value, 1..=1_000_000) {
                Some(number) => least = number,
                None => is_sound = false,
            },
            "of" if unit == Unit::FailedShare => match reader.string(value, "\"recipients\"") {
                Some("recipients") => {}
                Some("unknown") => of = Unit::UnknownShare,
                Some("deferred") => {
                    let text = "deferred recipients are not counted: receivers defer new mail by \
                                greylisting, whoever sends it; write \"recipients\" or \"unknown\"";
                    reader.error(value, text);
                    is_sound = false;
                }
                Some(text) => {
                    let instead = allowed_instead(text, &["recipients", "unknown"]);
                    reader.error(value, format!("unknown share {text:?}; {instead}"));
                    is_sound = false;
                }
                None => is_sound = false,
            },
            _ => reader.unknown_key(key, "in a share", &["limit", "of", "period", "least"]),
        }
    }
    for name in ["limit", "period"].into_iter().filter(|name| !table.contains_key(*name)) {
        reader.error(value, format!("the share has no {name}; expected such as {SHARE}"));
    }
    match amount::share(limit?, period?, least) {
        Ok(window) => is_sound.then_some((of, window)),
        Err(message) => {
            reader.error(value, message);
            None
        }
    }
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
            Some(unit) => amounts(reader, unit, value, &mut total),
            None => reader.unknown_key(key, &format!("in total {place}"), &Unit::words()),
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
                if let Some(share) = unit.filter(|unit| unit.is_share()) {
                    reader.error(value, format!("{} fills no bucket", share.word()));
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

/// What is read of the tables of customers, domains and users beside them.
pub(super) struct NamedTables<'a> {
    pub(super) naming: Naming<'a>,
    /// The name of the policy.
    pub(super) policy: &'a str,
    pub(super) packages: &'a mut Names,
    pub(super) customers: &'a mut Names,
    pub(super) domains: &'a mut Listed,
    pub(super) users: &'a mut Listed,
}

impl NamedTables<'_> {
    /// The users, or else the domains.
    fn listed(&mut self, kind: MemberKind) -> &mut Listed {
        match kind {
            MemberKind::User => self.users,
            _ => self.domains,
        }
    }
}

/// What only a table of this kind has beside limits.
fn more(kind: MemberKind) -> &'static [&'static str] {
    match kind {
        MemberKind::Customer => &["domains", "users", "package", "total", "bucket"],
        MemberKind::Domain => &["package", "total", "bucket"],
        MemberKind::User => &["package", "bucket"],
    }
}

/// A customer, a domain or a user.
fn member(
    reader: &mut Reader<'_>,
    name: &Key<'_>,
    value: Value<'_>,
    place: &str,
    kind: MemberKind,
    named: &mut NamedTables<'_>,
) -> Member {
    let mut member = Member::default();
    member.limits.at = reader.at(name);
    let Some(table) = reader.table(value, "{ package = \"gold\" }") else { return member };
    for (key, value) in table {
        match (key.get_ref().as_ref(), kind) {
            ("package", _) => {
                let Some(name) = reader.string(value, "\"gold\"") else { continue };
                member.package = Some(named.packages.add(name, reader.at(value)));
            }
            ("domains", MemberKind::Customer) => {
                assign(reader, MemberKind::Domain, name.get_ref(), value, named);
            }
            ("users", MemberKind::Customer) => {
                assign(reader, MemberKind::User, name.get_ref(), value, named);
            }
            ("total", MemberKind::User) => {
                reader.error(key, "total is for all users of a domain or a customer; write it in one, in a package or the default");
            }
            (name, _) if limit(reader, name, value, place, &mut member.limits) => {}
            _ => reader.unknown_key(key, place, &allowed(kind == MemberKind::User, more(kind))),
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

/// `[policy.NAME.domain."…"]` or `[policy.NAME.user."…"]`
pub(super) fn members(
    reader: &mut Reader<'_>,
    kind: MemberKind,
    key: &Key<'_>,
    value: Value<'_>,
    named: &mut NamedTables<'_>,
) {
    let example = match kind {
        MemberKind::User => "[policy.outbound.user.\"news@example.org\"]",
        _ => "[policy.outbound.domain.\"example.org\"]",
    };
    let Some(table) = reader.table(value, example) else { return };
    some_members(reader, kind, table, named);
    reader.cut_out(key, |reader, table| some_members(reader, kind, table, named));
}

fn some_members(
    reader: &mut Reader<'_>,
    kind: MemberKind,
    table: &DeTable<'_>,
    named: &mut NamedTables<'_>,
) {
    for (key, value) in as_written(table) {
        let text = key.get_ref();
        let place = format!("in [policy.{}.{}.{text:?}]", named.policy, kind.word());
        match named.naming.member(kind, text) {
            Ok(names) => {
                let member = member(reader, key, value, &place, kind, named);
                named.listed(kind).add(reader, kind.word(), text, names, member);
            }
            Err(message) => reader.error(key, message),
        }
    }
}

/// `domains` or `users` of a customer.
fn assign(
    reader: &mut Reader<'_>,
    kind: MemberKind,
    customer: &str,
    value: Value<'_>,
    named: &mut NamedTables<'_>,
) {
    let example = match kind {
        MemberKind::User => "\"news@example.org\"",
        _ => "\"example.org\"",
    };
    let customer: Arc<str> = customer.into();
    for (one, value) in reader.strings(value, example).unwrap_or_default() {
        match named.naming.member(kind, one) {
            Ok(names) => {
                let at = reader.at(value);
                named.listed(kind).assign(reader, kind.word(), one, names, &customer, at);
            }
            Err(message) => reader.error(value, message),
        }
    }
}

/// `[policy.NAME.customer.…]`, after all domains and users have been read.
pub(super) fn customers(
    reader: &mut Reader<'_>,
    value: Value<'_>,
    named: &mut NamedTables<'_>,
) -> Members {
    let Some(table) = reader.table(value, "[policy.outbound.customer.acme]") else {
        return Members::default();
    };
    let mut customers: Vec<(Box<str>, Member)> = Vec::new();
    for (key, value) in as_written(table) {
        let text: &str = key.get_ref();
        if let Err(message) = customer_name(text) {
            reader.error(key, message);
            continue;
        }
        let place = format!("in [policy.{}.customer.{text:?}]", named.policy);
        let member = member(reader, key, value, &place, MemberKind::Customer, named);
        customers.push((text.into(), member));
    }
    customers.into()
}

/// Whether `name` may be that of a customer, of which a key is made; else why not.
pub(super) fn customer_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.trim() != name || name.chars().any(char::is_control) {
        return Err(format!(
            "{name:?} is not a name of a customer; it may not be empty, and have no blanks around it and no \
             control characters"
        ));
    }
    if name.len() > LONGEST {
        return Err(format!("the name of a customer has at most {LONGEST} bytes"));
    }
    Ok(())
}
