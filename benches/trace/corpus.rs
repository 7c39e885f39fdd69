//! The mail that is measured with, raw and decoded.

use std::collections::HashMap;

use exirate::trace::decode::{self, Limits};
use exirate::trace::{Envelope, Fragment};

use crate::directory;
use crate::mail_common::World;
use crate::options::Options;

/// The seed of the made mail.
const SEED: u64 = 20_260_101;
/// One in so many messages of real mail is held out.
const HELD_OUT: usize = 5;

/// Where mail comes from.
pub(crate) enum Source {
    Made(Box<World>),
    Real(Vec<(Envelope, Vec<u8>)>),
}

/// Messages that are recorded, as the store should know them, and others that
/// are not.
pub(crate) struct Corpus {
    pub(crate) source: Source,
    pub(crate) texts: Texts,
    pub(crate) held_out: Texts,
    /// Which message has an id.
    pub(crate) numbers: HashMap<String, u32>,
    pub(crate) volume: Volume,
    /// How much it is up to and with each message.
    volumes: Vec<Volume>,
}

/// The normalised text of messages, all of it.
#[derive(Default)]
pub(crate) struct Texts {
    /// Fragment after piece, with a byte between that no text contains.
    pub(crate) bytes: Vec<u8>,
    /// Where each message ends.
    pub(crate) ends: Vec<usize>,
}

/// How much mail that is, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Volume {
    pub(crate) messages: usize,
    pub(crate) raw: u64,
    pub(crate) text: u64,
    /// Of attachments that are no text.
    pub(crate) files: u64,
}

/// What is between pieces.
pub(crate) const BETWEEN: u8 = 0;

impl Texts {
    /// Adds a message.
    pub(crate) fn add(&mut self, raw: &[u8], volume: &mut Volume) {
        volume.messages += 1;
        volume.raw += raw.len() as u64;
        pieces(raw, &mut |piece| match piece {
            Fragment::Text(text) => {
                volume.text += text.len() as u64;
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.push(BETWEEN);
            }
            Fragment::Bytes(bytes) => volume.files += bytes.len() as u64,
            Fragment::File(_) => {}
        });
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text of a message.
    pub(crate) fn message(&self, n: usize) -> &[u8] {
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.bytes[start..self.ends[n]]
    }

    /// Which message a place is in.
    pub(crate) fn at(&self, place: usize) -> usize {
        self.ends.partition_point(|&end| end <= place)
    }
}

/// The pieces of a message, as the store digests them.
pub(crate) fn pieces(raw: &[u8], sink: &mut dyn FnMut(Fragment<'_>)) {
    decode::decode(raw, &Limits::default(), sink);
}

impl Corpus {
    /// Makes or reads the mail, and decodes it.
    pub(crate) fn load(options: &Options) -> Self {
        let mut corpus = Self {
            source: match &options.corpus {
                None => Source::Made(Box::new(World::new(SEED))),
                Some(directory) => Source::Real(directory::messages(directory, options.messages)),
            },
            texts: Texts::default(),
            held_out: Texts::default(),
            numbers: HashMap::new(),
            volume: Volume::default(),
            volumes: Vec::new(),
        };
        let Corpus { source, texts, held_out, numbers, volume, volumes } = &mut corpus;
        let messages = source.recorded(options.messages);
        for n in 0..messages {
            source.with(n, &mut |envelope, raw| {
                texts.add(raw, volume);
                volumes.push(*volume);
                numbers.insert(envelope.id.clone(), n as u32);
            });
        }
        let mut other = Volume::default();
        for n in source.others(options.messages) {
            source.with(n, &mut |_, raw| held_out.add(raw, &mut other));
        }
        corpus
    }

    /// How much mail the first messages are.
    pub(crate) fn volume_of(&self, messages: usize) -> Volume {
        self.volumes[messages - 1]
    }

    /// Gives up the texts, for want of memory.
    pub(crate) fn forget(&mut self) {
        (self.texts, self.held_out) = Default::default();
        self.numbers = HashMap::new();
    }

    /// Prints what mail it is.
    pub(crate) fn describe(&self, options: &Options) {
        let Volume { messages, raw, text, files } = self.volume;
        let kb = |bytes: u64| bytes as f64 / messages as f64 / 1_000.0;
        let what = match &options.corpus {
            None => "made mail (tests/mail_common)".to_owned(),
            Some(directory) => format!("mail of {}", directory.display()),
        };
        println!(
            "{messages} messages of {what}: {:.1} KB raw each, {:.2} KB of decoded text, {:.1} KB \
             of attachments that are no text; excerpts that are absent from {} others",
            kb(raw),
            kb(text),
            kb(files),
            self.held_out.len(),
        );
    }
}

impl Source {
    /// How many messages are to be recorded.
    fn recorded(&self, wanted: usize) -> usize {
        match self {
            Self::Made(_) => wanted,
            Self::Real(messages) => messages.len() - messages.len() / HELD_OUT,
        }
    }

    /// The messages that are not.
    fn others(&self, wanted: usize) -> std::ops::Range<usize> {
        match self {
            // Some way off: what comes soon after quotes what is recorded.
            Self::Made(_) => 2_000_000_000..2_000_000_000 + wanted / 5,
            Self::Real(messages) => self.recorded(wanted)..messages.len(),
        }
    }

    /// Message `n`.
    pub(crate) fn with(&self, n: usize, see: &mut dyn FnMut(&Envelope, &[u8])) {
        match self {
            Self::Made(world) => {
                let mail = world.mail(n as u64);
                see(&mail.envelope, &mail.raw);
            }
            Self::Real(messages) => see(&messages[n].0, &messages[n].1),
        }
    }
}
