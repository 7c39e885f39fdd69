//! What a policy says of one identity: the plain evaluator.
//!
//! It searches the tables as they are read, without an index, and is what the
//! compiled image must agree with.

use std::collections::BTreeMap;

use super::fold::domain;
use super::limit::{
    self, AppliedHabits, Exemption, Limit, Package, PackageFrom, Per, Rule, Subject,
};
use super::model::{Amount, Buckets, Exempt, Limits, Match, Member, Policy};
use super::word::{OnHabits, Unit};
use crate::engine::Algorithm;

/// A limit and the rule it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruled<'p, T> {
    /// The limit.
    pub what: &'p T,
    /// The rule.
    pub rule: Rule<'p>,
}

/// All that a policy says of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective<'p> {
    /// The package that applies.
    pub package: Option<Package<'p>>,
    /// Its customer.
    pub customer: Option<&'p str>,
    /// The limits of the identity, by unit.
    pub each: BTreeMap<Unit, Ruled<'p, Amount>>,
    /// The limits of all users of its domain together, by unit.
    pub total: BTreeMap<Unit, Ruled<'p, Amount>>,
    /// The limits of all users of its customer together, by unit.
    pub customer_total: BTreeMap<Unit, Ruled<'p, Amount>>,
    /// The leaky buckets.
    pub buckets: Option<Ruled<'p, Buckets>>,
    /// What the tables say of its habits, if they are on.
    pub habits: Option<AppliedHabits<'p>>,
    /// The entry that exempts it, and its number.
    pub exempt: Option<(u32, &'p Exempt)>,
    /// Whether windows are buckets, and the burst of these, if it is said.
    pub paced: Option<Option<f64>>,
}

impl<'p> Effective<'p> {
    /// The limits as the compiled image gives them: those of the key by unit, then
    /// the totals of the domain and of the customer by unit, then the buckets. Nothing for what is unlimited.
    #[must_use]
    pub fn limits(&self) -> Vec<Limit<'p>> {
        let each = self.each.iter().map(|one| (Per::Key, one));
        let total = self.total.iter().map(|one| (Per::Domain, one));
        let customer = self.customer_total.iter().map(|one| (Per::Customer, one));
        let windows = each.chain(total).chain(customer).flat_map(|(per, (&unit, applied))| {
            applied.what.windows.iter().map(move |window| Limit {
                unit,
                per,
                algorithm: Limit::algorithm(unit, window.limit, window.period, window.every),
                every: window.every,
                text: &window.text,
                rule: applied.rule,
            })
        });
        let buckets = self.buckets.iter().flat_map(|applied| {
            applied.what.buckets.iter().map(|bucket| Limit {
                unit: bucket.unit,
                per: Per::Key,
                algorithm: Algorithm::Bucket { burst: bucket.burst, rate: bucket.leak },
                every: None,
                text: &bucket.text,
                rule: applied.rule,
            })
        });
        let mut limits: Vec<Limit<'p>> = windows.chain(buckets).collect();
        if let Some(burst) = self.paced {
            limits.iter_mut().for_each(|one| one.algorithm = limit::paced(one.algorithm, burst));
        }
        limits
    }

    /// The entry that exempts the subject, as the compiled image gives it.
    #[must_use]
    pub fn exemption(&self) -> Option<Exemption<'p>> {
        let (number, entry) = self.exempt?;
        Some(Exemption { number, until: entry.until, reason: entry.reason.as_deref() })
    }
}

/// What `policy` says of `subject` at `now`, in seconds since 1970.
#[must_use]
pub fn resolve<'p>(policy: &'p Policy, subject: &Subject<'p>, now: i64) -> Effective<'p> {
    let user = policy.users.get(subject.identity);
    let domain_name = domain(subject.identity);
    let domain = domain_name.and_then(|name| policy.domains.get(name));
    let of = |member: Option<&'p Member>| member.and_then(|member| member.package.as_deref());
    let customer_of =
        |member: Option<&'p Member>| member.and_then(|member| member.customer.as_deref());
    let find = |name: Option<&str>| policy.customers.iter().find(|(known, _)| Some(*known) == name);
    let domain_customer = find(customer_of(domain));
    let customer = find(customer_of(user)).or(domain_customer);
    // What names the package, the most special first.
    let named = [
        of(user).map(|name| (name, PackageFrom::User(subject.identity))),
        subject.package.map(|name| (name, PackageFrom::FrontEnd)),
        of(domain).map(|name| (name, PackageFrom::Domain(domain_name.unwrap_or_default()))),
        customer.and_then(|(of_customer, one)| {
            Some((one.package.as_deref()?, PackageFrom::Customer(of_customer)))
        }),
    ];
    // One that was handed over may not exist: what follows applies.
    let mut named = named.into_iter().flatten();
    let first = named.next();
    let exists = |(name, _): &(&str, _)| policy.packages.contains_key(*name);
    let existing = first.filter(exists).or_else(|| named.find(exists));
    let package = |name: Option<&str>| {
        let (name, limits) = policy.packages.get_key_value(name?)?;
        Some((Rule::Package(name), limits))
    };
    let own = |member: Option<&'p Member>, rule: Rule<'p>| Some((rule, &member?.limits));
    let domain_rule = Rule::Domain(domain_name.unwrap_or_default());
    let default = Some((Rule::Default, &policy.default));
    // The most special first.
    let tables: Vec<(Rule<'p>, &'p Limits)> = [
        own(user, Rule::User(subject.identity)),
        own(domain, domain_rule),
        customer.map(|(name, one)| (Rule::Customer(name), &one.limits)),
        package(existing.map(|(name, _)| name)),
        default,
    ]
    .into_iter()
    .flatten()
    .collect();
    // The total is of the domain: the package of one of its users is nothing to it.
    let of_domain = of(domain).or(of(domain_customer.map(|(_, one)| one)));
    let totals = [own(domain, domain_rule), package(of_domain), default].into_iter().flatten();
    let mut customer_total = BTreeMap::new();
    if let Some((name, one)) = customer {
        for (unit, what) in &one.limits.total {
            customer_total.insert(*unit, Ruled { what, rule: Rule::Customer(name) });
        }
    }
    let (mut each, mut total) = (BTreeMap::new(), BTreeMap::new());
    for (rule, limits) in &tables {
        for (unit, what) in &limits.each {
            each.entry(*unit).or_insert(Ruled { what, rule: *rule });
        }
    }
    for (rule, limits) in totals.filter(|_| domain_name.is_some()) {
        for (unit, what) in &limits.total {
            total.entry(*unit).or_insert(Ruled { what, rule });
        }
    }
    let buckets = tables.iter().find_map(|(rule, limits)| {
        limits.buckets.as_deref().map(|what| Ruled { what, rule: *rule })
    });
    let says = |(rule, limits): &(Rule<'p>, &Limits)| Some((*rule, limits.habits.habits?));
    let habits = tables.iter().find_map(says).filter(|(_, on)| *on != OnHabits::Off);
    let sensitivity = tables.iter().find_map(|(_, limits)| limits.habits.sensitivity);
    let habits = habits.map(|(rule, on)| AppliedHabits {
        on,
        sensitivity: sensitivity.unwrap_or_default(),
        rule,
    });
    let exempt = (0..).zip(&policy.exempt).find(|(_, entry)| exempts(entry, subject, now));
    let package = existing.map(|(name, from)| Package { name, from });
    let customer = customer.map(|(name, _)| name);
    let is_paced = policy.delivery.is_at_delivery() && policy.settings.counts_attempts();
    let paced = is_paced.then_some(policy.delivery.burst);
    Effective { package, customer, each, total, customer_total, buckets, habits, exempt, paced }
}

/// Whether `entry` exempts `subject` at `now`.
#[must_use]
pub fn exempts(entry: &Exempt, subject: &Subject<'_>, now: i64) -> bool {
    let (identity, recipient) = subject.plain();
    let client = |one: &Match| matches!((one, subject.client), (Match::Client(network), Some(client)) if network.contains(client));
    let who = |one: &Match| means(one, identity) || client(one);
    let to = |one: &Match| recipient.is_some_and(|address| means(one, address));
    entry.until.is_none_or(|until| now < until)
        && (entry.matches.is_empty() || entry.matches.iter().any(who))
        && (entry.recipients.is_empty() || entry.recipients.iter().any(to))
}

/// Whether `one` means the folded `identity`.
fn means(one: &Match, identity: &str) -> bool {
    match one {
        Match::Identity(name) => name == identity,
        Match::Domain(pattern) => domain(identity).is_some_and(|domain| pattern.matches(domain)),
        Match::Client(network) => identity.parse().is_ok_and(|address| network.contains(address)),
    }
}

#[cfg(test)]
mod tests;
