//! A limit that applies to an identity.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use super::key::Key;
use super::word::{OnHabits, Sensitivity, Unit};
use crate::calendar::{Every, Zone};
use crate::engine::Algorithm;
use crate::event::Event;
use crate::identity::mailbox;
use crate::rate::{CalendarWindow, Share};

/// Whose limits are searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The first field of the policy's key, or what the identity chain gave;
    /// folded. Empty: not known.
    pub identity: &'a str,
    /// It is, or is the domain of, an address that mail servers may read differently: no entry of
    /// `exempt` means it.
    pub is_ambiguous: bool,
    /// The package that the front end handed over.
    pub package: Option<&'a str>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The recipient, folded.
    pub recipient: Option<&'a str>,
}

impl<'a> Subject<'a> {
    /// Of the sender of `event`, who has this key.
    #[must_use]
    pub fn of_sender(key: &'a Key<'_>, event: &Event<&'a str>) -> Self {
        let Key { identity, is_ambiguous, .. } = key;
        let package = event.package.filter(|package| !package.is_empty());
        let client = event.client.address();
        Self { identity, is_ambiguous: *is_ambiguous, package, client, recipient: None }
    }

    /// What entries of `exempt` are searched for: whoever is counted, and the recipient; without
    /// addresses that mail servers may read differently.
    #[must_use]
    pub fn plain(&self) -> (&'a str, Option<&'a str>) {
        let identity = if self.is_ambiguous { "" } else { self.identity };
        (identity, self.recipient.filter(|recipient| !mailbox::is_ambiguous(recipient)))
    }
}

/// The table that a limit is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule<'a> {
    /// The table of the user.
    User(&'a str),
    /// The table of the domain.
    Domain(&'a str),
    /// The table of the customer.
    Customer(&'a str),
    /// The table of the package.
    Package(&'a str),
    /// The table for everybody.
    Default,
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Domain(name) => write!(f, "domain {name}"),
            Self::Customer(name) => write!(f, "customer {name}"),
            Self::Package(name) => write!(f, "package {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Rule<'_> {
    /// As text.
    #[must_use]
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Default => "default".into(),
            rule => rule.to_string().into(),
        }
    }
}

/// The tables of a policy that have limits for an identity. The order in which they apply is
/// stated here alone.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a, T> {
    /// Its own.
    pub user: Option<(&'a str, T)>,
    /// That of its domain.
    pub domain: Option<(&'a str, T)>,
    /// That of its customer: see [`customer`].
    pub customer: Option<(&'a str, T)>,
    /// That of the package that applies to it: see [`package`].
    pub package: Option<(&'a str, T)>,
    /// That of the package of its domain, or else of the customer of its domain.
    pub domain_package: Option<(&'a str, T)>,
    /// The one for everybody.
    pub default: T,
}

impl<'a, T> Tables<'a, T> {
    /// Where the limits of each key are from: of a unit, the first table that names it.
    pub fn of_keys(self) -> impl Iterator<Item = (Rule<'a>, T)> {
        let Self { user, domain, customer, package, default, .. } = self;
        let user = user.map(|(name, table)| (Rule::User(name), table));
        let domain = domain.map(|(name, table)| (Rule::Domain(name), table));
        let customer = customer.map(|(name, table)| (Rule::Customer(name), table));
        let package = package.map(|(name, table)| (Rule::Package(name), table));
        [user, domain, customer, package, Some((Rule::Default, default))].into_iter().flatten()
    }

    /// Where the limits of all users of the domain together are from. The package of one of
    /// them is nothing to these, and the total of a customer is one of its own.
    pub fn of_totals(self) -> impl Iterator<Item = (Rule<'a>, T)> {
        let package = self.domain_package;
        Self { user: None, customer: None, package, domain_package: None, ..self }.of_keys()
    }

    /// Where the limits of all users of the customer together are from.
    pub fn of_customer(self) -> Option<(Rule<'a>, T)> {
        self.customer.map(|(name, table)| (Rule::Customer(name), table))
    }
}

/// The customer of an identity, of those that its own table and that of its domain name.
#[must_use]
pub fn customer<C>(of_user: Option<C>, of_domain: Option<C>) -> Option<C> {
    of_user.or(of_domain)
}

/// What names the package that applies: in this order, the first that names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageFrom<'a> {
    /// The table of the user.
    User(&'a str),
    /// The front end.
    FrontEnd,
    /// The table of the domain.
    Domain(&'a str),
    /// The table of the customer.
    Customer(&'a str),
}

impl fmt::Display for PackageFrom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::FrontEnd => f.write_str("the front end"),
            Self::Domain(name) => write!(f, "domain {name}"),
            Self::Customer(name) => write!(f, "customer {name}"),
        }
    }
}

/// The package that applies to an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package<'a> {
    /// Its name.
    pub name: &'a str,
    /// What names it.
    pub from: PackageFrom<'a>,
}

/// `package gold, from customer acme`
impl fmt::Display for Package<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, from {}", Rule::Package(self.name), self.from)
    }
}

/// The package that applies, and what names it. One that is handed over may not exist, and is then
/// none of these.
#[must_use]
pub fn package<'a, P>(
    of_user: Option<(&'a str, P)>,
    handed_over: Option<P>,
    of_domain: Option<(&'a str, P)>,
    of_customer: Option<(&'a str, P)>,
) -> Option<(PackageFrom<'a>, P)> {
    let user = of_user.map(|(name, package)| (PackageFrom::User(name), package));
    user.or_else(|| handed_over.map(|package| (PackageFrom::FrontEnd, package)))
        .or_else(|| of_domain.map(|(name, package)| (PackageFrom::Domain(name), package)))
        .or_else(|| of_customer.map(|(name, package)| (PackageFrom::Customer(name), package)))
}

/// Who is counted together by a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Per {
    /// Each key of the policy by itself.
    Key,
    /// All users of a domain together (`total`).
    Domain,
    /// All users of a customer together (`total`).
    Customer,
}

impl Per {
    /// Whether several identities are counted together.
    #[must_use]
    #[inline]
    pub fn is_total(self) -> bool {
        self != Self::Key
    }
}

/// One window or bucket of a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit<'a> {
    /// What is counted.
    pub unit: Unit,
    /// Who is counted together.
    pub per: Per,
    /// How it is counted, the limit and the period; [`Limit::at`] has the present window of the
    /// calendar.
    pub algorithm: Algorithm,
    /// How often it starts again, if it counts by the calendar.
    pub every: Option<Every>,
    /// As written, without blanks: `100/1h`; `500 daily`; of a bucket its rate, `1/1h`.
    pub text: &'a str,
    /// The table it is from.
    pub rule: Rule<'a>,
}

impl Limit<'_> {
    /// The table it is from, and whether it is a `total`.
    #[must_use]
    pub fn rule_text(&self) -> Cow<'static, str> {
        match self.per {
            Per::Key => self.rule.text(),
            Per::Domain | Per::Customer => format!("{} (total)", self.rule).into(),
        }
    }

    /// What the limits of a unit are called, or those of buckets.
    #[cfg(feature = "cli")]
    #[must_use]
    pub fn kind(unit: Option<Unit>) -> &'static str {
        match unit {
            Some(unit) if unit.is_cap() => "cap",
            Some(_) => "window",
            None => "bucket",
        }
    }

    /// How a limit on `unit` counts, which is no bucket: so many in a period of seconds, or by the
    /// calendar. A cap is a bucket that is empty before each message and from which nothing leaks.
    /// The limit of a share is packed: see [`Share::packed`].
    pub(super) fn algorithm(
        unit: Unit,
        limit: f64,
        period: f64,
        every: Option<Every>,
    ) -> Algorithm {
        match (unit.is_cap(), every) {
            _ if unit.is_share() => {
                Algorithm::Share { share: Share::of_packed(limit, period), accepted: None }
            }
            (true, _) => Algorithm::Bucket { burst: limit, rate: 0.0 },
            (_, Some(_)) => Algorithm::Calendar { limit, window: CalendarWindow::default() },
            (_, None) => Algorithm::MovingAverage { limit, period },
        }
    }

    /// How it counts at `now`, in seconds since 1970.
    #[must_use]
    #[inline]
    pub fn at(&self, zone: &Zone, now: i64) -> Algorithm {
        match (self.algorithm, self.every) {
            (Algorithm::Calendar { limit, .. }, Some(every)) => {
                Algorithm::Calendar { limit, window: zone.window(every, now) }
            }
            (algorithm, _) => algorithm,
        }
    }

    /// What distinguishes its records from those of other limits on the same unit: `1h` of
    /// `100/1h`, `daily` of `500 daily`, as another limit goes on with the same count. What a
    /// bucket remembers is its own.
    #[must_use]
    #[inline]
    pub fn window(&self) -> &str {
        window_of(self.text, matches!(self.algorithm, Algorithm::Bucket { .. }))
    }
}

/// As [`Limit::window`], of a limit as written, which may be a bucket's.
#[must_use]
#[inline]
pub fn window_of(text: &str, bucket: bool) -> &str {
    match text.split_once(['/', ' ']) {
        Some((_, window)) if !bucket => window,
        _ => text,
    }
}

/// As it is written, and all of a bucket: `burst 5, leak 1/1h`.
impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            _ if self.unit.is_cap() => f.write_str(self.text),
            Algorithm::MovingAverage { .. } | Algorithm::Calendar { .. } => f.write_str(self.text),
            Algorithm::Share { share, .. } => write!(f, "{} from {}", self.text, share.least),
            Algorithm::Bucket { burst, .. } => write!(f, "burst {burst}, leak {}", self.text),
        }
    }
}

/// As a bucket, what counts as a moving average: so many leave at once, by default what flows in
/// a minute, and then one after the other.
#[must_use]
pub(super) fn paced(algorithm: Algorithm, burst: Option<f64>) -> Algorithm {
    match algorithm {
        Algorithm::MovingAverage { limit, period } => {
            let rate = limit / period;
            let minute = (rate * 60.0).ceil().max(1.0);
            Algorithm::Bucket { burst: burst.unwrap_or(minute), rate }
        }
        other => other,
    }
}

/// What the tables say of the habits of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedHabits<'a> {
    /// What becomes of its mail while it is suspected.
    pub on: OnHabits,
    /// How early an alarm is raised.
    pub sensitivity: Sensitivity,
    /// The table that says what becomes of its mail.
    pub rule: Rule<'a>,
}

/// The entry of `exempt` that lifts the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemption<'a> {
    /// Its number among the entries, from 0.
    pub number: u32,
    /// Until then, in seconds since 1970.
    pub until: Option<i64>,
    /// Why.
    pub reason: Option<&'a str>,
}
