//! Messages to systemd: `sd_notify`.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::log::one_line;

/// The service manager that started this process, if it wants messages.
#[derive(Debug)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
    is_systemd: bool,
}

impl Manager {
    /// The one that the environment names.
    #[must_use]
    pub fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET");
        let socket = address.and_then(|address| connect(&address).ok());
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&time| mine && time > 0);
        // Others take messages, too: `start-stop-daemon --notify-await`.
        let is_systemd = std::env::var_os("INVOCATION_ID").is_some();
        Self { socket, is_systemd, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// How often [`Manager::alive`] is to be called.
    #[must_use]
    pub fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 3)
    }

    /// The daemon listens.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The daemon reads its configuration again; [`Manager::ready`] follows.
    pub fn reloading(&self) {
        self.send("RELOADING=1");
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The daemon runs.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// What `systemctl status` shows.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// Keep this socket under this name, open also while the daemon does not run. Whether it is kept:
    /// only systemd does it, and only where the unit has `FileDescriptorStoreMax=`.
    #[must_use]
    pub fn keep(&self, name: &str, kept: BorrowedFd<'_>) -> bool {
        let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        let descriptors = [kept];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let Some(manager) = self.socket.as_ref().filter(|_| self.is_systemd) else { return false };
        control.push(SendAncillaryMessage::ScmRights(&descriptors))
            && sendmsg(
                manager,
                &[IoSlice::new(message.as_bytes())],
                &mut control,
                SendFlags::empty(),
            )
            .is_ok()
    }

    /// Keep the socket of this name no longer.
    pub fn forget(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    fn send(&self, message: &str) {
        // Without the manager, nobody waits for the message.
        let _ = self.socket.as_ref().map(|socket| socket.send(message.as_bytes()));
    }
}

/// A socket to an address as `NOTIFY_SOCKET` has it: a path, or `@` and an abstract name.
fn connect(address: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match address.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        path => socket.connect(OsStr::from_bytes(path))?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_socket_of_the_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let at_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("exirate-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_one = UnixDatagram::bind_addr(&abstract_name).unwrap();
        for (manager, address) in
            [(at_path, path.into_os_string()), (abstract_one, format!("@{name}").into())]
        {
            manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let own = Manager { socket: connect(&address).ok(), watchdog: None, is_systemd: true };
            own.ready("2 connections");
            own.stopping();
            let mut buffer = [0; 100];
            let mut next = || {
                let bytes = manager.recv(&mut buffer).unwrap();
                String::from_utf8_lossy(&buffer[..bytes]).into_owned()
            };
            assert_eq!(next(), "READY=1\nSTATUS=2 connections");
            assert_eq!(next(), "STOPPING=1");
        }
        Manager { socket: None, watchdog: None, is_systemd: true }.alive();
    }
}
