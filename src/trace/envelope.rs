//! The envelope of a message: enough to find its lines in the logs.

use std::net::IpAddr;

/// The envelope of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// When it was received, in seconds since 1970.
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
    pub authenticated: String,
    /// Whether the message exceeded the limits of size or nesting, so that
    /// parts of it cannot be found.
    pub partial: bool,
}
