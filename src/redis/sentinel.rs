//! Which server is the primary, as the sentinels say.
//!
//! Where a majority of them names a server, that is the primary: the sentinels of a minority may
//! have been cut off from the others, and know nothing of a failover. A new connection goes where
//! most of those lead that reply; one that is open stays where it is until a majority names another
//! server, which is looked at each second, and whenever a sentinel says that it has switched.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind, RedisResult, Value, cmd};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connect::subscribe;
use super::line::RedisLine;
use super::settings::{Server, Servers, Settings, Transport};

/// How long the sentinels may take together.
const ASK_MAX: Duration = Duration::from_secs(1);
/// The pause before another attempt to subscribe.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(5);

/// The sentinels.
pub(super) struct Sentinels {
    settings: Settings,
    master: String,
    all: Vec<(Server, RedisLine)>,
}

/// What they say.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The servers that they name, and how many name each, the most first.
    pub(super) named: Vec<(Server, usize)>,
    /// How many reply.
    pub(super) reached: usize,
    /// How many there are.
    pub(super) all: usize,
    /// Why one does not.
    failed: Option<redis::RedisError>,
}

impl Said {
    /// The primary, if a majority of all names it.
    pub(super) fn by_majority(&self) -> Option<&Server> {
        self.named.first().filter(|(_, count)| *count * 2 > self.all).map(|(server, _)| server)
    }

    fn add(&mut self, reply: RedisResult<Option<Server>>) {
        match reply {
            Ok(named) => {
                self.reached += 1;
                let Some(named) = named else { return };
                match self.named.iter_mut().find(|(server, _)| *server == named) {
                    Some((_, count)) => *count += 1,
                    None => self.named.push((named, 1)),
                }
                self.named.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            }
            Err(error) => self.failed = Some(error),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} sentinels reply", self.reached, self.all)?;
        for (server, count) in &self.named {
            write!(f, ", {count} name {server}")?;
        }
        Ok(())
    }
}

impl Sentinels {
    /// Those of the settings; `None` if there are none.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        let Servers::Sentinel { master, sentinels } = &settings.servers else { return None };
        // The user and the password are those of the servers.
        let own = Settings { user: None, password: None, ..settings.clone() };
        let all = sentinels.iter().map(|one| (one.clone(), RedisLine::default())).collect();
        Some(Self { settings: own, master: master.clone(), all })
    }

    /// The server to connect to.
    pub(super) async fn primary(&self) -> RedisResult<Server> {
        let said = self.ask().await;
        match (said.named.first(), said.reached, said.failed) {
            (Some((server, _)), ..) => Ok(server.clone()),
            (None, 0, Some(error)) => Err(error),
            (None, ..) => Err((
                ErrorKind::MasterNameNotFoundBySentinel,
                "no sentinel knows the name",
                self.master.clone(),
            )
                .into()),
        }
    }

    /// Asks all of them at the same time, until a majority agrees.
    pub(super) async fn ask(&self) -> Said {
        self.ask_until(|said| said.by_majority().is_some()).await
    }

    /// Asks all of them at the same time.
    pub(super) async fn ask_all(&self) -> Said {
        self.ask_until(|_| false).await
    }

    async fn ask_until(&self, is_enough: impl Fn(&Said) -> bool) -> Said {
        let mut said = Said { all: self.all.len(), ..Said::default() };
        let mut asked: FuturesUnordered<_> =
            self.all.iter().map(|(server, line)| self.ask_one(server, line)).collect();
        let replies = async {
            while let Some(reply) = asked.next().await {
                said.add(reply);
                if is_enough(&said) {
                    break;
                }
            }
        };
        if timeout(ASK_MAX, replies).await.is_err() && said.failed.is_none() {
            said.failed = Some(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        }
        said
    }

    async fn ask_one(&self, server: &Server, line: &RedisLine) -> RedisResult<Option<Server>> {
        let reply = line.exchange(server, &self.settings, &self.command(), false).await?;
        let tls = server.is_tls();
        match reply {
            Value::Nil => Ok(None),
            Value::Array(parts) => match &parts[..] {
                [Value::BulkString(host), Value::BulkString(port)] => {
                    let host = String::from_utf8_lossy(host).into_owned();
                    let port = String::from_utf8_lossy(port).parse();
                    let port = port.map_err(|_| (ErrorKind::Parse, "the port of a primary"))?;
                    let transport = Transport::Tcp { host, port, tls };
                    Ok(Some(Server { transport, database: 0 }))
                }
                _ => Err((ErrorKind::Parse, "the address of a primary").into()),
            },
            _ => Err((ErrorKind::Parse, "the address of a primary").into()),
        }
    }

    fn command(&self) -> Cmd {
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master).clone()
    }

    /// Notifies `switched` whenever a sentinel says that a primary was replaced, until the result is
    /// dropped.
    pub(super) fn listen(&self, switched: &Arc<Notify>) -> JoinSet<()> {
        let mut listening = JoinSet::new();
        for (server, _) in &self.all {
            let (server, settings) = (server.clone(), self.settings.clone());
            let switched = Arc::clone(switched);
            listening.spawn(async move {
                loop {
                    // What is not heard is found by asking.
                    if let Ok(mut messages) = subscribe(&server, &settings, "+switch-master").await
                    {
                        while messages.next().await.is_some() {
                            switched.notify_one();
                        }
                    }
                    sleep(SUBSCRIBE_PAUSE).await;
                }
            });
        }
        listening
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_all_decides_and_not_of_those_that_reply() {
        let server = |port| {
            let transport = Transport::Tcp { host: "192.0.2.1".into(), port, tls: false };
            Server { transport, database: 0 }
        };
        let away = || Err((ErrorKind::Io, "away").into());
        for (replies, first, decided) in [
            (vec![Ok(Some(server(1))), away(), away()], Some(1), false),
            (vec![Ok(Some(server(1))), Ok(Some(server(1))), away()], Some(1), true),
            (vec![Ok(Some(server(2))), Ok(Some(server(1))), Ok(Some(server(1)))], Some(1), true),
            (vec![Ok(Some(server(2))), Ok(Some(server(1))), away()], Some(2), false),
            (vec![Ok(None), Ok(None), away()], None, false),
            (vec![Ok(Some(server(1))), away()], Some(1), false),
        ] {
            let mut said = Said { all: replies.len(), ..Said::default() };
            replies.into_iter().for_each(|reply| said.add(reply));
            let named = said.named.first().map(|(server, _)| server.clone());
            assert_eq!(named, first.map(server), "{said}");
            assert_eq!(said.by_majority().is_some(), decided, "{said}");
        }
    }
}
