//! A connection of the program's commands, which wait for each reply.

use std::io;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::connection::Connection;
use super::error::RedisError;
use super::settings::Settings;

/// How long a command may take, and its connection: nobody waits for it in an SMTP session.
pub(super) const TOOL_MAX: Duration = Duration::from_secs(3);

/// The settings of the agent, for a command.
pub(super) fn settings(agent: &Settings) -> Settings {
    Settings { deadline: agent.deadline.max(TOOL_MAX), ..agent.clone() }
}

/// What runs a command's requests.
pub(super) fn runtime() -> Result<Runtime, RedisError> {
    Builder::new_current_thread().enable_all().build().map_err(RedisError::Start)
}

/// The connection.
pub(super) struct Tool {
    runtime: Runtime,
    connection: Connection,
}

impl Tool {
    /// Connects as the agent does.
    pub(super) fn open(agent: &Settings) -> Result<Self, RedisError> {
        let runtime = runtime()?;
        let connection = runtime.block_on(in_time(Connection::open(&settings(agent))))?;
        Ok(Self { runtime, connection })
    }

    /// Sends one command, and waits for its reply.
    pub(super) fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let connection = &self.connection;
        self.runtime.block_on(in_time(connection.send(command)))
    }

    /// Runs what several commands are needed for.
    pub(super) fn run<T>(
        &self,
        work: impl AsyncFnOnce(&Connection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let connection = &self.connection;
        self.runtime.block_on(in_time(work(connection)))
    }
}

/// Waits for a result as long as a command may take.
async fn in_time<T, E: Into<RedisError>>(
    result: impl Future<Output = Result<T, E>>,
) -> Result<T, RedisError> {
    within(TOOL_MAX, result).await
}

/// Waits for a result, at most this long: what is asked of sentinels has no time limit of its
/// own.
pub(super) async fn within<T, E: Into<RedisError>>(
    limit: Duration,
    result: impl Future<Output = Result<T, E>>,
) -> Result<T, RedisError> {
    match timeout(limit, result).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(redis::RedisError::from(io::Error::from(io::ErrorKind::TimedOut)).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::super::inspect::SharedRates;
    use super::super::settings::{Server, Servers, Transport};
    use super::super::{SharedEvents, examine};
    use super::*;
    use crate::store::Memory;

    /// Servers, sentinels and nodes that are connected to, and never reply.
    #[test]
    fn no_command_waits_for_servers_that_stand_still() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let transport = Transport::Tcp { host: "127.0.0.1".into(), port, tls: false };
        let server = || Server { transport: transport.clone(), database: 0 };
        let sentinels = vec![server(), server()];
        for servers in [
            Servers::Single(server()),
            Servers::Sentinel { master: "primary".into(), sentinels },
            Servers::Cluster(vec![server(), server()]),
        ] {
            let deadline = Duration::from_millis(100);
            let settings = Settings { servers, user: None, password: None, ca: None, deadline };
            let begun = Instant::now();
            let errors = [
                SharedRates::connect(&settings, Box::new(Memory::new())).err(),
                SharedEvents::connect(&settings).err(),
                examine(&settings).err(),
            ];
            for error in errors {
                let error = error.expect("nothing has replied").to_string();
                let said = ["no reply in time", "Io: timed out"];
                assert!(said.iter().any(|words| error.contains(words)), "{error}");
            }
            assert!(begun.elapsed() < 4 * TOOL_MAX, "{:?}", begun.elapsed());
        }
    }
}
