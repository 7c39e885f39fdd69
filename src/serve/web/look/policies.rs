//! The policies in use.

use std::path::Path;

use super::sighted::{Seen, Sighted};
use crate::identity::fold::Folding;
use crate::policy::image::{ImageError, PolicyImage};
use crate::policy::key;
use crate::policy::limit::Limit;
use crate::policy::model::{Amount, Limits, Match, Member, MemberKind, Policy, Window};
use crate::policy::value::{DomainPattern, When};
use crate::policy::word::{Unit, Word as _};
use crate::serve::web::api::types::{
    ExemptEntry, PoliciesInUse, PolicyInUse, PolicyLimit, PolicyTable,
};
use crate::serve::web::http::problem::{Problem, unavailable};
use crate::standing::scope::Sight;
use crate::store::Target;
use crate::text;

/// So many tables of customers, and so many of domains, are shown.
const MEMBERS_SHOWN: usize = 50;

/// Those of the spool directory, as far as they are about whom somebody may see.
pub(super) fn in_use(spool: &Path, seen: Seen) -> Result<PoliciesInUse, Problem> {
    let Sighted { policies: file, seen, folding } = Sighted::of(spool, seen)?;
    let sight = Sight::new(seen.as_ref(), file.image().ok(), folding.clone());
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
        if is_of_others(&of_image, &sight) {
            continue;
        }
        let key = &policy.settings.key;
        let key = if key.is_empty() { chain } else { key };
        let mut own = Vec::new();
        let customers = add_members(&mut own, &of_image, MemberKind::Customer, &folding, &sight)?;
        let domains = add_members(&mut own, &of_image, MemberKind::Domain, &folding, &sight)?;
        let users = add_members(&mut Vec::new(), &of_image, MemberKind::User, &folding, &sight)?;
        let mut tables = tables(policy);
        // A package may be made for one customer.
        let is_named = |table: &PolicyTable| {
            let package = table.table.strip_prefix("package ");
            package.is_none_or(|name| own.iter().any(|one| one.package.as_deref() == Some(name)))
        };
        tables.retain(|table| sight.is_of_all() || is_named(table));
        tables.extend(own);
        policies.push(PolicyInUse {
            name: name.clone(),
            when: when(&of_image, &sight),
            key: key.iter().map(|field| field.word()).collect(),
            action: policy.settings.action.word(),
            tables,
            customers,
            domains,
            users,
            exempt: policy
                .exempt
                .iter()
                .filter(|entry| {
                    // Whoever else is exempt is not named.
                    let all_own = entry.matches.iter().all(|one| is_own(one, &sight));
                    let is_of_all = entry.matches.is_empty() || !entry.recipients.is_empty();
                    sight.is_of_all() || all_own && !is_of_all
                })
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

/// The conditions of a policy; those with networks and domains may name others.
fn when(policy: &PolicyImage<'_>, sight: &Sight<'_>) -> String {
    let text = |one: &When| match one {
        When::Is { .. } => one.to_string(),
        _ if sight.is_of_all() => one.to_string(),
        _ => "(a condition)".to_owned(),
    };
    policy.settings().when.iter().map(text).collect::<Vec<_>>().join(" and ")
}

/// Whether a policy is for mail from the domains of others alone.
fn is_of_others(policy: &PolicyImage<'_>, sight: &Sight<'_>) -> bool {
    let is_others = |one: &DomainPattern| {
        !one.below && !sight.has_identity(key::of_domain(&one.domain).as_bytes())
    };
    policy.settings().when.iter().any(|when| match when {
        When::SenderDomain(all) => all.iter().all(is_others),
        _ => false,
    })
}

/// Whether all that an entry means is somebody's who sees a part.
fn is_own(one: &Match, sight: &Sight<'_>) -> bool {
    match one {
        Match::Identity(name) => sight.has_target(&Target::literal(name.as_bytes())),
        Match::Domain(DomainPattern { domain, below: false }) => {
            sight.has_identity(key::of_domain(domain).as_bytes())
        }
        Match::Domain(_) | Match::Client(_) => false,
    }
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
    folding: &Folding,
    sight: &Sight<'_>,
) -> Result<usize, Problem> {
    let (mut count, mut found) = (0, Vec::new());
    let visited = policy.each_member(kind, &mut |name, Member { package, limits, .. }| {
        let is_counted = match kind {
            MemberKind::Customer => sight.has_identity(key::of_customer(name).as_bytes()),
            MemberKind::Domain => sight.has_identity(key::of_domain(name).as_bytes()),
            // A name that is written without a domain is also there with the one that is added.
            MemberKind::User => {
                sight.has_target(&Target::literal(name.as_bytes()))
                    && folding.identity(name).is_none_or(|folded| folded == name)
            }
        };
        if is_counted && (package.is_some() || !limits.is_empty()) {
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
