//! How HTML elements and attributes affect the text.

/// The purpose of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// The target of a link.
    Link,
    /// The alternative text of an image.
    Alternative,
    /// How the element is displayed.
    Style,
    /// Hides the element.
    Hidden,
}

/// The purpose of an attribute, if it matters here.
pub(super) fn attribute(name: &str) -> Option<Attribute> {
    const HREF: Key = key(b"href");
    const SRC: Key = key(b"src");
    const ACTION: Key = key(b"action");
    const BACKGROUND: Key = key(b"background");
    const ALT: Key = key(b"alt");
    const STYLE: Key = key(b"style");
    const HIDDEN: Key = key(b"hidden");
    Some(match key(name.as_bytes()) {
        HREF | SRC | ACTION | BACKGROUND => Attribute::Link,
        ALT => Attribute::Alternative,
        STYLE => Attribute::Style,
        HIDDEN => Attribute::Hidden,
        _ => return None,
    })
}

/// How an element is displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Display {
    /// Within the text, even within a word.
    Inline,
    /// Separate from the text before and after it.
    Block,
    /// Not displayed.
    None,
}

/// The content of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Text and other elements.
    Elements,
    /// Nothing: there is no end tag.
    Nothing,
    /// Text without elements, displayed.
    Text,
    /// The title.
    Title,
    /// Text without elements, not displayed.
    Code,
}

/// The default properties of an element, before its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) display: Display,
    pub(super) content: Content,
}

const INLINE: Element = Element { display: Display::Inline, content: Content::Elements };
const BLOCK: Element = Element { display: Display::Block, content: Content::Elements };

/// Elements displayed as blocks.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "button",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hgroup",
    "html",
    "legend",
    "li",
    "listing",
    "main",
    "menu",
    "nav",
    "object",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "search",
    "section",
    "select",
    "summary",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "ul",
    "video",
    "xmp",
];

/// Elements with other properties.
const SPECIAL: &[(&str, Element)] = {
    use Content::{Code, Nothing, Text, Title};
    use Display::{Block, Inline, None};
    const fn of(display: Display, content: Content) -> Element {
        Element { display, content }
    }
    &[
        ("template", of(None, Content::Elements)),
        ("title", of(Block, Title)),
        ("textarea", of(Block, Text)),
        ("iframe", of(Block, Code)),
        ("script", of(Inline, Code)),
        ("style", of(Inline, Code)),
        ("noembed", of(Inline, Code)),
        ("noframes", of(Inline, Code)),
        ("br", of(Block, Nothing)),
        ("hr", of(Block, Nothing)),
        ("input", of(Block, Nothing)),
        ("area", of(Inline, Nothing)),
        ("base", of(Inline, Nothing)),
        ("col", of(Inline, Nothing)),
        ("embed", of(Inline, Nothing)),
        ("img", of(Inline, Nothing)),
        ("link", of(Inline, Nothing)),
        ("meta", of(Inline, Nothing)),
        ("source", of(Inline, Nothing)),
        ("track", of(Inline, Nothing)),
        ("wbr", of(Inline, Nothing)),
    ]
};

/// The properties of an element by name.
pub(super) fn element(name: &str) -> Element {
    let key = key(name.as_bytes());
    let mut slot = slot(key);
    loop {
        match ELEMENTS[slot] {
            (0, _) => return INLINE,
            (known, element) if known == key => return element,
            _ => slot = (slot + 1) % ELEMENTS.len(),
        }
    }
}

/// A hash table of all elements, with linear probing.
static ELEMENTS: [(Key, Element); 256] = {
    let mut table = [(0, INLINE); 256];
    let mut number = 0;
    while number < BLOCKS.len() + SPECIAL.len() {
        let (name, element) = match number.checked_sub(BLOCKS.len()) {
            None => (BLOCKS[number], BLOCK),
            Some(special) => SPECIAL[special],
        };
        let key = key(name.as_bytes());
        let mut slot = slot(key);
        while table[slot].0 != 0 {
            slot = (slot + 1) % table.len();
        }
        table[slot] = (key, element);
        number += 1;
    }
    table
};

/// The first slot of a name.
const fn slot(key: Key) -> usize {
    let key = key as u64 ^ (key >> 64) as u64;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// The display property of this `style`, if it has one.
pub(super) fn display_styled(style: &str) -> Option<Display> {
    const DISPLAY: Key = key(b"display");
    const VISIBILITY: Key = key(b"visibility");
    const FONT_SIZE: Key = key(b"font-size");
    let mut display = None;
    for declaration in style.split(';') {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let (name, value) = (key(name.trim().as_bytes()), value.trim());
        let begins = |with: &str| {
            value.get(..with.len()).is_some_and(|value| value.eq_ignore_ascii_case(with))
        };
        let is_hidden = match name {
            DISPLAY if begins("inline") || begins("contents") => {
                display = Some(Display::Inline);
                false
            }
            DISPLAY => {
                display = Some(Display::Block);
                begins("none")
            }
            VISIBILITY => begins("hidden"),
            FONT_SIZE => is_zero(value),
            _ => false,
        };
        if is_hidden {
            return Some(Display::None);
        }
    }
    display
}

/// Whether a size is 0, in any unit.
fn is_zero(size: &str) -> bool {
    let size = size.trim();
    let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
    !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}

/// A name encoded as a number.
type Key = u128;

/// The number of a name, ignoring case; 0 if it is empty or longer than all
/// known names.
const fn key(name: &[u8]) -> Key {
    let (mut key, mut at) = (0, 0);
    if name.len() <= 10 {
        while at < name.len() {
            key = key << 8 | name[at].to_ascii_lowercase() as Key;
            at += 1;
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case() {
        for name in ["P", "blockquote", "Td", "figcaption"] {
            assert_eq!(element(name), BLOCK, "{name}");
        }
        for name in ["span", "b", "", "blockquotes"] {
            assert_eq!(element(name), INLINE, "{name}");
        }
        assert_eq!(element("Template").display, Display::None);
        assert_eq!(element("STYLE").content, Content::Code);
        assert_eq!(element("IMG").content, Content::Nothing);
        for name in BLOCKS {
            assert_eq!(element(name), BLOCK, "{name}");
        }
        for &(name, special) in SPECIAL {
            assert_eq!(element(&name.to_uppercase()), special, "{name}");
        }
        assert_eq!(attribute("HREF"), Some(Attribute::Link));
        assert_eq!(attribute("title"), None);
        assert_eq!(attribute("data-long-name"), None);
    }

    #[test]
    fn styles() {
        for style in [
            "display:none",
            "color:red; DISPLAY : None !important",
            "display:block;visibility:hidden",
            "font-size:0",
            "font-size: 0px;",
            "font-size:0.0em",
        ] {
            assert_eq!(display_styled(style), Some(Display::None), "{style}");
        }
        for style in ["", "font-size:10px", "font-size:0.9em", "none", "font-size:", "a;b:;:c"] {
            assert_eq!(display_styled(style), None, "{style}");
        }
        assert_eq!(display_styled("color:red;display: flex"), Some(Display::Block));
        assert_eq!(display_styled("display:inline-block"), Some(Display::Inline));
    }
}
