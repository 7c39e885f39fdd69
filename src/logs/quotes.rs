//! Quotes and backslashes in what clients choose.

/// What has been read of a text with quotes in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quotes {
    /// A backslash has the next character be ordinary outside quotes, too.
    escapes: bool,
    quoted: bool,
    escaped: bool,
}

impl Quotes {
    /// At the start of a text. With `escapes`, a backslash has the next character be ordinary
    /// outside quotes, too.
    pub(super) fn new(escapes: bool) -> Self {
        Self { escapes, quoted: false, escaped: false }
    }

    /// Reads the next character: whether it is neither in quotes nor after a backslash.
    #[inline]
    pub(super) fn is_outside(&mut self, c: char) -> bool {
        let is_outside = !self.quoted && !self.escaped;
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' if self.quoted || self.escapes => self.escaped = true,
            '"' => self.quoted = !self.quoted,
            _ => {}
        }
        is_outside
    }
}

/// Where the first of this character, which is ASCII, is outside quotes; and whether a quote is
/// left open. `escapes` as for [`Quotes::new`].
pub(super) fn first_outside(text: &str, wanted: u8, escapes: bool) -> (Option<usize>, bool) {
    let mut quotes = Quotes::new(escapes);
    let end = text.bytes().position(|b| quotes.is_outside(b.into()) && b == wanted);
    (end, quotes.quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_or_after_a_backslash_is_not_outside() {
        for (text, plain, escapes) in [
            ("a b", (Some(1), false), (Some(1), false)),
            ("\"a b\" c", (Some(5), false), (Some(5), false)),
            ("\"a\\\" b\" c", (Some(7), false), (Some(7), false)),
            ("a\\ b c", (Some(2), false), (Some(4), false)),
            ("a\\\" b", (None, true), (Some(3), false)),
            ("\"a b", (None, true), (None, true)),
            ("é", (None, false), (None, false)),
        ] {
            assert_eq!(first_outside(text, b' ', false), plain, "{text}");
            assert_eq!(first_outside(text, b' ', true), escapes, "{text}");
        }
    }
}
