//! Exim's queue: messages that `exim/acl_policy.conf` has frozen, and those of which recipients wait by
//! `exim/router_later.conf`.
//!
//! It sets a variable of the message just before it freezes it. Exim keeps both in the spool file:
//! the variable, which no sender and no local user can set, and the time of freezing. A message
//! that was frozen for another reason has no such variable, or another time.

use std::cell::LazyCell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::spool_file::SpoolFile;
use super::waiting::{WaitingAddresses, waiting};
use crate::mta::exim::Exim;
use crate::standing::held::{Details, Held, HeldMessage, HeldState, HoldQueue, estimate};
use crate::standing::key_text::unescaped;
use crate::sys::files::{self, Access};
use crate::text::is_exim_id;
use crate::text::time::now;

/// The variable of the message, without `acl_m_`: when, by which policy, who was counted, and
/// why, each in a line.
pub(super) const MARK: &str = "exirate_held";
/// How much later than the variable's time that of freezing may be: a second may end in between. It
/// may also be one earlier: Exim has the first from `gettimeofday`, and the second from `time`, which
/// Linux lets lag by some milliseconds.
const MARK_SECONDS: RangeInclusive<i64> = -1..=2;
/// The longest file that is read: Exim's own limit for headers is 1 MB.
const FILE_MAX: u64 = 64 << 20;
/// How much of a message's log is read: the last lines of 20,000 recipients.
const LOG_MAX: u64 = 8 << 20;
/// The router of recipients that wait, and the macro without which it is not there.
const WAITS: &str = "exirate_waits";
const RELEASED: &str = "-DRATELIMIT_RELEASED=1";
/// How many names of a directory are read.
const NAMES_MAX: usize = 10_000_000;
/// What Exim says of a message that it has not frozen.
const NOT_FROZEN: &str = "is not frozen";
/// How many messages one command of Exim is about.
const AT_ONCE: usize = 200;

/// The queue of an Exim.
pub(crate) struct EximQueue {
    exim: Exim,
    spool: PathBuf,
}

impl EximQueue {
    /// That of this Exim.
    ///
    /// # Errors
    /// It does not say where its spool directory is.
    pub(crate) fn new(exim: Exim) -> Result<Self, String> {
        let spool = exim.settings()?.spool;
        Ok(Self { exim, spool })
    }

    /// Its directories with messages: `input`, and those of one letter or digit in it.
    fn directories(&self) -> Result<Vec<File>, String> {
        self.directories_of("input")
    }

    /// A directory of the spool, and those of one letter or digit in it.
    fn directories_of(&self, name: &str) -> Result<Vec<File>, String> {
        let path = self.spool.join(name);
        let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let top = match files::open_directory(&path) {
            Ok(top) => top,
            // Nothing has ever been received.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut all = Vec::new();
        for name in files::names(&top, NAMES_MAX).map_err(failed)? {
            if name.to_bytes().len() == 1 {
                all.push(files::open_directory_at(&top, &name).map_err(failed)?);
            }
        }
        all.push(top);
        Ok(all)
    }

    /// What `made_of` makes of the spool file of a message.
    fn of_file<T>(&self, id: &str, made_of: impl FnOnce(&SpoolFile<'_>) -> T) -> Result<T, String> {
        let name = CString::new(format!("{id}-H")).map_err(|error| error.to_string())?;
        for directory in self.directories()? {
            let bytes = match read(&directory, &name) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.map_err(|error| error.to_string())?,
            };
            let file = SpoolFile::parse(&bytes, MARK).ok_or("its spool file is not Exim's")?;
            return Ok(made_of(&file));
        }
        Err("it is gone".to_owned())
    }

    /// Calls Exim with this option for all of these messages. `done` is what it says of one with
    /// which that was done.
    fn all(&self, option: &str, ids: &[&str], done: &str) -> Vec<Result<(), String>> {
        let mut results = Vec::new();
        for ids in ids.chunks(AT_ONCE) {
            let mut arguments = vec![option];
            arguments.extend(ids);
            let output = match self.exim.run(&arguments) {
                Ok(output) => output,
                Err(why) => {
                    results.extend(ids.iter().map(|_| Err(why.clone())));
                    continue;
                }
            };
            results.extend(ids.iter().map(|id| {
                let start = format!("Message {id} ");
                let mut said = output.stdout.lines().filter_map(|line| line.strip_prefix(&start));
                match said.next_back() {
                    Some(said) if said.starts_with(done) => Ok(()),
                    Some(said) => Err(said.to_owned()),
                    None => Err(output.complaint()),
                }
            }));
        }
        results
    }

    /// The directories of the logs of messages; none without the router, as nothing waits then.
    fn logs(&self) -> Result<Vec<File>, String> {
        match self.exim.run(&["-bP", "router", WAITS])?.success {
            true => self.directories_of("msglog"),
            false => Ok(Vec::new()),
        }
    }

    /// Has Exim begin to deliver these messages.
    fn deliver(&self, options: &[&str], ids: &[&str]) -> Result<(), String> {
        for ids in ids.chunks(AT_ONCE) {
            self.exim.start(&[options, ids].concat())?;
        }
        Ok(())
    }
}

impl HoldQueue for EximQueue {
    fn spool(&self) -> Option<&Path> {
        Some(&self.spool)
    }

    fn held(&self) -> Result<Held, String> {
        let mut held = Held::default();
        let logs = LazyCell::new(|| self.logs());
        for directory in self.directories()? {
            let names = files::names(&directory, NAMES_MAX);
            let names = names.map_err(|e| format!("cannot read {}: {e}", self.spool.display()))?;
            for name in names {
                let Some(id) = name.to_bytes().strip_suffix(b"-H") else { continue };
                // Of several messages, Exim refuses all where the name of one is none.
                let Some(id) = std::str::from_utf8(id).ok().filter(|id| is_exim_id(id)) else {
                    continue;
                };
                let id = id.to_owned();
                match read(&directory, &name) {
                    Ok(bytes) => {
                        let Some(file) = SpoolFile::parse(&bytes, MARK) else { continue };
                        match file.frozen {
                            Some(_) => held.messages.extend(frozen(id, &file, &directory)),
                            None => {
                                let logs = logs.as_ref().map_err(String::clone)?;
                                held.waiting.extend(waits(id, &file, &directory, logs));
                            }
                        }
                    }
                    // It was delivered meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => held.unread.push(format!("message {id}: {error}")),
                }
            }
        }
        estimate(&mut held.waiting, now().seconds);
        Ok(held)
    }

    fn details(&self, id: &str) -> Result<Details, String> {
        self.of_file(id, |file| {
            let headers = file.headers().flat_map(|header| header.split(|&byte| byte == b'\n'));
            Details {
                recipients: file.waiting().map(text).collect(),
                headers: headers.filter(|line| !line.is_empty()).map(text).collect(),
            }
        })
    }

    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        let mut results = self.all("-Mt", ids, "is no longer frozen");
        let is_waiting =
            |one: &Result<(), String>| one.as_ref().is_err_and(|said| said == NOT_FROZEN);
        let (mut thawed, mut waiting) = (Vec::new(), Vec::new());
        for (id, result) in ids.iter().zip(&results) {
            if result.is_ok() {
                thawed.push(*id);
            } else if is_waiting(result) {
                waiting.push(*id);
            }
        }
        // Else the next queue runner does.
        let _ = self.deliver(&["-M"], &thawed);
        let let_go = self.deliver(&[RELEASED, "-M"], &waiting);
        for result in results.iter_mut().filter(|one| is_waiting(one)) {
            result.clone_from(&let_go);
        }
        results
    }

    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>> {
        self.all("-Mrm", ids, "has been removed")
    }

    /// Exim delivers what is frozen and has no sender after `ignore_bounce_errors_after`.
    fn name_sender(&self, id: &str) -> Result<(), String> {
        let (account, has_one) =
            self.of_file(id, |file| (text(file.account), !file.sender.is_empty()))?;
        if has_one {
            return Ok(());
        }
        let domain = self.exim.expand(&["$qualify_domain"])?.concat();
        let sender = format!("{account}@{domain}");
        let output = self.exim.run(&["-Mes", id, &sender])?;
        match output.stdout.contains("has been modified") {
            true => Ok(()),
            false => Err(output.complaint()),
        }
    }
}

/// The message, if a policy holds it.
fn frozen(id: String, file: &SpoolFile<'_>, directory: &File) -> Option<HeldMessage> {
    let mut mark = file.mark?.splitn(4, |&byte| byte == b'\n');
    let mut part = || mark.next().unwrap_or_default();
    let at: i64 = text(part()).parse().ok()?;
    let late = file.frozen?.checked_sub(at)?;
    if !MARK_SECONDS.contains(&late) {
        return None;
    }
    let (policy, key, why) = (text(part()), part().to_vec(), text(part()));
    let recipients = file.waiting().count() as u64;
    let request = file.request.unwrap_or_default().to_vec();
    let message = HeldMessage { at, policy, key, why, recipients, request, ..Default::default() };
    Some(known(message, id, file, directory))
}

/// The message, if recipients of it wait.
fn waits(id: String, file: &SpoolFile<'_>, directory: &File, logs: &[File]) -> Option<HeldMessage> {
    let name = CString::new(&*id).ok()?;
    let log = logs.iter().find_map(|logs| files::open_at(logs, &name, Access::Read).ok())?;
    let log = end(log).ok()?;
    let log = String::from_utf8_lossy(&log);
    let WaitingAddresses { addresses, policy, key, why } =
        waiting(&log, &file.waiting().collect())?;
    let message = HeldMessage {
        state: HeldState::Waiting,
        at: file.received,
        policy: policy.to_owned(),
        key: unescaped(key),
        why: why.to_owned(),
        recipients: addresses,
        ..Default::default()
    };
    Some(known(message, id, file, directory))
}

/// The message, with what its files say.
fn known(message: HeldMessage, id: String, file: &SpoolFile<'_>, directory: &File) -> HeldMessage {
    // The first line of the data is its name.
    let data = CString::new(format!("{id}-D")).ok();
    let data = data.and_then(|data| files::info_at(directory, &data).ok());
    let body = data.map_or(0, |data| data.size.saturating_sub(id.len() as u64 + 3));
    let size = body.saturating_add(file.header_bytes());
    HeldMessage { id, sender: text(sender(file)), size, ..message }
}

/// The sender with which it came: while it is undecided, it is given one, if it had none.
fn sender<'a>(file: &SpoolFile<'a>) -> &'a [u8] {
    let mut asked = file.request.unwrap_or_default().split(|&byte| byte == b'\n');
    if asked.any(|line| line == b"sender=") { b"" } else { file.sender }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes of a regular file.
fn read(directory: &File, name: &CStr) -> io::Result<Vec<u8>> {
    let file = files::open_at(directory, name, Access::Read)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The end of a regular file, of so many bytes.
fn end(mut file: File) -> io::Result<Vec<u8>> {
    let info = file.metadata()?;
    if !info.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    file.seek(SeekFrom::Start(info.len().saturating_sub(LOG_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(since: Option<i64>, mark: Option<&str>) -> Option<HeldMessage> {
        let mut text = "x-H\nroot 0 0\n<a@b>\n1795717610 0\n".to_owned();
        if let Some(mark) = mark {
            text += &format!("--aclm _{MARK} {}\n{mark}\n", mark.len());
        }
        if let Some(since) = since {
            text += &format!("-frozen {since}\n");
        }
        text += "XX\n1\nbob@x.test\n\n";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x-D"), "x-D\n12345").unwrap();
        let file = SpoolFile::parse(text.as_bytes(), MARK)?;
        frozen("x".to_owned(), &file, &File::open(folder.path()).unwrap())
    }

    #[test]
    fn what_had_no_sender_is_shown_without() {
        let shown = |request: &str| {
            let mut text = "x-H\nexim 100 100\n<exim@host.test>\n1795717610 0\n".to_owned();
            for (name, value) in
                [(MARK, "100\n(undecided)\nlocal_account:exim\n"), ("exirate_request", request)]
            {
                text += &format!("--aclm _{name} {}\n{value}\n", value.len());
            }
            text += "-frozen 100\nXX\n1\nbob@x.test\n\n";
            let folder = tempfile::tempdir().unwrap();
            let file = SpoolFile::parse(text.as_bytes(), MARK).unwrap();
            let message =
                frozen("x".to_owned(), &file, &File::open(folder.path()).unwrap()).unwrap();
            assert_eq!(message.is_undecided(), !request.is_empty());
            message.sender
        };
        assert_eq!(shown("request=x\nsender=\nlocal_part="), "");
        for request in ["", "request=x\nsender=YUBi\nlocal_part=", "request=x\nhelo=sender="] {
            assert_eq!(shown(request), "exim@host.test", "{request}");
        }
    }

    #[test]
    fn only_what_a_policy_has_frozen_is_held() {
        let mark = "100\nout\nauth:alice\n9.0 messages, limit 5/1h";
        let message = held(Some(101), Some(mark)).unwrap();
        assert_eq!((message.at, &*message.policy, &*message.key), (100, "out", &b"auth:alice"[..]));
        assert_eq!((&*message.why, message.size), ("9.0 messages, limit 5/1h", 5));
        // By a clock that is behind.
        assert!(held(Some(99), Some(mark)).is_some());
        // Not frozen; by a bounce or an administrator; later; before.
        assert_eq!(held(None, Some(mark)), None);
        assert_eq!(held(Some(100), None), None);
        assert_eq!(held(Some(103), Some(mark)), None);
        assert_eq!(held(Some(98), Some(mark)), None);
        assert_eq!(held(Some(i64::MIN + 1), Some("x\nout\n\n")), None);
    }
}
