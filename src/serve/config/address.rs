//! Where the mail front ends listen: `unix:/run/exirate/policy`, `inet:127.0.0.1:8893`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The longest path of a unix socket.
const SOCKET_PATH_MAX: usize = 107;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Inet(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Inet(address) => write!(f, "inet:{address}"),
        }
    }
}

/// Checks the path of a unix socket.
pub(super) fn socket_path(path: &str, example: &str) -> Result<(), String> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(format!(
            "{path:?} is not the full path of a socket; expected such as {example:?}"
        ));
    }
    if path.len() > SOCKET_PATH_MAX {
        return Err(format!("the path of a socket has at most {SOCKET_PATH_MAX} bytes"));
    }
    Ok(())
}

/// Reads an address, of which `example` is one.
pub(super) fn parse(text: &str, example: &str) -> Result<Address, String> {
    let wrong = || {
        format!(
            "{text:?} is not an address to listen on; expected such as {example:?} or \
             \"inet:127.0.0.1:8893\""
        )
    };
    if let Some(path) = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text)) {
        socket_path(path, "/run/exirate/policy")?;
        return Ok(Address::Unix(path.into()));
    }
    let place = text.strip_prefix("inet:").ok_or_else(wrong)?;
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host: IpAddr = match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().map_err(|_| wrong())?,
    };
    Ok(Address::Inet(SocketAddr::new(host, port)))
}
