//! The values that settings of a policy file have: as data, as text, and as an image keeps
//! them.

use std::fmt;

#[cfg(feature = "cli")]
use super::image::fields::Row;
use super::image::fields::{Fields, Stored, What};
use super::network::Cidr;
use super::word::{Placeholder, State, Unit, Verdict, Word as _};
pub use crate::toml_file::Location;

/// A text with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(pub Vec<Piece>);

/// A part of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it is.
    Text(String),
    /// What this stands for.
    Value(Placeholder),
}

/// As it is written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Piece::Value(value) => write!(f, "{{{}}}", value.word()),
        })
    }
}

impl Stored for Template {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Stored::read(row).map(Self)
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        self.0.write(row);
    }
}

impl Stored for Piece {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        if row.flag()? {
            Stored::read(row).map(Self::Value)
        } else {
            Stored::read(row).map(Self::Text)
        }
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        match self {
            Self::Text(text) => {
                row.flag(false);
                row.text(text);
            }
            Self::Value(value) => {
                row.flag(true);
                value.write(row);
            }
        }
    }
}

/// The text for the limits of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitText {
    /// The unit.
    pub unit: Unit,
    /// The text.
    pub text: Template,
}

impl Stored for UnitText {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Ok(Self { unit: Stored::read(row)?, text: Stored::read(row)? })
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        self.unit.write(row);
        self.text.write(row);
    }
}

/// A condition of a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum When {
    /// A state of the event, or its opposite.
    Is {
        /// The state.
        state: State,
        /// It must not hold.
        not: bool,
    },
    /// The client is in one of these networks.
    Client(Vec<Cidr>),
    /// The domain of the sender is one of these.
    SenderDomain(Vec<DomainPattern>),
    /// The domain of the recipient is one of these.
    RecipientDomain(Vec<DomainPattern>),
}

impl When {
    /// The names of the conditions that have a value.
    pub const WITH_VALUE: [&str; 3] = ["client", "sender_domain", "recipient_domain"];
}

/// As it is written.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is { state, not } => {
                write!(f, "{}{}", if *not { "!" } else { "" }, state.word())
            }
            Self::Client(networks) => write!(f, "client in {}", list(networks)),
            Self::SenderDomain(all) => write!(f, "sender_domain in {}", list(all)),
            Self::RecipientDomain(all) => write!(f, "recipient_domain in {}", list(all)),
        }
    }
}

impl Stored for When {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        match row.u8()? {
            0 => Ok(Self::Is { not: row.flag()?, state: Stored::read(row)? }),
            1 => Stored::read(row).map(Self::Client),
            2 => Stored::read(row).map(Self::SenderDomain),
            3 => Stored::read(row).map(Self::RecipientDomain),
            _ => Err("a condition is unknown"),
        }
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        match self {
            Self::Is { state, not } => {
                row.u8(0);
                row.flag(*not);
                state.write(row);
            }
            Self::Client(networks) => {
                row.u8(1);
                networks.write(row);
            }
            Self::SenderDomain(domains) => {
                row.u8(2);
                domains.write(row);
            }
            Self::RecipientDomain(domains) => {
                row.u8(3);
                domains.write(row);
            }
        }
    }
}

/// A domain, or all below one (`*.example.org`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPattern {
    /// In lower case.
    pub domain: String,
    /// All below it, without itself.
    pub below: bool,
}

impl DomainPattern {
    /// Whether `domain`, in lower case, is meant.
    #[must_use]
    pub fn matches(&self, domain: &str) -> bool {
        if self.below {
            domain.strip_suffix(&*self.domain).is_some_and(|d| d.len() > 1 && d.ends_with('.'))
        } else {
            domain == self.domain
        }
    }

    /// Whether all that `other` means is meant.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self == other || self.below && self.matches(&other.domain)
    }
}

/// As it is written.
impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.domain)
    }
}

impl Stored for DomainPattern {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Ok(Self { below: row.flag()?, domain: Stored::read(row)? })
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.flag(self.below);
        row.text(&self.domain);
    }
}

/// A verdict that applies from a part of the limit on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grade {
    /// The part of the limit: 1 is all of it.
    pub from: f64,
    /// What is made of the event.
    pub verdict: Verdict,
    /// Where it is written.
    pub at: Location,
}

impl Stored for Grade {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Ok(Self { from: row.number()?, verdict: Stored::read(row)?, at: Location::default() })
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.number(self.from);
        self.verdict.write(row);
    }
}

/// Texts with commas between them.
#[must_use]
pub fn list(texts: impl IntoIterator<Item = impl fmt::Display>) -> String {
    texts.into_iter().map(|text| text.to_string()).collect::<Vec<_>>().join(", ")
}
