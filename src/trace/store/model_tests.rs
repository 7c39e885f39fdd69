//! Random operations compared with a plain model that keeps all texts: after
//! any sealing, merging and removal, every remaining message is found by any
//! excerpt and by its envelope, which is returned exactly.

use std::collections::BTreeSet;

use crate::sys::simulated_disk::memory_folder;
use crate::trace::{GramOrder, HbfSettings, Settings, WinnowSettings};
use kit::Random;

use super::log::LogLimits;
use super::sample_envelopes::Site;
use super::sources::Source;
use super::tests::{ask, assert_sound, for_ever};
use super::*;
use crate::trace::{ContentQuery, Envelope, Part};

/// Small logs and segments.
const LIMITS: LogLimits = LogLimits { messages: 9, bytes: u64::MAX, merged: 40, together: 4 };
/// Operations in each run.
const OPERATIONS: u32 = 60;
const RUNS: u64 = 2;

/// A recorded message.
#[derive(Clone, Debug)]
struct Message {
    envelope: Envelope,
    /// Its normalised text.
    text: String,
}

/// A store, and its expected contents.
struct World {
    folder: tempfile::TempDir,
    trace: TraceStore,
    site: Site,
    random: Random,
    /// The messages in the order of recording.
    all: Vec<Message>,
    summary: u64,
    falsely: u64,
}

const SETTINGS: [Settings; 3] = [
    Settings::Winnow(WinnowSettings {
        gram: 8,
        window: 8,
        bytes_gram: 16,
        bytes_window: 255,
        centibits: 127,
        order: GramOrder::OpenClosed,
    }),
    Settings::Winnow(WinnowSettings {
        gram: 6,
        window: 12,
        bytes_gram: 16,
        bytes_window: 64,
        centibits: 400,
        order: GramOrder::Random,
    }),
    Settings::Hbf(HbfSettings {
        block: 16,
        bits: 4096,
        probes: 4,
        capacity: 512,
        counted: crate::trace::Counted::Elements,
    }),
];

impl World {
    fn new(seed: u64) -> Self {
        let folder = memory_folder();
        let mut trace = TraceStore::open(&trace_directory(folder.path()), Access::Write).unwrap();
        let options = Options { settings: SETTINGS[0], ..for_ever() };
        trace.set_options(options).unwrap();
        trace.limits = LIMITS;
        let (site, random) = (Site::new(seed), Random::new(seed));
        Self { folder, trace, site, random, all: Vec::new(), summary: 0, falsely: 0 }
    }

    /// A text of few words that all texts share, sometimes with a part of
    /// another message.
    fn text(&mut self) -> String {
        let count = [3, 20, 80, 400][self.random.below(4)] + self.random.below(20);
        let words = (0..count).map(|_| {
            let word = self.random.below(700);
            format!("{}{}", ["vor", "mail", "x", "under"][word % 4], word * word)
        });
        let text = words.collect::<Vec<_>>().join(" ");
        match self.any() {
            Some(other) if self.random.below(5) == 0 => format!("{text} {}", other.text),
            _ => text,
        }
    }

    /// A random message in the store.
    fn any(&mut self) -> Option<Message> {
        let count = self.all.len();
        (count > 0).then(|| self.random.below(count)).map(|n| self.all[n].clone())
    }

    fn record(&mut self) {
        let mut envelope = self.site.envelope();
        // Out of order, and some with the same second.
        envelope.time -= self.random.below(300) as i64 / 20 * 20;
        let text = self.text();
        let text = text.get(..20_000).unwrap_or(&text).to_owned();
        let message = format!("Subject: a subject of no matter\n\n{text}\n");
        self.trace.record(&envelope, message.as_bytes()).unwrap();
        self.all.push(Message { envelope, text: decode::normalise(&text) });
    }

    /// Lets time pass.
    fn grow_old(&mut self) {
        let times: Vec<_> = self.all.iter().map(|one| one.envelope.time).collect();
        let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else { return };
        let oldest = first + (last - first) * self.random.below(30) as i64 / 100;
        self.trace.options.keep = Some(1000);
        let tidied = self.trace.tidy_with_options(oldest + 1000).unwrap();
        self.trace.options.keep = None;
        // Each segment as a whole, when its last message has expired.
        for (_, source) in self.trace.sources().unwrap().list {
            let Source::Segment(segment) = source else { panic!("a log is left") };
            assert!(segment.head.times[1] >= oldest);
        }
        let left = self.results(&Query::default()).0;
        let removed = self.all.extract_if(.., |one| !left.contains(&one.envelope.id));
        let removed: Vec<_> = removed.collect();
        assert_eq!(removed.len() as u64, tidied.messages);
        assert!(removed.iter().all(|one| one.envelope.time < oldest));
    }

    /// Reduces the size limit.
    fn squeeze(&mut self) {
        self.trace.tidy_with_options(0).unwrap();
        let before = self.trace.stats().unwrap();
        let sizes = std::fs::read_dir(self.trace.directory()).unwrap();
        let largest = sizes.map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap();
        let share = 70 + self.random.below(30);
        self.trace.options.max_bytes = before.bytes * share as u64 / 100;
        let tidied = self.trace.tidy_with_options(0).unwrap();
        let budget = std::mem::replace(&mut self.trace.options.max_bytes, TRACE_BYTES_DEFAULT);
        let after = self.trace.stats().unwrap();
        assert!(after.bytes <= budget || after.segments == 0, "{after:?} {budget}");
        // No more than necessary was removed.
        let done = tidied.forgotten;
        assert!(done == 0 || after.bytes + largest > budget, "{before:?} {after:?} {budget}");
        // The oldest messages first.
        self.all.drain(..tidied.messages as usize);
    }

    fn choose(&mut self) {
        let settings = SETTINGS[self.random.below(3)];
        self.trace.set_options(Options { settings, ..for_ever() }).unwrap();
    }

    /// As another process.
    fn reopen(&mut self) {
        let directory = trace_directory(self.folder.path());
        self.trace = TraceStore::open(&directory, Access::Write).unwrap();
        self.trace.limits = LIMITS;
    }

    /// The ids of matching messages in the model.
    fn expected(&self, fits: impl Fn(&Message) -> bool) -> BTreeSet<&str> {
        self.all.iter().filter(|one| fits(one)).map(|one| one.envelope.id.as_str()).collect()
    }

    fn check(&mut self) {
        assert_sound(&self.trace, "by the model");
        let results = ask(&self.trace, &Query::default());
        let mut found: Vec<_> = results.into_iter().map(|result| result.envelope).collect();
        let mut all: Vec<_> = self.all.iter().map(|one| one.envelope.clone()).collect();
        for list in [&mut found, &mut all] {
            list.sort_by(|a, b| a.id.cmp(&b.id));
        }
        assert!(found == all, "{} of {}", found.len(), all.len());
        for _ in 0..3 {
            self.check_excerpt();
            self.check_envelope();
        }
    }

    /// Queries an excerpt, or two of one message.
    fn check_excerpt(&mut self) {
        let (_, shortest) = self.results(&Query::default());
        let Some(message) = self.any() else { return };
        let mut parts = Vec::new();
        for _ in 0..=self.random.below(2) {
            let length = shortest + self.random.below(120);
            let Some(room) = message.text.len().checked_sub(length) else { return };
            let start = self.random.below(room + 1);
            parts.push(message.text[start..start + length].to_owned());
        }
        let texts = parts.iter().cloned().map(Part::Text).collect();
        let content = Some(ContentQuery { parts: texts, min_share: 1.0 });
        // In their order, if the scheme can tell.
        let fits = |one: &Message| {
            let mut rest = one.text.as_str();
            parts.iter().all(|part| match rest.find(part.as_str()) {
                Some(at) => {
                    rest = &rest[at + part.len()..];
                    true
                }
                None => false,
            })
        };
        let (found, _) = self.results(&Query { content, ..Query::default() });
        let expected = self.expected(fits);
        let missing: Vec<_> = expected.iter().filter(|id| !found.contains(**id)).collect();
        assert!(missing.is_empty(), "{missing:?} of {expected:?} by {parts:?}");
        let carry_all = |one: &Message| parts.iter().all(|part| one.text.contains(part.as_str()));
        let falsely = found.iter().filter(|id| !self.expected(carry_all).contains(id.as_str()));
        let (falsely, summary) = (falsely.count() as u64, self.all.len() as u64);
        self.falsely += falsely;
        self.summary += summary;
    }

    /// Queries envelopes, which must match exactly.
    fn check_envelope(&mut self) {
        let Some(Message { envelope, .. }) = self.any() else { return };
        let (sender, id, time) = (&envelope.sender, &envelope.id, envelope.time);
        let to = envelope.recipients.first().cloned().unwrap_or_default();
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let upper = |text: &str| Some(Address::Is(text.to_ascii_uppercase()));
        let by_sender = Query { from: upper(sender), ..Query::default() };
        let found = self.results(&by_sender).0;
        assert!(found.iter().eq(self.expected(|one| same(&one.envelope.sender, sender))));
        let by_recipient = Query { to: upper(&to), ..Query::default() };
        let found = self.results(&by_recipient).0;
        let has = |one: &Message| one.envelope.recipients.iter().any(|other| same(other, &to));
        assert!(found.iter().eq(self.expected(has)));
        let by_id = Query { ids: vec![id.clone()], ..Query::default() };
        assert!(self.results(&by_id).0.iter().eq([id]));
        let (since, until) = (time - 50, time + self.random.below(100) as i64);
        let by_time = Query { since: Some(since), until: Some(until), ..Query::default() };
        let found = self.results(&by_time).0;
        let within = |one: &Message| (since..=until).contains(&one.envelope.time);
        assert!(found.iter().eq(self.expected(within)));
    }

    /// The ids of all results, and the shortest excerpt that can be searched
    /// for.
    fn results(&self, query: &Query<'_>) -> (BTreeSet<String>, usize) {
        let mut ids = BTreeSet::new();
        let summary = self.trace.query(query, &mut |_, _| {}, &mut |result| {
            ids.insert(result.envelope.id);
        });
        let summary = summary.unwrap();
        assert!(summary.damaged.is_empty() && summary.unanswered == 0, "{summary:?}");
        (ids, summary.shortest)
    }
}

#[test]
fn all_remaining_messages_are_found() {
    let (mut forgotten, mut summary, mut falsely) = (0, 0, 0);
    for seed in 1..=RUNS {
        let mut world = World::new(seed);
        let mut recorded = 0;
        for _ in 0..OPERATIONS {
            match world.random.below(20) {
                0..10 => {
                    let count = 1 + world.random.below(12);
                    (0..count).for_each(|_| world.record());
                    recorded += count;
                }
                10..12 => world.trace.seal().unwrap(),
                12 | 13 => world.grow_old(),
                14 | 15 => world.squeeze(),
                16 => world.choose(),
                _ => world.reopen(),
            }
            world.check();
        }
        assert_eq!(world.trace.take_incidents(), Vec::<String>::new());
        forgotten += (recorded - world.all.len()) as u64;
        summary += world.summary;
        falsely += world.falsely;
    }
    println!("{falsely} of {summary} messages were results that should be none");
    // These excerpts are short.
    assert!(falsely * 8 < summary, "{falsely} of {summary}");
    assert!(forgotten > 20, "{forgotten}");
}
