//! The tables of a policy: limits by default, package, customer, domain and user.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::super::fold::{Folding, LONGEST};
use super::super::model::{
    Amount, Bucket, Buckets, ByUnit, Identity, Limits, Location, Member, MemberKind, Members,
    PolicySettings,
};
use super::super::word::{Field, State, Unit, Word as _};
use super::amount::{self, UNLIMITED};
use crate::toml_file::diagnostic::{place, similar};
use crate::toml_file::reader::{Reader, Value};

/// The packages, or the customers, that other tables name, and where; they must exist.
#[derive(Default)]
pub(super) struct Names(BTreeMap<Arc<str>, Vec<Location>>);

impl Names {
    /// Adds a place; returns the name, which all places share.
    pub(super) fn add(&mut self, name: &str, at: Location) -> Arc<str> {
        let known = self.0.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| name.into());
        self.0.entry(Arc::clone(&name)).or_default().push(at);
        name
    }

    /// Checks that they are among these packages or customers (`what`), which are in order.
    pub(super) fn check(self, reader: &mut Reader<'_>, what: &str, known: &[&str]) {
        for (name, places) in self.0 {
            if known.binary_search(&&*name).is_ok() {
                continue;
            }
            let instead = match similar(&name, known.iter().copied()) {
                Some(known) => format!("did you mean {known:?}?"),
                None if known.is_empty() => format!("this policy has no {what}s"),
                None => {
                    let first: Vec<&str> = known.iter().copied().take(20).collect();
                    format!("its {what}s: {}", first.join(", "))
                }
            };
            for at in places {
                reader.diagnostics.error(at, format!("unknown {what} {name:?}; {instead}"));
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
    /// Where customers list those that are listed for themselves as well.
    assigned: HashMap<usize, Location>,
    hasher: RandomState,
}

impl Listed {
    /// Adds a user or a domain, once, under each of its names.
    pub(super) fn add(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        text: &str,
        (folded, written): (String, Option<String>),
        member: Member,
    ) {
        if let Some(written) = written.filter(|_| self.find(&folded).1.is_none()) {
            self.add_one(reader, what, text, written, member.clone());
        }
        self.add_one(reader, what, text, folded, member);
    }

    fn add_one(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        written: &str,
        folded: String,
        member: Member,
    ) {
        let (hash, known) = self.find(&folded);
        if let Some((_, first)) = known.and_then(|at| self.all.get(at)) {
            let place = place(&reader.diagnostics.files, first.limits.at);
            let called = called(what, written, &folded);
            let message = format!("{called} is listed twice; first at {place}");
            reader.diagnostics.error(member.limits.at, message);
            return;
        }
        self.places.insert(hash, self.all.len());
        self.all.push((folded.into(), member));
    }

    /// Makes one that a customer lists at `at` its own, under each of its names. None is of two
    /// customers.
    fn assign(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        text: &str,
        (folded, written): (String, Option<String>),
        customer: &Arc<str>,
        at: Location,
    ) {
        if self.assign_one(reader, what, text, folded, customer, at)
            && let Some(written) = written
        {
            self.assign_one(reader, what, text, written, customer, at);
        }
    }

    /// Whether it could.
    fn assign_one(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        written: &str,
        folded: String,
        customer: &Arc<str>,
        at: Location,
    ) -> bool {
        let (hash, known) = self.find(&folded);
        let Some((index, (_, member))) =
            known.and_then(|index| self.all.get_mut(index).map(|one| (index, one)))
        else {
            self.places.insert(hash, self.all.len());
            let limits = Limits { at, ..Limits::default() };
            let member = Member { customer: Some(Arc::clone(customer)), limits, package: None };
            self.all.push((folded.into(), member));
            return true;
        };
        if let Some(first) = &member.customer {
            let first_at = self.assigned.get(&index).copied().unwrap_or(member.limits.at);
            let place = place(&reader.diagnostics.files, first_at);
            let called = called(what, written, &folded);
            let message = if first == customer {
                format!("{called} is listed twice; first at {place}")
            } else {
                format!(
                    "{called} is of two customers, {first:?} and {customer:?}; first at {place}"
                )
            };
            reader.diagnostics.error(at, message);
            return false;
        }
        member.customer = Some(Arc::clone(customer));
        self.assigned.insert(index, at);
        true
    }

    /// The hash of a name, and where it is in `all`.
    fn find(&self, name: &str) -> (u64, Option<usize>) {
        let hash = self.hasher.hash_one(name);
        let at = self.places.get(&hash).copied();
        (hash, at.filter(|at| self.all.get(*at).is_some_and(|(known, _)| **known == *name)))
    }

    pub(super) fn into_members(self) -> Members {
        self.all.into()
    }
}

/// A user or a domain, as it is written and as it is folded.
fn called(what: &str, written: &str, folded: &str) -> String {
    match written == folded {
        true => format!("{what} {written:?}"),
        false => format!("{what} {written:?}, folded to {folded:?},"),
    }
}

/// A domain that a table or a customer names; else why it is none.
fn domain(text: &str) -> Result<String, String> {
    match amount::domain(text) {
        Ok(pattern) if !pattern.below => Ok(pattern.domain),
        Ok(_) => Err(format!("{text:?} stands for many domains; a table is for one")),
        Err(_) => {
            Err(format!("{text:?} is not a domain; expected such as \"example.org\" in quotes"))
        }
    }
}

/// How the names of users are searched for.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    pub(super) folding: &'a Folding,
    /// Whether also as they are written: what no login is, such as a local account, is not folded.
    pub(super) as_written: bool,
}

impl<'a> Naming<'a> {
    /// That of a policy with these settings.
    pub(super) fn of(identity: &'a Identity, settings: &PolicySettings) -> Self {
        let is_folded = |field: &Field| {
            matches!(field, Field::Auth | Field::Client | Field::Sender | Field::Recipient)
        };
        let as_written = match settings.key.first() {
            Some(field) => !is_folded(field),
            // What comes after a login is not reached where there always is one.
            None if settings.requires(State::Authenticated) => {
                !identity.chain.iter().take_while(|field| **field != Field::Auth).all(is_folded)
            }
            None => !identity.chain.iter().all(is_folded),
        };
        Self { folding: &identity.folding, as_written }
    }

    /// A user that a table or a customer names: folded, and as written where that is searched for
    /// as well; else why it is none.
    pub(super) fn user(self, text: &str) -> Result<(String, Option<String>), String> {
        let none = || format!("{text:?} is not a user: nothing is left of it after folding");
        let folded = self.folding.identity(text).ok_or_else(none)?;
        Ok((folded.clone(), self.written(text, &folded)))
    }

    /// The names of a user, or else of a domain: see [`Naming::user`].
    fn member(self, kind: MemberKind, text: &str) -> Result<(String, Option<String>), String> {
        match kind {
            MemberKind::User => self.user(text),
            _ => domain(text).map(|name| (name, None)),
        }
    }

    /// `text` as it is written, if what is not folded may be called so.
    pub(super) fn written(self, text: &str, folded: &str) -> Option<String> {
        let written = text.trim();
        // A script may have any character in its path.
        let is_login = written.contains('@') && !written.starts_with('/');
        let found = self.as_written && !is_login && written != folded;
        (found && amount::network(written).is_err()).then(|| written.to_owned())
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

/// What is read of the tables of customers, domains and users beside them.
pub(super) struct Named<'a> {
    pub(super) naming: Naming<'a>,
    /// The name of the policy.
    pub(super) policy: &'a str,
    pub(super) packages: &'a mut Names,
    pub(super) customers: &'a mut Names,
    pub(super) domains: &'a mut Listed,
    pub(super) users: &'a mut Listed,
}

impl Named<'_> {
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
    named: &mut Named<'_>,
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
            _ => reader.unknown_key(key, place, &allowed(more(kind))),
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
    named: &mut Named<'_>,
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
    named: &mut Named<'_>,
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
    named: &mut Named<'_>,
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
    named: &mut Named<'_>,
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
