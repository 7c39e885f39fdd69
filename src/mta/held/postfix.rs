//! Postfix's hold queue: messages that `exirate serve mail` has noted when it told Postfix to hold
//! them.
//!
//! Postfix keeps no reason why a message is on hold. No two messages have one queue id at the same
//! time; so a message that arrived before the note was made is the one that it is about, and one
//! that has the id of an earlier message arrived later.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::mta::command::{self, Output, is_program};
use crate::spool::HeldNote;
use crate::standing::held::{Details, Held, HeldMessage, HoldQueue};
use crate::sys::clock;

/// How many messages one command is about.
const AT_ONCE: usize = 200;
/// A message that is older is queued anew: Postfix counts the time on hold as time in the queue,
/// and sends what is too old back as soon as it cannot be delivered at once.
const OLD_SECONDS: i64 = 86_400;

/// Postfix's queue.
pub(crate) struct PostfixQueue {
    /// The latest note of each queue id.
    notes: HashMap<String, HeldNote>,
}

/// What is used of an object of `postqueue -j`.
#[derive(Deserialize)]
struct Queued {
    queue_name: String,
    queue_id: String,
    arrival_time: i64,
    message_size: u64,
    sender: String,
    recipients: Vec<Recipient>,
}

#[derive(Deserialize)]
struct Recipient {
    address: String,
}

impl PostfixQueue {
    /// With what was noted, the oldest first.
    pub(crate) fn new(notes: Vec<HeldNote>) -> Self {
        Self { notes: notes.into_iter().map(|note| (note.id.clone(), note)).collect() }
    }

    /// The held message that this is, if a policy holds it.
    fn message(&self, queued: &Queued) -> Option<HeldMessage> {
        let note = self.notes.get(&queued.queue_id)?;
        let is_it = queued.queue_name == "hold" && queued.arrival_time <= note.at;
        let noted = HeldMessage::noted(note).filter(|_| is_it)?;
        Some(HeldMessage {
            sender: queued.sender.clone(),
            recipients: queued.recipients.len() as u64,
            size: queued.message_size,
            ..noted
        })
    }
}

/// The messages of all queues, and what could not be read.
fn queued() -> Result<(Vec<Queued>, Vec<String>), String> {
    let output = run("postqueue", &["-j"])?;
    if !output.success {
        return Err(format!("postqueue -j fails: {}", output.complaint()));
    }
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    for line in output.stdout.lines() {
        match serde_json::from_str(line) {
            // What postsuper takes for all messages is none.
            Ok(Queued { queue_id, .. }) if queue_id == "ALL" => {}
            Ok(one) => all.push(one),
            Err(error) => unread.push(format!("a line of postqueue -j: {error}")),
        }
    }
    Ok((all, unread))
}

/// Runs one of Postfix's programs.
fn run(program: &str, arguments: &[&str]) -> Result<Output, String> {
    let places = ["/usr/sbin", "/usr/local/sbin"].map(|place| Path::new(place).join(program));
    let path = places.iter().find(|path| is_program(path));
    let mut command = Command::new(path.unwrap_or(&places[0]));
    command.args(arguments).current_dir("/");
    command::run(command)
}

/// Has postsuper do what `option` says with these messages on hold; `done` is what it says of one
/// with which that was done.
fn postsuper(option: &str, ids: &[&str], done: &str) -> Vec<Result<(), String>> {
    let mut results = Vec::new();
    for ids in ids.chunks(AT_ONCE) {
        let mut arguments: Vec<&str> = ids.iter().flat_map(|id| [option, id]).collect();
        arguments.push("hold");
        match run("postsuper", &arguments) {
            Ok(output) => results.extend(ids.iter().map(|id| {
                let said = format!("postsuper: {id}: {done}");
                let is_done = output.stderr.lines().any(|line| line == said);
                is_done.then_some(()).ok_or_else(|| output.complaint())
            })),
            Err(why) => results.extend(ids.iter().map(|_| Err(why.clone()))),
        }
    }
    results
}

impl HoldQueue for PostfixQueue {
    fn held(&self) -> Result<Held, String> {
        let (queued, unread) = queued()?;
        Ok(Held::of(queued.iter().filter_map(|one| self.message(one)).collect(), unread))
    }

    fn details(&self, id: &str) -> Result<Details, String> {
        let (queued, _) = queued()?;
        let one = queued.into_iter().find(|one| one.queue_id == id).ok_or("it is gone")?;
        let headers = run("postcat", &["-qh", id])?;
        if !headers.success {
            return Err(headers.complaint());
        }
        Ok(Details {
            recipients: one.recipients.into_iter().map(|to| to.address).collect(),
            headers: headers.stdout.lines().map(str::to_owned).collect(),
        })
    }

    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        let old = clock::now().0 - OLD_SECONDS;
        let is_old = |id: &str| self.notes.get(id).is_some_and(|note| note.at < old);
        ids.chunk_by(|a, b| is_old(a) == is_old(b))
            .flat_map(|ids| match ids.first().is_some_and(|id| is_old(id)) {
                true => postsuper("-r", ids, "requeued"),
                false => {
                    let released = postsuper("-H", ids, "released from hold");
                    for (id, _) in ids.iter().zip(&released).filter(|(_, done)| done.is_ok()) {
                        // Else Postfix tries it later.
                        let _ = run("postqueue", &["-i", id]);
                    }
                    released
                }
            })
            .collect()
    }

    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        postsuper("-d", ids, "removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::HeldUntil;

    #[test]
    fn only_what_was_noted_after_it_arrived_is_held() {
        let note = |at, id: &str| HeldNote {
            at,
            id: id.to_owned(),
            key: b"auth:alice".to_vec(),
            ..HeldNote::default()
        };
        let queue = PostfixQueue::new(vec![note(50, "A"), note(100, "A")]);
        let queued = |name: &str, id: &str, arrival: i64| -> Queued {
            let text = format!(
                r#"{{"queue_name": "{name}", "queue_id": "{id}", "arrival_time": {arrival},
                "message_size": 242, "forced_expire": false, "sender": "s@x.test",
                "recipients": [{{"address": "bob@x.test"}}, {{"address": "cd@x.test"}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let line = |name: &str, id: &str, arrival: i64| queue.message(&queued(name, id, arrival));
        let message = line("hold", "A", 99).unwrap();
        assert_eq!((message.at, message.recipients, message.size), (100, 2, 242));
        assert!(line("hold", "A", 100).is_some());
        // Another message of that id, one that was released, and one that nobody has noted.
        assert_eq!(line("hold", "A", 101), None);
        assert_eq!(line("deferred", "A", 99), None);
        assert_eq!(line("hold", "B", 99), None);
        // Somebody has put it on hold after it was released.
        let left = HeldNote { until: HeldUntil::Left, ..note(102, "A") };
        assert_eq!(
            PostfixQueue::new(vec![note(100, "A"), left]).message(&queued("hold", "A", 99)),
            None
        );
    }
}
