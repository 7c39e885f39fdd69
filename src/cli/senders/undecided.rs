//! `exirate held decide`: messages that were held because nobody had decided about them, and those that
//! wait in Postfix or Sendmail.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::waiting::{self, StillWaiting};
use crate::cli::shared::ask_daemon;
use crate::cli::shared::database::Common;
use crate::cli::shared::hold_queue::QueueOptions;
use crate::cli::shared::screen::{Screen, complain};
use crate::cli::{Failure, Outcome};
use crate::policy::reply::Fields;
use crate::serve::config::{self, Address, CALLERS, FILE};
use crate::standing::held::HeldMessage;
use crate::text::{counted, printable};

/// How long to wait for the daemon.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Decide again on messages that are undecided, or wait for room
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What was held while the daemon was away, or waits for room?
    exirate held decide

Exit status: 0 no such message is left; 1 some are left; 2 an error.

Run it as root, or as Exim's user; exirate-undecided.timer, beside Postfix and Sendmail
exirate-waiting.timer, or cron, run it every minute.

Postfix and Sendmail hold a message that is over a limit at delivery. This command counts and
releases those that there is room for, the oldest of each key first. One whose sender is denied, or
suspected for its habits, stays until that has ended.

If an account of this machine hands over a message on standard input, and `exirate serve mail`
does not decide, Exim holds it with the policy (undecided). This command asks the daemon again: a
message under all limits is counted and delivered; one that is over a limit, or is larger than what is left of it, stays held
until it passes, or until `exirate held release` or `exirate held delete`. If it has no sender, it gets
the account's address: Exim delivers what has none after `ignore_bounce_errors_after`, held or not.")]
pub(super) struct Decide {
    /// Ask this socket; the default is that of the library in Exim's spool directory, else
    /// listen.policy of /etc/exirate/exirate.toml
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    #[command(flatten)]
    queue: QueueOptions,

    /// Use this spool directory of Exim
    ///
    /// The default is what `exim -bP spool_directory` prints.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    spool: Option<PathBuf>,
}

/// What the daemon replied.
enum DaemonReply {
    Passes,
    Waits,
}

impl Decide {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let spool = Common { spool: self.spool.clone(), json: false }.directory()?;
        let queue =
            self.queue.queue(&spool).map_err(|why| Failure::new(printable(why.as_bytes())))?;
        if queue.spool().is_none() && !waiting::is_any(&spool)? {
            return Ok(Outcome::found_if(false));
        }
        let held = queue.held().map_err(|why| Failure::new(printable(why.as_bytes())))?;
        for why in &held.unread {
            complain(printable(why.as_bytes()));
        }
        let StillWaiting { decided: mut left, failed } = match queue.spool() {
            // Exim's own queue runs deliver what waits.
            Some(_) => StillWaiting::default(),
            None => waiting::release(screen, &*queue, &spool, &held)?,
        };
        let mut messages = held.messages;
        messages.retain(HeldMessage::is_undecided);
        messages.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
        // What has no sender would be delivered after some days, undecided or not.
        let name = |message: &HeldMessage| {
            let named = match message.sender.is_empty() {
                true => queue.name_sender(&message.id),
                false => Ok(()),
            };
            if let Err(why) = named {
                let (id, why) = (printable(message.id.as_bytes()), printable(why.as_bytes()));
                complain(format_args!("{id} has no sender: {why}"));
            }
        };
        let socket = match messages.is_empty() {
            true => PathBuf::new(),
            false => self.socket(queue.spool()).inspect_err(|_| messages.iter().for_each(name))?,
        };
        for message in &messages {
            let id = printable(message.id.as_bytes());
            let decided = decide(&socket, message)
                .map_err(|error| format!("{}: {error}", socket.display()))
                .and_then(|reply| match reply {
                    DaemonReply::Waits => Ok(false),
                    DaemonReply::Passes => {
                        let released = queue.release(&[&message.id]).pop();
                        released.unwrap_or(Ok(())).map(|()| true)
                    }
                });
            if decided != Ok(true) {
                name(message);
            }
            match decided {
                Ok(true) => writeln!(screen, "{id} is counted and delivered")?,
                Ok(false) => left += 1,
                Err(why) => {
                    left += 1;
                    complain(format_args!("{id} was not decided: {}", printable(why.as_bytes())));
                }
            }
        }
        screen.flush()?;
        if failed > 0 {
            let text = counted(failed, "message", "messages");
            return Err(Failure::new(format!("{text} could not be decided or released")));
        }
        match held.unread.len() {
            0 => Ok(Outcome::found_if(left > 0)),
            unread => Err(Failure::new(format!("{unread} messages could not be read"))),
        }
    }

    /// The socket of the daemon.
    fn socket(&self, spool: Option<&Path>) -> Result<PathBuf, Failure> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        let callers = spool.map(|spool| spool.join(CALLERS));
        if let Some(callers) = callers.filter(|path| path.exists()) {
            return Ok(callers);
        }
        let mail = config::read_mail(Path::new(FILE)).map_err(Failure::new)?.config;
        match mail.and_then(|mail| mail.policy) {
            Some(Address::Unix(path)) => Ok(path),
            _ => Err(Failure::new(format!(
                "no daemon decides for Exim: {CALLERS} is not in its spool directory, and {FILE} \
                 names no unix socket in listen.policy"
            ))),
        }
    }
}

/// Has it counted, if it would pass.
fn decide(socket: &Path, message: &HeldMessage) -> io::Result<DaemonReply> {
    let request = String::from_utf8_lossy(&message.request);
    // As of no connection: what only looks is not remembered.
    let lines = request.lines().filter(|line| !line.starts_with("session="));
    let looks = lines.chain(["look=1"]).collect::<Vec<_>>().join("\n");
    let fields = ask(socket, &looks)?;
    let left = fields.get(b"remaining").and_then(|left| str::from_utf8(left).ok()?.parse().ok());
    if !passes(&fields) || left.is_some_and(|left: f64| left < message.recipients as f64) {
        return Ok(DaemonReply::Waits);
    }
    // With its connection: if it was counted, and only the reply was lost, it is not counted again.
    Ok(if passes(&ask(socket, &request)?) { DaemonReply::Passes } else { DaemonReply::Waits })
}

/// Whether the reply is that a message may pass.
fn passes(fields: &Fields) -> bool {
    match (fields.get(b"verdict"), fields.get(b"over")) {
        (Some(verdict), _) => [&b"accept"[..], b"log", b"delay"].contains(&verdict),
        (None, over) => over == Some(b"no"),
    }
}

/// The reply of the daemon.
fn ask(socket: &Path, request: &str) -> io::Result<Fields> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    ask_daemon::ask(stream, request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_or_cannot_be_read_does_not_pass() {
        for (reply, expected) in [
            ("verdict=\"accept\"", true),
            ("verdict=\"log\"", true),
            ("verdict=\"delay\"", true),
            ("verdict=\"hold\"", false),
            ("verdict=\"defer\"", false),
            ("over=\"no\"", true),
            ("over=\"yes\"", false),
            ("error=\"no spec\"", false),
            ("", false),
        ] {
            assert_eq!(passes(&Fields::parse(reply.as_bytes())), expected, "{reply}");
        }
    }

    #[test]
    fn the_shipped_files_write_the_word() {
        let word = format!("exirate_policy = {}\n", crate::standing::held::UNDECIDED);
        assert!(include_str!("../../../exim/acl_policy.conf").contains(&word));
        let word = format!("$tod_epoch\\n{}\\n", crate::standing::held::UNDECIDED);
        assert!(include_str!("../../../exim/acl_not_smtp.conf").contains(&word));
        assert!(include_str!("../../../exim/acls_socket.conf").contains(&word));
    }
}
