//! `exirate held decide` beside Postfix and Sendmail: messages that wait for room within a limit at
//! delivery leave when there is some.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;

use crate::cli::Failure;
use crate::cli::shared::screen::{Screen, complain};
use crate::serve::config::{self, FILE};
use crate::serve::mail::Worker;
use crate::serve::mail::later::{LaterMessage, Queues, WaitsBy};
use crate::spool::{HeldNote, HeldUntil, Options, Spool, SpoolError};
use crate::standing::held::{HeldMessage, HoldQueue};
use crate::text::printable;
use crate::text::time::now;

/// A message that is not in the queue this long after it was noted is gone, or was not accepted: the mail
/// server holds it at once.
const GONE_SECONDS: i64 = 60;

/// Whether Postfix or Sendmail was ever told to hold a message until there is room, by the notes that are
/// kept: else nobody need read its queue.
pub(super) fn is_any(spool: &Path) -> Result<bool, Failure> {
    let notes = match Spool::open_existing(spool, Options::default()) {
        Err(SpoolError::Absent { .. }) => return Ok(false),
        spool => spool?.held_notes()?,
    };
    Ok(notes.iter().any(|note| note.until != HeldUntil::Released))
}

/// Releases what there is room for, the oldest message of each key first; how many are left. `waiting` are
/// those in the queue, all of them if `are_all`.
pub(super) fn release(
    screen: &mut Screen<'_>,
    queue: &dyn HoldQueue,
    spool: &Path,
    waiting: &[HeldMessage],
    are_all: bool,
) -> Result<usize, Failure> {
    let mut database = Spool::open_to_change(spool, Options::default())?;
    let ids: HashSet<&str> = waiting.iter().map(|message| &*message.id).collect();
    for (note, is_before) in database.waiting_notes()? {
        let is_there = ids.contains(&*note.id);
        if is_there && is_before {
            // The log before is dropped next.
            database.note_held(&note)?;
        } else if !is_there && are_all && note.at < now().seconds - GONE_SECONDS {
            database.note_held(&HeldNote { until: HeldUntil::Now, ..note })?;
        }
    }
    let (leaving, left) = decide(&mut database, spool, waiting)?;
    let ids: Vec<&str> = leaving.iter().map(|message| &*message.id).collect();
    let results = if ids.is_empty() { Vec::new() } else { queue.release(&ids) };
    let mut failed = 0;
    for (id, result) in ids.iter().zip(results) {
        let id = printable(id.as_bytes());
        match result {
            Ok(()) => writeln!(screen, "{id} is counted and delivered")?,
            Err(why) => {
                failed += 1;
                complain(format_args!("{id} was not released: {}", printable(why.as_bytes())));
            }
        }
    }
    Ok(left + failed)
}

/// The messages that may leave now, each counted and noted, and how many are left.
fn decide<'m>(
    database: &mut Spool,
    spool: &Path,
    waiting: &'m [HeldMessage],
) -> Result<(Vec<&'m HeldMessage>, usize), Failure> {
    // What was counted before, by a process that has not released it.
    let (mut leaving, waiting): (Vec<_>, Vec<_>) =
        waiting.iter().partition(|message| message.request.is_empty());
    let mut left = 0;
    let mut all = Vec::new();
    for message in waiting {
        match LaterMessage::from_json(&String::from_utf8_lossy(&message.request)) {
            Ok(event) => all.push((event, message)),
            Err(why) => {
                left += 1;
                stays(message, &why);
            }
        }
    }
    all.sort_by_key(|(event, message)| (event.at.seconds, event.at.micros, &message.id));
    let names = configured_policies();
    let (mut worker, mut queues) = (Worker::new(spool), Queues::default());
    for (event, message) in all {
        match worker.still_waits(&event, &names, &queues) {
            Ok(None) => {
                database.note_held(&noted(message, HeldUntil::Now))?;
                leaving.push(message);
            }
            Ok(Some(wait)) => {
                left += 1;
                if wait.fits {
                    queues.add(&wait);
                }
                if let Some(note) = changed(message, &wait) {
                    database.note_held(&note)?;
                }
            }
            Err(why) => {
                left += 1;
                stays(message, &why);
            }
        }
    }
    worker.complaints().for_each(|line| complain(printable(line.as_bytes())));
    Ok((leaving, left))
}

fn stays(message: &HeldMessage, why: &str) {
    let (id, why) = (printable(message.id.as_bytes()), printable(why.as_bytes()));
    complain(format_args!("{id} still waits, and was not decided: {why}"));
}

/// The policies that the daemon evaluates.
fn configured_policies() -> String {
    let mail = config::read_mail(Path::new(FILE)).ok().and_then(|read| read.config);
    let names = mail.and_then(|mail| mail.policies);
    names.map_or_else(|| "*".to_owned(), |names| names.join(","))
}

/// The note of a message.
fn noted(message: &HeldMessage, until: HeldUntil) -> HeldNote {
    let HeldMessage { id, at, policy, key, why, .. } = message.clone();
    HeldNote { at, id, policy, key, why, until }
}

/// The note of a message that waits by another policy, key or limit now.
fn changed(message: &HeldMessage, wait: &WaitsBy) -> Option<HeldNote> {
    let limit = |why: &str| why.split_once(", limit ").map(|(_, limit)| limit.to_owned());
    let (policy, key) = match wait.policy.is_empty() {
        true => (message.policy.clone(), message.key.clone()),
        false => (wait.policy.to_string(), wait.key.clone().into_bytes()),
    };
    let is_same =
        (&policy, &key, limit(&wait.why)) == (&message.policy, &message.key, limit(&message.why));
    let event = String::from_utf8_lossy(&message.request).into_owned();
    let (at, id, why) = (message.at, message.id.clone(), wait.why.clone());
    let until = HeldUntil::Room(event);
    (!is_same).then_some(HeldNote { at, id, policy, key, why, until })
}
