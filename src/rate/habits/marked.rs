//! Mail that says of itself that a program wrote it or a list sends it.

use super::{Added, Habits, Sensitivity, UNLEARNED, Update, place_of};

impl Habits {
    /// Counts a message that says of itself that a program wrote it or a list sends it (see
    /// [`marks`]). Whoever sends it chooses that: so its strangers count for the second rule. It
    /// says nothing of the habits, and nothing is learned from it: by it alone an account stays new,
    /// and so from the first on the record of its strangers grows as that of a known account does.
    ///
    /// `at` and `recipients` are as those of [`Habits::message`].
    pub fn marked_message(
        &mut self,
        at: i64,
        recipients: impl IntoIterator<Item = u64>,
        sensitivity: Sensitivity,
    ) -> Update {
        let at = self.set_back(at);
        let is_stranger = |hash: &u64| {
            let (bucket, fingerprint) = place_of(*hash);
            !self.known[bucket].contains(&fingerprint)
        };
        let strangers = recipients.into_iter().filter(is_stranger).count();
        let strangers = u32::try_from(strangers).unwrap_or(u32::MAX);
        if strangers > 0 {
            self.class |= UNLEARNED;
        }
        let is_over = self.count_volume(at, strangers);
        let (score, factor) = (self.score(at), self.factor(at));
        let alarm = is_over.then(|| self.alarm(at, is_over, factor));
        if alarm.is_some() {
            self.score = 0.0;
        }
        let threshold = sensitivity.threshold() * factor;
        Update { score, threshold, strangers, added: Added::default(), alarm }
    }
}

/// Whether a header shows that a program wrote the message, or that a list sends it.
#[must_use]
pub fn marks(name: &[u8], value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    if name.eq_ignore_ascii_case(b"Auto-Submitted") {
        let end = value.iter().position(|byte| b" \t\r\n;(".contains(byte));
        let word = value.get(..end.unwrap_or(value.len())).unwrap_or_default();
        !word.is_empty() && !word.eq_ignore_ascii_case(b"no")
    } else if name.eq_ignore_ascii_case(b"Precedence") {
        ["bulk", "list", "junk"].into_iter().any(is)
    } else {
        name.eq_ignore_ascii_case(b"List-Id")
    }
}
