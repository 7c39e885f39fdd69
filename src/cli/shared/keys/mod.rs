//! Which records a command is about: its `KEY` arguments and the options that
//! select among their records.

mod similar;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;
use similar::Similar;

use super::complete;
use super::screen::{Tally, complain, note};
use crate::cli::Failure;
use crate::engine::RecordKey;
use crate::identity::fold::Folding;
use crate::spec::typed_period;
use crate::standing::in_force::InForce;
use crate::standing::key_text::{self, MODES};
use crate::standing::pattern::{self, Pattern, Syntax};
use crate::standing::totals::{Totals, called};
use crate::store::{Entry, Inspect, InspectError, OwnedKey, Target, Wanted};
use crate::text;

/// What `KEY` is, in each command's help.
pub(in crate::cli) const HELP: &str = "\
KEY is a login such as alice@example.org, a client's address, local:NAME for a local account, or
a glob such as '*@example.org'.";

/// What `KEY` is, in each command's manual page.
pub(in crate::cli) const MANUAL: &str = "\
KEY is the key of the spec, such as alice@example.org; an IP address in any notation; local:NAME
for a local user; or a glob, such as '*@example.org', which may match many keys. KEY is folded as
the policies in use fold identities, and so are keys while they are compared: a login can be typed
as a log shows it, and ALICE is alice. A key that `exirate list` prints can be pasted: it escapes
special characters with a backslash. --exact takes KEY byte for byte. The key of a policy, such as
auth:alice, is matched by alice too. A key may have several records, for several periods, modes or
policies: all of them match, unless --mode or --period selects one.";

/// Which command shows the keys of rates.
const LISTED: &str = "`exirate list` shows all keys";

/// Which of a key's records are meant, and how keys are read.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct Narrow {
    /// Select records of this mode
    #[arg(long, value_name = "MODE", value_parser = mode, add = complete::modes())]
    mode: Option<&'static str>,

    /// Select records with this period, such as 1h
    #[arg(long, value_name = "P", value_parser = typed_period, add = complete::periods())]
    period: Option<f64>,

    /// Take KEY byte for byte: no globs, no escapes, no folding
    #[arg(long)]
    exact: bool,
}

impl Narrow {
    /// These, for a command whose --mode and --period are more than a selection.
    ///
    /// # Errors
    /// What would be right.
    pub(in crate::cli) fn of(
        mode: Option<&str>,
        period: Option<&str>,
        exact: bool,
    ) -> Result<Self, String> {
        Ok(Self {
            mode: mode.map(self::mode).transpose()?,
            period: period.map(typed_period).transpose()?,
            exact,
        })
    }

    /// All records of a key.
    pub(in crate::cli) fn unselective(exact: bool) -> Self {
        Self { mode: None, period: None, exact }
    }

    /// Whether it selects some of a key's records.
    pub(in crate::cli) fn is_selective(&self) -> bool {
        self.mode.is_some() || self.period.is_some()
    }

    /// Whether KEY is taken byte for byte.
    pub(in crate::cli) fn is_exact(&self) -> bool {
        self.exact
    }

    /// What a KEY means as that of an override.
    ///
    /// # Errors
    /// It cannot be that of one.
    pub(in crate::cli) fn override_target(
        &self,
        argument: &OsStr,
        folding: &Folding,
    ) -> Result<Target, Failure> {
        Ok(override_target(argument, self.exact, folding)?.0)
    }

    /// As arguments, for messages and logs.
    pub(in crate::cli) fn arguments(&self) -> impl Iterator<Item = String> {
        let mode = self.mode.map(|mode| format!("--mode {mode}"));
        let period = self.period.map(|period| format!("--period {}", text::period(period)));
        let exact = self.exact.then(|| "--exact".to_owned());
        mode.into_iter().chain(period).chain(exact)
    }

    /// Whether the mode and period of this record are those selected. That of a policy
    /// has no mode.
    fn selects(&self, key: &RecordKey<'_>) -> bool {
        if !self.is_selective() {
            return true;
        }
        let mode = key_text::parts(key).map(|parts| parts.mode);
        self.mode.is_none_or(|wanted| mode == Some(wanted.as_bytes()))
            && self.period.is_none_or(|wanted| key_text::period_seconds(key) == Some(wanted))
    }
}

/// What `argument` means as the KEY of an override, and how it is shown.
///
/// # Errors
/// It cannot be the KEY of an override.
pub(in crate::cli) fn override_target(
    argument: &OsStr,
    exact: bool,
    folding: &Folding,
) -> Result<(Target, String), Failure> {
    pattern::override_target(argument.as_bytes(), exact, folding).map_err(Failure::new)
}

/// The mode in stored keys for mode `text`.
fn mode(text: &str) -> Result<&'static str, String> {
    let text = text.to_ascii_lowercase();
    let stored = if text == "per_byte" { "per_mail" } else { &*text };
    MODES.into_iter().find(|&mode| mode == stored).ok_or_else(|| {
        format!("expected one of {} or per_byte (stored under per_mail)", MODES.join(", "))
    })
}

/// The records that a command is about: all where there is no `KEY` argument.
#[derive(Debug)]
pub(in crate::cli) struct Selection {
    narrow: Narrow,
    folding: Folding,
    patterns: Vec<Pattern>,
    /// Which patterns have matched a record.
    matched: Vec<bool>,
    /// Whether any record was selected.
    any: bool,
    /// What is said of the only argument where it matches nothing, once that is known.
    sentence: Option<String>,
}

impl Selection {
    /// Parses the arguments, with the folding of the policies in use.
    ///
    /// # Errors
    /// One cannot be parsed.
    pub(in crate::cli) fn new(
        arguments: &[OsString],
        narrow: &Narrow,
        folding: &Folding,
    ) -> Result<Self, Failure> {
        let syntax = Syntax { exact: narrow.exact, folding: folding.clone() };
        let parse = |argument: &OsString| Pattern::parse(argument.as_bytes(), syntax.clone());
        let patterns: Result<Vec<Pattern>, String> = arguments.iter().map(parse).collect();
        let patterns = patterns.map_err(Failure::new)?;
        let matched = vec![false; patterns.len()];
        let (narrow, folding) = (narrow.clone(), folding.clone());
        Ok(Self { narrow, folding, patterns, matched, any: false, sentence: None })
    }

    /// Whether an argument may match more than one key: before anything is
    /// changed, the administrator should confirm.
    pub(in crate::cli) fn is_loose(&self) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(Pattern::is_loose)
    }

    /// Whether the record of this key is selected. Remembers which arguments have
    /// matched.
    pub(in crate::cli) fn contains(&mut self, key: &RecordKey<'_>) -> bool {
        if !self.narrow.selects(key) {
            return false;
        }
        let mut found = self.patterns.is_empty();
        for (pattern, matched) in self.patterns.iter().zip(&mut self.matched) {
            if pattern.matches(key) {
                *matched = true;
                found = true;
            }
        }
        self.any |= found;
        found
    }

    /// The keys of the selected records, in order, and how many shards could
    /// not be read; why has been printed.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(in crate::cli) fn keys(
        &mut self,
        store: &mut dyn Inspect,
    ) -> Result<(Vec<OwnedKey>, usize), Failure> {
        let mut keys = Vec::new();
        let mut tally = Tally::of("keys searched");
        let loose = self.is_loose();
        let identities: HashSet<Vec<u8>> =
            self.patterns.iter().flat_map(Pattern::identities).collect();
        let folding = self.folding.clone();
        let mut selects = |key: &RecordKey<'_>| {
            tally.add();
            self.contains(key)
        };
        let identities = (!loose).then_some((&identities, &folding));
        let mut wanted = Wanted { selects: &mut selects, identities };
        let mut add = |entry: Entry| keys.push(OwnedKey::from(entry.record_key()));
        let unread = store.for_each_wanted(&mut wanted, &mut add)?;
        unread.parts.iter().for_each(complain);
        keys.sort_unstable();
        Ok((keys, unread.parts.len()))
    }

    /// Whether an argument has matched nothing.
    pub(in crate::cli) fn has_missing(&self) -> bool {
        self.matched.contains(&false)
    }

    /// Whether the argument of this number has matched nothing.
    pub(in crate::cli) fn is_missing(&self, argument: usize) -> bool {
        self.matched.get(argument) == Some(&false)
    }

    /// The argument of this number is not missing, although it may match no record.
    pub(in crate::cli) fn has_found(&mut self, argument: usize) {
        if let Some(matched) = self.matched.get_mut(argument) {
            *matched = true;
        }
    }

    /// Prints each argument that has matched nothing, with what resembles it,
    /// and returns whether there was one. To be called once all records have
    /// been seen.
    ///
    /// # Errors
    /// Not all of the database can be read, so that it may be there.
    pub(in crate::cli) fn report_missing(&self, store: &mut dyn Inspect) -> Result<bool, Failure> {
        if self.patterns.is_empty() {
            let narrow: Vec<String> = self.narrow.arguments().collect();
            let missing = !self.any && !narrow.is_empty();
            if missing {
                complain(format_args!("no key matches {}", narrow.join(" ")));
            }
            return Ok(missing);
        }
        let missing = self.missing(store)?;
        missing.iter().for_each(complain);
        Ok(!missing.is_empty())
    }

    /// The key to show in place of the only argument, if that matches no record, is a misspelling
    /// or a part, and resembles one key alone; a note says so.
    ///
    /// # Errors
    /// As of [`Selection::report_missing`].
    pub(in crate::cli) fn only_similar(
        &mut self,
        store: &mut dyn Inspect,
    ) -> Result<Option<OsString>, Failure> {
        let [pattern] = &self.patterns[..] else { return Ok(None) };
        let found = self.any || self.matched.contains(&true);
        if found || self.narrow.is_selective() || self.narrow.exact || pattern.is_loose() {
            return Ok(None);
        }
        let asked = text::printable(&pattern.argument);
        let searches = self.search(store)?;
        let Some(search) = searches.first() else { return Ok(None) };
        let only = search.similar.only().map(key_text::key);
        self.sentence = Some(search.sentence(LISTED));
        let Some(shown) = only.filter(|shown| *shown != asked) else { return Ok(None) };
        note(format_args!("no key matches {asked}; showing the only similar key, {shown}"));
        Ok(Some(shown.into()))
    }

    /// That the only argument has matched nothing, in words for a key that need not be there.
    ///
    /// # Errors
    /// As of [`Selection::report_missing`].
    pub(in crate::cli) fn unseen(
        &self,
        store: &mut dyn Inspect,
    ) -> Result<Option<String>, Failure> {
        Ok(self.search(store)?.first().map(|search| {
            let similar = search.similar().map_or_else(String::new, |list| format!(" ({list})"));
            format!("{} has not been seen yet{similar}", search.shown())
        }))
    }

    /// A sentence for each argument that has matched nothing, with what resembles it.
    ///
    /// # Errors
    /// As of [`Selection::report_missing`].
    pub(in crate::cli) fn missing(&self, store: &mut dyn Inspect) -> Result<Vec<String>, Failure> {
        match (&self.sentence, &self.matched[..]) {
            (Some(sentence), [false]) => Ok(vec![sentence.clone()]),
            _ => Ok(self.search(store)?.iter().map(|search| search.sentence(LISTED)).collect()),
        }
    }

    /// As [`Selection::report_missing`], where the keys that no argument has matched are at hand;
    /// `listed` says which command shows all.
    pub(in crate::cli) fn report_missing_among<'k>(
        &self,
        others: impl Iterator<Item = RecordKey<'k>>,
        listed: &str,
    ) -> bool {
        let mut searches = self.searches();
        if searches.is_empty() {
            return false;
        }
        for key in others {
            searches.iter_mut().for_each(|search| search.see(&key, true));
        }
        searches.iter().for_each(|search| complain(search.sentence(listed)));
        true
    }

    /// A search for each argument that has matched nothing.
    fn searches(&self) -> Vec<Search<'_>> {
        self.patterns
            .iter()
            .zip(&self.matched)
            .filter(|&(_, matched)| !matched)
            .map(|(pattern, _)| Search {
                pattern,
                elsewhere: false,
                similar: Similar::to(&pattern.argument),
            })
            .collect()
    }

    /// What resembles each argument that has matched nothing.
    fn search(&self, store: &mut dyn Inspect) -> Result<Vec<Search<'_>>, Failure> {
        let mut searches = self.searches();
        if searches.is_empty() {
            return Ok(searches);
        }
        let mut unread = store.for_each(&mut |entry| {
            let selected = self.narrow.selects(&entry.record_key());
            for search in &mut searches {
                search.see(&entry.record_key(), selected);
            }
        })?;
        if let Some(error) = unread.parts.pop() {
            return Err(error.into());
        }
        Ok(searches)
    }
}

/// The search for what resembles an argument that has matched nothing.
struct Search<'a> {
    pattern: &'a Pattern,
    /// Whether it matches a record of another mode or period.
    elsewhere: bool,
    similar: Similar,
}

impl Search<'_> {
    fn see(&mut self, key: &RecordKey<'_>, selected: bool) {
        if selected {
            self.similar.add(key_text::key_of(key));
        } else {
            self.elsewhere = self.elsewhere || self.pattern.matches(key);
        }
    }

    /// The argument, as it is shown.
    fn shown(&self) -> String {
        match &*self.pattern.argument {
            b"" => "(the empty key)".to_owned(),
            argument => text::printable(argument),
        }
    }

    /// `similar: alice, alice@example.org`, if anything is.
    fn similar(&self) -> Option<String> {
        let similar: Vec<String> =
            self.similar.keys().iter().map(|key| key_text::key(key)).collect();
        (!similar.is_empty()).then(|| format!("similar: {}", similar.join(", ")))
    }

    /// `listed` says which command shows all keys.
    fn sentence(&self, listed: &str) -> String {
        let shown = self.shown();
        if self.elsewhere {
            return format!("{shown} has no record with this --mode or --period");
        }
        let advice = self.similar().unwrap_or_else(|| listed.to_owned());
        format!("no key matches {shown}; {advice}")
    }
}

/// The records of the totals that refuse what those arguments name that have no record of their
/// own, which are then not missing; a note says so.
///
/// # Errors
/// The database cannot be read.
pub(in crate::cli) fn of_missing(
    store: &mut dyn Inspect,
    in_force: &InForce,
    selection: &mut Selection,
    (arguments, narrow): (&[OsString], &Narrow),
    folding: &Folding,
) -> Result<Vec<OwnedKey>, InspectError> {
    let mut found = Vec::new();
    for (n, argument) in arguments.iter().enumerate() {
        if narrow.is_selective() || !selection.is_missing(n) {
            continue;
        }
        let Ok(target) = narrow.override_target(argument, folding) else { continue };
        let totals = Totals::refusing_target(store, in_force, &target)?;
        let names = totals.names_refusing(in_force);
        if !names.is_empty() {
            selection.has_found(n);
            let argument = text::printable(argument.as_encoded_bytes());
            let by = called(&names);
            note(format_args!("{argument} has no record of its own; it is refused by {by}"));
            found.extend(totals.keys().cloned());
        }
    }
    Ok(found)
}
