//! The policies in use.

use std::path::Path;

use crate::policy::image::{ImageError, PolicyFile, PolicyImage};
use crate::policy::limit::Limit;
use crate::policy::model::{Amount, Limits, Match, Member, MemberKind, Policy, Window};
use crate::policy::word::{Unit, Word as _};
use crate::serve::web::api::types::{
    ExemptEntry, PoliciesInUse, PolicyInUse, PolicyLimit, PolicyTable,
};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::text;

/// So many tables of customers, and so many of domains, are shown.
const MEMBERS_SHOWN: usize = 50;

/// Those of the spool directory.
pub(super) fn in_use(spool: &Path) -> Result<PoliciesInUse, Problem> {
    let file = PolicyFile::open(spool);
    let image = match file.image() {
        Ok(image) => image,
        Err(ImageError::Absent { .. }) => return Ok(PoliciesInUse { policies: Vec::new() }),
        Err(error) => return Err(unavailable(error)),
    };
    let outline = image.outline().map_err(unavailable)?;
    let chain = &outline.identity.chain;
    let mut policies = Vec::new();
    for (name, policy) in &outline.policies {
        let Some(of_image) = image.policy(name).map_err(unavailable)? else { continue };
        let key = &policy.settings.key;
        let key = if key.is_empty() { chain } else { key };
        let mut tables = tables(policy);
        let customers = add_members(&mut tables, &of_image, MemberKind::Customer)?;
        let domains = add_members(&mut tables, &of_image, MemberKind::Domain)?;
        let users = add_members(&mut Vec::new(), &of_image, MemberKind::User)?;
        policies.push(PolicyInUse {
            name: name.clone(),
            when: when(&of_image),
            key: key.iter().map(|field| field.word()).collect(),
            action: policy.settings.action.word(),
            tables,
            customers,
            domains,
            users,
            exempt: policy
                .exempt
                .iter()
                .map(|entry| {
                    let texts = |all: &[Match]| all.iter().map(Match::to_string).collect();
                    ExemptEntry {
                        matches: texts(&entry.matches),
                        recipients: texts(&entry.recipients),
                        until: entry.until.map(text::iso_second),
                        reason: entry.reason.clone(),
                    }
                })
                .collect(),
        });
    }
    Ok(PoliciesInUse { policies })
}

fn when(policy: &PolicyImage<'_>) -> String {
    policy.settings().when.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn tables(policy: &Policy) -> Vec<PolicyTable> {
    let packages = policy.packages.iter().map(|(name, limits)| (format!("package {name}"), limits));
    let all = std::iter::once(("default".to_owned(), &policy.default)).chain(packages);
    all.map(|(table, limits)| table_of(table, limits, None)).collect()
}

fn table_of(table: String, limits: &Limits, package: Option<&str>) -> PolicyTable {
    PolicyTable {
        table,
        package: package.map(str::to_owned),
        limits: limits_of(limits),
        habits: limits.habits.habits.map(|on| on.word()),
    }
}

/// Adds the tables of customers, domains or users, the first of them by name; how many have one. A
/// user or domain that only belongs to a customer has none.
fn add_members(
    tables: &mut Vec<PolicyTable>,
    policy: &PolicyImage<'_>,
    kind: MemberKind,
) -> Result<usize, Problem> {
    let (mut count, mut found) = (0, Vec::new());
    let visited = policy.each_member(kind, &mut |name, Member { package, limits, .. }| {
        if package.is_some() || !limits.is_empty() {
            count += 1;
            found.push(table_of(format!("{} {name}", kind.word()), &limits, package.as_deref()));
            if found.len() > 2 * MEMBERS_SHOWN {
                keep_first(&mut found);
            }
        }
    });
    visited.map_err(unavailable)?;
    keep_first(&mut found);
    tables.extend(found);
    Ok(count)
}

fn keep_first(tables: &mut Vec<PolicyTable>) {
    tables.sort_by(|a, b| a.table.cmp(&b.table));
    tables.truncate(MEMBERS_SHOWN);
}

fn limits_of(limits: &Limits) -> Vec<PolicyLimit> {
    let mut all = Vec::new();
    for (total, by_unit) in [(false, &limits.each), (true, &limits.total)] {
        for (&unit, amount) in by_unit {
            add_windows(&mut all, unit, total, amount);
        }
    }
    if let Some(buckets) = &limits.buckets {
        all.extend(buckets.buckets.iter().map(|bucket| PolicyLimit {
            unit: bucket.unit.word(),
            total: false,
            kind: Limit::kind(None),
            text: format!("{}, leak {}", bucket.burst, bucket.text),
            limit: Some(bucket.burst),
            period: Some(bucket.burst / bucket.leak),
        }));
    }
    all
}

fn add_windows(all: &mut Vec<PolicyLimit>, unit: Unit, total: bool, amount: &Amount) {
    let (word, kind) = (unit.word(), Limit::kind(Some(unit)));
    let limit =
        |text: String, limit, period| PolicyLimit { unit: word, total, kind, text, limit, period };
    if amount.windows.is_empty() {
        all.push(limit("unlimited".to_owned(), None, None));
    }
    all.extend(amount.windows.iter().map(|window| {
        let period = window.every.is_none().then_some(window.period);
        let period = period.filter(|&period| period != Window::NO_PERIOD);
        limit(window.text.to_string(), Some(window.limit), period)
    }));
}
