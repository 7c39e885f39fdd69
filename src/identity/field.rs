//! The fields of an event of which identities are made.

use std::borrow::Cow;
use std::net::IpAddr;

use super::network::Cidr;

/// What is known of an event; identities are made of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The login.
    Auth,
    /// The local Unix account that hands over the message.
    LocalAccount,
    /// The script of a web host that hands over the message.
    Script,
    /// The client's address, masked.
    Client,
    /// The network of an IPv6 client, of 56 bits: what a provider gives one customer.
    Client56,
    /// The network of an IPv6 client, of 48 bits: what a provider gives one site.
    Client48,
    /// The envelope sender.
    Sender,
    /// The domain of the envelope sender.
    SenderDomain,
    /// The recipient.
    Recipient,
    /// The domain of the recipient.
    RecipientDomain,
    /// The provider of the recipient's mail: its domain, by a table of domains that belong
    /// together.
    Destination,
    /// The name in HELO.
    Helo,
    /// The mail server that exirate runs on, by its host name.
    Server,
}

impl Field {
    /// All of them, in the order in which they are listed to people.
    pub const ALL: &[Self] = &[
        Self::Auth,
        Self::LocalAccount,
        Self::Script,
        Self::Client,
        Self::Client56,
        Self::Client48,
        Self::Sender,
        Self::SenderDomain,
        Self::Recipient,
        Self::RecipientDomain,
        Self::Destination,
        Self::Helo,
        Self::Server,
    ];

    /// How it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::LocalAccount => "local_account",
            Self::Script => "script",
            Self::Client => "client",
            Self::Client56 => "client_56",
            Self::Client48 => "client_48",
            Self::Sender => "sender",
            Self::SenderDomain => "sender_domain",
            Self::Recipient => "recipient",
            Self::RecipientDomain => "recipient_domain",
            Self::Destination => "destination",
            Self::Helo => "helo",
            Self::Server => "server",
        }
    }

    /// The one that is written so.
    #[must_use]
    pub fn of(word: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| field.word().as_bytes() == word)
    }

    /// Whether any client can choose it.
    #[must_use]
    pub fn is_claimed(self) -> bool {
        matches!(self, Self::Sender | Self::SenderDomain | Self::Helo)
    }

    /// Whether many who have nothing to do with each other share a value of it.
    #[must_use]
    pub fn is_of_group(self) -> bool {
        match self {
            Self::SenderDomain
            | Self::RecipientDomain
            | Self::Destination
            | Self::Helo
            | Self::Server => true,
            Self::Auth | Self::LocalAccount | Self::Script | Self::Sender | Self::Recipient => {
                false
            }
            field => field.is_of_client() && field != Self::Client,
        }
    }

    /// The wider network of a client, which this field is; `None` of IPv4 and of this machine.
    #[must_use]
    pub fn wider_network(self, client: IpAddr) -> Option<Cidr> {
        let bits = match self {
            Self::Client56 => 56,
            Self::Client48 => 48,
            _ => return None,
        };
        let client = client.to_canonical();
        (client.is_ipv6() && !client.is_loopback()).then(|| Cidr::around(client, bits))
    }

    /// Whether it is the client, or a network of it.
    #[must_use]
    pub fn is_of_client(self) -> bool {
        matches!(self, Self::Client | Self::Client56 | Self::Client48)
    }

    /// Whether it is of a recipient, and not of who sends.
    #[must_use]
    pub fn is_of_recipient(self) -> bool {
        matches!(self, Self::Recipient | Self::RecipientDomain | Self::Destination)
    }

    /// Whether it is of an address of the envelope, which mail servers may read differently: see
    /// [`mailbox`](super::mailbox).
    #[must_use]
    pub fn is_of_address(self) -> bool {
        matches!(self, Self::Sender | Self::SenderDomain) || self.is_of_recipient()
    }

    /// Whether an override that names no field means it. The others are chosen by
    /// strangers, so an override must name them: `sender:bob@example.org`.
    #[must_use]
    pub fn has_bare_names(self) -> bool {
        matches!(self, Self::Auth | Self::LocalAccount | Self::Script) || self.is_of_client()
    }
}

/// Takes the first field from `rest`, `auth:alice` of `auth:alice,client:192.0.2.7`. A
/// doubled comma is one in a value.
pub(crate) fn first_field<'a>(rest: &mut Option<&'a [u8]>) -> Option<Cow<'a, [u8]>> {
    let text = (*rest)?;
    let (mut end, mut doubled) = (0, false);
    loop {
        match text.get(end..) {
            Some([b',', b',', ..]) => {
                end += 2;
                doubled = true;
            }
            Some([b',', after @ ..]) => {
                *rest = Some(after);
                break;
            }
            Some([_, ..]) => end += 1,
            _ => {
                *rest = None;
                break;
            }
        }
    }
    let field = text.get(..end).unwrap_or_default();
    if !doubled {
        return Some(Cow::Borrowed(field));
    }
    let mut single = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        single.push(byte);
        if byte == b',' {
            bytes.next();
        }
    }
    Some(Cow::Owned(single))
}
