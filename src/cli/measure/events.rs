//! The events in Exim's main log that rates are measured of.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use regex::Regex;

use crate::logs::exim::{self, Arrival, What};
use crate::logs::files::Stamped;
use crate::rate::Timestamp;

/// The identity that a message counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// The envelope sender
    Sender,
    /// The client's IP address
    Host,
    /// The authenticated user (A=)
    Auth,
    /// The local user, or the ident of a client (U=)
    User,
    /// All messages together
    All,
}

/// What of a message counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Count {
    /// Each one once
    Messages,
    /// Its size (S=)
    Bytes,
    /// Its recipients: those that log_selector = +received_recipients adds to its line,
    /// else those of its deliveries
    Recipients,
}

/// What of which lines counts, and for whom.
#[derive(Debug)]
pub(super) enum Measured<'a> {
    /// Messages that came in.
    Arrivals(By, Count),
    /// Lines that match: group 1 is the key, group 2 the size.
    Lines(&'a Regex),
}

/// An event of the log.
pub(super) struct Event {
    pub(super) at: Timestamp,
    /// Which key, by its number.
    pub(super) key: u32,
    pub(super) count: f64,
}

/// The events of the log, in the order of its lines.
pub(super) struct Events<'a> {
    measured: Measured<'a>,
    pub(super) all: Vec<Event>,
    keys: HashMap<String, u32>,
    /// Messages whose lines lack what is measured.
    pub(super) lacking: usize,
    /// Messages whose recipients are counted from their deliveries, by message id.
    open: HashMap<String, Open>,
    hasher: RandomState,
}

/// A message whose deliveries have not all been read.
#[derive(Default)]
struct Open {
    /// Its place in `all`, once its arrival has been read: that of a message that is passed
    /// on while it is received (cutthrough) comes after its delivery.
    event: Option<usize>,
    /// Hashes of its recipients, each once.
    recipients: Vec<u64>,
}

impl<'a> Events<'a> {
    pub(super) fn new(measured: Measured<'a>) -> Self {
        Self {
            measured,
            all: Vec::new(),
            keys: HashMap::new(),
            lacking: 0,
            open: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Considers a line.
    pub(super) fn add(&mut self, line: Stamped<'_>) {
        let (by, count) = match self.measured {
            Measured::Arrivals(by, count) => (by, count),
            Measured::Lines(pattern) => {
                let Some(found) = pattern.captures(line.line) else { return };
                let key = found.get(1).map_or("", |key| key.as_str());
                let size = found.get(2).map_or(Some(1.0), |size| size.as_str().parse().ok());
                return self.push(line.at, Some(key), size.filter(|size| *size >= 0.0));
            }
        };
        let exim::Line { id, what, .. } = exim::line(line.rest);
        match what {
            What::Arrival(arrival)
                if count == Count::Recipients && arrival.recipients.is_none() =>
            {
                let Some(key) = key(&arrival, by) else { return self.lacking += 1 };
                let open = self.open.entry(id.unwrap_or_default().to_owned()).or_default();
                open.event = Some(self.all.len());
                let known = open.recipients.len() as f64;
                self.push(line.at, Some(key), Some(known));
            }
            What::Arrival(arrival) => {
                self.push(line.at, key(&arrival, by), number(&arrival, count));
            }
            What::Recipient { address, .. } if count == Count::Recipients => {
                self.add_recipient(id.unwrap_or_default(), address);
            }
            What::Completed => {
                if let Some(id) = id
                    && self.open.get(id).is_some_and(|open| open.event.is_some())
                {
                    self.open.remove(id);
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, at: Timestamp, key: Option<&str>, count: Option<f64>) {
        let Some((key, count)) = key.zip(count) else { return self.lacking += 1 };
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let key = match self.keys.get(key) {
            Some(&key) => key,
            None => *self.keys.entry(key.to_owned()).or_insert(next),
        };
        self.all.push(Event { at, key, count });
    }

    fn add_recipient(&mut self, id: &str, address: &str) {
        let hash = self.hasher.hash_one(address);
        let open = match self.open.get_mut(id) {
            Some(open) => open,
            None => self.open.entry(id.to_owned()).or_default(),
        };
        if !open.recipients.contains(&hash) {
            open.recipients.push(hash);
        }
        if let Some(event) = open.event.and_then(|event| self.all.get_mut(event)) {
            event.count = open.recipients.len() as f64;
        }
    }

    /// The events in the order of time, and the keys in the order of their numbers.
    pub(super) fn sorted(mut self) -> (Vec<Event>, Vec<String>, usize) {
        if matches!(self.measured, Measured::Arrivals(_, Count::Recipients)) {
            // Of these, no delivery was in the log.
            let before = self.all.len();
            self.all.retain(|event| event.count > 0.0);
            self.lacking += before - self.all.len();
        }
        // exigrep, for one, shows message after message.
        self.all.sort_by_key(|event| event.at);
        let mut keys: Vec<(String, u32)> = self.keys.into_iter().collect();
        keys.sort_unstable_by_key(|&(_, number)| number);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        (self.all, keys, self.lacking)
    }
}

/// For whom a message counts; `None` where its line does not say.
fn key<'a>(arrival: &Arrival<'a>, by: By) -> Option<&'a str> {
    match by {
        By::All => Some(""),
        By::Sender => Some(arrival.sender),
        By::Host => arrival.host.address,
        By::Auth => arrival.auth,
        By::User => arrival.user,
    }
}

/// How much a message counts; `None` where its line does not say.
fn number(arrival: &Arrival<'_>, count: Count) -> Option<f64> {
    match count {
        Count::Messages => Some(1.0),
        Count::Bytes => arrival.size.map(|size| size as f64),
        Count::Recipients => Some(exim::recipients(arrival.recipients?).count() as f64),
    }
}
