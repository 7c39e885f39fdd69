//! Whether a sender can send now, and if not, why and until when.

use super::in_force::{InForce, until};
use super::key_state::{KeyState, passes};
use super::override_state::{self, end};
use super::totals::{Totals, called};
use super::words;
use crate::rate::habits::UNTIL_ANSWERED;
use crate::rate::{Timestamp, Wait};
use crate::store::{FOREVER, Override, Target};

/// What decides whether somebody can send.
#[derive(Debug)]
pub(crate) struct CanSend<'a> {
    /// The records that refuse.
    pub(crate) refused: Vec<&'a KeyState>,
    /// The override of the whole identity.
    pub(crate) overridden: Option<&'a Override>,
    /// The totals that refuse.
    pub(crate) totals: Vec<String>,
    /// When all of these pass; `None` if that is not known.
    pub(crate) wait: Option<Wait>,
    now: Timestamp,
}

impl<'a> CanSend<'a> {
    /// Of whom `target` means, who has these records and totals.
    pub(crate) fn of(
        in_force: &'a InForce,
        target: &Target,
        records: &'a [KeyState],
        totals: &Totals,
    ) -> Self {
        let now = in_force.now;
        let refused: Vec<&KeyState> = records.iter().filter(|one| in_force.refuses(one)).collect();
        let overridden = override_state::of_target(in_force.overrides(), target, now.seconds);
        let denial = overridden.filter(|one| one.overridden.is_denial());
        // A policy that only observes does not hold it against the records.
        let denial = denial.filter(|_| records.is_empty() || !refused.is_empty());
        let overridden = overridden.filter(|one| !one.overridden.is_denial()).or(denial);
        let of_denial = denial.map(|one| match one.until {
            FOREVER => Some(Wait::Never),
            until => Some(Wait::Seconds(until.saturating_sub(now.seconds) as f64)),
        });
        let of_records = refused.iter().map(|one| in_force.next(one).wait(one, now));
        let of_totals = totals.refusing(in_force).map(|one| in_force.next(one).wait(one, now));
        let mut all = of_records.chain(of_totals).chain(of_denial);
        let wait = all.try_fold(Wait::Seconds(0.0), |longest, wait| match (longest, wait?) {
            (Wait::Seconds(one), Wait::Seconds(other)) => Some(Wait::Seconds(one.max(other))),
            _ => Some(Wait::Never),
        });
        let totals = totals.names_refusing(in_force);
        Self { refused, overridden, totals, wait, now }
    }

    /// The denial of the whole identity.
    pub(crate) fn denial(&self) -> Option<&'a Override> {
        self.overridden.filter(|one| one.overridden.is_denial())
    }

    /// Whether a crossing has blocked it.
    pub(crate) fn is_blocked(&self) -> bool {
        self.denial().is_none() && self.refused.iter().any(|one| one.blocked(self.now).is_some())
    }

    /// What a record that refuses holds against it.
    fn why(&self, record: &KeyState) -> String {
        let why = words::why(record, self.now);
        match record.blocked(self.now) {
            Some(block) => format!("blocked {}, as it crossed a limit ({why})", until(block)),
            None => why,
        }
    }

    /// Whether it can.
    pub(crate) fn can(&self) -> bool {
        self.denial().is_none() && self.refused.is_empty() && self.totals.is_empty()
    }

    /// `alice@example.org cannot send now: denied forever (password stolen)`; `suspected` says until
    /// when its mail is held or deferred for its habits, and how.
    pub(crate) fn sentence(&self, name: &str, suspected: Option<(&str, i64)>) -> String {
        let mut why: Vec<String> = Vec::new();
        let allowed = self.overridden.filter(|one| !one.overridden.is_denial());
        match self.denial() {
            Some(one) => why.push(end(one)),
            None => why.extend(self.refused.iter().map(|record| self.why(record))),
        }
        if !self.totals.is_empty() {
            why.push(format!("refused by {}", called(&self.totals)));
        }
        let mut wait = self.wait;
        if let Some((verdict, until)) = suspected {
            why.push(format!("suspected for its habits, so its mail is {verdict}"));
            let left = until.saturating_sub(self.now.seconds) as f64;
            wait = wait.map(|wait| match wait {
                Wait::Seconds(one) if until < UNTIL_ANSWERED => Wait::Seconds(one.max(left)),
                Wait::Seconds(_) | Wait::Never => Wait::Never,
            });
        }
        if why.is_empty() {
            let allowed = allowed.map_or_else(String::new, |one| format!(": {}", end(one)));
            return format!("{name} can send now{allowed}");
        }
        let until = match (wait, &why[..]) {
            // The only reason says that itself.
            (_, [_]) if self.denial().is_some() || self.is_blocked() => String::new(),
            (Some(Wait::Never), _) => "; waiting does not help".to_owned(),
            (Some(wait), _) => format!("; it can again {}", passes(wait, self.now)),
            (None, _) => "; until when is not known".to_owned(),
        };
        format!("{name} cannot send now: {}{until}", why.join("; "))
    }
}
