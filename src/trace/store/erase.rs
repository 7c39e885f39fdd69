//! Removing a person from the envelopes.
//!
//! The messages stay: their digests cannot be turned into text, and other people may be
//! named in the same envelope. Logs are sealed first, and each segment that names the person
//! is replaced as a whole, so a killed process leaves it as it was or as it shall be.

use crate::trace::Envelope;

use super::error::Problem;
use super::names::{self, FileKind, Numbered};
use super::segment::Segment;
use super::sources::Source;
use super::{LOCK_TIMEOUT, TraceError, TraceStore, wire};

/// What stands in an envelope in place of an erased address.
pub const ERASED: &str = "[erased]";

/// The result of [`TraceStore::erase`].
#[derive(Debug, Default)]
pub struct ErasedEnvelopes {
    /// Envelopes in which the person was named.
    pub messages: u64,
    /// Files that could not be searched: damaged, quarantined, or written with another key
    /// or by a later version.
    pub problems: Vec<Problem>,
}

impl TraceStore {
    /// How many envelopes name a person, and which files cannot be searched.
    ///
    /// `is_theirs` is asked for each sender, recipient and authenticated id.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn count_named(
        &self,
        is_theirs: &dyn Fn(&str) -> bool,
    ) -> Result<ErasedEnvelopes, TraceError> {
        Ok(self.named(is_theirs)?.0)
    }

    /// Removes a person from all envelopes: where the sender or the authenticated id is
    /// theirs, [`ERASED`] takes its place, and the client's address is removed; of the
    /// recipients, theirs become [`ERASED`].
    ///
    /// What is recorded meanwhile is not searched. A second call finds what the first one
    /// missed.
    ///
    /// # Errors
    /// The store cannot be used or written, or another process seals for longer than the
    /// lock timeout. What has been erased by then stays erased.
    pub fn erase(
        &mut self,
        is_theirs: &dyn Fn(&str) -> bool,
    ) -> Result<ErasedEnvelopes, TraceError> {
        self.require_writable()?;
        self.after_fork()?;
        let (_, in_logs) = self.named(is_theirs)?;
        if in_logs {
            self.seal()?;
        }
        self.sealing(LOCK_TIMEOUT, |trace| {
            trace.remove_replaced(usize::MAX)?;
            let mut messages = 0;
            for numbered in names::list(&trace.dir)? {
                if numbered.kind == FileKind::Segment {
                    messages += trace.erase_in(numbered, is_theirs)?;
                }
            }
            // Of logs that could not be sealed, and of damaged segments.
            let (left, _) = trace.named(is_theirs)?;
            Ok(ErasedEnvelopes { messages, problems: left.problems })
        })
    }

    /// How many envelopes name a person, and whether any in a log does.
    fn named(
        &self,
        is_theirs: &dyn Fn(&str) -> bool,
    ) -> Result<(ErasedEnvelopes, bool), TraceError> {
        let sources = self.sources()?;
        let mut found = ErasedEnvelopes { messages: 0, problems: sources.problems };
        let mut in_logs = false;
        if sources.other_key > 0 {
            found.problems.push(Problem {
                path: self.directory().to_path_buf(),
                what: format!("{} of its files have another key", sources.other_key),
            });
        }
        for numbered in names::list_all(&self.dir)? {
            if numbered.kind.is_quarantined() {
                let path = self.dir.path_of(&numbered.name());
                found.problems.push(Problem { path, what: "it is quarantined".to_owned() });
            }
        }
        for (name, source) in &sources.list {
            let mut problem = |what: &str| {
                let (path, what) = (self.dir.path_of(name), what.to_owned());
                found.problems.push(Problem { path, what });
            };
            let messages = match source {
                Source::Segment(segment) => match segment.envelopes() {
                    Some(envelopes) => named_in(&envelopes, is_theirs),
                    None => {
                        problem("a part of its envelopes is damaged");
                        0
                    }
                },
                Source::Log(log) => {
                    let bytes = log.read().map_err(self.dir.failed("read", name))?;
                    let records = log.records(bytes, &self.key);
                    if records.damaged > 0 {
                        problem("a part of its envelopes is damaged");
                    }
                    let envelopes = records.sound.iter().map(|one| records.envelope(one));
                    let envelopes: Vec<Envelope> = envelopes.filter_map(wire::decode).collect();
                    let messages = named_in(&envelopes, is_theirs);
                    in_logs |= messages > 0;
                    messages
                }
            };
            found.messages += messages;
        }
        Ok((found, in_logs))
    }

    /// Erases in one segment; returns in how many envelopes. The lock on `sealing` is held.
    fn erase_in(
        &self,
        numbered: Numbered,
        is_theirs: &dyn Fn(&str) -> bool,
    ) -> Result<u64, TraceError> {
        let name = numbered.name();
        // What cannot be read is reported in the end.
        let Some(Ok(segment)) = Segment::open(&self.dir, &self.key, &name)? else { return Ok(0) };
        let Some(mut envelopes) = segment.envelopes() else { return Ok(0) };
        let changed = envelopes.iter_mut().map(|one| u64::from(erase(one, is_theirs))).sum();
        if changed == 0 {
            return Ok(0);
        }
        let Some(bytes) = segment.with_envelopes(&envelopes, &self.key)? else { return Ok(0) };
        self.write_segment(&bytes, &name)?;
        Ok(changed)
    }
}

fn named_in(envelopes: &[Envelope], is_theirs: &dyn Fn(&str) -> bool) -> u64 {
    envelopes.iter().filter(|one| erase(&mut (*one).clone(), is_theirs)).count() as u64
}

/// Removes a person from an envelope; whether they were named in it.
fn erase(envelope: &mut Envelope, is_theirs: &dyn Fn(&str) -> bool) -> bool {
    let mut sent = false;
    for own in [&mut envelope.sender, &mut envelope.authenticated] {
        if is_theirs(own) {
            ERASED.clone_into(own);
            sent = true;
        }
    }
    if sent {
        envelope.client = None;
    }
    let mut named = sent;
    for recipient in &mut envelope.recipients {
        if is_theirs(recipient) {
            ERASED.clone_into(recipient);
            named = true;
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::tests::{ask, assert_sound, envelope, found, open, open_small, record, text};
    use super::super::{Access, Query, trace_directory};
    use super::*;

    fn is_alice(text: &str) -> bool {
        text.eq_ignore_ascii_case("alice@example.org")
    }

    /// Message `n`: alice sends, is authenticated, or receives, or is not named.
    fn with_alice(n: u32) -> Envelope {
        let mut envelope = envelope(n);
        envelope.client = Some(IpAddr::from([192, 0, 2, n as u8]));
        match n % 5 {
            0 => envelope.sender = "Alice@Example.ORG".to_owned(),
            1 => envelope.authenticated = "alice@example.org".to_owned(),
            2 => envelope.recipients.insert(0, "alice@example.org".to_owned()),
            _ => {}
        }
        envelope
    }

    fn expected(n: u32) -> Envelope {
        let mut envelope = with_alice(n);
        match n % 5 {
            0 => (envelope.sender, envelope.client) = (ERASED.to_owned(), None),
            1 => (envelope.authenticated, envelope.client) = (ERASED.to_owned(), None),
            2 => envelope.recipients[0] = ERASED.to_owned(),
            _ => {}
        }
        envelope
    }

    #[test]
    fn a_person_is_removed_from_every_envelope_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut trace = open_small(folder.path(), 20);
        for n in 0..50 {
            trace.record(&with_alice(n), text(n).as_bytes()).unwrap();
        }
        // Two segments and the open log.
        assert_eq!(trace.count_named(&is_alice).unwrap().messages, 30);
        let erased = trace.erase(&is_alice).unwrap();
        assert_eq!(erased.messages, 30);
        assert!(erased.problems.is_empty(), "{:?}", erased.problems);
        assert_sound(&trace, "erased");
        let all = ask(&trace, &Query::default());
        let mut all: Vec<_> = all.into_iter().map(|one| one.envelope).collect();
        all.sort_by_key(|envelope| envelope.time);
        assert_eq!(all, (0..50).map(expected).collect::<Vec<_>>());
        // Twice is once; and it can be read only.
        assert_eq!(trace.erase(&is_alice).unwrap().messages, 0);
        let mut reader =
            super::super::TraceStore::open(&trace_directory(folder.path()), Access::Read).unwrap();
        assert_eq!(reader.count_named(&is_alice).unwrap().messages, 0);
        assert!(reader.erase(&is_alice).is_err());
    }

    #[test]
    fn messages_are_still_found_by_their_text() {
        let folder = tempfile::tempdir().unwrap();
        let mut trace = open(folder.path());
        for n in 0..30 {
            record(&mut trace, n);
        }
        let erased = trace.erase(&|text| text == "nobody@example.org").unwrap();
        assert_eq!(erased.messages, 0);
        let everybody = |text: &str| text.ends_with("@nowhere.example");
        assert_eq!(trace.erase(&everybody).unwrap().messages, 0);
        assert_eq!(found(&trace), (0..30).collect::<Vec<_>>());
        // The segment is written again, with what the digests say unchanged.
        let sixth = |text: &str| text == "sender6@example.org";
        assert_eq!(trace.erase(&sixth).unwrap().messages, 4);
        assert_sound(&trace, "erased");
        for n in 0..30 {
            let query = super::super::tests::content_query(&super::super::tests::secret(n));
            let results = ask(&trace, &query);
            let sender = if n % 7 == 6 { ERASED.to_owned() } else { envelope(n).sender };
            let is_it = |one: &super::super::QueryResult| {
                one.envelope.id == format!("id-{n}") && one.envelope.sender == sender
            };
            assert!(results.iter().any(is_it), "{n}: {results:?}");
        }
    }

    #[test]
    fn what_cannot_be_searched_is_reported_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut trace = open_small(folder.path(), 20);
        for n in 0..40 {
            trace.record(&with_alice(n), text(n).as_bytes()).unwrap();
        }
        trace.seal().unwrap();
        let path = trace_directory(folder.path()).join("00000001.segment");
        let whole = std::fs::read(&path).unwrap();
        // One byte of the envelopes: of the tables there is a second copy.
        let bytes = (0..whole.len()).step_by(97).find_map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            std::fs::write(&path, &bytes).unwrap();
            let segment = Segment::open(&trace.dir, &trace.key, c"00000001.segment").unwrap();
            segment.unwrap().unwrap().envelopes().is_none().then_some(bytes)
        });
        let bytes = bytes.unwrap();
        std::fs::write(path.with_file_name("00000009.log.damaged"), b"").unwrap();
        let erased = trace.erase(&is_alice).unwrap();
        assert_eq!(erased.messages, 12);
        let problems: Vec<_> = erased.problems.iter().map(ToString::to_string).collect();
        let has = |what: &str| problems.iter().any(|one| one.contains(what));
        assert!(has("00000009.log.damaged") && has("it is quarantined"), "{problems:?}");
        assert!(
            has("00000001.segment") && has("a part of its envelopes is damaged"),
            "{problems:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
