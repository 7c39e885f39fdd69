//! Messages made to be expensive or to break the decoder. The times allowed are
//! many times the usual, and a fraction of what quadratic time would take.

use quickcheck::{Arbitrary, Gen};

use super::*;
use crate::sys::clock::{HANGS, thread_time};

const MIB: usize = 1 << 20;
/// The length of a message.
const LENGTH: usize = MIB / 2;

/// Decodes `unit` repeated to [`LENGTH`] bytes, between `before` and `after`.
/// Returns the number of fragments, and whether they are complete.
fn try_out(before: &str, unit: &str, after: &str) -> (usize, bool) {
    let message = [before, &unit.repeat(LENGTH / unit.len()), after].concat();
    let started = thread_time();
    let mut count = 0;
    let extent = decode(message.as_bytes(), &Limits::default(), &mut |_| count += 1);
    let took = thread_time() - started;
    assert!(took < HANGS, "{took:?} for {before:.99}, {unit:.99}, {after:.99}");
    (count, extent.is_whole())
}

#[test]
fn nesting_is_limited() {
    for unit in [
        "Content-Type: message/rfc822\n\n",
        "Content-Type: multipart/mixed; boundary=b\n\n--b\n",
        "Content-Type: multipart/digest; boundary=b\n\n--b\n\n",
        "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: message/rfc822\n\n",
    ] {
        let (_, is_whole) = try_out("Subject: x\n", unit, "\n");
        assert!(!is_whole);
    }
    // The maximum depth, with different boundaries.
    let mut message = String::new();
    for n in 0..20_000 {
        message += &format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n");
    }
    try_out(&message, "--b\n", "");
    try_out(&message, "--b6\n", "");
    try_out("", "(", "");
    try_out("To: ", "(", "\n\n");
    try_out("Content-Type: text/plain; a=", "(", "\n\n");
    try_out("To: ", "x:", "\n\n");
    try_out("Content-Type: text/html\n\n", "<div hidden>", "");
    try_out("Content-Type: text/html\n\n", "<p><b><template>", "");
}

#[test]
fn messages_encoded_in_messages_are_limited() {
    let mut message = String::from("Subject: innermost\n\nHello");
    for _ in 0..2000 {
        message = format!(
            "Content-Type: message/rfc822\nContent-Transfer-Encoding: quoted-printable\n\n{}",
            message.replace('=', "=3D")
        );
    }
    // Each counts its decoded size, and is there with two line ends.
    let (count, is_whole) = try_out(&message, "\n", &"\n".repeat(2 * MIB - LENGTH));
    assert!(!is_whole && (40..80).contains(&count));
    let (pieces, is_whole) = super::tests::decoded(message.as_bytes(), &Limits::default());
    assert!(!is_whole && pieces.len() == 2 * 64);
}

#[test]
fn many_parts_and_missing_delimiters() {
    let mixed = "Content-Type: multipart/mixed; boundary=a\n\n";
    assert_eq!(try_out(mixed, "--a\n\nx\n", ""), (9_999, false));
    assert!(!try_out(mixed, "--a\n", "").1);
    assert!(!try_out(mixed, "--a\nContent-Type: multipart/mixed; boundary=zz\n\nx\n", "").1);
    assert!(!try_out(mixed, "--a\nContent-Transfer-Encoding: base64\n\n!\n", "").1);
    assert!(!try_out(mixed, "--a\nContent-Type: message/rfc822\n\n", "").1);
    assert!(!try_out(mixed, "--", "").1);
    assert!(!try_out(mixed, "--a-\n", "").1);
    assert!(try_out(mixed, "--a--\n", "").1);
    assert!(try_out(&format!("{mixed}--a\n"), "A:\n", "").1);
}

#[test]
fn huge_headers() {
    for (before, unit) in [
        ("", "a:\n"),
        ("", "Subject:\n"),
        ("", "Subject: x\n"),
        ("", "To:x\n"),
        ("", "Content-Type: text/plain\n"),
        ("Subject: ", "x"),
        ("Subject: ", "x "),
        ("Subject: x", "\n "),
        ("Subject: ", "=?aa?q?x"),
        ("Subject: ", "=?"),
        ("Subject: ", "=? "),
        ("Subject: ", "=?aa?q?x?= =?bb?q?y?= "),
        ("Subject: ", "=?aa?q?x?==?bb?q?y?="),
        ("Subject: ", "=?a?b?=?= "),
        ("Subject: ", "=?utf-8?q?=41?=\n "),
        ("Subject: ", "=?utf-8?q?=?= =?utf-8?q?=?= =?utf-8?b?!?= "),
        ("To: ", ","),
        ("To: ", "a,"),
        ("To: ", "a <b>,\n "),
        ("To: ", "\""),
        ("To: ", "\\"),
        ("To: ", "<"),
        ("To: ", ":;"),
        ("To: ", "=?aa?q?x"),
        ("Content-Type: ", "x"),
        ("Content-Type: ", "x/"),
        ("Content-Type: text/plain; ", "a=b;"),
        ("Content-Type: text/plain; ", "name*0*=a'b'c;"),
        ("Content-Type: text/plain; ", "name*1=\"x\";"),
        ("Content-Type: text/plain; name*=", "'"),
        ("Content-Type: text/plain; name=\"", "\\"),
        ("Content-Disposition: attachment; filename=", "=?utf-8?b?"),
    ] {
        try_out(before, unit, "\n\nbody");
        try_out(before, unit, "");
    }
    // As many bytes as in the header, or the fields are not believed.
    assert_eq!(try_out("", "Subject: x\n", "\nbody"), (LENGTH / 11 + 1, true));
}

#[test]
fn html_without_end() {
    for (before, unit) in [
        ("", "<"),
        ("", "<a"),
        ("", "<a "),
        ("", "<a b"),
        ("", "<a b='"),
        ("", "<a href=\"x"),
        ("<a ", "b "),
        ("<a ", "href=x "),
        ("", "<a href=x>"),
        ("", "<img alt=x>"),
        ("", "<!"),
        ("", "<!--"),
        ("", "<!-- --!"),
        ("<!--", "-"),
        ("<!--", "- "),
        ("<!--", "--!"),
        ("", "<?"),
        ("", "</"),
        ("", "</a"),
        ("", "<script>"),
        ("", "<script></script"),
        ("<script>", "</script"),
        ("<title>", "</titl"),
        ("", "<title>"),
        ("", "<title></title>"),
        ("<textarea>", "<"),
        ("", "&"),
        ("", "&a"),
        ("", "&amp"),
        ("", "&#"),
        ("&#", "0"),
        ("&#x", "f"),
        ("", "&CounterClockwiseContourIntegra"),
        ("", "<p style='x:y;'>"),
        ("<p style='", ";:"),
        ("<p style='", "display:"),
        ("", "<span hidden></span>"),
        ("<i hidden>", "<i>"),
        ("", "<i style=display:block>"),
        ("", "<i hidden><b hidden></i>"),
    ] {
        try_out(&format!("Content-Type: text/html\n\n{before}"), unit, "");
    }
}

#[test]
fn text_of_all_kinds() {
    for (before, unit) in [
        ("\n", "\u{301}"),
        ("\na", "\u{301}\u{323}"),
        ("\n", "\u{200b}"),
        ("\n", ">"),
        ("\n", "> "),
        ("\n", "\u{7}"),
        ("\n", "\u{7}\u{301}"),
        ("\n", "é\u{7}"),
        ("\n", "\u{1112}\u{1161}\u{11ab}"),
        ("\n", "\u{fdfa}x"),
        ("\n", "\u{0}"),
        ("Content-Type: text/plain; delsp=yes\n\n", " \n"),
        ("Content-Type: text/plain; delsp=yes\n\n", "> \n"),
        ("Content-Transfer-Encoding: base64\n\n", "="),
        ("Content-Transfer-Encoding: base64\n\n", "A="),
        ("Content-Transfer-Encoding: base64\n\n", "-"),
        ("Content-Transfer-Encoding: quoted-printable\n\n", "="),
        ("Content-Transfer-Encoding: quoted-printable\n\n", " "),
        ("Content-Transfer-Encoding: quoted-printable\n\n", "=\n"),
        ("Content-Type: text/plain; charset=utf-7\n\n", "+"),
        ("Content-Type: text/plain; charset=iso-2022-jp\n\n", "\u{1b}$B"),
        ("Content-Type: text/plain; charset=utf-16\n\n", "\u{fdfa}"),
        ("Content-Type: application/x\n\n", "\r"),
        ("Content-Type: application/x\n\n", "\r\n"),
        ("Content-Type: application/x\n\n", "\r\r\nx"),
    ] {
        try_out(before, unit, "");
    }
}

/// A text that grows when it is normalised is counted with its new length.
#[test]
fn text_that_grows_is_counted() {
    let limits = Limits { text: MIB, ..Limits::default() };
    let parts = format!("--b\n\n{}\n", "\u{fdfa}x".repeat(10_000)).repeat(20);
    let message = format!("Content-Type: multipart/mixed; boundary=b\n\n{parts}");
    let mut bytes = 0;
    let extent = decode(message.as_bytes(), &limits, &mut |piece| {
        if let Fragment::Text(text) = piece {
            bytes += text.len();
        }
    });
    assert!(extent.is_cut);
    assert!((MIB / 2..2 * MIB).contains(&bytes), "{bytes}");
}

/// A message made of all constructs that matter.
#[derive(Clone, Debug)]
struct Message(Vec<u8>);

impl Arbitrary for Message {
    fn arbitrary(g: &mut Gen) -> Self {
        let parts = [
            "\n",
            "\r\n",
            "\n\n",
            " ",
            ":",
            ";",
            "=",
            "\"",
            "\\",
            "(",
            ")",
            "<",
            ">",
            ",",
            "--",
            "--b",
            "--b--",
            "--c",
            "\n--b\n",
            "\n--c\n",
            "\n--b--\n",
            "\n--b\n\n",
            "Content-Type: ",
            "text/plain",
            "text/html",
            "multipart/mixed",
            "; boundary=b",
            "; boundary=\"c\"",
            "message/rfc822",
            "multipart/digest",
            "; charset=",
            "utf-8",
            "utf-16",
            "iso-2022-jp",
            "utf-7",
            "; name=a",
            "; name*0*=",
            "utf-8''a%20",
            "; delsp=yes",
            "Content-Transfer-Encoding: ",
            "base64",
            "quoted-printable",
            "QUJD",
            "=41",
            "=\n",
            "Content-Disposition: ",
            "attachment",
            "; filename=",
            "Subject: ",
            "From: ",
            "To: ",
            "=?utf-8?q?",
            "=?utf-8?b?",
            "?=",
            "a",
            "é",
            "\u{301}",
            "\u{200b}",
            "<a href=",
            "<p>",
            "<!--",
            "&amp;",
            "\u{feff}",
        ];
        let mut message = Vec::new();
        for _ in 0..u8::arbitrary(g) % 60 {
            match u8::arbitrary(g) % 20 {
                0 => message.push(u8::arbitrary(g)),
                _ => message.extend_from_slice(g.choose(&parts).unwrap().as_bytes()),
            }
        }
        Self(message)
    }
}

#[test]
fn random_messages_are_decoded() {
    kit::quick_check().tests(10_000).quickcheck(
        (|Message(message)| {
            let decode = |limits| decode(&message, &limits, &mut |_| ());
            // None of them comes to a limit, though mail programs may differ in what they show.
            let all = decode(Limits::default());
            let small = Limits { depth: 2, parts: 3, text: 20, attachments: 10, composed: 30 };
            // What small limits leave whole is decoded the same with larger ones.
            let some = decode(small);
            !all.is_cut && (some.is_cut || some == all)
        }) as fn(Message) -> bool,
    );
}
