//! Attacks on an account, seeded as the reference's.

use kit::habits::Message;

use super::python::Random;

/// How a thief sends.
pub(crate) struct Shape {
    /// As the reference calls it: the seed depends on it.
    pub(crate) name: &'static str,
    /// Seconds from one message to the next, on average.
    gap: f64,
    /// Unknown recipients of a message.
    size: usize,
    /// Whether a known one is added to each.
    has_cover: bool,
    networks: usize,
}

const fn plain(name: &'static str, gap: f64, size: usize) -> Shape {
    Shape { name, gap, size, has_cover: false, networks: 1 }
}

/// All that are evaluated.
pub(crate) const SHAPES: [Shape; 12] = [
    plain("fast: 1 a second", 1.0, 1),
    plain("50 recipients each 30 s", 30.0, 50),
    plain("1 each 10 min", 600.0, 1),
    plain("1 each 30 min", 1800.0, 1),
    plain("1 each hour", 3600.0, 1),
    plain("1 each 2 h", 7200.0, 1),
    plain("1 each 4 h", 14_400.0, 1),
    plain("1 each 6 h", 21_600.0, 1),
    plain("1 each 12 h", 43_200.0, 1),
    Shape { networks: 40, ..plain("1 each 10 s, 40 networks", 10.0, 1) },
    Shape { has_cover: true, ..plain("2 unknown + 1 known each min", 60.0, 2) },
    Shape { has_cover: true, ..plain("9 unknown + 1 known each 10 min", 600.0, 9) },
];

/// The share of a plain attack's recipients that the account knows.
const KNOWN: f64 = 0.05;
/// The attack ends after so many recipients.
const RECIPIENTS_MAX: usize = 2000;
/// And after so many seconds.
const SECONDS_MAX: i64 = 14 * 86_400;

/// The messages of a thief, with how many recipients they have had together so far.
pub(crate) struct Attack<'a> {
    shape: &'a Shape,
    known: &'a [u64],
    random: Random,
    pool: Vec<u64>,
    cover: u64,
    sent: usize,
    at: i64,
    end: i64,
}

impl<'a> Attack<'a> {
    /// From `start` on; the account knows the recipients `known`.
    pub(crate) fn new(shape: &'a Shape, start: i64, known: &'a [u64], seed: usize) -> Self {
        let mut random = Random::of_text(&format!("{} {seed}", shape.name));
        let pool = (0..shape.networks).map(|_| random.bits(48) | 1 << 50).collect();
        let cover = if known.is_empty() { 7 } else { random.pick(known) };
        let end = start + SECONDS_MAX;
        Self { shape, known, random, pool, cover, sent: 0, at: start, end }
    }
}

impl Iterator for Attack<'_> {
    type Item = (Message, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let Self { shape, known, random, .. } = self;
        if self.sent >= RECIPIENTS_MAX || self.at >= self.end {
            return None;
        }
        let mut recipients = Vec::with_capacity(shape.size + 1);
        if shape.has_cover {
            recipients.push(self.cover);
        }
        for _ in 0..shape.size {
            let is_known = !shape.has_cover && !known.is_empty() && random.unit() < KNOWN;
            recipients.push(if is_known { random.pick(known) } else { random.bits(64) });
        }
        self.sent += shape.size;
        let message = Message { at: self.at, network: random.pick(&self.pool), recipients };
        let gap = shape.gap * (0.5 + random.unit());
        self.at += (gap as i64).max(1);
        Some((message, self.sent))
    }
}
