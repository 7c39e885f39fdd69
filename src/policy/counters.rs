//! Counters of what policies decide: how often each rule was checked, by mode and verdict.
//!
//! They are in the file `policy.counters` beside the image, a [`counter_file`]: the counters
//! of a rule are those of each mode, for each verdict, and its name is the policy, a line
//! feed, and the rule. `exirate policy apply` frees the slots of rules that no longer exist.
//!
//! A counter never fails a check: a file that cannot be used is not counted in, and a
//! damaged one is quarantined and replaced.

use std::path::Path;

use super::habits::HABITS;
use super::limit::{Limit, Per, window_of};
use super::word::{Unit, Verdict, Word as _};
use crate::engine::Algorithm;
use crate::spool::counter_file::{self, COUNTERS, CounterFile, CounterKind, Name, Ready, Slot};
use crate::sys::secure_dir::DirError;

/// The file.
const FILE: CounterKind = CounterKind {
    file: c"policy.counters",
    new: c"policy.counters.new",
    damaged: c"policy.counters.damaged-1",
    magic: *b"EXIRCNT1",
};

/// Enforced, and observed.
const MODES: usize = 2;
const _: () = assert!(MODES * Verdict::ALL.len() == COUNTERS);

/// How many rules a process remembers the slots of.
const KNOWN_MAX: usize = 64;

/// What is counted: one rule that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The rule: `recipients/1h`, `recipients/1h (total)`, `recipients/1h (customer)`,
    /// `recipients/bucket 1/1h`, `habits`.
    pub rule: RuleName<'a>,
    /// It could not refuse the event.
    pub observed: bool,
    /// The rule's own verdict; that of an observed one is what it would have been.
    pub verdict: Verdict,
}

impl<'a> Checked<'a> {
    /// `limit` of `policy`, which had this verdict.
    #[must_use]
    #[inline]
    pub fn new(policy: &'a str, limit: &Limit<'a>, observed: bool, verdict: Verdict) -> Self {
        let bucket = matches!(limit.algorithm, Algorithm::Bucket { .. });
        let rule = RuleName::new(limit.unit, bucket, limit.text, limit.per);
        Self { policy, rule, observed, verdict }
    }

    /// The habits of an account.
    #[must_use]
    #[inline]
    pub fn of_habits(policy: &'a str, observed: bool, verdict: Verdict) -> Self {
        Self { policy, rule: RuleName::HABITS, observed, verdict }
    }
}

/// How a rule is called: its unit and period, or the rate of a bucket. The limit is not
/// part of it, as users have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleName<'a> {
    /// What is counted; `None` for habits.
    pub unit: Option<Unit>,
    /// It is a bucket.
    pub bucket: bool,
    /// The period of a window, `daily` and the like, or the rate of a bucket, as written.
    pub window: &'a str,
    /// Who is counted together.
    pub per: Per,
}

impl<'a> RuleName<'a> {
    /// Of a limit as written: `100/1h`; of a bucket its rate, `1/1h`.
    #[must_use]
    #[inline]
    pub fn new(unit: Unit, bucket: bool, text: &'a str, per: Per) -> Self {
        Self { unit: Some(unit), bucket, window: window_of(text, bucket), per }
    }

    /// That of habits.
    pub const HABITS: Self = Self { unit: None, bucket: false, window: "", per: Per::Key };

    fn parts(&self) -> [&'a str; 4] {
        let Some(unit) = self.unit else { return [HABITS, "", "", ""] };
        let kind = if self.bucket { "/bucket " } else { "/" };
        let per = match self.per {
            Per::Key => "",
            Per::Domain => " (total)",
            Per::Customer => " (customer)",
        };
        [unit.word(), kind, self.window, per]
    }
}

impl std::fmt::Display for RuleName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts().iter().try_for_each(|part| f.write_str(part))
    }
}

/// The counters of a spool directory, to count in.
#[derive(Debug)]
pub struct Counters {
    file: CounterFile,
    /// The rules that this process counted, and their slots.
    known: Vec<RuleSlot>,
}

/// A rule and its slot.
#[derive(Debug)]
struct RuleSlot {
    policy: Box<str>,
    unit: Option<Unit>,
    bucket: bool,
    window: Box<str>,
    per: Per,
    slot: Slot,
}

impl RuleSlot {
    #[inline]
    fn is(&self, checked: &Checked<'_>) -> bool {
        let RuleName { unit, bucket, window, per } = checked.rule;
        (self.unit, self.bucket, self.per) == (unit, bucket, per)
            && *self.window == *window
            && *self.policy == *checked.policy
    }
}

impl Counters {
    /// Those of the spool directory `spool`. The file is opened, or created, when
    /// something is counted.
    #[must_use]
    pub fn new(spool: &Path) -> Self {
        Self { file: CounterFile::new(spool, &FILE), known: Vec::new() }
    }

    /// Counts a rule that was checked.
    #[inline]
    pub fn count(&mut self, checked: &Checked<'_>) {
        match self.file.ready() {
            Ready::Same => {}
            Ready::Reopened => self.known.clear(),
            Ready::No => return,
        }
        let known = self.known.iter().find(|known| known.is(checked));
        let slot = known.map(|known| known.slot).or_else(|| self.find(checked));
        let verdict = Verdict::ALL.iter().position(|verdict| *verdict == checked.verdict);
        let counter = usize::from(checked.observed) * Verdict::ALL.len() + verdict.unwrap_or(0);
        self.file.add(slot, counter);
    }

    /// The rule's slot, remembered for the next time.
    #[cold]
    fn find(&mut self, checked: &Checked<'_>) -> Option<Slot> {
        let [unit, kind, window, per] = checked.rule.parts();
        let name = Name::of(&[checked.policy, "\n", unit, kind, window, per]);
        let slot = self.file.slot(&name)?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let RuleName { unit, bucket, window, per } = checked.rule;
        let (policy, window) = (checked.policy.into(), window.into());
        self.known.push(RuleSlot { policy, unit, bucket, window, per, slot });
        Some(slot)
    }

    /// Counts an evaluation that failed.
    #[cold]
    pub fn count_error(&mut self) {
        if self.file.ready() == Ready::Reopened {
            self.known.clear();
        }
        self.file.add_error();
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By policy and rule, in this order.
    pub rules: Vec<RuleCounts>,
    /// Checks of rules for which there was no room.
    pub uncounted: u64,
    /// Evaluations that failed.
    pub errors: u64,
}

/// The counters of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// The policy.
    pub policy: String,
    /// The rule, such as `recipients/1h`.
    pub rule: String,
    /// For each verdict, in the order of [`Verdict::ALL`], where the rule was enforced.
    pub enforced: [u64; Verdict::ALL.len()],
    /// The same where it was only observed: what the verdicts would have been.
    pub observed: [u64; Verdict::ALL.len()],
}

/// Reads the counters of the spool directory `spool`. `None` if there is no file, or it is
/// damaged: the next process that counts replaces it.
///
/// # Errors
/// The directory or the file cannot be read.
pub fn read(spool: &Path) -> Result<Option<Counts>, DirError> {
    let Some(contents) = counter_file::read(spool, &FILE)? else { return Ok(None) };
    let rule_counts = |(name, counters): &(String, [u64; COUNTERS])| {
        let (policy, rule) = name.split_once('\n')?;
        let [mut enforced, mut observed] = [[0; Verdict::ALL.len()]; MODES];
        for (to, from) in enforced.iter_mut().chain(&mut observed).zip(counters) {
            *to = *from;
        }
        Some(RuleCounts { policy: policy.to_owned(), rule: rule.to_owned(), enforced, observed })
    };
    let mut rules: Vec<RuleCounts> = contents.names.iter().filter_map(rule_counts).collect();
    rules.sort_by(|a, b| (&a.policy, &a.rule).cmp(&(&b.policy, &b.rule)));
    Ok(Some(Counts { rules, uncounted: contents.uncounted, errors: contents.errors }))
}

/// Frees the slots of the rules that `is_known` does not know; returns how many. Processes
/// that count meanwhile may lose a few counts of the others.
///
/// # Errors
/// The file could not be written; the old one is still in use.
pub fn retain(spool: &Path, is_known: impl Fn(&str, &str) -> bool) -> Result<usize, DirError> {
    counter_file::retain(spool, &FILE, |name| {
        name.split_once('\n').is_some_and(|(policy, rule)| is_known(policy, rule))
    })
}

#[cfg(test)]
mod tests;
