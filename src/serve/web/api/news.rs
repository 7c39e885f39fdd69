//! The latest of what has happened, for streams that begin again where they ended.

use std::collections::VecDeque;

use hyper::body::Bytes;

use crate::rate::Timestamp;
use crate::serve::web::look::news_reader::{Batch, News};

/// So much is kept.
const KEPT: usize = 4096;
/// A crossing may be read so many seconds late, as it waits for its details.
const LAG: i64 = 3;

/// The latest of what has happened.
#[derive(Debug, Default)]
pub(super) struct Latest {
    kept: VecDeque<News>,
    /// The number of the first that is kept.
    first: u64,
    /// All that has happened after this is kept; `None` if nothing was read yet.
    since: Option<Timestamp>,
    /// Whether it is read again and again.
    pub(super) is_read: bool,
}

/// Where a stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the next.
    pub(super) next: u64,
    /// Whether something was left out.
    pub(super) missed: bool,
}

impl Latest {
    /// Takes in what was read at `now`. Returns whether something is new.
    pub(super) fn add(&mut self, batch: Batch, now: Timestamp) -> bool {
        let is_new = batch.is_break || !batch.news.is_empty();
        if batch.is_break {
            self.drop_first(self.kept.len());
            // Each stream misses something.
            self.first += batch.news.len().max(1) as u64;
            self.since = Some(settled(now));
        }
        // What is read at first is as old as the logs.
        self.since = self.since.or(Some(batch.since));
        if !batch.is_break {
            self.kept.extend(batch.news);
        }
        let old = self.kept.iter().take_while(|one| one.at < batch.oldest).count();
        self.drop_first(old.max(self.kept.len().saturating_sub(KEPT)));
        is_new
    }

    fn drop_first(&mut self, count: usize) {
        self.first += count as u64;
        if let Some(last) = self.kept.drain(..count).next_back() {
            self.since = Some(last.at);
        }
    }

    /// Whether something was read ever.
    pub(super) fn is_known(&self) -> bool {
        self.since.is_some()
    }

    /// The number of what comes next.
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Where a stream continues whose last event had this id; one without, with what comes next.
    pub(super) fn resume(&self, id: Option<&str>) -> Place {
        let Some(id) = id else { return Place { next: self.end(), missed: false } };
        if let Some(at) = self.kept.iter().rposition(|one| one.id == id) {
            return Place { next: self.first + at as u64 + 1, missed: false };
        }
        // That one was removed, or is older.
        let Some(time) = time_of(id) else { return Place { next: self.end(), missed: true } };
        let at = self.kept.iter().take_while(|one| one.at <= time).count();
        Place { next: self.first + at as u64, missed: self.since.is_none_or(|since| time < since) }
    }

    /// What has this number, if there is such; or where to continue, if it is not kept any more.
    pub(super) fn get(&self, number: u64) -> Result<Option<Bytes>, Place> {
        let Some(at) = number.checked_sub(self.first) else {
            return Err(Place { next: self.first, missed: true });
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        Ok(self.kept.get(at).map(|one| one.bytes.clone()))
    }

    /// The id of a stream that has had everything up to `now`.
    pub(super) fn id_at_end(&self, now: Timestamp) -> String {
        match self.kept.back() {
            Some(last) => last.id.clone(),
            None => format!("-{}.000000", settled(now).seconds),
        }
    }
}

/// All that has happened up to this time is in the logs, with its details.
fn settled(now: Timestamp) -> Timestamp {
    Timestamp { seconds: now.seconds.saturating_sub(LAG), micros: 0 }
}

/// The time in an id.
fn time_of(id: &str) -> Option<Timestamp> {
    let (_, time) = id.rsplit_once('-')?;
    let (seconds, micros) = time.split_once('.')?;
    let micros: u32 = micros.parse().ok().filter(|&micros| micros < 1_000_000)?;
    Some(Timestamp { seconds: seconds.parse().ok()?, micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, micros: 0 }
    }

    fn news(seconds: i64) -> News {
        let bytes = Bytes::from(seconds.to_string());
        News { at: at(seconds), id: format!("x-{seconds}.000000"), bytes }
    }

    fn batch(seconds: impl IntoIterator<Item = i64>) -> Batch {
        let news: Vec<News> = seconds.into_iter().map(news).collect();
        let since = news.first().map_or(at(i64::MIN), |one| one.at);
        Batch { news, is_break: false, oldest: at(i64::MIN), since }
    }

    /// What a stream has from a place on.
    fn rest(latest: &Latest, place: Place) -> Vec<String> {
        let each = (place.next..).map_while(|number| latest.get(number).unwrap());
        each.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_stream_continues_where_it_ended() {
        let mut latest = Latest::default();
        assert!(latest.add(batch([10, 20, 30]), at(40)));
        assert_eq!(rest(&latest, latest.resume(None)), texts(&[]));
        for (id, expected, missed) in [
            ("x-10.000000", &["20", "30"][..], false),
            ("x-30.000000", &[], false),
            // That one was erased.
            ("y-20.000000", &["30"], false),
            ("-25.500000", &["30"], false),
            ("x-5.000000", &["10", "20", "30"], true),
            ("nonsense", &[], true),
            ("", &[], true),
            ("x-5.9999999", &[], true),
        ] {
            let place = latest.resume(Some(id));
            assert_eq!((rest(&latest, place), place.missed), (texts(expected), missed), "{id}");
        }
    }

    #[test]
    fn a_stream_that_began_when_there_was_nothing_misses_nothing() {
        let mut latest = Latest::default();
        latest.add(batch([]), at(40));
        let id = latest.id_at_end(at(41));
        latest.add(batch([42, 43]), at(44));
        let place = latest.resume(Some(&id));
        assert_eq!((rest(&latest, place), place.missed), (texts(&["42", "43"]), false));
    }

    #[test]
    fn a_stream_is_told_what_it_has_missed() {
        let mut latest = Latest::default();
        let all = KEPT as i64 + 10;
        latest.add(batch(1..=all), at(all));
        let place = latest.resume(Some("x-5.000000"));
        assert!(place.missed);
        assert_eq!(rest(&latest, place).len(), KEPT);
        assert!(!latest.resume(Some("x-10.000000")).missed, "it is the last that was dropped");
        // A stream that is slow.
        let slow = latest.resume(Some("x-12.000000"));
        latest.add(batch(all + 1..=all + 50), at(all + 50));
        let again = latest.get(slow.next).unwrap_err();
        assert!(again.missed && rest(&latest, again).len() == KEPT);
    }

    #[test]
    fn what_was_erased_or_is_too_old_is_sent_to_nobody() {
        let mut latest = Latest::default();
        latest.add(batch([10, 20, 30]), at(40));
        latest.add(Batch { oldest: at(15), ..batch([]) }, at(41));
        let place = latest.resume(Some("x-5.000000"));
        assert_eq!((rest(&latest, place), place.missed), (texts(&["20", "30"]), true));
        latest.add(Batch { is_break: true, ..batch([42]) }, at(43));
        let place = latest.resume(Some("x-20.000000"));
        assert_eq!((rest(&latest, place), place.missed), (texts(&[]), true));
        latest.add(batch([44]), at(45));
        assert_eq!(rest(&latest, latest.resume(Some("x-43.500000"))), ["44"]);
    }
}
