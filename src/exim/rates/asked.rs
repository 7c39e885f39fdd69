//! Checks of an ordinary account that runs Exim itself: the daemon `exirate serve mail` decides.
//!
//! Such an account is able to stop this process at any instruction, to slow it down, and to limit its
//! descriptors and its memory. So no lock of the database is ever in its hands: the library asks
//! by a socket, as `exim/exirate.conf` does, and the daemon counts before it replies. What cannot be
//! decided so is never accepted uncounted: a command of a dialogue is deferred; a message on
//! standard input, which Exim could only return, is frozen, with the request, for `exirate held
//! decide`.

use super::session::{CallError, Session};
use crate::event::AclStage;
use crate::exim::host::callers::{self, SERVING};
use crate::exim::host::directory;
use crate::exim::host::exports::Host;
use crate::policy::reply::Fields;
use crate::sys::fork;
use crate::sys::unix_stream::UnixStream;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The socket of the daemon, in the directory of the database.
const SOCKET: &str = "exirate/callers";
/// How long to wait for its reply, as long as `RATELIMIT_DEADLINE`.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest reply that is read.
const REPLY_MAX: usize = 64 << 10;

/// What the daemon gets, as Exim expands it: `RATELIMIT_EVENT` of `exim/exirate.conf` without the
/// names of the connection and the message, and without the accounts that serve.
const EVENT: &CStr = c"command=${base64:${length_10:$smtp_command}}\nnotquit=${if def:smtp_notquit_reason{1}}\nrouter=${if def:router_name{1}}\ntransport=${if def:transport_name{1}}\naddress=$sender_host_address\nserver=$received_ip_address\nid=$message_exim_id\nprotocol=${base64:$received_protocol}\nhelo=${base64:$sender_helo_name}\nident=${base64:$sender_ident}\nauthenticated=${if def:sender_host_authenticated{1}}\nlogin=${base64:$authenticated_id}\nauth_failed=$authentication_failed\nsender=${base64:$sender_address}\nlocal_part=${base64:$local_part}\ndomain=${base64:$domain}\nsize=$message_size\nrecipients=$recipients_count\nnumber=$rcpt_count\nfailed=$rcpt_fail_count\nlist=${if def:message_exim_id{${base64:${length_700000:$recipients}}}}\nauto_submitted=${if def:message_exim_id{${base64:${length_100:$rh_auto-submitted:}}}}\nprecedence=${if def:message_exim_id{${base64:${length_100:$rh_precedence:}}}}\nlist_id=${if def:message_exim_id{${base64:${length_100:$rh_list-id:}}}}\noriginator=$originator_uid\ncaller=$caller_uid\nexim=$exim_uid";

/// Who runs this Exim, as far as it is known.
#[derive(Debug, Default)]
pub(in crate::exim) struct Callers {
    /// The process that has looked, and whether an account has started it.
    started: Option<(u32, bool)>,
    /// Counts messages, so that the daemon knows a new one.
    pub(in crate::exim) messages: u64,
}

impl Callers {
    /// Whether an ordinary account runs this Exim, or has handed over the message that it delivers.
    #[inline]
    fn has_account(&mut self, host: &Host, delivers: impl FnOnce() -> bool) -> bool {
        let process = fork::process();
        let is_started = match self.started {
            Some((looked, is)) if looked == process => is,
            _ => {
                let is = callers::account(host, false).is_some();
                self.started = Some((process, is));
                is
            }
        };
        is_started || delivers() && callers::account(host, true).is_some()
    }
}

/// Adds an attribute in base64.
pub(in crate::exim) fn attribute(request: &mut String, name: &str, value: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let _ = write!(request, "{name}=");
    for bytes in value.chunks(3) {
        let byte = |n: usize| u32::from(bytes.get(n).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = DIGITS.get((all >> (18 - 6 * n) & 63) as usize).copied().unwrap_or(b'=');
            request.push(char::from(if n > bytes.len() { b'=' } else { digit }));
        }
    }
    request.push('\n');
}

impl Session {
    /// Whether the daemon decides, and not the library.
    #[inline]
    pub(in crate::exim) fn is_of_account(&mut self, stage: AclStage) -> bool {
        let Self { callers, host, variables, .. } = self;
        let delivers = || stage == AclStage::Outside && variables.message_id.is_there(host);
        callers.has_account(host, delivers)
    }

    /// The reply of the daemon to a request of these attributes; `None` if the check passes for
    /// now, as the message is held until it is decided.
    #[cold]
    #[inline(never)]
    pub(in crate::exim) fn ask(
        &mut self,
        stage: AclStage,
        attributes: &str,
    ) -> Result<Option<Fields>, CallError> {
        let deadline = Instant::now() + DEADLINE;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let event = self.host.expand(EVENT).map(text);
        let serving = self.host.expand(SERVING).map(text).unwrap_or_default();
        let request = event.map(|event| {
            let (process, messages) = (fork::process(), self.callers.messages);
            // Nothing of a client is in it but base64.
            let serving: String =
                serving.chars().filter(|c| c.is_ascii_digit() || *c == ':').collect();
            format!(
                "{attributes}session=library.{process}.{:p}\nmessage={messages}\n{event}\nserving={serving}",
                &raw const *self
            )
        });
        let why = match &request {
            None => "Exim cannot expand what it is about".to_owned(),
            Some(request) => match self.exchange(request, deadline) {
                Ok(reply) if !reply.is_empty() => return Ok(Some(Fields::parse(&reply))),
                Ok(_) => "it could not decide".to_owned(),
                Err(why) => why,
            },
        };
        self.rate_variables.set_rate(None);
        self.undecided(stage, request.as_deref(), why)
    }

    /// Sends the request, and reads the reply; or why there is none, in words.
    fn exchange(&self, request: &str, deadline: Instant) -> Result<Vec<u8>, String> {
        let spool = directory::spool(&self.host, &self.variables);
        let socket = spool.map_err(|error| error.to_string())?.join(SOCKET);
        Self::exchange_at(&socket, request, deadline)
            .map_err(|error| format!("{}: {error}", socket.display()))
    }

    fn exchange_at(socket: &Path, request: &str, deadline: Instant) -> io::Result<Vec<u8>> {
        let owner = std::fs::metadata(socket.parent().unwrap_or(Path::new("/")))?.uid();
        let stream = UnixStream::connect(socket, deadline)?;
        let user = stream.peer_user()?;
        if user != owner && user != 0 {
            return Err(io::Error::other(format!("a process of user {user} listens there")));
        }
        stream.write_all(request.as_bytes(), deadline)?;
        stream.write_all(b"\n\n", deadline)?;
        stream.end_writing()?;
        let mut reply = Vec::new();
        while stream.read(&mut reply, 4096, deadline)? > 0 {
            if reply.len() > REPLY_MAX {
                return Err(io::Error::other("its reply is too long"));
            }
        }
        Ok(reply)
    }

    /// What becomes of what is not decided.
    fn undecided(
        &mut self,
        stage: AclStage,
        request: Option<&str>,
        why: String,
    ) -> Result<Option<Fields>, CallError> {
        let is_last = matches!(stage, AclStage::Quit | AclStage::NotQuit);
        if is_last || self.stop.is_active(&self.host, &self.variables) {
            return Ok(None);
        }
        if stage == AclStage::NotSmtp && self.hold(request.unwrap_or_default(), &why) {
            return Ok(None);
        }
        Err(CallError::Undecided(why))
    }

    /// Has Exim freeze the message, by an ACL; whether it has.
    fn hold(&self, request: &str, why: &str) -> bool {
        // In what Exim expands, these are the texts themselves.
        let plain = |c: char| c.is_ascii_alphanumeric() || "+/=.:_-()\n ".contains(c);
        let request: String =
            if request.chars().all(plain) { request.to_owned() } else { String::new() };
        let why: String = why.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        let acl = format!(
            "${{acl{{accept message = held\n set acl_m_exirate_request = {}\n \
             set acl_m_exirate_held = $tod_epoch\\n(undecided)\\nlocal_account:$sender_ident\\n{}\n \
             control = freeze/no_tell}}}}",
            request.replace('\n', "\\n"),
            why.replace('\n', " ")
        );
        let held = CString::new(acl).ok().and_then(|acl| self.host.expand(&acl));
        let is_held = held.as_deref() == Some(b"held");
        if is_held {
            self.host.log(&format!("exirate: the message is held until it is decided: {why}"));
        }
        is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_base64() {
        for (value, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob\u{ff}", "Zm9vYsO/")]
        {
            let mut request = String::new();
            attribute(&mut request, "a", value.as_bytes());
            assert_eq!(request, format!("a={expected}\n"));
        }
    }

    #[test]
    fn the_event_is_that_of_the_shipped_file() {
        let file = include_str!("../../../exim/exirate.conf").replace("\\\n", "");
        let line = file.lines().find_map(|line| line.strip_prefix("RATELIMIT_EVENT = ")).unwrap();
        let parts: Vec<&str> = line.split("\\n").map(str::trim).collect();
        let names = ["session=", "message=", "serving="];
        let shared: Vec<&str> = parts
            .into_iter()
            .filter(|part| !names.iter().any(|name| part.starts_with(name)))
            .collect();
        assert_eq!(shared.join("\n"), EVENT.to_str().unwrap());
        assert!(file.contains(&format!("RATELIMIT_ASKED = $spool_directory/{SOCKET}\n")));
        assert!(file.contains(&format!("RATELIMIT_DEADLINE = {}s\n", DEADLINE.as_secs())));
    }
}
