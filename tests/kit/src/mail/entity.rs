//! The parts of a message, and their encoding.

use encoding_rs::Encoding;

use super::mime;
use super::prose::number;
use crate::random::Random;

/// A MIME entity.
pub enum Entity {
    /// Text, and its encoding.
    Text { text: Vec<u8>, subtype: &'static str, charset: Charset, transfer: Transfer },
    /// HTML, and its visible text: a line for each block.
    Html { source: Vec<u8>, spoken: Vec<u8>, links: Vec<String>, transfer: Transfer },
    /// An attachment.
    File { name: String, media: &'static str, bytes: Vec<u8>, inline: bool },
    /// A message within the message, and its contents.
    Message { raw: Vec<u8>, truths: Vec<Truth> },
    /// A delivery status.
    Status(Vec<u8>),
    /// Several: `mixed`, `alternative`, `related` or `report`.
    Multi(&'static str, Vec<Entity>),
}

/// How text becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    Utf8,
    Utf16,
    /// Any charset that encoding_rs can encode.
    Of(&'static Encoding, &'static str),
}

/// How bytes become lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Plain,
    Quoted,
    /// Quoted-printable as programs write it that do not quite know it.
    Malformed,
    Base64,
}

/// Something that a message contains: what its reader would see or save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    Subject(String),
    /// A display name in a header.
    Name(String),
    /// Plain text.
    Text(String),
    /// HTML, and its visible text, a line for each block.
    Html {
        source: String,
        spoken: String,
        links: Vec<String>,
    },
    /// An attachment.
    File {
        name: String,
        bytes: Vec<u8>,
    },
}

/// Text as in most mail.
pub fn plain(text: Vec<u8>, random: &mut Random) -> Entity {
    let charset = Charset::Utf8;
    let long = long_line(&text);
    let transfer = match random.below(10) {
        _ if long => Transfer::Quoted,
        0..5 if text.is_ascii() => Transfer::Plain,
        0..3 => Transfer::Plain,
        3..9 => Transfer::Quoted,
        _ => Transfer::Base64,
    };
    Entity::Text { text, subtype: "plain", charset, transfer }
}

/// Whether a line is longer than SMTP allows.
fn long_line(text: &[u8]) -> bool {
    let mut rest = text;
    while rest.len() > 990 {
        match rest[..990].iter().rposition(|&b| b == b'\n') {
            Some(end) => rest = &rest[end + 1..],
            None => return true,
        }
    }
    false
}

impl Entity {
    /// Writes the headers and the body, and adds their contents to `truths`.
    pub fn write(self, random: &mut Random, to: &mut Vec<u8>, truths: &mut Vec<Truth>) {
        match self {
            Entity::Text { text, subtype, charset, transfer } => {
                let name = match charset {
                    Charset::Utf8 => "utf-8",
                    Charset::Utf16 => "utf-16",
                    Charset::Of(_, name) => name,
                };
                put(to, &["Content-Type: text/", subtype, "; charset=\"", name, "\"\n"]);
                match charset {
                    Charset::Utf8 => transfer.write(&text, to),
                    _ => transfer.write(&charset.encode(&text), to),
                }
                truths.push(Truth::Text(string(text)));
            }
            Entity::Html { source, spoken, links, transfer } => {
                put(to, &["Content-Type: text/html; charset=utf-8\n"]);
                transfer.write(&source, to);
                truths.push(Truth::Html { source: string(source), spoken: string(spoken), links });
            }
            Entity::File { name, media, bytes, inline } => {
                put(to, &["Content-Type: ", media, "; name=\"", &name, "\"\n"]);
                let disposition = if inline { "inline" } else { "attachment" };
                put(to, &["Content-Disposition: ", disposition, ";\n filename=\"", &name, "\"\n"]);
                if inline {
                    put(to, &["Content-ID: <", &name, "@part>\n"]);
                }
                Transfer::Base64.write(&bytes, to);
                truths.push(Truth::File { name, bytes });
            }
            Entity::Message { raw, truths: inner } => {
                put(to, &["Content-Type: message/rfc822\nContent-Disposition: inline\n\n"]);
                to.extend_from_slice(&raw);
                truths.extend(inner);
            }
            Entity::Status(status) => {
                put(to, &["Content-Type: message/delivery-status\n\n"]);
                to.extend_from_slice(&status);
            }
            Entity::Multi(kind, parts) => {
                let mut boundary = b"--=_part_".to_vec();
                number(random.bits(), &mut boundary);
                let name = std::str::from_utf8(&boundary).unwrap();
                put(to, &["Content-Type: multipart/", kind, ";\n boundary=\"", name, "\"\n\n"]);
                for part in parts {
                    put(to, &["--", name, "\n"]);
                    part.write(random, to, truths);
                    put(to, &["\n"]);
                }
                put(to, &["--", name, "--\n"]);
            }
        }
    }
}

impl Charset {
    fn encode(self, text: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(text).unwrap();
        match self {
            Charset::Utf8 => text.as_bytes().to_vec(),
            Charset::Utf16 => {
                let units = std::iter::once(0xfeff).chain(text.encode_utf16());
                units.flat_map(u16::to_le_bytes).collect()
            }
            Charset::Of(encoding, name) => {
                let (bytes, _, lost) = encoding.encode(text);
                assert!(!lost, "{name} cannot write {text:?}");
                bytes.into_owned()
            }
        }
    }
}

impl Transfer {
    /// Writes the header with its type, and the body.
    fn write(self, bytes: &[u8], to: &mut Vec<u8>) {
        match self {
            Transfer::Plain => {
                put(to, &["Content-Transfer-Encoding: 8bit\n\n"]);
                to.extend_from_slice(bytes);
            }
            Transfer::Quoted => {
                put(to, &["Content-Transfer-Encoding: quoted-printable\n\n"]);
                mime::quoted_printable(bytes, to);
            }
            Transfer::Malformed => {
                put(to, &["Content-Transfer-Encoding: quoted-printable\n\n"]);
                mime::malformed(bytes, to);
            }
            Transfer::Base64 => {
                put(to, &["Content-Transfer-Encoding: base64\n\n"]);
                mime::base64(bytes, to);
            }
        }
    }
}

/// Writes pieces of text one after another.
pub fn put(to: &mut Vec<u8>, pieces: &[&str]) {
    for piece in pieces {
        to.extend_from_slice(piece.as_bytes());
    }
}

pub fn string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}
