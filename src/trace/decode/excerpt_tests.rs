//! Excerpts copied from a message are found in its fragments.

use quickcheck::{Arbitrary, Gen};

use super::tests::decoded;
use super::*;

/// Lines as people write and quote them.
#[derive(Clone, Debug)]
struct Body(String);

impl Arbitrary for Body {
    fn arbitrary(g: &mut Gen) -> Self {
        let parts = [
            "word",
            "Überweisung",
            "it’s",
            "“so”",
            "漢字",
            "привет",
            "...",
            "!!!!!",
            "----",
            " ",
            "  ",
            "\n",
            "\n\n",
            "\n> ",
            "\n>> ",
            "> ",
            ">",
            "-->",
            "a>b",
            "<",
            "&",
            "=",
            "=41",
            "\u{a0}",
            "\t",
            "1 < 2",
            "<b>",
            "--b",
            ".",
            "e\u{301}",
            "…",
            "https://example.org/?a=1&b=2",
        ];
        Self((0..u8::arbitrary(g) % 50).map(|_| *g.choose(&parts).unwrap()).collect())
    }
}

impl Body {
    /// As quoted-printable with every byte encoded.
    fn quoted(text: &str, line_end: &str) -> String {
        let bytes: Vec<String> = text.bytes().map(|byte| format!("={byte:02X}")).collect();
        bytes.chunks(20).map(|line| line.concat() + "=" + line_end).collect()
    }

    fn html(text: &str) -> String {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        text.replace("word", "w<b>or</b>d").replace('\n', "<br>\n").replace('é', "&eacute;")
    }
}

/// Every excerpt that a reader can copy from a body is part of a fragment.
#[test]
fn excerpts_of_a_body_are_found() {
    fn property(Body(body): Body, is_html: bool, is_quoted: bool, is_crlf: bool) -> bool {
        let line_end = if is_crlf { "\r\n" } else { "\n" };
        let kind = if is_html { "html" } else { "plain" };
        let source = if is_html { Body::html(&body) } else { body.clone() };
        let source = source.replace('\n', line_end);
        let (encoding, source) = match is_quoted {
            true => ("quoted-printable", Body::quoted(&source, line_end)),
            false => ("8bit", source.replace("--b", "- -b")),
        };
        let body = if is_quoted { body } else { body.replace("--b", "- -b") };
        let message = [
            "Content-Type: multipart/mixed; boundary=b",
            "",
            "--b",
            &format!("Content-Type: text/{kind}; charset=utf-8"),
            &format!("Content-Transfer-Encoding: {encoding}"),
            "",
            &source,
            "--b--",
        ];
        let (pieces, _) = decoded(message.join(line_end).as_bytes(), &Limits::default());
        let text = pieces.first().map_or("", |piece| &piece[2..]);
        let letters = |&(at, _): &(usize, char)| !body[at..].starts_with('\u{301}');
        let cuts: Vec<usize> = body.char_indices().filter(letters).map(|(at, _)| at).collect();
        cuts.iter().enumerate().all(|(n, &from)| {
            let mut ends = cuts[n..].iter().step_by(7);
            ends.all(|&to| {
                text.contains(&normalise(&body[from..to]))
                    && text.contains(&excerpt(&body[from..to]))
            })
        })
    }
    kit::quick_check().tests(250).quickcheck(property as fn(Body, bool, bool, bool) -> bool);
}
