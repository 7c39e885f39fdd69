//! What a reader sees of the mail: by its generator, or by a decoder that is not ours.

use exirate::trace::decode;
use mail_parser::{MessageParser, PartType};

use crate::corpus::{Corpus, Source};
use crate::goals::Goals;
use crate::options::{LENGTHS, Options};
use kit::Random;
use kit::mail::Truth;
use kit::table::{head, print};

/// How many excerpts that are not found are printed.
const EXAMPLES: usize = 6;

/// What may be copied from a message, and searched for. Of HTML, only what the generator says
/// is read: mail-parser's own conversion shows style sheets and joins words.
fn readable(source: &Source, n: usize, raw: &[u8]) -> Vec<String> {
    let Source::Made(world) = source else {
        let message = MessageParser::default().parse(raw);
        return message.map_or_else(Vec::new, |message| {
            let plain = message.text_bodies().filter_map(|part| match &part.body {
                // Shown as it was sent, where it could not be decoded.
                PartType::Text(text) if !part.is_encoding_problem => Some(text.to_string()),
                _ => None,
            });
            plain.chain(message.subject().map(str::to_owned)).collect()
        });
    };
    let truths = world.mail(n as u64).truths.into_iter();
    let text = truths.filter_map(|truth| match truth {
        Truth::Subject(text) | Truth::Text(text) | Truth::Html { spoken: text, .. } => Some(text),
        Truth::Name(_) | Truth::File { .. } => None,
    });
    text.collect()
}

/// Of excerpts of what a reader sees, how many are in the decoded text of their message, and
/// so are found.
pub(crate) fn run(corpus: &Corpus, options: &Options, goals: &mut Goals) {
    let mut random = Random::new(23);
    let mut rows = vec![["excerpts of", "cut", "found"].map(str::to_owned).to_vec()];
    let (mut all, mut all_found, mut examples) = (0, 0, Vec::new());
    let mut counts = [(0_u64, 0_u64); LENGTHS.len()];
    let messages = corpus.texts.len();
    for _ in 0..options.read {
        let n = random.below(messages);
        corpus.source.with(n, &mut |_, raw| {
            let texts = readable(&corpus.source, n, raw);
            for (length, (cut, found)) in LENGTHS.iter().zip(&mut counts) {
                let Some(text) = excerpt(&texts, *length, &mut random) else { continue };
                let is_found =
                    memchr::memmem::find(corpus.texts.message(n), text.as_bytes()).is_some();
                *cut += 1;
                *found += u64::from(is_found);
                if !is_found && examples.len() < EXAMPLES && text.len() < 200 {
                    examples.push((n, text));
                }
            }
        });
    }
    for (length, (cut, found)) in LENGTHS.iter().zip(counts) {
        let share = found as f64 / cut.max(1) as f64 * 100.0;
        rows.push(vec![format!("{length} bytes"), cut.to_string(), format!("{share:.3} %")]);
        (all, all_found) = (all + cut, all_found + found);
    }
    let by = match corpus.source {
        Source::Made(_) => "as it was generated",
        Source::Real(_) => "plain text as mail-parser decodes it",
    };
    head(&format!("Excerpts of what a reader sees, {by}, that are in the decoded text"));
    print(&rows);
    for (n, text) in examples {
        println!("not found: {text:?} of message {n}");
    }
    let share = all_found as f64 / all.max(1) as f64 * 100.0;
    goals.at_least("recall, from what a reader sees", 99.95, share, " %");
}

/// An excerpt of some text that is long enough, in normal form.
fn excerpt(texts: &[String], length: usize, random: &mut Random) -> Option<String> {
    let long: Vec<&String> = texts.iter().filter(|text| text.len() > length).collect();
    let bytes: usize = long.iter().map(|text| text.len() - length).sum();
    let mut start = random.below(bytes.max(1));
    for text in long {
        let room = text.len() - length;
        if start < room {
            let (start, end) =
                (text.floor_char_boundary(start), text.floor_char_boundary(start + length));
            let text = &text[start..end];
            let excerpt = decode::excerpt(text);
            // What the other decoder could not decode is not what a reader sees.
            let is_known = !text.contains(char::REPLACEMENT_CHARACTER);
            return (is_known && excerpt.len() * 4 > length * 3).then_some(excerpt);
        }
        start -= room;
    }
    None
}
