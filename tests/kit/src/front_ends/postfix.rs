//! A Postfix that asks over the policy socket.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::TIMEOUT;

/// A message that Postfix receives.
#[derive(Clone, Debug)]
pub struct Message {
    pub instance: String,
    pub client: String,
    pub login: String,
    pub sender: String,
}

impl Message {
    /// One of a connection of its own.
    pub fn new(login: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            instance: format!("{number:x}.6743a1b2.c350.0"),
            client: "192.0.2.7".to_owned(),
            login: login.to_owned(),
            sender: "alice@example.org".to_owned(),
        }
    }

    /// The next one of the same connection.
    pub fn next(&self) -> Self {
        let (start, number) = self.instance.rsplit_once('.').unwrap();
        let number = u32::from_str_radix(number, 16).unwrap() + 1;
        Self { instance: format!("{start}.{number:x}"), ..self.clone() }
    }

    /// A request in this state, as Postfix 3.7 sends it.
    pub fn request(&self, state: &str, recipient: &str, count: u32, size: u64) -> String {
        let Self { instance, client, login, sender } = self;
        format!(
            "request=smtpd_access_policy\nprotocol_state={state}\nprotocol_name=ESMTP\n\
             client_address={client}\nclient_name=unknown\nclient_port=40000\n\
             reverse_client_name=unknown\nserver_address=192.0.2.1\nserver_port=25\n\
             helo_name=client.example\nsender={sender}\nrecipient={recipient}\n\
             recipient_count={count}\nqueue_id=\ninstance={instance}\nsize={size}\netrn_domain=\n\
             stress=\nsasl_method=\nsasl_username={login}\nsasl_sender=\nccert_subject=\n\
             ccert_issuer=\nccert_fingerprint=\nccert_pubkey_fingerprint=\n\
             encryption_protocol=\nencryption_cipher=\nencryption_keysize=0\npolicy_context=\n\n"
        )
    }
}

/// A connection to the policy socket.
pub struct Client {
    pub stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon of a machine.
    pub fn connect(machine: &super::Machine) -> Self {
        Self::to(&machine.path("policy.sock")).unwrap()
    }

    /// Connects to a socket.
    pub fn to(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// One that has connected over a network.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // Only its descriptor is used.
        Self { stream: BufReader::new(UnixStream::from(OwnedFd::from(stream))) }
    }

    /// Sends a request.
    pub fn send(&mut self, request: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// The next action; an error if the connection is closed.
    pub fn action(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut end = String::new();
        self.stream.read_line(&mut end)?;
        assert_eq!(end, "\n", "{line:?}");
        let action = line.strip_prefix("action=").and_then(|line| line.strip_suffix('\n'));
        Ok(action.unwrap_or_else(|| panic!("{line:?}")).to_owned())
    }

    /// Sends a request; the action that is the reply.
    pub fn ask(&mut self, request: &str) -> String {
        self.send(request).unwrap();
        self.action().unwrap()
    }

    /// Whether a recipient of the message is accepted.
    pub fn rcpt(&mut self, message: &Message, recipient: &str) -> String {
        self.ask(&message.request("RCPT", recipient, 0, 0))
    }

    /// Whether the whole message is accepted.
    pub fn end(&mut self, message: &Message, recipient: &str, count: u32, size: u64) -> String {
        self.ask(&message.request("END-OF-MESSAGE", recipient, count, size))
    }
}
