//! A policy file as data: checked, folded, and with the place each limit is from.

use std::collections::BTreeMap;
#[cfg(feature = "cli")]
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "cli")]
use super::image::fields::Row;
use super::image::fields::{Fields, Stored, What};
use super::network::Cidr;
pub use super::settings::{DeliverySettings, HabitsSettings, Identity, OnCrossing, PolicySettings};
pub use super::value::{DomainPattern, Grade, Location, Piece, Template, UnitText, When};
use super::word::Unit;
use crate::calendar::{Every, Zone};
#[cfg(any(doc, feature = "cli"))]
use crate::rate::Share;
#[cfg(feature = "cli")]
use crate::text::period;

/// All that a policy file and the files it names say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies {
    /// The files: the policy file, then those it names.
    pub files: Vec<PathBuf>,
    /// `[identity]`
    pub identity: Identity,
    /// `[on.crossing]`
    pub on_crossing: OnCrossing,
    /// The time zone of the calendar: `timezone`, or that of the server. None, where no limit
    /// needs one and none is named.
    pub zone: Option<Zone>,
    /// What accounts send is not counted: `usage = false`.
    pub no_usage: bool,
    /// `[policy.NAME]`
    pub policies: BTreeMap<String, Policy>,
}

impl Policies {
    /// Whether what accounts send is counted.
    #[must_use]
    pub fn counts_usage(&self) -> bool {
        !self.no_usage
    }
}

/// A policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Where it starts.
    pub at: Location,
    /// What holds for all of its tables.
    pub settings: PolicySettings,
    /// Where it is evaluated.
    pub delivery: DeliverySettings,
    /// For everybody.
    pub default: Limits,
    /// By package.
    pub packages: BTreeMap<String, Limits>,
    /// By customer.
    pub customers: Members,
    /// By domain, folded.
    pub domains: Members,
    /// By identity, folded.
    pub users: Members,
    /// Who is not limited.
    pub exempt: Vec<Exempt>,
}

impl Policy {
    /// All of its tables of limits.
    pub fn tables(&self) -> impl Iterator<Item = &Limits> {
        self.other_tables().chain(self.customers.values().map(|customer| &customer.limits))
    }

    /// Those that are not of customers: a `total` in them is for all users of a domain.
    pub fn other_tables(&self) -> impl Iterator<Item = &Limits> {
        let members = self.domains.values().chain(self.users.values());
        let members = members.map(|member| &member.limits);
        std::iter::once(&self.default).chain(self.packages.values()).chain(members)
    }

    /// Where it has a limit that counts by the calendar.
    #[must_use]
    pub fn uses_calendar(&self) -> Option<Location> {
        let by = |amount: &&Amount| amount.windows.iter().any(|window| window.every.is_some());
        self.tables().flat_map(Limits::amounts).map(|(_, amount)| amount).find(by).map(|one| one.at)
    }

    /// Whether accounts are compared with their habits by a table of it.
    #[must_use]
    pub fn uses_habits(&self) -> bool {
        self.tables().any(|limits| limits.habits.is_on())
    }

    /// Whether a table names `unit`.
    #[must_use]
    pub fn limits(&self, unit: Unit) -> bool {
        self.tables().any(|limits| limits.names(unit))
    }
}

/// The tables of a policy that are by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// `[policy.NAME.customer.…]`
    Customer,
    /// `[policy.NAME.domain.…]`
    Domain,
    /// `[policy.NAME.user.…]`
    User,
}

impl MemberKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Customer, Self::Domain, Self::User];

    /// `customer`, `domain` or `user`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Domain => "domain",
            Self::User => "user",
        }
    }
}

impl Policy {
    /// Its customers, its domains or its users.
    #[must_use]
    pub fn members(&self, kind: MemberKind) -> &Members {
        match kind {
            MemberKind::Customer => &self.customers,
            MemberKind::Domain => &self.domains,
            MemberKind::User => &self.users,
        }
    }

    /// As [`Self::members`], to change them.
    pub fn members_mut(&mut self, kind: MemberKind) -> &mut Members {
        match kind {
            MemberKind::Customer => &mut self.customers,
            MemberKind::Domain => &mut self.domains,
            MemberKind::User => &mut self.users,
        }
    }

    /// A copy without customers, domains and users, of which there may be a million.
    #[must_use]
    pub fn outline(&self) -> Self {
        Self {
            at: self.at,
            settings: self.settings.clone(),
            delivery: self.delivery.clone(),
            default: self.default.clone(),
            packages: self.packages.clone(),
            customers: Members::default(),
            domains: Members::default(),
            users: Members::default(),
            exempt: self.exempt.clone(),
        }
    }
}

impl Policies {
    /// Those that are evaluated when mail is delivered, by name.
    pub fn at_delivery(&self) -> impl Iterator<Item = (&str, &Policy)> {
        let named = self.policies.iter().map(|(name, policy)| (name.as_str(), policy));
        named.filter(|(_, policy)| policy.delivery.is_at_delivery())
    }

    /// A copy without the customers, domains and users of policies.
    #[must_use]
    pub fn outline(&self) -> Self {
        Self {
            files: self.files.clone(),
            identity: self.identity.clone(),
            on_crossing: self.on_crossing.clone(),
            zone: self.zone.clone(),
            no_usage: self.no_usage,
            policies: self.policies.iter().map(|(n, p)| (n.clone(), p.outline())).collect(),
        }
    }
}

/// Limits of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Where the table starts.
    pub at: Location,
    /// For each user.
    pub each: ByUnit,
    /// For each key, by leaky buckets.
    pub buckets: Option<Box<Buckets>>,
    /// For all users of a domain together; in the table of a customer, for all of its users.
    pub total: ByUnit,
    /// Of habits.
    pub habits: HabitsSettings,
}

impl Limits {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
            && self.buckets.is_none()
            && self.total.is_empty()
            && self.habits.says_nothing()
    }

    /// What it says of each unit, for each user and for all together.
    pub fn amounts(&self) -> impl Iterator<Item = (&Unit, &Amount)> {
        self.each.iter().chain(&self.total)
    }

    /// Whether it says something of `unit`.
    #[must_use]
    pub fn names(&self, unit: Unit) -> bool {
        let buckets = self.buckets.iter().flat_map(|buckets| &buckets.buckets);
        self.each.contains_key(&unit)
            || self.total.contains_key(&unit)
            || buckets.into_iter().any(|bucket| bucket.unit == unit)
    }
}

/// The windows of each unit, in the order of units: as small as possible, as a million users
/// may have some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByUnit(Box<[(Unit, Amount)]>);

impl ByUnit {
    /// Whether there is no unit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many units there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The windows of a unit, if it is there.
    #[must_use]
    pub fn get(&self, unit: &Unit) -> Option<&Amount> {
        self.iter().find(|(one, _)| *one == unit).map(|(_, amount)| amount)
    }

    /// Whether a unit is there.
    #[must_use]
    pub fn contains_key(&self, unit: &Unit) -> bool {
        self.get(unit).is_some()
    }

    /// The units and their windows.
    pub fn iter(&self) -> impl Iterator<Item = (&Unit, &Amount)> {
        self.into_iter()
    }

    /// The windows of all units.
    pub fn values(&self) -> impl Iterator<Item = &Amount> {
        self.iter().map(|(_, amount)| amount)
    }

    /// Sets the windows of a unit.
    pub fn insert(&mut self, unit: Unit, amount: Amount) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        match all.binary_search_by_key(&unit, |(unit, _)| *unit) {
            Ok(at) => {
                if let Some(place) = all.get_mut(at) {
                    place.1 = amount;
                }
            }
            Err(at) => {
                all.reserve_exact(1);
                all.insert(at, (unit, amount));
            }
        }
        self.0 = all.into_boxed_slice();
    }
}

impl<'a> IntoIterator for &'a ByUnit {
    type Item = (&'a Unit, &'a Amount);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'a, (Unit, Amount)>,
        fn(&'a (Unit, Amount)) -> (&'a Unit, &'a Amount),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(unit, amount)| (unit, amount))
    }
}

impl FromIterator<(Unit, Amount)> for ByUnit {
    fn from_iter<T: IntoIterator<Item = (Unit, Amount)>>(all: T) -> Self {
        let mut units = Self::default();
        all.into_iter().for_each(|(unit, amount)| units.insert(unit, amount));
        units
    }
}

/// A user, a domain or a customer: limits of its own, and a package.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// The package, which exists in the policy.
    pub package: Option<Arc<str>>,
    /// The customer of a user or a domain, which exists in the policy.
    pub customer: Option<Arc<str>>,
    /// Limits of its own.
    pub limits: Limits,
}

/// Customers, domains or users by name, in the order of names: as small as possible, as there may be a
/// million.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members(Vec<(Box<str>, Member)>);

impl Members {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn sorted(mut all: Vec<(Box<str>, Member)>) -> Self {
        all.dedup_by(|(one, _), (other, _)| one == other);
        all.shrink_to_fit();
        Self(all)
    }

    fn search(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| (**one).cmp(name))
    }

    /// The one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.search(name).ok().and_then(|at| self.0.get(at)).map(|(_, member)| member)
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.search(name).is_ok()
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Member)> {
        self.0.iter().map(|(name, member)| (&**name, member))
    }

    /// Their names.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// What they say.
    pub fn values(&self) -> impl Iterator<Item = &Member> {
        self.iter().map(|(_, member)| member)
    }

    /// Adds or replaces one. Of many, [`FromIterator`] is quicker.
    pub fn insert(&mut self, name: &str, member: Member) {
        match self.search(name) {
            Ok(at) => {
                if let Some(place) = self.0.get_mut(at) {
                    place.1 = member;
                }
            }
            Err(at) => self.0.insert(at, (name.into(), member)),
        }
    }
}

/// Of several with the same name, the last.
impl<N: Into<Box<str>>> FromIterator<(N, Member)> for Members {
    fn from_iter<T: IntoIterator<Item = (N, Member)>>(all: T) -> Self {
        let all = all.into_iter().map(|(name, member)| (name.into(), member));
        let mut all: Vec<(Box<str>, Member)> = all.collect();
        all.reverse();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self::sorted(all)
    }
}

/// Of several with the same name, one.
impl From<Vec<(Box<str>, Member)>> for Members {
    fn from(mut all: Vec<(Box<str>, Member)>) -> Self {
        // Without a second list, as a stable order would need.
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self::sorted(all)
    }
}

/// The windows of a unit; none: unlimited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amount {
    /// Where it is written.
    pub at: Location,
    /// The windows, as written.
    pub windows: Box<[Window]>,
}

/// So many events in a period, or by the calendar.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// As written, without blanks: `100/1h`; `500 daily`.
    pub text: Box<str>,
    /// The most events; of a share, see [`Share::packed`].
    pub limit: f64,
    /// The period in seconds; [`Window::NO_PERIOD`] for a cap; of the calendar, what it is as a
    /// rule.
    pub period: f64,
    /// How often it starts again, if it counts by the calendar.
    pub every: Option<Every>,
}

impl Window {
    /// Instead of the period of a cap.
    pub const NO_PERIOD: f64 = f64::MAX;
}

/// With its numbers, however they are written: `100 / 1h`.
#[cfg(feature = "cli")]
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.every, self.period) {
            _ if self.text.contains('%') => {
                let least = Share::of_packed(self.limit, self.period).least;
                write!(f, "{} from {least}", self.text.replace('/', " / "))
            }
            (Some(every), _) => write!(f, "{} {}", self.limit, every.word()),
            (None, Self::NO_PERIOD) => write!(f, "{}", self.limit),
            (None, seconds) => write!(f, "{} / {}", self.limit, period(seconds)),
        }
    }
}

/// Leaky buckets of a rule; none: unlimited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// Where they are written.
    pub at: Location,
    /// The buckets.
    pub buckets: Vec<Bucket>,
}

/// A leaky bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// What is counted.
    pub unit: Unit,
    /// What it holds.
    pub burst: f64,
    /// What leaks in a second.
    pub leak: f64,
    /// The rate as written, without blanks: `1/1h`.
    pub text: String,
}

/// An entry of `exempt`.
#[derive(Clone, Debug, PartialEq)]
pub struct Exempt {
    /// Where it starts.
    pub at: Location,
    /// Who: any of these; empty: everybody.
    pub matches: Vec<Match>,
    /// For mail to any of these; empty: for all mail.
    pub recipients: Vec<Match>,
    /// Until then, in seconds since 1970.
    pub until: Option<i64>,
    /// Why.
    pub reason: Option<String>,
}

/// Who an entry of `exempt` means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// A login, an account or an address, folded.
    Identity(String),
    /// The users of a domain.
    Domain(DomainPattern),
    /// Clients in a network.
    Client(Cidr),
}

impl Match {
    /// Whether all that `other` means is meant.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Domain(pattern), Self::Domain(other)) => pattern.covers(other),
            (Self::Domain(pattern), Self::Identity(identity)) => {
                super::fold::domain(identity).is_some_and(|domain| pattern.matches(domain))
            }
            (Self::Client(network), Self::Client(other)) => network.covers(*other),
            (one, other) => one == other,
        }
    }
}

/// As it is written: `alice@example.org`, `@example.org`, `192.0.2.0/24`.
#[cfg(feature = "cli")]
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(name) => f.write_str(name),
            Self::Domain(domain) => write!(f, "@{domain}"),
            Self::Client(network) => write!(f, "{network}"),
        }
    }
}

impl Stored for Match {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        match row.u8()? {
            0 => Stored::read(row).map(Self::Identity),
            1 => Stored::read(row).map(Self::Domain),
            2 => Stored::read(row).map(Self::Client),
            _ => Err("what an exemption matches is unknown"),
        }
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        match self {
            Self::Identity(name) => {
                row.u8(0);
                row.text(name);
            }
            Self::Domain(pattern) => {
                row.u8(1);
                pattern.write(row);
            }
            Self::Client(network) => {
                row.u8(2);
                network.write(row);
            }
        }
    }
}
