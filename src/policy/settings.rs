//! The settings of a policy file, apart from limits and exemptions: each is stated here, once.
//!
//! An entry of a table is a setting: its help, name, type, default, and the kind of value that
//! it takes. The order is that of the image. What reads the policy file, writes and reads the
//! image, and lists what two files differ in, goes by the tables; the dictionary for fuzzing and
//! the reference in `docs/policy.md` are held to them by tests.

use super::destination::Destinations;
use super::fold::Folding;
#[cfg(feature = "cli")]
use super::image::fields::Row;
use super::image::fields::{Fields, Stored, What};
use super::network::Cidr;
#[cfg(feature = "cli")]
use super::source::kind::{self, Context, Kind, Shown};
use super::value::{Grade, Location, Template, UnitText, When};
use super::word::{
    Action, AfterWaiting, At, Counting, DenialReply, Field, OnError, OnHabits, Sensitivity, State,
    Verdict,
};
use crate::engine::BlockTime;
#[cfg(feature = "cli")]
use crate::toml_file::reader::{Reader, Value};

/// A setting of the group `G`.
pub(super) struct Setting<G: 'static> {
    /// As it is written; `fold.case` is `case` in the table `fold`.
    #[cfg(feature = "cli")]
    pub(super) name: &'static str,
    /// What it is, for the reference.
    #[cfg(test)]
    pub(super) help: &'static str,
    /// Reads it from a row of an image.
    read: fn(&mut G, &mut Fields<'_>) -> Result<(), What>,
    /// Writes it to one.
    #[cfg(feature = "cli")]
    pub(super) write: fn(&G, &mut Row),
    /// Reads it from a policy file.
    #[cfg(feature = "cli")]
    pub(super) parse: fn(&mut G, &mut Reader<'_>, Value<'_>, Context),
    /// What a policy file may say, for the reference.
    #[cfg(all(test, feature = "cli"))]
    pub(super) takes: fn() -> String,
    /// Its value in words.
    #[cfg(feature = "cli")]
    pub(super) show: fn(&G) -> Shown,
}

/// Settings that have a table of the policy file and a row of the image, or the start of one.
pub(super) trait Group: Default + 'static {
    /// The settings.
    const SETTINGS: &'static [Setting<Self>];
    /// So many of the last ones are in images of version 5 alone.
    const LATER: usize;

    /// Reads them from a row of an image.
    ///
    /// # Errors
    /// The row is damaged.
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        let mut group = Self::default();
        let (first, later) = Self::SETTINGS.split_at(Self::SETTINGS.len() - Self::LATER);
        first.iter().try_for_each(|setting| (setting.read)(&mut group, row))?;
        if !row.is_empty() {
            later.iter().try_for_each(|setting| (setting.read)(&mut group, row))?;
        }
        Ok(group)
    }

    /// Whether a setting is used that only images of version 5 have.
    #[cfg(feature = "cli")]
    fn uses_later(&self) -> bool {
        let later = Self::SETTINGS.iter().rev().take(Self::LATER);
        later.into_iter().any(|setting| (setting.show)(self) != (setting.show)(&Self::default()))
    }
}

macro_rules! settings {
    ($(#[$about:meta])* pub struct $group:ident $(, later $later:literal)? {
        $($(#[doc = $help:literal])+ $field:ident: $type:ty = $default:expr, $kind:expr;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $group {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        settings! {
            of $group $(, later $later)? { $($(#[doc = $help])+ (stringify!($field)) $field, $kind;)+ }
        }
    };
    (of $group:ty $(, later $later:literal)? { $($(#[doc = $help:literal])+ ($name:expr) $($field:ident).+, $kind:expr;)+ }) => {
        impl Group for $group {
            const LATER: usize = 0 $(+ $later)?;
            const SETTINGS: &'static [Setting<Self>] = &[$(Setting {
                #[cfg(feature = "cli")]
                name: $name,
                #[cfg(test)]
                help: concat!($($help),+),
                read: |group, row| {
                    group.$($field).+ = Stored::read(row)?;
                    Ok(())
                },
                #[cfg(feature = "cli")]
                write: |group, row| group.$($field).+.write(row),
                #[cfg(feature = "cli")]
                parse: |group, reader, value, context| {
                    if let Some(parsed) = Kind::parse(&$kind, reader, value, context) {
                        group.$($field).+ = parsed;
                    }
                },
                #[cfg(all(test, feature = "cli"))]
                takes: || kind::takes(&$kind, |group: &Self| &group.$($field).+),
                #[cfg(feature = "cli")]
                show: |group| Kind::show(&$kind, &group.$($field).+),
            }),+];
        }
    };
}

/// `[identity]`: who is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The first of these that is known is the identity.
    pub chain: Vec<Field>,
    /// How identities are folded.
    pub folding: Folding,
    /// Clients that may relay without authentication.
    pub relay: Vec<Cidr>,
    /// The domains that belong together: `[destination.NAME]`.
    pub destinations: Destinations,
    /// Where the chain is written; where it is not, the default applies.
    pub at: Option<Location>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            chain: vec![Field::Auth, Field::LocalAccount, Field::Client],
            folding: Folding::default(),
            relay: Vec::new(),
            destinations: Destinations::default(),
            at: None,
        }
    }
}

settings! {
    of Identity {
        /// The identity: the first of these fields that is known
        ("chain") chain, kind::Chain;
        /// Fold upper case to lower case in logins and local parts
        ("fold.case") folding.case, kind::Flag;
        /// Remove the first `+` of a local part and the text after it
        ("fold.plus") folding.plus, kind::Flag;
        /// Remove dots from local parts in these domains
        ("fold.dots") folding.dots, kind::Domains;
        /// Add this domain to a login without one: that by which the mail server itself qualifies
        ("qualify") folding.qualify, kind::Domain;
        /// Leading bits of an IPv4 address that count
        ("mask.v4") folding.v4, kind::Bits(32);
        /// Leading bits of an IPv6 address that count
        ("mask.v6") folding.v6, kind::Bits(128);
        /// Clients that may relay without authentication
        ("relay") relay, kind::Networks;
    }
}

settings! {
    /// `[on.crossing]`: what to do once when a key crosses a limit.
    pub struct OnCrossing, later 5 {
        /// Write a line to the log
        log: bool = false, kind::Flag;
        /// Run a program with these arguments
        run: Vec<Template> = Vec::new(), kind::Program;
        /// Send JSON to this URL
        post: Option<String> = None, kind::Url;
        /// Send mail to this address
        mail: Option<String> = None, kind::MailAddress;
        /// Send another alert for a key that is still refused this long after the last one
        repeat: Option<f64> = None, kind::Period { most: None };
        /// Send alerts also for policies that only observe
        observed: bool = false, kind::Flag;
        /// Block an account that crosses a limit of its own for this long, or until an administrator
        /// has looked
        deny: Option<BlockTime> = None, kind::BlockFor;
        /// The reply to the mail of an account that is blocked so
        deny_reply: DenialReply = DenialReply::Reject, kind::OneOf("deny_reply");
        /// Block for these policies alone; the default is all of them
        deny_policies: Vec<String> = Vec::new(), kind::PolicyNames;
        /// Block an account that raises an alarm of `habits`, where that holds or defers its mail
        deny_habits: Option<BlockTime> = None, kind::BlockFor;
        /// Write to the `contact` of an account that crosses a limit of its own, or raises an alarm, at
        /// most once a day
        contact: bool = false, kind::Flag;
    }
}

settings! {
    /// What a policy says apart from its limits and exemptions.
    pub struct PolicySettings {
        /// The policy applies to events for which all of these hold
        when: Vec<When> = Vec::new(), kind::Conditions;
        /// Whether the policy refuses mail or only measures it
        action: Action = Action::Enforce, kind::OneOf("action");
        /// Whether a refused event counts (`strict`) or not; an event that is only observed always counts
        update: Counting = Counting::Leaky, kind::OneOf("update mode");
        /// Whether mail is accepted or deferred when the policy cannot be evaluated
        on_error: OnError = OnError::FailOpen, kind::OneOf("on_error");
        /// The text of the reply to the client
        text: Option<Template> = None, kind::ReplyText;
        /// The text of the reply if a limit of this unit is the reason
        texts: Vec<UnitText> = Vec::new(), kind::Replies;
        /// Count these fields together instead of the identity. The tables and `exempt` are
        /// searched for the first
        key: Vec<Field> = Vec::new(), kind::Key;
        /// Verdicts, each with the percentage of the limit from which it applies
        verdicts: Vec<Grade> =
            vec![Grade { from: 1.0, verdict: Verdict::Defer, at: Location::START }],
            kind::Grades;
        /// Treat recipients who could not be reached as evidence for `habits`; needs `exirate serve
        /// follow`
        habits_failures: bool = false, kind::Flag;
        /// The longest delay of the verdict `delay`: clients give up after five minutes
        longest_delay: f64 = 30.0, kind::Period { most: Some(300.0) };
    }
}

settings! {
    /// What a policy says of where it is evaluated, and of recipients that wait.
    pub struct DeliverySettings {
        /// Evaluate the policy while mail is accepted, or when it is delivered: what is over the limit
        /// then waits and is sent later
        at: At = At::Acceptance, kind::OneOf("at");
        /// With `destination` in the key: how many leave at once; the default is what flows in a
        /// minute
        burst: Option<f64> = None, kind::Burst;
        /// How old mail gets that waits
        longest: f64 = 4.0 * 86_400.0, kind::Period { most: None };
        /// What becomes of it then
        after_longest: AfterWaiting = AfterWaiting::Return, kind::OneOf("after_longest");
    }
}

settings! {
    /// What a table of a policy says of an account, apart from its limits: of its habits, and another
    /// address of a user.
    pub struct HabitsSettings, later 1 {
        /// The verdict on mail of an account that sends unlike before; the default is `off`
        habits: Option<OnHabits> = None, kind::OneOf("habits");
        /// How early an alarm is raised; the default is `normal`
        sensitivity: Option<Sensitivity> = None, kind::OneOf("sensitivity");
        /// In a table of a user only: another address of whoever has the account, to which `contact` of
        /// `[on.crossing]` writes
        contact: Option<String> = None, kind::MailAddress;
    }
}

impl DeliverySettings {
    /// Whether the policy is evaluated when mail is delivered.
    #[must_use]
    #[inline]
    pub fn is_at_delivery(&self) -> bool {
        self.at == At::Delivery
    }
}

impl HabitsSettings {
    /// What a less special table says, where this one says nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            habits: self.habits.or(other.habits),
            sensitivity: self.sensitivity.or(other.sensitivity),
            contact: self.contact.or(other.contact),
        }
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether accounts are compared with their habits where this is said.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.habits.is_some_and(|habits| habits != OnHabits::Off)
    }
}

/// For how long an account is blocked.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// By a crossing.
    pub limits: BlockTime,
    /// By an alarm of habits.
    pub habits: BlockTime,
    /// The reply to its client meanwhile.
    pub reply: DenialReply,
}

impl Default for Blocks {
    /// None is set.
    fn default() -> Self {
        OnCrossing::default().blocks("")
    }
}

impl OnCrossing {
    /// For how long an account is blocked by the policy `name`.
    #[must_use]
    pub fn blocks(&self, name: &str) -> Blocks {
        let is_meant =
            self.deny_policies.is_empty() || self.deny_policies.iter().any(|n| n == name);
        Blocks {
            limits: self.deny.filter(|_| is_meant).unwrap_or(BlockTime::Kept),
            habits: self.deny_habits.unwrap_or(BlockTime::Kept),
            reply: self.deny_reply,
        }
    }
}

impl PolicySettings {
    /// Whether it counts attempts to deliver to a destination, not what a user sends.
    #[must_use]
    #[inline]
    pub fn counts_attempts(&self) -> bool {
        self.key.contains(&Field::Destination)
    }

    /// Whether the policy is only for events in this state.
    #[must_use]
    #[inline]
    pub fn requires(&self, state: State) -> bool {
        self.when.contains(&When::Is { state, not: false })
    }
}
