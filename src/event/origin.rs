//! Where an event comes from.

use std::net::{IpAddr, Ipv4Addr};

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

    /// The client that Postfix names so. It calls one `unknown` that has closed its connection
    /// already: they have one key, that of the unspecified address.
    #[must_use]
    pub fn of_postfix(client: &str) -> Self {
        match client {
            "unknown" => Self::Client(Ipv4Addr::UNSPECIFIED.into()),
            _ => Self::of_client(client.parse().ok()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_postfix_does_not_know_has_an_address_to_count_for() {
        let unspecified = Origin::Client([0, 0, 0, 0].into());
        assert_eq!(Origin::of_postfix("unknown"), unspecified);
        assert_eq!(Origin::of_postfix("192.0.2.7"), Origin::Client([192, 0, 2, 7].into()));
        assert_eq!(Origin::of_postfix(""), Origin::Unknown);
    }
}
