//! What the names of HTML elements and attributes mean for the text.

/// What the value of an attribute is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// A target.
    Link,
    /// A text in place of an image.
    Alternative,
    /// How the element is displayed.
    Style,
    /// That it is not.
    Hidden,
}

/// What an attribute is for, if for anything here.
pub(super) fn attribute(name: &str) -> Option<Attribute> {
    Some(match lower(name)?.trim_ascii_end() {
        b"href" | b"src" | b"action" | b"background" => Attribute::Link,
        b"alt" => Attribute::Alternative,
        b"style" => Attribute::Style,
        b"hidden" => Attribute::Hidden,
        _ => return None,
    })
}

/// How an element is displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Display {
    /// In the midst of the text, even of a word.
    Inline,
    /// Apart from what is before and behind it.
    Block,
    /// Not at all.
    None,
}

/// How an element is displayed unless its style says otherwise.
pub(super) fn display(name: &str) -> Display {
    match lower(name) {
        Some(name) if name.trim_ascii_end() == b"template" => Display::None,
        Some(name) if is_block(name.trim_ascii_end()) => Display::Block,
        _ => Display::Inline,
    }
}

fn is_block(name: &[u8]) -> bool {
    matches!(
        name,
        b"address"
            | b"article"
            | b"aside"
            | b"blockquote"
            | b"body"
            | b"br"
            | b"button"
            | b"caption"
            | b"center"
            | b"dd"
            | b"details"
            | b"dialog"
            | b"dir"
            | b"div"
            | b"dl"
            | b"dt"
            | b"fieldset"
            | b"figcaption"
            | b"figure"
            | b"footer"
            | b"form"
            | b"h1"
            | b"h2"
            | b"h3"
            | b"h4"
            | b"h5"
            | b"h6"
            | b"head"
            | b"header"
            | b"hgroup"
            | b"hr"
            | b"html"
            | b"iframe"
            | b"input"
            | b"legend"
            | b"li"
            | b"listing"
            | b"main"
            | b"menu"
            | b"nav"
            | b"object"
            | b"ol"
            | b"optgroup"
            | b"option"
            | b"p"
            | b"pre"
            | b"search"
            | b"section"
            | b"select"
            | b"summary"
            | b"table"
            | b"tbody"
            | b"td"
            | b"textarea"
            | b"tfoot"
            | b"th"
            | b"thead"
            | b"title"
            | b"tr"
            | b"ul"
            | b"video"
            | b"xmp"
    )
}

/// Whether what is inside is text for programs.
pub(super) fn is_raw(name: &str) -> bool {
    lower(name).is_some_and(|name| {
        matches!(name.trim_ascii_end(), b"script" | b"style" | b"iframe" | b"noembed" | b"noframes")
    })
}

/// Whether there is nothing inside, and no end tag.
pub(super) fn is_void(name: &str) -> bool {
    lower(name).is_some_and(|name| {
        matches!(
            name.trim_ascii_end(),
            b"area"
                | b"base"
                | b"br"
                | b"col"
                | b"embed"
                | b"hr"
                | b"img"
                | b"input"
                | b"link"
                | b"meta"
                | b"source"
                | b"track"
                | b"wbr"
        )
    })
}

/// How an element with this `style` is displayed, if it says so.
pub(super) fn display_styled(style: &str) -> Option<Display> {
    let mut display = None;
    for declaration in style.split(';') {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let (Some(name), value) = (lower(name.trim()), value.trim()) else { continue };
        let begins = |with: &str| {
            value.get(..with.len()).is_some_and(|value| value.eq_ignore_ascii_case(with))
        };
        let is_hidden = match name.trim_ascii_end() {
            b"display" if begins("inline") || begins("contents") => {
                display = Some(Display::Inline);
                false
            }
            b"display" => {
                display = Some(Display::Block);
                begins("none")
            }
            b"visibility" => begins("hidden"),
            b"font-size" => is_nothing(value),
            _ => false,
        };
        if is_hidden {
            return Some(Display::None);
        }
    }
    display
}

/// Whether a size is 0, of whatever.
fn is_nothing(size: &str) -> bool {
    let size = size.trim();
    let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
    !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}

/// A name in lower case, with spaces behind it; `None` where it is longer than
/// any that matters.
fn lower(name: &str) -> Option<[u8; 10]> {
    let mut lower = [b' '; 10];
    lower.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case() {
        for name in ["P", "blockquote", "Td", "figcaption"] {
            assert_eq!(display(name), Display::Block);
        }
        for name in ["span", "b", "", "blockquotes"] {
            assert_eq!(display(name), Display::Inline);
        }
        assert_eq!(display("Template"), Display::None);
        assert!(is_raw("STYLE") && !is_raw("p"));
        assert!(is_void("IMG") && !is_void("div"));
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
