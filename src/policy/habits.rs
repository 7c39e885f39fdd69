//! The habits of accounts in policies: which account a message counts for, and what is made of it
//! while the account is suspected.

use std::borrow::Cow;
use std::fmt;

use super::explain;
use super::key::Key;
use super::model::Identity;
use super::word::{Field, OnHabits, Verdict};
use crate::engine::Overridden;
use crate::event::{AclStage, Event, Origin};
use crate::rate::Timestamp;
use crate::store::Judged;
use crate::text;

/// What a habit is called where a limit has its unit.
pub const HABITS: &str = "habits";

/// How the reason begins for which the mail of a suspected account is held. Messages that are held
/// have it in the mail server's queue.
const RAISES: &str = "this message raises an alarm";
const RAISED: &str = "an alarm was raised";

/// Whether a held message with this reason was held as its account was suspected.
#[must_use]
pub fn is_held_for_habits(why: &str) -> bool {
    why.starts_with(RAISES) || why.starts_with(RAISED)
}

/// The account that a message counts for, as in the keys of policies: the login that sends it, or
/// the local account that hands it over. `None` for a bounce of a local account, and for the mail
/// server's or root's own mail.
#[must_use]
pub fn account<'e>(identity: &Identity, event: &Event<&'e str>) -> Option<Key<'e>> {
    let field = match event.client {
        _ if event.system => return None,
        _ if event.auth.is_some() => Field::Auth,
        Origin::Program if !is_bounce(event) => Field::LocalAccount,
        _ => return None,
    };
    Key::of(identity, &[field], event)
}

/// Whether the message has no sender. A login writes its own receipts so; but what a thief sends so
/// must count.
#[must_use]
pub fn is_bounce(event: &Event<&str>) -> bool {
    event.sender.is_none_or(str::is_empty)
}

/// Whether a message is complete at this stage, and nothing but the mail server can refuse it
/// afterwards: then it is learned.
#[must_use]
#[inline]
pub fn is_learned_at(stage: AclStage) -> bool {
    matches!(stage, AclStage::Data | AclStage::NotSmtp)
}

impl OnHabits {
    /// What becomes of the mail of a suspected account.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Off => Verdict::Accept,
            Self::Observe => Verdict::Log,
            Self::Hold => Verdict::Hold,
            Self::Defer => Verdict::Defer,
        }
    }
}

/// A message of an account that is suspected, or that an override denies.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspicion {
    /// The table that says what becomes of its mail: `user news@example.org`.
    pub rule: Cow<'static, str>,
    /// The account: `auth:alice@example.org`.
    pub key: Box<str>,
    /// What its habits say.
    pub judged: Judged,
    /// When the message was sent, in seconds since 1970.
    pub at: i64,
}

impl Suspicion {
    /// Nothing, where the account is not suspected, or an override allows its mail.
    pub(super) fn of(
        rule: impl FnOnce() -> Cow<'static, str>,
        key: &str,
        judged: Judged,
        at: i64,
    ) -> Option<Self> {
        let is_denied = match judged.overridden {
            Some(Overridden::Allow) => return None,
            overridden => overridden.is_some(),
        };
        (is_denied || judged.suspected.is_some()).then(|| Self {
            rule: rule(),
            key: key.into(),
            judged,
            at,
        })
    }

    /// Whether an override denies the message.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.judged.overridden.is_some_and(Overridden::is_denial)
    }

    /// Why it is what it is: `this message raises an alarm, …`
    #[must_use]
    pub fn why(&self) -> String {
        let Self { judged, at, .. } = self;
        match (&judged.alarm, judged.suspected) {
            _ if self.is_denied() => "an override denies it".to_owned(),
            (Some(alarm), _) => format!("{RAISES}: {alarm}"),
            (None, Some((since, _))) => {
                let ago = text::rough(at.saturating_sub(since) as f64);
                let now = Timestamp { seconds: *at, micros: 0 };
                let blocked = judged.blocked.map(|block| explain::blocked(block, now) + ", as ");
                format!("{}{RAISED} {ago} ago", blocked.unwrap_or_default())
            }
            (None, None) => "nothing unusual".to_owned(),
        }
    }
}

/// `habits of auth:alice@example.org: this message raises an alarm, …`
impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HABITS} of {}: {}", self.key, self.why())
    }
}
