//! The scripts, which are called by their hashes.

use std::borrow::Cow;

use redis::{Cmd, ErrorKind, RedisResult, Script, ServerErrorKind, Value, cmd};

use super::connection::Connection;

/// A script.
pub(super) struct Loaded {
    pub(super) text: Cow<'static, str>,
    pub(super) hash: String,
}

impl Loaded {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Calls it; `complete` adds the keys and arguments.
    pub(super) async fn call(
        &self,
        connection: &Connection,
        complete: impl Fn(&mut Cmd),
    ) -> RedisResult<Value> {
        let command = |name: &str, script: &str| {
            let mut command = cmd(name);
            complete(command.arg(script));
            command
        };
        match connection.send(&command("EVALSHA", &self.hash)).await {
            Err(error) if is_no_script(&error) => {
                connection.send(&command("EVAL", &self.text)).await
            }
            reply => reply,
        }
    }
}

/// Whether the server does not know the script, since a restart, a failover or FLUSH.
pub(super) fn is_no_script(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
