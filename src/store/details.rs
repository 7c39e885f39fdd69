//! The texts that say what a crossing or a refusal was about, in one table: what front ends
//! hand over, what the journal stores, and what `exirate events` prints.

/// Whether an event that is over is held against whoever sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// It is.
    #[default]
    Enforced,
    /// The policy only observes.
    Observed,
    /// The policy exempts it.
    Exempt,
    /// It waits, and is sent later.
    Waits,
}

/// What the record of a policy counts whose crossing says that mail has waited for too long; no unit of
/// limits has this name.
pub const OVERDUE: &str = "overdue_recipients";

impl Enforcement {
    const ALL: [Self; 4] = [Self::Enforced, Self::Observed, Self::Exempt, Self::Waits];

    /// Its word in the output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Observed => "observed",
            Self::Exempt => "exempt",
            Self::Waits => "waits",
        }
    }

    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    /// What is unknown is taken for enforced: it is to be seen.
    pub(crate) fn of(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or_default()
    }
}

macro_rules! event_details {
    ($($name:ident, $most:literal, $help:literal;)+) => {
        /// What the front end knows of an event. Texts are bytes as clients sent them; longer
        /// ones are cut.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct EventDetails<'a> {
            $(#[doc = $help] pub $name: &'a [u8],)+
            /// Whether the policy enforces what it has decided.
            pub enforcement: Enforcement,
        }

        /// The texts of [`EventDetails`], as they were logged; empty where nothing is known.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "cli", derive(serde::Serialize, schemars::JsonSchema))]
        pub struct DetailTexts<T> {
            $(#[doc = $help] pub $name: T,)+
        }

        /// The names of the texts, in their order.
        pub const DETAILS: [&str; [$($most,)+].len()] = [$(stringify!($name),)+];

        /// The longest texts, in bytes; a longer one is cut.
        pub const DETAILS_MAX: [usize; DETAILS.len()] = [$($most,)+];

        impl<'a> EventDetails<'a> {
            /// The texts, in their order.
            #[must_use]
            pub fn texts(&self) -> [&'a [u8]; DETAILS.len()] {
                [$(self.$name,)+]
            }
        }

        impl<T> DetailTexts<T> {
            /// Each text with its name, in their order.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, &T)> {
                DETAILS.into_iter().zip([$(&self.$name,)+])
            }

            /// The same texts, as `map` makes them.
            pub fn map<'a, U>(&'a self, map: impl Fn(&'a T) -> U) -> DetailTexts<U> {
                DetailTexts { $($name: map(&self.$name),)+ }
            }
        }

        impl<T> From<[T; DETAILS.len()]> for DetailTexts<T> {
            fn from([$($name,)+]: [T; DETAILS.len()]) -> Self {
                Self { $($name,)+ }
            }
        }
    };
}

event_details! {
    policy, 128, "The policy; empty for a spec.";
    rule, 128, "The rule of the policy; empty for a spec.";
    unit, 128, "What the policy counts; empty for a spec.";
    login, 320, "The authenticated user.";
    client, 64, "The client's address.";
    sender, 320, "The envelope sender.";
    recipient, 320, "The recipient.";
    message_id, 64, "The message id.";
    protocol, 32, "The protocol, as Exim calls it.";
    script, 320, "The script of a web host.";
    evidence, 256, "What led to an alarm of habits; of a crossing that blocks, until when.";
}
