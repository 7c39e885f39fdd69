//! Turns bodies and fields into fragments, up to the limits.

use std::borrow::Cow;

use super::fields::{Media, Visible};
use super::file::contents;
use super::html::Page;
use super::normal::{Normalised, normalise_up_to};
use super::transfer::{Decoded, Encoding, has_uuencoded};
use super::{charset, flowed};
use crate::trace::{Fragment, MessagePart};

/// The limits of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of multipart bodies and messages.
    pub depth: usize,
    /// Total number of parts, including multipart ones.
    pub parts: usize,
    /// Total number of decoded bytes of text.
    pub text: usize,
    /// Total number of decoded bytes of attachments.
    pub attachments: usize,
    /// Total number of characters of text that are decomposed and composed
    /// again, which takes much longer than all else: of most texts none.
    pub composed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, parts: 10_000, text: 32 << 20, attachments: 64 << 20, composed: 4 << 20 }
    }
}

/// How much of a message was decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Whether the limits left something out.
    pub is_cut: bool,
    /// Whether mail programs may show something else than what was decoded.
    pub is_doubtful: bool,
}

impl Extent {
    /// Whether all that a reader may see was decoded.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self == Self::default()
    }
}

/// Receives bodies and fields, passes fragments to the sink, and counts.
pub(super) struct Pieces<'s> {
    sink: &'s mut dyn FnMut(MessagePart, Fragment<'_>),
    /// The part of the message that is decoded now.
    part: MessagePart,
    /// The number of attachments of the message so far.
    attachments: u32,
    /// The number of the attached message that is decoded now, if it is one: all in it belongs
    /// to that attachment.
    pub(super) attachment: Option<u32>,
    /// The remaining limits.
    left: Limits,
    /// How much was decoded.
    extent: Extent,
    /// Messages that were encoded as a whole.
    pub(super) messages: Vec<Encoded>,
}

/// An attached message that was encoded as a whole.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// Its nesting depth.
    pub(super) depth: usize,
    /// The number of the attachment.
    pub(super) attachment: u32,
}

impl<'s> Pieces<'s> {
    pub(super) fn new(limits: Limits, sink: &'s mut dyn FnMut(MessagePart, Fragment<'_>)) -> Self {
        let (part, messages) = (MessagePart::Text, Vec::new());
        Self {
            sink,
            part,
            attachments: 0,
            attachment: None,
            left: limits,
            extent: Extent::default(),
            messages,
        }
    }

    /// Begins a part: within an attached message, that attachment.
    fn begin(&mut self, part: MessagePart) {
        self.part = self.attachment.map_or(part, MessagePart::Attachment);
    }

    /// Begins another attachment, and returns its number: within an attached message, that of
    /// the message.
    fn begin_attachment(&mut self) -> u32 {
        self.attachments += u32::from(self.attachment.is_none());
        let number = self.attachment.unwrap_or(self.attachments);
        self.part = MessagePart::Attachment(number);
        number
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.left
    }

    /// Records that the limits left something out.
    pub(super) fn leave_out(&mut self) {
        self.extent.is_cut = true;
    }

    /// Records that readers may see something else.
    pub(super) fn doubt(&mut self) {
        self.extent.is_doubtful = true;
    }

    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Counts a part; returns whether the limit permits it.
    pub(super) fn is_room_for_part(&mut self) -> bool {
        self.extent.is_cut |= self.left.parts == 0;
        let is_room = self.left.parts > 0;
        self.left.parts = self.left.parts.saturating_sub(1);
        is_room
    }

    /// Adds the subject, or display names.
    pub(super) fn visible(&mut self, field: Visible<'_>) {
        self.begin(match field {
            Visible::Subject(_) => MessagePart::Subject,
            Visible::People(_) => MessagePart::Name,
        });
        if self.take_text(field.len()) {
            field.names(&mut |name| {
                // An encoded word in a charset that is not known.
                self.extent.is_doubtful |= name.contains('\u{fffd}');
                self.text(name);
            });
        }
    }

    /// Adds the names of an attachment.
    fn names(&mut self, media: &Media) {
        let (named, filename) = (media.named.as_deref(), media.filename.as_deref());
        for name in filename.into_iter().chain(named.filter(|_| named != filename)) {
            self.name(name);
        }
    }

    fn name(&mut self, name: &str) {
        if self.take_text(name.len()) {
            self.text(name);
        }
    }

    /// Adds a body that is not multipart.
    pub(super) fn body(&mut self, media: &Media, body: &[u8], depth: usize) {
        let is_file = media.is_attached || media.named.is_some() || media.filename.is_some();
        let is_text = is_text(media);
        if is_text && !is_file {
            self.begin(if is_html(media) { MessagePart::Html } else { MessagePart::Text });
        } else {
            self.begin_attachment();
        }
        self.names(media);
        if let Some(name) = media.encoding.name(body).filter(|_| !is_file) {
            self.name(&String::from_utf8_lossy(name));
        }
        let limit = if is_text && !is_file { self.left.text } else { self.left.attachments };
        let decoded = media.encoding.decode(body, limit);
        let Decoded { bytes, is_whole, is_mixed, is_doubtful } = decoded;
        self.extent.is_cut |= !is_whole;
        self.extent.is_doubtful |= is_doubtful;
        let around = is_mixed.then(|| media.encoding.around(body));
        if is_text && !is_file {
            self.extent.is_doubtful |= media.encoding == Encoding::None && has_uuencoded(&bytes);
            self.left.text -= bytes.len();
            self.written(media, &bytes);
        } else {
            self.left.attachments -= bytes.len();
            if let Some([_, encoded, after]) = around.filter(|[_, _, after]| !after.is_empty()) {
                self.file_before(media.encoding, encoded, after);
            }
            if matches!(media.kind.as_str(), "message/rfc822" | "message/global") {
                self.message(media.encoding, bytes, is_whole, depth);
            } else {
                self.attachment(media, &bytes, is_text, is_whole);
            }
        }
        if let Some([before, _, after]) = around {
            self.plain(before);
            self.plain(after);
        }
    }

    /// Adds a file that ends before other text of its part, as some programs save it.
    fn file_before(&mut self, encoding: Encoding, encoded: &[u8], after: &[u8]) {
        if encoding != Encoding::Base64 || after.is_empty() {
            return;
        }
        let Decoded { bytes, is_whole, .. } = encoding.decode(encoded, self.left.attachments);
        self.extent.is_cut |= !is_whole;
        self.left.attachments -= bytes.len();
        if is_whole {
            self.whole_file(encoding, &bytes);
        }
    }

    /// Adds plain text that is around an encoded body, up to the limit.
    fn plain(&mut self, bytes: &[u8]) {
        let some = &bytes[..bytes.len().min(self.left.text)];
        self.extent.is_cut |= some.len() < bytes.len();
        self.extent.is_doubtful |= has_uuencoded(some);
        self.left.text -= some.len();
        if !some.trim_ascii().is_empty() {
            self.written(&Media::default(), some);
        }
    }

    /// Adds a message that was encoded as a whole and has been counted.
    fn message(&mut self, encoding: Encoding, bytes: Cow<'_, [u8]>, is_whole: bool, depth: usize) {
        if is_whole {
            self.whole_file(encoding, &bytes);
        }
        if depth + 1 < self.left.depth {
            let attachment = self.attachment.unwrap_or(self.attachments);
            let bytes = bytes.into_owned();
            self.messages.push(Encoded { bytes, depth: depth + 1, attachment });
        } else {
            self.leave_out();
        }
    }

    /// Begins an attached message; returns whether it is not within another one.
    pub(super) fn begin_message(&mut self, media: &Media) -> bool {
        let is_outermost = self.attachment.is_none();
        self.attachment = Some(self.begin_attachment());
        self.names(media);
        is_outermost
    }

    /// Adds an attached message that ends, as a whole file, if the limits permit it.
    pub(super) fn end_message(&mut self, bytes: &[u8], is_outermost: bool) {
        self.begin_attachment();
        if is_outermost {
            self.attachment = None;
        }
        if bytes.len() > self.left.attachments {
            return self.leave_out();
        }
        self.left.attachments -= bytes.len();
        self.whole_file(Encoding::None, bytes);
    }

    /// Adds a whole file that was encoded so: with each content that it may have where it came
    /// from.
    fn whole_file(&mut self, encoding: Encoding, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if encoding.is_binary() {
            (self.sink)(self.part, Fragment::File(bytes));
        } else {
            contents(bytes).for_each(|content| (self.sink)(self.part, Fragment::File(&content)));
        }
    }

    /// Adds an attachment without header fields, of which the exact bytes are known.
    pub(super) fn lone_file(&mut self, bytes: &[u8]) {
        let some = &bytes[..bytes.len().min(self.left.attachments)];
        self.extent.is_cut |= some.len() < bytes.len();
        self.left.attachments -= some.len();
        self.begin_attachment();
        let media = Media { encoding: Encoding::Base64, ..Media::default() };
        self.attachment(&media, some, false, some.len() == bytes.len());
    }

    /// Adds an attachment that has been counted.
    fn attachment(&mut self, media: &Media, bytes: &[u8], is_text: bool, is_whole: bool) {
        if is_whole {
            self.whole_file(media.encoding, bytes);
        }
        let charset = media.charset.as_deref();
        let is_html = is_html(media) || is_html_file(media, bytes);
        let text = match is_text && !charset::is_binary(bytes, charset) {
            true => Some(self.decoded(bytes, charset, is_html)),
            false => charset::text_of_file(bytes),
        };
        match text {
            Some(text) => {
                let mut end = text.len().min(self.left.text);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                self.extent.is_cut |= end < text.len();
                self.left.text -= end;
                self.shown(&text[..end], is_html, media.is_joined);
            }
            None if !bytes.is_empty() => (self.sink)(self.part, Fragment::Bytes(bytes)),
            None => {}
        }
    }

    /// Adds a text that has been counted.
    fn written(&mut self, media: &Media, bytes: &[u8]) {
        let is_html = is_html(media);
        let text = self.decoded(bytes, media.charset.as_deref(), is_html);
        self.shown(&text, is_html, media.is_joined);
    }

    /// Adds text as it is shown to a reader.
    fn shown(&mut self, text: &str, is_html: bool, is_joined: bool) {
        if is_html {
            Page::read(text).pieces().for_each(|piece| self.text(piece));
        } else if is_joined {
            self.text(&flowed::join(text));
        } else {
            self.text(text);
        }
    }

    /// Adds a text that has been counted; what it gains by normalisation is
    /// counted here.
    fn text(&mut self, text: &str) {
        let limit = text.len().saturating_add(self.left.text);
        let normalised = normalise_up_to(text, limit, self.left.composed);
        let Normalised { out: normal, is_whole, composed } = normalised;
        self.extent.is_cut |= !is_whole;
        self.left.composed = self.left.composed.saturating_sub(composed);
        let grown = normal.len().saturating_sub(text.len());
        self.left.text = self.left.text.saturating_sub(grown);
        if !normal.is_empty() {
            (self.sink)(self.part, Fragment::Text(&normal));
        }
    }

    /// A body as text, in its charset.
    fn decoded<'a>(
        &mut self,
        bytes: &'a [u8],
        charset: Option<&'a str>,
        is_html: bool,
    ) -> Cow<'a, str> {
        let own = if is_html && charset.is_none() { charset::of_html(bytes) } else { None };
        let charset = charset.or(own);
        let text = charset::to_utf8(bytes, charset);
        self.extent.is_doubtful |= charset::is_doubtful(bytes, charset, &text);
        text
    }

    fn take_text(&mut self, length: usize) -> bool {
        let left = self.left.text.checked_sub(length);
        self.left.text = left.unwrap_or(self.left.text);
        self.extent.is_cut |= left.is_none();
        left.is_some()
    }
}

/// Whether the declared type of a body is text. Other bodies are inspected.
fn is_text(media: &Media) -> bool {
    // A malformed type counts as none.
    let Some((main, sub)) = media.kind.split_once('/') else { return true };
    match main {
        // A multipart type here has no boundary.
        "text" | "multipart" => true,
        "message" => !matches!(sub, "rfc822" | "global"),
        _ => false,
    }
}

fn is_html(media: &Media) -> bool {
    matches!(media.kind.as_str(), "text/html" | "application/xhtml+xml")
}

/// Whether an attachment is HTML, judged by its name or its first bytes.
fn is_html_file(media: &Media, bytes: &[u8]) -> bool {
    let ends = |name: &str| {
        let end = name.rsplit('.').next().unwrap_or_default();
        end.eq_ignore_ascii_case("html") || end.eq_ignore_ascii_case("htm")
    };
    let begin = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let begins =
        |mark: &[u8]| begin.get(..mark.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(mark));
    media.filename.as_deref().or(media.named.as_deref()).is_some_and(ends)
        || begins(b"<!doctype html")
        || begins(b"<html")
}
