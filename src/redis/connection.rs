//! A connection to the servers: one, a primary that Sentinel knows, or a cluster.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, Value,
    cmd,
};

use super::settings::{Server, Servers, Settings, Transport};

/// How often the client of a cluster tries again by itself, within the deadline: after
/// MOVED, or when a node is lost.
const CLUSTER_RETRIES: u32 = 3;

/// A connection, which many requests share.
#[derive(Clone)]
pub(super) enum Connection {
    /// To one server.
    Single(MultiplexedConnection),
    /// To the nodes of a cluster.
    Cluster(ClusterConnection),
}

/// A server that has keys; on a cluster, its name and its port.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node(Option<(String, u16)>);

impl Connection {
    /// Connects.
    pub(super) async fn open(settings: &Settings) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.deadline))
            .set_response_timeout(Some(settings.deadline));
        match &settings.servers {
            Servers::Single(server) => {
                let info = info(server, settings)?;
                let client = match certificates(settings) {
                    Some(certificates) if server.is_tls() => {
                        Client::build_with_tls(info, certificates)?
                    }
                    _ => Client::open(info)?,
                };
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                Ok(Self::Single(connection.await?))
            }
            Servers::Sentinel { master, sentinels } => {
                let mut client = sentinel(master, sentinels, settings)?.build()?;
                let connection = client.get_async_connection_with_config(&config);
                Ok(Self::Single(connection.await?))
            }
            Servers::Cluster(nodes) => {
                let infos: RedisResult<Vec<ConnectionInfo>> =
                    nodes.iter().map(|node| info(node, settings)).collect();
                let mut builder = ClusterClientBuilder::new(infos?)
                    .retries(CLUSTER_RETRIES)
                    .min_retry_wait(1)
                    .max_retry_wait(20)
                    .connection_timeout(settings.deadline)
                    .response_timeout(settings.deadline)
                    .overall_response_timeout(Some(settings.deadline));
                if nodes.iter().any(Server::is_tls) {
                    builder = builder.tls(TlsMode::Secure);
                    if let Some(certificates) = certificates(settings) {
                        builder = builder.certs(certificates);
                    }
                }
                Ok(Self::Cluster(builder.build()?.get_async_connection().await?))
            }
        }
    }

    /// Sends one command. An error that the server replies is an error.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        }
        .and_then(Value::extract_error)
    }

    /// The servers that have the keys: the one, or the primaries of a cluster.
    pub(super) async fn primaries(&self) -> RedisResult<Vec<Node>> {
        let Self::Cluster(_) = self else { return Ok(vec![Node(None)]) };
        let mut connection = self.clone();
        let slots = connection.send(cmd("CLUSTER").arg("SLOTS")).await?;
        let mut nodes = Vec::new();
        for node in primaries(&slots).ok_or((ErrorKind::Parse, "CLUSTER SLOTS"))? {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Ok(nodes)
    }

    /// Sends one command to this server; else as [`Connection::send`].
    pub(super) async fn send_to(&self, node: &Node, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.clone();
        match (&mut connection, &node.0) {
            (Self::Cluster(connection), Some((host, port))) => {
                let (host, port) = (host.clone(), *port);
                let route = SingleNodeRoutingInfo::ByAddress { host, port };
                let route = RoutingInfo::SingleNode(route);
                connection.route_command(command.clone(), route).await?.extract_error()
            }
            (connection, _) => connection.send(command).await,
        }
    }

    /// Sends several commands to this server; else as [`Connection::send_all`].
    pub(super) async fn send_all_to(
        &self,
        node: &Node,
        commands: &[Cmd],
    ) -> Vec<RedisResult<Value>> {
        join(commands.iter().map(|one| Box::pin(self.send_to(node, one))).collect()).await
    }

    /// Sends several commands without waiting for replies in between; returns the reply of
    /// each.
    pub(super) async fn send_all(&self, commands: &[Cmd]) -> Vec<RedisResult<Value>> {
        let all = commands.iter().map(|command| {
            let mut connection = self.clone();
            Box::pin(async move { connection.send(command).await })
        });
        join(all.collect()).await
    }
}

/// The primaries in a reply to CLUSTER SLOTS, which has for each range of slots its two ends,
/// and then the nodes, the primary first.
fn primaries(slots: &Value) -> Option<Vec<Node>> {
    let Value::Array(ranges) = slots else { return None };
    let primary = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [_, _, Value::Array(primary), ..] = &parts[..] else { return None };
        let [Value::BulkString(host), Value::Int(port), ..] = &primary[..] else { return None };
        let host = String::from_utf8(host.clone()).ok()?;
        Some(Node(Some((host, u16::try_from(*port).ok()?))))
    };
    ranges.iter().map(primary).collect()
}

/// Runs all of `futures` at the same time; their results in order.
async fn join<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waits = false;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() {
                match std::pin::Pin::new(future).poll(context) {
                    std::task::Poll::Ready(output) => *result = Some(output),
                    std::task::Poll::Pending => waits = true,
                }
            }
        }
        if waits { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

fn certificates(settings: &Settings) -> Option<TlsCertificates> {
    let root_cert = settings.ca.clone();
    root_cert.map(|ca| TlsCertificates { client_tls: None, root_cert: Some(ca) })
}

fn address(server: &Server) -> ConnectionAddr {
    match &server.transport {
        Transport::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Transport::Tcp { host, port, tls: false } => ConnectionAddr::Tcp(host.clone(), *port),
        Transport::Tcp { host, port, tls: true } => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
    }
}

fn info(server: &Server, settings: &Settings) -> RedisResult<ConnectionInfo> {
    let mut redis = RedisConnectionInfo::default().set_db(server.database);
    if let Some(user) = &settings.user {
        redis = redis.set_username(user);
    }
    if let Some(password) = &settings.password {
        redis = redis.set_password(&password.0);
    }
    Ok(address(server).into_connection_info()?.set_redis_settings(redis))
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
