//! Messages between the library and the agent: what is damaged is refused, what is read is
//! the same when it is written again, and no message is read as another one.
#![no_main]

use arbitrary::Arbitrary;
use exirate::cluster::wire::{
    HEADER_BYTES, MESSAGE_BYTES_MAX, Reply, Request, VERSION, event_of, message_bytes, read_reply,
    read_request, write_decisions, write_request,
};
use libfuzzer_sys::fuzz_target;

/// The offsets of the fields that [`sealed`] sets.
const SIZE: usize = 4;
const FORMAT: usize = 8;
const KIND: usize = 10;
const CRC_BYTES: usize = 4;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Bytes as a message.
    bytes: &'a [u8],
    kind: u16,
    /// A change of a message that was sound.
    change: (u16, u8),
    /// A reply to it.
    reply: &'a [u8],
    status: u16,
}

fuzz_target!(|input: Input<'_>| {
    let _ = event_of(input.bytes);
    if let Ok(Some(size)) = message_bytes(input.bytes) {
        assert!((HEADER_BYTES + CRC_BYTES..=MESSAGE_BYTES_MAX).contains(&size));
    }
    let _ = read_request(input.bytes);
    let message = sealed(input.bytes, b"EXRQ", input.kind);
    let Ok(request) = read_request(&message) else { return };
    assert_eq!(event_of(&message), request.event);
    let again = rewritten(&request);
    assert_eq!(read_request(&again).as_ref(), Ok(&request));
    let mut changed = again.clone();
    let at = usize::from(input.change.0) % changed.len();
    changed[at] ^= input.change.1;
    if changed != again {
        assert!(read_request(&changed).is_err(), "the checksum does not match");
    }
    reply(&input, &request);
});

/// The request, written again.
fn rewritten(request: &Request<'_>) -> Vec<u8> {
    let mut message = Vec::new();
    let written = write_request(&mut message, request.event, request.deadline, &request.checks);
    written.expect("what was read can be written");
    assert_eq!(message_bytes(&message), Ok(Some(message.len())));
    message
}

/// A reply to `request` is refused, or the same when it is written again.
fn reply(input: &Input<'_>, request: &Request<'_>) {
    let _ = read_reply(input.reply, request.event, &request.checks);
    let message = sealed(input.reply, b"EXRP", input.status);
    let event = event_of(&message);
    let Ok(Reply::Decided(decisions)) = read_reply(&message, event, &request.checks) else {
        return;
    };
    let mut again = Vec::new();
    write_decisions(&mut again, event, &decisions);
    let mut once_more = Vec::new();
    match read_reply(&again, event, &request.checks) {
        Ok(Reply::Decided(decisions)) => write_decisions(&mut once_more, event, &decisions),
        other => panic!("{other:?}"),
    }
    assert_eq!(again, once_more);
}

/// `bytes` as a message of this kind with a size, a version and a checksum that fit, if
/// they are long enough.
fn sealed(bytes: &[u8], magic: &[u8; 4], kind: u16) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER_BYTES + CRC_BYTES {
        return bytes;
    }
    bytes[..SIZE].copy_from_slice(magic);
    let size = bytes.len() as u32;
    bytes[SIZE..FORMAT].copy_from_slice(&size.to_le_bytes());
    bytes[FORMAT..KIND].copy_from_slice(&VERSION.to_le_bytes());
    // Mostly a kind that there is.
    let kind = if kind < 0x8000 { kind % 3 } else { kind };
    bytes[KIND..KIND + 2].copy_from_slice(&kind.to_le_bytes());
    let end = bytes.len() - CRC_BYTES;
    let crc = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    bytes
}
