//! Connects to one server, with the user, the password and the certificates of the settings.

use std::time::Duration;

use futures_util::Stream;
use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, RedisConnectionInfo, RedisResult, TlsCertificates,
};

use super::settings::{Server, Settings, Transport};

/// How long a connection may take, however short the deadline of requests is: none of them
/// waits longer for it than for a reply.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Connects to a server.
pub(super) async fn to_server(
    server: &Server,
    settings: &Settings,
) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.deadline.max(CONNECT_MAX)))
        .set_response_timeout(Some(settings.deadline));
    client(server, settings)?.get_multiplexed_async_connection_with_config(&config).await
}

/// What a server publishes in this channel.
pub(super) async fn subscribe(
    server: &Server,
    settings: &Settings,
    channel: &str,
) -> RedisResult<impl Stream<Item = redis::Msg> + use<>> {
    let mut messages = client(server, settings)?.get_async_pubsub().await?;
    messages.subscribe(channel).await?;
    Ok(messages.into_on_message())
}

fn client(server: &Server, settings: &Settings) -> RedisResult<Client> {
    let info = info(server, settings)?;
    match &settings.ca {
        Some(ca) if server.is_tls() => {
            let root_cert = Some(ca.clone());
            Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
        }
        _ => Client::open(info),
    }
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
    // Else a request waits until the one before it is acknowledged.
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = address(server).into_connection_info()?;
    Ok(info.set_redis_settings(redis).set_tcp_settings(tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else many requests far away are undecided: `scripts/bench far` shows how many.
    #[test]
    fn no_request_waits_until_the_one_before_it_is_acknowledged() {
        for tls in [false, true] {
            let server = Server {
                transport: Transport::Tcp { host: "192.0.2.1".into(), port: 6379, tls },
                database: 3,
            };
            let servers = super::super::settings::Servers::Single(server.clone());
            let deadline = Duration::from_millis(100);
            let settings = Settings { servers, user: None, password: None, ca: None, deadline };
            let info = info(&server, &settings).unwrap();
            assert!(info.tcp_settings().nodelay());
            assert_eq!(info.redis_settings().db(), 3);
            let used = client(&server, &settings).unwrap();
            assert!(used.get_connection_info().tcp_settings().nodelay());
        }
    }
}
