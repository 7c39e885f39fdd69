//! Messages to systemd: `sd_notify`.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager that started this process, if it wants messages.
#[derive(Debug)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
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
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// How often [`Manager::alive`] is to be called.
    #[must_use]
    pub fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 3)
    }

    /// The daemon listens.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
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
        self.send(&format!("STATUS={status}"));
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
            let own = Manager { socket: connect(&address).ok(), watchdog: None };
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
        Manager { socket: None, watchdog: None }.alive();
    }
}
