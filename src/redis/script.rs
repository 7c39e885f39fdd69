//! The scripts, which are called by their hashes.

use redis::{Cmd, ErrorKind, RedisResult, Script, ServerErrorKind, Value, cmd};

use super::connection::Connection;

/// A script.
pub(super) struct Loaded {
    pub(super) text: String,
    pub(super) hash: String,
}

impl Loaded {
    pub(super) fn new(text: &str) -> Self {
        let text = bare(text);
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

/// A script with the lines that shares need.
pub(super) fn with_shares(text: &str) -> String {
    text.replace("--share ", "")
}

/// A script without comments, indents and blanks beside operators. What TCP sends before the first acknowledgement is to
/// hold it: else loading it takes two round trips, and a server that is half of the deadline away
/// cannot be connected to.
fn bare(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    code.fold(String::new(), |mut bare, line| {
        let (mut before, mut is_quoted) = ('\n', false);
        for (at, c) in line.char_indices() {
            is_quoted ^= c == '\'';
            let stands_alone = |c: char| "=,+*/<>~(){}".contains(c);
            let is_beside = stands_alone(before) || line[at + 1..].starts_with(stands_alone);
            if c != ' ' || is_quoted || !is_beside {
                bare.push(c);
            }
            before = c;
        }
        bare + "\n"
    })
}

/// Whether the server does not know the script, since a restart, a failover or FLUSH.
pub(super) fn is_no_script(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By RFC 6928, ten segments, here with IPv6 and times; a part is for the arguments.
    #[test]
    fn a_script_is_sent_without_waiting_for_an_acknowledgement() {
        let bytes = Loaded::new(super::super::SCRIPT).text.len();
        assert!(bytes + 300 < 10 * 1428, "{bytes}");
    }

    #[test]
    fn code_alone_is_sent() {
        let text =
            "-- what\nlocal a = - 1 -- one\n\n  if a then\n    -- why\n    b('c = d', a)\n  end\n";
        assert_eq!(bare(text), "local a=- 1 -- one\nif a then\nb('c = d',a)\nend\n");
    }
}
