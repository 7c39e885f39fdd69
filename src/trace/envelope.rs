//! What is kept of a message in plain: enough to find its lines in the logs.

use std::net::IpAddr;

/// The envelope of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// When it passed, in seconds since 1970.
    pub time: i64,
    /// Exim's id for it, or whatever its source calls it; may be empty.
    pub id: String,
    /// Who sent it; empty for a bounce.
    pub sender: String,
    /// Who was to get it.
    pub recipients: Vec<String>,
    /// From where it came, if by network.
    pub client: Option<IpAddr>,
    /// As whom the client authenticated; empty if it did not.
    pub authenticated: String,
    /// Whether the message was larger or more deeply nested than is digested,
    /// so that some of it cannot be found.
    pub partial: bool,
}
