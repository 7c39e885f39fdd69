//! Where the rates of a cluster are kept.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How to reach the servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The servers.
    pub servers: Servers,
    /// The ACL user; `None` is the default user.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The certificates that a server's certificate is checked with, in PEM; `None` are those
    /// of the system.
    pub ca: Option<Vec<u8>>,
    /// How long a reply is waited for.
    pub deadline: Duration,
}

/// The servers, and how they belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server.
    Single(Server),
    /// A server with replicas, which Sentinel watches over.
    Sentinel {
        /// Its name in Sentinel.
        master: String,
        /// The sentinels.
        sentinels: Vec<Server>,
    },
    /// Some of the nodes of a Redis Cluster.
    Cluster(Vec<Server>),
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// How it is connected to.
    pub transport: Transport,
    /// The number of the database; 0 unless the URL names another.
    pub database: i64,
}

/// How a server is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, encrypted or not.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// Whether the connection is encrypted.
        tls: bool,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Servers {
    /// All that are named.
    #[must_use]
    pub fn all(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Sentinel { sentinels, .. } => sentinels,
            Self::Cluster(nodes) => nodes,
        }
    }
}

impl Server {
    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tcp { tls: true, .. })
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.servers.fmt(f)
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(_) => {}
            Self::Sentinel { master, .. } => write!(f, "{master} of the sentinels ")?,
            Self::Cluster(_) => f.write_str("the cluster of ")?,
        }
        let names: Vec<String> = self.all().iter().map(ToString::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            Transport::Unix(path) => write!(f, "unix://{}", path.display()),
            Transport::Tcp { host, port, tls } => {
                let scheme = if *tls { "rediss" } else { "redis" };
                let [open, close] = if host.contains(':') { ["[", "]"] } else { ["", ""] };
                write!(f, "{scheme}://{open}{host}{close}:{port}")?;
                if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
            }
        }
    }
}
