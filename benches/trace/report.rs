//! Tables of results.

use exirate::trace::Settings;

use crate::corpus::Corpus;
use crate::options::LENGTHS;
use crate::segment::SEGMENT;
use crate::stores::{self, Store};
use crate::tally::Tally;
use kit::table::{head, print};

pub(crate) fn size_head() -> Vec<String> {
    let cells = [
        "",
        "a KB of decoded text",
        "decoded text : stored",
        "shown text : stored",
        "before it is tidied",
        "a KB of raw mail",
        "a message",
        "of that the envelope",
    ];
    cells.map(str::to_owned).into()
}

pub(crate) fn exact_size(corpus: &Corpus) -> Vec<String> {
    let volume = corpus.volume;
    let per = |of: u64| volume.text as f64 / of as f64;
    vec![
        "exact: all decoded text kept".to_owned(),
        "1,000 bytes".to_owned(),
        "1 : 1".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        format!("{:.0} bytes", per(volume.raw) * 1_000.0),
        format!("{:.0} bytes", per(volume.messages as u64)),
        "-".to_owned(),
    ]
}

/// The size of a store with the first `messages`.
pub(crate) fn size_row(
    corpus: &Corpus,
    name: &str,
    settings: Settings,
    store: &Store,
    messages: usize,
) -> Vec<String> {
    let volume = corpus.volume_of(messages);
    let sample = messages.min(SEGMENT);
    let digest = stores::sealed(corpus, settings, sample).body.len() as f64 / sample as f64;
    let each = store.bytes as f64 / messages as f64;
    vec![
        name.to_owned(),
        format!("{:.1} bytes", store.bytes as f64 / volume.text as f64 * 1_000.0),
        format!("{:.1} : 1", volume.text as f64 / store.bytes as f64),
        format!("{:.1} : 1", volume.shown as f64 / store.bytes as f64),
        format!("{:.1} : 1", volume.shown as f64 / store.as_recorded as f64),
        format!("{:.1} bytes", store.bytes as f64 / volume.raw as f64 * 1_000.0),
        format!("{each:.0} bytes"),
        format!("{:.0} bytes", (each - digest).max(0.0)),
    ]
}

/// A rate, or its upper bound with a confidence of 95 % if there was none.
pub(crate) fn rate(count: u64, of: u64) -> String {
    match count {
        _ if of == 0 => "too short".to_owned(),
        0 => format!("< {:.0e}", 3.0 / of as f64),
        _ => format!("{:.1e}", count as f64 / of as f64),
    }
}

pub(crate) fn lengths_head(what: &str) -> Vec<String> {
    let mut row = vec![what.to_owned()];
    row.extend(LENGTHS.iter().map(|length| format!("{length} bytes")));
    row
}

/// Prints the tables of the results.
pub(crate) fn hits(results: &[(String, Vec<Tally>)]) {
    let table = |title: &str, cell: &dyn Fn(&Tally) -> String| {
        head(title);
        let mut rows = vec![lengths_head("excerpts of")];
        for (name, tallies) in results {
            let mut row = vec![name.clone()];
            row.extend(tallies.iter().map(cell));
            rows.push(row);
        }
        print(&rows);
    };
    table("False hits a message, of absent excerpts", &|t| rate(t.unrelated, t.pairs));
    table(
        "Of the same pairs: hits on near-duplicates, which have more than half of the excerpt's \
         8-grams",
        &|t| rate(t.near, t.pairs),
    );
    table("Recall: of the messages that contain an excerpt, how many are reported", &|t| match t
        .there
    {
        0 => "too short".to_owned(),
        there if t.found == there => format!("100 % of {there}"),
        there => format!("{:.3} % of {there}", t.found as f64 / there as f64 * 100.0),
    });
}

/// Prints how well the computed chances match the observed rates.
pub(crate) fn calibration(tallies: &[Tally]) {
    head("The computed chance, for excerpts of some message, compared with the rate in all others");
    let mut rows = vec![
        ["computed chance", "excerpts", "its mean", "false hits a message", "near-duplicates"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let chances = || tallies.iter().flat_map(|tally| &tally.chances);
    for decade in (0..=12).rev() {
        let (high, low) = (10_f64.powi(-decade), 10_f64.powi(-decade - 1));
        let within = |chance: f64| match decade {
            12 => chance <= high,
            _ => chance <= high && chance > low,
        };
        let (mut count, mut expected, mut pairs, mut unrelated, mut near) = (0, 0.0, 0, 0, 0);
        for &(chance, other, wrong, alike) in chances().filter(|(chance, ..)| within(*chance)) {
            count += 1;
            expected += chance * other as f64;
            pairs += other;
            unrelated += wrong;
            near += alike;
        }
        if count > 0 {
            rows.push(vec![
                if decade == 12 {
                    "up to 1e-12".into()
                } else {
                    format!("{low:.0e} to {high:.0e}")
                },
                count.to_string(),
                format!("{:.1e}", expected / pairs.max(1) as f64),
                rate(unrelated, pairs),
                rate(near, pairs),
            ]);
        }
    }
    print(&rows);
}
