//! Text with format=flowed and delsp=yes (RFC 3676): the space before a soft
//! line break was inserted by the sender, and is removed with it.

/// Joins lines that end in a space with the next line, without that space and
/// without the quote marks of the next line. Other lines do not change.
pub(super) fn join(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_open = false;
    for line in text.split_inclusive('\n') {
        let quoted = line.trim_start_matches('>');
        // The sender inserts a space before lines that begin with a space or a
        // mark.
        let content = quoted.strip_prefix(' ').unwrap_or(quoted);
        out.push_str(if is_open { content } else { line });
        let end = content.trim_end_matches(['\r', '\n']);
        is_open = end.len() < content.len() && end.ends_with(' ') && end != "-- ";
        if is_open {
            out.truncate(out.len() - (content.len() - end.len()) - 1);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_breaks_are_removed() {
        for (text, expected) in [
            ("", ""),
            ("one \r\ntwo\r\nthree\r\n", "onetwo\r\nthree\r\n"),
            ("one  \ntwo", "one two"),
            ("漢 \n字", "漢字"),
            ("> one \n> two\n> three", "> onetwo\n> three"),
            ("one \n  two", "one two"),
            ("-- \nname", "-- \nname"),
            ("one ", "one "),
            (" \n \nx", " \n \nx"),
            ("  \n  \n> x", " x"),
        ] {
            assert_eq!(join(text), expected, "{text:?}");
        }
    }
}
