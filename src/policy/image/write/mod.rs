//! Writes an image.

mod exempt;
mod out;

use std::hash::{BuildHasher as _, RandomState};

use super::fields::{Row, Stored as _};
use super::layout::{BUCKETS, EACH, HABITS, NO_USAGE, TOTAL, VERSIONS, unit_code, window_code};
use crate::policy::destination::Destinations;
use crate::policy::model::{DeliverySettings, Limits, Members, Policies, Policy};
use crate::policy::settings::Group;
use crate::policy::word::{Field, Unit};
use out::Writer;

/// The compiled form of `policies`. Its tables have a random key: whoever chooses the
/// names of users cannot choose where they are.
#[must_use]
pub fn build(policies: &Policies) -> Vec<u8> {
    let random = RandomState::new();
    let mut key = [0; 16];
    let (low, high) = (random.hash_one(0), random.hash_one(1));
    let bytes = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
    key.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    build_with(policies, key)
}

/// As [`build`], with this key: the same bytes each time.
#[must_use]
pub fn build_with(policies: &Policies, key: [u8; 16]) -> Vec<u8> {
    let mut writer = Writer::new(key);
    let mut identity = settings(&policies.identity);
    if policies.identity.destinations != Destinations::default() {
        policies.identity.destinations.write(&mut identity);
    }
    let identity = writer.row(&identity.0);
    let on_crossing = writer.row(&settings(&policies.on_crossing).0);
    let zone = policies.zone.as_ref().map_or(0, |zone| {
        let mut row = Row::default();
        zone.write(&mut row);
        writer.row(&row.0)
    });
    let mut directory = Row::default();
    directory.length(policies.policies.len());
    for (name, policy) in &policies.policies {
        directory.text(name);
        directory.u32(write(&mut writer, policy));
    }
    let directory = writer.row(&directory.0);
    // What a library of the lower version can read, it shall.
    let version = if is_of_version_4(policies) { VERSIONS.oldest } else { VERSIONS.newest };
    let flags = if policies.counts_usage() { 0 } else { NO_USAGE };
    writer.finish([version, flags], [directory, identity, on_crossing, zone])
}

/// Whether version 4 can express these policies.
fn is_of_version_4(policies: &Policies) -> bool {
    let identity = &policies.identity;
    let mut all = policies.policies.values();
    !policies.on_crossing.uses_later()
        && identity.destinations == Destinations::default()
        && !identity.chain.contains(&Field::Destination)
        && all.all(|policy| {
            policy.delivery == DeliverySettings::default()
                && policy.users.iter().all(|(_, user)| user.limits.habits.contact.is_none())
                && !policy.settings.counts_attempts()
                && !Unit::ALL.iter().any(|unit| unit.is_share() && policy.limits(*unit))
        })
}

/// A row that starts with these settings.
fn settings<G: Group>(group: &G) -> Row {
    let mut row = Row::default();
    let later = if group.uses_later() { G::LATER } else { 0 };
    let written = G::SETTINGS.len() - G::LATER + later;
    G::SETTINGS.iter().take(written).for_each(|setting| (setting.write)(group, &mut row));
    row
}

/// Writes a policy; the position of its row.
fn write(writer: &mut Writer, policy: &Policy) -> u32 {
    let rows: Vec<(&[u8], u32)> = policy
        .packages
        .iter()
        .map(|(name, table)| {
            let mut row = Row::default();
            row.text(name);
            limits(&mut row, table);
            (name.as_bytes(), writer.row(&row.0))
        })
        .collect();
    let package = |name: &str| position(&rows, name);
    let packages = writer.table(rows.iter().copied(), |row, value| value.u32(*row));
    let customers: Vec<(&[u8], u32)> = policy
        .customers
        .iter()
        .map(|(name, customer)| {
            let mut row = Row::default();
            row.text(name);
            row.u32(customer.package.as_deref().map_or(0, package));
            limits(&mut row, &customer.limits);
            (name.as_bytes(), writer.row(&row.0))
        })
        .collect();
    let customer = |name: &str| position(&customers, name);
    let customer_table = writer.table(customers.iter().copied(), |row, value| value.u32(*row));
    let mut members = |members: &Members| {
        let entries = members.iter().map(|(name, member)| (name.as_bytes(), member));
        writer.table(entries, |member, value| {
            value.u32(member.package.as_deref().map_or(0, package));
            value.u32(member.customer.as_deref().map_or(0, customer));
            limits(value, &member.limits);
        })
    };
    let (domains, users) = (members(&policy.domains), members(&policy.users));
    let mut row = settings(&policy.settings);
    row.flag(policy.uses_habits());
    let mut default = Row::default();
    limits(&mut default, &policy.default);
    row.bytes(&default.0);
    packages.write(&mut row);
    customer_table.write(&mut row);
    domains.write(&mut row);
    users.write(&mut row);
    exempt::write(writer, &mut row, &policy.exempt);
    if policy.delivery != DeliverySettings::default() {
        DeliverySettings::SETTINGS.iter().for_each(|one| (one.write)(&policy.delivery, &mut row));
    }
    writer.row(&row.0)
}

/// The position of the row of `name`; the rows are in the order of names.
fn position(rows: &[(&[u8], u32)], name: &str) -> u32 {
    let found = rows.binary_search_by_key(&name.as_bytes(), |(name, _)| name);
    found.ok().and_then(|found| rows.get(found)).map_or(0, |(_, row)| *row)
}

/// Writes the limits of a table.
fn limits(row: &mut Row, limits: &Limits) {
    for (kind, amounts) in [(EACH, &limits.each), (TOTAL, &limits.total)] {
        for (&unit, amount) in amounts {
            let mut content = Row::default();
            for window in &amount.windows {
                let code = window_code(unit, window.every);
                numbers(&mut content, code, window.limit, window.period, &window.text);
            }
            row.u8(kind);
            row.u8(unit_code(unit));
            row.bytes(&content.0);
        }
    }
    if let Some(buckets) = &limits.buckets {
        let mut content = Row::default();
        for bucket in &buckets.buckets {
            let code = unit_code(bucket.unit);
            numbers(&mut content, code, bucket.burst, bucket.leak, &bucket.text);
        }
        row.u8(BUCKETS);
        row.u8(0);
        row.bytes(&content.0);
    }
    if !limits.habits.says_nothing() {
        row.u8(HABITS);
        row.u8(0);
        row.bytes(&settings(&limits.habits).0);
    }
}

fn numbers(row: &mut Row, code: u8, first: f64, second: f64, text: &str) {
    row.u8(code);
    row.number(first);
    row.number(second);
    row.text(text);
}
