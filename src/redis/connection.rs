//! A connection to the servers: one, a primary that Sentinel knows, or a cluster.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Cmd, RedisResult, TlsMode, Value};

use super::connect::{address, certificates, config, to_server};
use super::node::Node;
use super::nodes::Nodes;
use super::settings::{Server, Servers, Settings};

/// A connection, which many requests share.
#[derive(Clone)]
pub(super) enum Connection {
    /// To one server.
    Single(MultiplexedConnection),
    /// To the nodes of a cluster.
    Cluster(Nodes),
}

/// A server; on a cluster, a node.
pub(super) type Place = Option<Arc<Node>>;

impl Connection {
    /// Whether it is one to a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Connects.
    pub(super) async fn open(settings: &Settings) -> RedisResult<Self> {
        match &settings.servers {
            Servers::Single(server) => to_server(server, settings).await.map(Self::Single),
            Servers::Sentinel { master, sentinels } => {
                let mut client = sentinel(master, sentinels, settings)?.build()?;
                let config = config(settings, sentinels.len());
                let connection = client.get_async_connection_with_config(&config);
                Ok(Self::Single(connection.await?))
            }
            Servers::Cluster(_) => Nodes::open(settings).await.map(Self::Cluster),
        }
    }

    /// Sends one command. An error that the server replies is an error.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(connection) => {
                connection.clone().req_packed_command(command).await?.extract_error()
            }
            Self::Cluster(nodes) => nodes.send(command).await,
        }
    }

    /// The servers that have the keys: the one, or the primaries of a cluster.
    pub(super) fn primaries(&self) -> Vec<Place> {
        match self {
            Self::Single(_) => vec![None],
            Self::Cluster(nodes) => nodes.primaries().into_iter().map(Some).collect(),
        }
    }

    /// All servers, replicas of a cluster as well.
    pub(super) fn servers(&self) -> Vec<Place> {
        match self {
            Self::Single(_) => vec![None],
            Self::Cluster(nodes) => nodes.all().into_iter().map(Some).collect(),
        }
    }

    /// Whether each server that has keys fails.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Self::Single(_) => false,
            Self::Cluster(nodes) => nodes.primaries().iter().all(|node| node.is_away()),
        }
    }

    /// Whether the node of a cluster that has this key does not reply.
    pub(super) fn is_key_away(&self, key: &[u8]) -> bool {
        match self {
            Self::Single(_) => false,
            Self::Cluster(nodes) => nodes.is_away(key),
        }
    }

    /// The nodes of a cluster that do not reply, and why.
    pub(super) fn nodes_away(&self) -> Vec<(String, String)> {
        let Self::Cluster(nodes) = self else { return Vec::new() };
        let primaries = nodes.primaries();
        primaries.iter().filter_map(|one| Some((one.to_string(), one.why_away()?))).collect()
    }

    /// Sends one command to this server; else as [`Connection::send`].
    pub(super) async fn send_to(&self, place: &Place, command: &Cmd) -> RedisResult<Value> {
        match (self, place) {
            (Self::Cluster(nodes), Some(node)) => nodes.send_to(node, command).await,
            _ => self.send(command).await,
        }
    }

    /// Sends several commands to this server; else as [`Connection::send_all`].
    pub(super) async fn send_all_to(
        &self,
        place: &Place,
        commands: &[Cmd],
    ) -> Vec<RedisResult<Value>> {
        join_all(commands.iter().map(|one| self.send_to(place, one))).await
    }

    /// Sends several commands without waiting for replies in between; returns the reply of
    /// each.
    pub(super) async fn send_all(&self, commands: &[Cmd]) -> Vec<RedisResult<Value>> {
        join_all(commands.iter().map(|command| self.send(command))).await
    }
}

fn sentinel(
    master: &str,
    sentinels: &[Server],
    settings: &Settings,
) -> RedisResult<SentinelClientBuilder> {
    let addresses = sentinels.iter().map(address);
    let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
    if let Some(user) = &settings.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &settings.password {
        builder = builder.set_client_to_redis_password(&password.0);
    }
    if sentinels.iter().any(Server::is_tls) {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        if let Some(certificates) = certificates(settings) {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates);
        }
    }
    Ok(builder)
}
