//! Which keys are meant: what the administrator writes for `KEY`.
//!
//! An argument is held against every record. The first of these readings that
//! fits any record is the one that is meant:
//!
//! 1. the key, or the whole stored key (`1h/per_rcpt/alice`), byte for byte;
//! 2. the same, with the escapes that `exirate list` prints;
//! 3. an IP address, in whatever notation, also in brackets; `<a@example.org>`;
//! 4. a glob over the key, or over the whole stored key;
//! 5. the key, the stored key or the glob in any case of letters: this is said.

mod near;
mod reading;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;

use super::screen::{Tally, complain, note};
use super::{Failure, text};
use crate::spec::StoredKey;
use crate::spool::Spool;
use near::Near;
use reading::{Pattern, Reading};

/// How `KEY` is explained in each command's help.
pub(super) const HELP: &str = "\
KEY is what the check was for, such as alice@example.org, 192.0.2.7 or
2001:db8::1, as one likes to write it; a glob, such as '*@example.org'; or a key
as `exirate list` prints it. One key may have several records, for several
lines, modes or periods: all of them are meant, unless --mode or --period
say which.";

/// Which of a key's records are meant.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Narrow {
    /// Only records of this mode
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<&'static str>,

    /// Only records with this period, such as 1h
    #[arg(long, value_name = "P", value_parser = period)]
    period: Option<f64>,
}

impl Narrow {
    /// Those of this mode and period, each as an argument has it.
    ///
    /// # Errors
    /// What would be right.
    pub(super) fn of(mode: Option<&str>, period: Option<&str>) -> Result<Self, String> {
        Ok(Self {
            mode: mode.map(self::mode).transpose()?,
            period: period.map(self::period).transpose()?,
        })
    }

    /// As arguments, for a log; a period is in seconds.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        let mode = self.mode.map(|mode| format!("--mode {mode}"));
        let period = self.period.map(|period| format!("--period {period}"));
        mode.into_iter().chain(period)
    }

    /// Whether the record of this stored key is among them.
    pub(super) fn allows(&self, stored: &[u8]) -> bool {
        let filed = StoredKey::parse(stored);
        self.mode.is_none_or(|mode| filed.is_some_and(|filed| filed.mode == mode.as_bytes()))
            && self
                .period
                .is_none_or(|period| filed.and_then(|filed| filed.period_seconds()) == Some(period))
    }
}

/// The modes that keys are filed under.
const MODES: [&str; 5] = ["per_mail", "per_rcpt", "per_addr", "per_conn", "per_cmd"];

/// The mode that records of mode `text` are filed under.
fn mode(text: &str) -> Result<&'static str, String> {
    let text = text.to_ascii_lowercase();
    let filed_under = if text == "per_byte" { "per_mail" } else { &*text };
    MODES.into_iter().find(|&mode| mode == filed_under).ok_or_else(|| {
        format!("it takes one of {} or per_byte (which is filed under per_mail)", MODES.join(", "))
    })
}

/// A period in seconds, as a key or a spec has it.
pub(super) fn period(text: &str) -> Result<f64, String> {
    // As that of a stored key, so that both are read alike.
    let stored = format!("{text}/per_mail/");
    let filed = StoredKey::parse(stored.as_bytes()).filter(|_| !text.contains('/'));
    filed
        .and_then(|filed| filed.period_seconds())
        .ok_or_else(|| "it takes a period, such as 1h, 30m, 1d12h or 3600".to_owned())
}

/// The records that were asked for.
#[derive(Debug)]
pub(super) struct Choice {
    narrow: Narrow,
    /// What each argument means; empty where all keys are meant.
    meanings: Vec<(Pattern, Reading)>,
    /// Stored keys, where they were to be kept: in order, each once.
    pub(super) keys: Vec<Vec<u8>>,
    /// Whether an argument means no record. It has been told.
    pub(super) missing: bool,
    /// Whether an argument was read as a glob, or in another case of letters:
    /// before anything is changed it should be asked whether that was meant.
    pub(super) loose: bool,
    /// How many shards could not be read, where keys were to be kept: so not all
    /// that are meant may be among them. It has been told why.
    pub(super) unread: usize,
    every: bool,
}

impl Choice {
    /// Finds out which records `arguments` mean, and says on standard error
    /// which mean none and how others were read. Without arguments, all
    /// records are meant. The stored keys are kept if `keep`; otherwise this
    /// takes no memory for each record, and [`Choice::contains`] tells.
    ///
    /// # Errors
    /// The database cannot be read, or not all of it and something was not
    /// found in the rest; or an argument can mean nothing.
    pub(super) fn of(
        spool: &mut Spool,
        arguments: &[OsString],
        narrow: &Narrow,
        keep: bool,
    ) -> Result<Self, Failure> {
        let mut choice = Self {
            narrow: narrow.clone(),
            meanings: Vec::new(),
            keys: Vec::new(),
            missing: false,
            loose: false,
            unread: 0,
            every: arguments.is_empty(),
        };
        if choice.every && !keep {
            return Ok(choice);
        }
        let mut searches: Vec<Search> =
            arguments.iter().map(|argument| Search::new(argument.as_bytes())).collect();
        let mut tally = Tally::of("keys searched");
        let mut unread = spool.for_each(|entry| {
            tally.add();
            let allowed = narrow.allows(&entry.key);
            for search in &mut searches {
                search.see(&entry.key, allowed, keep);
            }
            if choice.every && allowed {
                choice.keys.push(entry.key);
            }
        })?;
        drop(tally);
        for search in searches {
            match search.best {
                Some(reading) => choice.add(search, reading),
                None => {
                    if let Some(error) = unread.shards.pop() {
                        return Err(error.into());
                    }
                    search.complain();
                    choice.missing = true;
                }
            }
        }
        if keep {
            // Who keeps none looks through all once more, and tells it then.
            unread.shards.iter().for_each(complain);
            choice.unread = unread.shards.len();
        }
        choice.keys.sort_unstable();
        choice.keys.dedup();
        Ok(choice)
    }

    fn add(&mut self, search: Search, reading: Reading) {
        if reading.ignores_case() {
            let shown = text::printable(&search.pattern.argument);
            note(format_args!("{shown} is there only in another case of letters"));
        }
        self.loose |= reading.is_loose();
        self.keys.extend(search.keys);
        self.meanings.push((search.pattern, reading));
    }

    /// Whether the record of this stored key is meant.
    pub(super) fn contains(&self, stored: &[u8]) -> bool {
        let meant = |(pattern, reading): &(Pattern, Reading)| pattern.fits(*reading, stored);
        self.narrow.allows(stored) && (self.every || self.meanings.iter().any(meant))
    }
}

/// The search for what one argument means.
struct Search {
    pattern: Pattern,
    /// The first reading that has fitted a record.
    best: Option<Reading>,
    /// The stored keys that it fits.
    keys: Vec<Vec<u8>>,
    /// Whether it fits a record that is not of the mode and period wanted.
    other: bool,
    near: Near,
}

impl Search {
    fn new(argument: &[u8]) -> Self {
        let pattern = Pattern::new(argument);
        Self { near: Near::to(argument), pattern, best: None, keys: Vec::new(), other: false }
    }

    fn see(&mut self, stored: &[u8], allowed: bool, keep: bool) {
        if !allowed {
            self.other = self.other || self.pattern.reading(stored, None).is_some();
            return;
        }
        let Some(reading) = self.pattern.reading(stored, self.best) else {
            if self.best.is_none() {
                self.near.see(stored);
            }
            return;
        };
        if self.best != Some(reading) {
            self.best = Some(reading);
            self.keys.clear();
        }
        if keep {
            self.keys.push(stored.to_vec());
        }
    }

    /// Says that there is no such key, and what there is instead.
    fn complain(&self) {
        let shown = text::key(&self.pattern.argument);
        if self.other {
            complain(format_args!("{shown} is remembered, but not with this --mode or --period"));
            return;
        }
        let wrong = self.pattern.wrong_glob();
        let wrong = wrong.map_or_else(String::new, |why| format!(" (as a glob: {why})"));
        let near: Vec<String> = self.near.keys().iter().map(|key| text::printable(key)).collect();
        let advice = if near.is_empty() {
            "`exirate list` shows all keys".to_owned()
        } else {
            format!("there is {}", near.join(", "))
        };
        complain(format_args!("no key {shown} is remembered{wrong}; {advice}"));
    }
}
