//! Errors in specs, worded for administrators.

use super::interval::LONGEST;
use super::list::MAX_LEN;
use super::request::Mode;
use crate::event::AclStage;
use std::fmt;

/// The state of `$sender_rate_limit` or `$sender_rate_period` after a failed
/// check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable<'a> {
    /// It keeps what it held before the check.
    Untouched,
    /// It is unset.
    Unset,
    /// It holds this text.
    Set(&'a [u8]),
}

/// What is wrong with a spec.
///
/// If Exim reports the same fault, [`SpecError`] prints Exim's words first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The spec is longer than [`MAX_LEN`].
    #[error("{length} bytes are too long (at most {MAX_LEN} bytes are allowed)")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The spec contains a NUL byte, which Exim's strings cannot.
    #[error("it contains a NUL byte (every other byte is allowed)")]
    Nul,
    /// There is no limit: only blanks.
    #[error(
        "sender rate limit not set (write limit / period / options / key, such as 100 / 1h / \
         strict / $sender_host_address; an expansion may have come out empty)"
    )]
    NoLimit,
    /// The limit is not a number, or is negative.
    #[error(
        "\"{}\" is not a positive number (the limit is a number such as 100, 2.5 or 10k, with k, m \
         or g for 1024, 1024k or 1024m)",
        Printable(.text)
    )]
    BadLimit {
        /// The text in its place.
        text: Vec<u8>,
    },
    /// There is no period: only a limit.
    #[error(
        "\"NULL\" is not a time value (the period is missing: write limit / period, such as 100 / \
         1h)"
    )]
    NoPeriod,
    /// The period is not an interval, or is zero.
    #[error(
        "\"{}\" is not a time value (the period is a time greater than zero such as 1h, 1d12h or \
         90s, with the units w d h m s, or a bare number of seconds)",
        Printable(.text)
    )]
    BadPeriod {
        /// The text in its place.
        text: Vec<u8>,
    },
    /// The period is longer than Exim can represent (it would overflow there).
    #[error(
        "\"{}\" is not a time value (the period is too long: at most {LONGEST} seconds, about 68 \
         years, are allowed)",
        Printable(.text)
    )]
    LongPeriod {
        /// The text in its place.
        text: Vec<u8>,
    },
    /// The value of `count=` is not a number, or is negative.
    #[error(
        "\"{}\" is not a positive number (after count= write a number such as 1, 0 or 2.5, without \
         a suffix; an expansion may have come out wrong)",
        Printable(.text)
    )]
    BadCount {
        /// The whole option.
        text: Vec<u8>,
    },
    /// Two `per_*` options, or one twice.
    #[error(fmt = two_modes)]
    TwoModes {
        /// The first.
        first: Mode,
        /// The one that conflicts with it.
        second: Mode,
    },
    /// More than one of `leaky`, `strict` and `readonly`.
    #[error(
        "conflicting update modes ({first} and {second}; one of leaky, strict and readonly is \
         allowed)"
    )]
    TwoUpdates {
        /// One of them.
        first: &'static str,
        /// The one that conflicts with it.
        second: &'static str,
    },
    /// The key is a separate argument, and the spec contains one too.
    #[error(
        "the key is given twice (it is an argument of its own, and \"{}\" in the spec is not an \
         option, so it is a key too: remove it, or correct it if it is a misspelt option)",
        Printable(.text)
    )]
    TwoKeys {
        /// The key in the spec.
        text: Vec<u8>,
    },
    /// The unique event is a separate argument, and the spec contains one too.
    #[error(
        "the unique event is given twice (by {option} in the spec and as an argument of its own: \
         remove one of the two)"
    )]
    TwoUniques {
        /// The option in the spec: `unique=` or `per_addr`.
        option: &'static str,
    },
    /// A mode that cannot count in this ACL, with `leaky` or `strict`.
    #[error(
        "\"{}\" must not have /leaky or /strict option, or cannot be used in {} ACL ({} can count \
         in {}; elsewhere write readonly, or noupdate, to read the rate only)",
        .mode.stored_name(), .stage.name(), .mode.word(), .mode.counts_in()
    )]
    WrongStage {
        /// The mode.
        mode: Mode,
        /// The ACL.
        stage: AclStage,
    },
    /// The stored key text would be longer than 65535 bytes.
    #[error(
        "the key is too long (with period and mode it is {length} bytes long; at most {} are \
         allowed)",
        u16::MAX
    )]
    LongKey {
        /// Its length in bytes.
        length: usize,
    },
}

/// A spec that cannot be used: its fault, and the values that Exim would have
/// left in its variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error in arguments to \"ratelimit\" condition: {}", .0.fault)]
pub struct SpecError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    fault: Fault,
    limit: Option<Vec<u8>>,
    /// `None` if parsing did not reach it; `Some(None)` if it is unset.
    period: Option<Option<Vec<u8>>>,
}

impl SpecError {
    /// A fault found before the limit.
    pub(super) fn before_limit(fault: Fault) -> Self {
        Self(Box::new(Inner { fault, limit: None, period: None }))
    }

    /// A fault in the limit.
    pub(super) fn in_limit(limit: &[u8]) -> Self {
        let text = limit.to_vec();
        let fault = Fault::BadLimit { text: text.clone() };
        Self(Box::new(Inner { fault, limit: Some(text), period: None }))
    }

    /// A fault in the period, or after it.
    pub(super) fn from_period(fault: Fault, limit: &[u8], period: Option<&[u8]>) -> Self {
        let period = Some(period.map(<[u8]>::to_vec));
        Self(Box::new(Inner { fault, limit: Some(limit.to_vec()), period }))
    }

    /// What is wrong.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// The value of `$sender_rate_limit` after this failure; `None` if it is
    /// unset. It never keeps its earlier value.
    #[must_use]
    pub fn limit_text(&self) -> Option<&[u8]> {
        self.0.limit.as_deref()
    }

    /// The state of `$sender_rate_period` after this failure: untouched if the
    /// fault is in the limit, unset if there is no period.
    #[must_use]
    pub fn period_text(&self) -> Variable<'_> {
        match &self.0.period {
            None => Variable::Untouched,
            Some(None) => Variable::Unset,
            Some(Some(text)) => Variable::Set(text),
        }
    }
}

/// That two options conflict, or that one is written twice.
fn two_modes(first: &Mode, second: &Mode, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "conflicting per_* options ({} ", first.word())?;
    match first == second {
        true => f.write_str("is written twice")?,
        false => write!(f, "and {}", second.word())?,
    }
    f.write_str("; one per_* option is allowed)")
}

/// Bytes from outside, as Exim prints them in its logs: one line of ASCII, cut
/// off if it is long.
pub(super) struct Printable<'a>(pub(super) &'a [u8]);

/// The maximum number of bytes printed. An address, a host or an option fits.
const SHOWN: usize = 100;

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0.iter().take(SHOWN) {
            match byte {
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                b'\n' => f.write_str("\\n")?,
                b'\r' => f.write_str("\\r")?,
                b'\t' => f.write_str("\\t")?,
                0x08 => f.write_str("\\b")?,
                0x0b => f.write_str("\\v")?,
                0x0c => f.write_str("\\f")?,
                _ => write!(f, "\\{byte:03o}")?,
            }
        }
        if self.0.len() > SHOWN {
            write!(f, "... [{} bytes]", self.0.len())?;
        }
        Ok(())
    }
}

impl Mode {
    /// The option that selects it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::PerMail => "per_mail",
            Self::PerRcpt => "per_rcpt",
            Self::PerAddr => "per_addr",
            Self::PerConn => "per_conn",
            Self::PerCmd => "per_cmd",
            Self::PerByte => "per_byte",
        }
    }

    /// Its name in stored keys and in Exim's errors: `per_byte` is stored as
    /// `per_mail`, `per_addr` as `per_rcpt`.
    #[must_use]
    pub fn stored_name(self) -> &'static str {
        match self {
            Self::PerByte => Self::PerMail.word(),
            Self::PerAddr => Self::PerRcpt.word(),
            _ => self.word(),
        }
    }

    /// The ACLs in which it can count, in words (see `counts_at`).
    fn counts_in(self) -> &'static str {
        match self {
            Self::PerMail | Self::PerByte => {
                "the RCPT, MAIL, PREDATA, MIME, DKIM, DATA, PRDR and non-SMTP ACLs"
            }
            Self::PerRcpt => "the RCPT, PREDATA, MIME, DKIM, DATA, PRDR and non-SMTP ACLs",
            Self::PerAddr => "the RCPT ACL",
            Self::PerConn => "every ACL but non-SMTP and non-SMTP-start",
            Self::PerCmd => "every ACL",
        }
    }
}

impl AclStage {
    /// Its name in Exim's messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rcpt => "RCPT",
            Self::Mail => "MAIL",
            Self::Predata => "PREDATA",
            Self::Mime => "MIME",
            Self::Dkim => "DKIM",
            Self::Data => "DATA",
            Self::Prdr => "PRDR",
            Self::NotSmtp => "non-SMTP",
            Self::Auth => "AUTH",
            Self::Connect => "connection",
            Self::Etrn => "ETRN",
            Self::Expn => "EXPN",
            Self::Helo => "EHLO or HELO",
            Self::MailAuth => "MAILAUTH",
            Self::NotSmtpStart => "non-SMTP-start",
            Self::NotQuit => "NOTQUIT",
            Self::Quit => "QUIT",
            Self::StartTls => "STARTTLS",
            Self::Vrfy => "VRFY",
            Self::Route | Self::Delivery | Self::Outside => "no",
        }
    }
}
