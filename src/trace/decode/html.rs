//! HTML: the text that a reader sees, and titles, hidden text, alternatives and
//! links.
//!
//! The input is split into tags, comments and text as the standard says (WHATWG
//! HTML, 13.2.5), in one pass and without a tree: the relations of elements
//! hardly affect where words end.

#[cfg(test)]
mod html5lib_tests;

use memchr::{memchr, memchr2};

use super::entities;
use super::tags::{self, Attribute, Content, Display, Element};

/// The texts of an HTML page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The visible text, with line ends at the boundaries of blocks.
    pub(super) text: String,
    /// The title.
    pub(super) title: String,
    /// Text in elements that are not displayed.
    pub(super) hidden: String,
    /// Alternative texts of images, one per line.
    pub(super) alternatives: String,
    /// The targets of links, one per line.
    pub(super) links: String,
}

impl Page {
    /// Parses `html`.
    pub(super) fn read(html: &str) -> Self {
        let mut reader = HtmlReader::new(html);
        while reader.at < html.len() {
            reader.text();
        }
        reader.page
    }

    /// Iterates over all texts.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &str> {
        let whole = [self.text.as_str(), &self.title, &self.hidden];
        whole.into_iter().chain(self.alternatives.lines()).chain(self.links.lines())
    }
}

/// The state of the parser.
struct HtmlReader<'a> {
    html: &'a str,
    at: usize,
    page: Page,
    /// Open elements whose style matters, the innermost last.
    styled: Vec<Styled<'a>>,
    /// How many of them are not displayed.
    hidden: usize,
}

/// An open element whose style matters.
struct Styled<'a> {
    name: &'a str,
    /// How many elements of this name are open in it, including itself.
    open: usize,
    display: Display,
}

/// How many of [`HtmlReader::styled`] an end tag may close, as the end tags of
/// inner elements may be missing.
const CLOSED: usize = 8;

impl<'a> HtmlReader<'a> {
    fn new(html: &'a str) -> Self {
        // On most pages, about a third is text.
        let page = Page { text: String::with_capacity(html.len() / 2), ..Page::default() };
        Self { html, at: 0, page, styled: Vec::new(), hidden: 0 }
    }

    /// Reads text up to the next tag or entity, and that tag or entity.
    fn text(&mut self) {
        let rest = &self.html[self.at..];
        let mark = memchr2(b'<', b'&', rest.as_bytes());
        let (text, rest) = rest.split_at(mark.unwrap_or(rest.len()));
        self.out().push_str(text);
        self.at += text.len();
        if rest.starts_with('&') {
            self.at += entities::decode(rest, false, self.out());
        } else if !rest.is_empty() {
            self.markup(rest);
        }
    }

    /// The output for the current text.
    fn out(&mut self) -> &mut String {
        if self.hidden > 0 { &mut self.page.hidden } else { &mut self.page.text }
    }

    /// Reads markup that begins with `<`.
    fn markup(&mut self, rest: &'a str) {
        match rest.as_bytes() {
            [_, b'!', b'-', b'-', ..] => self.at += comment_length(rest),
            [_, b'/', letter, ..] if letter.is_ascii_alphabetic() => {
                self.at += 2;
                let name = self.name();
                while self.attribute().is_some() {}
                self.end(name);
            }
            [_, letter, ..] if letter.is_ascii_alphabetic() => {
                self.at += 1;
                self.start();
            }
            [_, b'/'] => {
                self.out().push_str(rest);
                self.at += 2;
            }
            [_, b'!' | b'?' | b'/', ..] => self.at += length_to(rest, b'>'),
            _ => {
                self.out().push('<');
                self.at += 1;
            }
        }
    }

    /// Continues after the `<` of a start tag.
    fn start(&mut self) {
        let name = self.name();
        let element = tags::element(name);
        let mut display = element.display;
        while let Some((attribute, value)) = self.attribute() {
            match tags::attribute(attribute) {
                Some(Attribute::Link) => add_link(&mut self.page.links, value),
                Some(Attribute::Alternative) => add_line(&mut self.page.alternatives, value, " "),
                Some(Attribute::Style) => display = tags::display_styled(value).unwrap_or(display),
                Some(Attribute::Hidden) => display = Display::None,
                None => {}
            }
        }
        match element.content {
            Content::Code => {
                self.raw(name);
                return;
            }
            Content::Title => {
                let title = self.raw(name);
                add_line(&mut self.page.title, title, "\n");
                return;
            }
            Content::Elements | Content::Nothing | Content::Text => {}
        }
        let is_styled = display != element.display || display == Display::None;
        if is_styled && element.content != Content::Nothing {
            self.styled.push(Styled { name, open: 1, display });
            self.hidden += usize::from(display == Display::None);
        } else if let Some(outer) = self.styled.last_mut()
            && outer.name.eq_ignore_ascii_case(name)
        {
            outer.open += 1;
        }
        self.edge(display);
        if element.content == Content::Text {
            let text = self.raw(name);
            entities::decode_all(text, false, self.out());
        }
    }

    /// Handles an end tag.
    fn end(&mut self, name: &str) {
        let Element { mut display, .. } = tags::element(name);
        let last = self.styled.iter().rev().take(CLOSED);
        let inner = last.take_while(|styled| !styled.name.eq_ignore_ascii_case(name)).count();
        if let Some(at) = self.styled.len().checked_sub(inner + 1)
            && inner < CLOSED
        {
            self.styled[at].open -= 1;
            if self.styled[at].open == 0 {
                display = self.styled[at].display;
                // The output is still that of the element's own text.
                self.edge(display);
                let closed = self.styled.drain(at..);
                self.hidden -= closed.filter(|styled| styled.display == Display::None).count();
                return;
            }
        }
        self.edge(display);
    }

    /// Handles the start or the end of an element.
    fn edge(&mut self, display: Display) {
        if display != Display::Inline {
            self.out().push('\n');
        }
    }

    /// Skips the name of a tag and returns it.
    fn name(&mut self) -> &'a str {
        self.take_until(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>'))
    }

    /// Skips the next attribute of a tag and returns it; skips the end of the
    /// tag if there is none.
    fn attribute(&mut self) -> Option<(&'a str, &'a str)> {
        self.take_until(|byte| !(byte.is_ascii_whitespace() || byte == b'/'));
        if matches!(self.peek(), None | Some(b'>')) {
            self.at = (self.at + 1).min(self.html.len());
            return None;
        }
        let start = self.at;
        // A `=` at the start of a name is part of it.
        self.at += usize::from(self.peek() == Some(b'='));
        self.take_until(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'='));
        let name = &self.html[start..self.at];
        let after = self.at;
        self.take_until(|byte| !byte.is_ascii_whitespace());
        if self.peek() != Some(b'=') {
            self.at = after;
            return Some((name, ""));
        }
        self.at += 1;
        self.take_until(|byte| !byte.is_ascii_whitespace());
        let value = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                let value = self.take_to(quote);
                self.at = (self.at + 1).min(self.html.len());
                value
            }
            _ => self.take_until(|byte| byte.is_ascii_whitespace() || byte == b'>'),
        };
        Some((name, value))
    }

    /// The text before the end tag of an element that contains no tags. Skips
    /// to that end tag.
    fn raw(&mut self, name: &str) -> &'a str {
        let start = self.at;
        loop {
            self.take_to(b'<');
            let end = self.at;
            let Some(tag) = self.html.as_bytes().get(end + 2..end + 2 + name.len() + 1) else {
                self.at = self.html.len();
                return &self.html[start..];
            };
            let is_end = self.html.as_bytes()[end + 1] == b'/'
                && tag[..name.len()].eq_ignore_ascii_case(name.as_bytes())
                && (tag[name.len()].is_ascii_whitespace()
                    || matches!(tag[name.len()], b'/' | b'>'));
            if is_end {
                return &self.html[start..end];
            }
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.html.as_bytes().get(self.at).copied()
    }

    /// Skips to the first `byte`, which must be ASCII.
    fn take_to(&mut self, byte: u8) -> &'a str {
        let rest = &self.html[self.at..];
        let taken = &rest[..memchr(byte, rest.as_bytes()).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Skips to the first byte that matches, which is near. Either all matching
    /// bytes are ASCII, or all others are, so it never stops within a
    /// character.
    fn take_until(&mut self, matches: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.html[self.at..];
        let end = rest.bytes().position(matches);
        let taken = &rest[..end.unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }
}

/// The length of the comment at the start of `rest`.
fn comment_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    // `<!-->` and `<!--->` are complete comments.
    let mut at = 2;
    while let Some(found) = memchr(b'-', &bytes[at..]) {
        at += found;
        match &bytes[at..] {
            [b'-', b'-', b'>', ..] => return at + 3,
            [b'-', b'-', b'!', b'>', ..] if at > 3 => return at + 4,
            [b'-', b'>', ..] if at == 4 => return at + 2,
            _ => at += 1,
        }
    }
    rest.len()
}

fn length_to(rest: &str, end: u8) -> usize {
    memchr(end, rest.as_bytes()).map_or(rest.len(), |at| at + 1)
}

/// Appends a line: the value of an attribute, with its line ends replaced by
/// `gap`.
fn add_line(lines: &mut String, value: &str, gap: &str) {
    let start = lines.len();
    entities::decode_all(value, true, lines);
    if lines[start..].contains(['\r', '\n']) {
        let line = lines[start..].replace(['\r', '\n'], gap);
        lines.truncate(start);
        lines.push_str(&line);
    }
    lines.push('\n');
}

/// Appends the target of a link, unless it stays within the message or repeats
/// the previous one.
fn add_link(links: &mut String, value: &str) {
    let value = value.trim();
    let begins = |start: &str| {
        value.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    if value.is_empty() || begins("#") || begins("cid:") || begins("data:") {
        return;
    }
    let start = links.len();
    add_line(links, value, "");
    let (before, link) = links.split_at(start);
    if before.strip_suffix(link).is_some_and(|before| before.is_empty() || before.ends_with('\n')) {
        links.truncate(start);
    }
}
