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
use layout::Table;
#[cfg(feature = "cli")]
pub use limits::Applied;
use limits::{Chosen, Scope};
#[cfg(feature = "cli")]
pub use write::{build, build_with};

use super::fold::domain;
use super::limit::{Exemption, Limit, Subject, Tables, package};
use super::settings::{Group as _, Identity, OnCrossing, PolicySettings};
use crate::calendar::Zone;

/// Compiled policies.
#[derive(Debug)]
pub struct Image {
    container: Container,
    /// For messages.
    path: PathBuf,
    identity: OnceLock<Identity>,
    zone: OnceLock<Zone>,
    policies: Vec<Entry>,
}

/// A policy in the directory.
#[derive(Debug)]
struct Entry {
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
    default: Box<[u8]>,
    packages: Table,
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

    fn new(container: Container, policies: Vec<Entry>, path: PathBuf) -> Self {
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
        let read = || self.container.read(self.container.identity, Identity::read);
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
    pub(super) fn each(&self) -> impl Iterator<Item = (&str, Result<PolicyImage<'_>, ImageError>)> {
        self.policies.iter().map(|entry| (&*entry.name, self.read(entry)))
    }

    fn read<'a>(&'a self, entry: &'a Entry) -> Result<PolicyImage<'a>, ImageError> {
        let read = || self.container.read(entry.at, |row| decoded(row, entry.at));
        let decoded = once(&entry.decoded, read).map_err(|fault| fault.of(&self.path))?;
        Ok(PolicyImage { image: self, name: &entry.name, decoded })
    }
}

fn directory(container: &Container) -> Result<Vec<Entry>, Fault> {
    container.read(container.directory, |row| row.list(directory_entry))
}

fn directory_entry(row: &mut Fields<'_>) -> Result<Entry, What> {
    let name = row.text()?.into();
    Ok(Entry { name, at: row.u32()?, decoded: OnceLock::new() })
}

fn decoded(row: &mut Fields<'_>, at: u32) -> Result<Decoded, What> {
    let settings = PolicySettings::read(row)?;
    let length = row.u32()?;
    Ok(Decoded {
        at,
        settings,
        default: row.bytes(length)?.into(),
        packages: Stored::read(row)?,
        domains: Stored::read(row)?,
        users: Stored::read(row)?,
        exempts: exempt::exempts(row)?,
    })
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
    limits: &'a [u8],
}

/// A package.
#[derive(Clone, Copy, Debug)]
struct Package<'a> {
    /// The position of its row.
    row: u32,
    name: &'a str,
    limits: &'a [u8],
}

/// Who a subject is in the tables.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    user: Option<Member<'a>>,
    domain_name: Option<&'a str>,
    domain: Option<Member<'a>>,
    /// The package of the domain.
    domain_package: Option<Package<'a>>,
    /// The package that applies.
    package: Option<Package<'a>>,
    /// The package that applies was handed over, and does not exist.
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

    /// Clears `limits`, and fills it with the limits that apply to `subject`: those of the
    /// key by unit, then the totals by unit, then the buckets. Nothing for what is
    /// unlimited.
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
        self.chosen(subject)?.append_to(limits).map_err(|(row, what)| fault_at(row, what))
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
        applied.map_err(|fault| fault.of(&self.image.path))
    }

    /// The limits of `subject`, by unit.
    fn chosen<'a>(&'a self, subject: &Subject<'a>) -> Result<Chosen<'a>, Fault> {
        let known = self.known(subject)?;
        let named = |one: Package<'a>| (one.name, (one.limits, one.row));
        let Decoded { default, at, .. } = self.decoded;
        let tables = Tables {
            user: known.user.map(|user| (subject.identity, (user.limits, user.row))),
            domain: known.domain_name.zip(known.domain.map(|domain| (domain.limits, domain.row))),
            package: known.package.map(named),
            domain_package: known.domain_package.map(named),
            default: (&**default, *at),
        };
        let mut chosen = Chosen::default();
        let mut add = |rule, (limits, row), scope| {
            chosen.add(rule, limits, scope, row).map_err(|what| fault_at(row, what))
        };
        for (rule, table) in tables.of_keys() {
            add(rule, table, Scope::Keys)?;
        }
        if known.domain_name.is_some() {
            for (rule, table) in tables.of_totals() {
                add(rule, table, Scope::Totals)?;
            }
        }
        Ok(chosen)
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

    /// The package that applies, and whether the policy has it: one that a front end hands
    /// over may not exist.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn package<'a>(
        &'a self,
        subject: &Subject<'a>,
    ) -> Result<Option<(&'a str, bool)>, ImageError> {
        let known = self.known(subject).map_err(|fault| fault.of(&self.image.path))?;
        let unknown = known.unknown.map(|name| (name, false));
        Ok(known.package.map(|package| (package.name, true)).or(unknown))
    }

    /// Finds a subject in the tables.
    fn known<'a>(&'a self, subject: &Subject<'a>) -> Result<Known<'a>, Fault> {
        let user = self.member(self.decoded.users, subject.identity)?;
        let domain_name = domain(subject.identity);
        let domain = match domain_name {
            Some(name) => self.member(self.decoded.domains, name)?,
            None => None,
        };
        let domain_package = match domain {
            Some(domain) if domain.package != 0 => Some(self.package_at(domain.package)?),
            _ => None,
        };
        let of = |member: Option<Member<'i>>| member.map(|one| one.package).filter(|at| *at != 0);
        let mut unknown = None;
        let package = match package(of(user).map(Ok), subject.package.map(Err), of(domain).map(Ok))
        {
            Some(Ok(at)) if of(domain) == Some(at) => domain_package,
            Some(Ok(at)) => Some(self.package_at(at)?),
            Some(Err(name)) => {
                let package = self.package_named(name)?;
                unknown = Some(name).filter(|_| package.is_none());
                package
            }
            None => None,
        };
        Ok(Known { user, domain_name, domain, domain_package, package, unknown })
    }

    fn member(&self, table: Table, name: &str) -> Result<Option<Member<'i>>, Fault> {
        let Some(found) = self.image.container.find(table, name.as_bytes())? else {
            return Ok(None);
        };
        let mut fields = Fields(found.value);
        let package = fields.u32().map_err(|what| fault_at(found.row, what))?;
        Ok(Some(Member { row: found.row, package, limits: fields.0 }))
    }

    fn package_named(&self, name: &str) -> Result<Option<Package<'i>>, Fault> {
        let Some(found) = self.image.container.find(self.decoded.packages, name.as_bytes())? else {
            return Ok(None);
        };
        let at = Fields(found.value).u32();
        self.package_at(at.map_err(|what| fault_at(found.row, what))?).map(Some)
    }

    fn package_at(&self, at: u32) -> Result<Package<'i>, Fault> {
        let mut fields = Fields(self.image.container.row(at)?);
        let name = fields.text().map_err(|what| fault_at(at, what))?;
        Ok(Package { row: at, name, limits: fields.0 })
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
