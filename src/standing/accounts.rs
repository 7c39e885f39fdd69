//! Accounts with habits, and those that a key may mean.

use std::collections::BTreeSet;
use std::path::Path;

use super::key_text;
use crate::history::explain::rule::{self, SaidOfHabits};
use crate::identity::Field;
use crate::identity::fold::split_field;
use crate::policy::image::{Image, PolicyFile};
use crate::policy::word::OnHabits;
use crate::rate::habits::{Answer, Habits, Sensitivity, UNTIL_ANSWERED};
use crate::spool::{Options, Spool, SpoolError};
use crate::store::{OwnedKey, Target, habits_key, names};
use crate::text;
use crate::text::time::now;

/// An account with habits.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) key: OwnedKey,
    pub(crate) habits: Habits,
}

impl Account {
    /// Its key, as it is shown and can be pasted.
    pub(crate) fn shown(&self) -> String {
        key_text::key(self.key.key().identity())
    }

    /// As the mail in logs has it.
    pub(crate) fn identity(&self) -> String {
        String::from_utf8_lossy(self.key.key().identity()).into_owned()
    }

    /// As one can be denied: all that is counted of it.
    pub(crate) fn name(&self) -> String {
        let key = self.key.key();
        let name = names(&key).last();
        name.map_or_else(String::new, |(name, _)| key_text::key(&name))
    }

    /// Why it has no alarm to answer.
    pub(crate) fn unsuspected(&self) -> String {
        let (key, habits) = (self.shown(), &self.habits);
        match habits.alarm_at().zip(habits.answer()) {
            Some((at, answer)) => {
                let (at, answer) = (text::time::local_second(at), answer.word());
                format!("{key} is not suspected: its last alarm, of {at}, was answered: {answer}")
            }
            None => format!("{key} is not suspected: it never had an alarm"),
        }
    }
}

/// Whether the mail of an account is refused at `now` for an alarm that has blocked it, where this
/// becomes of the mail of a suspected one.
pub(crate) fn is_refused(habits: &Habits, on: OnHabits, now: i64) -> bool {
    matches!(on, OnHabits::Hold | OnHabits::Defer) && habits.blocked(now).is_some()
}

/// `until 2026-12-31 18:00:00 CET (for 3d)`, as a suspicion ends.
pub(crate) fn until(end: i64, now: i64) -> String {
    match end {
        UNTIL_ANSWERED => "until somebody answers".to_owned(),
        _ => format!(
            "until {} (for {})",
            text::time::local_second(end),
            text::rough((end - now) as f64)
        ),
    }
}

/// The accounts with habits that `target` may mean.
///
/// # Errors
/// The database could not be used.
pub(crate) fn with_habits(spool: &mut Spool, target: &Target) -> Result<Vec<Account>, SpoolError> {
    let mut found = Vec::new();
    for identity in of_target(target) {
        let mut name = Vec::new();
        let key = habits_key(&identity, &mut name);
        if let Some(habits) = spool.habits(key)? {
            found.push(Account { key: key.into(), habits });
        }
    }
    Ok(found)
}

/// The accounts of a database that habits suspect, or that somebody has called stolen, without the
/// field: nobody should exempt these for what they have sent.
pub(crate) fn suspected_names(spool: &Path) -> BTreeSet<String> {
    let spool = Spool::open_existing(spool, Options::default()).ok();
    let (mut names, now) = (BTreeSet::new(), now().seconds);
    if let Some(mut spool) = spool {
        // Of what cannot be read, nobody is named.
        let _ = spool.for_each_habits(|key, habits| {
            if habits.is_suspected(now) || habits.answer() == Some(Answer::Stolen) {
                let identity = String::from_utf8_lossy(key.key().identity()).into_owned();
                let name = identity.split_once(':').map(|(_, name)| name.to_owned());
                names.extend(name.into_iter().chain([identity]));
            }
        });
    }
    names
}

/// What the policies in use say of the habits of accounts.
pub(crate) struct InUse {
    file: PolicyFile,
}

impl InUse {
    /// Of this spool directory.
    pub(crate) fn of(spool: &Path) -> Self {
        Self { file: PolicyFile::open(spool) }
    }

    /// Whether any has habits on.
    pub(crate) fn has_any(&self) -> bool {
        let of =
            |image: &Image| image.each().any(|(_, one)| one.is_ok_and(|one| one.uses_habits()));
        self.file.image().is_ok_and(of)
    }

    /// What they say of an account; `None` if its habits are off.
    pub(crate) fn said(&self, account: &Account, now: i64) -> Option<SaidOfHabits> {
        let key = account.key.key();
        let identity = std::str::from_utf8(key.identity()).ok()?;
        // Damage is said by what reads all of them.
        rule::of_habits(self.file.image().ok()?, identity, now).ok()?
    }

    /// How early an alarm of an account is raised; where habits are off, as by default.
    pub(crate) fn sensitivity(&self, account: &Account, now: i64) -> Sensitivity {
        self.said(account, now).map(|said| said.sensitivity).unwrap_or_default()
    }
}

/// The identities of the accounts that `target` may mean, such as `auth:alice@example.org` for
/// alice@example.org. A glob means none.
pub(crate) fn of_target(target: &Target) -> Vec<Vec<u8>> {
    let Target::Exact { key, counted_as, .. } = target else { return Vec::new() };
    let mut all: Vec<Vec<u8>> = Vec::new();
    for name in std::iter::once(key).chain(counted_as) {
        match split_field(name) {
            Some(_) => all.push(name.clone()),
            None => all.extend(
                [Field::Auth, Field::LocalAccount]
                    .map(|field| [field.word().as_bytes(), b":", name].concat()),
            ),
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::fold::Folding;
    use crate::standing::pattern;

    #[test]
    fn a_login_and_a_local_account_are_accounts() {
        let of = |key: &str| {
            let (target, _) =
                pattern::override_target(key.as_bytes(), false, &Folding::default()).unwrap();
            let all = of_target(&target);
            all.into_iter().map(|one| String::from_utf8(one).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("Alice@x"), ["auth:alice@x", "local_account:alice@x"]);
        assert_eq!(of("auth:alice@x"), ["auth:alice@x"]);
        assert!(of("*@x").is_empty());
    }
}
