//! The probe: an SMTP session with the mail server of this machine, which shows at which
//! stages policies are evaluated. It counts nothing and delivers nothing: see
//! [`crate::policy::probe`].

use std::fmt;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::SetupError;
use crate::event::AclStage;
use crate::policy::probe::{Part, Ticket, text};
use crate::sys::clock;

/// How long the whole session may take: less than a secret holds.
const LONGEST: Duration = Duration::from_secs(50);
/// How long to wait before it is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// The most of a reply that is read.
const REPLY_MAX: usize = 1 << 16;

/// What was found of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FoundStage {
    /// The policies are evaluated there.
    Reached,
    /// They are not: the server's reply.
    Missed(String),
    /// It could not be tried: why.
    Untried(String),
}

impl fmt::Display for FoundStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached => f.write_str("the policies are evaluated"),
            Self::Missed(reply) => write!(f, "the policies are not evaluated; the reply: {reply}"),
            Self::Untried(why) => write!(f, "not tried: {why}"),
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Probed {
    /// At AUTH, where the server offers it without TLS.
    auth: FoundStage,
    /// At RCPT.
    rcpt: FoundStage,
    /// When a message has been received.
    data: FoundStage,
    /// The reply with which the server took the message, which it holds: it is to be removed
    /// from its queue.
    taken: Option<String>,
}

impl Probed {
    /// The first stage at which mail does not come to the policies. A server that accepts none of
    /// the recipients by itself is not asked at the end of DATA, and not all ask `at_auth`.
    fn missed(&self, at_auth: bool) -> Option<(&'static str, &FoundStage)> {
        if at_auth && matches!(self.auth, FoundStage::Missed(_)) {
            return Some(("AUTH", &self.auth));
        }
        match (&self.rcpt, &self.data) {
            (FoundStage::Reached, FoundStage::Missed(_)) => Some(("the end of DATA", &self.data)),
            (FoundStage::Reached, _) => None,
            (found, _) => Some(("RCPT", found)),
        }
    }

    /// Nothing could be tried.
    fn nothing(why: &str) -> Self {
        let untried = || FoundStage::Untried(why.to_owned());
        Self { auth: untried(), rcpt: untried(), data: untried(), taken: None }
    }
}

/// Shows that mail comes to the policies, or why it does not: tries the mail server for `longest`,
/// as one that has just read its configuration may not listen for a moment, or have processes
/// that know the old one. `at_auth`: it asks them before a login, too. `remove` removes a message
/// that it has taken, by its reply.
///
/// # Errors
/// At which stage mail does not come to them, and the reply of the mail server.
pub(super) fn comes_to_policies(
    spool: &Path,
    server: SocketAddr,
    recipients: &[String],
    at_auth: bool,
    longest: Duration,
    remove: impl Fn(&str) -> Result<(), SetupError>,
) -> Result<(), SetupError> {
    let end = Instant::now() + longest;
    loop {
        let probed = probe(spool, server, recipients);
        if let Some(reply) = &probed.taken {
            remove(reply)?;
        }
        match probed.missed(at_auth) {
            None => return Ok(()),
            Some(_) if Instant::now() < end => std::thread::sleep(PAUSE),
            Some((stage, found)) => {
                let why = format!("no mail reaches the policies at {stage}: {found}");
                return Err(SetupError::Unfit(why));
            }
        }
    }
}

/// Tries the mail server at `server`, an address of this machine, which decides with the
/// database in `spool`. `recipients` are addresses for which it accepts mail, of several kinds
/// if its configuration treats some before it comes to the policies.
fn probe(spool: &Path, server: SocketAddr, recipients: &[String]) -> Probed {
    let ticket = match Ticket::issue(spool, clock::now().0) {
        Ok(ticket) => ticket,
        Err(error) => return Probed::nothing(&error.to_string()),
    };
    let mut session = match SmtpSession::open(server) {
        Ok(session) => session,
        Err(error) => return Probed::nothing(&format!("no connection to {server}: {error}")),
    };
    let mut probed = Probed::nothing("the session ended before it");
    // What it was at when the connection failed, is untried.
    if let Err(error) = session.run(&ticket, recipients, &mut probed) {
        let what = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not reply: see its log".into(),
            _ => error.to_string(),
        };
        let why = format!("the session with {server} ended: {what}");
        for found in [&mut probed.auth, &mut probed.rcpt, &mut probed.data] {
            if matches!(found, FoundStage::Untried(_)) {
                *found = FoundStage::Untried(why.clone());
            }
        }
    }
    probed
}

/// A reply of the server.
#[derive(Debug)]
struct SmtpReply {
    code: u16,
    lines: Vec<String>,
}

impl SmtpReply {
    fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn found(&self, stage: AclStage) -> FoundStage {
        let text = text(stage);
        match self.lines.iter().any(|line| line.contains(text)) {
            true => FoundStage::Reached,
            false => FoundStage::Missed(self.to_string()),
        }
    }
}

impl fmt::Display for SmtpReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.lines.last().map_or("", String::as_str);
        let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
        f.write_str(&line)
    }
}

/// An SMTP session.
struct SmtpSession {
    stream: BufReader<TcpStream>,
    end: Instant,
}

impl SmtpSession {
    fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = connect(server)?;
        Ok(Self { stream: BufReader::new(stream), end: Instant::now() + LONGEST })
    }

    fn run(
        &mut self,
        ticket: &Ticket,
        recipients: &[String],
        probed: &mut Probed,
    ) -> io::Result<()> {
        let greeting = self.reply()?;
        if !greeting.is_ok() {
            return Err(io::Error::other(format!("it greets with {greeting}")));
        }
        let features = self.hello(&ticket.helo(Part::Rcpt))?;
        probed.auth = self.auth(&features)?;
        let reached;
        (probed.rcpt, reached) = self.rcpt(recipients)?;
        self.hello(&ticket.helo(Part::Data))?;
        (probed.data, probed.taken) = self.data(&reached)?;
        self.ask("QUIT").map(drop)
    }

    fn hello(&mut self, name: &str) -> io::Result<SmtpReply> {
        let reply = self.ask(&format!("EHLO {name}"))?;
        match reply.is_ok() {
            true => Ok(reply),
            false => Err(io::Error::other(format!("EHLO is refused: {reply}"))),
        }
    }

    /// A login that cannot succeed.
    fn auth(&mut self, features: &SmtpReply) -> io::Result<FoundStage> {
        let offered = features.lines.iter().find_map(|line| line.get(4..)?.strip_prefix("AUTH "));
        let Some(mechanism) = offered.and_then(|offered| offered.split_whitespace().next()) else {
            return Ok(FoundStage::Untried("the server offers no AUTH without TLS".to_owned()));
        };
        let mut reply = self.ask(&format!("AUTH {mechanism}"))?;
        let found = reply.found(AclStage::Auth);
        if reply.code == 334 {
            reply = self.ask("*")?;
            return Ok(FoundStage::Missed(reply.to_string()));
        }
        Ok(found)
    }

    /// Also the recipients for which it is reached.
    fn rcpt<'r>(&mut self, recipients: &'r [String]) -> io::Result<(FoundStage, Vec<&'r str>)> {
        let reply = self.ask("MAIL FROM:<>")?;
        if !reply.is_ok() {
            return Ok((FoundStage::Untried(format!("MAIL is refused: {reply}")), Vec::new()));
        }
        let (mut found, mut reached) =
            (FoundStage::Untried("no recipient is known".to_owned()), Vec::new());
        for recipient in recipients {
            match self.ask(&format!("RCPT TO:<{recipient}>"))?.found(AclStage::Rcpt) {
                FoundStage::Reached => reached.push(recipient.as_str()),
                missed => found = missed,
            }
        }
        let found = if reached.is_empty() { found } else { FoundStage::Reached };
        Ok((found, reached))
    }

    /// Also the reply, if the server takes the message. Only `reached` are tried: for others
    /// it would deliver it.
    fn data(&mut self, reached: &[&str]) -> io::Result<(FoundStage, Option<String>)> {
        let untried = |why: String| Ok((FoundStage::Untried(why), None));
        let mut reply = self.ask("MAIL FROM:<>")?;
        if !reply.is_ok() {
            return untried(format!("MAIL is refused: {reply}"));
        }
        let mut accepted = false;
        for recipient in reached {
            reply = self.ask(&format!("RCPT TO:<{recipient}>"))?;
            accepted = reply.is_ok();
            if accepted {
                break;
            }
        }
        match (accepted, reached) {
            (true, _) => {}
            (false, []) => {
                return untried("the policies are evaluated for no recipient".to_owned());
            }
            (false, _) => return untried(format!("no recipient is accepted: {reply}")),
        }
        let reply = self.ask("DATA")?;
        if reply.code != 354 {
            return untried(format!("DATA is refused: {reply}"));
        }
        let text = "Subject: exirate probe\r\n\r\nIt is refused, or held: then delete it.\r\n.";
        let reply = self.ask(text)?;
        let taken = reply.is_ok().then(|| reply.to_string());
        Ok((reply.found(AclStage::Data), taken))
    }

    fn ask(&mut self, command: &str) -> io::Result<SmtpReply> {
        let left = self.left()?;
        let stream = self.stream.get_mut();
        stream.set_write_timeout(Some(left))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<SmtpReply> {
        let (mut lines, mut length): (Vec<String>, usize) = (Vec::new(), 0);
        loop {
            let left = self.left()?;
            self.stream.get_ref().set_read_timeout(Some(left))?;
            let mut line = Vec::new();
            let mut limited = io::Read::take(&mut self.stream, (REPLY_MAX - length) as u64);
            length += limited.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let goes_on = line.as_bytes().get(3) == Some(&b'-');
            lines.push(line);
            match code {
                None => return Err(io::Error::other("a reply has no code")),
                Some(code) if !goes_on => return Ok(SmtpReply { code, lines }),
                Some(_) => {}
            }
        }
    }

    /// The time that is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// A connection from the loopback address, also to another address of this machine.
fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let (family, from): (_, IpAddr) = match server {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::LOCALHOST.into()),
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    rustix::net::connect(&socket, &server)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What a mail server replies to each command.
    type Replies = fn(&str) -> &'static str;

    /// Probes a mail server with these replies; also the commands that it got.
    fn probed(replies: Replies) -> (Probed, Vec<String>) {
        let spool = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, peer) = listener.accept().unwrap();
            assert!(peer.ip().is_loopback());
            let mut commands = Vec::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let say = |text: &str| (&stream).write_all(text.as_bytes());
            let mut reply = replies("");
            while !reply.is_empty() && say(reply).is_ok() {
                let in_data = reply.starts_with("354");
                let Some(Ok(mut line)) = lines.next() else { break };
                while in_data && line != "." {
                    line = lines.next().unwrap().unwrap();
                }
                reply = replies(&line);
                commands.push(line);
            }
            commands
        });
        let recipients = ["postmaster".to_owned(), "u@mail.test".to_owned()];
        let probed = probe(spool.path(), address, &recipients);
        assert_eq!(std::fs::read_dir(spool.path().join("exirate")).unwrap().count(), 0);
        (probed, server.join().unwrap())
    }

    /// A server that evaluates at RCPT and DATA; `u@mail.test` comes to it, `postmaster` does not.
    fn right(command: &str) -> &'static str {
        match command {
            "" => "220-mail.test\r\n220 ready\r\n",
            "AUTH PLAIN" => "550 exirate probe: AUTH\r\n",
            "RCPT TO:<postmaster>" => "250 ok\r\n",
            "RCPT TO:<u@mail.test>" => "550-5.7.1 exirate probe: RCPT\r\n550 5.7.1 no\r\n",
            "DATA" => "354 go on\r\n",
            "." => "550 exirate probe: DATA\r\n",
            _ if command.starts_with("EHLO exirate-probe-") => {
                "250-mail.test\r\n250-AUTH PLAIN LOGIN\r\n250 HELP\r\n"
            }
            "MAIL FROM:<>" => "250 ok\r\n",
            "QUIT" => "221 bye\r\n",
            _ => "500 what\r\n",
        }
    }

    #[test]
    fn a_message_goes_only_to_those_who_come_to_the_policies() {
        let (probed, commands) = probed(right);
        assert_eq!((probed.auth, probed.rcpt), (FoundStage::Reached, FoundStage::Reached));
        // This server refuses it at RCPT in any case.
        let untried = FoundStage::Untried("no recipient is accepted: 550 5.7.1 no".to_owned());
        assert_eq!((probed.data, probed.taken), (untried, None));
        assert!(commands[0].starts_with("EHLO exirate-probe-rcpt-"), "{commands:?}");
        let second = commands.iter().rposition(|command| command.starts_with("EHLO ")).unwrap();
        assert!(commands[second].starts_with("EHLO exirate-probe-data-"));
        assert_eq!(commands[second + 1..], ["MAIL FROM:<>", "RCPT TO:<u@mail.test>", "QUIT"]);
    }

    #[test]
    fn nothing_is_sent_where_no_recipient_comes_to_them() {
        let (probed, commands) = probed(|command| match command {
            _ if command.starts_with("RCPT") => "250 ok\r\n",
            "AUTH PLAIN" => "334\r\n",
            "*" => "501 cancelled\r\n",
            other => right(other),
        });
        assert_eq!(probed.auth, FoundStage::Missed("501 cancelled".to_owned()));
        assert_eq!(probed.missed(true).map(|(stage, _)| stage), Some("AUTH"));
        assert_eq!(probed.missed(false).map(|(stage, _)| stage), Some("RCPT"));
        assert_eq!(probed.rcpt, FoundStage::Missed("250 ok".to_owned()));
        assert!(matches!(probed.data, FoundStage::Untried(_)));
        assert!(!commands.contains(&"DATA".to_owned()), "{commands:?}");
    }

    #[test]
    fn a_message_that_is_taken_is_reported() {
        // One recipient is refused once, as the probe asks for it, and accepted then.
        let (probed, _) = probed(|command| match command {
            "RCPT TO:<postmaster>" => "250 exirate probe: RCPT\r\n",
            "." => "250 OK id=1abc\r\n",
            other => right(other),
        });
        assert_eq!(probed.data, FoundStage::Missed("250 OK id=1abc".to_owned()));
        assert_eq!(probed.taken.as_deref(), Some("250 OK id=1abc"));
    }

    #[test]
    fn a_server_that_does_not_play_along_is_not_tried() {
        for (replies, why) in [
            ((|_| "") as Replies, "unexpected end of file"),
            (|_| "554 go away\r\n", "it greets with 554 go away"),
            (|_| "hello\r\n", "a reply has no code"),
            (|c| if c.is_empty() { "220 x\r\n" } else { "502 no\r\n" }, "EHLO is refused: 502 no"),
        ] {
            let (probed, _) = probed(replies);
            let FoundStage::Untried(text) = &probed.rcpt else { panic!("{probed:?}") };
            assert!(text.contains(why), "{text}");
        }
    }
}
