//! The envelope of a message: enough to find its lines in the logs.

use std::net::IpAddr;

/// The envelope of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "cli", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Envelope {
    /// When it was received, in seconds since 1970.
    #[cfg_attr(feature = "cli", serde(serialize_with = "json::time"), schemars(with = "String"))]
    pub time: i64,
    /// Exim's id, or that of another source; may be empty.
    pub id: String,
    /// The sender; empty for a bounce.
    pub sender: String,
    /// The recipients.
    pub recipients: Vec<String>,
    /// The client's address, if it was received by network.
    pub client: Option<IpAddr>,
    /// The authenticated id of the client; empty without authentication.
    #[cfg_attr(
        feature = "cli",
        serde(serialize_with = "json::unless_empty"),
        schemars(with = "Option<String>")
    )]
    pub authenticated: String,
    /// Whether the message exceeded the limits of size or nesting, so that
    /// parts of it cannot be found.
    pub partial: bool,
}

/// How the fields are written as JSON.
#[cfg(feature = "cli")]
mod json {
    use serde::{Serialize as _, Serializer};

    use crate::text::iso_second;

    pub(super) fn time<S: Serializer>(time: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&iso_second(*time))
    }

    pub(super) fn unless_empty<S: Serializer>(
        text: &str,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Some(text).filter(|text| !text.is_empty()).serialize(serializer)
    }
}
