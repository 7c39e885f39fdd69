//! A simple SMTP client that sends exactly what it is given, and keeps a
//! transcript.

use crate::exim::lossless;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// So long is waited for the end of a session: a server that is stopped does not end it.
const END_MAX: Duration = Duration::from_secs(5);

/// One reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The code of its last line; 0 where the line has none.
    pub code: u16,
    /// All of its lines with their codes, joined by newlines; bytes outside
    /// ASCII are shown as `\xNN`.
    pub text: String,
}

impl Reply {
    /// A 2xx reply.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// An SMTP session.
pub struct Client {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Option<Box<dyn Write + Send>>,
    socket: Option<TcpStream>,
    child: Option<Child>,
    /// The transcript by line; `C:` marks the client's lines.
    pub transcript: Vec<String>,
}

impl Client {
    /// Connects to a port on loopback from `source`, which may be any address
    /// of 127.0.0.0/8; the greeting is not read yet.
    pub fn connect(port: u16, source: Ipv4Addr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        socket.bind(&SocketAddrV4::new(source, 0).into()).expect("a loopback source address");
        socket
            .connect(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into())
            .expect("the private Exim listens");
        Self::of(TcpStream::from(socket))
    }

    /// Talks over a connection.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(crate::TIMEOUT)).unwrap();
        let (reader, writer) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        let mut client = Self::over(Box::new(reader), Box::new(writer), None);
        client.socket = Some(stream);
        client
    }

    /// Talks to a program through its standard input and output.
    pub fn program(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Exim can be started");
        let reader = child.stdout.take().unwrap();
        let writer = child.stdin.take().unwrap();
        Self::over(Box::new(reader), Box::new(writer), Some(child))
    }

    fn over(
        reader: Box<dyn Read + Send>,
        writer: Box<dyn Write + Send>,
        child: Option<Child>,
    ) -> Self {
        Self {
            reader: BufReader::new(reader),
            writer: Some(writer),
            socket: None,
            child,
            transcript: Vec::new(),
        }
    }

    /// Reads one reply; `None` if the server has closed the connection.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = self.reader.read_until(b'\n', &mut line);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                // A reset by the server counts as closed.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(e) => panic!("no reply: {e}\n{}", self.transcript.join("\n")),
            }
            let line = lossless(line.trim_ascii_end());
            self.transcript.push(format!("S: {line}"));
            if line.is_empty() || line.starts_with("****") {
                continue; // -bh sometimes prints that it is a test
            }
            let more = line.as_bytes().get(3) == Some(&b'-');
            lines.push(line);
            if !more {
                break;
            }
        }
        let code = lines.last()?.get(..3).and_then(|c| c.parse().ok()).unwrap_or(0);
        Some(Reply { code, text: lines.join("\n") })
    }

    /// Reads a reply that must come.
    pub fn expect(&mut self) -> Reply {
        self.reply().unwrap_or_else(|| panic!("hung up:\n{}", self.transcript.join("\n")))
    }

    /// Sends one command and reads its reply.
    pub fn command(&mut self, line: impl AsRef<[u8]>) -> Reply {
        self.send_line(line);
        self.expect()
    }

    /// Sends one command line, and reads nothing.
    pub fn send_line(&mut self, line: impl AsRef<[u8]>) {
        self.send(&[line.as_ref(), b"\r\n"].concat());
    }

    /// Sends bytes literally, in one packet if they fit.
    pub fn send(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            self.transcript.push(format!("C: {}", lossless(line.trim_ascii_end())));
        }
        if let Some(writer) = &mut self.writer {
            // The server may have closed the connection: the missing reply
            // shows that.
            let _ = writer.write_all(bytes).and_then(|()| writer.flush());
        }
    }

    /// Sends a message after DATA: the text, with dots stuffed, and the final
    /// dot.
    pub fn data(&mut self, text: &str) -> Reply {
        let reply = self.command("DATA");
        if reply.code != 354 {
            return reply;
        }
        self.send(stuffed(text).as_bytes());
        self.expect()
    }

    /// Sends a message; stops at the first reply that is not positive.
    pub fn message(&mut self, from: &str, to: &[&str], text: &str) -> Reply {
        let reply = self.command(format!("MAIL FROM:<{from}>"));
        if !reply.is_ok() {
            return reply;
        }
        for recipient in to {
            let reply = self.command(format!("RCPT TO:<{recipient}>"));
            if !reply.is_ok() {
                return reply;
            }
        }
        self.data(text)
    }

    /// Closes the client's side; returns the exit code of the program, if it is
    /// one.
    pub fn close(mut self) -> Option<i32> {
        self.writer = None;
        let child = self.child.take();
        drop(self);
        child.and_then(|mut c| c.wait().ok()).and_then(|s| s.code())
    }

    /// Sends QUIT and nothing more.
    pub fn quit(mut self) -> Option<Reply> {
        self.send_quit();
        let reply = self.reply();
        self.close();
        reply
    }

    /// Sends QUIT and closes the client's half: Exim delays its reply by 200 ms
    /// while it waits for that.
    pub fn send_quit(&mut self) {
        self.send_line("QUIT");
        self.writer = None;
        if let Some(socket) = &self.socket {
            // If the server has closed the connection, there is nothing to
            // close.
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

impl Drop for Client {
    /// Ends the session, and waits until the server has ended it as well: Exim writes some
    /// lines of its log after the reply that they are about, and closes the connection last.
    fn drop(&mut self) {
        self.writer = None;
        if let Some(socket) = &self.socket
            && !std::thread::panicking()
        {
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.set_read_timeout(Some(END_MAX));
            let _ = std::io::copy(&mut self.reader, &mut std::io::sink());
        }
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// The text as it is sent after DATA: lines end in CRLF, dots are stuffed, and
/// the last line is the dot.
pub fn stuffed(text: &str) -> String {
    let mut sent = String::new();
    for line in text.lines() {
        if line.starts_with('.') {
            sent.push('.');
        }
        sent.push_str(line);
        sent.push_str("\r\n");
    }
    sent + ".\r\n"
}
