//! The mail server's queue, as far as policies hold messages there: `exirate serve held` runs as
//! root, as only root may change each mail server's queue, and is asked by the broker alone.
//!
//! It is asked for all that is held, or to release or delete messages by their names, of which it
//! touches only those that a policy holds.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wire::{Line, read, write};
use crate::standing::held::{Deed, Details, Held, HoldQueue};

/// How long a reply is waited for: less than the web service waits for the broker.
const DEADLINE: Duration = Duration::from_secs(25);

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum QueuedRequest {
    /// All that is held or waits.
    Held,
    /// That this is done with these messages.
    Do(Deed, Vec<String>),
}

/// What became of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum QueueReply {
    Held(Held),
    /// Of each message, in order.
    Done(Vec<Result<(), String>>),
    Failed(String),
}

impl Line for QueuedRequest {
    const MAX: usize = 1 << 20;
}

impl Line for QueueReply {
    const MAX: usize = 32 << 20;
}

/// Does what is asked for.
pub(super) fn answer(
    queue: Result<Box<dyn HoldQueue>, String>,
    request: QueuedRequest,
) -> QueueReply {
    let answered = queue.and_then(|queue| {
        let held = queue.held()?;
        Ok(match request {
            QueuedRequest::Held => QueueReply::Held(held),
            QueuedRequest::Do(deed, ids) => {
                let all = held.messages.iter().chain(&held.waiting);
                let is_held = |id: &&String| all.clone().any(|one| one.id == **id);
                let known: Vec<&str> = ids.iter().filter(is_held).map(String::as_str).collect();
                let mut results = match deed {
                    _ if known.is_empty() => Vec::new(),
                    Deed::Release => queue.release(&known),
                    Deed::Delete => queue.delete(&known),
                }
                .into_iter();
                let none = || Err("it is not held, and does not wait".to_owned());
                QueueReply::Done(
                    ids.iter()
                        .map(|id| match is_held(&id) {
                            true => results.next().unwrap_or_else(none),
                            false => none(),
                        })
                        .collect(),
                )
            }
        })
    });
    answered.unwrap_or_else(QueueReply::Failed)
}

/// The queue, as the broker asks for it.
#[derive(Debug)]
pub(super) struct AskedQueue {
    socket: PathBuf,
}

impl AskedQueue {
    pub(super) fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    fn ask(&self, request: &QueuedRequest) -> Result<QueueReply, String> {
        let line = write(request)?;
        let failed = |error: io::Error| {
            format!("`exirate serve held` does not reply at {}: {error}", self.socket.display())
        };
        let asked = || {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(DEADLINE))?;
            stream.set_write_timeout(Some(DEADLINE))?;
            stream.write_all(&line)?;
            let mut reply = Vec::new();
            stream.take(QueueReply::MAX as u64 + 1).read_to_end(&mut reply)?;
            Ok(reply)
        };
        match read(&asked().map_err(failed)?)? {
            QueueReply::Failed(why) => Err(why),
            reply => Ok(reply),
        }
    }

    fn deal(&self, deed: Deed, ids: &[&str]) -> Vec<Result<(), String>> {
        let request = QueuedRequest::Do(deed, ids.iter().map(|&id| id.to_owned()).collect());
        let why = match self.ask(&request) {
            Ok(QueueReply::Done(results)) if results.len() == ids.len() => return results,
            Ok(_) => "an unexpected reply".to_owned(),
            Err(why) => why,
        };
        ids.iter().map(|_| Err(why.clone())).collect()
    }
}

impl HoldQueue for AskedQueue {
    fn held(&self) -> Result<Held, String> {
        match self.ask(&QueuedRequest::Held)? {
            QueueReply::Held(held) => Ok(held),
            _ => Err("an unexpected reply".to_owned()),
        }
    }

    fn details(&self, _: &str) -> Result<Details, String> {
        Err("only `exirate held show` has them".to_owned())
    }

    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        self.deal(Deed::Release, ids)
    }

    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        self.deal(Deed::Delete, ids)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::standing::held::HeldMessage;

    struct Fake(Rc<RefCell<Vec<String>>>);

    impl HoldQueue for Fake {
        fn held(&self) -> Result<Held, String> {
            let message = |id: &str| HeldMessage { id: id.to_owned(), ..HeldMessage::default() };
            Ok(Held { messages: vec![message("a"), message("b")], ..Held::default() })
        }

        fn details(&self, _: &str) -> Result<Details, String> {
            Err(String::new())
        }

        fn release(&self, ids: &[&str]) -> Vec<Result<(), String>> {
            ids.iter().map(|id| self.0.borrow_mut().push((*id).to_owned())).map(Ok).collect()
        }

        fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>> {
            ids.iter().map(|_| Err("no".to_owned())).collect()
        }
    }

    #[test]
    fn only_messages_that_a_policy_holds_are_touched() {
        let touched = Rc::new(RefCell::new(Vec::new()));
        let ask = |deed, ids: &[&str]| {
            let ids = ids.iter().map(|&id| id.to_owned()).collect();
            match answer(Ok(Box::new(Fake(Rc::clone(&touched)))), QueuedRequest::Do(deed, ids)) {
                QueueReply::Done(results) => results,
                reply => panic!("{reply:?}"),
            }
        };
        let none = || Err("it is not held, and does not wait".to_owned());
        let results = ask(Deed::Release, &["b", "-M", "x", "a"]);
        assert_eq!(results, [Ok(()), none(), none(), Ok(())]);
        assert_eq!(*touched.borrow(), ["b", "a"]);
        assert_eq!(ask(Deed::Delete, &["x", "a"]), [none(), Err("no".to_owned())]);
        let failed = answer(Err("there is none".to_owned()), QueuedRequest::Held);
        assert!(matches!(failed, QueueReply::Failed(why) if why == "there is none"));
        let line = write(&QueuedRequest::Do(Deed::Release, vec!["a".to_owned()])).unwrap();
        assert_eq!(line, b"{\"do\":[\"release\",[\"a\"]]}\n");
    }
}
