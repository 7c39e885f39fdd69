//! The speed of recording.
//!
//! All of it is measured by the processor time of the one thread that records, so it is the speed
//! of a core, however busy the others are. The goal is in bytes of decoded text, for mail without
//! attachments.

use std::path::Path;

use exirate::trace::{Counted, Envelope, HbfSettings, Settings};

use crate::corpus::{Corpus, Texts, Volume, digest, pieces};
use crate::goals::Goals;
use crate::options::Options;
use crate::stores::{self, processor_time};
use kit::table::{head, print};

/// The maximum bytes of raw mail recorded in a round.
const ROUND_BYTES_MAX: u64 = 120_000_000;

type Message = (Envelope, Vec<u8>);

/// Mail in memory.
struct Batch {
    mail: Vec<Message>,
    volume: Volume,
}

impl Batch {
    /// Messages selected by `wanted`, with the sizes of their raw form, their
    /// text, and their attachments.
    fn of(corpus: &Corpus, options: &Options, wanted: impl Fn(&Volume) -> bool) -> Self {
        let mut batch = Self { mail: Vec::new(), volume: Volume::default() };
        for n in 0..options.messages.min(corpus.texts.len()).min(8_000) {
            corpus.source.with(n, &mut |envelope, raw| {
                let mut volume = Volume::default();
                Texts::default().add(raw, &mut volume);
                if batch.volume.raw < ROUND_BYTES_MAX && wanted(&volume) {
                    batch.volume.messages += 1;
                    batch.volume.raw += volume.raw;
                    batch.volume.text += volume.text;
                    batch.mail.push((envelope.clone(), raw.to_vec()));
                }
            });
        }
        batch
    }

    /// The median CPU time of some rounds over all of it, in seconds.
    fn time(&self, rounds: usize, mut round: impl FnMut(&[Message])) -> f64 {
        let mut times: Vec<f64> = (0..rounds)
            .map(|_| {
                let start = processor_time();
                round(&self.mail);
                (processor_time() - start).as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

pub(crate) fn run(corpus: &Corpus, options: &Options, goals: &mut Goals, folder: &Path) {
    let all = Batch::of(corpus, options, |_| true);
    let texts = Batch::of(corpus, options, |volume| volume.files == 0);
    head(&format!(
        "Recording, medians of {} rounds: MB of decoded text (of raw mail) in a second of a core",
        options.rounds
    ));
    let mut rows = vec![
        ["", "mail without attachments", "all mail", "a message of all"]
            .map(str::to_owned)
            .to_vec(),
    ];
    // Returns the speed for text without attachments.
    let mut row = |name: &str, rounds: usize, round: &mut dyn FnMut(&[Message])| {
        let mut cells = vec![name.to_owned()];
        let mut of_text = 0.0;
        for batch in [&texts, &all] {
            let seconds = batch.time(rounds, &mut *round);
            let speed = |bytes: u64| bytes as f64 / seconds / 1e6;
            let Volume { text, raw, .. } = batch.volume;
            cells.push(format!("{:.0} ({:.0})", speed(text), speed(raw)));
            if std::ptr::eq(batch, &texts) {
                of_text = speed(text);
            } else {
                let each = seconds / batch.mail.len().max(1) as f64;
                cells.push(format!("{:.0} µs", each * 1e6));
            }
        }
        rows.push(cells);
        of_text
    };
    row("decoding", options.rounds, &mut |mail| {
        for (_, raw) in mail {
            pieces(raw, &mut |piece| {
                std::hint::black_box(piece);
            });
        }
    });
    let hbf = |counted| Settings::Hbf(HbfSettings { counted, ..HbfSettings::default() });
    let schemes = [
        ("winnow (default)", Settings::default(), options.rounds),
        ("hbf, elements", hbf(Counted::Elements), 1),
        ("hbf, blocks", hbf(Counted::Blocks), 1),
    ];
    for (name, settings, rounds) in schemes {
        let scheme = settings.scheme(&stores::KEY);
        let digesting = row(&format!("{name}: decoding, digesting"), rounds, &mut |mail| {
            for (_, raw) in mail {
                std::hint::black_box(digest(scheme.as_ref(), raw));
            }
        });
        let speed = row(&format!("{name}: all, with appending and sealing"), rounds, &mut |mail| {
            let spool = folder.join("recording");
            let mut trace = stores::open(&spool, settings);
            for (envelope, raw) in mail {
                trace.record(envelope, raw).unwrap();
            }
            trace.seal().unwrap();
            drop(trace);
            std::fs::remove_dir_all(&spool).unwrap();
        });
        if settings == Settings::default() {
            for (what, speed) in [
                ("recording: decoding and digesting", digesting),
                ("recording: all of it, with appending and sealing", speed),
            ] {
                goals.at_least(what, 150.0, speed, " MB/s");
            }
        }
    }
    print(&rows);
}
