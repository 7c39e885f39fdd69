//! A connection to a unix stream socket on which nothing waits longer than a deadline.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};

/// How long to wait before the next attempt to connect to a socket whose queue is full.
const QUEUE_FULL: Duration = Duration::from_millis(1);

/// A connection.
#[derive(Debug)]
pub struct UnixStream {
    socket: OwnedFd,
}

impl UnixStream {
    /// Connects to the socket `path`.
    ///
    /// # Errors
    /// There is no such socket, nobody listens on it, or the deadline has passed
    /// ([`ErrorKind::TimedOut`]).
    pub fn connect(path: &Path, deadline: Instant) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // As for files: a host that has closed its standard streams would write its
        // messages to the socket.
        let socket = match socket.as_raw_fd() {
            0..=2 => rustix::io::fcntl_dupfd_cloexec(&socket, 3)?,
            _ => socket,
        };
        let address = SocketAddrUnix::new(path)?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Ok(Self { socket }),
                Err(Errno::INTR) => {}
                // The queue of connections that wait is full; there is nothing to poll for.
                Err(Errno::AGAIN) => {
                    let left = remaining(deadline)?;
                    std::thread::sleep(left.min(QUEUE_FULL));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The user of the process that listens, as it was when it began to listen.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn peer_user(&self) -> io::Result<u32> {
        Ok(sockopt::socket_peercred(&self.socket)?.uid.as_raw())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The peer has closed the connection, or the deadline has passed: a part may have
    /// been written.
    pub fn write_all(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            // A closed connection must not send SIGPIPE to the host.
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends what is written: the peer reads its end.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn end_writing(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)?)
    }

    /// Appends what has arrived to `buffer`, at most `limit` bytes; waits until something
    /// has. Returns how many bytes; 0 if the peer has closed the connection.
    ///
    /// # Errors
    /// The connection is broken, or the deadline has passed.
    pub fn read(&self, buffer: &mut Vec<u8>, limit: usize, deadline: Instant) -> io::Result<usize> {
        let start = buffer.len();
        buffer.resize(start + limit, 0);
        let read = loop {
            let room = buffer.get_mut(start..).unwrap_or_default();
            match recv(&self.socket, room, RecvFlags::empty()) {
                Ok((read, _)) => break Ok(read),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Err(error) = self.wait(PollFlags::IN, deadline) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error.into()),
            }
        };
        buffer.truncate(start + read.as_ref().map_or(0, |read| *read));
        read
    }

    fn wait(&self, event: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let left = remaining(deadline)?;
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut wanted = [PollFd::from_borrowed_fd(self.socket.as_fd(), event)];
            match poll(&mut wanted, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The time left until `deadline`.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn bytes_arrive_and_the_peer_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path, later()).unwrap();
        assert_eq!(stream.peer_user().unwrap(), rustix::process::geteuid().as_raw());
        let (mut peer, _) = listener.accept().unwrap();
        stream.write_all(b"hello", later()).unwrap();
        let mut hello = [0; 5];
        peer.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        peer.write_all(b"a reply").unwrap();
        let mut reply = b"before ".to_vec();
        assert_eq!(stream.read(&mut reply, 2, later()).unwrap(), 2);
        assert_eq!(stream.read(&mut reply, 100, later()).unwrap(), 5);
        assert_eq!(reply, b"before a reply");
        drop(peer);
        assert_eq!(stream.read(&mut reply, 100, later()).unwrap(), 0);
        assert_eq!(reply, b"before a reply");
        // No signal kills the process.
        assert!((0..2).any(|_| stream.write_all(b"?", later()).is_err()));
    }

    #[test]
    fn nothing_waits_longer_than_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let timed_out = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        };
        let stream = UnixStream::connect(&path, later()).unwrap();
        timed_out(stream.read(&mut Vec::new(), 10, soon()).map(drop));
        timed_out(stream.write_all(&vec![0; 10 << 20], soon()));
        // Nobody accepts: the queue fills up.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match UnixStream::connect(&path, soon()) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        timed_out(Err(full));
        drop(listener);
        let refused = UnixStream::connect(&path, later()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        let absent = UnixStream::connect(&path, later()).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }
}
