//! `exirate simulate --against`: what only one of two policy files refuses.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Outcome};
use crate::history::simulate::{Attempt, Decided, SimulateError, Simulation};
use crate::rate::Timestamp;
use crate::text::{counted_or_no, utc};
use crate::text::{iso_exact, printable};

/// So many keys are remembered; the refusals of further ones are only counted.
const KEYS_MAX: usize = 500_000;

/// How many attempts each of the two files refuses, as they are written in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct RefusalCounts {
    only_policy: u64,
    only_against: u64,
    both: u64,
}

/// A key, and what the two files make of its attempts.
#[derive(Debug, Default, Serialize)]
struct KeyComparison {
    key: String,
    #[serde(flatten)]
    counts: RefusalCounts,
    /// When only one of them refused first.
    #[serde(serialize_with = "iso")]
    first: Option<Timestamp>,
    /// The limit by which the policy refused first.
    limit: Option<String>,
    limit_against: Option<String>,
}

fn iso<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(iso_exact).serialize(serializer)
}

/// Compares what two policy files refuse.
pub(super) struct Comparison<'a> {
    names: [&'a Path; 2],
    decided: u64,
    counts: RefusalCounts,
    /// Keys of which only one file refuses an attempt.
    rows: HashMap<String, KeyComparison>,
    /// Attempts that no row is of.
    omitted: u64,
}

/// A refusal: who was counted, and by which limit.
struct RefusedBy {
    key: String,
    limit: String,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(policy: &'a Path, against: &'a Path) -> Self {
        Self {
            names: [policy, against],
            decided: 0,
            counts: RefusalCounts::default(),
            rows: HashMap::new(),
            omitted: 0,
        }
    }

    /// How many refused attempts are in no row, as there are too many keys.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Decides an attempt by both.
    pub(super) fn decide(
        &mut self,
        policy: &mut Simulation<'_>,
        against: &mut Simulation<'_>,
        attempt: &Attempt,
    ) -> Result<(), SimulateError> {
        let (one, is_decided) = refused(policy, attempt)?;
        let (other, is_decided_too) = refused(against, attempt)?;
        self.decided += u64::from(is_decided || is_decided_too);
        let key = match (&one, &other) {
            (Some(by), _) | (None, Some(by)) => by.key.clone(),
            (None, None) => return Ok(()),
        };
        self.counts.add(one.is_some(), other.is_some());
        if self.rows.len() >= KEYS_MAX && !self.rows.contains_key(&key) {
            self.omitted += 1;
            return Ok(());
        }
        let row = self
            .rows
            .entry(key)
            .or_insert_with_key(|key| KeyComparison { key: key.clone(), ..Default::default() });
        row.counts.add(one.is_some(), other.is_some());
        if one.is_some() != other.is_some() {
            row.first.get_or_insert(attempt.at);
        }
        row.limit = row.limit.take().or(one.map(|by| by.limit));
        row.limit_against = row.limit_against.take().or(other.map(|by| by.limit));
        Ok(())
    }

    /// Prints the keys of which only one file refuses an attempt, the most first.
    pub(super) fn print(
        self,
        screen: &mut Screen<'_>,
        top: Option<usize>,
        json: bool,
        notes: Vec<String>,
    ) -> Result<Outcome, Failure> {
        let outcome = Outcome::found_if(self.counts.differ() > 0);
        let rows = self.rows.into_values().filter(|row| row.counts.differ() > 0);
        let mut rows: Vec<KeyComparison> = rows.collect();
        let by = |row: &KeyComparison| std::cmp::Reverse(row.counts.differ());
        rows.sort_by(|a, b| by(a).cmp(&by(b)).then_with(|| a.key.cmp(&b.key)));
        let keys = rows.len();
        let hit =
            |of: fn(&RefusalCounts) -> u64| rows.iter().filter(|row| of(&row.counts) > 0).count();
        let keys_of = [hit(|counts| counts.only_policy), hit(|counts| counts.only_against)];
        rows.truncate(top.unwrap_or(usize::MAX));
        if json {
            let [policy, against] = self.names.map(|name| name.display().to_string());
            let [keys_only_policy, keys_only_against] = keys_of;
            screen.json(&ComparisonJson {
                policy,
                against,
                decided: self.decided,
                counts: self.counts,
                keys_only_policy,
                keys_only_against,
                verdict: self.counts.verdict(),
                keys: rows,
                notes,
            })?;
            return Ok(outcome);
        }
        if !rows.is_empty() {
            table(screen, &rows)?;
            writeln!(screen)?;
        }
        if keys > rows.len() {
            writeln!(screen, "{} more keys (--top)", keys - rows.len())?;
        }
        let [policy, against] =
            self.names.map(|name| printable(name.as_os_str().as_encoded_bytes()));
        let RefusalCounts { only_policy, only_against, both } = self.counts;
        let refuses = |attempts: u64, keys: usize| match attempts {
            0 => "nothing".to_owned(),
            _ => format!(
                "{} of {}",
                counted_or_no(attempts, "attempt", "attempts"),
                counted_or_no(keys, "key", "keys")
            ),
        };
        let [of_policy, of_against] = keys_of;
        let (one, other) = (refuses(only_policy, of_policy), refuses(only_against, of_against));
        writeln!(screen, "{policy} refuses {one} that {against} accepts")?;
        writeln!(screen, "{against} refuses {other} that {policy} accepts")?;
        let verdict = match self.counts.verdict() {
            "stricter" => format!("{policy} is the stricter one"),
            "milder" => format!("{policy} is the milder one"),
            "same" => "both refuse the same attempts".to_owned(),
            _ => "neither is the stricter one".to_owned(),
        };
        writeln!(
            screen,
            "Both refuse {both} of {}; for this log, {verdict}.",
            counted_or_no(self.decided, "attempt", "attempts")
        )?;
        Ok(outcome)
    }
}

impl RefusalCounts {
    /// Adds an attempt that at least one of the files refuses.
    fn add(&mut self, policy: bool, against: bool) {
        match (policy, against) {
            (true, true) => self.both += 1,
            (true, false) => self.only_policy += 1,
            (false, _) => self.only_against += 1,
        }
    }

    fn differ(&self) -> u64 {
        self.only_policy + self.only_against
    }

    /// What the policy is, compared with the other.
    fn verdict(&self) -> &'static str {
        match (self.only_policy, self.only_against) {
            (0, 0) => "same",
            (_, 0) => "stricter",
            (0, _) => "milder",
            _ => "different",
        }
    }
}

/// Who refused an attempt, if it was, and whether it was decided.
fn refused(
    simulation: &mut Simulation<'_>,
    attempt: &Attempt,
) -> Result<(Option<RefusedBy>, bool), SimulateError> {
    let (mut by, mut is_decided) = (None, false);
    simulation.decide(attempt, &mut |decided: &Decided<'_>| {
        if decided.retry > 0 {
            return;
        }
        is_decided = true;
        if !decided.is_refused() || by.is_some() {
            return;
        }
        let policy = decided.decisions.policy.as_deref().unwrap_or_default();
        by = Some(match &decided.decisions.outcome.reason {
            Some(reason) => RefusedBy {
                key: reason.key().to_owned(),
                limit: format!("{policy}: {} {}", reason.unit.word(), reason.window()),
            },
            None => RefusedBy { key: String::new(), limit: policy.to_owned() },
        });
    })?;
    Ok((by, is_decided))
}

fn table(screen: &mut Screen<'_>, rows: &[KeyComparison]) -> Result<(), Failure> {
    let words = |text: &str| printable(text.as_bytes());
    let limit_of = |limit: &Option<String>| limit.as_deref().map_or_else(String::new, words);
    let columns: [table::Shows<'_, KeyComparison>; 7] = [
        (Column::numbers("ONLY POLICY"), &|row| row.counts.only_policy.to_string()),
        (Column::numbers("ONLY OTHER"), &|row| row.counts.only_against.to_string()),
        (Column::numbers("BOTH"), &|row| row.counts.both.to_string()),
        (Column::words("FIRST").spare(2), &|row| row.first.map_or_else(String::new, utc)),
        (Column::words("LIMIT").spare(1), &|row| limit_of(&row.limit)),
        (Column::words("LIMIT OF OTHER").spare(1), &|row| limit_of(&row.limit_against)),
        (Column::words("KEY"), &|row| words(&row.key)),
    ];
    Ok(table::print(screen, rows, columns)?)
}

/// The comparison, as JSON has it.
#[derive(Serialize)]
struct ComparisonJson {
    policy: String,
    against: String,
    decided: u64,
    #[serde(flatten)]
    counts: RefusalCounts,
    keys_only_policy: usize,
    keys_only_against: usize,
    verdict: &'static str,
    keys: Vec<KeyComparison>,
    notes: Vec<String>,
}
