//! An SMTP client that speaks plainly: it sends what it is told, and records
//! all that was said.

use super::exim::lossless;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The code of its last line; 0 where the line has none.
    pub code: u16,
    /// All of its lines, code and all, joined by newlines; bytes outside
    /// ASCII are shown as `\xNN`.
    pub text: String,
}

impl Reply {
    /// A 2xx reply.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// One conversation.
pub struct Client {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Option<Box<dyn Write + Send>>,
    socket: Option<TcpStream>,
    child: Option<Child>,
    /// What was said so far, a line each; `C:` is ours.
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
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (reader, writer) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        let mut client = Self::over(Box::new(reader), Box::new(writer), None);
        client.socket = Some(stream);
        client
    }

    /// Speaks to a program by its standard input and output.
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

    /// Reads one reply; `None` where the server has hung up.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = self.reader.read_until(b'\n', &mut line);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                // A connection that the server resets is one it hung up.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(e) => panic!("no reply: {e}\n{}", self.transcript.join("\n")),
            }
            let line = lossless(line.trim_ascii_end());
            self.transcript.push(format!("S: {line}"));
            if line.is_empty() || line.starts_with("****") {
                continue; // -bh says now and then that it is not for real
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

    /// Reads one reply that must come.
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

    /// Sends bytes as they are, in one packet where they fit.
    pub fn send(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            self.transcript.push(format!("C: {}", lossless(line.trim_ascii_end())));
        }
        if let Some(writer) = &mut self.writer {
            // The server may have hung up: the missing reply will tell.
            let _ = writer.write_all(bytes).and_then(|()| writer.flush());
        }
    }

    /// Sends one message after DATA: the text, dots stuffed, and the last dot.
    pub fn data(&mut self, text: &str) -> Reply {
        let reply = self.command("DATA");
        if reply.code != 354 {
            return reply;
        }
        self.send(stuffed(text).as_bytes());
        self.expect()
    }

    /// Sends one message; the first reply that is not a yes
    /// ends it.
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

    /// Closes our side, and gives the exit code of the program, if it was one.
    pub fn close(mut self) -> Option<i32> {
        self.writer = None;
        let child = self.child.take();
        drop(self);
        child.and_then(|mut c| c.wait().ok()).and_then(|s| s.code())
    }

    /// Says QUIT, and nothing ever after.
    pub fn quit(mut self) -> Option<Reply> {
        self.send_quit();
        let reply = self.reply();
        self.close();
        reply
    }

    /// Sends QUIT and closes our half: Exim holds its goodbye back for 200 ms
    /// while it waits for that.
    pub fn send_quit(&mut self) {
        self.send_line("QUIT");
        self.writer = None;
        if let Some(socket) = &self.socket {
            // Where the server has hung up there is nothing to close.
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.writer = None;
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// The text as it stands after DATA: lines end in CRLF, dots are stuffed, the
/// last line is the dot.
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
