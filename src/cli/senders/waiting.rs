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
use crate::standing::held::{Held, HeldMessage, HoldQueue};
use crate::text::printable;
use crate::text::time::now;

/// A message that is not in the queue this long after it was noted may have been refused by another
/// filter: nothing waits behind it any more.
const UNSEEN_SECONDS: i64 = 60;
/// One that is not there after ten days is gone.
const GONE_SECONDS: i64 = 10 * 86_400;
/// The notes of so many messages are kept beyond the size of the log.
const KEPT: usize = 20_000;
/// So many are released at once, while the others are still to be decided.
const AT_ONCE: usize = 200;

/// Whether Postfix or Sendmail holds a message until there is room, by the notes: else nobody need read
/// its queue.
pub(super) fn is_any(spool: &Path) -> Result<bool, Failure> {
    let notes = match Spool::open_existing(spool, Options::default()) {
        Err(SpoolError::Absent { .. }) => return Ok(false),
        spool => spool?.latest_held_notes()?,
    };
    let waits = |until: &HeldUntil| !matches!(until, HeldUntil::Released | HeldUntil::Left);
    Ok(notes.iter().any(|(note, _)| waits(&note.until)))
}

/// How many messages are left.
#[derive(Default)]
pub(super) struct StillWaiting {
    /// As there is no room, or their sender is denied or suspected.
    pub(super) decided: usize,
    /// As they could not be decided, or released.
    pub(super) failed: usize,
}

/// Releases what there is room for, the oldest message of each key first; what is left.
pub(super) fn release(
    screen: &mut Screen<'_>,
    queue: &dyn HoldQueue,
    spool: &Path,
    held: &Held,
) -> Result<StillWaiting, Failure> {
    let mut database = Spool::open_to_change(spool, Options::default())?;
    let aside = keep_notes(&mut database, held)?;
    // What was counted before, by a process that has not released it.
    let (counted, waiting): (Vec<_>, Vec<_>) =
        held.waiting.iter().partition(|message| message.request.is_empty());
    let failed = leave(screen, queue, &mut database, &counted)?;
    let mut left = StillWaiting { decided: 0, failed };
    let (mut all, mut leaving, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
    for message in waiting {
        match LaterMessage::from_json(&String::from_utf8_lossy(&message.request)) {
            Ok(event) => all.push((event, message)),
            Err(why) => undecided.push((message, why)),
        }
    }
    all.sort_by_key(|(event, message)| (event.at.seconds, event.at.micros, &message.id));
    let names = configured_policies()?;
    let (mut worker, mut queues) = (Worker::new(spool), Queues::default());
    for (event, message) in all {
        let was_aside = aside.contains(&*message.id);
        match worker.still_waits(&event, &names, &queues) {
            Ok(None) => {
                database.note_held(&noted(message, HeldUntil::Now))?;
                leaving.push(message);
            }
            Ok(Some(wait)) => {
                left.decided += 1;
                let is_first = !queues.has(&wait.policy, &wait.key);
                if wait.fits {
                    queues.add(&wait);
                }
                if let Some(note) = changed(message, was_aside, is_first, &wait) {
                    database.note_held(&note)?;
                }
            }
            Err(why) => undecided.push((message, why)),
        }
        if leaving.len() == AT_ONCE {
            left.failed += leave(screen, queue, &mut database, &leaving)?;
            leaving.clear();
        }
    }
    left.failed += leave(screen, queue, &mut database, &leaving)?;
    left.failed += undecided.len();
    // One reason is said once, with the first message.
    undecided.dedup_by(|(_, why), (_, before)| why == before);
    undecided.iter().for_each(|(message, why)| stays(message, why));
    worker.complaints().for_each(|line| complain(printable(line.as_bytes())));
    Ok(left)
}

/// Notes again what is in the queue, and whose note is in the log that is dropped next, and of what is not
/// there that nothing waits behind it, or that it is gone. The ids of those behind which nothing waits.
fn keep_notes(database: &mut Spool, held: &Held) -> Result<HashSet<String>, Failure> {
    let messages = held.messages.iter().chain(&held.waiting);
    let ids: HashSet<&str> = messages.map(|message| &*message.id).collect();
    let mut aside = HashSet::new();
    let latest = database.latest_held_notes()?;
    let is_kept = |(note, is_before): &(HeldNote, bool)| *is_before && ids.contains(&*note.id);
    let keeps = latest.iter().filter(|one| is_kept(one)).count() <= KEPT;
    if !keeps {
        complain(format_args!("more than {KEPT} messages are on hold: held.log loses the oldest"));
    }
    for (note, is_before) in latest {
        let age = now().seconds.saturating_sub(note.at);
        let is_there = ids.contains(&*note.id);
        if matches!(note.until, HeldUntil::Aside(_)) {
            aside.insert(note.id.clone());
        }
        let until = match note.until {
            HeldUntil::Left => continue,
            until if is_there || !held.unread.is_empty() => {
                Some(until).filter(|_| is_before && keeps)
            }
            HeldUntil::Room(event) if age > UNSEEN_SECONDS => Some(HeldUntil::Aside(event)),
            HeldUntil::Aside(_) if age > GONE_SECONDS => Some(HeldUntil::Left),
            HeldUntil::Now => Some(HeldUntil::Left),
            _ => None,
        };
        if let Some(until) = until {
            database.note_held(&HeldNote { until, ..note })?;
        }
    }
    Ok(aside)
}

/// Has these messages delivered, which have been counted; how many are left.
fn leave(
    screen: &mut Screen<'_>,
    queue: &dyn HoldQueue,
    database: &mut Spool,
    messages: &[&HeldMessage],
) -> Result<usize, Failure> {
    let ids: Vec<&str> = messages.iter().map(|message| &*message.id).collect();
    let results = if ids.is_empty() { Vec::new() } else { queue.release(&ids) };
    let mut failed = 0;
    for (id, result) in ids.iter().zip(results) {
        let shown = printable(id.as_bytes());
        match result {
            Ok(()) => {
                database.note_left(id, now().seconds)?;
                writeln!(screen, "{shown} is counted and delivered")?;
            }
            Err(why) => {
                failed += 1;
                complain(format_args!("{shown} was not released: {}", printable(why.as_bytes())));
            }
        }
    }
    Ok(failed)
}

fn stays(message: &HeldMessage, why: &str) {
    let (id, why) = (printable(message.id.as_bytes()), printable(why.as_bytes()));
    complain(format_args!("{id} still waits, and was not decided: {why}"));
}

/// The policies that the daemon evaluates.
fn configured_policies() -> Result<String, Failure> {
    let file = Path::new(FILE);
    let mail = match file.exists() {
        true => config::read_mail(file).map_err(Failure::new)?.config,
        false => None,
    };
    let names = mail.and_then(|mail| mail.policies);
    Ok(names.map_or_else(|| "*".to_owned(), |names| names.join(",")))
}

/// The note of a message.
fn noted(message: &HeldMessage, until: HeldUntil) -> HeldNote {
    let HeldMessage { id, at, policy, key, why, .. } = message.clone();
    HeldNote { at, id, policy, key, why, until }
}

/// The note of a message that waits by another policy or key now, or behind which mail waits no more, or
/// again; of the first one of its key, also if it waits by another limit.
fn changed(
    message: &HeldMessage,
    was_aside: bool,
    is_first: bool,
    wait: &WaitsBy,
) -> Option<HeldNote> {
    let limit = |why: &str| why.split_once(", limit ").map(|(_, limit)| limit.to_owned());
    let (policy, key) = match wait.policy.is_empty() {
        true => (message.policy.clone(), message.key.clone()),
        false => (wait.policy.to_string(), wait.key.clone().into_bytes()),
    };
    let is_same = (&policy, &key, !wait.fits) == (&message.policy, &message.key, was_aside)
        && (!is_first || limit(&wait.why) == limit(&message.why));
    let event = String::from_utf8_lossy(&message.request).into_owned();
    let (at, id, why) = (message.at, message.id.clone(), wait.why.clone());
    let until = if wait.fits { HeldUntil::Room(event) } else { HeldUntil::Aside(event) };
    (!is_same).then_some(HeldNote { at, id, policy, key, why, until })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::policy::image::{build, install};
    use crate::policy::source::compile;
    use crate::standing::held::Details;

    /// A queue that releases everything it is asked to.
    #[derive(Default)]
    struct Queue(RefCell<Vec<String>>);

    impl HoldQueue for Queue {
        fn held(&self) -> Result<Held, String> {
            Err("nobody asks".to_owned())
        }

        fn details(&self, _: &str) -> Result<Details, String> {
            Err("nobody asks".to_owned())
        }

        fn release(&self, ids: &[&str]) -> Vec<Result<(), String>> {
            let release = |id: &&str| self.0.borrow_mut().push((*id).to_owned());
            ids.iter().map(release).map(Ok).collect()
        }

        fn delete(&self, _: &[&str]) -> Vec<Result<(), String>> {
            Vec::new()
        }
    }

    fn apply(spool: &Path, limit: &str) {
        let text = format!(
            "version = 1\n[policy.later]\nat = \"delivery\"\nwhen = \"authenticated\"\n\
             key = \"sender_domain\"\ndefault.recipients = \"{limit}/1w\"\n"
        );
        let none = |_: &Path| Err(String::new());
        let policies = compile(Path::new("p"), &text, &none).policies.unwrap();
        install(spool, &build(&policies)).unwrap();
    }

    fn open(spool: &Path) -> Spool {
        Spool::open(spool, Options::default()).unwrap()
    }

    /// A message of a login to so many recipients that was noted so many seconds ago.
    fn put(spool: &Path, id: &str, login: &str, recipients: usize, age: i64) {
        let at = now().seconds - age;
        let event = format!(
            r#"{{"time": {at}, "auth": "{login}", "sender": "{login}@x.test", "message_id": "{id}",
            "client": "192.0.2.7", "recipients": {recipients}, "size": 500}}"#
        );
        let note = HeldNote {
            at,
            id: id.to_owned(),
            policy: "later".to_owned(),
            key: b"sender_domain:x.test".to_vec(),
            why: "9.0 recipients, limit 5/1w".to_owned(),
            until: HeldUntil::Room(event),
        };
        open(spool).note_held(&note).unwrap();
    }

    /// Runs the command where these ids are on hold; what it released, in order.
    fn run(spool: &Path, ids: &[&str]) -> Vec<String> {
        let notes = open(spool).latest_held_notes().unwrap();
        let on_hold = notes.iter().filter(|(note, _)| ids.contains(&&*note.id));
        let held =
            Held::of(on_hold.filter_map(|(note, _)| HeldMessage::noted(note)).collect(), vec![]);
        let (queue, mut out) = (Queue::default(), Vec::new());
        release(&mut Screen::of(&mut out, None), &queue, spool, &held).unwrap();
        queue.0.into_inner()
    }

    /// The id of each note, and its word.
    fn words(spool: &Path) -> String {
        let word = |until: &HeldUntil| match until {
            HeldUntil::Released => "held",
            HeldUntil::Room(_) => "waits",
            HeldUntil::Aside(_) => "aside",
            HeldUntil::Now => "leaves",
            HeldUntil::Left => "left",
        };
        let notes = open(spool).latest_held_notes().unwrap();
        let mut all: Vec<_> =
            notes.iter().map(|(note, _)| format!("{} {}", note.id, word(&note.until))).collect();
        all.sort();
        all.join(", ")
    }

    /// A filter may take minutes for a message that is noted already.
    #[test]
    fn what_comes_into_the_queue_late_is_counted_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path();
        apply(spool, "5.5");
        put(spool, "late", "alice", 4, 100);
        put(spool, "new", "alice", 4, 10);
        assert_eq!(run(spool, &[]), [""; 0]);
        assert_eq!(words(spool), "late aside, new waits");
        // Nothing waits behind it.
        assert_eq!(run(spool, &["new"]), ["new"]);
        assert_eq!(run(spool, &["late"]), [""; 0]);
        assert_eq!(words(spool), "late waits, new left");
        apply(spool, "8.5");
        assert_eq!(run(spool, &["late"]), ["late"]);
        apply(spool, "9.5");
        put(spool, "other", "alice", 2, 5);
        assert_eq!(run(spool, &["other"]), [""; 0], "eight have counted");
        // One that does not come at all is forgotten.
        put(spool, "never", "alice", 1, GONE_SECONDS + 100);
        run(spool, &[]);
        assert_eq!(run(spool, &["other"]), [""; 0]);
        assert_eq!(words(spool), "late left, never left, new left, other waits");
    }

    #[test]
    fn what_is_put_on_hold_after_it_has_left_stays() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path();
        apply(spool, "5.5");
        put(spool, "a", "alice", 4, 10);
        assert_eq!(run(spool, &["a"]), ["a"]);
        assert_eq!((run(spool, &["a"]), words(spool)), (vec![], "a left".to_owned()));
        // Counted by a process that was killed then.
        put(spool, "b", "alice", 4, 10);
        let (note, _) = open(spool).latest_held_notes().unwrap().pop().unwrap();
        open(spool).note_held(&HeldNote { until: HeldUntil::Now, ..note }).unwrap();
        assert!(is_any(spool).unwrap());
        assert_eq!(
            (run(spool, &["b"]), words(spool)),
            (vec!["b".to_owned()], "a left, b left".into())
        );
        assert!(!is_any(spool).unwrap());
    }

    /// Of a domain, one who is over the limit alone keeps no other waiting; what was said of one who waits
    /// is written once.
    #[test]
    fn who_is_aside_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path();
        apply(spool, "5.5");
        put(spool, "large", "eve", 7, 30);
        put(spool, "first", "alice", 4, 20);
        put(spool, "second", "bob", 3, 10);
        put(spool, "third", "bob", 1, 5);
        let all = ["large", "first", "second", "third"];
        assert_eq!(run(spool, &all), ["first"]);
        let said = "first left, large aside, second waits, third waits";
        assert_eq!((words(spool), run(spool, &all[2..])), (said.to_owned(), vec![]));
        let lines = || open(spool).held_notes().unwrap().len();
        let before = lines();
        run(spool, &["large", "second", "third"]);
        assert_eq!(lines(), before);
        // It fits again.
        apply(spool, "9.5");
        assert_eq!(run(spool, &all[..]), [""; 0]);
        assert_eq!(words(spool), "first left, large waits, second waits, third waits");
        apply(spool, "20");
        assert_eq!(run(spool, &all), ["large", "second", "third"]);
    }
}
