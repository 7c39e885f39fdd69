//! Where an event comes from.

use std::net::IpAddr;

/// Where an event comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// There is no client address: a program of this machine hands the message over.
    Program,
    /// The client with this address.
    Client(IpAddr),
    /// A client whose address is not known.
    #[default]
    Unknown,
}

impl Origin {
    /// A client, whose address may not be known.
    #[must_use]
    pub fn of_client(client: Option<IpAddr>) -> Self {
        client.map_or(Self::Unknown, Self::Client)
    }

    /// The client's address.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Client(client) => Some(client),
            Self::Program | Self::Unknown => None,
        }
    }
}

/// Whether an event is `local`: handed over by what runs on this machine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local(bool);

impl Local {
    /// It is if it has no client address, or if its client is a loopback address or the one of
    /// the `server` that it is connected to; never if the client has used AUTH: it is somebody
    /// who has logged in, as by a webmail on this machine.
    #[must_use]
    #[inline]
    pub fn of(
        has_used_auth: bool,
        origin: Origin,
        server: impl FnOnce() -> Option<IpAddr>,
    ) -> Self {
        Self(match origin {
            _ if has_used_auth => false,
            Origin::Program => true,
            Origin::Unknown => false,
            Origin::Client(client) => {
                let client = client.to_canonical();
                let is_own = || server().is_some_and(|server| server.to_canonical() == client);
                client.is_loopback() || is_own()
            }
        })
    }

    /// Whether it is.
    #[must_use]
    pub fn is(self) -> bool {
        self.0
    }
}
