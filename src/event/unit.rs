//! What of an event is counted.

macro_rules! units {
    ($(#[doc = $doc:literal] $variant:ident = $word:literal,)+) => {
        /// What is counted. The place of a unit is its code in images of policies: another one
        /// is added at the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Unit { $(#[doc = $doc] $variant,)+ }

        impl Unit {
            /// All of them, in the order in which they are listed to people.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// How it is written.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// What it is, for the reference.
            #[cfg(test)]
            pub(crate) fn about(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim().trim_end_matches('.'),)+ }
            }
        }
    };
}

units! {
    /// Messages.
    Messages = "messages",
    /// Recipients.
    Recipients = "recipients",
    /// Different recipients.
    UniqueRecipients = "unique_recipients",
    /// Different senders.
    UniqueSenders = "unique_senders",
    /// Different client addresses of one identity: many are a sign of a stolen password.
    UniqueClients = "unique_clients",
    /// Bytes of messages.
    Bytes = "bytes",
    /// Connections.
    Connections = "connections",
    /// Recipients that the mail server refused.
    RejectedRecipients = "rejected_recipients",
    /// Failed authentications.
    AuthFailures = "auth_failures",
    /// Recipients of one message: a cap, without a period.
    RecipientsPerMessage = "recipients_per_message",
    /// Recipients of accepted mail whose delivery failed permanently.
    FailedRecipients = "failed_recipients",
    /// Those of them that do not exist: many are a sign of a bought list.
    UnknownRecipients = "unknown_recipients",
    /// Bytes of one message: a cap, without a period.
    MessageSize = "message_size",
    /// The share of recipients of accepted mail whose delivery failed permanently.
    FailedShare = "failed_share",
    /// The share of them that do not exist.
    UnknownShare = "unknown_share",
    /// Recipients of accepted mail that their server put off because too much came at once or too fast.
    ThrottledRecipients = "throttled_recipients",
}

impl Unit {
    /// Whether it counts accepted recipients.
    #[must_use]
    pub fn is_of_recipients(self) -> bool {
        matches!(self, Self::Recipients | Self::UniqueRecipients | Self::RecipientsPerMessage)
    }

    /// Whether its limit is a number of one message: nothing is remembered for the next one.
    #[must_use]
    pub fn is_cap(self) -> bool {
        matches!(self, Self::RecipientsPerMessage | Self::MessageSize)
    }

    /// Whether it counts bytes, which are all known when the message has been received.
    #[must_use]
    pub fn is_of_bytes(self) -> bool {
        matches!(self, Self::Bytes | Self::MessageSize)
    }

    /// Whether it counts what a command came to, which nobody knows before the next one.
    #[must_use]
    pub fn is_outcome(self) -> bool {
        matches!(self, Self::RejectedRecipients | Self::AuthFailures) || self.is_of_delivery()
    }

    /// Whether it counts what became of mail that was accepted: the log of the mail server says
    /// so later.
    #[must_use]
    pub fn is_of_delivery(self) -> bool {
        matches!(self, Self::FailedRecipients | Self::UnknownRecipients | Self::ThrottledRecipients)
    }

    /// Whether the log of the mail server says a part of what it counts.
    #[must_use]
    pub fn is_from_log(self) -> bool {
        self.is_of_delivery() || self.is_share()
    }

    /// Whether it is the share of what went out that failed.
    #[must_use]
    pub fn is_share(self) -> bool {
        matches!(self, Self::FailedShare | Self::UnknownShare)
    }

    /// Whether each one of it is one of `other` as well.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        match self {
            Self::FailedRecipients => matches!(other, Self::FailedRecipients | Self::FailedShare),
            Self::UnknownRecipients => {
                other.is_share()
                    || matches!(other, Self::UnknownRecipients | Self::FailedRecipients)
            }
            _ => self == other,
        }
    }
}
