//! The tokenizer tests of html5lib, as far as they concern text: texts,
//! character references, and the tags and attributes between them.
//! `tests/html5lib` contains the data and its licence.
//!
//! Comments and document types are compared only in that they are not text.
//! Whether a NUL becomes U+FFFD is not compared: both are dropped by
//! normalisation.

use serde_json::Value;

use super::super::entities;
use super::HtmlReader;

/// The cases, one per line: file, description, input, tokens, and, unless it is
/// the text of a page, the initial states and the enclosing element.
const CASES: &str = include_str!("../../../../tests/html5lib/tokenizer.jsonl");

/// Cases with a deliberately different result, and the reason. The test fails
/// for any other difference, and for a listed case that no longer differs.
const OTHERWISE: &[(&str, &[&str])] = &[
    (
        "A tag that the end of the text cuts off is none for a browser. Here it is one: of a \
         message that is cut, the last link can be found, and no tag is taken for text.",
        &[
            r#"contentModelFlags: End tag closing RCDATA or RAWTEXT (ending with space): "foo</xmp " (RCDATA state)"#,
            r#"contentModelFlags: End tag closing RCDATA or RAWTEXT (ending with space): "foo</xmp " (RAWTEXT state)"#,
            r#"contentModelFlags: End tag closing RCDATA or RAWTEXT (ending with slash): "foo</xmp/" (RCDATA state)"#,
            r#"contentModelFlags: End tag closing RCDATA or RAWTEXT (ending with slash): "foo</xmp/" (RAWTEXT state)"#,
            r#"test4: CR EOF in tag name: "<z\r" (Data state)"#,
            r#"test4: Slash EOF in tag name: "<z/" (Data state)"#,
            r#"test4: EOF in tag name state : "<a" (Data state)"#,
            r#"test4: EOF in before attribute name state: "<a " (Data state)"#,
            r#"test4: EOF in attribute name state: "<a a" (Data state)"#,
            r#"test4: EOF in after attribute name state: "<a a " (Data state)"#,
            r#"test4: EOF in before attribute value state: "<a a =" (Data state)"#,
            r#"test4: EOF in attribute value (double quoted) state: "<a a =\"a" (Data state)"#,
            r#"test4: EOF in attribute value (single quoted) state: "<a a ='a" (Data state)"#,
            r#"test4: EOF in attribute value (unquoted) state: "<a a =a" (Data state)"#,
            r#"test4: EOF in after attribute value state: "<a a ='a'" (Data state)"#,
        ],
    ),
    (
        "A script within a comment within a script ends the outer script here: no mail program \
         runs scripts, and what follows is text of the page at worst.",
        &[
            r#"domjs: </script> in script HTML comment - double escaped: "<!-- <script></script> --></script>" (Script data state)"#,
            r#"domjs: </script> in script HTML comment - double escaped with nested <script>: "<!-- <script><script></script></script> --></script>" (Script data state)"#,
            r#"test1: - in script HTML comment double escaped: "<!--<script>-</script>-->" (Script data state)"#,
            r#"test1: -- in script HTML comment double escaped: "<!--<script>--</script>-->" (Script data state)"#,
            r#"test1: --- in script HTML comment double escaped: "<!--<script>---</script>-->" (Script data state)"#,
            r#"test1: - spaced in script HTML comment double escaped: "<!--<script> - </script>-->" (Script data state)"#,
            r#"test1: -- spaced in script HTML comment double escaped: "<!--<script> -- </script>-->" (Script data state)"#,
        ],
    ),
];

/// States that are never used here.
fn is_read(state: &str) -> bool {
    // An element `plaintext` is treated as any other, and CDATA sections exist
    // only in XML.
    !matches!(state, "PLAINTEXT state" | "CDATA section state")
}

/// A text, or a tag with its attributes.
#[derive(Debug, PartialEq)]
enum Token {
    Text(String),
    Start(String, Vec<(String, String)>),
    End(String),
}

fn add_text(tokens: &mut Vec<Token>, text: &str) {
    if let Some(Token::Text(last)) = tokens.last_mut() {
        last.push_str(text);
    } else if !text.is_empty() {
        tokens.push(Token::Text(text.to_owned()));
    }
}

fn plain(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").replace('\0', "\u{fffd}")
}

/// The tokens in the data of a case.
fn expected(tokens: &Value) -> Vec<Token> {
    let mut all = Vec::new();
    for token in tokens.as_array().unwrap() {
        let text = |n: usize| plain(token[n].as_str().unwrap());
        match token[0].as_str().unwrap() {
            "Character" => add_text(&mut all, &text(1)),
            "EndTag" => all.push(Token::End(text(1))),
            "StartTag" => {
                let attributes = token[2].as_object().unwrap().iter();
                let attributes = attributes
                    .map(|(name, value)| (plain(name), plain(value.as_str().unwrap())))
                    .collect();
                all.push(Token::Start(text(1), attributes));
            }
            other => panic!("{other}"),
        }
    }
    all
}

/// The tokens that the reader finds, by calling its functions.
fn read(html: &str, state: &str, element: &str) -> Vec<Token> {
    let mut reader = HtmlReader::new(html);
    let mut tokens = Vec::new();
    match state {
        "Data state" => {}
        "RCDATA state" => {
            let mut text = String::new();
            entities::decode_all(reader.raw(element), false, &mut text);
            add_text(&mut tokens, &plain(&text));
        }
        _ => add_text(&mut tokens, &plain(reader.raw(element))),
    }
    while reader.at < html.len() {
        let rest = &html[reader.at..];
        let bytes = rest.as_bytes();
        let is_end = bytes.get(1) == Some(&b'/');
        let letter = bytes.get(1 + usize::from(is_end)).filter(|byte| byte.is_ascii_alphabetic());
        if bytes[0] != b'<' || letter.is_none() {
            // Up to the next tag only.
            let end = rest.find(['<', '&']).unwrap_or(rest.len());
            match bytes[0] {
                b'<' => reader.markup(rest),
                b'&' => reader.text(),
                _ => {
                    reader.page.text.push_str(&rest[..end]);
                    reader.at += end;
                }
            }
            add_text(&mut tokens, &plain(&std::mem::take(&mut reader.page.text)));
            continue;
        }
        reader.at += 1 + usize::from(is_end);
        let name = plain(&reader.name().to_ascii_lowercase());
        let mut attributes: Vec<(String, String)> = Vec::new();
        while let Some((name, value)) = reader.attribute() {
            let name = plain(&name.to_ascii_lowercase());
            let mut decoded = String::new();
            entities::decode_all(value, true, &mut decoded);
            // Of two attributes with one name, the first is used.
            if attributes.iter().all(|(other, _)| *other != name) {
                attributes.push((name, plain(&decoded)));
            }
        }
        attributes.sort();
        tokens.push(if is_end { Token::End(name) } else { Token::Start(name, attributes) });
    }
    tokens
}

#[test]
fn html5libs_tokenizer_tests() {
    let mut otherwise: Vec<String> = Vec::new();
    let mut count = 0;
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let [file, description, input] = [0, 1, 2].map(|n| case[n].as_str().unwrap());
        let mut expected = expected(&case[3]);
        for token in &mut expected {
            if let Token::Start(_, attributes) = token {
                attributes.sort();
            }
        }
        let states = case.get(4).and_then(Value::as_array);
        let states = states.map_or(vec!["Data state"], |states| {
            states.iter().map(|state| state.as_str().unwrap()).collect()
        });
        let element = case.get(5).and_then(Value::as_str).filter(|name| !name.is_empty());
        let element = element.unwrap_or("script");
        for state in states.into_iter().filter(|state| is_read(state)) {
            count += 1;
            let found = read(input, state, element);
            if found != expected {
                let name = format!("{file}: {description}: {input:?} ({state})");
                println!("{name}\n  found    {found:?}\n  expected {expected:?}");
                otherwise.push(name);
            }
        }
    }
    assert!(count > 6_000, "{count}");
    let known: Vec<&str> = OTHERWISE.iter().flat_map(|(_, names)| *names).copied().collect();
    let new: Vec<_> = otherwise.iter().filter(|name| !known.contains(&name.as_str())).collect();
    let gone: Vec<_> = known.iter().filter(|name| !otherwise.iter().any(|o| o == *name)).collect();
    assert!(new.is_empty() && gone.is_empty(), "{} new: {new:#?}\ngone: {gone:#?}", new.len());
}
