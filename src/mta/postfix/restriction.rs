//! The restrictions in a list of Postfix, with those of classes in the place of their names.

use std::path::Path;
use std::process::Command;

use super::asked::{Asked, CHECK};
use super::text::{inside, words};
use super::{Postfix, Service};
use crate::mta::command;

/// Classes that name one another.
const DEPTH_MAX: u32 = 8;
/// Tables that are asked what they say of anybody: others may ask other machines.
const TABLES: [&str; 9] =
    ["btree", "cdb", "cidr", "hash", "inline", "lmdb", "pcre", "regexp", "texthash"];
/// Actions of tables that decide nothing: what is behind them is evaluated.
const ACTIONS: [&str; 9] =
    ["bcc", "dunno", "filter", "hold", "info", "prepend", "redirect", "warn", "defer_if_permit"];

/// A restriction, with the word that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restriction {
    pub(super) name: String,
    argument: Option<String>,
    /// `warn_if_reject` is before it: what it refuses is only logged.
    pub(super) only_warns: bool,
    /// As the list has it: it may be what a table makes of it.
    pub(super) written: String,
}

impl Restriction {
    /// The service that it asks, if it asks one.
    pub(super) fn policy_service(&self, queue: &Path) -> Option<Asked> {
        let argument = self.argument.as_ref().filter(|_| self.name.eq_ignore_ascii_case(CHECK));
        Asked::new(argument?, queue)
    }

    /// Whether it accepts mail, or refuses all of it, so that nothing behind it counts.
    pub(super) fn ends(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.starts_with("permit")
            || !self.only_warns && matches!(&*name, "reject" | "defer" | "discard")
    }

    /// As a list has it.
    pub(super) fn text(&self) -> String {
        let warns = self.only_warns.then_some("warn_if_reject");
        let words = [warns, Some(&*self.name), self.argument.as_deref()];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Whether the word behind a restriction is what that takes.
fn takes_word(restriction: &str) -> bool {
    let name = restriction.to_ascii_lowercase();
    let lists = ["reject_rbl_", "reject_rhsbl_", "permit_dnswl_", "permit_rhswl_"];
    name.starts_with("check_") || name == "sleep" || lists.iter().any(|list| name.starts_with(list))
}

/// The restrictions of a list as it is.
pub(super) fn own(list: &str) -> Vec<Restriction> {
    let (mut found, mut only_warns) = (Vec::new(), false);
    let mut words = words(list).into_iter();
    while let Some(name) = words.next() {
        if name.eq_ignore_ascii_case("warn_if_reject") {
            only_warns = true;
            continue;
        }
        let argument = if takes_word(&name) { words.next() } else { None };
        let mut one = Restriction { name, argument, only_warns, written: String::new() };
        one.written = Restriction { only_warns: false, ..one.clone() }.text();
        found.push(one);
        only_warns = false;
    }
    found
}

/// The policy services in a list of restrictions.
pub(crate) fn policy_services(list: &[Restriction], queue: &Path) -> Vec<Asked> {
    let (mut found, mut ending) = (Vec::new(), None);
    for restriction in list {
        if let Some(asked) = restriction.policy_service(queue) {
            let only_warns = restriction.only_warns;
            found.push(Asked { ending: ending.clone(), only_warns, ..asked });
        } else if ending.is_none() && restriction.ends() {
            ending = Some(restriction.written.clone());
        }
    }
    found
}

impl Postfix {
    /// The restrictions of a list for a service or for all, with those of classes, and of tables
    /// that say the same of everybody, in the place of their names.
    pub(crate) fn restrictions(&self, service: Option<&Service>, list: &str) -> Vec<Restriction> {
        own(list).into_iter().flat_map(|one| self.within(service, one, 0)).collect()
    }

    /// What is in the place of a restriction.
    pub(super) fn within(
        &self,
        service: Option<&Service>,
        one: Restriction,
        depth: u32,
    ) -> Vec<Restriction> {
        let classes = words(&self.value(service, "smtpd_restriction_classes"));
        let list = match classes.contains(&one.name) {
            true => Some(self.value(service, &one.name)),
            false => self.said(&one),
        };
        let Some(list) = list.filter(|_| depth <= DEPTH_MAX) else { return vec![one] };
        let is_class = classes.contains(&one.name);
        let each = own(&list).into_iter().flat_map(|part| {
            let only_warns = part.only_warns || one.only_warns;
            let written = if is_class { part.written.clone() } else { one.written.clone() };
            self.within(service, Restriction { only_warns, written, ..part }, depth + 1)
        });
        each.collect()
    }

    /// What a table of `check_client_access` and its like makes of everybody, as a list of
    /// restrictions.
    fn said(&self, one: &Restriction) -> Option<String> {
        let name = one.name.to_ascii_lowercase();
        let table = one.argument.as_ref().filter(|_| name.ends_with("_access"))?;
        let (kind, text) = table.split_once(':')?;
        let result = match kind {
            // Whatever it is asked.
            "static" => inside(text).unwrap_or(text).to_owned(),
            _ if TABLES.contains(&kind) => {
                // Names that nobody has: a table that knows them knows any.
                let keys: &[&str] = match &*name {
                    _ if name.contains("client") => &["192.0.2.77", "198.51.100.7"],
                    _ if name.contains("sender") || name.contains("recipient") => {
                        &["a7f@example.net", "b3@example.com"]
                    }
                    _ => &["a7f.example.net", "b3.example.com"],
                };
                let mut said = keys.iter().map(|key| self.postmap(key, table));
                let first = said.next()??;
                said.all(|one| one.as_ref() == Some(&first)).then_some(first)?
            }
            _ => return None,
        };
        let action = result.split_whitespace().next()?.to_ascii_lowercase();
        let is_code = action.starts_with(['4', '5']) && action.len() >= 3;
        Some(match &*action {
            _ if is_code || action.contains('.') => "reject".to_owned(),
            "reject" | "defer" | "discard" => action,
            "ok" => "permit".to_owned(),
            _ if action.bytes().all(|byte| byte.is_ascii_digit()) => "permit".to_owned(),
            _ if ACTIONS.contains(&&*action) => return None,
            _ => result,
        })
    }

    /// What Postfix finds in a table.
    fn postmap(&self, key: &str, table: &str) -> Option<String> {
        let mut command = Command::new(self.postmap.as_ref()?);
        command.args(["-q", key, table]);
        let output = command::run(command).ok().filter(|output| output.success)?;
        output.stdout.lines().next().map(str::to_owned)
    }
}
