//! Text of format=flowed with delsp=yes (RFC 3676): the space before a soft
//! line break is the sender's, and goes with it.

/// Joins the lines that end in a space, without that space, and without the
/// quote marks of the next line. All others stay as they are.
pub(super) fn join(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_open = false;
    for line in text.split_inclusive('\n') {
        let quoted = line.trim_start_matches('>');
        // Lines that begin with a space or a mark have got one more.
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
    fn soft_breaks_leave_no_trace() {
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
