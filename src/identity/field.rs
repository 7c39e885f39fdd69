//! The fields of an event of which identities are made.

use std::borrow::Cow;

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
    /// The envelope sender.
    Sender,
    /// The domain of the envelope sender.
    SenderDomain,
    /// The recipient.
    Recipient,
    /// The domain of the recipient.
    RecipientDomain,
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
        Self::Sender,
        Self::SenderDomain,
        Self::Recipient,
        Self::RecipientDomain,
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
            Self::Sender => "sender",
            Self::SenderDomain => "sender_domain",
            Self::Recipient => "recipient",
            Self::RecipientDomain => "recipient_domain",
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

    /// Whether it is of a recipient, and not of who sends.
    #[must_use]
    pub fn is_of_recipient(self) -> bool {
        matches!(self, Self::Recipient | Self::RecipientDomain)
    }

    /// Whether an override that names no field means it. The others are chosen by
    /// strangers, so an override must name them: `sender:bob@example.org`.
    #[must_use]
    pub fn has_bare_names(self) -> bool {
        matches!(self, Self::Auth | Self::LocalAccount | Self::Script | Self::Client)
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
