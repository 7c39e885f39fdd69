//! Finds the parts of a message, line by line.
//!
//! It makes one pass over the bytes with a stack of open parts, whatever they
//! contain. The message parser of mail-parser is not used: it searches for each
//! boundary up to the end of the message, which takes quadratic time if
//! boundaries are missing, and it frees nested messages recursively, so that
//! three megabytes of them overflow the stack.

use memchr::memmem::Finder;

use super::fields::{BodyFields, Media};
use super::pieces::Pieces;

/// An open part.
enum Open {
    /// A multipart body.
    Parts {
        boundary: Vec<u8>,
        /// Whether parts are messages by default.
        is_digest: bool,
    },
    /// A message within a message.
    Message {
        /// Where it began.
        start: usize,
        /// Whether it is not within another one.
        is_outermost: bool,
    },
}

/// A line that ends a part.
struct Delimiter {
    /// The end of the part before it.
    end: usize,
    /// The index of the open part it belongs to.
    level: usize,
    /// Whether it is the closing delimiter.
    is_last: bool,
}

/// The state of a walk.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    open: Vec<Open>,
    /// The number of multipart bodies in [`Self::open`].
    multiparts: usize,
    /// The nesting depth of this message in others that were encoded as a
    /// whole.
    depth: usize,
    /// Finds lines that begin as a delimiter does.
    dashes: Finder<'static>,
}

/// Decodes the contents of a message.
pub(super) fn walk(bytes: &[u8], depth: usize, pieces: &mut Pieces<'_>) {
    let dashes = Finder::new(b"\n--");
    let mut walk = Walk { bytes, at: 0, open: Vec::new(), multiparts: 0, depth, dashes };
    let mut is_message = true;
    while pieces.is_room_for_part() {
        let head = walk.head(is_message, pieces);
        is_message = false;
        let media = head.media();
        if media.is_doubtful {
            pieces.doubt();
        }
        let body = walk.at;
        let is_deep = walk.depth + walk.open.len() >= pieces.limits().depth;
        let end = match walk.what_follows(&media) {
            Follows::Parts { .. } | Follows::Message if is_deep => {
                pieces.leave_out();
                walk.next_delimiter()
            }
            Follows::Message => {
                let is_outermost = pieces.begin_message(&media);
                walk.open.push(Open::Message { start: body, is_outermost });
                is_message = true;
                continue;
            }
            Follows::Parts { boundary, is_digest } => {
                walk.open.push(Open::Parts { boundary, is_digest });
                walk.multiparts += 1;
                let end = walk.next_delimiter();
                let level = walk.open.len() - 1;
                // Without parts, mail programs show the text itself. With parts they
                // hide it, but it reaches the recipient.
                let text = walk.body(body, &end);
                let has_parts = end.as_ref().is_some_and(|end| end.level == level && !end.is_last);
                if !has_parts && !text.trim_ascii().is_empty() {
                    // What should be parts is not.
                    pieces.doubt();
                }
                if !(has_parts && is_usual_preamble(text)) {
                    walk.outside(text, pieces);
                }
                end
            }
            Follows::Body => {
                let end = walk.next_delimiter();
                pieces.body(&media, walk.body(body, &end), walk.depth + walk.open.len());
                end
            }
        };
        if !walk.close(end, pieces) {
            return;
        }
    }
}

/// What follows a header.
enum Follows {
    Parts { boundary: Vec<u8>, is_digest: bool },
    Message,
    Body,
}

impl<'a> Walk<'a> {
    /// Reads a header, and adds the fields that readers see if it is that of a
    /// message. Stops after an empty line, or before a line that cannot belong
    /// to a header.
    fn head(&mut self, is_message: bool, pieces: &mut Pieces<'_>) -> BodyFields<'a> {
        let mut head = BodyFields::default();
        let begin = self.at;
        let mut field: Option<(&[u8], usize)> = None;
        loop {
            let start = self.at;
            let (line, next) = line(self.bytes, start);
            if memchr::memchr(b'\r', line).is_some() {
                // For some programs, a line ends there.
                pieces.doubt();
            }
            let is_more = line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'));
            if !is_more && let Some((name, value)) = field.take() {
                let visible = head.add(name, &self.bytes[value..start]);
                if let Some(visible) = visible.filter(|_| is_message) {
                    pieces.visible(visible);
                }
            }
            if next == start || line.starts_with(b"--") && self.delimiter(line).is_some() {
                return head;
            }
            if line.is_empty() {
                self.at = next;
                return head;
            }
            if !is_more {
                let colon = line.iter().position(|&byte| byte == b':');
                let name = line[..colon.unwrap_or(0)].trim_ascii_end();
                let is_field = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
                // The line before each message in an mbox.
                let is_envelope = start == begin && line.starts_with(b"From ");
                match colon {
                    Some(colon) if is_field => field = Some((name, start + colon + 1)),
                    _ if is_envelope => {}
                    _ => {
                        // For some programs, the header goes on.
                        let most = self.bytes.len().min(start + HEADER_SEARCHED);
                        if head.is_encoded() || says_how_to_decode(&self.bytes[start..most]) {
                            pieces.doubt();
                        }
                        return head;
                    }
                }
            }
            self.at = next;
        }
    }

    fn what_follows(&self, media: &Media) -> Follows {
        let is_plain = media.encoding == super::transfer::Encoding::None;
        let digest = matches!(self.open.last(), Some(Open::Parts { is_digest: true, .. }));
        match media.kind.as_str() {
            kind if kind.starts_with("multipart/") => {
                let boundary = media.boundary.as_deref().unwrap_or_default().trim_end();
                match boundary {
                    "" => Follows::Body,
                    _ => Follows::Parts {
                        boundary: boundary.as_bytes().to_vec(),
                        is_digest: kind == "multipart/digest",
                    },
                }
            }
            "message/rfc822" | "message/global" if is_plain => Follows::Message,
            _ if digest && !media.is_typed && is_plain => Follows::Message,
            _ => Follows::Body,
        }
    }

    /// Skips the next delimiter of any open part.
    fn next_delimiter(&mut self) -> Option<Delimiter> {
        // Most messages have no parts.
        while self.multiparts > 0 && self.at < self.bytes.len() {
            let mut start = self.at;
            if !self.bytes[start..].starts_with(b"--") {
                let Some(by) = self.dashes.find(&self.bytes[start..]) else { break };
                start += by + 1;
            }
            let (line, next) = line(self.bytes, start);
            self.at = next;
            if let Some((level, is_last)) = self.delimiter(line) {
                return Some(Delimiter { end: start, level, is_last });
            }
        }
        self.at = self.bytes.len();
        None
    }

    /// The open part that a delimiter line belongs to, and whether it is the
    /// closing one.
    fn delimiter(&self, line: &[u8]) -> Option<(usize, bool)> {
        let line = line.get(2..)?.trim_ascii_end();
        self.open.iter().enumerate().rev().find_map(|(level, open)| {
            let Open::Parts { boundary, .. } = open else { return None };
            match line.strip_prefix(boundary.as_slice())? {
                b"" => Some((level, false)),
                b"--" => Some((level, true)),
                _ => None,
            }
        })
    }

    /// Adds the text of a multipart body that is in none of its parts.
    fn outside(&self, text: &[u8], pieces: &mut Pieces<'_>) {
        if !text.trim_ascii().is_empty() {
            let plain = Media { kind: String::from("text/plain"), ..Media::default() };
            pieces.body(&plain, text, self.depth + self.open.len());
        }
    }

    /// The body that begins at `start`. The line end before a delimiter is part
    /// of the delimiter.
    fn body(&self, start: usize, end: &Option<Delimiter>) -> &'a [u8] {
        let Some(end) = end else { return &self.bytes[start..] };
        let body = &self.bytes[start..end.end.max(start)];
        let body = body.strip_suffix(b"\n").unwrap_or(body);
        body.strip_suffix(b"\r").unwrap_or(body)
    }

    /// Closes the parts that a delimiter, or the end, closes, and skips to the
    /// next part. Returns whether there is one.
    fn close(&mut self, mut end: Option<Delimiter>, pieces: &mut Pieces<'_>) -> bool {
        loop {
            let keep = end.as_ref().map_or(0, |end| end.level + usize::from(!end.is_last));
            while self.open.len() > keep {
                match self.open.pop() {
                    Some(Open::Message { start, is_outermost }) => {
                        pieces.end_message(self.body(start, &end), is_outermost);
                    }
                    Some(Open::Parts { .. }) => self.multiparts -= 1,
                    None => {}
                }
            }
            match end {
                None => return false,
                Some(Delimiter { is_last: false, .. }) => return true,
                // The text after a closing delimiter is as that before the first one.
                Some(_) => {
                    let start = self.at;
                    end = self.next_delimiter();
                    self.outside(self.body(start, &end), pieces);
                }
            }
        }
    }
}

/// How much is searched of what follows a line that is in no header.
const HEADER_SEARCHED: usize = 4096;

/// Whether a body begins with lines that say how it is to be decoded, up to an empty one.
fn says_how_to_decode(bytes: &[u8]) -> bool {
    let starts = |line: &[u8], name: &[u8]| {
        line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut header = lines.take_while(|line| !line.is_empty());
    header.any(|line| starts(line, b"content-"))
}

/// Whether a text before the first part is what programs write there for readers
/// without MIME: it says nothing, and is not worth its space.
fn is_usual_preamble(text: &[u8]) -> bool {
    let text = text.trim_ascii().strip_suffix(b".").unwrap_or(text.trim_ascii());
    [
        "This is a multi-part message in MIME format",
        "This is a multipart message in MIME format",
        "This is a MIME-encapsulated message",
        "This is a cryptographically signed message in MIME format",
        "This is an OpenPGP/MIME signed message (RFC 4880 and 3156)",
        "This is an OpenPGP/MIME encrypted message (RFC 4880 and 3156)",
    ]
    .iter()
    .any(|usual| text.eq_ignore_ascii_case(usual.as_bytes()))
}

/// The line that begins at `start`, without its end, and the offset of the next
/// one.
fn line(bytes: &[u8], start: usize) -> (&[u8], usize) {
    let rest = &bytes[start..];
    let (line, length) = match memchr::memchr(b'\n', rest) {
        Some(end) => (&rest[..end], end + 1),
        None => (rest, rest.len()),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), start + length)
}
