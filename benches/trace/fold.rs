//! Folded segments.

use exirate::trace::Settings;

use crate::corpus::Corpus;
use crate::excerpts::Excerpts;
use crate::options::LENGTHS;
use crate::report::hits;
use crate::segment::{SEGMENT, Segment};
use crate::tally::tally;
use kit::table::{head, print};

/// A segment of the default scheme as it is, folded once, and folded twice.
pub(crate) fn run(corpus: &Corpus, excerpts: &Excerpts) {
    let messages = corpus.texts.len().min(SEGMENT);
    let mut segment = Segment::new(corpus, Settings::default(), messages);
    let text = corpus.volume_of(messages).text as f64;
    let mut results = Vec::new();
    let mut sizes =
        vec![["", "digests a message", "decoded text : digests"].map(str::to_owned).into()];
    for name in ["as sealed", "folded once", "folded twice"] {
        let bytes = segment.bytes() as f64;
        sizes.push(vec![
            name.to_owned(),
            format!("{:.0} bytes", bytes / messages as f64),
            format!("{:.1} : 1", text / bytes),
        ]);
        let tallies = (0..LENGTHS.len()).map(|n| {
            let (present, absent) = (&excerpts.present[n], &excerpts.absent[n]);
            tally(corpus, messages, present, absent, &mut |excerpt| segment.ask(excerpt))
        });
        results.push((name.to_owned(), tallies.collect()));
        segment.fold();
    }
    head(&format!("Folding, with the default settings: a segment of {messages} messages"));
    print(&sizes);
    hits(&results);
}
