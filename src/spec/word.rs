//! The items after the period: options, or parts of the key.

use super::Mode;

/// Introduces the option for the cost.
pub(super) const COUNT: &str = "count=";
/// Introduces the option for a unique event.
pub(super) const UNIQUE: &str = "unique=";

/// One item after the period.
pub(super) enum Word {
    Mode(Mode),
    Leaky,
    Strict,
    ReadOnly,
    NoUpdate,
    Count,
    Unique,
    Key,
}

impl Word {
    /// Classifies `item`, in any case.
    #[inline]
    pub(super) fn of(item: &[u8]) -> Self {
        // No option without a value is longer than eight bytes, so each is one
        // comparison of a 64-bit word. No item contains a NUL byte.
        let mut word = [0; 8];
        if let Some(start) = word.get_mut(..item.len()) {
            start.copy_from_slice(item);
            word.make_ascii_lowercase();
            match u64::from_ne_bytes(word) {
                LEAKY => return Self::Leaky,
                STRICT => return Self::Strict,
                READONLY => return Self::ReadOnly,
                NOUPDATE => return Self::NoUpdate,
                PER_MAIL => return Self::Mode(Mode::PerMail),
                PER_RCPT => return Self::Mode(Mode::PerRcpt),
                PER_ADDR => return Self::Mode(Mode::PerAddr),
                PER_CONN => return Self::Mode(Mode::PerConn),
                PER_CMD => return Self::Mode(Mode::PerCmd),
                PER_BYTE => return Self::Mode(Mode::PerByte),
                _ => {}
            }
        }
        let starts = |word: &str| {
            item.get(..word.len()).is_some_and(|s| s.eq_ignore_ascii_case(word.as_bytes()))
        };
        match item.first() {
            Some(b'c' | b'C') if starts(COUNT) => Self::Count,
            Some(b'u' | b'U') if starts(UNIQUE) => Self::Unique,
            _ => Self::Key,
        }
    }
}

const LEAKY: u64 = u64::from_ne_bytes(*b"leaky\0\0\0");
const STRICT: u64 = u64::from_ne_bytes(*b"strict\0\0");
const READONLY: u64 = u64::from_ne_bytes(*b"readonly");
const NOUPDATE: u64 = u64::from_ne_bytes(*b"noupdate");
const PER_MAIL: u64 = u64::from_ne_bytes(*b"per_mail");
const PER_RCPT: u64 = u64::from_ne_bytes(*b"per_rcpt");
const PER_ADDR: u64 = u64::from_ne_bytes(*b"per_addr");
const PER_CONN: u64 = u64::from_ne_bytes(*b"per_conn");
const PER_CMD: u64 = u64::from_ne_bytes(*b"per_cmd\0");
const PER_BYTE: u64 = u64::from_ne_bytes(*b"per_byte");
