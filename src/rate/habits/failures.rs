//! The second set of rules: recipients who do not exist, or could not be reached.
//!
//! That shows only after the message was learned, so it is an update of its own. What is assumed:
//! of the recipients on a thief's list, a fifth fails; of the strangers that an owner writes to,
//! one of fifty. Both are assumptions, as no public set of mail says what became of it. What does
//! not fail counts for nobody: a list that was cleaned says nothing of who uses it.

use super::{Added, FAILED_LATEST, Habits, PROTECTED, Sensitivity, THIEF_SHARE, Update, place_of};

/// The share of a thief's recipients that fail.
const THIEF_FAILED: f64 = 0.2;
/// The share of an owner's strangers that do.
const OWNER_FAILED: f64 = 0.02;

impl Habits {
    /// Updates the habits by a recipient of an earlier message, who could not be reached
    /// `at` this second since 1970. `recipient` is a hash, as in [`Habits::message`].
    ///
    /// A message is one decision, an old address book too: since the evidence began, no more
    /// failures count than there were messages. One that the account has written to before is no
    /// stranger, and counts for nobody.
    pub fn failed(&mut self, at: i64, recipient: u64, sensitivity: Sensitivity) -> Update {
        let at = at.clamp(self.at.into(), i64::from(self.at) + FAILED_LATEST);
        let (bucket, fingerprint) = place_of(recipient);
        let is_known = self.known[bucket][..PROTECTED].contains(&fingerprint);
        let counts = !is_known && u16::from(self.episode_failures) < self.episode_messages;
        let mut added = Added::default();
        if counts {
            added.failures = (THIEF_SHARE * THIEF_FAILED / OWNER_FAILED + 1.0 - THIEF_SHARE).ln();
            self.episode_failures = self.episode_failures.saturating_add(1);
            self.add_to_evidence(added);
        }
        // It is evidence of the message, and forgotten with it.
        let score = f64::from(self.score) + added.failures;
        let factor = self.factor(at);
        let threshold = sensitivity.threshold() * factor;
        let is_alarm = counts && score >= threshold;
        let alarm = is_alarm.then(|| self.alarm(at, false, factor));
        self.score = if is_alarm { 0.0 } else { score as f32 };
        Update { score, threshold, strangers: 0, added, alarm }
    }
}
