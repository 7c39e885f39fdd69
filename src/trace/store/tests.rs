//! What users of the store rely on.

use std::path::Path;
use std::time::Duration;

use crate::sys::clock;

use super::super::decode::normalise;
use super::super::{Body, ContentQuery, Envelope, Part};
use super::*;

/// Options that keep messages of any age.
pub(super) fn for_ever() -> Options {
    Options { keep: None, ..Options::default() }
}

pub(super) fn open(folder: &Path) -> TraceStore {
    let mut trace = TraceStore::open(&trace_directory(folder), Access::Write).unwrap();
    trace.set_options(for_ever()).unwrap();
    trace
}

/// How many segments are merged in these tests: fewer, so that it happens more often.
pub(super) const TOGETHER: u32 = 4;

/// A store whose logs are full after so many messages.
pub(super) fn open_small(folder: &Path, messages: u32) -> TraceStore {
    let mut trace = open(folder);
    trace.limits.messages = messages;
    trace.limits.together = TOGETHER;
    trace
}

/// Records message `n`.
pub(super) fn record(trace: &mut TraceStore, n: u32) {
    trace.record(&envelope(n), text(n).as_bytes()).unwrap();
}

/// The numbers of all messages, each of which must be as recorded, and must be
/// found by its text.
pub(super) fn found(trace: &TraceStore) -> Vec<u32> {
    let mut numbers = Vec::new();
    for result in ask(trace, &Query::default()) {
        let n = result.envelope.id.strip_prefix("id-").unwrap().parse().unwrap();
        assert_eq!(result.envelope, envelope(n));
        numbers.push(n);
        let by_text = ask(trace, &content_query(&secret(n)));
        assert!(by_text.iter().any(|other| other.envelope == result.envelope), "{n}");
    }
    numbers.sort_unstable();
    numbers
}

/// Panics with all problems of the store, if there are any.
pub(super) fn assert_sound(trace: &TraceStore, what: &str) {
    let mut problems = Vec::new();
    trace.verify(&mut |_, _| {}, &mut |problem| problems.push(problem.to_string())).unwrap();
    assert!(problems.is_empty(), "{what}: {problems:#?}");
}

/// Records messages 0 to 49: two segments of 20, and the rest in the log.
pub(super) fn record_fifty(trace: &mut TraceStore) {
    for n in 0..50 {
        record(trace, n);
        if n % 20 == 19 {
            trace.seal().unwrap();
        }
    }
}

pub(super) fn envelope(n: u32) -> Envelope {
    Envelope {
        time: 1_700_000_000 + i64::from(n),
        id: format!("id-{n}"),
        sender: format!("sender{}@example.org", n % 7),
        recipients: vec![format!("recipient{}@example.net", n % 3)],
        ..Envelope::default()
    }
}

/// A text that only message `n` contains: so long that no other message matches
/// it by chance.
pub(super) fn secret(n: u32) -> String {
    let mut random = kit::Random::new(n.into());
    let words = (0..24).map(|_| format!("{:08x}", random.bits() as u32));
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn text(n: u32) -> String {
    format!("Subject: {n}\n\nAll of them begin with this line of text.\n{}\n", secret(n))
}

pub(super) fn content_query(text: &str) -> Query<'static> {
    let content_query = ContentQuery { parts: vec![Part::Text(normalise(text))], min_share: 1.0 };
    Query { content: Some(content_query), ..Query::default() }
}

pub(super) fn ask(trace: &TraceStore, query: &Query<'_>) -> Vec<QueryResult> {
    let mut results = Vec::new();
    let summary = trace.query(query, &mut |_, _| {}, &mut |result| results.push(result)).unwrap();
    assert_eq!(summary.damaged, []);
    results
}

pub(super) fn ids(results: &[QueryResult]) -> Vec<&str> {
    results.iter().map(|result| result.envelope.id.as_str()).collect()
}

#[test]
fn recorded_messages_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = open(folder.path());
    record_fifty(&mut trace);
    let trace = TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
    for n in 0..50 {
        let results = ask(&trace, &content_query(&secret(n)));
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].envelope, envelope(n));
    }
    assert_eq!(ask(&trace, &content_query(&secret(50))), []);
    assert_eq!(ask(&trace, &content_query("all of them begin with this line")).len(), 50);
    let from = Query { from: Some(Address::Is("Sender3@Example.ORG".into())), ..Query::default() };
    assert_eq!(ids(&ask(&trace, &from)), [3, 10, 17, 24, 31, 38, 45].map(|n| format!("id-{n}")));
    let to = Address::Test(Box::new(|address| address.ends_with("t1@example.net")));
    let both = Query { to: Some(to), ..from };
    assert_eq!(ids(&ask(&trace, &both)), ["id-10", "id-31"]);
    let newest = Query { limit: Some(3), ..Query::default() };
    assert_eq!(ids(&ask(&trace, &newest)), ["id-49", "id-48", "id-47"]);
    let time = |n: i64| Some(1_700_000_000 + n);
    let some = Query { since: time(18), until: time(20), ..Query::default() };
    assert_eq!(ids(&ask(&trace, &some)), ["id-18", "id-19", "id-20"]);
    let one = Query { ids: vec!["id-33".into()], ..Query::default() };
    assert_eq!(ids(&ask(&trace, &one)), ["id-33"]);
    let verified = trace.verify(&mut |_, _| {}, &mut |problem| panic!("{problem}")).unwrap();
    assert_eq!((verified.messages, trace.stats().unwrap().messages), (50, 50));
}

#[test]
fn several_queries_in_one_pass_have_the_results_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = open(folder.path());
    record_fifty(&mut trace);
    let all = "all of them begin with this line";
    let queries = [
        content_query(&secret(7)),
        content_query(&secret(50)),
        content_query(all),
        Query { best: Some(2), ..content_query(all) },
        Query { ids: vec!["id-33".into()], ..Query::default() },
        content_query("too short"),
    ];
    let mut found = vec![Vec::new(); queries.len()];
    let summaries = trace
        .query_all(&queries, &mut |_, _| {}, &mut |query, result| found[query].push(result))
        .unwrap();
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 50, 2, 1, 0]);
    for ((query, found), summary) in queries.iter().zip(found).zip(summaries) {
        let mut alone = Vec::new();
        let one = trace.query(query, &mut |_, _| {}, &mut |result| alone.push(result));
        assert_eq!(found, alone);
        match (summary, one) {
            (Ok(summary), Ok(one)) => assert_eq!(summary, one),
            (Err(short), Err(TraceError::TooShort(one))) => assert_eq!(short, one),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_deadline_that_passed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = open(folder.path());
    for n in 0..10 {
        trace.record(&envelope(n), text(n).as_bytes()).unwrap();
        trace.seal().unwrap();
    }
    let ask = |deadline| {
        let query = Query { deadline: Some(deadline), ..content_query(&secret(3)) };
        let mut found = 0;
        let summary = trace.query(&query, &mut |_, _| {}, &mut |_| found += 1).unwrap();
        (summary.late, summary.messages, found)
    };
    let now = std::time::Instant::now();
    assert_eq!(ask(now), (true, 0, 0));
    assert_eq!(ask(now + Duration::from_secs(600)), (false, 10, 1));
}

#[test]
fn a_deadline_ends_the_reading_of_a_single_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = open(folder.path());
    record_fifty(&mut trace);
    trace.seal().unwrap();
    for in_log in [false, true] {
        if in_log {
            record(&mut trace, 50);
        }
        for late in [false, true] {
            let allowed = Duration::from_millis(if late { 500 } else { 600_000 });
            let deadline = std::time::Instant::now() + allowed;
            // Waits for the deadline, while the newest file is being read.
            let slow = Address::Test(Box::new(move |_| {
                while late && std::time::Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(5));
                }
                true
            }));
            let (from, deadline) = (Some(slow), Some(deadline));
            let query = Query { from, deadline, limit: Some(1000), ..Query::default() };
            let mut found = 0;
            let summary = trace.query(&query, &mut |_, _| {}, &mut |_| found += 1).unwrap();
            assert_eq!((summary.late, summary.segments == 0, found == 0), (late, late, late));
            assert_eq!(summary.damaged, [], "a missed deadline is not damage");
        }
    }
    // The digests of a segment cannot be read after it either.
    let past = std::time::Instant::now();
    let body = Body::plain(b"body").until(Some(past));
    assert!(body.read(0, &mut [0; 4]).is_err());
    assert!(
        Body::plain(b"body")
            .until(Some(past + Duration::from_secs(600)))
            .read(0, &mut [0; 4])
            .is_ok()
    );
}

#[test]
fn a_missing_store_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let directory = trace_directory(folder.path());
    let error = TraceStore::open(&directory, Access::Read).unwrap_err();
    assert!(error.to_string().starts_with("no trace store at "), "{error}");
    open(folder.path());
    TraceStore::open(&directory, Access::Read).unwrap();
    std::fs::remove_file(directory.join("key")).unwrap();
    let error = TraceStore::open(&directory, Access::Read).unwrap_err();
    assert!(matches!(error, TraceError::NoKey { .. }), "{error}");
}

#[test]
fn a_process_with_a_destroyed_key_takes_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = open(folder.path());
    record(&mut old, 0);
    assert!(old.is_current());
    let directory = trace_directory(folder.path());
    std::fs::remove_file(directory.join("key")).unwrap();
    assert!(!old.is_current());
    // If there is none, it creates one.
    record(&mut old, 1);
    let mut new = open(folder.path());
    let logs = || std::fs::read_dir(&directory).unwrap().count();
    let before = logs();
    for n in 2..6 {
        record(if n % 2 == 0 { &mut old } else { &mut new }, n);
    }
    assert_eq!(found(&new), [1, 2, 3, 4, 5]);
    assert_eq!(found(&old), [1, 2, 3, 4, 5]);
    assert_eq!(logs(), before);
    for file in ["key", "open.log"] {
        std::fs::remove_file(directory.join(file)).unwrap();
    }
    record(&mut old, 6);
    assert_eq!(found(&open(folder.path())), [6]);
}

#[test]
fn changed_options_take_effect_when_a_log_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = open_small(folder.path(), 2);
    let day = Options { keep: Some(KEEP_MIN), ..for_ever() };
    trace.set_options(day).unwrap();
    // It has not read them since.
    open(folder.path()).set_options(for_ever()).unwrap();
    let now = clock::now().0;
    for n in 0..6 {
        let time = now - 3600 * i64::from(n);
        trace.record(&Envelope { time, ..envelope(n) }, text(n).as_bytes()).unwrap();
    }
    clock::shifted::by(2 * 86_400);
    trace.seal_after_recording();
    clock::shifted::by(0);
    assert_eq!(ask(&open(folder.path()), &Query::default()).len(), 6);
}

#[test]
fn a_store_that_was_moved_is_not_current() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = open(folder.path());
    record(&mut trace, 0);
    let directory = trace_directory(folder.path());
    std::fs::rename(&directory, directory.with_extension("old")).unwrap();
    assert!(!trace.is_current());
    let mut new = open(folder.path());
    record(&mut new, 1);
    assert_eq!(found(&new), [1]);
}
