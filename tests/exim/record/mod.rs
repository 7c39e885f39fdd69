//! Messages recorded by a real Exim, and found again by excerpts.

mod carried;
mod failing;
mod queried;
mod spools;

use exirate::trace::{
    Access, ContentQuery, Envelope, Part, Query, TraceStore, decode, trace_directory,
};
use kit::{PrivateExim, Setup};
use std::path::Path;

/// Records, logs the answer, and accepts.
const RECORD: &str = "  warn logwrite = answer: ${dlfunc{EXIRATE_TRACE}{record}}\n  accept\n";

/// An Exim that records whatever comes, with these lines in the main section.
fn exim(main: &str) -> PrivateExim {
    let mut exim = Setup::new()
        .library()
        .auth()
        .main("chunking_advertise_hosts = *\nsmtputf8_advertise_hosts = *")
        .main(main)
        .acl("acl_smtp_data", RECORD)
        .acl("acl_not_smtp", RECORD)
        .build();
    exim.start();
    exim
}

/// Who may have carried all of `parts`.
fn carriers(spool: &Path, parts: Vec<Part>) -> Vec<Envelope> {
    let trace = TraceStore::open(&trace_directory(spool), Access::Read).unwrap();
    let query = Query { content: Some(ContentQuery { parts, min_share: 1.0 }), ..Query::default() };
    let mut found = Vec::new();
    trace.query(&query, &mut |_, _| {}, &mut |answer| found.push(answer.envelope)).unwrap();
    found
}

fn with_text(exim: &PrivateExim, text: &str) -> Vec<Envelope> {
    carriers(&exim.spool(), vec![Part::Text(decode::excerpt(text))])
}

/// The one message that carried this text.
fn of_text(exim: &PrivateExim, text: &str) -> Envelope {
    let mut found = with_text(exim, text);
    assert_eq!(found.len(), 1, "{text:?}: {found:?}\n{}", exim.log("main"));
    found.remove(0)
}

/// A sentence of words that are in no other message of these tests: so long
/// that no other can be taken to have carried it by chance.
fn sentence(n: usize) -> String {
    let mut random = kit::Random::new(n as u64);
    let words: Vec<String> = (0..30).map(|_| (0..6).map(|_| random.letter()).collect()).collect();
    words.join(" ")
}

/// What `record` has answered so far.
fn answers(exim: &PrivateExim) -> Vec<String> {
    let log = exim.log("main");
    log.lines().filter_map(|l| Some(l.split_once(" answer: ")?.1.to_owned())).collect()
}

/// The ids of the messages for which it was asked.
fn ids(exim: &PrivateExim) -> Vec<String> {
    let log = exim.log("main");
    let asked = log.lines().filter(|l| l.contains(" answer: "));
    asked.map(|l| l.split(' ').nth(2).unwrap().to_owned()).collect()
}
