//! The address of a Redis server, as a URL.

use crate::redis::{Server, Transport};

/// The port of Redis.
pub(super) const REDIS_PORT: u16 = 6379;
/// The port of Sentinel.
pub(super) const SENTINEL_PORT: u16 = 26379;

/// Whether others may read what is sent, as it leaves this machine in clear text.
pub(super) fn in_clear_text(server: &Server) -> bool {
    let Transport::Tcp { host, tls: false, .. } = &server.transport else { return false };
    let address = host.parse().map(|ip: std::net::IpAddr| ip.is_loopback());
    !address.unwrap_or(host == "localhost")
}

/// Reads a URL; `port` is the port where it names none.
pub(super) fn parse(url: &str, port: u16) -> Result<Server, String> {
    const EXPECTED: &str = "expected such as redis://192.0.2.1:6379, rediss://redis.example.org for TLS, or \
         unix:///run/redis/redis.sock";
    let wrong = || format!("{url:?} is not the address of a server; {EXPECTED}");
    if let Some(rest) = url.strip_prefix("unix://") {
        if !rest.starts_with('/') || rest.contains(['?', '#']) {
            return Err(wrong());
        }
        return Ok(Server { transport: Transport::Unix(rest.into()), database: 0 });
    }
    let tls = url.strip_prefix("rediss://");
    let rest = tls.or_else(|| url.strip_prefix("redis://")).ok_or_else(wrong)?;
    if rest.contains('@') {
        return Err("a user or password does not belong in the address; write user = \"…\" \
                    and password_file = \"…\""
            .to_owned());
    }
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match database {
        "" => 0,
        number => number
            .parse()
            .ok()
            .filter(|number| (0..=65535).contains(number))
            .ok_or_else(|| format!("{number:?} is not the number of a database"))?,
    };
    let (host, number) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(wrong)?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong());
            }
            (host, after)
        }
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let port = match number.strip_prefix(':') {
        Some(number) => number.parse().ok().filter(|&port| port > 0).ok_or_else(wrong)?,
        None if number.is_empty() => port,
        None => return Err(wrong()),
    };
    let of_name = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || !host.chars().all(of_name) {
        return Err(wrong());
    }
    let transport = Transport::Tcp { host: host.to_owned(), port, tls: tls.is_some() };
    Ok(Server { transport, database })
}
