//! What the policies in use say of a record.

use std::net::IpAddr;

use crate::engine::{Kind, RecordKey};
use crate::identity::fold::{CUSTOMER, DOMAIN, Folding, TOTALS, domain, escaped};
use crate::identity::{Field, mailbox};
use crate::policy::image::{Image, ImageError};
use crate::policy::key;
use crate::policy::limit::{self, AppliedHabits, Limit, Per, Subject};
use crate::policy::model::PolicySettings;
use crate::policy::word::{Action, OnHabits};
use crate::rate::habits::Sensitivity;
use crate::spool::LoggedEvent;
use crate::store::{DetailTexts, OwnedKey};

/// What the policy that counts a record says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Said<'i> {
    /// What the policy says apart from its tables.
    pub settings: &'i PolicySettings,
    /// The limit; `None` if the policy has no such limit for this identity any more.
    pub rule: Option<LimitRule>,
    /// The entry of `exempt` that lifts it, whoever the mail is for.
    pub exempt: Option<Exempt>,
}

/// A limit of a policy, and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitRule {
    /// The limit; of a bucket, the burst.
    pub limit: f64,
    /// The table that it is from: `user news@example.org`.
    pub table: String,
}

/// An entry of `exempt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exempt {
    /// Until then, in seconds since 1970.
    pub until: Option<i64>,
    /// Why.
    pub reason: Option<String>,
}

/// What the policies in use say of the habits of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidOfHabits {
    /// The policy by which its mail is compared.
    pub policy: String,
    /// The table that says so.
    pub table: String,
    /// What becomes of its mail while it is suspected.
    pub on: OnHabits,
    /// How early an alarm is raised.
    pub sensitivity: Sensitivity,
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

/// The record of a total of a domain or a customer, as if it counted whoever sent `event` alone;
/// `None` if it is another one, or if who has sent is not known.
#[must_use]
pub fn of_sender(event: &LoggedEvent, folding: &Folding) -> Option<OwnedKey> {
    let record = event.record_key();
    let [.., identity] = parts(&record)?;
    let (field, _) = identity.split_once(':')?;
    let DetailTexts { login, client, .. } = event.texts.map(|text| String::from_utf8_lossy(text));
    let (field, sender) = match (TOTALS.contains(&field), &*login, &*client) {
        (false, ..) | (_, "", "") => return None,
        (_, "", client) => (Field::Client, client),
        (_, login, _) => (Field::Auth, login),
    };
    let mut folded = String::new();
    let known = folding.field_into(field, sender, &mut folded);
    let sender = format!("{}:{}", field.word(), escaped(&folded));
    let prefix = record.name.get(..record.identity_start).filter(|_| known)?;
    let name = [prefix, sender.as_bytes()].concat();
    Some(OwnedKey { name, ..OwnedKey::from(record) })
}

/// What the policies say at `now`, in seconds since 1970, of a record; `None` if it is that of
/// a spec, or of a policy that is not in use. A package that only a front end knows does not
/// count.
///
/// # Errors
/// The image is damaged.
pub fn find<'i>(
    image: &'i Image,
    record: &RecordKey<'_>,
    now: i64,
) -> Result<Option<Said<'i>>, ImageError> {
    let Some([name, unit, window, identity]) = parts(record) else { return Ok(None) };
    let Some(policy) = image.policy(name)? else { return Ok(None) };
    let fields = fields(identity);
    let mut said = Said { settings: policy.settings(), rule: None, exempt: None };
    let Some((field, value)) = fields.first() else { return Ok(Some(said)) };
    // A total is of the domain, whoever of it has sent.
    let (per, who) = match field.as_str() {
        DOMAIN => (Per::Domain, format!("@{value}")),
        CUSTOMER => (Per::Customer, String::new()),
        _ => (Per::Key, value.clone()),
    };
    let value_of =
        |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
    let client: Option<IpAddr> = value_of("client").and_then(|client| key::address(client));
    let recipient = value_of("recipient").map(String::as_str);
    let is_ambiguous = Field::of(field.as_bytes()).is_some_and(Field::is_of_address)
        && mailbox::is_ambiguous(value);
    let subject = Subject { identity: &who, is_ambiguous, package: None, client, recipient };
    let same = |limit: &Limit<'_>| {
        limit.per == per
            && limit.unit.word() == unit
            && limit.window() == window
            && limit.algorithm.kind() == record.algorithm
    };
    let mut limits = Vec::new();
    match per {
        Per::Customer => limits = policy.customer_limits(value)?,
        Per::Key | Per::Domain => policy.limits(&subject, &mut limits)?,
    }
    if let Some(limit) = limits.iter().find(|limit| same(limit)) {
        let package = match (limit.per, limit.rule) {
            (Per::Key, limit::Rule::Package(_)) => policy.package(&subject)?,
            _ => None,
        };
        let table = package.map_or_else(|| limit.rule_text().into(), |one| one.to_string());
        said.rule = Some(LimitRule { limit: limit.algorithm.limit(), table });
    }
    let exempt = policy.exemption(&subject, now)?;
    said.exempt =
        exempt.map(|entry| Exempt { until: entry.until, reason: entry.reason.map(str::to_owned) });
    Ok(Some(said))
}

/// What the policies say at `now`, in seconds since 1970, of the habits of the account with this
/// identity: the strictest counts, with the highest sensitivity; `None` if they are off. What a
/// policy is restricted to, and a package that only a front end knows, do not count.
///
/// # Errors
/// The image is damaged.
pub fn of_habits(
    image: &Image,
    identity: &str,
    now: i64,
) -> Result<Option<SaidOfHabits>, ImageError> {
    let fields = fields(identity);
    let Some((_, who)) = fields.first() else { return Ok(None) };
    let subject = Subject { identity: who, ..Subject::default() };
    let mut found: Option<SaidOfHabits> = None;
    for (name, policy) in image.each() {
        let policy = policy?;
        let Some(AppliedHabits { on, sensitivity, rule }) = policy.habits(&subject)? else {
            continue;
        };
        if policy.exemption(&subject, now)?.is_some() {
            continue;
        }
        let observes = policy.settings().action == Action::Observe;
        let on = if observes { OnHabits::Observe } else { on };
        let sensitivity =
            found.as_ref().map_or(sensitivity, |one| one.sensitivity.max(sensitivity));
        let is_stricter = found.as_ref().is_none_or(|before| before.on < on);
        let (name, table) = (name.to_owned(), rule.to_string());
        let own = SaidOfHabits { policy: name, table, on, sensitivity };
        let strictest = found.filter(|_| !is_stricter).unwrap_or(own);
        found = Some(SaidOfHabits { sensitivity, ..strictest });
    }
    Ok(found)
}

/// The records of the totals by which the policy `name` counts what `who` sends as well, whether
/// they exist or not; none if it exempts `who`, the value of the first field of its key.
///
/// # Errors
/// The image is damaged.
pub fn totals(image: &Image, name: &str, who: &str, now: i64) -> Result<Vec<OwnedKey>, ImageError> {
    let Some(policy) = image.policy(name)? else { return Ok(Vec::new()) };
    let subject = Subject { identity: who, ..Subject::default() };
    if policy.exemption(&subject, now)?.is_some() {
        return Ok(Vec::new());
    }
    let mut limits = Vec::new();
    policy.limits(&subject, &mut limits)?;
    let key_of = |limit: &Limit<'_>| {
        let identity = match (limit.per, limit.rule) {
            (Per::Key, _) => return None,
            (Per::Customer, limit::Rule::Customer(name)) => key::of_customer(name),
            (Per::Domain | Per::Customer, _) => key::of_domain(domain(who)?),
        };
        let prefix = format!("{name}/{}/{}/", limit.unit.word(), limit.window());
        Some(OwnedKey {
            identity_start: prefix.len(),
            name: (prefix + &identity).into_bytes(),
            kind: Kind::Policy,
            algorithm: limit.algorithm.kind(),
        })
    };
    Ok(limits.iter().filter_map(key_of).collect())
}

/// The policies that count `field`, or where there is none, logins, local accounts and scripts.
///
/// # Errors
/// The image is damaged.
pub fn counting(image: &Image, field: Option<Field>) -> Result<Vec<&str>, ImageError> {
    let is_meant = |one: Field| field.map_or(one.has_bare_names(), |field| field == one);
    let mut found = Vec::new();
    for name in image.names() {
        let Some(policy) = image.policy(name)? else { continue };
        let counts = match policy.settings().key.first() {
            Some(&first) => is_meant(first),
            None => image.identity()?.chain.iter().any(|&one| is_meant(one)),
        };
        if counts {
            found.push(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::AlgorithmKind;
    use crate::policy::image::build;
    use crate::policy::source::compile;
    use std::path::Path;

    const TEXT: &str = r#"version = 1
[policy.out]
default.recipients = ["100/1h", "500/1d"]
default.total = { recipients = "900/1h" }
bucket = { burst = 5, rate = "1 / 1h", unit = "messages" }
domain."example.org".total = { recipients = "3000/1h" }
user."a,b@example.org".recipients = "7/1h"
[[policy.out.exempt]]
match = ["ceo@example.org"]
until = 2026-12-31T00:00:00Z
reason = "letter"
[[policy.out.exempt]]
match = ["x@list.example"]
recipients = ["all@list.example"]
"#;

    fn image() -> Image {
        let compiled = compile(Path::new("p.toml"), TEXT, &|_| Err("none".to_owned()));
        let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
        Image::from_bytes(build(&policies)).unwrap()
    }

    fn said<'i>(image: &'i Image, prefix: &str, identity: &str, now: i64) -> Option<Said<'i>> {
        let name = format!("{prefix}{identity}");
        let algorithm = match prefix {
            "out/messages/1/1h/" => AlgorithmKind::Bucket,
            _ => AlgorithmKind::MovingAverage,
        };
        let (identity_start, kind) = (prefix.len(), Kind::Policy);
        let key = RecordKey { name: name.as_bytes(), identity_start, kind, algorithm };
        find(image, &key, now).unwrap()
    }

    #[test]
    fn each_record_has_the_rule_that_counts_it() {
        let image = image();
        let found = |prefix, identity| said(&image, prefix, identity, 1_795_000_000);
        for (prefix, identity, table, limit) in [
            ("out/recipients/1h/", "auth:x@example.net", "default", 100.0),
            ("out/recipients/1d/", "auth:x@example.net", "default", 500.0),
            ("out/recipients/1h/", "auth:a,,b@example.org", "user a,b@example.org", 7.0),
            ("out/recipients/1h/", "domain:example.org", "domain example.org (total)", 3000.0),
            ("out/recipients/1h/", "domain:example.net", "default (total)", 900.0),
            ("out/messages/1/1h/", "auth:x,client:192.0.2.7", "default", 5.0),
        ] {
            let rule = LimitRule { limit, table: table.to_owned() };
            assert_eq!(found(prefix, identity).unwrap().rule, Some(rule), "{identity}");
        }
        for (prefix, identity) in [
            ("out/recipients/1w/", "auth:x"),
            ("out/bytes/1h/", "auth:x"),
            ("out/recipients/1h/", "x"),
        ] {
            assert_eq!(found(prefix, identity).unwrap().rule, None, "{prefix}{identity}");
        }
        assert_eq!(found("gone/recipients/1h/", "auth:x"), None);
        assert_eq!(found("odd/", "x"), None);
        let key = RecordKey::from("1h/per_rcpt/x");
        assert_eq!(find(&image, &key, 1_795_000_000).unwrap(), None, "a spec's");
    }

    #[test]
    fn an_exemption_is_found() {
        let image = image();
        let of = |identity, now| said(&image, "out/recipients/1h/", identity, now).unwrap().exempt;
        let entry = Exempt { until: Some(1_798_675_200), reason: Some("letter".to_owned()) };
        assert_eq!(of("auth:ceo@example.org", 1_795_000_000), Some(entry));
        assert_eq!(of("auth:ceo@example.org", 1_800_000_000), None);
        assert_eq!(of("auth:x@list.example", 1_795_000_000), None, "only for some recipients");
    }

    #[test]
    fn identities_have_fields() {
        let of =
            |text| fields(text).into_iter().map(|(a, b)| format!("{a}={b}")).collect::<Vec<_>>();
        assert_eq!(of("auth:a,,b,client:2001:db8::/64"), ["auth=a,b", "client=2001:db8::/64"]);
        assert_eq!(of("x"), [""; 0]);
    }
}
