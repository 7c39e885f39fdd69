//! A proxy in front of a server, which makes it misbehave.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::server::free_port;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Nothing listens.
    Refuse,
    /// Connections are accepted, and nothing moves in either direction until this is over.
    Stall,
    /// Replies come at a byte in 20 ms.
    Drip,
    /// Requests arrive, and no reply comes back.
    Swallow,
    /// The connection is closed in the middle of the first reply.
    Cut,
    /// The connection is reset when a request comes.
    Reset,
    /// A reply is bytes that are no reply.
    Garbage,
    /// The server is not asked, and this is the reply to every request.
    Reply(&'static str),
    /// Nothing moves in a new connection for [`SLOW_START`], as where the handshake of TLS is slow.
    SlowStart,
    /// What either side sends arrives after this time, half of a round trip.
    Far(Duration),
}

/// See [`Fault::SlowStart`].
pub const SLOW_START: Duration = Duration::from_millis(300);

impl Fault {
    /// Every fault of a proxy with this port, and what the store's error says.
    pub fn every(port: u16) -> Vec<(Self, &'static str)> {
        let moved: &'static str = format!("-MOVED 0 127.0.0.1:{port}\r\n").leak();
        vec![
            (Self::Refuse, ""),
            (Self::Stall, "no reply in time"),
            (Self::Drip, "no reply in time"),
            (Self::Swallow, "no reply in time"),
            (Self::Cut, "is cut off"),
            (Self::Reset, "the connection is broken"),
            (Self::Garbage, "cannot be read"),
            (Self::Reply("-LOADING Redis is loading the dataset in memory\r\n"), "is loading"),
            (Self::Reply("-CLUSTERDOWN The cluster is down\r\n"), "the cluster is down"),
            (Self::Reply("-NOSCRIPT No matching script.\r\n"), "forgets the script"),
            (
                Self::Reply("-READONLY You can't write against a read only replica.\r\n"),
                "a replica",
            ),
            (
                Self::Reply("-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
                "is full",
            ),
            (Self::Reply("-MISCONF Errors writing to the AOF file\r\n"), "cannot save"),
            (Self::Reply("-TRYAGAIN Multiple keys request during rehashing\r\n"), "being moved"),
            (Self::Reply("+OK\r\n"), "cannot be read"),
            (Self::Reply(moved), "in a circle"),
        ]
    }
}

/// The pause in which nothing happens.
const TICK: Duration = Duration::from_millis(2);

struct Shared {
    fault: Mutex<Fault>,
    /// How often the fault has changed.
    changes: AtomicU64,
    ends: AtomicBool,
    upstream: AtomicU16,
    port: u16,
}

impl Shared {
    /// The fault, and how often it has changed.
    ///
    /// It stays so while the guard lives: what a client sends after [`Proxy::set`] is
    /// not handled as before.
    fn fault(&self) -> (MutexGuard<'_, Fault>, u64) {
        let fault = self.fault.lock().unwrap();
        let changes = self.changes.load(Ordering::Relaxed);
        (fault, changes)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// A proxy, which ends when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    listens: Option<JoinHandle<()>>,
    pub port: u16,
}

impl Proxy {
    /// Starts one in front of this port of 127.0.0.1.
    pub fn start(upstream: u16) -> Self {
        let (listener, port) = loop {
            let port = free_port();
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
                break (listener, port);
            }
        };
        let shared = Arc::new(Shared {
            fault: Mutex::new(Fault::None),
            changes: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            upstream: AtomicU16::new(upstream),
            port,
        });
        let for_thread = Arc::clone(&shared);
        let listens = thread::spawn(move || listen(&for_thread, listener));
        Self { shared, listens: Some(listens), port }
    }

    /// Passes new connections on to this port.
    pub fn lead_to(&self, upstream: u16) {
        self.shared.upstream.store(upstream, Ordering::Relaxed);
    }

    /// Does this from now on. A connection that has lost bytes by a fault is closed when the
    /// fault ends.
    pub fn set(&self, fault: Fault) {
        let mut current = self.shared.fault.lock().unwrap();
        *current = fault;
        self.shared.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.listens.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections until the end.
fn listen(shared: &Arc<Shared>, listener: TcpListener) {
    let mut listener = Some(listener);
    let mut connections = Vec::new();
    while !shared.ends() {
        if *shared.fault().0 == Fault::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(("127.0.0.1", shared.port)).ok();
        }
        if let Some(listener) = &listener {
            listener.set_nonblocking(true).unwrap();
            while let Ok((client, _)) = listener.accept() {
                let shared = Arc::clone(shared);
                connections.push(thread::spawn(move || {
                    // Either side may be gone at any time.
                    let _: io::Result<()> = serve(&shared, client);
                }));
            }
        }
        connections.retain(|connection| !connection.is_finished());
        thread::sleep(TICK);
    }
    for connection in connections {
        let _ = connection.join();
    }
}

/// Passes on what a client and the server say, with the fault.
fn serve(shared: &Shared, mut client: TcpStream) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", shared.upstream.load(Ordering::Relaxed)))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let mut chunk = vec![0; 64 << 10];
    // What has arrived of a request that the server is not to see.
    let mut request = Vec::new();
    // Since that change of the fault, the connection has lost bytes.
    let mut damaged = None;
    let begun = Instant::now();
    // What is on its way.
    let (mut there, mut back) = (OnItsWay::new(), OnItsWay::new());
    while !shared.ends() {
        let (guard, changes) = shared.fault();
        let fault = *guard;
        if damaged.is_some_and(|since| since != changes) || fault == Fault::Refuse {
            break;
        }
        let mut moved = false;
        match fault {
            Fault::Stall => {}
            Fault::SlowStart if begun.elapsed() < SLOW_START => {}
            Fault::Reset | Fault::Garbage | Fault::Reply(_) => {
                if let Some(bytes) = read(&mut client, &mut chunk)? {
                    moved = true;
                    damaged = Some(changes);
                    request.extend_from_slice(&chunk[..bytes]);
                    match fault {
                        Fault::Reset => {
                            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
                            return Ok(());
                        }
                        Fault::Reply(text) => {
                            for _ in 0..take_requests(&mut request) {
                                write(&mut client, text.as_bytes())?;
                            }
                        }
                        _ => {
                            let noise: Vec<u8> =
                                (0..bytes as u64).map(|n| (n * n * 37 + n * 11) as u8).collect();
                            write(&mut client, &noise)?;
                        }
                    }
                }
            }
            Fault::Far(half) => {
                moved |= carry(&mut client, &mut server, &mut there, half, &mut chunk)?;
                moved |= carry(&mut server, &mut client, &mut back, half, &mut chunk)?;
            }
            Fault::None
            | Fault::SlowStart
            | Fault::Refuse
            | Fault::Drip
            | Fault::Swallow
            | Fault::Cut => {
                if let Some(bytes) = read(&mut client, &mut chunk)? {
                    moved = true;
                    write(&mut server, &chunk[..bytes])?;
                }
                let size = if fault == Fault::Drip { 1 } else { chunk.len() };
                if let Some(bytes) = read(&mut server, &mut chunk[..size])? {
                    moved = true;
                    match fault {
                        Fault::Swallow => damaged = Some(changes),
                        Fault::Cut => {
                            write(&mut client, &chunk[..bytes / 2])?;
                            break;
                        }
                        _ => write(&mut client, &chunk[..bytes])?,
                    }
                }
            }
        }
        drop(guard);
        if fault == Fault::Drip {
            thread::sleep(Duration::from_millis(20));
        } else if !moved {
            thread::sleep(TICK);
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    Ok(())
}

/// Bytes, and when they arrive.
type OnItsWay = VecDeque<(Instant, Vec<u8>)>;

/// Carries what one side sends to the other, which gets it after some time.
fn carry(
    from: &mut TcpStream,
    to: &mut TcpStream,
    on_its_way: &mut OnItsWay,
    time: Duration,
    chunk: &mut [u8],
) -> io::Result<bool> {
    let now = Instant::now();
    let read = read(from, chunk)?;
    if let Some(bytes) = read {
        on_its_way.push_back((now + time, chunk[..bytes].to_vec()));
    }
    let mut moved = read.is_some();
    while on_its_way.front().is_some_and(|(arrives, _)| *arrives <= now)
        && let Some((_, bytes)) = on_its_way.pop_front()
    {
        write(to, &bytes)?;
        moved = true;
    }
    Ok(moved)
}

/// What has arrived; `None` if nothing has. The end of the stream is an error.
fn read(stream: &mut TcpStream, chunk: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(chunk) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TICK),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes the complete requests at the start of `bytes`; how many there were.
fn take_requests(bytes: &mut Vec<u8>) -> usize {
    let mut count = 0;
    while let Some(size) = request_size(bytes) {
        bytes.drain(..size);
        count += 1;
    }
    count
}

/// The size of the request at the start of `bytes`, if it is complete: `*N`, and then N
/// strings, each `$SIZE` and its bytes.
fn request_size(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut number = |sign: u8, skip: usize| {
        at += skip;
        let rest = bytes.get(at..)?;
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(rest[0], sign, "what the client sends is no request");
        let number: usize = std::str::from_utf8(&rest[1..line]).unwrap().parse().unwrap();
        at += line + 2;
        Some((number, at))
    };
    let (strings, mut end) = number(b'*', 0)?;
    let mut skip = 0;
    for _ in 0..strings {
        let (size, begins) = number(b'$', skip)?;
        skip = size + 2;
        end = begins + skip;
    }
    (end <= bytes.len()).then_some(end)
}
