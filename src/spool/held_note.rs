//! A note that a mail server was told to hold a message: Postfix keeps no reason for that, and
//! Sendmail a short one.

/// How the reason begins for which Sendmail quarantines a message that a policy holds.
pub const HELD_BY: &str = "exirate: policy ";
/// Bytes in which a field ends, and `%`, which stands before the number of one.
const SPECIAL: [u8; 4] = *b"\t\n\r%";

/// A line of `held.log`. Fields that a later version adds at its end are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldNote {
    /// When the message was complete, in seconds since 1970.
    pub at: i64,
    /// Its name in the queue.
    pub id: String,
    /// The policy that holds it.
    pub policy: String,
    /// Who was counted, as in `auth:alice@example.org`.
    pub key: Vec<u8>,
    /// Why it is held.
    pub why: String,
    /// Until when.
    pub until: HeldUntil,
}

/// Until when a message is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeldUntil {
    /// Somebody releases it.
    #[default]
    Released,
    /// There is room within a limit at delivery for this event; later mail of its key waits behind it.
    Room(String),
    /// The same, but nothing waits behind it: its sender is denied, it is larger than the limit, or it was
    /// not in the queue when that was read.
    Aside(String),
    /// Now: it has been counted.
    Now,
    /// It was held: it has been released or deleted, or is gone. If it is on hold again, that is for
    /// another reason.
    Left,
}

/// The words for all but the first.
const ROOM: &str = "waits";
const ASIDE: &str = "aside";
const NOW: &str = "leaves";
const LEFT: &str = "left";

impl HeldNote {
    /// Its fields with tabs between them. In each, special bytes are written as `%09`.
    pub(super) fn line(&self) -> Vec<u8> {
        let Self { at, id, policy, key, why, until } = self;
        let mut line = at.to_string().into_bytes();
        let more = match until {
            HeldUntil::Released => vec![],
            HeldUntil::Room(event) => vec![ROOM.as_bytes(), event.as_bytes()],
            HeldUntil::Aside(event) => vec![ASIDE.as_bytes(), event.as_bytes()],
            HeldUntil::Now => vec![NOW.as_bytes()],
            HeldUntil::Left => vec![LEFT.as_bytes()],
        };
        let fields = [id.as_bytes(), policy.as_bytes(), key, why.as_bytes()];
        for field in fields.into_iter().chain(more) {
            line.push(b'\t');
            for byte in field {
                match SPECIAL.contains(byte) {
                    true => line.extend_from_slice(format!("%{byte:02x}").as_bytes()),
                    false => line.push(*byte),
                }
            }
        }
        line
    }

    /// The note in a line; `None` if it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b'\t').map(field);
        let mut text = || Some(String::from_utf8_lossy(&fields.next()??).into_owned());
        let (at, id, policy) = (text()?.parse().ok()?, text()?, text()?);
        let key = fields.next()??;
        let mut text = || Some(String::from_utf8_lossy(&fields.next()??).into_owned());
        let why = text()?;
        let until = match text().as_deref() {
            Some(ROOM) => HeldUntil::Room(text()?),
            Some(ASIDE) => HeldUntil::Aside(text()?),
            Some(NOW) => HeldUntil::Now,
            Some(LEFT) => HeldUntil::Left,
            _ => HeldUntil::Released,
        };
        Some(Self { at, id, policy, key, why, until })
    }
}

/// The bytes of a field.
fn field(written: &[u8]) -> Option<Vec<u8>> {
    let mut parts = written.split(|byte| *byte == b'%');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        bytes.extend_from_slice(rest);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = HeldNote {
            at: -1,
            id: "4XYZ".to_owned(),
            policy: "out".to_owned(),
            key: b"auth:a\tb\n%\xff@example.org".to_vec(),
            why: "9.0 messages, limit 5/1h".to_owned(),
            until: HeldUntil::Released,
        };
        let line = note.line();
        assert!(!line.contains(&b'\n'));
        assert_eq!(HeldNote::parse(&line), Some(note.clone()));
        assert_eq!(HeldNote::parse(&[&line[..], b"\tlater\t%"].concat()), Some(note.clone()));
        assert_eq!(HeldNote::parse(&HeldNote::default().line()), Some(HeldNote::default()));
        let event = || "{\"auth\":\"a\tb%\"}".to_owned();
        let all = [HeldUntil::Room(event()), HeldUntil::Aside(event()), HeldUntil::Now];
        for until in all.into_iter().chain([HeldUntil::Left]) {
            let note = HeldNote { until, ..note.clone() };
            assert_eq!(HeldNote::parse(&note.line()), Some(note));
        }
        for line in ["", "1", "1\t2\t3\t4", "x\t2\t3\t4\t5", "1\t2\t3\t%4\t5"] {
            assert_eq!(HeldNote::parse(line.as_bytes()), None, "{line}");
        }
    }
}
