//! The policy services and milters that Postfix's lists name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::text::{inside, words};
use crate::serve::config::Address;

pub(crate) const CHECK: &str = "check_policy_service";

/// A service or milter that a list names.
#[derive(Debug)]
pub(crate) struct Asked {
    /// As it is written: `unix:exirate/policy`.
    pub(crate) text: String,
    /// `None` if it is not an address.
    pub(crate) address: Option<Address>,
    pub(super) options: Vec<(String, String)>,
    /// The first restriction before it in the list that decides for all mail, or for some.
    pub(crate) ending: Option<String>,
    /// Postfix only logs what it refuses.
    pub(crate) only_warns: bool,
}

impl Asked {
    pub(super) fn new(word: &str, queue: &Path) -> Option<Self> {
        let parts = words(inside(word).unwrap_or(word));
        let (text, options) = parts.split_first()?;
        let option = |text: &String| {
            let (name, value) = inside(text).unwrap_or(text).split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let options = options.iter().filter_map(option).collect();
        let address = address(text, queue);
        Some(Self { text: text.clone(), address, options, ending: None, only_warns: false })
    }

    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// The address that Postfix connects to. What is relative is in the queue directory.
fn address(text: &str, queue: &Path) -> Option<Address> {
    if let Some(path) = text.strip_prefix("unix:").or_else(|| text.strip_prefix("local:")) {
        return Some(Address::Unix(queue.join(path)));
    }
    let (host, port) = text.strip_prefix("inet:")?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host: IpAddr = match host {
        "localhost" | "" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().ok()?,
    };
    Some(Address::Inet(SocketAddr::new(host, port.parse().ok()?)))
}

pub(crate) fn milters(list: &str, queue: &Path) -> Vec<Asked> {
    let words = words(list);
    words.iter().filter_map(|word| Asked::new(word, queue)).collect()
}

/// The name of a socket as Postfix reaches it.
pub(super) fn name(address: &Address, queue: &Path) -> String {
    match address {
        Address::Unix(path) => {
            format!("unix:{}", path.strip_prefix(queue).unwrap_or(path).display())
        }
        Address::Inet(_) => address.to_string(),
    }
}
