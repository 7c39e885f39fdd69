//! What mail programs show, by a decoder that is not ours.

use exirate::trace::decode;
use mail_parser::{Message, MessageParser, PartType};

/// What mail programs show of a message: of alternatives one, and attached messages, but not
/// attached files.
pub(crate) fn shown(raw: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(message) = MessageParser::default().parse(raw) {
        add(&message, &mut texts);
    }
    texts
}

fn add(message: &Message<'_>, to: &mut Vec<String>) {
    to.extend(message.subject().map(str::to_owned));
    to.extend(
        (0..message.text_body_count()).filter_map(|n| message.body_text(n)).map(String::from),
    );
    for part in &message.parts {
        if let PartType::Message(inner) = &part.body {
            add(inner, to);
        }
    }
}

/// The number of bytes of texts in normal form.
pub(crate) fn bytes(texts: &[String]) -> u64 {
    texts.iter().map(|text| decode::normalise(text).len() as u64).sum()
}
