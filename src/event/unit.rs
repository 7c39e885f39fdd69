//! What of an event is counted.

macro_rules! units {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Unit { $($(#[$doc])* $variant,)+ }

        impl Unit {
            /// All of them, in the order in which they are listed to people.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// How it is written.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
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
    /// Different client addresses of one identity.
    UniqueClients = "unique_clients",
    /// Bytes of messages.
    Bytes = "bytes",
    /// Connections.
    Connections = "connections",
    /// Recipients that were refused.
    RejectedRecipients = "rejected_recipients",
    /// Failed authentications.
    AuthFailures = "auth_failures",
}
