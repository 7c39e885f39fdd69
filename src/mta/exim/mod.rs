//! Exim's configuration, for what it limits by our library: `exirate rules`
//! lists it, `exirate doctor` judges it.
//!
//! [`source`] finds where in the files the lines are that Exim reads, [`acls`] finds the ACLs in use, [`order`] what ends them
//! before a line, [`calls`] the calls of our functions, [`expansion`] what may become of
//! their arguments, [`spec`] what they limit, and [`lookup_file`] the files that limits are
//! looked up in.

mod acls;
mod calls;
mod counting;
pub(crate) mod debian;
mod dry;
mod expansion;
mod list;
mod lookup_file;
mod macros;
mod order;
mod own_files;
mod program;
mod references;
mod source;
mod spec;

use std::path::Path;
use std::rc::Rc;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

pub(crate) use acls::Acls;
pub(crate) use calls::{Call, Form, LOOKUPS, Library};
pub(crate) use dry::Dry;
pub(crate) use list::items;
pub(crate) use lookup_file::LookupFile;
pub(crate) use order::Ending;
pub(crate) use own_files::names_our_file;
pub(crate) use program::{
    Exim, EximSettings, RulesError, Version, find, installed, usual_configuration,
};
pub(crate) use source::{Absent, Position, ReadError, Refused, Source};
pub(crate) use spec::{Limit, SpecReport};

use expansion::{Expansion, UNKNOWN};
use order::{Mail, ends_before};

/// One call of ours in the configuration, and what is known of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Rule {
    #[serde(flatten)]
    pub(crate) position: Position,
    /// The section, such as `acl` or `routers`.
    #[serde(serialize_with = "section")]
    pub(crate) section: Rc<str>,
    /// Null outside of ACLs.
    #[serde(serialize_with = "name")]
    pub(crate) acl: Option<Rc<str>>,
    /// The options that lead to it, such as `acl_smtp_rcpt`; none where nothing
    /// does. Outside of ACLs, the section.
    pub(crate) used_by: Vec<String>,
    /// The options that lead to it if a name of an ACL is the one that only Exim knows.
    pub(crate) perhaps_used_by: Vec<String>,
    /// The statement above that ends the ACL for all mail that it limits.
    #[serde(skip)]
    pub(crate) ending: Option<Ending>,
    /// That which ends it for all mail of authenticated users.
    #[serde(skip)]
    pub(crate) ending_of_users: Option<Ending>,
    #[serde(flatten)]
    #[schemars(with = "calls::CallJson<'static>")]
    pub(crate) call: Call,
    pub(crate) limits: Vec<Limit>,
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// Whether mail comes to it cannot be known: by what was read here it does, and no dry
    /// session came to it, or the other way round.
    #[serde(skip)]
    pub(crate) is_doubtful: bool,
}

fn section<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if name.is_empty() { "main" } else { name })
}

fn name<S: Serializer>(name: &Option<Rc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_deref().serialize(serializer)
}

/// All that a configuration has to say about limits.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) rules: Vec<Rule>,
    /// Exim's own `ratelimit` conditions, as written.
    pub(crate) native: Vec<(Position, String)>,
    pub(crate) acls: Acls,
    pub(crate) source: Source,
    /// Files that the limits of calls in use are looked up in.
    pub(crate) lookup_files: Vec<LookupFile>,
    /// What dry sessions showed, where there were any.
    pub(crate) dry: Option<Dry>,
}

impl Rules {
    /// Reads the configuration in `file`; `predefined` are Exim's own macros, `printed` is what
    /// `exim -bP config` prints.
    pub(crate) fn read(
        file: &Path,
        predefined: impl IntoIterator<Item = (String, String)>,
        printed: Option<&str>,
    ) -> Result<Self, ReadError> {
        let source = Source::read(file, predefined, printed)?;
        let acls = Acls::of(&source);
        let (mut rules, mut native, mut lookup_files) = (Vec::new(), Vec::new(), Vec::new());
        for line in source.lines.iter().chain(&acls.from_files) {
            let is_read = |acl: &Rc<str>| {
                !acls.used_by(acl).is_empty() || !acls.perhaps_used_by(acl).is_empty()
            };
            if line.acl.as_ref().is_some_and(is_read) && calls::is_native(&line.text) {
                native.push((line.position.clone(), line.text.replace(UNKNOWN, "?")));
            }
            // Exim expands the value of an option before it takes it as an ACL: its calls are
            // those of the option.
            let own = if acls::is_inline(line) { Vec::new() } else { calls::calls(&line.text) };
            for call in own {
                let used_by = match &line.acl {
                    Some(acl) => acls.used_by(acl).to_vec(),
                    None if line.section.is_empty() => {
                        vec![line.text.split('=').next().unwrap_or_default().trim().to_owned()]
                    }
                    None => vec![line.section.to_string()],
                };
                let perhaps = line.acl.as_ref().map(|acl| acls.perhaps_used_by(acl).to_vec());
                let ending = |mail| ends_before(&acls, &source, line, mail);
                let mut rule = Rule {
                    position: line.position.clone(),
                    section: line.section.clone(),
                    acl: line.acl.clone(),
                    used_by,
                    perhaps_used_by: perhaps.unwrap_or_default(),
                    ending: ending(if call.is_of_users() {
                        Mail::Authenticated
                    } else {
                        Mail::All
                    }),
                    ending_of_users: ending(Mail::Authenticated),
                    call,
                    limits: Vec::new(),
                    errors: Vec::new(),
                    warnings: Vec::new(),
                    is_doubtful: false,
                };
                rule.judge();
                rule.errors.extend(no_condition(&line.text).filter(|_| rule.is_used()));
                for (spec, _) in rule.call.specs() {
                    for file in Expansion::of(spec).lookup_files() {
                        if !lookup_files.contains(&file) {
                            lookup_files.push(file);
                        }
                    }
                }
                rules.push(rule);
            }
        }
        Ok(Self { rules, native, acls, source, lookup_files, dry: None })
    }

    /// Tries what was read in dry sessions of Exim, and keeps what it shows.
    pub(crate) fn try_dry(&mut self, exim: &Exim) {
        let Some(dry) = exim.dry(self) else { return };
        for number in 0..self.rules.len() {
            let comes = dry.comes_to(self, number);
            if let Some(rule) = self.rules.get_mut(number) {
                rule.is_doubtful =
                    rule.is_used() && comes.is_some_and(|comes| comes != rule.is_reached());
                if comes == Some(true) && rule.ending.take().is_some() {
                    rule.errors.retain(|error| !error.contains(UNREACHED));
                }
            }
        }
        self.dry = Some(dry);
    }

    /// What Exim says in dry sessions of ACLs that it does not understand, where it was not found
    /// by reading them.
    pub(crate) fn dry_errors(&self) -> impl Iterator<Item = &str> {
        let is_known = |error: &&str| {
            let names = self.acls.unknown.iter();
            names.into_iter().any(|(_, name)| error.contains(name.trim()))
        };
        let errors = self.dry.iter().flat_map(|dry| &dry.errors).map(String::as_str);
        errors.filter(move |error| !is_known(error))
    }

    /// Whether a router asks about recipients.
    pub(crate) fn ask_at_delivery(&self) -> bool {
        self.rules.iter().any(|rule| rule.call.is_at_delivery())
    }

    /// The calls that limit something and that Exim comes to, or may come to.
    pub(crate) fn limiting(&self) -> impl Iterator<Item = &Rule> {
        let is_read =
            |rule: &&Rule| !rule.acl.as_deref().is_some_and(|acl| self.acls.is_foreign(acl));
        self.rules.iter().filter(|rule| rule.call.limits() && rule.is_reached()).filter(is_read)
    }
}

impl Rule {
    /// Whether an option leads to it, or may lead to it.
    pub(crate) fn is_used(&self) -> bool {
        !self.used_by.is_empty() || !self.perhaps_used_by.is_empty()
    }

    /// Whether mail that it limits comes to it.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_used() && self.ending.is_none()
    }

    /// The policies that it calls: `None` for all of them, and where only Exim knows which.
    pub(crate) fn policies(&self) -> Option<Vec<String>> {
        let names = self.call.policies()?;
        let outcomes = Expansion::of(names).outcomes();
        let known = outcomes.iter().map(|one| one.text.trim()).filter(|name| *name != "*");
        let known: Vec<&str> = known.filter(|name| !name.contains(UNKNOWN)).collect();
        let whole = known.len() == outcomes.len();
        let each = known.iter().flat_map(|names| names.split(','));
        whole.then(|| each.map(|name| name.trim().to_owned()).collect())
    }

    /// Finds what is wrong with the call.
    fn judge(&mut self) {
        let decides = self.call.limits() || self.call.function == "record";
        if let (true, Some(Ending { position, text, except })) =
            (decides && self.is_used(), &self.ending)
        {
            let who =
                if self.call.is_of_users() { "mail of an authenticated user" } else { "mail" };
            let but = except.map_or(String::new(), |whom| format!(", but that of {whom}"));
            self.errors.push(format!(
                "no {who} {UNREACHED}{but}: `{text}` ({position}) ends the ACL before; move \
                 the line, or the .include of its file, above that statement"
            ));
        }
        if let Some(fault) = self.call.fault() {
            self.errors.push(fault);
            return;
        }
        for (spec, key) in self.call.specs() {
            let report = SpecReport::of(spec, key);
            self.limits.extend(report.limits);
            let quoted = |text: String| format!("in {spec:?}: {text}");
            self.errors.extend(report.errors.into_iter().map(quoted));
            self.warnings.extend(report.warnings.into_iter().map(quoted));
        }
        self.warnings.dedup();
    }

    /// The key, wherever it is written; `None` where it is the default one.
    pub(crate) fn key_text(&self) -> Option<String> {
        let specs = self.call.specs();
        let (spec, key) = specs.first()?;
        let key = key.map_or_else(|| spec::key_of(spec), str::to_owned);
        (!key.is_empty()).then_some(key)
    }
}

/// What is said of a line that no mail comes to.
const UNREACHED: &str = "reaches this line";

/// What is wrong with the value of a `condition` with a call of ours in it: nothing that the call
/// may return makes a value of it that Exim takes.
fn no_condition(line: &str) -> Option<String> {
    let (_, condition) = calls::verb(line);
    let value = condition.trim_start_matches(['!', ' ', '\t']).strip_prefix("condition")?;
    let value = value.trim_start().strip_prefix('=')?.trim();
    let outcomes = Expansion::of(value).outcomes();
    let holds = |text: &str| order::truth(&text.replace(UNKNOWN, "yes")).is_some();
    let is_wrong = !outcomes.iter().any(|outcome| holds(&outcome.text));
    is_wrong.then(|| {
        let why = match value {
            _ if value.starts_with('"') => "takes the quotes for a part of it: write it without",
            _ if value.contains(" #") => {
                "has no comments behind a value: give the comment a line of its own"
            }
            _ => "takes yes, no, true, false, a number or nothing",
        };
        format!("Exim answers 451 here, as this is not the value of a condition: Exim {why}")
    })
}

#[cfg(test)]
mod reach_tests;
