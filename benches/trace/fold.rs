//! Folded segments.

use exirate::trace::{Body, ContentQuery, Hit, Part, Sealed, Settings};

use crate::accuracy::{Reported, tally};
use crate::corpus::Corpus;
use crate::excerpts::Excerpts;
use crate::options::LENGTHS;
use crate::report::hits;
use crate::stores;
use crate::table::{head, print};

/// The maximum number of messages in a segment.
pub(crate) const SEGMENT: usize = 16_384;

/// A segment of the default scheme as it is, folded once, and folded twice.
pub(crate) fn run(corpus: &Corpus, excerpts: &Excerpts) {
    let messages = corpus.texts.len().min(SEGMENT);
    let scheme = Settings::default().scheme(&stores::KEY);
    let Sealed { order, mut body } = stores::sealed(corpus, Settings::default(), messages);
    let text = corpus.volume_of(messages).text as f64;
    let mut results = Vec::new();
    let mut sizes =
        vec![["", "digests a message", "decoded text : digests"].map(str::to_owned).into()];
    for name in ["as sealed", "folded once", "folded twice"] {
        let bytes = body.len() as f64;
        sizes.push(vec![
            name.to_owned(),
            format!("{:.0} bytes", bytes / messages as f64),
            format!("{:.1} : 1", text / bytes),
        ]);
        let ask = |excerpt: &str| -> Option<Vec<Reported>> {
            let question =
                ContentQuery { parts: vec![Part::Text(excerpt.to_owned())], min_share: 1.0 };
            let mut search = scheme.search(&question).ok()?;
            let mut hits = Vec::new();
            let hit = &mut |hit: Hit| hits.push(hit);
            search.sealed(&Body::plain(&body), messages as u32, hit).unwrap();
            let reported = |hit: &Hit| (order[hit.message as usize], search.chance(hit));
            Some(hits.iter().map(reported).collect())
        };
        let tallies = (0..LENGTHS.len()).map(|n| {
            let (present, absent) = (&excerpts.present[n], &excerpts.absent[n]);
            tally(corpus, messages, present, absent, &mut |excerpt| ask(excerpt))
        });
        results.push((name.to_owned(), tallies.collect()));
        body = scheme.fold(&body).unwrap_or(body);
    }
    head(&format!("Folding, with the default settings: a segment of {messages} messages"));
    print(&sizes);
    hits(&results);
}
