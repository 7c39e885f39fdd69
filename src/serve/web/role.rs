//! What somebody who asks the web service may do.

use crate::toml_file::Word;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    View,
    /// Look, and help senders: the verbs of the broker, within its bounds.
    Help,
}

impl Word for Role {
    const ALL: &'static [Self] = &[Self::View, Self::Help];

    fn word(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Help => "help",
        }
    }
}

/// Who has a role without a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// A user of this machine who has connected, or a person named by the proxy.
    Person(String),
    /// The users of this machine who are in the group with this id, and have connected.
    Group(u32),
}

/// The longest name of somebody who asks.
const NAME_MAX: usize = 64;

/// Whether somebody who asks can have this name: it is a word of the audit log, and not that of a
/// group in the configuration.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let sign = |b: u8| b.is_ascii_alphanumeric() || b"._-@+".contains(&b);
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(sign) && !text.starts_with('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_of_the_audit_log() {
        for name in ["alice", "alice@example.org", "a.b-c_d+1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "@desk", "a b", "a\nb", "a=b", "é", &"x".repeat(65)] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
