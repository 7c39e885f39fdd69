//! The compiled policies: what `exirate policy apply` writes and the libraries map.
//!
//! `IMAGE.md` describes the format. Every offset and length in it is checked, and each row is
//! verified when it is read: damage is an error, never a wrong limit.

mod container;
mod error;
mod exempt;
pub(super) mod fields;
mod in_use;
#[cfg(feature = "cli")]
mod install;
mod layout;
mod limits;
#[cfg(feature = "cli")]
mod read_back;
#[cfg(feature = "cli")]
mod write;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use container::{Container, fault_at};
use error::Fault;
pub use error::ImageError;
use exempt::Exempts;
use fields::{Fields, Stored, What};
pub use in_use::PolicyFile;
#[cfg(feature = "cli")]
pub use install::{install, remove};
use layout::{Table, VERSION};
#[cfg(feature = "cli")]
pub use limits::Applied;
use limits::{Chosen, Scope};
#[cfg(feature = "cli")]
pub use write::{build, build_with};

use super::destination::Destinations;
use super::fold::domain;
use super::limit::{self, AppliedHabits, Exemption, Limit, PackageFrom, Subject, Tables};
use super::settings::{
    Blocks, DeliverySettings, Group as _, HabitsSettings, Identity, OnCrossing, PolicySettings,
};
use super::word::OnHabits;
use crate::calendar::Zone;

/// Compiled policies.
#[derive(Debug)]
pub struct Image {
    container: Container,
    /// For messages.
    path: PathBuf,
    identity: OnceLock<Identity>,
    zone: OnceLock<Zone>,
    policies: Vec<PolicyEntry>,
}

/// A policy in the directory.
#[derive(Debug)]
struct PolicyEntry {
    name: Arc<str>,
    /// The position of its row.
    at: u32,
    decoded: OnceLock<Decoded>,
}

/// What is decoded of a policy when it is used first.
#[derive(Debug)]
struct Decoded {
    /// The position of its row.
    at: u32,
    settings: PolicySettings,
    blocks: Blocks,
    delivery: DeliverySettings,
    /// Whether a table has habits on.
    uses_habits: bool,
    default: Box<[u8]>,
    packages: Table,
    customers: Table,
    domains: Table,
    users: Table,
    exempts: Exempts,
}

impl Image {
    /// Maps an image. Only its header and the list of its policies are read.
    ///
    /// # Errors
    /// It does not exist, cannot be read, is damaged, or has another version.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = ImageError::io("open", path);
        let file = File::open(path).map_err(&failed)?;
        let size = file.metadata().map_err(failed)?.len();
        Self::of(&file, size, path.to_path_buf())
    }

    /// As [`Image::open`], of an open file of this size; `path` is for messages.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub(crate) fn of(file: &File, size: u64, path: PathBuf) -> Result<Self, ImageError> {
        let mapped = Container::map(file, size).map_err(ImageError::io("map", &path))?;
        let policies = mapped.and_then(|container| Ok((directory(&container)?, container)));
        match policies {
            Ok((policies, container)) => Ok(Self::new(container, policies, path)),
            Err(fault) => Err(fault.of(&path)),
        }
    }

    /// An image in memory.
    ///
    /// # Errors
    /// It is damaged, or has another version.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ImageError> {
        let path = Path::new("in memory");
        let read =
            Container::of(bytes).and_then(|container| Ok((directory(&container)?, container)));
        let (policies, container) = read.map_err(|fault| fault.of(path))?;
        Ok(Self::new(container, policies, path.to_path_buf()))
    }

    fn new(container: Container, policies: Vec<PolicyEntry>, path: PathBuf) -> Self {
        let (identity, zone) = (OnceLock::new(), OnceLock::new());
        Self { container, path, identity, zone, policies }
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether another image has replaced it, or will do so soon. Costs one load.
    #[must_use]
    #[inline]
    pub fn is_superseded(&self) -> bool {
        self.container.is_superseded()
    }

    /// `[identity]`
    ///
    /// # Errors
    /// It is damaged.
    pub fn identity(&self) -> Result<&Identity, ImageError> {
        let read = || self.container.read(self.container.identity, read_identity);
        once(&self.identity, read).map_err(|fault| fault.of(&self.path))
    }

    /// `[on.crossing]`
    ///
    /// # Errors
    /// It is damaged.
    pub fn on_crossing(&self) -> Result<OnCrossing, ImageError> {
        let read = self.container.read(self.container.on_crossing, OnCrossing::read);
        read.map_err(|fault| fault.of(&self.path))
    }

    /// Whether what accounts send is counted: `usage`.
    #[must_use]
    #[inline]
    pub fn counts_usage(&self) -> bool {
        self.container.counts_usage
    }

    /// The time zone of the calendar; UTC, if no limit counts by the calendar.
    ///
    /// # Errors
    /// It is damaged.
    pub fn zone(&self) -> Result<&Zone, ImageError> {
        let read = || match self.container.zone {
            0 => Ok(Zone::default()),
            at => self.container.read(at, Zone::read),
        };
        once(&self.zone, read).map_err(|fault| fault.of(&self.path))
    }

    /// The names of the policies, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.policies.iter().map(|policy| &*policy.name)
    }

    /// The policy of this name.
    ///
    /// # Errors
    /// It is damaged.
    pub fn policy(&self, name: &str) -> Result<Option<PolicyImage<'_>>, ImageError> {
        let entry = self.policies.iter().find(|policy| *policy.name == *name);
        entry.map(|entry| self.read(entry)).transpose()
    }

    /// All policies, by name; each may be damaged.
    pub fn each(&self) -> impl Iterator<Item = (&str, Result<PolicyImage<'_>, ImageError>)> {
        self.policies.iter().map(|entry| (&*entry.name, self.read(entry)))
    }

    fn read<'a>(&'a self, entry: &'a PolicyEntry) -> Result<PolicyImage<'a>, ImageError> {
        let read = || {
            let blocks = match self.container.version {
                VERSION.. => {
                    let on = self.container.read(self.container.on_crossing, OnCrossing::read)?;
                    on.blocks(&entry.name)
                }
                _ => Blocks::default(),
            };
            self.container.read(entry.at, |row| decoded(row, entry.at, blocks))
        };
        let decoded = once(&entry.decoded, read).map_err(|fault| fault.of(&self.path))?;
        Ok(PolicyImage { image: self, name: &entry.name, decoded })
    }
}

fn read_identity(row: &mut Fields<'_>) -> Result<Identity, What> {
    let identity = Identity::read(row)?;
    let destinations = if row.is_empty() { Destinations::default() } else { Stored::read(row)? };
    Ok(Identity { destinations, ..identity })
}

fn directory(container: &Container) -> Result<Vec<PolicyEntry>, Fault> {
    container.read(container.directory, |row| row.list(directory_entry))
}

fn directory_entry(row: &mut Fields<'_>) -> Result<PolicyEntry, What> {
    let name = row.text()?.into();
    Ok(PolicyEntry { name, at: row.u32()?, decoded: OnceLock::new() })
}

fn decoded(row: &mut Fields<'_>, at: u32, blocks: Blocks) -> Result<Decoded, What> {
    let settings = PolicySettings::read(row)?;
    let uses_habits = row.flag()?;
    let length = row.u32()?;
    let mut decoded = Decoded {
        at,
        settings,
        blocks,
        delivery: DeliverySettings::default(),
        uses_habits,
        default: row.bytes(length)?.into(),
        packages: Stored::read(row)?,
        customers: Stored::read(row)?,
        domains: Stored::read(row)?,
        users: Stored::read(row)?,
        exempts: exempt::exempts(row)?,
    };
    if !row.is_empty() {
        decoded.delivery = DeliverySettings::read(row)?;
    }
    Ok(decoded)
}

/// What was read before, or is read now.
fn once<T>(cell: &OnceLock<T>, read: impl FnOnce() -> Result<T, Fault>) -> Result<&T, Fault> {
    match cell.get() {
        Some(value) => Ok(value),
        None => {
            let value = read()?;
            Ok(cell.get_or_init(|| value))
        }
    }
}

/// A policy of an [`Image`].
#[derive(Clone, Copy, Debug)]
pub struct PolicyImage<'i> {
    image: &'i Image,
    name: &'i Arc<str>,
    decoded: &'i Decoded,
}

/// A user or a domain.
#[derive(Clone, Copy, Debug)]
struct Member<'a> {
    /// The position of its row.
    row: u32,
    /// The position of the row of its package; 0 if it has none.
    package: u32,
    /// The position of the row of its customer; 0 if it has none.
    customer: u32,
    limits: &'a [u8],
}

/// A package or a customer.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    /// The position of its row.
    row: u32,
    name: &'a str,
    /// Of a customer, the position of the row of its package; 0 if it has none.
    package: u32,
    limits: &'a [u8],
}

/// Who a subject is in the tables.
#[derive(Clone, Copy, Debug)]
struct KnownSubject<'a> {
    user: Option<Member<'a>>,
    domain_name: Option<&'a str>,
    domain: Option<Member<'a>>,
    customer: Option<Named<'a>>,
    /// The package of the domain, or of its customer.
    domain_package: Option<Named<'a>>,
    /// The package that applies, and what names it.
    package: Option<(PackageFrom<'a>, Named<'a>)>,
    /// The package that was handed over, if it does not exist.
    unknown: Option<&'a str>,
}

impl<'i> PolicyImage<'i> {
    /// Its name.
    pub(super) fn name(&self) -> &'i Arc<str> {
        self.name
    }

    /// The time zone of the calendar.
    ///
    /// # Errors
    /// It is damaged.
    pub fn zone(&self) -> Result<&'i Zone, ImageError> {
        self.image.zone()
    }

    /// What holds for all of its tables.
    #[must_use]
    pub fn settings(&self) -> &'i PolicySettings {
        &self.decoded.settings
    }

    /// How long an account is blocked, and the reply to its client meanwhile.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        self.decoded.blocks
    }

    /// Where it is evaluated, and what becomes of what waits.
    #[must_use]
    #[inline]
    pub fn delivery(&self) -> &'i DeliverySettings {
        &self.decoded.delivery
    }

    /// Clears `limits`, and fills it with the limits that apply to `subject`: those of the
    /// key by unit, then the totals of the domain and of the customer by unit, then the
    /// buckets. Nothing for what is unlimited.
    ///
    /// # Errors
    /// The image is damaged; `limits` is empty.
    pub fn limits<'a>(
        &'a self,
        subject: &Subject<'a>,
        limits: &mut Vec<Limit<'a>>,
    ) -> Result<(), ImageError> {
        limits.clear();
        let filled = self.fill(subject, limits);
        if filled.is_err() {
            limits.clear();
        }
        filled.map_err(|fault| fault.of(&self.image.path))
    }

    fn fill<'a>(&'a self, subject: &Subject<'a>, limits: &mut Vec<Limit<'a>>) -> Result<(), Fault> {
        self.chosen(subject)?.append_to(limits).map_err(|(row, what)| fault_at(row, what))?;
        self.pace(limits);
        Ok(())
    }

    /// Makes buckets of the windows by which a destination is limited.
    fn pace(&self, limits: &mut [Limit<'_>]) {
        if self.delivery().is_at_delivery() && self.settings().counts_attempts() {
            let burst = self.delivery().burst;
            limits.iter_mut().for_each(|one| one.algorithm = limit::paced(one.algorithm, burst));
        }
    }

    /// The limits that apply to `subject`, with what is unlimited, in the order of
    /// [`Self::limits`].
    ///
    /// # Errors
    /// The image is damaged.
    #[cfg(feature = "cli")]
    pub fn applied<'a>(&'a self, subject: &Subject<'a>) -> Result<Vec<Applied<'a>>, ImageError> {
        let applied = self
            .chosen(subject)
            .and_then(|chosen| chosen.applied().map_err(|(row, what)| fault_at(row, what)));
        let mut applied = applied.map_err(|fault| fault.of(&self.image.path))?;
        applied.iter_mut().for_each(|one| self.pace(&mut one.limits));
        Ok(applied)
    }

    /// Whether accounts are compared with their habits by a table of the policy.
    #[must_use]
    #[inline]
    pub fn uses_habits(&self) -> bool {
        self.decoded.uses_habits
    }

    /// The other address of the account `identity` that its table names.
    ///
    /// # Errors
    /// The image is damaged.
    #[cfg(feature = "cli")]
    pub fn contact(&self, identity: &str) -> Result<Option<String>, ImageError> {
        let found = self.member(self.decoded.users, identity).and_then(|user| {
            let Some(user) = user else { return Ok(None) };
            let said = limits::habits(user.limits).map_err(|what| fault_at(user.row, what))?;
            Ok(said.contact)
        });
        found.map_err(|fault| fault.of(&self.image.path))
    }

    /// What the tables say of the habits of `subject`, and the table that says what becomes of
    /// its mail; `None` if they are off.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn habits<'a>(
        &'a self,
        subject: &Subject<'a>,
    ) -> Result<Option<AppliedHabits<'a>>, ImageError> {
        self.find_habits(subject).map_err(|fault| fault.of(&self.image.path))
    }

    fn find_habits<'a>(
        &'a self,
        subject: &Subject<'a>,
    ) -> Result<Option<AppliedHabits<'a>>, Fault> {
        let (mut all, mut from) = (HabitsSettings::default(), limit::Rule::Default);
        for (rule, (limits, row)) in self.tables(&self.known(subject)?, subject).of_keys() {
            let said = limits::habits(limits).map_err(|what| fault_at(row, what))?;
            if all.habits.is_none() {
                from = rule;
            }
            all = all.or(said);
        }
        let on = all.habits.unwrap_or(OnHabits::Off);
        let sensitivity = all.sensitivity.unwrap_or_default();
        Ok((on != OnHabits::Off).then_some(AppliedHabits { on, sensitivity, rule: from }))
    }

    /// The tables that apply to `subject`: their limits, and the positions of their rows.
    fn tables<'a>(
        &'a self,
        known: &KnownSubject<'a>,
        subject: &Subject<'a>,
    ) -> Tables<'a, (&'a [u8], u32)> {
        let named = |one: Named<'a>| (one.name, (one.limits, one.row));
        let Decoded { default, at, .. } = self.decoded;
        Tables {
            user: known.user.map(|user| (subject.identity, (user.limits, user.row))),
            domain: known.domain_name.zip(known.domain.map(|domain| (domain.limits, domain.row))),
            customer: known.customer.map(named),
            package: known.package.map(|(_, package)| named(package)),
            domain_package: known.domain_package.map(named),
            default: (&**default, *at),
        }
    }

    /// The limits of `subject`, by unit.
    fn chosen<'a>(&'a self, subject: &Subject<'a>) -> Result<Chosen<'a>, Fault> {
        let known = self.known(subject)?;
        let tables = self.tables(&known, subject);
        let mut chosen = Chosen::default();
        let mut add = |rule, (limits, row), scope| {
            chosen.add(rule, limits, scope, row).map_err(|what| fault_at(row, what))
        };
        for (rule, table) in tables.of_keys() {
            add(rule, table, Scope::Keys)?;
        }
        if known.domain_name.is_some() {
            for (rule, table) in tables.of_totals() {
                add(rule, table, Scope::Domain)?;
            }
        }
        if let Some((rule, table)) = tables.of_customer() {
            add(rule, table, Scope::Customer)?;
        }
        Ok(chosen)
    }

    /// The limits of all users of the customer `name` together; nothing for what is unlimited.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn customer_limits(&self, name: &str) -> Result<Vec<Limit<'i>>, ImageError> {
        let (mut limits, mut chosen) = (Vec::new(), Chosen::default());
        let filled =
            self.named(self.decoded.customers, name, Self::customer_at).and_then(|found| {
                let Some(Named { row, name, limits: own, .. }) = found else { return Ok(()) };
                let added = chosen.add(limit::Rule::Customer(name), own, Scope::Customer, row);
                added.map_err(|what| fault_at(row, what))?;
                chosen.append_to(&mut limits).map_err(|(row, what)| fault_at(row, what))
            });
        self.pace(&mut limits);
        filled.map(|()| limits).map_err(|fault| fault.of(&self.image.path))
    }

    /// Whether the policy has an entry of `exempt`.
    #[must_use]
    pub fn has_exemptions(&self) -> bool {
        !self.decoded.exempts.is_empty()
    }

    /// Whether the policy has an entry of `exempt` that lists recipients.
    #[must_use]
    pub fn exempts_recipients(&self) -> bool {
        self.decoded.exempts.lists_recipients()
    }

    /// The first entry of `exempt` that exempts `subject` at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn exemption<'a>(
        &'a self,
        subject: &Subject<'a>,
        now: i64,
    ) -> Result<Option<Exemption<'a>>, ImageError> {
        let container = &self.image.container;
        let found = self.decoded.exempts.find(container, subject, now).and_then(|row| {
            row.map(|(number, row)| {
                container.read(row, |row| exempt::entry(row, number).map(|(known, _)| known))
            })
            .transpose()
        });
        found.map_err(|fault| fault.of(&self.image.path))
    }

    /// Whether it has packages, one of which a front end may hand over.
    #[must_use]
    pub fn has_packages(&self) -> bool {
        self.decoded.packages.slots > 0
    }

    /// The package that applies.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn package<'a>(
        &'a self,
        subject: &Subject<'a>,
    ) -> Result<Option<limit::Package<'a>>, ImageError> {
        let known = self.known(subject).map_err(|fault| fault.of(&self.image.path))?;
        let package = known.package;
        Ok(package.map(|(from, package)| limit::Package { name: package.name, from }))
    }

    /// The package that was handed over with `subject`, if it was looked for and does not exist.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn unknown_package<'a>(
        &'a self,
        subject: &Subject<'a>,
    ) -> Result<Option<&'a str>, ImageError> {
        self.known(subject).map(|known| known.unknown).map_err(|fault| fault.of(&self.image.path))
    }

    /// The customer of `subject`.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn customer<'a>(&'a self, subject: &Subject<'a>) -> Result<Option<&'a str>, ImageError> {
        let known = self.known(subject).map_err(|fault| fault.of(&self.image.path))?;
        Ok(known.customer.map(|customer| customer.name))
    }

    /// Finds a subject in the tables.
    fn known<'a>(&'a self, subject: &Subject<'a>) -> Result<KnownSubject<'a>, Fault> {
        let user = self.member(self.decoded.users, subject.identity)?;
        let domain_name = domain(subject.identity);
        let domain = match domain_name {
            Some(name) => self.member(self.decoded.domains, name)?,
            None => None,
        };
        let of = |at: Option<u32>| at.filter(|at| *at != 0);
        let own_customer = of(user.map(|user| user.customer));
        let domain_customer = of(domain.map(|domain| domain.customer));
        let customer = limit::customer(own_customer, domain_customer);
        let customer = customer.map(|at| self.customer_at(at)).transpose()?;
        // As a rule, the customer of the domain is that of its users.
        let domain_customer = match (domain_customer, customer) {
            (Some(at), Some(customer)) if customer.row == at => Some(customer),
            (Some(at), _) => Some(self.customer_at(at)?),
            (None, _) => None,
        };
        let packaged = |customer: Option<Named<'i>>| {
            customer.and_then(|one| of(Some(one.package)).map(|at| (one.name, at)))
        };
        let of_domain = of(domain.map(|domain| domain.package));
        let domain_package =
            of_domain.or(packaged(domain_customer).map(|(_, at)| at)).map(|at| self.package_at(at));
        let domain_package = domain_package.transpose()?;
        let own = of(user.map(|user| user.package)).map(|at| (subject.identity, at));
        // That of the user's own table is above what is handed over.
        let handed_over = subject.package.filter(|_| own.is_none());
        let found = match handed_over {
            Some(name) => self.named(self.decoded.packages, name, Self::package_at)?,
            None => None,
        };
        let package = limit::package(
            own,
            found.map(|package| package.row),
            domain_name.zip(of_domain),
            packaged(customer),
        );
        let read = |at: u32| {
            let known = [found, domain_package].into_iter().flatten().find(|one| one.row == at);
            known.map_or_else(|| self.package_at(at), Ok)
        };
        let package = package.map(|(from, at)| Ok((from, read(at)?))).transpose()?;
        let unknown = handed_over.filter(|_| found.is_none());
        Ok(KnownSubject { user, domain_name, domain, customer, domain_package, package, unknown })
    }

    fn member(&self, table: Table, name: &str) -> Result<Option<Member<'i>>, Fault> {
        let Some(found) = self.image.container.find(table, name.as_bytes())? else {
            return Ok(None);
        };
        let mut fields = Fields(found.value);
        let damaged = |what| fault_at(found.row, what);
        let package = fields.u32().map_err(damaged)?;
        let customer = fields.u32().map_err(damaged)?;
        Ok(Some(Member { row: found.row, package, customer, limits: fields.0 }))
    }

    /// The one of this name in a table of positions, which `read` reads.
    fn named(
        &self,
        table: Table,
        name: &str,
        read: impl Fn(&Self, u32) -> Result<Named<'i>, Fault>,
    ) -> Result<Option<Named<'i>>, Fault> {
        let Some(found) = self.image.container.find(table, name.as_bytes())? else {
            return Ok(None);
        };
        let at = Fields(found.value).u32();
        read(self, at.map_err(|what| fault_at(found.row, what))?).map(Some)
    }

    fn package_at(&self, at: u32) -> Result<Named<'i>, Fault> {
        let mut fields = Fields(self.image.container.row(at)?);
        let name = fields.text().map_err(|what| fault_at(at, what))?;
        Ok(Named { row: at, name, package: 0, limits: fields.0 })
    }

    fn customer_at(&self, at: u32) -> Result<Named<'i>, Fault> {
        let mut fields = Fields(self.image.container.row(at)?);
        let mut read = || Ok((fields.text()?, fields.u32()?));
        let (name, package) = read().map_err(|what| fault_at(at, what))?;
        Ok(Named { row: at, name, package, limits: fields.0 })
    }
}

#[cfg(test)]
#[cfg(feature = "cli")]
mod format_tests;
#[cfg(test)]
#[cfg(feature = "cli")]
mod install_tests;
#[cfg(test)]
#[cfg(feature = "cli")]
mod tests;
