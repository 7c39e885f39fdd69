//! A limit that applies to an identity.

use std::fmt;
use std::net::IpAddr;

use super::word::Unit;
use crate::engine::Algorithm;

/// Whose limits are searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The first field of the policy's key, or what the identity chain gave;
    /// folded. Empty: not known.
    pub identity: &'a str,
    /// The package that the front end handed over.
    pub package: Option<&'a str>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The recipient, folded.
    pub recipient: Option<&'a str>,
}

/// The table that a limit is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule<'a> {
    /// The table of the user.
    User(&'a str),
    /// The table of the domain.
    Domain(&'a str),
    /// The table of the package.
    Package(&'a str),
    /// The table for everybody.
    Default,
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Domain(name) => write!(f, "domain {name}"),
            Self::Package(name) => write!(f, "package {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Whom a limit counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Per {
    /// Each key of the policy by itself.
    Key,
    /// All users of a domain together (`total`).
    Domain,
}

/// One window or bucket of a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit<'a> {
    /// What is counted.
    pub unit: Unit,
    /// Whom it counts together.
    pub per: Per,
    /// How it is counted, the limit and the period.
    pub algorithm: Algorithm,
    /// As written, without blanks: `100/1h`; of a bucket its rate, `1/1h`.
    pub text: &'a str,
    /// The table it is from.
    pub rule: Rule<'a>,
}

/// The entry of `exempt` that lifts the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemption<'a> {
    /// Until then, in seconds since 1970.
    pub until: Option<i64>,
    /// Why.
    pub reason: Option<&'a str>,
}
