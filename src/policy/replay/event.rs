//! An event as it is described.

use crate::event::{AclStage, Event};
use crate::policy::word::{Unit, Word};
use crate::rate::Timestamp;

/// The most recipients of an event.
pub const RECIPIENTS_MAX: usize = 100_000;

/// What happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayEvent {
    /// When.
    pub time: Timestamp,
    /// What it is.
    pub stage: Stage,
    /// Events with the same session are of one SMTP connection; one without is of its
    /// own.
    pub session: Option<String>,
    /// What is known of it, but its recipients. Without a client, it is of a program, unless
    /// `local` is `Some(false)`; what follows from the fields is not filled in.
    pub event: Event<String>,
    /// The recipients.
    pub recipients: Recipients,
    /// The size of the message in bytes.
    pub size: Option<u64>,
    /// Whether the client is this machine; of an event with a login, it says nothing.
    /// `None`: it is if there is no client, or a loopback address.
    pub local: Option<bool>,
    /// Whether it is the mail server's own mail or root's. `None`: it is if there is no client
    /// and the local account is that of one of them.
    pub system: Option<bool>,
    /// What came of it for reasons other than the policy.
    pub outcome: Option<ReplayOutcome>,
}

/// The recipients of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipients {
    /// Their addresses.
    Addresses(Vec<String>),
    /// Only how many they are.
    Count(u32),
}

impl Default for Recipients {
    fn default() -> Self {
        Self::Addresses(Vec::new())
    }
}

impl Recipients {
    /// Their addresses, as far as they are known.
    pub(super) fn addresses(&self) -> &[String] {
        match self {
            Self::Addresses(addresses) => addresses,
            Self::Count(_) => &[],
        }
    }

    /// How many they are, if only that is known; else 0.
    pub(super) fn count(&self) -> u32 {
        match self {
            Self::Addresses(_) => 0,
            Self::Count(count) => *count,
        }
    }
}

macro_rules! stages {
    ($($(#[$doc:meta])* $variant:ident = $word:literal => $acl:ident,)+) => {
        /// What an event is: a whole message, or the ACL stage at which the policies are
        /// evaluated.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Stage {
            #[default]
            $($(#[$doc])* $variant,)+
        }

        impl Word for Stage {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl Stage {
            /// The ACL stage.
            pub(super) fn acl(self) -> AclStage {
                match self { $(Self::$variant => AclStage::$acl,)+ }
            }
        }
    };
}

stages! {
    /// A message by SMTP: RCPT for each recipient, then DATA.
    Message = "message" => Data,
    /// The client connects.
    Connect = "connect" => Connect,
    /// HELO or EHLO.
    Helo = "helo" => Helo,
    /// STARTTLS.
    StartTls = "starttls" => StartTls,
    /// AUTH.
    Auth = "auth" => Auth,
    /// MAIL: a message begins.
    Mail = "mail" => Mail,
    /// RCPT.
    Rcpt = "rcpt" => Rcpt,
    /// DATA, before the message is received.
    Predata = "predata" => Predata,
    /// The message has been received.
    Data = "data" => Data,
    /// QUIT.
    Quit = "quit" => Quit,
    /// A message that is not received by SMTP.
    NotSmtp = "not-smtp" => NotSmtp,
    /// A router, after the message has been received.
    Router = "router" => Outside,
    /// The log says what became of a recipient of mail that was accepted.
    Delivery = "delivery" => Delivery,
}

impl Stage {
    /// Whether what is counted once a message is counted again from here on.
    pub(super) fn begins_a_message(self) -> bool {
        matches!(self, Self::Message | Self::Mail | Self::NotSmtp | Self::Router)
    }
}

/// What came of an event for reasons other than the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The authentication failed.
    Failed,
    /// The recipient was refused.
    Rejected,
    /// The recipient could not be delivered to, for good.
    Undeliverable,
    /// The same: it does not exist.
    Unknown,
}

impl Word for ReplayOutcome {
    const ALL: &'static [Self] =
        &[Self::Failed, Self::Rejected, Self::Undeliverable, Self::Unknown];

    fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Undeliverable => "undeliverable",
            Self::Unknown => "unknown",
        }
    }
}

impl ReplayOutcome {
    /// What is counted for it.
    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Failed => Unit::AuthFailures,
            Self::Rejected => Unit::RejectedRecipients,
            Self::Undeliverable => Unit::FailedRecipients,
            Self::Unknown => Unit::UnknownRecipients,
        }
    }

    /// The stage at which it can be.
    pub(super) fn stage(self) -> Stage {
        match self {
            Self::Failed => Stage::Auth,
            Self::Rejected => Stage::Rcpt,
            Self::Undeliverable | Self::Unknown => Stage::Delivery,
        }
    }
}
