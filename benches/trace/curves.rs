//! Curves: false hits against space, for several kinds of elements.

use exirate::trace::{GramOrder, Settings, WinnowSettings};

use crate::corpus::Corpus;
use crate::excerpts::Excerpts;
use crate::options::LENGTHS;
use crate::report::{lengths_head, rate};
use crate::segment::{SEGMENT, Segment};
use crate::tally::{Tally, tally};
use kit::table::{head, print};

/// Fewer false hits than this are not compared.
const COMPARED: u64 = 20;

/// A kind of elements.
struct Kind {
    name: &'static str,
    gram: u8,
    window: u8,
    order: GramOrder,
    /// Hundredths of a bit for each element.
    centibits: &'static [u16],
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "8/8 in a random order",
        gram: 8,
        window: 8,
        order: GramOrder::Random,
        centibits: &[50, 70, 85, 116, 130, 158, 210, 300],
    },
    Kind {
        name: "8/8 in the open-closed order",
        gram: 8,
        window: 8,
        order: GramOrder::OpenClosed,
        centibits: &[60, 85, 103, 140, 157, 191, 254, 363],
    },
    Kind {
        name: "6/10 in the open-closed order",
        gram: 6,
        window: 10,
        order: GramOrder::OpenClosed,
        centibits: &[70, 99, 122, 140, 165, 185, 225, 300],
    },
    // A run of 8 grams is a piece of 15 bytes, present if all of them are.
    Kind {
        name: "all grams, in runs (findere)",
        gram: 8,
        window: 1,
        order: GramOrder::Random,
        centibits: &[25, 35, 47, 67],
    },
];

/// What was measured of some settings.
struct Point {
    kind: usize,
    centibits: u16,
    /// Bytes of digests for a byte of decoded text.
    space: f64,
    tallies: Vec<Tally>,
}

pub(crate) fn run(corpus: &Corpus, excerpts: &Excerpts) {
    let messages = corpus.texts.len().min(SEGMENT);
    let text = corpus.volume_of(messages).text as f64;
    let mut points = Vec::new();
    for (kind, Kind { gram, window, order, centibits, .. }) in KINDS.iter().enumerate() {
        for &centibits in *centibits {
            let settings = Settings::Winnow(WinnowSettings {
                gram: *gram,
                window: *window,
                order: *order,
                centibits,
                ..WinnowSettings::default()
            });
            let segment = Segment::new(corpus, settings, messages);
            let of = |n: usize| {
                let ask = &mut |excerpt: &str| segment.ask(excerpt);
                tally(corpus, messages, &[], &excerpts.absent[n], ask)
            };
            let space = segment.bytes() as f64 / text;
            points.push(Point {
                kind,
                centibits,
                space,
                tallies: (0..LENGTHS.len()).map(of).collect(),
            });
        }
    }
    head(&format!(
        "False hits a message, of absent excerpts, against space: a segment of {messages} messages, \
         without envelopes"
    ));
    let mut rows = vec![lengths_head("elements, bits for each; bytes a KB of decoded text")];
    for Point { kind, centibits, space, tallies } in &points {
        let bits = f64::from(*centibits) / 100.0;
        let mut row = vec![format!("{}, {bits:.2}; {:.1}", KINDS[*kind].name, space * 1_000.0)];
        row.extend(tallies.iter().map(|tally| rate(tally.unrelated, tally.pairs)));
        rows.push(row);
    }
    print(&rows);
    head("Of these, as many as in a random order in the same space (interpolated)");
    let mut rows = vec![lengths_head("elements; bytes a KB of decoded text")];
    for point in points.iter().filter(|point| point.kind > 0) {
        let mut row = vec![format!("{}; {:.1}", KINDS[point.kind].name, point.space * 1_000.0)];
        row.extend((0..LENGTHS.len()).map(|n| {
            let tally = &point.tallies[n];
            let random = points.iter().filter(|point| point.kind == 0);
            match between(random, n, point.space) {
                Some(random) if tally.unrelated >= COMPARED => {
                    format!("{:.2}", logarithm(tally).exp() / random)
                }
                _ => "-".to_owned(),
            }
        }));
        rows.push(row);
    }
    print(&rows);
}

fn logarithm(tally: &Tally) -> f64 {
    (tally.unrelated as f64 / tally.pairs.max(1) as f64).ln()
}

/// The rate at which points have false hits of a length in some space: between two of them its
/// logarithm is taken as linear. `None` if it is outside of them or too small to be measured.
fn between<'a>(points: impl Iterator<Item = &'a Point>, length: usize, space: f64) -> Option<f64> {
    let points: Vec<&Point> = points.collect();
    let pair = points.windows(2).find(|pair| (pair[0].space..=pair[1].space).contains(&space))?;
    let [low, high] = [pair[0], pair[1]].map(|point| &point.tallies[length]);
    if low.unrelated < COMPARED || high.unrelated < COMPARED {
        return None;
    }
    let share = (space - pair[0].space) / (pair[1].space - pair[0].space);
    Some((logarithm(low) + share * (logarithm(high) - logarithm(low))).exp())
}
