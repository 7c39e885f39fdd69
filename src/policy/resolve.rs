//! What a policy says of one identity: the plain evaluator.
//!
//! It searches the tables as they are read, without an index, and is what the
//! compiled image must agree with.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::fold::domain;
use super::model::{Amount, Buckets, Exempt, Location, Match, Member, Policy, Rates};
use super::word::Unit;

/// Who is searched for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// The identity, folded: the first field of the policy's key.
    pub identity: String,
    /// The package that the front end handed over.
    pub package: Option<String>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The recipient, folded.
    pub recipient: Option<String>,
}

/// The table that a limit comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The table of the user.
    User(String),
    /// The table of the domain.
    Domain(String),
    /// The table of the package.
    Package(String),
    /// The table for everybody.
    Default,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Domain(name) => write!(f, "domain {name}"),
            Self::Package(name) => write!(f, "package {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A limit and the rule it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied<'p, T> {
    /// The limit.
    pub what: &'p T,
    /// The rule.
    pub rule: Rule,
}

/// All that a policy says of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective<'p> {
    /// The package that applies, and whether the policy has it: one that a front end
    /// hands over may not exist.
    pub package: Option<(String, bool)>,
    /// The limits of the identity, by unit.
    pub each: BTreeMap<Unit, Applied<'p, Amount>>,
    /// The limits of all users of its domain together, by unit.
    pub total: BTreeMap<Unit, Applied<'p, Amount>>,
    /// The leaky buckets.
    pub buckets: Option<Applied<'p, Buckets>>,
    /// The entry that exempts it.
    pub exempt: Option<&'p Exempt>,
}

/// What `policy` says of `subject` at `now`, in seconds since 1970.
#[must_use]
pub fn resolve<'p>(policy: &'p Policy, subject: &Subject, now: i64) -> Effective<'p> {
    let user = policy.users.get(&subject.identity);
    let domain_name = domain(&subject.identity);
    let domain = domain_name.and_then(|name| policy.domains.get(name));
    let of = |member: Option<&'p Member>| member.and_then(|member| member.package.as_ref());
    let package_name = of(user).or(subject.package.as_ref()).or(of(domain)).cloned();
    let package = |name: Option<&String>| {
        let (name, rates) = policy.packages.get_key_value(name?)?;
        Some((Rule::Package(name.clone()), rates))
    };
    let own = |member: Option<&'p Member>, rule: Rule| Some((rule, &member?.rates));
    let domain_rule = Rule::Domain(domain_name.unwrap_or_default().to_owned());
    let default = Some((Rule::Default, &policy.default));
    // The most special first.
    let tables: Vec<(Rule, &'p Rates)> = [
        own(user, Rule::User(subject.identity.clone())),
        own(domain, domain_rule.clone()),
        package(package_name.as_ref()),
        default.clone(),
    ]
    .into_iter()
    .flatten()
    .collect();
    // The total is of the domain: the package of one of its users is nothing to it.
    let totals = [own(domain, domain_rule), package(of(domain)), default].into_iter().flatten();
    let (mut each, mut total) = (BTreeMap::new(), BTreeMap::new());
    for (rule, rates) in &tables {
        for (unit, what) in &rates.each {
            each.entry(*unit).or_insert_with(|| Applied { what, rule: rule.clone() });
        }
    }
    for (rule, rates) in totals.filter(|_| domain_name.is_some()) {
        for (unit, what) in &rates.total {
            total.entry(*unit).or_insert_with(|| Applied { what, rule: rule.clone() });
        }
    }
    let buckets = tables.iter().find_map(|(rule, rates)| {
        rates.buckets.as_ref().map(|what| Applied { what, rule: rule.clone() })
    });
    let exempt = policy.exempt.iter().find(|entry| exempts(entry, subject, now));
    let package = package_name.map(|name| {
        let known = policy.packages.contains_key(&name);
        (name, known)
    });
    Effective { package, each, total, buckets, exempt }
}

/// Whether `entry` exempts `subject` at `now`.
#[must_use]
pub fn exempts(entry: &Exempt, subject: &Subject, now: i64) -> bool {
    let client = |one: &Match| matches!((one, subject.client), (Match::Client(network), Some(client)) if network.contains(client));
    let who = |one: &Match| means(one, &subject.identity) || client(one);
    let to = |one: &Match| subject.recipient.as_ref().is_some_and(|address| means(one, address));
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

/// Where a rule of `policy` is written.
#[must_use]
pub fn location(policy: &Policy, rule: &Rule) -> Option<Location> {
    match rule {
        Rule::User(name) => policy.users.get(name).map(|member| member.rates.at),
        Rule::Domain(name) => policy.domains.get(name).map(|member| member.rates.at),
        Rule::Package(name) => policy.packages.get(name).map(|rates| rates.at),
        Rule::Default => Some(policy.default.at),
    }
}

#[cfg(test)]
mod tests;
