//! The rule of a policy that a record is counted by.

use std::net::IpAddr;

use crate::engine::{Algorithm, Kind, RecordKey};
use crate::policy::key;
use crate::policy::limit::{Limit, Per, Subject};
use crate::policy::model::{Head, Location, Policies};
use crate::policy::resolve::{Effective, exempts, resolve};
use crate::policy::word::{Unit, Word as _};

/// A limit of a policy, and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule<'p> {
    /// The policy.
    pub policy: &'p str,
    /// What the policy says apart from its tables.
    pub head: &'p Head,
    /// What is counted.
    pub unit: Unit,
    /// How it is counted, and the limit.
    pub algorithm: Algorithm,
    /// The limit as written; of a bucket its rate.
    pub text: String,
    /// The table that the limit is from: `user news@example.org`.
    pub table: String,
    /// Where it is written.
    pub at: Location,
    /// The entry of `exempt` that lifts it: until when, and why.
    pub exempt: Option<(Option<i64>, Option<&'p str>)>,
}

/// Why there is no rule of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRule {
    /// It is the record of a spec.
    Spec,
    /// The policies have no policy of that name.
    NoPolicy,
    /// The policy has no such limit for this identity any more.
    NoLimit,
}

/// The parts of the name of a policy's record: `POLICY/UNIT/WINDOW/identity`.
#[must_use]
pub fn parts<'a>(record: &RecordKey<'a>) -> Option<[&'a str; 4]> {
    if record.kind != Kind::Policy {
        return None;
    }
    let name = std::str::from_utf8(record.name).ok()?;
    let (prefix, identity) = name.split_at_checked(record.identity_start)?;
    let mut parts = prefix.strip_suffix('/')?.splitn(3, '/');
    Some([parts.next()?, parts.next()?, parts.next()?, identity])
}

/// The fields of the identity of a policy's record: `auth` and `alice@example.org`.
#[must_use]
pub fn fields(identity: &str) -> Vec<(String, String)> {
    // A comma within a value is doubled.
    let texts = identity.replace(",,", "\0");
    let fields = texts.split(',').filter_map(|field| field.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.replace('\0', ","))).collect()
}

/// The rule of `policies` that the record is counted by at `now`, in seconds since 1970;
/// `package` is what the front end would hand over.
///
/// # Errors
/// Why there is none.
pub fn find<'p>(
    policies: &'p Policies,
    record: &RecordKey<'_>,
    package: Option<&str>,
    now: i64,
) -> Result<Rule<'p>, NoRule> {
    let [name, unit, window, identity] = parts(record).ok_or(NoRule::Spec)?;
    let (name, policy) = policies.policies.get_key_value(name).ok_or(NoRule::NoPolicy)?;
    let fields = fields(identity);
    let (field, value) = fields.first().ok_or(NoRule::NoLimit)?;
    // A total is of the domain, whoever of it has sent.
    let (per, who) = match field.as_str() {
        "domain" => (Per::Domain, format!("@{value}")),
        _ => (Per::Key, value.clone()),
    };
    let of = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
    let client: Option<IpAddr> = of("client").and_then(|client| key::address(client));
    let subject =
        Subject { identity: &who, package, client, recipient: of("recipient").map(String::as_str) };
    let effective = resolve(policy, &subject, now);
    let same = |limit: &Limit<'_>| {
        let text = match limit.algorithm {
            Algorithm::MovingAverage { .. } => {
                limit.text.split_once('/').map_or(limit.text, |(_, period)| period)
            }
            Algorithm::Bucket { .. } => limit.text,
        };
        limit.per == per
            && limit.unit.word() == unit
            && text == window
            && limit.algorithm.kind() == record.algorithm
    };
    let limits = effective.limits();
    let limit = limits.iter().find(|limit| same(limit)).ok_or(NoRule::NoLimit)?;
    let exempt = policy.exempt.iter().find(|entry| exempts(entry, &subject, now));
    Ok(Rule {
        policy: name,
        head: &policy.head,
        unit: limit.unit,
        algorithm: limit.algorithm,
        text: limit.text.to_owned(),
        table: match limit.per {
            Per::Key => limit.rule.to_string(),
            Per::Domain => format!("{} (total)", limit.rule),
        },
        at: location(&effective, limit),
        exempt: exempt.map(|entry| (entry.until, entry.reason.as_deref())),
    })
}

/// Where a limit is written.
fn location(effective: &Effective<'_>, limit: &Limit<'_>) -> Location {
    let amounts = match limit.per {
        Per::Key => &effective.each,
        Per::Domain => &effective.total,
    };
    let at = match limit.algorithm {
        Algorithm::MovingAverage { .. } => amounts.get(&limit.unit).map(|one| one.what.at),
        Algorithm::Bucket { .. } => effective.buckets.as_ref().map(|one| one.what.at),
    };
    at.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::AlgorithmKind;
    use crate::policy::source::compile;
    use std::path::Path;

    const TEXT: &str = r#"version = 1
[policy.out]
default.recipients = ["100/1h", "500/1d"]
default.total = { recipients = "900/1h" }
bucket = { burst = 5, rate = "1 / 1h", unit = "messages" }
package.gold.recipients = "1000/1h"
domain."example.org".total = { recipients = "3000/1h" }
user."a,b@example.org".recipients = "7/1h"
[[policy.out.exempt]]
match = ["ceo@example.org"]
until = 2026-12-31T00:00:00Z
reason = "letter"
"#;

    fn policies() -> Policies {
        let compiled = compile(Path::new("p.toml"), TEXT, &|_| Err("none".to_owned()));
        compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics))
    }

    fn record(name: &str, start: usize, algorithm: AlgorithmKind) -> RecordKey<'_> {
        RecordKey { name: name.as_bytes(), identity_start: start, kind: Kind::Policy, algorithm }
    }

    fn found(
        prefix: &str,
        identity: &str,
        package: Option<&str>,
    ) -> Result<(String, f64, u32), NoRule> {
        let name = format!("{prefix}{identity}");
        let policies = policies();
        let kind = match prefix {
            "out/messages/1/1h/" => AlgorithmKind::Bucket,
            _ => AlgorithmKind::MovingAverage,
        };
        let rule = find(&policies, &record(&name, prefix.len(), kind), package, 1_795_000_000)?;
        Ok((rule.table.clone(), rule.algorithm.limit(), rule.at.line))
    }

    #[test]
    fn each_record_has_the_rule_that_counts_it() {
        let gold = Some("gold");
        for (prefix, identity, package, table, limit, line) in [
            ("out/recipients/1h/", "auth:x@example.net", None, "default", 100.0, 3),
            ("out/recipients/1d/", "auth:x@example.net", None, "default", 500.0, 3),
            ("out/recipients/1h/", "auth:x@example.net", gold, "package gold", 1000.0, 6),
            ("out/recipients/1h/", "auth:a,,b@example.org", gold, "user a,b@example.org", 7.0, 8),
            (
                "out/recipients/1h/",
                "domain:example.org",
                None,
                "domain example.org (total)",
                3000.0,
                7,
            ),
            ("out/recipients/1h/", "domain:example.net", None, "default (total)", 900.0, 4),
            ("out/messages/1/1h/", "auth:x,client:192.0.2.7", None, "default", 5.0, 5),
        ] {
            assert_eq!(
                found(prefix, identity, package),
                Ok((table.to_owned(), limit, line)),
                "{identity}"
            );
        }
        for (prefix, identity, why) in [
            ("gone/recipients/1h/", "auth:x", NoRule::NoPolicy),
            ("out/recipients/1w/", "auth:x", NoRule::NoLimit),
            ("out/bytes/1h/", "auth:x", NoRule::NoLimit),
            ("out/recipients/1h/", "x", NoRule::NoLimit),
            ("odd/", "x", NoRule::Spec),
        ] {
            assert_eq!(found(prefix, identity, None), Err(why), "{prefix}{identity}");
        }
    }

    #[test]
    fn an_exemption_is_found() {
        let policies = policies();
        let name = "out/recipients/1h/auth:ceo@example.org";
        let of = |now| {
            let key = record(name, 18, AlgorithmKind::MovingAverage);
            find(&policies, &key, None, now).unwrap().exempt
        };
        assert_eq!(of(1_795_000_000), Some((Some(1_798_675_200), Some("letter"))));
        assert_eq!(of(1_800_000_000), None);
    }

    #[test]
    fn identities_have_fields() {
        let of =
            |text| fields(text).into_iter().map(|(a, b)| format!("{a}={b}")).collect::<Vec<_>>();
        assert_eq!(of("auth:a,,b,client:2001:db8::/64"), ["auth=a,b", "client=2001:db8::/64"]);
        assert_eq!(of("x"), [""; 0]);
    }
}
