//! Who runs the Exim that asks, by what Exim alone knows: the user ids of its processes.

use std::borrow::Cow;

/// Who runs an Exim, and so is able to stop it, to slow it down and to limit its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root, Exim's own user, or an account that serves connections: what they say of a client is
    /// so.
    Trusted,
    /// Any other account. What it hands over is its own, whatever its standard input claims.
    Account(u32),
}

impl Caller {
    /// Of the user who started Exim (`$caller_uid`), else of the one who handed the message over
    /// (`$originator_uid`), which matters in queue runs. `exim` is Exim's own user, `serving`
    /// the ids of accounts that serve connections, such as those of inetd, with anything between
    /// them. Without the number of a caller, it is [`UNKNOWN`]: in doubt, it counts.
    #[must_use]
    pub fn of(caller: &[u8], originator: &[u8], exim: &[u8], serving: &[u8]) -> Self {
        let serves =
            |user: &[u8]| serving.split(|byte| !byte.is_ascii_digit()).any(|one| one == user);
        let account = |user: &[u8]| {
            let is_trusted = user == b"0" || !user.is_empty() && (user == exim || serves(user));
            (!is_trusted).then(|| number(user).unwrap_or(UNKNOWN))
        };
        let originator = || (!originator.is_empty()).then(|| account(originator)).flatten();
        account(caller).or_else(originator).map_or(Self::Trusted, Self::Account)
    }

    /// The account, if it is one.
    #[must_use]
    pub fn account(self) -> Option<u32> {
        match self {
            Self::Trusted => None,
            Self::Account(user) => Some(user),
        }
    }
}

/// The user id of nobody.
pub const UNKNOWN: u32 = u32::MAX;

/// The key by which a spec counts what an account says that a client of its own sends: one
/// that no client can have.
#[must_use]
pub fn account_key(user: u32) -> Cow<'static, [u8]> {
    format!("local:{user}").into_bytes().into()
}

fn number(user: &[u8]) -> Option<u32> {
    str::from_utf8(user).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_neither_root_nor_exim_nor_one_that_serves() {
        let of = |caller: &str, originator: &str, serving: &str| {
            Caller::of(caller.as_bytes(), originator.as_bytes(), b"100", serving.as_bytes())
                .account()
        };
        for (caller, originator, serving, account) in [
            ("0", "0", "", None),
            ("100", "100", "", None),
            ("33", "33", "", Some(33)),
            ("33", "33", "8:33", None),
            ("33", "33", "<; 8 ; 33", None),
            ("33", "33", "3:333:8", Some(33)),
            // A message of an account, later.
            ("0", "33", "", Some(33)),
            ("100", "33", "", Some(33)),
            ("0", "8", "8", None),
            ("33", "8", "8", Some(33)),
            ("", "0", "", Some(UNKNOWN)),
            ("-1", "0", "", Some(UNKNOWN)),
            ("0", "", "", None),
        ] {
            assert_eq!(of(caller, originator, serving), account, "{caller} {originator} {serving}");
        }
        assert_eq!(Caller::of(b"", b"", b"", b""), Caller::Account(UNKNOWN));
        assert_eq!(&*account_key(33), b"local:33");
    }
}
