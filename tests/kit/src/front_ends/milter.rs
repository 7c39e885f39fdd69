//! A mail server that asks the milter.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::Machine;
use crate::TIMEOUT;

/// What newer mail servers offer: version 6, all actions, all steps.
pub const OFFER: [u8; 12] = [0, 0, 0, 6, 0, 0, 1, 255, 0, 31, 255, 255];

/// A mail server.
pub struct Mta<S = UnixStream> {
    pub stream: S,
}

impl Mta {
    /// Connects, and says nothing yet.
    pub fn connect(machine: &Machine) -> Self {
        let stream = UnixStream::connect(machine.path("milter.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { stream }
    }

    /// One that has negotiated, and whose client has connected.
    pub fn begun(machine: &Machine) -> Self {
        Self::begun_for(machine, "192.0.2.7")
    }

    /// As above, for a client at this IPv4 address.
    pub fn begun_for(machine: &Machine, client: &str) -> Self {
        Self::connect(machine).begin(client)
    }
}

impl Mta<TcpStream> {
    /// As [`Mta::begun`], over this connection.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { stream }.begin("192.0.2.7")
    }
}

impl<S: Read + Write> Mta<S> {
    fn begin(mut self, client: &str) -> Self {
        self.say(b'O', &OFFER);
        assert_eq!(self.code(), Some('O'));
        let connect = [&b"client.example\x004\x9c\x40"[..], client.as_bytes(), b"\0"].concat();
        self.say(b'C', &connect);
        self.say(b'H', b"client.example\0");
        self
    }

    /// Sends a packet.
    pub fn say(&mut self, command: u8, data: &[u8]) {
        self.stream.write_all(&packet(command, data)).unwrap();
    }

    /// The next reply: its code and its data; `None` at the end.
    pub fn reply(&mut self) -> Option<(char, Vec<u8>)> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).ok()?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut bytes).ok()?;
        Some((char::from(bytes.remove(0)), bytes))
    }

    /// The code of the next reply.
    pub fn code(&mut self) -> Option<char> {
        self.reply().map(|(code, _)| code)
    }

    /// MAIL with this login, and RCPT; the reply to that.
    pub fn recipient(&mut self, login: &str, recipient: &str) -> (char, String) {
        self.say(b'D', format!("M{{auth_authen}}\0{login}\0i\x004QUEUE\0").as_bytes());
        self.say(b'M', format!("<{login}@example.org>\0").as_bytes());
        self.say(b'R', format!("<{recipient}>\0").as_bytes());
        let (code, text) = self.reply().unwrap();
        (code, String::from_utf8(text).unwrap())
    }
}

/// A packet of the milter protocol.
pub fn packet(command: u8, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32 + 1;
    [&length.to_be_bytes()[..], &[command], data].concat()
}
