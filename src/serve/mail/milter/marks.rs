//! Whether headers, as they arrive, show that a program wrote a message or a list sends it.

use super::packet::texts;
use crate::rate::habits;

/// How much of a header is looked at: those that mark a message are short.
const HEADER_MAX: usize = 256;

/// What the headers of a message have shown so far.
#[derive(Debug, Default)]
pub struct Marks {
    /// The start of the header that arrives.
    header: Vec<u8>,
    /// One marks the message.
    pub found: bool,
}

impl Marks {
    /// Takes data of a header: a name and a value, each ended by a zero byte. `last` if it is the
    /// end of that header.
    pub fn header(&mut self, data: &[u8], last: bool) {
        let room = HEADER_MAX.saturating_sub(self.header.len()).min(data.len());
        self.header.extend_from_slice(data.get(..room).unwrap_or_default());
        if last {
            let header = std::mem::take(&mut self.header);
            let mut texts = texts(&header);
            if let Some(name) = texts.next() {
                self.found |= habits::marks(name, texts.next().unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_marks_a_message_however_it_arrives() {
        for (data, is_mark) in [
            (&b"List-Id\0<x.example>\0"[..], true),
            (b"auto-submitted\0 auto-replied\0", true),
            (b"Auto-Submitted\0no\0", false),
            (b"Precedence\0bulk\0", true),
            (b"Subject\0List-Id\0", false),
            (b"", false),
            (b"\0\0\0", false),
        ] {
            for at in 0..=data.len() {
                let mut marks = Marks::default();
                marks.header(&[b'x'; 10_000], true);
                marks.header(&data[..at], false);
                marks.header(&data[at..], true);
                marks.header(b"Subject\0x\0", true);
                assert_eq!(marks.found, is_mark, "{data:?}");
            }
        }
    }
}
