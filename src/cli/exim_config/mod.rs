//! Exim's configuration, for what it limits by our library: `exirate rules`
//! lists it, `exirate doctor` judges it.
//!
//! [`source`] reads the files, [`acls`] finds the ACLs in use, [`calls`] the calls
//! of our functions, [`expansion`] what may become of their arguments, [`spec`]
//! what they limit, and [`lookup_file`] the files that limits are looked up in.

mod acls;
mod calls;
mod expansion;
mod lookup_file;
mod macros;
mod source;
mod spec;

use std::path::Path;
use std::rc::Rc;

pub(super) use acls::Acls;
pub(super) use calls::{Call, Form, LOOKUPS, Library};
pub(super) use lookup_file::LookupFile;
pub(super) use source::{Absent, Position, ReadError, Refused, Source};
pub(super) use spec::{Limit, SpecReport};

use expansion::Expansion;

/// One call of ours in the configuration, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) position: Position,
    /// The section, such as `acl` or `routers`.
    pub(super) section: Rc<str>,
    pub(super) acl: Option<Rc<str>>,
    /// The options that lead to it, such as `acl_smtp_rcpt`; none where nothing
    /// does. Outside of ACLs, the section.
    pub(super) used_by: Vec<String>,
    pub(super) call: Call,
    pub(super) limits: Vec<Limit>,
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// All that a configuration has to say about limits.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
    /// Exim's own `ratelimit` conditions, as written.
    pub(super) native: Vec<(Position, String)>,
    pub(super) acls: Acls,
    pub(super) source: Source,
    /// Files that the limits of calls in use are looked up in.
    pub(super) lookup_files: Vec<LookupFile>,
}

impl Rules {
    /// Reads the configuration in `file`; `predefined` are Exim's own macros.
    pub(super) fn read(
        file: &Path,
        predefined: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ReadError> {
        let source = Source::read(file, predefined)?;
        let acls = Acls::of(&source);
        let (mut rules, mut native, mut lookup_files) = (Vec::new(), Vec::new(), Vec::new());
        for line in source.lines.iter().chain(&acls.from_files) {
            if line.acl.is_some() && calls::is_native(&line.text) {
                native.push((line.position.clone(), line.text.clone()));
            }
            for call in calls::calls(&line.text) {
                let used_by = match &line.acl {
                    Some(acl) => acls.used_by(acl).to_vec(),
                    None if line.section.is_empty() => {
                        vec![line.text.split('=').next().unwrap_or_default().trim().to_owned()]
                    }
                    None => vec![line.section.to_string()],
                };
                let mut rule = Rule {
                    position: line.position.clone(),
                    section: line.section.clone(),
                    acl: line.acl.clone(),
                    used_by,
                    call,
                    limits: Vec::new(),
                    errors: Vec::new(),
                    warnings: Vec::new(),
                };
                rule.judge();
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
        Ok(Self { rules, native, acls, source, lookup_files })
    }

    /// The calls that limit something and that Exim comes to.
    pub(super) fn limiting(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.call.limits() && !rule.used_by.is_empty())
    }
}

impl Rule {
    /// Finds what is wrong with the call.
    fn judge(&mut self) {
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

    /// The key as written, where it is an argument of its own.
    pub(super) fn key(&self) -> Option<&str> {
        self.call.specs().first().and_then(|(_, key)| *key)
    }

    /// The key, wherever it is written; `None` where it is the default one.
    pub(super) fn key_text(&self) -> Option<String> {
        let specs = self.call.specs();
        let (spec, key) = specs.first()?;
        let key = key.map_or_else(|| spec::key_of(spec), str::to_owned);
        (!key.is_empty()).then_some(key)
    }
}
