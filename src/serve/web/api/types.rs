//! What is in replies of the API, and in requests. Each field says what it is: `openapi.json` is
//! made of this.

use serde::Deserialize;

use crate::json_schema::{Schema, Schemas, described};
use crate::standing::key_state::KeyStateJson;
use crate::standing::override_state::OverrideJson;

described! {
    /// Who asks, and what that may do.
    pub(in crate::serve::web) struct Me {
        /// token:NAME or person:NAME.
        pub(in crate::serve::web) name: String,
        /// view or help.
        pub(in crate::serve::web) role: &'static str,
        /// When the token ends; null if never, or for a person.
        pub(in crate::serve::web) until: Option<String>,
        /// What a page sends as X-CSRF-Token with each change; not needed with an Authorization
        /// header.
        pub(in crate::serve::web) csrf: String,
        /// For how many seconds somebody may be allowed or denied.
        pub(in crate::serve::web) longest: i64,
        /// How many changes may be made on a day.
        pub(in crate::serve::web) changes_a_day: u64,
        /// The release of exirate.
        pub(in crate::serve::web) release: &'static str,
    }

    /// How many keys there are.
    pub(in crate::serve::web) struct Status {
        /// When they were counted.
        pub(in crate::serve::web) at: String,
        /// Keys with a rate.
        pub(in crate::serve::web) keys: u64,
        /// Those whose next event would be refused.
        pub(in crate::serve::web) blocked: u64,
        /// Those that have used four fifths of their limit, and are not blocked.
        pub(in crate::serve::web) close: u64,
        /// What could not be read, in sentences.
        pub(in crate::serve::web) unread: Vec<String>,
    }

    /// A page of keys.
    pub(in crate::serve::web) struct Keys {
        /// When they were read.
        pub(in crate::serve::web) at: String,
        /// The keys, the largest share of a limit first.
        pub(in crate::serve::web) keys: Vec<Row>,
        /// The cursor of the next page; null if this is the last.
        pub(in crate::serve::web) next: Option<String>,
    }

    /// A key against one limit.
    pub(in crate::serve::web) struct Row {
        /// The key for people, with the name of a local user.
        pub(in crate::serve::web) shown: String,
        /// The key as the routes take it.
        pub(in crate::serve::web) pasted: String,
        /// Why the next event passes or is refused.
        pub(in crate::serve::web) reason: String,
        /// How many more events pass now; null if there is no bound, or it is not known.
        pub(in crate::serve::web) remaining: Option<f64>,
        /// The override that decides.
        pub(in crate::serve::web) r#override: Option<OverrideJson>,
        /// The figures.
        pub(in crate::serve::web) state: KeyStateJson,
    }

    /// All of one identity.
    pub(in crate::serve::web) struct Identity {
        /// The key.
        pub(in crate::serve::web) key: String,
        /// Whether the next event of one of its records is refused.
        pub(in crate::serve::web) refused: bool,
        /// Why, in sentences.
        pub(in crate::serve::web) reasons: Vec<String>,
        /// When its rates refuse no more; null if it is not refused, or does not depend on its rates
        /// alone.
        pub(in crate::serve::web) free_at: Option<String>,
        /// Its records, the largest share of a limit first.
        pub(in crate::serve::web) records: Vec<Row>,
        /// The totals that count what it sends.
        pub(in crate::serve::web) totals: Vec<Row>,
        /// The overrides that apply to it.
        pub(in crate::serve::web) overrides: Vec<OverrideJson>,
        /// What its habits say; null if they are not known.
        pub(in crate::serve::web) suspicion: Option<Suspicion>,
    }

    /// What the habits of an account say.
    pub(in crate::serve::web) struct Suspicion {
        /// Whether an alarm waits for an answer.
        pub(in crate::serve::web) suspected: bool,
        /// The score now.
        pub(in crate::serve::web) score: f64,
        /// From which score on an alarm is raised.
        pub(in crate::serve::web) threshold: f64,
        /// When the last alarm was raised.
        pub(in crate::serve::web) alarm_at: Option<String>,
        /// How many strangers were written to lately.
        pub(in crate::serve::web) strangers: u64,
        /// In how many messages.
        pub(in crate::serve::web) messages: u64,
        /// From how many networks that are new.
        pub(in crate::serve::web) networks: u64,
    }

    /// All overrides that are in force.
    pub(in crate::serve::web) struct Overrides {
        /// In the order in which they were set.
        pub(in crate::serve::web) overrides: Vec<OverrideJson>,
    }

    /// What was done.
    pub(in crate::serve::web) struct Changed {
        /// In sentences.
        pub(in crate::serve::web) said: Vec<String>,
        /// How many records were deleted, or alarms answered.
        pub(in crate::serve::web) records: u64,
        /// When the override ends; null if there is none, or it has no end.
        pub(in crate::serve::web) until: Option<String>,
    }
}

/// Declares what a request contains.
macro_rules! asked {
    ($(
        $(#[doc = $about:literal])*
        struct $name:ident {
            $($(#[doc = $what:literal])* $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(in crate::serve::web) struct $name {
            $($(#[doc = $what])* pub(in crate::serve::web) $field: $type,)*
        }

        impl Schema for $name {
            fn schema(all: &mut Schemas) -> serde_json::Value {
                all.object(stringify!($name), concat!($($about),*), |all| vec![$((
                    stringify!($field), concat!($($what),*), <$type as Schema>::schema(all),
                ),)*])
            }
        }
    )*};
}

asked! {
    /// Of which key.
    struct OfKey {
        /// The key.
        key: String,
    }

    /// For how long a key is allowed or denied.
    struct ForATime {
        /// The key.
        key: String,
        /// For how many seconds.
        seconds: i64,
        /// Why.
        reason: String,
    }

    /// A token that a browser keeps as a cookie.
    struct Session {
        /// The token.
        token: String,
    }
}
