//! The mail for the measurements, raw and decoded.

use std::collections::HashMap;

use exirate::trace::decode::{self, Limits};
use exirate::trace::{Envelope, Fragment, Scheme};

use crate::directory;
use crate::options::Options;
use crate::reader;
use kit::mail::{SHARES, World};
use kit::table;

/// The seed of the generated mail.
const SEED: u64 = 20_260_101;
/// One in so many messages of real mail is held out.
const HELD_OUT: usize = 5;

/// The source of the mail.
pub(crate) enum Source {
    Made(Box<World>),
    Real(Vec<(Envelope, Vec<u8>)>),
}

/// Messages to be recorded, with their expected envelopes, and others that are
/// not.
pub(crate) struct Corpus {
    pub(crate) source: Source,
    pub(crate) texts: Texts,
    pub(crate) held_out: Texts,
    /// The message with each id.
    pub(crate) numbers: HashMap<String, u32>,
    pub(crate) volume: Volume,
    /// The cumulative volume up to and including each message.
    volumes: Vec<Volume>,
}

/// The normalised text of all messages.
#[derive(Default)]
pub(crate) struct Texts {
    /// All fragments, separated by a byte that no text contains.
    pub(crate) bytes: Vec<u8>,
    /// The end of each message.
    pub(crate) ends: Vec<usize>,
}

/// The volume of mail in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Volume {
    pub(crate) messages: usize,
    pub(crate) raw: u64,
    pub(crate) text: u64,
    /// Of attachments that are not text.
    pub(crate) files: u64,
    /// Of the text that mail programs show; 0 if it was not measured.
    pub(crate) shown: u64,
}

/// The separator of fragments.
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

    /// The message at an offset.
    pub(crate) fn at(&self, place: usize) -> usize {
        self.ends.partition_point(|&end| end <= place)
    }
}

/// The fragments of a message, as the store digests them.
pub(crate) fn pieces(raw: &[u8], sink: &mut dyn FnMut(Fragment<'_>)) {
    decode::decode(raw, &Limits::default(), sink);
}

/// The digest of a message.
pub(crate) fn digest(scheme: &dyn Scheme, raw: &[u8]) -> Vec<u8> {
    let mut digester = scheme.digester();
    decode::decode_parts(raw, &Limits::default(), &mut |part, piece| {
        digester.begin(part);
        digester.add(piece);
    });
    digester.finish()
}

impl Corpus {
    /// Generates or reads the mail, and decodes it.
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
                volume.shown += reader::bytes(&reader::shown(raw));
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

    /// The volume of the first messages.
    pub(crate) fn volume_of(&self, messages: usize) -> Volume {
        self.volumes[messages - 1]
    }

    /// Drops the texts to save memory.
    pub(crate) fn forget(&mut self) {
        (self.texts, self.held_out) = Default::default();
        self.numbers = HashMap::new();
    }

    /// Prints the kinds of generated mail.
    fn describe_made(&self, world: &World) {
        let head = ["kind of mail", "messages", "raw", "decoded text", "median", "shown text"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for &(kind, _) in SHARES {
            let (mut of, mut before) = (Volume::default(), Volume::default());
            let mut lengths = Vec::new();
            for (n, after) in self.volumes.iter().enumerate() {
                if world.kind(n as u64) == kind {
                    of.messages += 1;
                    of.raw += after.raw - before.raw;
                    of.text += after.text - before.text;
                    of.shown += after.shown - before.shown;
                    lengths.push(after.text - before.text);
                }
                before = *after;
            }
            lengths.sort_unstable();
            let share = |part: u64, all: u64| format!("{:.1} %", part as f64 * 100.0 / all as f64);
            rows.push(vec![
                format!("{kind:?}"),
                share(of.messages as u64, self.volume.messages as u64),
                share(of.raw, self.volume.raw),
                share(of.text, self.volume.text),
                format!("{} bytes", lengths.get(lengths.len() / 2).unwrap_or(&0)),
                share(of.shown, self.volume.shown),
            ]);
        }
        table::print(&rows);
    }

    /// Prints a description of the mail.
    pub(crate) fn describe(&self, options: &Options) {
        let Volume { messages, raw, text, files, shown } = self.volume;
        let kb = |bytes: u64| bytes as f64 / messages as f64 / 1_000.0;
        let what = match &options.corpus {
            None => "generated mail (tests/kit/src/mail)".to_owned(),
            Some(directory) => format!("mail of {}", directory.display()),
        };
        println!(
            "{messages} messages of {what}: {:.1} KB raw each, {:.2} KB of decoded text, {:.2} KB \
             of text that mail programs show, {:.1} KB of attachments that are no text; excerpts \
             that are absent from {} others",
            kb(raw),
            kb(text),
            kb(shown),
            kb(files),
            self.held_out.len(),
        );
        if let Source::Made(world) = &self.source {
            self.describe_made(world);
        }
    }
}

impl Source {
    /// The number of messages to be recorded.
    fn recorded(&self, wanted: usize) -> usize {
        match self {
            Self::Made(_) => wanted,
            Self::Real(messages) => messages.len() - messages.len() / HELD_OUT,
        }
    }

    /// The messages that are not recorded.
    fn others(&self, wanted: usize) -> std::ops::Range<usize> {
        match self {
            // At some distance: messages soon after may quote recorded ones.
            Self::Made(_) => 2_000_000_000..2_000_000_000 + wanted / 5,
            Self::Real(messages) => self.recorded(wanted)..messages.len(),
        }
    }

    /// Message `n`.
    pub(crate) fn with(&self, n: usize, see: &mut dyn FnMut(&Envelope, &[u8])) {
        match self {
            Self::Made(world) => {
                let mail = world.mail(n as u64);
                let of = mail.envelope;
                let envelope = Envelope {
                    time: of.time,
                    id: of.id,
                    sender: of.sender,
                    recipients: of.recipients,
                    client: Some(of.client),
                    authenticated: of.authenticated,
                    partial: false,
                };
                see(&envelope, &mail.raw);
            }
            Self::Real(messages) => see(&messages[n].0, &messages[n].1),
        }
    }
}
