//! What accounts have sent, from the mail server's log.

use std::path::Path;

use crate::history::habits::{Senders, SentSince};
use crate::identity::fold::Folding;
use crate::logs::files::{LogError, Stamped};
use crate::logs::follow::Follow;
use crate::rate::Timestamp;

/// A line of a log may be so much older than the message that is received after it, in seconds.
const SESSION: i64 = 3600;

/// Considers a line of a log; whether the next is wanted.
pub(crate) type See<'s> = &'s mut dyn FnMut(Stamped<'_>) -> bool;

/// Counts the mail of `accounts` in the lines that `read` hands over from a time on, as long as it
/// `goes_on`. Returns how many messages of accounts have recipients that the log does not name.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn count(
    accounts: &mut SentSince,
    folding: &Folding,
    mut goes_on: impl FnMut(&SentSince) -> bool,
    read: impl FnOnce(Timestamp, See<'_>) -> Result<(), LogError>,
) -> Result<u64, LogError> {
    let from = Timestamp { seconds: accounts.from() - SESSION, micros: 0 };
    let mut senders = Senders::new(folding.clone());
    read(from, &mut |line| {
        senders.line(&line, &mut |sent| accounts.add(&sent));
        goes_on(accounts)
    })?;
    Ok(senders.finish(false, &mut |sent| accounts.add(&sent)).without_recipients)
}

/// Reads a log, and what rotation has made of it.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_file(log: &Path, from: Timestamp, mut see: See<'_>) -> Result<(), LogError> {
    Follow::file(log, from, &mut see).map(drop)
}
