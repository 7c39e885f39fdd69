//! The sockets that others connect to, and those of them that are connected.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::identity::network::Cidr;
use crate::serve::config::Address;
use crate::serve::count::{Count, CountGuard};
use crate::serve::log::{Level, Log};
use crate::serve::notify::Manager;
use crate::serve::socket::{Access, Listener, SocketError};

/// After a failure to accept a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that are being closed for others: files that are open besides [`Peers`]' most.
pub const CLOSING: usize = 256;

/// A socket that is bound. A unix socket is removed when it is dropped.
pub struct Bound {
    address: Address,
    unix: Option<Listener>,
    tcp: Option<std::net::TcpListener>,
}

impl Bound {
    /// Binds `address`; `access` is for unix sockets.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub fn bind(address: &Address, access: Access) -> Result<Self, String> {
        Self::bind_by(Listener::bind, address, access)
    }

    /// As [`Bound::bind`], in the place of an instance that runs, if it is a unix socket:
    /// [`Listener::take_over`].
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub fn take_over(address: &Address, access: Access) -> Result<Self, String> {
        Self::bind_by(Listener::take_over, address, access)
    }

    fn bind_by(
        listen_at: impl Fn(&Path, Access) -> Result<Listener, SocketError>,
        address: &Address,
        access: Access,
    ) -> Result<Self, String> {
        let mut bound = Self { address: address.clone(), unix: None, tcp: None };
        match address {
            Address::Unix(path) => {
                let listener = listen_at(path, access);
                bound.unix = Some(listener.map_err(|error| error.to_string())?);
            }
            Address::Inet(address) => {
                let cannot = |error: io::Error| format!("cannot listen on inet:{address}: {error}");
                bound.tcp = Some(listen(*address).map_err(cannot)?);
            }
        }
        Ok(bound)
    }

    /// Has the service manager keep it, if it is a unix socket: [`Listener::keep`].
    pub fn keep(&mut self, manager: &Manager) {
        if let Some(listener) = &mut self.unix {
            listener.keep(manager);
        }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The unix socket, if it is one.
    pub(super) fn unix(&self) -> Option<&Listener> {
        self.unix.as_ref()
    }

    /// The listening socket, once, within a runtime.
    ///
    /// # Errors
    /// It was taken before, or a system call failed.
    pub fn acceptor(&mut self) -> io::Result<Acceptor> {
        if let Some(listener) = self.tcp.take() {
            return TcpListener::from_std(listener).map(Acceptor::Tcp);
        }
        let listener = self.unix.as_mut().and_then(Listener::take);
        let listener = listener.ok_or(io::ErrorKind::AddrInUse)?;
        UnixListener::from_std(listener).map(Acceptor::Unix)
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A listening socket.
pub enum Acceptor {
    /// A unix socket.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
}

impl Acceptor {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A reply is one small packet.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Accepts those who have connected already, and listens no more. It asks the system,
    /// not the runtime, which may not know of all of them yet.
    fn rest(self, begin: impl FnMut(Stream)) {
        match self {
            Self::Unix(listener) => {
                let Ok(listener) = listener.into_std() else { return };
                let accept = || {
                    let (stream, _) = listener.accept()?;
                    stream.set_nonblocking(true)?;
                    UnixStream::from_std(stream).map(Stream::Unix)
                };
                rest(accept, begin);
            }
            Self::Tcp(listener) => {
                let Ok(listener) = listener.into_std() else { return };
                let accept = || {
                    let (stream, _) = listener.accept()?;
                    stream.set_nonblocking(true)?;
                    TcpStream::from_std(stream).map(Stream::Tcp)
                };
                rest(accept, begin);
            }
        }
    }
}

/// Accepts until nobody is left.
fn rest(accept: impl Fn() -> io::Result<Stream>, mut begin: impl FnMut(Stream)) {
    // Nobody, or an error: there is no time to try again.
    while let Ok(stream) = accept() {
        begin(stream);
    }
}

/// The connection of a peer.
pub enum Stream {
    /// To a unix socket.
    Unix(UnixStream),
    /// To a TCP port.
    Tcp(TcpStream),
}

impl Stream {
    /// The user and the group of the peer's process, as the system knows them; `None` of TCP.
    #[must_use]
    pub fn peer(&self) -> Option<(u32, u32)> {
        match self {
            Self::Unix(stream) => stream.peer_cred().ok().map(|peer| (peer.uid(), peer.gid())),
            Self::Tcp(_) => None,
        }
    }

    /// The address of a peer on another machine; `None` of a process of this machine.
    ///
    /// # Errors
    /// The connection is closed already.
    fn from(&self) -> io::Result<Option<IpAddr>> {
        let Self::Tcp(stream) = self else { return Ok(None) };
        let address = stream.peer_addr()?.ip().to_canonical();
        Ok(Some(address).filter(|address| !address.is_loopback()))
    }

    /// Waits until something can be read, or the peer has closed the connection.
    ///
    /// # Errors
    /// That of the system call.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.readable().await,
            Self::Tcp(stream) => stream.readable().await,
        }
    }

    /// Reads what is there, if anything.
    ///
    /// # Errors
    /// That of the system call.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tcp(stream) => stream.try_read(buffer),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The peers that are connected, to all sockets together, of which there may be only so
/// many, and half as many of one address. When there are too many, the one is closed that has
/// been waiting for longest without a whole request; those that never sent one go first. Peers on
/// other machines are only those of the networks that are allowed.
pub struct Peers {
    most: Cell<usize>,
    allowed: RefCell<Vec<Cidr>>,
    connected: Count,
    of_addresses: RefCell<BTreeMap<IpAddr, usize>>,
    waiting: RefCell<BTreeMap<Rank, Waiting>>,
    next: Cell<u64>,
    log: Rc<Log>,
}

/// The order in which peers are closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    has_asked: bool,
    since: u64,
}

/// Who waits, and how it hears that it is to be closed.
struct Waiting {
    from: Option<IpAddr>,
    close: Rc<Notify>,
}

impl Peers {
    /// At most `most`, all of this machine.
    #[must_use]
    pub fn new(most: usize, log: Rc<Log>) -> Rc<Self> {
        let (connected, waiting, next) = (Count::default(), RefCell::default(), Cell::default());
        let (allowed, of_addresses) = (RefCell::default(), RefCell::default());
        let most = Cell::new(most);
        Rc::new(Self { most, allowed, connected, of_addresses, waiting, next, log })
    }

    /// Allows peers of these networks, and no others, to connect from now on.
    pub fn allow(&self, networks: &[Cidr]) {
        *self.allowed.borrow_mut() = networks.to_vec();
    }

    /// Allows another number from now on.
    pub fn set(&self, most: usize) {
        self.most.set(most);
    }

    /// How many are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.connected.get()
    }

    /// Waits until none is left, for `most` at most; how many are left then.
    pub async fn ended(&self, most: Duration) -> usize {
        let none = async {
            while self.connected() > 0 {
                self.connected.less().await;
            }
        };
        let _ = timeout(most, none).await;
        self.connected()
    }

    /// Accepts those that connect until `stop` is set, and begins to serve each by `begin`,
    /// to which it hands over a [`Peer`].
    pub async fn accept(
        self: &Rc<Self>,
        acceptor: Acceptor,
        mut stop: watch::Receiver<bool>,
        begin: impl Fn(Stream, Peer),
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = acceptor.accept() => accepted,
                _ = stop.wait_for(|&stop| stop) => break,
            };
            match accepted {
                Ok(stream) => self.begin(stream, &begin),
                Err(error) => {
                    let text = format_args!("cannot accept a connection: {error}");
                    self.log.write_seldom("failures to accept", Level::Error, text);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Those who have connected, and were not yet accepted.
        acceptor.rest(|stream| self.begin(stream, &begin));
    }

    fn begin(self: &Rc<Self>, stream: Stream, begin: &impl Fn(Stream, Peer)) {
        // It may be gone already.
        let Ok(from) = stream.from() else { return };
        if let Some(address) = from
            && !self.allowed.borrow().iter().any(|network| network.contains(address))
        {
            let text = format_args!("{address} is not in listen.allow: its connection is closed");
            self.log.write_seldom("peers outside listen.allow", Level::Warning, text);
            return;
        }
        if !self.has_room(from) {
            return;
        }
        let counted = self.connected.add(1);
        if let Some(address) = from {
            *self.of_addresses.borrow_mut().entry(address).or_default() += 1;
        }
        let (close, has_asked) = (Rc::new(Notify::new()), Cell::new(false));
        let peer = Peer { peers: Rc::clone(self), from, close, has_asked, _counted: counted };
        begin(stream, peer);
    }

    /// Whether one more may connect, if need be in the place of another.
    fn has_room(&self, from: Option<IpAddr>) -> bool {
        let (most, of_one) = (self.most.get(), (self.most.get() / 2).max(1));
        let of_address = |address: &IpAddr| self.of_addresses.borrow().get(address).copied();
        let full = from.filter(|address| of_address(address).is_some_and(|now| now >= of_one));
        if full.is_none() && self.connected.get() < most {
            return true;
        }
        let mut waiting = self.waiting.borrow_mut();
        let mut replaced = waiting.iter().filter(|(_, peer)| full.is_none() || peer.from == full);
        let first = replaced.next().map(|(rank, _)| *rank);
        let first = first.and_then(|rank| waiting.remove(&rank));
        let done = match &first {
            Some(peer) => {
                peer.close.notify_one();
                "the one that has been silent for longest is closed"
            }
            None => "a new one is refused",
        };
        let open = match full {
            Some(address) => format!("{of_one} connections of {address}"),
            None => format!("{most} connections"),
        };
        let text = format_args!("{open} are open, and no more may: {done}");
        self.log.write_seldom("connections closed for others", Level::Warning, text);
        first.is_some()
    }
}

/// A peer that is connected.
pub struct Peer {
    peers: Rc<Peers>,
    from: Option<IpAddr>,
    close: Rc<Notify>,
    /// Whether it has sent a whole request.
    has_asked: Cell<bool>,
    _counted: CountGuard,
}

impl Peer {
    /// It has sent a whole request.
    pub fn asks(&self) {
        self.has_asked.set(true);
    }

    /// Waits until it is to be closed for another.
    pub async fn closed(&self) {
        self.close.notified().await;
    }

    /// It waits for the peer, and may be closed for another from now on, until the result is
    /// dropped.
    #[must_use]
    pub fn waits(&self) -> WaitingPeer<'_> {
        let since = self.peers.next.get();
        self.peers.next.set(since + 1);
        let rank = Rank { has_asked: self.has_asked.get(), since };
        let waiting = Waiting { from: self.from, close: Rc::clone(&self.close) };
        self.peers.waiting.borrow_mut().insert(rank, waiting);
        WaitingPeer { peer: self, rank }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Some(address) = self.from else { return };
        if let Entry::Occupied(mut open) = self.peers.of_addresses.borrow_mut().entry(address) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }
}

/// A peer that may be closed for another.
pub struct WaitingPeer<'p> {
    peer: &'p Peer,
    rank: Rank,
}

impl WaitingPeer<'_> {
    /// Waits until it is to be closed.
    pub async fn closed(&self) {
        self.peer.closed().await;
    }
}

impl Drop for WaitingPeer<'_> {
    fn drop(&mut self) {
        self.peer.peers.waiting.borrow_mut().remove(&self.rank);
    }
}
