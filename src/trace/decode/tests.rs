//! Sample messages and their fragments.

use super::*;

/// The fragments of a message, each with a letter for its kind, and whether
/// they are complete.
pub(super) fn decoded(message: &[u8], limits: &Limits) -> (Vec<String>, bool) {
    let mut pieces = Vec::new();
    let extent = decode(message, limits, &mut |piece| pieces.push(named(piece)));
    (pieces, extent.is_whole())
}

fn named(piece: Fragment<'_>) -> String {
    match piece {
        Fragment::Text(text) => {
            assert_eq!(normalise(text), text);
            format!("T {text}")
        }
        Fragment::File(bytes) => format!("F {}", bytes.escape_ascii()),
        Fragment::Bytes(bytes) => format!("B {}", bytes.escape_ascii()),
    }
}

/// The fragments of a message, which must not depend on its line ends.
fn pieces(message: &str) -> Vec<String> {
    let (pieces, is_whole) = decoded(message.as_bytes(), &Limits::default());
    assert!(is_whole);
    let crlf = decoded(message.replace('\n', "\r\n").as_bytes(), &Limits::default());
    let with_lf = |piece: &String| piece.replace("\\r\\n", "\\n");
    assert!(crlf.0.iter().map(with_lf).eq(pieces.iter().map(with_lf)), "{:?}", crlf.0);
    pieces
}

fn assert_pieces(message: &str, expected: &[&str]) {
    assert_eq!(pieces(message), expected, "{message}");
}

#[test]
fn subject_names_and_body() {
    assert_pieces(
        "Received: from client.example by mail.example; Mon, 1 Jan 2024 10:00:00 +0000\n\
         From: \"Doe, Jane\" <jane@example.org>\n\
         To: Bob <bob@example.net>, carol@example.net (Carol C.),\n\
         \tdave@example.net\n\
         Cc: The board: Eve <eve@example.net>, Mallory <m@example.net>;\n\
         Reply-To: Office <office@example.org>\n\
         Subject: Minutes of\n the meeting\n\
         Message-ID: <1@example.org>\n\
         \n\
         Dear all,\n\nhere are the MINUTES.\n",
        &[
            "T doe, jane",
            "T bob",
            "T carol c.",
            "T the board",
            "T eve",
            "T mallory",
            "T office",
            "T minutes of the meeting",
            "T dear all, here are the minutes.",
        ],
    );
}

#[test]
fn encoded_words() {
    assert_pieces(
        "Subject: =?UTF-8?Q?Caf=C3=A9_cr?= =?utf-8?q?=C3=A8me?= for 2\n\
         From: =?iso-8859-1?Q?J=F6rg?= Maier <j@example.org>\n\
         To: =?koi8-r?B?8NLJ18XU?= <p@example.org>, \"=?utf-8?b?w6k=?=\" <e@example.org>\n\
         Cc: =?utf-8?B?5ryi5a0=?=\n =?utf-8?B?lw==?= <k@example.org>\n\
         Reply-To: café <c@example.org>\n\n",
        &["T café crème for 2", "T jörg maier", "T привет", "T é", "T 漢字", "T café"],
    );
    // Text that is not an encoded word.
    assert_pieces(
        "Subject: =?utf-8?q?never ended and =?x?= more\n\n",
        &["T =?utf-8?q?never ended and =?x?= more"],
    );
}

#[test]
fn transfer_encodings_and_charsets() {
    for (header, body, text) in [
        ("", "Gr=C3=BC=DFe =3D", "gr=c3=bc=dfe =3d"),
        ("Content-Transfer-Encoding: quoted-printable\n", "Gr=C3=BC=\n=C3=9Fe", "grüsse"),
        (
            "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: Quoted-Printable\n",
            "Gr=FC=DFe, a very long line that was bro=\nken",
            "grüsse, a very long line that was broken",
        ),
        (
            "Content-Type: text/plain; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n",
            "R3LD\nvMOf\nZQ==\n",
            "grüsse",
        ),
        (
            "Content-Type: text/plain; charset=shift_jis\nContent-Transfer-Encoding: base64\n",
            "g26DjYFb\n",
            "ハロー",
        ),
        ("Content-Type: text/plain; charset=utf-7\n", "Hi Mom -+Jjo--!", "hi mom -☺-!"),
    ] {
        assert_pieces(&format!("{header}\n{body}"), &[&format!("T {text}")]);
    }
    let (latin, _) = decoded(b"\nGr\xfc\xdfe", &Limits::default());
    assert_eq!(latin, ["T grüsse"]);
}

#[test]
fn plain_text_after_base64_is_a_text() {
    // As a mailing list appends it: mail programs decode it as base64 too, or show it.
    let all = pieces(
        "Content-Type: text/html\nContent-Transfer-Encoding: base64\n\n\
         PGI+b2ZmZXI8L2I+\n\n\
         -----\nThis list is sponsored by nobody.\n",
    );
    assert!(all[0].starts_with("T offer"), "{all:?}");
    assert_eq!(all[1..], ["T --- this list is sponsored by nobody."]);
}

#[test]
fn both_alternatives_are_decoded() {
    assert_pieces(
        "Subject: Offer\nMIME-Version: 1.0\n\
         Content-Type: multipart/alternative; boundary=\"=_b1\"\n\n\
         This is a multi-part message in MIME format.\n\
         --=_b1\n\
         Content-Type: text/plain; charset=utf-8; format=flowed\n\n\
         Only today: see\nhttps://example.org/offer\n\
         --=_b1  \n\
         Content-Type: text/html; charset=utf-8\n\n\
         <html><head><title>Our offer</title><style>p { color: red }</style></head>\n\
         <body><p>Only <b>to</b>day: see <a href=\"https://example.org/offer?a=1&amp;b=2\">here</a></p>\n\
         <img src='https://example.org/pixel.gif' alt=\"A red car\"><img src=\"cid:1\"></body></html>\n\
         --=_b1--\n\
         Sent by nobody.\n",
        &[
            "T offer",
            "T only today: see https://example.org/offer",
            "T only today: see here",
            "T our offer",
            "T a red car",
            "T https://example.org/offer?a=1&b=2",
            "T https://example.org/pixel.gif",
            "T sent by nobody.",
        ],
    );
}

#[test]
fn attachments() {
    assert_pieces(
        "Subject: Files\nContent-Type: multipart/mixed; boundary=b\n\n\
         --b\n\n\
         See the files.\n\
         --b\n\
         Content-Type: text/plain; name=\"=?utf-8?q?caf=C3=A9.txt?=\"\n\
         Content-Disposition: attachment;\n filename*0*=utf-8''caf%C3%A9%20;\n filename*1=menu.txt\n\
         Content-Transfer-Encoding: quoted-printable\n\n\
         Caf=C3=A9: 2 Euro\n\n\
         --b\n\
         Content-Type: application/pdf\n\
         Content-Disposition: attachment; filename=\"Report 2024.PDF\"\n\
         Content-Transfer-Encoding: base64\n\n\
         JVBERi0xLjQKAP8K\n\
         --b\n\
         Content-Type: application/octet-stream; name=page.html\n\
         Content-Transfer-Encoding: base64\n\n\
         PHA+SGVsbG88cD5Xb3JsZA==\n\
         --b\n\
         Content-Type: application/json\n\n\
         {\"A\": 1}\n\
         --b\n\
         Content-Type: image/png\nContent-ID: <1>\nContent-Transfer-Encoding: base64\n\n\
         iVBORw0KGgoA\n\
         --b\n\
         Content-Type: text/plain; name=empty.txt\n\n\
         --b--\n",
        &[
            "T files",
            "T see the files.",
            "T café menu.txt",
            "T café.txt",
            "F Caf\\xc3\\xa9: 2 Euro\\n",
            "F Caf\\xc3\\xa9: 2 Euro\\r\\n",
            "T café: 2 euro",
            "T report 2024.pdf",
            "F %PDF-1.4\\n\\x00\\xff\\n",
            "B %PDF-1.4\\n\\x00\\xff\\n",
            "T page.html",
            "F <p>Hello<p>World",
            "T hello world",
            "F {\\\"A\\\": 1}",
            "T {\"a\": 1}",
            "F \\x89PNG\\r\\n\\x1a\\n\\x00",
            "B \\x89PNG\\r\\n\\x1a\\n\\x00",
            "T empty.txt",
        ],
    );
}

/// A published hash is that of the exact bytes. Where the encoding leaves line ends to the
/// path, each end that the file may have had is there.
#[test]
fn files_are_there_byte_for_byte() {
    let files = |header: &str, body: &str| {
        let message = format!(
            "Content-Type: multipart/mixed; boundary=b\n\n--b\n\
             Content-Disposition: attachment; filename=a.txt\nContent-Type: text/plain{header}\n\
             \n{body}\n--b--\n"
        );
        let (pieces, _) = decoded(message.as_bytes(), &Limits::default());
        let files =
            pieces.into_iter().filter_map(|piece| Some(piece.strip_prefix("F ")?.to_owned()));
        files.collect::<Vec<_>>()
    };
    let encoded = |encoding: &str| format!("\nContent-Transfer-Encoding: {encoding}");
    let both = ["first\\nsecond  line\\n", "first\\r\\nsecond  line\\r\\n"];
    assert_eq!(files("", "first\nsecond  line\n"), both);
    assert_eq!(files("", "first\r\nsecond  line\r\n"), both);
    let quoted = encoded("quoted-printable");
    assert_eq!(files(&quoted, "first\nsecond =20=\nline\n"), both);
    // All line ends are within the encoding.
    assert_eq!(files(&quoted, "a=0D=0Ab=0A="), ["a\\nb\\n", "a\\r\\nb\\r\\n", "a\\r\\nb\\n"]);
    let base64 = files(&encoded("base64"), "Zmlyc3QNCnNlY29uZCAgbGluZQ0K\n");
    assert_eq!(base64, ["first\\r\\nsecond  line\\r\\n"]);
    for name in ["uuencode", "x-uuencode"] {
        let uu = files(&encoded(name), "begin 644 a.txt\n'9FER<W0-\"@  \n`\nend\n");
        assert_eq!(uu, ["first\\r\\n"], "{name}");
    }
}

#[test]
fn a_uuencoded_body_is_a_text_or_a_file() {
    let uu = "Content-Transfer-Encoding: x-uuencode\n\n\
              begin 644 notes.txt\n#0V%T\n`\nend\nfooter\n";
    assert_pieces(
        &format!("Content-Type: text/plain\n{uu}"),
        &["T notes.txt", "T cat", "T footer"],
    );
    assert_pieces(
        &format!("Content-Type: application/pdf\n{uu}"),
        &["T notes.txt", "F Cat", "T cat", "T footer"],
    );
}

#[test]
fn messages_within_messages() {
    let inner = "Subject: Inner\nFrom: Eve <eve@example.org>\nContent-Type: multipart/mixed; boundary=i\n\n\
                 --i\n\nInner text\n--i--\nbehind";
    let file = inner.replace('\n', "\\n");
    assert_pieces(
        &format!(
            "Subject: Outer\nContent-Type: multipart/mixed; boundary=o\n\n\
             --o\n\nFor your information\n\
             --o\nContent-Type: message/rfc822; name=\"the mail.eml\"\n\n{inner}\n\
             --o\n\nSee above\n--o--\n"
        ),
        &[
            "T outer",
            "T for your information",
            "T the mail.eml",
            "T inner",
            "T eve",
            "T inner text",
            "T behind",
            &format!("F {file}"),
            &format!("F {}", file.replace("\\n", "\\r\\n")),
            "T see above",
        ],
    );
    // Encoded as a whole, which is not allowed but happens.
    assert_pieces(
        "Subject: Outer\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n\
         U3ViamVjdDogSW5uZXIKCkhlbGxv\n",
        &["T outer", "F Subject: Inner\\n\\nHello", "T inner", "T hello"],
    );
    // Parts of a digest are messages.
    assert_pieces(
        "Content-Type: multipart/digest; boundary=d\n\n\
         --d\n\nSubject: One\n\nFirst\n--d\nContent-Type: text/plain\n\nSubject: Two\n--d--\n",
        &[
            "T one",
            "T first",
            "F Subject: One\\n\\nFirst",
            "F Subject: One\\r\\n\\r\\nFirst",
            "T subject: two",
        ],
    );
}

#[test]
fn parts_of_parts() {
    assert_pieces(
        "Content-Type: multipart/signed; boundary=\"s\"; protocol=\"application/pgp-signature\"\n\n\
         --s\nContent-Type: multipart/mixed; boundary=\"s2\"\n\n\
         --s2\n\none\n--s2\n\ntwo\n--s2--\n\n\
         --s\nContent-Type: message/delivery-status\n\nAction: failed\n--s--\n",
        &["T one", "T two", "T action: failed"],
    );
}

/// Mail programs do not show it, but it reaches the recipient.
#[test]
fn text_outside_of_parts_is_text() {
    assert_pieces(
        "Content-Type: multipart/mixed; boundary=b\n\nthe secret before\n--b\n\none\n--b--\nand\nbehind\n",
        &["T the secret before", "T one", "T and behind"],
    );
    assert_pieces(
        "Content-Type: multipart/mixed; boundary=b\n\n\
         This is a multi-part message in MIME format.\n\n--b\n\none\n--b--\n\n",
        &["T one"],
    );
}

/// A limited number of characters is composed in a message; other text is kept.
#[test]
fn the_work_on_characters_is_limited() {
    let limits = Limits { composed: 100, ..Limits::default() };
    let accents = "e\u{301}x".repeat(30);
    let of = |count: usize| {
        let parts: String = (0..count).map(|_| format!("--b\n\n{accents}\n")).collect();
        let message =
            format!("Content-Type: multipart/mixed; boundary=b\n\n{parts}--b\n\nthe rest\n--b--\n");
        decoded(message.as_bytes(), &limits)
    };
    let (pieces, is_whole) = of(1);
    assert!(is_whole && pieces.len() == 2, "{pieces:?}");
    let (pieces, is_whole) = of(9);
    assert!(!is_whole);
    assert_eq!(pieces.iter().map(|piece| piece.matches('é').count()).sum::<usize>(), 50);
    assert_eq!(pieces.last().map(String::as_str), Some("T the rest"));
}

#[test]
fn broken_structure_is_still_decoded() {
    for (message, expected) in [
        // The end is missing.
        (
            "Content-Type: multipart/mixed; boundary=b\n\n--b\n\none\n--b\n\ntwo\n",
            &["T one", "T two"][..],
        ),
        // An outer boundary ends inner parts.
        (
            "Content-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/mixed; boundary=i\n\n\
             --i\n\none\n--o\n\ntwo\n--o--\n",
            &["T one", "T two"],
        ),
        // A closed part stays closed: what follows is text outside of parts.
        (
            "Content-Type: multipart/mixed; boundary=o\n\n--o\nContent-Type: multipart/mixed; boundary=i\n\n\
             --i\n\none\n--i--\n--i\n\nnobody sees this\n--o\n\ntwo\n--o--\n--o\n\nnor this\n",
            &["T one", "T --i nobody sees this", "T two", "T --o nor this"],
        ),
        // One boundary is a prefix of the other, and some lines resemble a
        // boundary.
        (
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/mixed; boundary=bb\n\n\
             --bb\n\none\n--bbb\n --b\n--\n--b-\n--bb--\n\n--b\n\ntwo\n--b--\n",
            &["T one --bbb --b -- --b-", "T two"],
        ),
        // No empty line after the header.
        (
            "Subject: one\nthis is the body\nmore: of it\n",
            &["T one", "T this is the body more: of it"],
        ),
        ("this is the body\n", &["T this is the body"]),
        ("From me@example.org Mon Jan 1\nSubject: one\n\ntwo\n", &["T one", "T two"]),
        ("Subject: one\n", &["T one"]),
        ("Subject: one", &["T one"]),
        (" folded\nSubject : one\n\ttwo\n \n three\n\nfour", &["T one two three", "T four"]),
        ("", &[]),
        ("\n\n", &[]),
        // A part without a body, and one without a header.
        (
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n--b\none\n--b--",
            &["T one"],
        ),
        // An invalid type means plain text.
        ("Content-Type: nonsense\n\none\n", &["T one"]),
        ("Content-Type: ;;;\n\none\n", &["T one"]),
        ("Content-Type: text/x-nonsense; charset=nonsense\n\none\n", &["T one"]),
    ] {
        assert_pieces(message, expected);
    }
}

/// What mail programs read in several ways, or what is not decoded, never passes for whole.
#[test]
fn what_is_in_doubt_is_not_whole() {
    let base64 = "aGlkZGVuIHdvcmRz";
    for (message, expected) in [
        // The boundary is missing.
        ("Content-Type: multipart/mixed; boundary=b\n\none\n", &["T one"][..]),
        ("Content-Type: multipart/mixed\n\none\n--b\n\ntwo\n", &["T one --b two"]),
        ("Content-Type: multipart/mixed; boundary=\"\"\n\none\n", &["T one"]),
        ("Content-Type: multipart; boundary=b\n\n--b\n\none\n", &["T --b one"]),
        // A field is there twice: the first one is used.
        ("Content-Type: text/plain\nContent-Type: text/html\n\n<b>one\n", &["T <b>one"]),
        // The header may go on after a line that does not belong to it.
        (
            "Subject: x\nno field\nContent-Type: text/html\n\none",
            &["T x", "T no field content-type: text/html one"],
        ),
        // An encoding, or a charset, that is not known.
        ("Content-Transfer-Encoding: base65\n\none\n", &["T one"]),
        ("Content-Type: text/plain; charset=hz-gb-2312\n\none ~{<:~}\n", &["T one ~{<:~}"]),
        ("Content-Type: text/plain; charset=x-none\n\ncaf\u{e9}\n", &["T café"]),
        // A file that no field declares.
        ("\none\nbegin 644 x\n#0V%T\nend\n", &["T one begin 644 x #0v%t end"]),
    ] {
        for message in [message.to_owned(), message.replace('\n', "\r\n")] {
            let (pieces, is_whole) = decoded(message.as_bytes(), &Limits::default());
            assert_eq!(pieces, expected, "{message}");
            assert!(!is_whole, "{message}");
        }
    }
    // What is decoded may begin later.
    for line in [": none\nContent-Disposition: inline", ": non", "a b: c"] {
        let message = format!("Content-Transfer-Encoding: base64\n{line}\n\n{base64}\n");
        assert!(!decoded(message.as_bytes(), &Limits::default()).1, "{line}");
    }
    // A line that ends with a CR alone.
    let message = format!("Subject: x\rContent-Transfer-Encoding: base64\n\n{base64}\n");
    assert!(!decoded(message.as_bytes(), &Limits::default()).1);
}

/// Text and files are found wherever the fields are folded.
#[test]
fn a_boundary_may_be_folded_after_its_name() {
    let message = include_str!("folded-after-equals.eml");
    let (pieces, is_whole) = decoded(message.as_bytes(), &Limits::default());
    assert!(is_whole);
    assert!(
        pieces.iter().any(|piece| piece.starts_with("T the margin of the northern branch")),
        "{pieces:?}"
    );
    assert!(pieces.iter().any(|piece| piece == "T x.pdf"), "{pieces:?}");
    assert!(pieces.iter().any(|piece| piece.starts_with("F #\\x94WU")), "{pieces:?}");
}

#[test]
fn text_after_a_file_in_its_part_is_a_text_and_the_file_is_itself() {
    for behind in ["a hidden text.\n", "hidden\nwords\n"] {
        let message = format!(
            "Content-Type: application/pdf\nContent-Transfer-Encoding: base64\n\nJVBERg==\n\n{behind}"
        );
        let (pieces, is_whole) = decoded(message.as_bytes(), &Limits::default());
        assert!(is_whole);
        assert!(pieces.contains(&String::from("F %PDF")), "{pieces:?}");
        let text = format!("T {}", behind.replace('\n', " ").trim_end());
        assert!(pieces.contains(&text), "{pieces:?}");
    }
}

#[test]
fn invisible_characters_are_dropped() {
    assert_pieces(
        "Subject: V\u{200b}ia\u{ad}gra\nContent-Type: text/plain; charset=utf-8\n\n\
         > On Monday you wrote:\n>> “Quoted” — it’s\n>  so\n\n========== ＦＲＥＥ  Money!!!!!!!\n",
        &["T viagra", "T on monday you wrote: \"quoted\" - it's so === free money!!!"],
    );
}

#[test]
fn flowed_text_is_joined() {
    assert_pieces(
        "Content-Type: text/plain; charset=utf-8; format=flowed; delsp=yes\n\n\
         See https://example.org/a/ \nvery/long/path  \nfor more.\n",
        &["T see https://example.org/a/very/long/path for more."],
    );
    assert_pieces(
        "Content-Type: text/plain; format=flowed\n\n> quoted and \n> broken\nanswer\n",
        &["T quoted and broken answer"],
    );
}

#[test]
fn html_may_declare_its_charset() {
    let (pieces, _) = decoded(
        b"Content-Type: text/html\n\n<meta charset=iso-8859-2><p>\xb1\xe6\xea",
        &Limits::default(),
    );
    assert_eq!(pieces, ["T ąćę"]);
}

#[test]
fn binary_data_declared_as_text_is_binary() {
    assert_pieces(
        "Content-Type: text/plain; name=a.doc\nContent-Transfer-Encoding: base64\n\n0M8R4KGxGuEAAA==\n",
        &[
            "T a.doc",
            "F \\xd0\\xcf\\x11\\xe0\\xa1\\xb1\\x1a\\xe1\\x00\\x00",
            "B \\xd0\\xcf\\x11\\xe0\\xa1\\xb1\\x1a\\xe1\\x00\\x00",
        ],
    );
}

#[test]
fn the_excess_over_the_limits_is_left_out() {
    let parts = "Content-Type: multipart/mixed; boundary=b\n\n--b\n\none two\n\
                 --b\nContent-Type: application/x; name=x\n\n\u{1}\0three\n\
                 --b\nContent-Type: multipart/mixed; boundary=c\n\n--c\n\nfour\n--c--\n--b\n\nfive\n--b--\n";
    let all = ["T one two", "T x", "F \\x01\\x00three", "B \\x01\\x00three", "T four", "T five"];
    let limited = |limits: Limits| decoded(parts.as_bytes(), &limits);
    let limits = Limits { depth: 2, parts: 6, text: 100, attachments: 7, ..Limits::default() };
    assert_eq!(limited(limits), (all.map(String::from).to_vec(), true));

    let (pieces, is_whole) = limited(Limits { depth: 1, ..limits });
    assert!(!is_whole && pieces == [&all[..4], &all[5..]].concat());
    let (pieces, is_whole) = limited(Limits { depth: 0, ..limits });
    assert!(!is_whole && pieces.is_empty());
    let (pieces, is_whole) = limited(Limits { parts: 4, ..limits });
    assert!(!is_whole && pieces == all[..4]);
    let (pieces, is_whole) = limited(Limits { text: 4, ..limits });
    assert!(!is_whole && pieces == ["T one", "F \\x01\\x00three", "B \\x01\\x00three"]);
    let (pieces, is_whole) = limited(Limits { attachments: 6, ..limits });
    assert!(!is_whole && pieces == [all[0], all[1], "B \\x01\\x00thre", all[4], all[5]]);
    let (pieces, is_whole) = limited(Limits { attachments: 0, ..limits });
    assert!(!is_whole && pieces == [all[0], all[1], all[4], all[5]]);
}

#[test]
fn a_file_has_the_fragments_of_an_attachment() {
    let file = |bytes: &[u8]| {
        let mut pieces = Vec::new();
        let extent = decode_file(bytes, &Limits::default(), &mut |piece| pieces.push(named(piece)));
        assert_eq!(extent, Extent::default());
        pieces
    };
    assert_eq!(file("Café\r\n".as_bytes()), ["F Caf\\xc3\\xa9\\r\\n", "T café"]);
    assert_eq!(file(b"<html>A<br>B"), ["F <html>A<br>B", "T a b"]);
    assert_eq!(file(b"PK\0\n"), ["F PK\\x00\\n", "B PK\\x00\\n"]);
    assert_eq!(file(b""), [""; 0]);
    let limits = Limits { attachments: 2, ..Limits::default() };
    let mut pieces = Vec::new();
    assert!(decode_file(b"PK\0", &limits, &mut |piece| pieces.push(named(piece))).is_cut);
    assert_eq!(pieces, ["T pk"]);
}

#[test]
fn each_fragment_belongs_to_a_part() {
    let inner = "Subject: inner\n\nwithin\n";
    let mixed = format!(
        "From: Jane <j@example.org>\nSubject: outer\nContent-Type: multipart/mixed; boundary=b\n\n\
         --b\nContent-Type: multipart/alternative; boundary=c\n\n--c\n\nplain\n\
         --c\nContent-Type: text/html\n\n<p>web</p>\n--c--\n\
         --b\nContent-Type: image/png\n\n\u{1}\0one\n\
         --b\nContent-Type: message/rfc822; name=mail\n\nSubject: second\n\
         Content-Type: multipart/mixed; boundary=d\n\n--d\n\ntext\n\
         --d\nContent-Type: text/x-log; name=log\n\nlines\n\
         --d\nContent-Type: message/rfc822\n\n{inner}--d--\n\
         --b\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n\
         U3ViamVjdDogZW5jb2RlZAoKZGVlcAo=\n\
         --b\nContent-Disposition: attachment; filename=a.csv\n\nrows\n--b--\nlast\n"
    );
    let mut found = Vec::new();
    decode_parts(mixed.as_bytes(), &Limits::default(), &mut |part, piece| {
        let piece = named(piece);
        if let Some(text) = piece.strip_prefix("T ") {
            found.push(format!("{part}: {text}"));
        } else {
            found.push(format!("{part}: {}", &piece[..1]));
        }
    });
    assert_eq!(
        found,
        [
            "name: jane",
            "subject: outer",
            "text: plain",
            "HTML: web",
            "attachment 1: F",
            "attachment 1: B",
            "attachment 2: mail",
            "attachment 2: second",
            "attachment 2: text",
            "attachment 2: log",
            "attachment 2: F",
            "attachment 2: lines",
            "attachment 2: inner",
            "attachment 2: within",
            // The line ends of attached messages are those of the path.
            "attachment 2: F",
            "attachment 2: F",
            "attachment 2: F",
            "attachment 2: F",
            "attachment 3: F",
            "attachment 4: a.csv",
            "attachment 4: F",
            "attachment 4: rows",
            "text: last",
            "attachment 3: encoded",
            "attachment 3: deep",
        ]
    );
}
