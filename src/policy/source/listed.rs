//! The names in the tables of a policy: what users and domains are called, which are listed, and
//! which packages and customers must exist.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::super::fold::Folding;
use super::super::model::{
    Identity, Limits, Location, Member, MemberKind, Members, PolicySettings,
};
use super::super::word::{Field, State};
use super::amount;
use crate::toml_file::diagnostic::{place, similar};
use crate::toml_file::reader::Reader;

/// The packages, or the customers, that other tables name, and where; they must exist.
#[derive(Default)]
pub(super) struct Names(BTreeMap<Arc<str>, Vec<Location>>);

impl Names {
    /// Adds a place; returns the name, which all places share.
    pub(super) fn add(&mut self, name: &str, at: Location) -> Arc<str> {
        let known = self.0.get_key_value(name).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| name.into());
        self.0.entry(Arc::clone(&name)).or_default().push(at);
        name
    }

    /// Checks that they are among these packages or customers (`what`), which are in order.
    pub(super) fn check(self, reader: &mut Reader<'_>, what: &str, known: &[&str]) {
        for (name, places) in self.0 {
            if known.binary_search(&&*name).is_ok() {
                continue;
            }
            let instead = match similar(&name, known.iter().copied()) {
                Some(known) => format!("did you mean {known:?}?"),
                None if known.is_empty() => format!("this policy has no {what}s"),
                None => {
                    let first: Vec<&str> = known.iter().copied().take(20).collect();
                    format!("its {what}s: {}", first.join(", "))
                }
            };
            for at in places {
                reader.diagnostics.error(at, format!("unknown {what} {name:?}; {instead}"));
            }
        }
    }
}

/// The domains or users that were read so far.
#[derive(Default)]
pub(super) struct Listed {
    all: Vec<(Box<str>, Member)>,
    /// By the hash of its name, where each is.
    places: HashMap<u64, usize>,
    /// Where customers list those that are listed for themselves as well.
    assigned: HashMap<usize, Location>,
    hasher: RandomState,
}

impl Listed {
    /// Adds a user or a domain, once, under each of its names.
    pub(super) fn add(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        text: &str,
        (folded, written): (String, Option<String>),
        member: Member,
    ) {
        if let Some(written) = written.filter(|_| self.find(&folded).1.is_none()) {
            self.add_one(reader, what, text, written, member.clone());
        }
        self.add_one(reader, what, text, folded, member);
    }

    fn add_one(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        written: &str,
        folded: String,
        member: Member,
    ) {
        let (hash, known) = self.find(&folded);
        if let Some((_, first)) = known.and_then(|at| self.all.get(at)) {
            let place = place(&reader.diagnostics.files, first.limits.at);
            let called = called(what, written, &folded);
            let message = format!("{called} is listed twice; first at {place}");
            reader.diagnostics.error(member.limits.at, message);
            return;
        }
        self.places.insert(hash, self.all.len());
        self.all.push((folded.into(), member));
    }

    /// Makes one that a customer lists at `at` its own, under each of its names. None is of two
    /// customers.
    pub(super) fn assign(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        text: &str,
        (folded, written): (String, Option<String>),
        customer: &Arc<str>,
        at: Location,
    ) {
        if self.assign_one(reader, what, text, folded, customer, at)
            && let Some(written) = written
        {
            self.assign_one(reader, what, text, written, customer, at);
        }
    }

    /// Whether it could.
    fn assign_one(
        &mut self,
        reader: &mut Reader<'_>,
        what: &str,
        written: &str,
        folded: String,
        customer: &Arc<str>,
        at: Location,
    ) -> bool {
        let (hash, known) = self.find(&folded);
        let Some((index, (_, member))) =
            known.and_then(|index| self.all.get_mut(index).map(|one| (index, one)))
        else {
            self.places.insert(hash, self.all.len());
            let limits = Limits { at, ..Limits::default() };
            let member = Member { customer: Some(Arc::clone(customer)), limits, package: None };
            self.all.push((folded.into(), member));
            return true;
        };
        if let Some(first) = &member.customer {
            let first_at = self.assigned.get(&index).copied().unwrap_or(member.limits.at);
            let place = place(&reader.diagnostics.files, first_at);
            let called = called(what, written, &folded);
            let message = if first == customer {
                format!("{called} is listed twice; first at {place}")
            } else {
                format!(
                    "{called} is of two customers, {first:?} and {customer:?}; first at {place}"
                )
            };
            reader.diagnostics.error(at, message);
            return false;
        }
        member.customer = Some(Arc::clone(customer));
        self.assigned.insert(index, at);
        true
    }

    /// The hash of a name, and where it is in `all`.
    fn find(&self, name: &str) -> (u64, Option<usize>) {
        let hash = self.hasher.hash_one(name);
        let at = self.places.get(&hash).copied();
        (hash, at.filter(|at| self.all.get(*at).is_some_and(|(known, _)| **known == *name)))
    }

    pub(super) fn into_members(self) -> Members {
        self.all.into()
    }
}

/// A user or a domain, as it is written and as it is folded.
fn called(what: &str, written: &str, folded: &str) -> String {
    match written == folded {
        true => format!("{what} {written:?}"),
        false => format!("{what} {written:?}, folded to {folded:?},"),
    }
}

/// A domain that a table or a customer names; else why it is none.
fn domain(text: &str) -> Result<String, String> {
    match amount::domain(text) {
        Ok(pattern) if !pattern.below => Ok(pattern.domain),
        Ok(_) => Err(format!("{text:?} stands for many domains; a table is for one")),
        Err(_) => {
            Err(format!("{text:?} is not a domain; expected such as \"example.org\" in quotes"))
        }
    }
}

/// How the names of users are searched for.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    pub(super) folding: &'a Folding,
    /// Whether also as they are written: what no login is, such as a local account, is not folded.
    pub(super) as_written: bool,
}

impl<'a> Naming<'a> {
    /// That of a policy with these settings.
    pub(super) fn of(identity: &'a Identity, settings: &PolicySettings) -> Self {
        let is_folded = |field: &Field| {
            matches!(field, Field::Auth | Field::Sender | Field::Recipient) || field.is_of_client()
        };
        let as_written = match settings.key.first() {
            Some(field) => !is_folded(field),
            // What comes after a login is not reached where there always is one.
            None if settings.requires(State::Authenticated) => {
                !identity.chain.iter().take_while(|field| **field != Field::Auth).all(is_folded)
            }
            None => !identity.chain.iter().all(is_folded),
        };
        Self { folding: &identity.folding, as_written }
    }

    /// A user that a table or a customer names: folded, and as written where that is searched for
    /// as well; else why it is none.
    pub(super) fn user(self, text: &str) -> Result<(String, Option<String>), String> {
        let none = || format!("{text:?} is not a user: nothing is left of it after folding");
        let folded = self.folding.identity(text).ok_or_else(none)?;
        Ok((folded.clone(), self.written(text, &folded)))
    }

    /// The names of a user, or else of a domain: see [`Naming::user`].
    pub(super) fn member(
        self,
        kind: MemberKind,
        text: &str,
    ) -> Result<(String, Option<String>), String> {
        match kind {
            MemberKind::User => self.user(text),
            _ => domain(text).map(|name| (name, None)),
        }
    }

    /// `text` as it is written, if what is not folded may be called so.
    pub(super) fn written(self, text: &str, folded: &str) -> Option<String> {
        let written = text.trim();
        // A script may have any character in its path.
        let is_login = written.contains('@') && !written.starts_with('/');
        let found = self.as_written && !is_login && written != folded;
        (found && amount::network(written).is_err()).then(|| written.to_owned())
    }
}
