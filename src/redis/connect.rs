//! Connects to one server, with the user, the password and the certificates of the settings.

use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, RedisConnectionInfo, RedisResult, TlsCertificates,
};

use super::settings::{Server, Settings, Transport};

/// How long a connection may take, however short the deadline of requests is: none of them
/// waits longer for it than for a reply.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How long the connection to one of so many servers may take, which are tried one after the
/// other, and each reply.
pub(super) fn config(settings: &Settings, servers: usize) -> AsyncConnectionConfig {
    let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.deadline.max(CONNECT_MAX / servers)))
        .set_response_timeout(Some(settings.deadline))
}

/// Connects to a server.
pub(super) async fn to_server(
    server: &Server,
    settings: &Settings,
) -> RedisResult<MultiplexedConnection> {
    let info = info(server, settings)?;
    let client = match certificates(settings) {
        Some(certificates) if server.is_tls() => Client::build_with_tls(info, certificates)?,
        _ => Client::open(info)?,
    };
    client.get_multiplexed_async_connection_with_config(&config(settings, 1)).await
}

/// Runs all of `futures` at the same time until one succeeds: its result, else the last error.
pub(super) async fn first_ok<T, F>(futures: Vec<F>) -> RedisResult<T>
where
    F: Future<Output = RedisResult<T>> + Unpin,
{
    if futures.is_empty() {
        return Err((ErrorKind::ClusterConnectionNotFound, "nobody can be asked").into());
    }
    select_ok(futures).await.map(|(reply, _)| reply)
}

pub(super) fn certificates(settings: &Settings) -> Option<TlsCertificates> {
    let root_cert = settings.ca.clone();
    root_cert.map(|ca| TlsCertificates { client_tls: None, root_cert: Some(ca) })
}

pub(super) fn address(server: &Server) -> ConnectionAddr {
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
