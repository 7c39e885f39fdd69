//! Checks of an ordinary account that runs Exim itself, and of what such an account may have begun:
//! the daemon `exirate serve mail` decides.
//!
//! The mail server's bounce for an account, and the delivery of its message, which may go on with
//! messages of others, are processes of Exim's own user that the account's process has started.
//!
//! Such an account is able to stop this process at any instruction, to slow it down, and to limit its
//! descriptors and its memory. So no lock of the database is ever in its hands: the library asks
//! by a socket, as `exim/exirate.conf` does, and the daemon counts before it replies. What cannot be
//! decided so is never accepted uncounted: a command of a dialogue is deferred; a message on
//! standard input, which Exim could only return, is frozen, with the request, for `exirate held
//! decide`.

use crate::exim::host::callers::{self, Starter};
use crate::exim::host::exports::Host;
use crate::sys::fork;
use crate::sys::unix_stream::UnixStream;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::time::Duration;

/// The socket of the daemon, in the directory of the database.
pub(super) const SOCKET: &str = "exirate/callers";
/// How long to wait for its reply, as long as `RATELIMIT_DEADLINE`.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);
/// The longest reply that is read.
pub(super) const REPLY_MAX: usize = 64 << 10;

/// What the daemon gets, as Exim expands it: `RATELIMIT_EVENT` of `exim/exirate.conf` without the
/// names of the connection and the message, and without the accounts that serve.
pub(super) const EVENT: &CStr = c"command=${base64:${length_10:$smtp_command}}\nnotquit=${if def:smtp_notquit_reason{1}}\nrouter=${if def:router_name{1}}\ntransport=${if def:transport_name{1}}\naddress=$sender_host_address\nserver=$received_ip_address\nid=$message_exim_id\nprotocol=${base64:$received_protocol}\nhelo=${base64:$sender_helo_name}\nident=${base64:$sender_ident}\nauthenticated=${if def:sender_host_authenticated{1}}\nlogin=${base64:$authenticated_id}\nauth_failed=$authentication_failed\nsender=${base64:$sender_address}\nlocal_part=${base64:$local_part}\ndomain=${base64:$domain}\nsize=$message_size\nrecipients=$recipients_count\nnumber=$rcpt_count\nfailed=$rcpt_fail_count\nlist=${if def:message_exim_id{${base64:${length_700000:$recipients}}}}\nauto_submitted=${if def:message_exim_id{${base64:${length_100:$rh_auto-submitted:}}}}\nprecedence=${if def:message_exim_id{${base64:${length_100:$rh_precedence:}}}}\nlist_id=${if def:message_exim_id{${base64:${length_100:$rh_list-id:}}}}\noriginator=$originator_uid\ncaller=$caller_uid\nexim=$exim_uid";

/// Who runs this Exim, as far as it is known.
#[derive(Debug, Default)]
pub(in crate::exim) struct Callers {
    /// The process that has looked, and who has started it.
    started: Option<(u32, Starter)>,
    /// The connection to the daemon by which the next request goes, if there is one already.
    pub(super) connected: Option<UnixStream>,
    /// Counts messages, so that the daemon knows a new one.
    pub(in crate::exim) messages: u64,
}

impl Callers {
    /// Whether an ordinary account runs this Exim, or has handed over the message that it delivers.
    #[inline]
    pub(super) fn has_account(&mut self, host: &Host, delivers: bool) -> bool {
        self.starter(host) == Starter::Account || delivers && callers::account(host, true).is_some()
    }

    /// Whether Exim has started it.
    pub(super) fn is_exim(&mut self, host: &Host) -> bool {
        self.starter(host) == Starter::Exim
    }

    #[inline]
    fn starter(&mut self, host: &Host) -> Starter {
        let process = fork::process();
        match self.started {
            Some((looked, starter)) if looked == process => starter,
            _ => self.started.insert((process, callers::starter(host))).1,
        }
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
