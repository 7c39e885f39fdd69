//! The encoding of an envelope in a log's record.

use std::net::IpAddr;

use super::super::Envelope;

/// The maximum length of an id, address or name; longer ones are cut off.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// Flag: a part of the message is not digested.
const PARTIAL: u8 = 1;
/// Flag: the client has an IPv4 address.
const FOUR: u8 = 2;
/// Flag: the client has an IPv6 address.
const SIX: u8 = 4;

/// Encodes an envelope.
pub(super) fn encode(envelope: &Envelope) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + 32 * (envelope.recipients.len() + 1));
    bytes.extend(envelope.time.to_le_bytes());
    let client = match envelope.client {
        None => 0,
        Some(IpAddr::V4(_)) => FOUR,
        Some(IpAddr::V6(_)) => SIX,
    };
    bytes.push(if envelope.partial { PARTIAL } else { 0 } | client);
    match envelope.client {
        None => {}
        Some(IpAddr::V4(address)) => bytes.extend(address.octets()),
        Some(IpAddr::V6(address)) => bytes.extend(address.octets()),
    }
    for text in [&envelope.id, &envelope.sender, &envelope.authenticated] {
        put_text(&mut bytes, text);
    }
    let count = u32::try_from(envelope.recipients.len()).unwrap_or(u32::MAX);
    bytes.extend(count.to_le_bytes());
    envelope.recipients.iter().take(count as usize).for_each(|text| put_text(&mut bytes, text));
    bytes
}

/// Appends a text with its length before it.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
    // It is not longer than the limit.
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// The time of an encoded envelope.
pub(super) fn time(bytes: &[u8]) -> Option<i64> {
    bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
}

/// Whether an encoded envelope has the flag of a partial message.
pub(super) fn is_partial(bytes: &[u8]) -> bool {
    bytes.get(size_of::<i64>()).is_some_and(|flags| flags & PARTIAL != 0)
}

/// Decodes an envelope; `None` if it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Envelope> {
    let mut rest = Rest(bytes);
    let time = i64::from_le_bytes(rest.take()?);
    let [flags] = rest.take()?;
    let client = match flags & (FOUR | SIX) {
        0 => None,
        FOUR => Some(IpAddr::from(rest.take::<4>()?)),
        SIX => Some(IpAddr::from(rest.take::<16>()?)),
        _ => return None,
    };
    let (id, sender, authenticated) = (rest.text()?, rest.text()?, rest.text()?);
    let count = u32::from_le_bytes(rest.take()?);
    // Each takes at least two bytes, which limits the allocation.
    let recipients = (0..count).map(|_| rest.text()).collect::<Option<_>>()?;
    let partial = flags & PARTIAL != 0;
    let whole = flags & !(PARTIAL | FOUR | SIX) == 0 && rest.0.is_empty();
    whole.then_some(Envelope { time, id, sender, recipients, client, authenticated, partial })
}

/// The bytes that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_round_trip() {
        let mut envelope = Envelope { time: -7, ..Envelope::default() };
        for client in ["", "192.0.2.1", "2001:db8::1"] {
            envelope.client = client.parse().ok();
            for recipients in 0..3 {
                envelope.recipients = (0..recipients).map(|n| format!("r{n}@ü.example")).collect();
                envelope.partial = recipients == 1;
                let bytes = encode(&envelope);
                assert_eq!(decode(&bytes), Some(envelope.clone()));
                assert_eq!(time(&bytes), Some(-7));
                assert_eq!(is_partial(&bytes), envelope.partial);
                for end in 0..bytes.len() {
                    assert_eq!(decode(&bytes[..end]), None, "{end}");
                }
            }
            envelope.id = "1rABCD-00000001x2a-3YzQ".to_owned();
            envelope.sender = "a@example.org".to_owned();
            envelope.authenticated = "a".to_owned();
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let sender = "ü".repeat(600) + "@example.org";
        let envelope = Envelope { sender, ..Envelope::default() };
        let found = decode(&encode(&envelope)).unwrap();
        assert_eq!(found.sender, "ü".repeat(512));
        let sender = format!("x{}", "ü".repeat(600));
        let found = decode(&encode(&Envelope { sender, ..Envelope::default() })).unwrap();
        assert_eq!(found.sender.len(), 1023);
    }

    #[test]
    fn random_bytes_do_not_panic() {
        fn holds(bytes: Vec<u8>) -> bool {
            decode(&bytes).is_none_or(|envelope| encode(&envelope) == bytes)
        }
        kit::quick_check().tests(10_000).quickcheck(holds as fn(Vec<u8>) -> bool);
        let mut many = encode(&Envelope::default());
        let count = many.len() - 4;
        many[count..].fill(0xFF);
        assert_eq!(decode(&many), None);
    }
}
