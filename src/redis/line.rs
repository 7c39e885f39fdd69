//! A line to one server: a connection that many requests share, made when it is first needed and
//! again when it has broken.

use std::io;
use std::sync::Arc;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisResult, Value, pipe};
use tokio::sync::Mutex;

use super::connect::to_server;
use super::settings::{Server, Settings};

/// The line.
#[derive(Clone, Default)]
pub(super) struct RedisLine {
    /// Locked while a connection is made.
    kept: Arc<Mutex<KeptLine>>,
}

#[derive(Default)]
struct KeptLine {
    connection: Option<MultiplexedConnection>,
    /// How many connections were made: of many requests that find one broken, the first alone
    /// makes another.
    made: u64,
}

/// What a line leads to.
pub(super) trait End: Clone + Send + 'static {
    /// How it is connected to.
    fn server(&self, settings: &Settings) -> Server;

    /// Whether a connection may be tried now.
    fn may_connect(&self) -> RedisResult<()> {
        Ok(())
    }

    /// A connection was made, or not.
    fn has_connected(&self, _result: Result<(), &redis::RedisError>) {}
}

impl End for Server {
    fn server(&self, _: &Settings) -> Server {
        self.clone()
    }
}

/// What is sent over a connection.
#[derive(Clone, Copy)]
enum SentLine<'s> {
    One(&'s Cmd),
    /// The reply is an array of those of each.
    All(&'s Pipeline),
}

impl SentLine<'_> {
    async fn over(self, mut connection: MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::One(command) => connection.req_packed_command(command).await,
            Self::All(commands) => {
                let count = commands.len();
                connection.req_packed_commands(commands, 0, count).await.map(Value::Array)
            }
        }
    }
}

impl RedisLine {
    /// One that is connected.
    pub(super) fn of(connection: MultiplexedConnection) -> Self {
        Self { kept: Arc::new(Mutex::new(KeptLine { connection: Some(connection), made: 1 })) }
    }

    /// Sends a command, after ASKING if `asking` says so.
    pub(super) async fn exchange(
        &self,
        end: &impl End,
        settings: &Settings,
        command: &Cmd,
        asking: bool,
    ) -> RedisResult<Value> {
        if !asking {
            return self.send(end, settings, SentLine::One(command)).await?.extract_error();
        }
        let both = pipe().cmd("ASKING").add_command(command.clone()).clone();
        let Value::Array(mut replies) = self.send(end, settings, SentLine::All(&both)).await?
        else {
            return Ok(Value::Nil);
        };
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Sends several commands at once; a reply may be an error.
    pub(super) async fn exchange_all(
        &self,
        end: &impl End,
        settings: &Settings,
        commands: Vec<Cmd>,
    ) -> RedisResult<Vec<Value>> {
        let mut all = Pipeline::with_capacity(commands.len());
        for command in commands {
            all.add_command(command);
        }
        match self.send(end, settings, SentLine::All(&all)).await? {
            Value::Array(replies) => Ok(replies),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends something over the connection or a new one.
    ///
    /// If the connection breaks before there is a reply, it is sent once more: it was closed
    /// while nobody asked, or the server has started again. Whatever is sent may come twice: the
    /// script knows the numbers of the latest events of a record, and the other commands set or
    /// remove something, or what they append has a number.
    async fn send(
        &self,
        end: &impl End,
        settings: &Settings,
        what: SentLine<'_>,
    ) -> RedisResult<Value> {
        let (connection, made, is_new) = self.connection(end, settings).await?;
        match what.over(connection).await {
            Err(error) if !is_new && error.is_connection_dropped() => {}
            result => return result,
        }
        {
            let mut kept = self.kept.lock().await;
            if kept.made == made {
                kept.connection = None;
            }
        }
        let (connection, ..) = self.connection(end, settings).await?;
        what.over(connection).await
    }

    /// The next request makes a new connection: one may get through where an old one hangs.
    pub(super) fn hang_up(&self) {
        if let Ok(mut kept) = self.kept.try_lock() {
            kept.connection = None;
        }
    }

    /// The connection, its number, and whether it is new.
    ///
    /// One that is being made is not given up with the request, which may have less time than
    /// it takes.
    async fn connection(
        &self,
        end: &impl End,
        settings: &Settings,
    ) -> RedisResult<(MultiplexedConnection, u64, bool)> {
        let mut kept = Arc::clone(&self.kept).lock_owned().await;
        if let Some(connection) = &kept.connection {
            return Ok((connection.clone(), kept.made, false));
        }
        end.may_connect()?;
        let (end, settings) = (end.clone(), settings.clone());
        let connecting = tokio::spawn(async move {
            let new = to_server(&end.server(&settings), &settings).await;
            if let Ok(connection) = &new {
                kept.connection = Some(connection.clone());
                kept.made += 1;
            }
            end.has_connected(new.as_ref().map(|_| ()));
            new.map(|connection| (connection, kept.made, true))
        });
        connecting.await.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}
