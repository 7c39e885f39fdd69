//! Reads a whole image back: to show what is applied, and to check what was written.

use std::collections::BTreeMap;

use super::container::{Container, entry, fault_at};
use super::error::Fault;
use super::exempt;
use super::fields::{Fields, Stored as _, What};
use super::layout::{BUCKETS, EACH, HABITS, TOTAL, Table, unit_of};
use super::limits::{amount, numbers};
use super::{Decoded, Image, ImageError, Named, PolicyImage};
use crate::policy::model::{
    Amount, Bucket, Buckets, Exempt, HabitsSettings, Limits, Location, Member, MemberKind, Members,
    Policies, Policy, Window,
};
use crate::policy::settings::Group as _;

impl Image {
    /// Its bytes, as they were written; `None` if it is mapped.
    #[must_use]
    pub fn written(&self) -> Option<&[u8]> {
        self.container.written()
    }

    /// A copy of its bytes, as they were written.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.container.to_bytes()
    }

    /// All policies, as [`build`](super::build) got them, apart from where they are
    /// written: everything is at line 0 of the image.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn policies(&self) -> Result<Policies, ImageError> {
        let mut policies = self.outline()?;
        for (name, policy) in &mut policies.policies {
            let Some(image) = self.policy(name)? else { continue };
            for kind in MemberKind::ALL {
                let mut found: Vec<(Box<str>, Member)> = Vec::new();
                image.each_member(kind, &mut |name, member| {
                    found.push((name.into(), member));
                })?;
                *policy.members_mut(kind) = found.into();
            }
        }
        Ok(policies)
    }

    /// As [`Self::policies`], without their customers, domains and users, of which there may be a
    /// million. [`PolicyImage::find_member`] returns one of them.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn outline(&self) -> Result<Policies, ImageError> {
        let mut policies = Policies {
            files: vec![self.path().to_path_buf()],
            identity: self.identity()?.clone(),
            on_crossing: self.on_crossing()?,
            no_usage: !self.counts_usage(),
            zone: match self.container.zone {
                0 => None,
                _ => Some(self.zone()?.clone()),
            },
            policies: BTreeMap::new(),
        };
        for name in self.names() {
            let Some(policy) = self.policy(name)? else { continue };
            let read = outline(&self.container, policy.decoded);
            let read = read.map_err(|fault| fault.of(self.path()))?;
            policies.policies.insert(name.to_owned(), read);
        }
        Ok(policies)
    }
}

impl PolicyImage<'_> {
    fn table(&self, kind: MemberKind) -> Table {
        match kind {
            MemberKind::Customer => self.decoded.customers,
            MemberKind::Domain => self.decoded.domains,
            MemberKind::User => self.decoded.users,
        }
    }

    /// The customer of this name, or the domain or the user, folded.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn find_member(&self, kind: MemberKind, name: &str) -> Result<Option<Member>, ImageError> {
        let found = self.image.container.find(self.table(kind), name.as_bytes());
        let found = found.and_then(|found| {
            found.map(|found| self.read_member(kind, Fields(found.value), found.row)).transpose()
        });
        found.map_err(|fault| fault.of(&self.image.path))
    }

    /// How many customers, domains or users there are.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn members(&self, kind: MemberKind) -> Result<usize, ImageError> {
        let mut count = 0;
        let counted = each(&self.image.container, self.table(kind), |_, _, _| {
            count += 1;
            Ok(())
        });
        counted.map_err(|fault| fault.of(&self.image.path))?;
        Ok(count)
    }

    /// Calls `visit` with the name of each customer, domain or user, in no order, and what it is.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn each_member(
        &self,
        kind: MemberKind,
        visit: &mut dyn FnMut(&str, Member),
    ) -> Result<(), ImageError> {
        let visited = each(&self.image.container, self.table(kind), |name, value, row| {
            visit(name, self.read_member(kind, value, row)?);
            Ok(())
        });
        visited.map_err(|fault| fault.of(&self.image.path))
    }

    fn read_member(
        &self,
        kind: MemberKind,
        mut value: Fields<'_>,
        row: u32,
    ) -> Result<Member, Fault> {
        let damaged = |what| fault_at(row, what);
        let first = value.u32().map_err(damaged)?;
        let (package, customer, own, row) = match kind {
            MemberKind::Customer => {
                let one = self.customer_at(first)?;
                (one.package, 0, Fields(one.limits), first)
            }
            MemberKind::Domain | MemberKind::User => {
                (first, value.u32().map_err(damaged)?, value, row)
            }
        };
        let name = |at: u32, read: fn(&Self, u32) -> Result<Named<'_>, Fault>| match at {
            0 => Ok(None),
            at => read(self, at).map(|one| Some(one.name.into())),
        };
        Ok(Member {
            package: name(package, |of, at| of.package_at(at))?,
            customer: name(customer, |of, at| of.customer_at(at))?,
            limits: limits(own).map_err(|what| fault_at(row, what))?,
        })
    }
}

/// A policy without its customers, domains and users.
fn outline(container: &Container, decoded: &Decoded) -> Result<Policy, Fault> {
    let mut packages = BTreeMap::new();
    each(container, decoded.packages, |name, mut value, row| {
        let at = value.u32().map_err(|what| fault_at(row, what))?;
        let mut fields = Fields(container.row(at)?);
        let own = String::read(&mut fields).map_err(|what| fault_at(at, what))?;
        if own != name {
            return Err(fault_at(at, "a package has another name in its table"));
        }
        packages.insert(own, limits(fields).map_err(|what| fault_at(at, what))?);
        Ok(())
    })?;
    let entries = container.read(decoded.exempts.entries, Vec::<u32>::read)?;
    let exempt = entries.iter().map(|&at| exemption(container, at)).collect::<Result<_, _>>()?;
    Ok(Policy {
        at: Location::default(),
        settings: decoded.settings.clone(),
        delivery: decoded.delivery.clone(),
        default: limits(Fields(&decoded.default)).map_err(|what| fault_at(decoded.at, what))?,
        customers: Members::default(),
        domains: Members::default(),
        users: Members::default(),
        packages,
        exempt,
    })
}

/// Calls `visit` with each name in a table, its value, and the position of its row.
fn each(
    container: &Container,
    table: Table,
    mut visit: impl FnMut(&str, Fields<'_>, u32) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for index in 0..table.slots {
        let row = container.slot(table, index)?;
        if row == 0 {
            continue;
        }
        let mut entries = Fields(container.row(row)?);
        while !entries.is_empty() {
            let (name, value) = entry(&mut entries).map_err(|what| fault_at(row, what))?;
            let name = std::str::from_utf8(name);
            let name = name.map_err(|_| fault_at(row, "a text is not UTF-8"))?;
            visit(name, Fields(value), row)?;
        }
    }
    Ok(())
}

fn limits(mut row: Fields<'_>) -> Result<Limits, What> {
    let mut limits = Limits::default();
    while !row.is_empty() {
        let (kind, unit, content) = amount(&mut row)?;
        let mut content = Fields(content);
        if kind == HABITS {
            limits.habits = HabitsSettings::read(&mut content)?;
            content.end()?;
            continue;
        }
        let mut all = Vec::new();
        while !content.is_empty() {
            all.push(numbers(&mut content)?);
        }
        if kind == BUCKETS {
            let bucket = |one: &super::limits::Numbers<'_>| Bucket {
                unit: one.unit,
                burst: one.first,
                leak: one.second,
                text: one.text.to_owned(),
            };
            let buckets = all.iter().map(bucket).collect();
            limits.buckets = Some(Box::new(Buckets { at: Location::default(), buckets }));
            continue;
        }
        let window = |one: &super::limits::Numbers<'_>| Window {
            text: one.text.into(),
            every: one.every,
            limit: one.first,
            period: one.second,
        };
        let amount = Amount { at: Location::default(), windows: all.iter().map(window).collect() };
        let unit = unit_of(unit).ok_or("a unit is unknown")?;
        match kind {
            EACH => limits.each.insert(unit, amount),
            TOTAL => limits.total.insert(unit, amount),
            _ => return Err("a limit is of an unknown kind"),
        };
    }
    Ok(limits)
}

fn exemption(container: &Container, at: u32) -> Result<Exempt, Fault> {
    let (known, [who, to]) = container.read(at, |row| exempt::entry(row, 0))?;
    Ok(Exempt {
        at: Location::default(),
        matches: container.read(who, Vec::read)?,
        recipients: container.read(to, Vec::read)?,
        until: known.until,
        reason: known.reason.map(str::to_owned),
    })
}
