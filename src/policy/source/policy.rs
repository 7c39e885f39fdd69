//! `[policy.NAME]`.

use toml::Spanned;
use toml::de::{DeString, DeTable};

use super::super::model::{
    DeliverySettings, HabitsSettings, Identity, Limits, MemberKind, Policy, PolicySettings,
};
use super::super::settings::Group as _;
use super::super::word::{Counting, Unit, Verdict};
use super::kind::Context;
use super::listed::{Listed, Names, Naming};
use super::tables::{self, NamedTables};
use super::{exempt, settings, users};
use crate::toml_file::reader::{Reader, Value};
use crate::toml_file::text::Load;

/// The keys of a policy that are no settings: its tables.
pub(in crate::policy) const TABLES: &[&str] =
    &["bucket", "default", "package", "customer", "domain", "user", "users", "exempt"];

/// Adds a diagnostic where this is no name of a policy.
fn check_name(reader: &mut Reader<'_>, name: &Spanned<DeString<'_>>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.get_ref().is_empty() || !name.get_ref().chars().all(plain) || name.get_ref().len() > 64
    {
        reader.error(
            name,
            format!(
                "invalid policy name {:?}; use up to 64 letters, digits, - and _",
                name.get_ref()
            ),
        );
    }
}

/// Reads the policy `name`; `common` is what it does not set itself.
pub(super) fn read(
    reader: &mut Reader<'_>,
    identity: &Identity,
    common: &PolicySettings,
    name: &Spanned<DeString<'_>>,
    value: Value<'_>,
    load: Load<'_>,
) -> Option<Policy> {
    let at = reader.at(name);
    check_name(reader, name);
    let table = reader.table(value, "[policy.outbound]")?;
    let mut policy = Policy { at, settings: common.clone(), ..Policy::default() };
    let place = format!("in [policy.{}]", name.get_ref());
    let context = Context { has_relays: !identity.relay.is_empty() };
    let of_habits = HabitsSettings::SETTINGS.iter().map(|setting| setting.name);
    let of_delivery = || DeliverySettings::SETTINGS.iter();
    let others: Vec<&str> = TABLES
        .iter()
        .copied()
        .chain(of_habits)
        .chain(of_delivery().map(|setting| setting.name))
        .collect();
    settings::read(reader, table, &mut policy.settings, &place, &others, context);
    for setting in of_delivery() {
        if let Some(value) = table.get(setting.name) {
            (setting.parse)(&mut policy.delivery, reader, value, context);
        }
    }
    if !table.contains_key("verdicts") {
        policy.settings.verdicts.iter_mut().for_each(|grade| grade.at = at);
    }
    let (mut packages, mut customers) = (Names::default(), Names::default());
    let (mut domains, mut users) = (Listed::default(), Listed::default());
    let naming = Naming::of(identity, &policy.settings);
    let mut named = NamedTables {
        naming,
        policy: name.get_ref(),
        packages: &mut packages,
        customers: &mut customers,
        domains: &mut domains,
        users: &mut users,
    };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "default" => {
                let place = format!("in [policy.{}.default]", name.get_ref());
                let limits = tables::limits(reader, key, value, &place);
                set_default(reader, &mut policy.default, limits);
            }
            "bucket" => {
                let buckets = tables::buckets(reader, value);
                policy.default.buckets = buckets.map(Box::new);
            }
            "package" => policy.packages = tables::packages(reader, name.get_ref(), value),
            "domain" => tables::members(reader, MemberKind::Domain, key, value, &mut named),
            "user" => tables::members(reader, MemberKind::User, key, value, &mut named),
            // A setting, or read below.
            _ => {}
        }
    }
    read_habits(reader, table, &mut policy.default.habits, context);
    if let Some(value) = table.get("users") {
        users::read(reader, value, load, &mut named);
    }
    if let Some(value) = table.get("customer") {
        policy.customers = tables::customers(reader, value, &mut named);
    }
    (policy.domains, policy.users) = (domains.into_members(), users.into_members());
    delivery(reader, table, &policy);
    if let Some(value) = table.get("exempt") {
        policy.exempt = exempt::read(reader, naming, name.get_ref(), value);
    }
    let known: Vec<&str> = policy.packages.keys().map(String::as_str).collect();
    packages.check(reader, "package", &known);
    let known: Vec<&str> = policy.customers.keys().collect();
    customers.check(reader, "customer", &known);
    Some(policy)
}

/// Makes these the limits of all; a bucket that the policy has beside them stays.
fn set_default(reader: &mut Reader<'_>, default: &mut Limits, limits: Limits) {
    let bucket = std::mem::replace(default, limits).buckets;
    if let (Some(bucket), Some(_)) = (&bucket, &default.buckets) {
        reader.diagnostics.error(bucket.at, "the policy has a bucket here and in its default");
    }
    default.buckets = default.buckets.take().or(bucket);
}

/// Reports what makes no sense of a policy that is evaluated at delivery, or not.
fn delivery(reader: &mut Reader<'_>, table: &DeTable<'_>, policy: &Policy) {
    let settings = &policy.settings;
    if !policy.delivery.is_at_delivery() {
        for setting in DeliverySettings::SETTINGS.iter().skip(1) {
            if let Some(value) = table.get(setting.name) {
                let text = format!("{} is for a policy with at = \"delivery\"", setting.name);
                reader.error(value, text);
            }
        }
        return;
    }
    let mut error = |at, text: &str| reader.diagnostics.error(at, text);
    for grade in &settings.verdicts {
        if !matches!(grade.verdict, Verdict::Accept | Verdict::Log | Verdict::Defer) {
            error(
                grade.at,
                "at delivery, mail that is over the limit waits; write \"log\" or \"defer\"",
            );
        }
    }
    if settings.update == Counting::Strict {
        error(
            policy.at,
            "at delivery, update = \"strict\" would count what waits at each queue run; leave it out",
        );
    }
    if policy.uses_habits() {
        error(
            policy.at,
            "habits are compared when mail is accepted; write them in a policy without at = \"delivery\"",
        );
    }
    if policy.delivery.burst.is_some() && !settings.counts_attempts() {
        error(
            policy.at,
            "burst is for a key with destination; write bucket = { burst = 10, rate = \"60/1m\" }",
        );
    }
    let is_counted = |unit: Unit| match settings.counts_attempts() {
        true => unit == Unit::Recipients,
        false => {
            matches!(unit, Unit::Recipients | Unit::UniqueRecipients | Unit::Messages | Unit::Bytes)
        }
    };
    for limits in policy.tables() {
        let amounts = limits.amounts().map(|(unit, amount)| (*unit, amount.at));
        let buckets = limits.buckets.iter();
        let buckets = buckets.flat_map(|all| all.buckets.iter().map(|one| (one.unit, all.at)));
        for (unit, at) in amounts.chain(buckets).filter(|(unit, _)| !is_counted(*unit)) {
            let unit = unit.word();
            error(at, &format!("{unit} cannot be counted at delivery by this key: docs/later.md"));
        }
    }
}

/// What a policy says of habits is of its default.
fn read_habits(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    habits: &mut HabitsSettings,
    context: Context,
) {
    for (key, value) in table {
        let Some(setting) = tables::of_habits(key.get_ref()) else { continue };
        if !(setting.show)(habits).is_empty() {
            let text = format!("the policy has {} here and in its default", setting.name);
            reader.error(key, text);
        }
        (setting.parse)(habits, reader, value, context);
    }
}
