//! The headers and the body of a message, as they arrive: their size, and, to be recorded,
//! as much of them as there is room for.

use super::room::{Room, Share};

/// What is kept at least when the room for more is made.
const STEP: usize = 4 << 10;

/// What has arrived of a message.
#[derive(Debug)]
pub struct Content {
    /// Nothing is kept without it.
    kept: Option<Kept>,
    /// The size of the message with CR LF at the ends of lines.
    size: u64,
    /// Where in a header the data is.
    header: HeaderPlace,
    in_body: bool,
}

/// What is kept of a message.
#[derive(Debug)]
pub struct Kept {
    /// Headers, an empty line and the body.
    pub bytes: Vec<u8>,
    /// Something was left out.
    pub partial: bool,
    share: Share,
    most: usize,
}

/// Where in a header the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderPlace {
    Name,
    Value,
    /// After the zero byte that ends the value.
    End,
}

impl Content {
    /// A message of which at most `most` bytes are kept, in `room`; none without these.
    #[must_use]
    pub fn new(keep: Option<(&Room, usize)>) -> Self {
        let kept = keep.map(|(room, most)| Kept {
            bytes: Vec::new(),
            partial: false,
            share: room.share(),
            most,
        });
        Self { kept, size: 0, header: HeaderPlace::Name, in_body: false }
    }

    /// Adds data of a header: a name and a value, each ended by a zero byte. `last` if it is
    /// the end of that header; `lead_space` if the value begins after the colon, else after a
    /// blank.
    pub fn header(&mut self, mut data: &[u8], last: bool, lead_space: bool) {
        while !data.is_empty() && self.header != HeaderPlace::End {
            let end = data.iter().position(|&byte| byte == 0);
            let (text, rest) = data.split_at(end.unwrap_or(data.len()));
            self.lines(text);
            data = rest.get(1..).unwrap_or_default();
            if end.is_some() {
                self.header = match self.header {
                    HeaderPlace::Name => {
                        self.add(if lead_space { b":" } else { b": " });
                        HeaderPlace::Value
                    }
                    HeaderPlace::Value | HeaderPlace::End => HeaderPlace::End,
                };
            }
        }
        if last {
            self.header = HeaderPlace::Name;
            self.add(b"\r\n");
        }
    }

    /// Adds a part of the body.
    pub fn body(&mut self, data: &[u8]) {
        self.end_headers();
        self.add(data);
    }

    /// The headers are complete.
    pub fn end_headers(&mut self) {
        if !self.in_body {
            self.in_body = true;
            self.add(b"\r\n");
        }
    }

    /// The size of the message so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether nothing more is kept.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.partial)
    }

    /// What was kept.
    #[must_use]
    pub fn kept(self) -> Option<Kept> {
        self.kept
    }

    /// Adds text of a header, whose lines end in LF or in CR LF.
    fn lines(&mut self, text: &[u8]) {
        let mut before = 0;
        let bare = text.iter().filter(|&&byte| {
            let bare = byte == b'\n' && before != b'\r';
            before = byte;
            bare
        });
        self.size = self.size.saturating_add(bare.count() as u64);
        self.add(text);
    }

    fn add(&mut self, data: &[u8]) {
        self.size = self.size.saturating_add(data.len() as u64);
        if let Some(kept) = &mut self.kept {
            kept.add(data);
        }
    }
}

impl Kept {
    /// What is kept, and its share of the room.
    #[must_use]
    pub fn parts(self) -> (Vec<u8>, Share) {
        (self.bytes, self.share)
    }

    fn add(&mut self, data: &[u8]) {
        if self.partial {
            return;
        }
        let fits = data.len().min(self.most.saturating_sub(self.bytes.len()));
        let wanted = self.bytes.len().saturating_add(fits);
        self.partial = fits < data.len();
        if wanted > self.bytes.capacity() && !self.grow(wanted) {
            self.partial = true;
            return;
        }
        self.bytes.extend_from_slice(data.get(..fits).unwrap_or_default());
    }

    /// Makes room for `wanted` bytes, and for some more if there is any.
    fn grow(&mut self, wanted: usize) -> bool {
        let more = wanted.max(self.bytes.capacity().saturating_mul(2)).max(STEP);
        let more = more.min(self.most.max(wanted));
        [more, wanted].into_iter().any(|bytes| {
            let room = self.share.resize(bytes);
            let additional = bytes.saturating_sub(self.bytes.len());
            room && self.bytes.try_reserve_exact(additional).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(content: Content) -> (String, bool) {
        let kept = content.kept().unwrap();
        (String::from_utf8(kept.bytes).unwrap(), kept.partial)
    }

    #[test]
    fn a_message_is_put_together_however_it_arrives() {
        let header = b"Subject\0one\n two\0";
        for at in 0..header.len() {
            let room = Room::new(1 << 20);
            let mut content = Content::new(Some((&room, 1 << 20)));
            content.header(&header[..at], false, false);
            content.header(&header[at..], true, false);
            content.header(b"X\0y", true, false);
            content.body(b"line\r\n");
            content.body(b"");
            content.body(b"end");
            // As CR LF, the fold has one byte more.
            let text = "Subject: one\n two\r\nX: y\r\n\r\nline\r\nend";
            assert_eq!(content.size(), text.len() as u64 + 1);
            assert_eq!(kept(content), (text.to_owned(), false));
            assert_eq!(room.used(), 0);
        }
    }

    #[test]
    fn odd_headers_are_taken_as_they_are() {
        let room = Room::new(1 << 20);
        let mut content = Content::new(Some((&room, 1 << 20)));
        content.header(b"", true, true);
        content.header(b"name", true, true);
        content.header(b"a\0 b\0more\0", true, true);
        content.header(b"c\0d\r\n e\0", true, false);
        content.end_headers();
        let text = "\r\nname\r\na: b\r\nc: d\r\n e\r\n\r\n";
        assert_eq!(content.size(), text.len() as u64);
        assert_eq!(kept(content).0, text);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let room = Room::new(10_000);
        let mut content = Content::new(Some((&room, 6_000)));
        content.body(&[b'x'; 5_000]);
        assert!(!content.is_full());
        let mut other = Content::new(Some((&room, 6_000)));
        other.body(&[b'y'; 4_500]);
        // All that is left of the room: 10,000 less the room for 6,000.
        assert!(other.is_full());
        content.body(&[b'x'; 5_000]);
        content.body(b"z");
        assert!(content.is_full());
        assert_eq!((content.size(), other.size()), (10_003, 4_502));
        assert!(room.used() <= 10_000);
        let (text, partial) = kept(content);
        assert!(partial && text.len() == 6_000 && text.ends_with('x'));
        // What is left of the other are its headers.
        assert_eq!(kept(other), ("\r\n".to_owned(), true));
        assert_eq!(room.used(), 0);
    }

    #[test]
    fn a_message_is_measured_without_being_kept() {
        let mut content = Content::new(None);
        (0..1000).for_each(|_| content.body(&[0; 65_535]));
        assert_eq!(content.size(), 65_535_002);
        assert!(content.is_full() && content.kept().is_none());
    }
}
