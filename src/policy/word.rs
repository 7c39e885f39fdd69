//! The words of the policy language: each an enum with its spelling.

pub use crate::calendar::Every;
use crate::engine::Overridden;
pub use crate::event::Unit;
pub use crate::identity::Field;
pub use crate::rate::habits::Sensitivity;
pub use crate::toml_file::Word;

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

/// Words of modules below this one.
macro_rules! words_below {
    ($($name:ident)+) => {$(
        impl Word for $name {
            const ALL: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                Self::word(self)
            }
        }
    )+};
}

words_below! { Every Field Sensitivity Unit }

words! {
    /// A condition without a value.
    State {
        /// Every event.
        Always = "always",
        /// The client has authenticated.
        Authenticated = "authenticated",
        /// Handed over on this machine, not by SMTP from another.
        Local = "local",
        /// The client is in `identity.relay`.
        Relay = "relay",
        /// A bounce: the envelope sender is empty.
        NullSender = "null_sender",
        /// The mail server's own mail, or root's: only policies that name this apply to it.
        System = "system",
    }
}

words! {
    /// Whether a policy refuses.
    Action {
        /// It does.
        Enforce = "enforce",
        /// It measures, and reports what it would have done.
        Observe = "observe",
    }
}

words! {
    /// When an event over the limit counts.
    Counting {
        /// Not while it is over: measures what was accepted.
        Leaky = "leaky",
        /// Always: measures what was attempted.
        Strict = "strict",
    }
}

words! {
    /// What a policy that cannot be evaluated makes of an event.
    OnError {
        /// Accepts it.
        FailOpen = "fail-open",
        /// Defers it.
        FailClosed = "fail-closed",
    }
}

words! {
    /// What becomes of the mail of an account that is suspected, the mildest first.
    OnHabits {
        /// Habits are neither learned nor compared.
        Off = "off",
        /// It is accepted, and logged.
        Observe = "observe",
        /// It is accepted and frozen.
        Hold = "hold",
        /// It is refused for now (4xx).
        Defer = "defer",
    }
}

words! {
    /// What a denied client is told.
    DenialReply {
        /// It may try again (4xx).
        Defer = "defer",
        /// It shall not (5xx).
        Reject = "reject",
    }
}

impl DenialReply {
    /// The denial with this reply.
    #[must_use]
    pub fn denial(self) -> Overridden {
        match self {
            Self::Defer => Overridden::Deny,
            Self::Reject => Overridden::Reject,
        }
    }
}

words! {
    /// When a policy is evaluated.
    At {
        /// While mail is accepted.
        Acceptance = "acceptance",
        /// When Exim routes a recipient of accepted mail.
        Delivery = "delivery",
    }
}

words! {
    /// What becomes of a recipient that has waited long enough.
    AfterWaiting {
        /// Its mail is returned to the sender.
        Return = "return",
        /// It is delivered, over the limit.
        Deliver = "deliver",
    }
}

words! {
    /// What a policy makes of an event, the mildest first.
    Verdict {
        /// Nothing against it.
        Accept = "accept",
        /// Accept it and write a line to the log.
        Log = "log",
        /// Accept it after a delay.
        Delay = "delay",
        /// Accept it and freeze it.
        Hold = "hold",
        /// Refuse it for now (4xx).
        Defer = "defer",
        /// Refuse it (5xx).
        Reject = "reject",
    }
}

words! {
    /// What `{…}` in a text or an argument stands for.
    Placeholder {
        /// The policy.
        Policy = "policy",
        /// The key that is over.
        Key = "key",
        /// The rule that the limit comes from.
        Rule = "rule",
        /// The unit.
        Unit = "unit",
        /// The rate.
        Rate = "rate",
        /// The limit.
        Limit = "limit",
        /// The period.
        Period = "period",
        /// How many more would pass.
        Remaining = "remaining",
        /// When one more would pass.
        RetryAfter = "retry_after",
        /// The login.
        Auth = "auth",
        /// The client's address.
        Client = "client",
        /// The envelope sender.
        Sender = "sender",
        /// The recipient.
        Recipient = "recipient",
        /// The script of a web host.
        Script = "script",
        /// The message id.
        MessageId = "message_id",
        /// When.
        Time = "time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sound<T: Word + PartialEq + std::fmt::Debug>() {
        for (at, &word) in T::ALL.iter().enumerate() {
            assert_eq!(T::of(word.word()), Some(word));
            assert!(T::ALL.iter().skip(at + 1).all(|other| other.word() != word.word()));
        }
    }

    #[test]
    fn each_word_means_one_thing() {
        is_sound::<Unit>();
        is_sound::<Field>();
        is_sound::<State>();
        is_sound::<Action>();
        is_sound::<Counting>();
        is_sound::<OnError>();
        is_sound::<OnHabits>();
        is_sound::<DenialReply>();
        is_sound::<Sensitivity>();
        is_sound::<Verdict>();
        is_sound::<At>();
        is_sound::<AfterWaiting>();
        is_sound::<Placeholder>();
        assert_eq!(Unit::of("Messages"), None);
    }
}
