//! Asks `exirate serve mail`, as Exim's ACLs do.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::net::{Shutdown, shutdown};

use crate::policy::reply::Fields;

/// The longest reply that is read.
const REPLY_MAX: u64 = 64 << 10;

/// The reply to a request, on a connection of its own, which has its timeouts.
///
/// # Errors
/// The connection is lost, or the daemon closes it as it cannot decide.
pub(in crate::cli) fn ask(
    mut stream: impl Read + Write + AsFd,
    request: &str,
) -> io::Result<Fields> {
    stream.write_all(request.trim_end().as_bytes())?;
    stream.write_all(b"\n\n")?;
    shutdown(&stream, Shutdown::Write)?;
    let mut reply = Vec::new();
    stream.take(REPLY_MAX).read_to_end(&mut reply)?;
    if reply.is_empty() {
        return Err(io::Error::other("the daemon could not decide"));
    }
    Ok(Fields::parse(&reply))
}
