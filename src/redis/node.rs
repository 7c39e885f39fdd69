//! A node of a Redis Cluster: its connection, and whether it replies.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

use super::error::{RedisError, concerns_all};
use super::line::{End, RedisLine};
use super::settings::{Server, Settings, Transport};

/// The pause after a first failure, in which nobody asks. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: within a second after a node is back, all ask it again.
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// Requests that were given up within so short a time do not show that the node is silent.
const SILENCE_MIN: Duration = Duration::from_millis(10);

/// The name and the port of a node.
pub(super) type Address = (String, u16);

/// The node.
pub(super) struct Node {
    pub(super) address: Address,
    line: RedisLine,
    health: Mutex<Health>,
}

/// What is known from the latest requests.
#[derive(Default)]
struct Health {
    /// How many have failed, one after the other.
    failures: u32,
    /// Until when nobody asks; `None` if the latest has not failed.
    until: Option<Instant>,
    /// When one failed last.
    failed: Option<Instant>,
    /// When one was replied to last.
    replied: Option<Instant>,
    /// When the first of those was begun that were given up since then.
    silent: Option<Instant>,
    /// Why the latest failed.
    why: String,
}

impl Health {
    fn replied(&mut self) {
        (self.failures, self.until, self.replied) = (0, None, Some(Instant::now()));
        self.silent = None;
    }

    /// A request that was begun at this time was given up. Its deadline may be shorter than any
    /// reply takes: a node is silent if it has not replied to anybody for some time.
    fn given_up(&mut self, begun: Instant, now: Instant) {
        if self.replied.is_some_and(|replied| replied >= begun) {
            return;
        }
        let silent = *self.silent.get_or_insert(begun);
        if now.duration_since(silent) >= SILENCE_MIN {
            self.failed(begun, "no reply in time".to_owned());
        }
    }

    /// A request that was begun at this time has failed. Those that were begun before another one
    /// failed are of the same fault: they add nothing but time.
    fn failed(&mut self, begun: Instant, why: String) {
        let now = Instant::now();
        let is_another = self.failed.is_none_or(|failed| failed < begun);
        if is_another {
            self.failures = self.failures.saturating_add(1);
            (self.failed, self.why) = (Some(now), why);
        }
        let doubled = self.failures.saturating_sub(1).min(5);
        self.until = Some(now + PAUSE_MAX.min(PAUSE_MIN * (1 << doubled)));
    }
}

impl Node {
    pub(super) fn new(address: Address) -> Self {
        Self { address, line: RedisLine::default(), health: Mutex::default() }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the latest request has failed.
    pub(super) fn is_away(&self) -> bool {
        self.health().until.is_some()
    }

    /// Why it does not reply, if several requests in a row have failed.
    pub(super) fn why_away(&self) -> Option<String> {
        let health = self.health();
        (health.failures > 1).then(|| health.why.clone())
    }

    /// Sends a command, after ASKING if `asking` says so. While the node is away, this fails at
    /// once, but for one request from time to time.
    ///
    /// A future that is dropped before it is ready leaves the connection in order; if nothing
    /// came from the node meanwhile, that is a failure.
    pub(super) async fn ask(
        self: &Arc<Self>,
        settings: &Settings,
        command: &Cmd,
        asking: bool,
    ) -> RedisResult<Value> {
        self.begin()?;
        let attempt = Attempt { node: self, begun: Instant::now(), has_ended: false };
        self.reply_to(attempt, settings, command, asking).await
    }

    /// As [`Node::ask`], for what several nodes are asked at the same time: that one is dropped,
    /// as another node has replied first, says nothing of this one.
    pub(super) async fn look(
        self: &Arc<Self>,
        settings: &Settings,
        command: &Cmd,
    ) -> RedisResult<Value> {
        self.begin()?;
        let attempt = Attempt { node: self, begun: Instant::now(), has_ended: true };
        self.reply_to(attempt, settings, command, false).await
    }

    async fn reply_to(
        self: &Arc<Self>,
        attempt: Attempt<'_>,
        settings: &Settings,
        command: &Cmd,
        asking: bool,
    ) -> RedisResult<Value> {
        let end = Asked { node: Arc::clone(self), begun: attempt.begun };
        let result = self.line.exchange(&end, settings, command, asking).await;
        self.has_ended(attempt, result.as_ref().err());
        result
    }

    /// Sends several commands at once; a reply may be an error.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        settings: &Settings,
        commands: Vec<Cmd>,
    ) -> RedisResult<Vec<Value>> {
        self.begin()?;
        let attempt = Attempt { node: self, begun: Instant::now(), has_ended: false };
        let end = Asked { node: Arc::clone(self), begun: attempt.begun };
        let result = self.line.exchange_all(&end, settings, commands).await;
        self.has_ended(attempt, result.as_ref().err());
        result
    }

    fn has_ended(&self, mut attempt: Attempt<'_>, failed: Option<&redis::RedisError>) {
        attempt.has_ended = true;
        match failed {
            Some(error) if concerns_all(error) && !is_of_request(error) => {
                self.health().failed(attempt.begun, RedisError::reason(error));
                self.line.hang_up();
            }
            _ => self.health().replied(),
        }
    }

    /// Whether this request may be sent: one at a time tries while the node is away.
    fn begin(&self) -> RedisResult<()> {
        let mut health = self.health();
        let now = Instant::now();
        match health.until {
            Some(until) if now < until => Err(self.away(&health.why)),
            Some(_) => {
                health.until = Some(now + PAUSE_MAX);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn away(&self, why: &str) -> redis::RedisError {
        let detail = format!("{self} is away: {why}");
        (ErrorKind::ClusterConnectionNotFound, "a node is away", detail).into()
    }

    /// An error, if another request has failed since this time.
    fn not_failed_since(&self, begun: Instant) -> RedisResult<()> {
        let health = self.health();
        match health.failed {
            Some(failed) if failed >= begun => Err(self.away(&health.why)),
            _ => Ok(()),
        }
    }
}

/// A node that a request asks which was begun at this time. While a connection is made, the node is
/// away for the requests that follow.
#[derive(Clone)]
struct Asked {
    node: Arc<Node>,
    begun: Instant,
}

impl End for Asked {
    /// By TLS, if the nodes of the configuration are connected to so.
    fn server(&self, settings: &Settings) -> Server {
        let tls = settings.servers.all().iter().any(Server::is_tls);
        let (host, port) = self.node.address.clone();
        Server { transport: Transport::Tcp { host, port, tls }, database: 0 }
    }

    fn may_connect(&self) -> RedisResult<()> {
        self.node.not_failed_since(self.begun)
    }

    fn has_connected(&self, result: Result<(), &redis::RedisError>) {
        match result {
            Ok(()) => self.node.health().replied(),
            Err(error) => {
                self.node.health().failed(Instant::now(), RedisError::reason(error));
            }
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = &self.address;
        let [open, close] = if host.contains(':') { ["[", "]"] } else { ["", ""] };
        write!(f, "{open}{host}{close}:{port}")
    }
}

/// Whether the node works, and another one is to be asked, or this one again.
fn is_of_request(error: &redis::RedisError) -> bool {
    let ErrorKind::Server(kind) = error.kind() else { return false };
    matches!(
        kind,
        ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::NoScript
    )
}

/// A request that is being sent.
struct Attempt<'n> {
    node: &'n Node,
    begun: Instant,
    /// Or that it is dropped says nothing.
    has_ended: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.node.health().given_up(self.begun, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_replies_to_nobody_is_silent_however_early_each_gives_up() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut health = Health::default();
        for begun in [0, 3] {
            health.given_up(at(begun), at(begun + 2));
            assert!(health.until.is_none() && health.failures == 0);
        }
        health.given_up(at(9), at(11));
        assert!(health.until.is_some() && health.failures == 1);
        // One that was replied to, late or not, begins again.
        let mut health = Health::default();
        health.given_up(at(0), at(2));
        health.replied();
        let later = Instant::now() + Duration::from_millis(100);
        health.given_up(later, later + Duration::from_millis(2));
        assert!(health.until.is_none());
        // Others were replied to since it was begun.
        health.given_up(at(0), at(900));
        assert!(health.until.is_none());
    }
}
