//! HTML as it is sent, and the text that a reader sees.

use quickcheck::{Arbitrary, Gen};

use super::html::Page;
use super::normal::normalise;

fn text(html: &str) -> String {
    normalise(&Page::read(html).text)
}

#[test]
fn words_end_where_a_reader_sees_them_end() {
    for (html, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("<p>one</p><p>two</p>", "one two"),
        ("one<br>two<BR/>three<hr>four", "one two three four"),
        ("<table><tr><td>one</td><td>two</td></tr><tr><th>three</table>", "one two three"),
        ("<ul><li>one<li>two</ul>three", "one two three"),
        ("<h1>one</h1>two<div>three</div>four", "one two three four"),
        ("<b>o</b>n<i>e</i> <span>t</span>wo<a href=x>three</a>", "one twothree"),
        ("one<img src=a.png>two<wbr>three", "onetwothree"),
        ("one\n two\t<b> three</b>", "one two three"),
        ("<select><option>one<option>two</select>", "one two"),
        ("<o:p>one</o:p>two<font size=1>three</font>", "onetwothree"),
        ("<pre>&gt; one\n&gt; two</pre>", "one two"),
        ("one<br>&gt; two<br>\n&gt;&gt; three", "one two three"),
        ("<textarea>one <b>two&amp;</textarea>three", "one <b>two& three"),
        ("<button>one</button>two", "one two"),
        ("one<span style='display:block'>t<span>w</span>o</span>three", "one two three"),
        (
            "one<a style='display:block'>two<i style='display:table'>three</a>four",
            "one two three four",
        ),
        ("<div style='display:inline'>one</div>two", "onetwo"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn code_and_comments_are_skipped() {
    for html in [
        "on<!-- x -->e",
        "on<!---->e",
        "on<!-->e",
        "on<!--->e",
        "on<!-- -- -> > --!>e",
        "on<!--[if mso]><p>for Outlook</p><![endif]-->e",
        "on<![if !mso]>e<![endif]>",
        "<!DOCTYPE html PUBLIC \"-//W3C//DTD\">on<?xml version='1.0'?>e",
        "<head><meta charset=utf-8><link rel=x href=#><style>p > b { }</style></head>one",
        "<STYLE type=x><!-- p {} </styles> --></STYLE\n>one",
        "<script>if (a<b) document.write('<p>two</p>')</script>one",
        "<noframes>two</noframes>one",
        "on<b></b>e",
        "on<span style=\"color:red\" title='a > b'></span>e",
        "on</>e",
        "on</ x>e",
        "one<a href=\"never ended>two",
        "one<p",
        "one</p ",
        "one<!-- never ended",
        "one<script>never ended",
        "one<?never ended",
        "one<title>two</title>",
        "one<a href",
        "one<a href=",
        "one<a =>",
    ] {
        assert_eq!(text(html), "one", "{html}");
    }
}

#[test]
fn a_lone_less_than_sign_is_text() {
    for (html, expected) in [
        ("1 < 2 <3 <", "1 < 2 <3 <"),
        ("a<<b>c", "a<c"),
        ("a&lt;b>c&gt;", "a<b>c>"),
        ("a>b", "a>b"),
        ("<é>", "<é>"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn tricks_to_split_a_word() {
    for html in [
        "V<!-- x -->iagra",
        "Via<b></b>gra",
        "V<span></span>i<font color=white></font>agra",
        "V&shy;i&#8203;a&zwnj;g&zwj;r\u{feff}a",
        "&#86;&#x69;&#97;gra",
        "&Vopf;iagra",
        "Ｖｉａｇｒａ",
        "V<span style='display:none'>xyz</span>iagra",
        "V<span style=\"font-size: 0px; color: #fff\">x<span>y</span>z</span>iagra",
        "V<span hidden>xyz</span>iagra",
        "V<template><p>xyz</template>iagra",
        "V<div style='visibility:hidden'>x<br>y</div>iagra",
    ] {
        assert_eq!(text(html), "viagra", "{html}");
    }
}

#[test]
fn hidden_text_is_a_separate_text() {
    let page = Page::read(
        "<div style='display:none'>Pre<br>view<div>&amp;</div></div>Te<i hidden>x</i>xt",
    );
    assert_eq!(normalise(&page.text), "text");
    assert_eq!(normalise(&page.hidden), "pre view & x");
    // If an inner end tag is missing, the outer one closes both.
    let page = Page::read("<div hidden>one<span hidden>two</div>three");
    assert_eq!(
        (normalise(&page.text).as_str(), normalise(&page.hidden).as_str()),
        ("three", "one two")
    );
    // Without an end tag it is still read.
    let page = Page::read("one<p hidden>two");
    assert_eq!((normalise(&page.text).as_str(), normalise(&page.hidden).as_str()), ("one", "two"));
}

#[test]
fn titles_alternatives_and_links() {
    let page = Page::read(
        "<title>The &quot;title&quot;\n</title><base href=https://example.org/>\
         <a href='HTTPS://example.org/?a&amp;b&copy=1' target=_blank>link</a>\
         <a href=\" https://example.org/\n  long \">x</a><a href=\"mailto:a@example.org\">m</a>\
         <a href=\"mailto:a@example.org\">m</a><a href=#top>up</a><a href>n</a><a href=''>n</a>\
         <img alt='A &amp;\nB' src=data:image/png;base64,AAAA><img alt=\"\" src=CID:1>\
         <form action=/login><table background=back.png>",
    );
    assert_eq!(page.title, "The \"title\"\n\n");
    assert_eq!(page.alternatives, "A & B\n\n");
    assert_eq!(
        page.links,
        "https://example.org/\nHTTPS://example.org/?a&b&copy=1\nhttps://example.org/  long\n\
         mailto:a@example.org\n/login\nback.png\n"
    );
}

/// HTML made of all constructs that matter.
#[derive(Clone, Debug)]
struct Html(String);

impl Arbitrary for Html {
    fn arbitrary(g: &mut Gen) -> Self {
        let parts = [
            "<",
            ">",
            "/",
            "!",
            "--",
            "-",
            "?",
            "=",
            "\"",
            "'",
            " ",
            "\n",
            "&",
            ";",
            "#",
            "x",
            "amp",
            "&#",
            "p",
            "a",
            "style",
            "script",
            "title",
            "textarea",
            "template",
            "hidden",
            "href",
            "src",
            "alt",
            "<p>",
            "</p>",
            "<a href=",
            "<style>",
            "</style>",
            "<title>",
            "</title",
            "<!--",
            "-->",
            "é",
            "漢",
            "<span hidden>",
            "</span>",
            "display:none",
            "style=\"",
            "<textarea>",
            "</textarea>",
            "&eacute",
        ];
        Self((0..u8::arbitrary(g) % 30).map(|_| *g.choose(&parts).unwrap()).collect())
    }
}

#[test]
fn random_html_is_read() {
    kit::quick_check().tests(50_000).quickcheck(
        (|Html(html)| {
            let page = Page::read(&html);
            page.pieces().map(str::len).sum::<usize>() <= 4 * html.len()
        }) as fn(Html) -> bool,
    );
}

#[test]
fn text_between_any_tags_is_found() {
    kit::quick_check().tests(5_000).quickcheck(
        (|words: Vec<u8>| {
            let tags = [
                "<p>",
                "<br/>",
                "</div>",
                "<td align=\"left\">",
                "<!-- c --> ",
                " <b>",
                "</i> ",
                "<hr\n>",
            ];
            let word = |n: u8| format!("word{}&amp;&#{};", n, 200 + u32::from(n % 50));
            let html: String =
                words.iter().map(|&n| word(n) + tags[usize::from(n) % tags.len()]).collect();
            let plain: Vec<String> =
                words.iter().map(|&n| format!("word{}&{}", n, char::from(200 + n % 50))).collect();
            text(&html) == normalise(&plain.join(" "))
        }) as fn(Vec<u8>) -> bool,
    );
}
