//! What a policy says of somebody, in rows: `exirate policy show`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::image::{Applied, Image, ImageError, PolicyFile, PolicyImage};
use super::key;
use super::limit::{AppliedHabits, Limit, Package, Per, Rule, Subject};
use super::model::{Identity, Limits, Location, Policies, Policy};
use super::word::{Field, State, Word as _};
use crate::identity::mailbox;
use crate::sys::host_name;
use crate::text::iso_second;
use crate::toml_file::diagnostic::place;

/// One limit.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct LimitLine {
    pub(crate) unit: &'static str,
    pub(crate) per: String,
    /// window or bucket.
    pub(crate) kind: &'static str,
    /// The limit, or the burst; null without limit.
    pub(crate) limit: Option<f64>,
    /// In seconds; of a bucket, in which all of it leaks.
    pub(crate) period: Option<f64>,
    /// The limit, as it is written.
    pub(crate) text: String,
    pub(crate) rule: String,
    /// Where it stands.
    pub(crate) file: String,
    /// Null for policies in use.
    pub(crate) line: Option<u32>,
    #[serde(skip)]
    pub(crate) place: String,
}

/// An exemption.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExemptLine<'a> {
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
    #[serde(serialize_with = "second")]
    #[schemars(with = "Option<String>")]
    pub(crate) until: Option<i64>,
    pub(crate) reason: Option<&'a str>,
    #[serde(skip)]
    pub(crate) place: String,
}

pub(crate) fn second<S: Serializer>(until: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    until.map(iso_second).serialize(serializer)
}

/// What becomes of mail that is unlike the user's habits.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HabitsLine {
    pub(crate) habits: &'static str,
    pub(crate) sensitivity: &'static str,
    pub(crate) rule: String,
}

/// A policy, and what it says of the subject.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown<'p> {
    pub(crate) policy: &'p str,
    /// To which mail it applies.
    pub(crate) when: String,
    pub(crate) action: &'static str,
    /// Who is counted; null if the policy counts something else.
    pub(crate) identity: Option<&'p str>,
    pub(crate) package: Option<&'p str>,
    /// What names it: `customer acme`.
    pub(crate) package_from: Option<String>,
    #[serde(skip)]
    pub(crate) applied_package: Option<Package<'p>>,
    #[serde(skip)]
    pub(crate) unknown_package: Option<&'p str>,
    pub(crate) customer: Option<&'p str>,
    /// Null: off.
    pub(crate) habits: Option<HabitsLine>,
    pub(crate) exempt: Option<ExemptLine<'p>>,
    pub(crate) limits: Vec<LimitLine>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PoliciesJson<'a> {
    /// What is shown.
    pub(crate) file: String,
    pub(crate) policies: &'a [Shown<'a>],
}

/// Whose limits are shown, folded.
pub(crate) struct Searched {
    identity: String,
    /// Of an address that mail servers may read differently.
    is_ambiguous: bool,
    /// What the policy counts together.
    per: String,
    recipient: Option<String>,
}

/// The policies that are shown.
pub(crate) enum PolicySource {
    /// Those in use.
    InUse(PolicyFile),
    /// Those of a policy file, compiled, and where they are written.
    File(Box<Image>, Policies),
}

impl PolicySource {
    pub(crate) fn image(&self) -> Result<&Image, &ImageError> {
        match self {
            Self::InUse(file) => file.image(),
            Self::File(image, _) => Ok(image),
        }
    }

    /// The policy `name` as it is written, if that is known.
    pub(crate) fn written(&self, name: &str) -> Option<&Policy> {
        match self {
            Self::InUse(_) => None,
            Self::File(_, policies) => policies.policies.get(name),
        }
    }

    /// The files that locations are in.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::InUse(file) => {
                file.image().map(|image| image.path().to_owned()).into_iter().collect()
            }
            Self::File(_, policies) => policies.files.clone(),
        }
    }
}

/// Of which mail limits are shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskedMail {
    /// The login, the account or the address.
    pub(crate) user: Option<String>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) recipient: Option<String>,
    /// What the front end hands over.
    pub(crate) package: Option<String>,
}

impl AskedMail {
    /// Whose limits a policy has for it.
    pub(crate) fn searched(&self, all: &Identity, policy: PolicyImage<'_>) -> Searched {
        let folding = &all.folding;
        let fold = |field, text: &Option<String>| {
            key::folded(all, field, text.as_deref()?).map(Cow::into_owned)
        };
        let user = fold(Field::Auth, &self.user);
        let (sender, recipient) =
            (fold(Field::Sender, &self.user), fold(Field::Recipient, &self.recipient));
        let is_local = policy.settings().requires(State::Local);
        let written = || self.user.as_deref().map(|user| user.trim().to_owned());
        let value = |field: Field| match field {
            // Whoever used AUTH is never local.
            Field::Auth if is_local => None,
            Field::Auth => user.clone(),
            Field::Sender => sender.clone(),
            Field::LocalAccount | Field::Script => written().filter(|user| !user.is_empty()),
            Field::Client => self.client.map(|client| folding.client(client).to_string()),
            Field::Client56 | Field::Client48 => {
                let network = self.client.and_then(|client| field.wider_network(client));
                network.map(|network| network.to_string())
            }
            Field::Recipient => recipient.clone(),
            Field::SenderDomain => domain_of(sender.as_deref()),
            Field::RecipientDomain => domain_of(recipient.as_deref()),
            Field::Destination => domain_of(recipient.as_deref())
                .map(|domain| all.destinations.of(&domain).to_owned()),
            Field::Helo => None,
            Field::Server => Some(host_name().to_owned()),
        };
        let (first, per) = match &policy.settings().key[..] {
            [] => {
                let first = all.chain.iter().find_map(|field| Some((*field, value(*field)?)));
                let per = first.as_ref().map(|(_, value)| value.clone());
                let nobody = self.user.is_none() && self.client.is_none();
                let each = if nobody { "each user" } else { "" };
                (first, per.unwrap_or_else(|| each.to_owned()))
            }
            key => {
                let part = |field: &Field| {
                    value(*field).unwrap_or_else(|| format!("each {}", field.word()))
                };
                let per: Vec<String> = key.iter().map(part).collect();
                (key.first().and_then(|field| Some((*field, value(*field)?))), per.join(", "))
            }
        };
        let address = |field: Field| if field.is_of_recipient() { &recipient } else { &sender };
        let is_ambiguous = first.as_ref().is_some_and(|(field, _)| {
            field.is_of_address() && address(*field).as_deref().is_some_and(mailbox::is_ambiguous)
        });
        let identity = first.map(|(_, value)| value).unwrap_or_default();
        Searched { identity, is_ambiguous, per, recipient }
    }

    /// What a policy says of it at a time.
    ///
    /// # Errors
    /// The image is damaged.
    pub(crate) fn shown<'p>(
        &'p self,
        files: &[PathBuf],
        name: &'p str,
        policy: &'p PolicyImage<'p>,
        written: Option<&Policy>,
        searched: &'p Searched,
        at: i64,
    ) -> Result<Shown<'p>, ImageError> {
        let subject = Subject {
            identity: &searched.identity,
            is_ambiguous: searched.is_ambiguous,
            package: self.package.as_deref(),
            client: self.client,
            recipient: searched.recipient.as_deref(),
        };
        let exempt = policy.exemption(&subject, at)?.map(|entry| {
            let written = written.and_then(|policy| policy.exempt.get(entry.number as usize));
            let at = written.map(|entry| entry.at).unwrap_or_default();
            let (file, line, place) = (file(files, at), line(at), place(files, at));
            ExemptLine { file, line, until: entry.until, reason: entry.reason, place }
        });
        let mut limits = Vec::new();
        for applied in policy.applied(&subject)? {
            let at = written.and_then(|policy| location(policy, &applied)).unwrap_or_default();
            add_lines(&mut limits, files, &applied, at, searched);
        }
        let habits = policy.habits(&subject)?.map(|AppliedHabits { on, sensitivity, rule }| {
            let (habits, sensitivity) = (on.word(), sensitivity.word());
            HabitsLine { habits, sensitivity, rule: rule.to_string() }
        });
        let package = policy.package(&subject)?;
        let when = policy.settings().when.iter().map(ToString::to_string).collect::<Vec<_>>();
        Ok(Shown {
            policy: name,
            when: when.join(" and "),
            action: policy.settings().action.word(),
            identity: Some(&*searched.identity).filter(|identity| !identity.is_empty()),
            package: package.map(|package| package.name),
            package_from: package.map(|package| package.from.to_string()),
            applied_package: package,
            unknown_package: policy.unknown_package(&subject)?,
            customer: policy.customer(&subject)?,
            habits,
            exempt,
            limits,
        })
    }
}

/// Where limits of `policy` are written.
pub(crate) fn location(policy: &Policy, applied: &Applied<'_>) -> Option<Location> {
    let limits: &Limits = match applied.rule {
        Rule::User(name) => &policy.users.get(name)?.limits,
        Rule::Domain(name) => &policy.domains.get(name)?.limits,
        Rule::Customer(name) => &policy.customers.get(name)?.limits,
        Rule::Package(name) => policy.packages.get(name)?,
        Rule::Default => &policy.default,
    };
    match (applied.unit, applied.per) {
        (Some(unit), Per::Key) => limits.each.get(&unit).map(|amount| amount.at),
        (Some(unit), Per::Domain | Per::Customer) => {
            limits.total.get(&unit).map(|amount| amount.at)
        }
        (None, _) => limits.buckets.as_ref().map(|buckets| buckets.at),
    }
}

pub(crate) fn domain_of(address: Option<&str>) -> Option<String> {
    address.and_then(super::fold::domain).map(str::to_owned)
}

/// Adds a line for each of these limits.
pub(crate) fn add_lines(
    lines: &mut Vec<LimitLine>,
    files: &[PathBuf],
    applied: &Applied<'_>,
    at: Location,
    searched: &Searched,
) {
    let line = LimitLine {
        unit: applied.unit.map_or("", |unit| unit.word()),
        per: match applied.per {
            Per::Key => searched.per.clone(),
            Per::Domain => {
                let domain = domain_of(Some(&searched.identity));
                domain.map(|domain| format!("all of {domain}")).unwrap_or_default()
            }
            Per::Customer => format!("all of {}", applied.rule),
        },
        kind: Limit::kind(applied.unit),
        limit: None,
        period: None,
        text: "unlimited".to_owned(),
        rule: applied.rule.to_string(),
        file: file(files, at),
        line: line(at),
        place: place(files, at),
    };
    let limited = applied.limits.iter().map(|limit| {
        let (most, period) = (limit.algorithm.limit(), limit.algorithm.period());
        let (unit, text) = (limit.unit.word(), limit.to_string());
        let period = Some(period).filter(|period| period.is_finite());
        LimitLine { unit, limit: Some(most), period, text, ..line.clone() }
    });
    lines.extend(limited);
    if applied.limits.is_empty() {
        lines.push(line);
    }
}

/// The file, where it is known.
pub(crate) fn file(files: &[PathBuf], at: Location) -> String {
    files.get(usize::from(at.file)).map(|file| file.display().to_string()).unwrap_or_default()
}

/// The line, where it is known.
pub(crate) fn line(at: Location) -> Option<u32> {
    Some(at.line).filter(|&line| line > 0)
}
