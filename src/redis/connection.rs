//! A connection to the servers: one, a primary that Sentinel knows, or a cluster.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Cmd, ErrorKind, RedisResult, Value};

use super::connect::to_server;
use super::line::RedisLine;
use super::node::Node;
use super::nodes::Nodes;
use super::sentinel::Sentinels;
use super::settings::{Server, Servers, Settings};

/// A connection, which many requests share.
#[derive(Clone)]
pub(super) enum Connection {
    /// To one server.
    Single(Arc<Single>),
    /// To the nodes of a cluster.
    Cluster(Nodes),
}

/// One server, and the sentinels that have named it.
pub(super) struct Single {
    server: Server,
    line: RedisLine,
    settings: Settings,
    sentinels: Option<Sentinels>,
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
            Servers::Single(server) => Self::to_one(server.clone(), None, settings).await,
            Servers::Sentinel { .. } => {
                let sentinels = Sentinels::of(settings);
                let server = match &sentinels {
                    Some(sentinels) => sentinels.primary().await?,
                    None => return Err((ErrorKind::EmptySentinelList, "no sentinel").into()),
                };
                Self::to_one(server, sentinels, settings).await
            }
            Servers::Cluster(_) => Nodes::open(settings).await.map(Self::Cluster),
        }
    }

    async fn to_one(
        server: Server,
        sentinels: Option<Sentinels>,
        settings: &Settings,
    ) -> RedisResult<Self> {
        let line = RedisLine::of(to_server(&server, settings).await?);
        let settings = settings.clone();
        Ok(Self::Single(Arc::new(Single { server, line, settings, sentinels })))
    }

    /// The sentinels that have named the server, and this server.
    pub(super) fn sentinels(&self) -> Option<(&Sentinels, &Server)> {
        match self {
            Self::Single(one) => Some((one.sentinels.as_ref()?, &one.server)),
            Self::Cluster(_) => None,
        }
    }

    /// Sends one command. An error that the server replies is an error.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(one) => {
                one.line.exchange(&one.server, &one.settings, command, false).await
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

    /// Sends several commands at once to this server; returns the reply of each.
    pub(super) async fn send_all_to(
        &self,
        place: &Place,
        commands: Vec<Cmd>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let replies = match (self, place) {
            (Self::Single(one), _) => {
                one.line.exchange_all(&one.server, &one.settings, commands).await
            }
            (Self::Cluster(nodes), Some(node)) => nodes.send_all_to(node, commands).await,
            (Self::Cluster(_), None) => return Ok(self.send_all(&commands).await),
        };
        Ok(replies?.into_iter().map(Value::extract_error).collect())
    }

    /// Sends several commands without waiting for replies in between; returns the reply of
    /// each.
    pub(super) async fn send_all(&self, commands: &[Cmd]) -> Vec<RedisResult<Value>> {
        join_all(commands.iter().map(|command| self.send(command))).await
    }
}
