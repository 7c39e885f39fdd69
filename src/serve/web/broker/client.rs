//! Asks the broker.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::wire::{REPLY_MAX, Reply, Request, read, write};

/// How long a reply is waited for: an unblocking reads the whole database.
const DEADLINE: Duration = Duration::from_secs(30);

/// Asks the broker at `socket`.
///
/// # Errors
/// There was no reply, in words: what was asked for may have been done.
pub async fn ask(socket: &Path, request: &Request) -> Result<Reply, String> {
    let line = write(request)?;
    let failed = |error: io::Error| format!("the broker at {}: {error}", socket.display());
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(&line).await?;
        let mut reply = Vec::new();
        stream.take(REPLY_MAX as u64 + 1).read_to_end(&mut reply).await?;
        Ok(reply)
    };
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let reply = timeout(DEADLINE, asked).await.map_err(late).flatten().map_err(failed)?;
    read(&reply).map_err(|why| failed(io::Error::other(why)))
}
