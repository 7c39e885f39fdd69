//! How a session asks the daemon: see [`super::asked`].

use super::asked::{DEADLINE, EVENT, REPLY_MAX, SOCKET};
use super::session::{CallError, Session};
use crate::event::AclStage;
use crate::exim::host::callers::SERVING;
use crate::exim::host::directory;
use crate::policy::reply::Fields;
use crate::sys::fork;
use crate::sys::unix_stream::UnixStream;
use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

impl Session {
    /// Whether the daemon decides, and not the library: for an ordinary account; and for what an
    /// account may have begun, mail that Exim hands over to itself and deliveries that Exim has
    /// started, unless no daemon is there, which no account can bring about.
    #[inline]
    pub(in crate::exim) fn asks(&mut self, stage: AclStage) -> bool {
        let Self { callers, host, variables, .. } = self;
        let delivers = stage == AclStage::Outside && variables.message_id.is_there(host);
        let is_own = delivers || matches!(stage, AclStage::NotSmtp | AclStage::NotSmtpStart);
        callers.has_account(host, delivers) || is_own && callers.is_exim(host) && self.has_daemon()
    }

    /// Whether there is a daemon, as far as can be seen. What is asked next is asked by the connection
    /// that has shown it.
    #[cold]
    fn has_daemon(&mut self) -> bool {
        let Ok(spool) = directory::spool(&self.host, &self.variables) else { return false };
        let is_none = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        };
        match UnixStream::connect(&spool.join(SOCKET), Instant::now() + DEADLINE) {
            Ok(stream) => {
                self.callers.connected = Some(stream);
                true
            }
            Err(error) => !is_none(&error),
        }
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
        let connected = self.callers.connected.take();
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
            Some(request) => match self.exchange(connected, request, deadline) {
                Ok(reply) if !reply.is_empty() => return Ok(Some(Fields::parse(&reply))),
                Ok(_) => "it could not decide".to_owned(),
                Err(why) => why,
            },
        };
        self.rate_variables.set_rate(None);
        self.undecided(stage, request.as_deref(), why)
    }

    /// Sends the request, and reads the reply; or why there is none, in words.
    fn exchange(
        &self,
        connected: Option<UnixStream>,
        request: &str,
        deadline: Instant,
    ) -> Result<Vec<u8>, String> {
        let spool = directory::spool(&self.host, &self.variables);
        let socket = spool.map_err(|error| error.to_string())?.join(SOCKET);
        let connected = connected.map_or_else(|| UnixStream::connect(&socket, deadline), Ok);
        connected
            .and_then(|stream| Self::exchange_by(&stream, &socket, request, deadline))
            .map_err(|error| format!("{}: {error}", socket.display()))
    }

    fn exchange_by(
        stream: &UnixStream,
        socket: &Path,
        request: &str,
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
        let owner = std::fs::metadata(socket.parent().unwrap_or(Path::new("/")))?.uid();
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
