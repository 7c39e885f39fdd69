//! Excerpts that messages contain, and excerpts that none contains.

use crate::corpus::{BETWEEN, Corpus, Texts};
use crate::exact;
use crate::options::{LENGTHS, Options};
use kit::Random;

/// An excerpt, and the recorded messages that contain it.
pub(crate) struct Excerpt {
    pub(crate) text: String,
    pub(crate) messages: Vec<u32>,
}

/// For each of [`LENGTHS`]: excerpts of recorded messages, and excerpts that
/// are in none.
pub(crate) struct Excerpts {
    pub(crate) present: Vec<Vec<Excerpt>>,
    pub(crate) absent: Vec<Vec<Excerpt>>,
    /// How many excerpts of the held-out mail were in recorded messages.
    also_recorded: usize,
    /// The time of the exact search, in seconds.
    seconds: f64,
}

impl Excerpts {
    /// Cuts them at random, and searches all text for them.
    pub(crate) fn cut(corpus: &Corpus, options: &Options) -> Self {
        exact::check();
        let mut random = Random::new(99);
        let cut = |of: &Texts, count: usize, random: &mut Random| -> Vec<Vec<String>> {
            (LENGTHS.map(|length| pick(of, length, Options::excerpts(length, count), random)))
                .into()
        };
        let present = cut(&corpus.texts, options.present, &mut random);
        let absent = cut(&corpus.held_out, options.absent, &mut random);
        let all: Vec<&str> = present.iter().chain(&absent).flatten().map(String::as_str).collect();
        let start = std::time::Instant::now();
        let mut found = exact::search(&corpus.texts, &all).into_iter();
        let seconds = start.elapsed().as_secs_f64();
        let mut with = |texts: Vec<Vec<String>>| -> Vec<Vec<Excerpt>> {
            let mut one = |text| Excerpt { text, messages: found.next().unwrap() };
            texts.into_iter().map(|of| of.into_iter().map(&mut one).collect()).collect()
        };
        let (present, mut absent) = (with(present), with(absent));
        assert!(present.iter().flatten().all(|e| !e.messages.is_empty()));
        let before: usize = absent.iter().map(Vec::len).sum();
        absent.iter_mut().for_each(|of| of.retain(|e| e.messages.is_empty()));
        let after: usize = absent.iter().map(Vec::len).sum();
        Self { present, absent, also_recorded: before - after, seconds }
    }

    pub(crate) fn describe(&self, corpus: &Corpus) {
        let count = |of: &[Vec<Excerpt>]| of.iter().map(Vec::len).sum::<usize>();
        let pairs = self.absent.iter().map(Vec::len).min().unwrap_or(0) * corpus.texts.len();
        println!(
            "{} excerpts of {} lengths that are in the text of recorded messages, cut at random, \
             and {} of held-out mail that are in none ({} more were): at least {:.1e} pairs of \
             message and absent excerpt a length; the exact search for all took {:.1} s",
            count(&self.present),
            LENGTHS.len(),
            count(&self.absent),
            self.also_recorded,
            pairs as f64,
            self.seconds,
        );
    }

    /// Some absent excerpts, by length.
    pub(crate) fn absent_texts(&self) -> Vec<Vec<String>> {
        let some = |of: &Vec<Excerpt>| of.iter().take(200).map(|e| e.text.clone()).collect();
        self.absent.iter().map(some).collect()
    }
}

/// Cuts excerpts at random positions of all text, so that long messages give
/// more of them.
fn pick(of: &Texts, length: usize, count: usize, random: &mut Random) -> Vec<String> {
    let mut excerpts = Vec::new();
    for _ in 0..count * 200 {
        if excerpts.len() == count || of.bytes.len() <= length {
            break;
        }
        let start = random.below(of.bytes.len() - length);
        let bytes = &of.bytes[start..start + length];
        if let Some(excerpt) = whole(bytes) {
            excerpts.push(excerpt.to_owned());
        }
    }
    excerpts
}

/// Bytes as an excerpt: within one fragment, made of whole characters, and
/// normalised, without blanks at its ends.
fn whole(bytes: &[u8]) -> Option<&str> {
    let blank = |byte: Option<&u8>| byte == Some(&b' ');
    if bytes.contains(&BETWEEN) || blank(bytes.first()) || blank(bytes.last()) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}
