//! What whoever describes an event knows besides its fields.

use std::net::IpAddr;

/// Whether what the local account `name` hands over is the mail server's own or root's, where
/// nothing but the name is known: root, the mail server's user by a name that distributions
/// give it, or that of the mail front ends, which sends alerts.
pub(super) fn is_system_account(name: &str) -> bool {
    ["root", "Debian-exim", "exim", "mail", "mailnull", "exirate-mail"].contains(&name)
}

/// What whoever describes an event knows besides its fields.
#[derive(Clone, Copy)]
pub struct Circumstances<'s> {
    /// The client has used AUTH.
    pub has_used_auth: bool,
    /// Finds the address of the server that the client is connected to; called where it
    /// matters.
    pub server: &'s dyn Fn() -> Option<IpAddr>,
    /// How a program hands the message over.
    pub handed_over: HandedOver<'s>,
    /// A router runs, after the message has been received.
    pub in_router: bool,
}

/// How a program hands a message over, for [`Event::system`](super::Event::system).
#[derive(Clone, Copy)]
pub enum HandedOver<'s> {
    /// In an SMTP dialogue, behind which anybody may be.
    Dialogue,
    /// On standard input, by a process; whether it is one of the mail server's user or of
    /// root.
    ByProcess(&'s dyn Fn() -> bool),
    /// On standard input, by the local account, of which only the name is known.
    ByAccount,
    /// Whoever describes the event says whether it is the mail server's own or root's.
    Said(bool),
}

impl Default for Circumstances<'_> {
    fn default() -> Self {
        Self {
            has_used_auth: false,
            server: &|| None,
            handed_over: HandedOver::Dialogue,
            in_router: false,
        }
    }
}
