//! Where Exim receives mail by SMTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::mta::exim::{Exim, items};
use crate::setup::SetupError;

/// How long Exim may take to accept a connection.
const TIMEOUT: Duration = Duration::from_secs(5);
const SMTP: u16 = 25;

/// The address to connect to: a loopback one, if Exim listens there.
pub(super) fn address(exim: &Exim) -> Result<SocketAddr, SetupError> {
    let output = exim.run(&["-bP", "local_interfaces", "daemon_smtp_ports"]);
    let output = output.map_err(SetupError::Unfit)?;
    let value = |name: &str| {
        let lines = output.stdout.lines().filter_map(|line| line.split_once('='));
        let mut lines = lines.filter(|(known, _)| known.trim() == name);
        lines.next().map_or(Vec::new(), |(_, value)| items(value))
    };
    let ports = value("daemon_smtp_ports");
    let port = ports.iter().find_map(|port| port.parse().ok()).unwrap_or(SMTP);
    Ok(choose(&value("local_interfaces"), port))
}

/// The address of `interfaces` to connect to; `port` is that of those without one.
fn choose(interfaces: &[String], port: u16) -> SocketAddr {
    let parsed: Vec<SocketAddr> =
        interfaces.iter().filter_map(|one| interface(one, port)).collect();
    let loopback = parsed.iter().find(|address| address.ip().is_loopback());
    let any = parsed.iter().find(|address| address.ip().is_unspecified());
    let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match (loopback, any) {
        (Some(address), _) => *address,
        (None, Some(any)) => SocketAddr::new(own, any.port()),
        (None, None) => parsed.first().copied().unwrap_or(SocketAddr::new(own, port)),
    }
}

/// `192.0.2.1`, `192.0.2.1.26`, `[192.0.2.1]:26`, `2001:db8::1`
fn interface(text: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, port));
    }
    if let Some((address, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        return Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?));
    }
    let (address, port) = text.rsplit_once('.')?;
    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
}

/// Whether something accepts connections there.
pub(super) fn answers(address: &SocketAddr) -> Result<(), SetupError> {
    match TcpStream::connect_timeout(address, TIMEOUT) {
        Ok(_) => Ok(()),
        Err(error) => Err(SetupError::Unfit(format!(
            "Exim does not accept connections on {address}: {error}; start it, then run `exirate \
             setup` again"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_comes_first() {
        let chosen = |text: &str| choose(&items(text), 25).to_string();
        assert_eq!(chosen(""), "127.0.0.1:25");
        assert_eq!(chosen("<; 192.0.2.1 ; ::1"), "[::1]:25");
        assert_eq!(chosen("<; 0.0.0.0.26 ; 192.0.2.1"), "127.0.0.1:26");
        assert_eq!(chosen("<; [127.0.0.1]:587"), "127.0.0.1:587");
        assert_eq!(chosen("192.0.2.1"), "192.0.2.1:25");
    }
}
