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
    options: Vec<(String, String)>,
    /// The first word before it in the list that decides for all mail, or for some.
    pub(crate) ending: Option<String>,
}

impl Asked {
    pub(super) fn new(word: &str, ending: Option<String>, queue: &Path) -> Option<Self> {
        let parts = words(inside(word).unwrap_or(word));
        let (text, options) = parts.split_first()?;
        let option = |text: &String| {
            let (name, value) = inside(text).unwrap_or(text).split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let options = options.iter().filter_map(option).collect();
        Some(Self { text: text.clone(), address: address(text, queue), options, ending })
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

/// Whether a restriction accepts mail, or refuses all of it, so that nothing behind it counts.
pub(super) fn ends(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.starts_with("permit") || matches!(&*word, "reject" | "defer" | "discard")
}

/// Whether the word behind a restriction is what that takes.
pub(super) fn takes_word(restriction: &str) -> bool {
    let name = restriction.to_ascii_lowercase();
    let lists = ["reject_rbl_", "reject_rhsbl_", "permit_dnswl_", "permit_rhswl_"];
    name.starts_with("check_") || name == "sleep" || lists.iter().any(|list| name.starts_with(list))
}

/// The restrictions of a list, each with the word that it takes.
pub(super) fn restrictions(words: &[String]) -> Vec<(&str, Option<&str>)> {
    let (mut found, mut words) = (Vec::new(), words.iter().map(String::as_str));
    while let Some(word) = words.next() {
        found.push((word, if takes_word(word) { words.next() } else { None }));
    }
    found
}

/// The policy services in a list of restrictions.
pub(crate) fn policy_services(words: &[String], queue: &Path) -> Vec<Asked> {
    let (mut found, mut ending, mut only_warns) = (Vec::new(), None, false);
    for (name, word) in restrictions(words) {
        if name.eq_ignore_ascii_case(CHECK) {
            found.extend(word.and_then(|word| Asked::new(word, ending.clone(), queue)));
        } else if ending.is_none() && !only_warns && ends(name) {
            ending = Some(name.to_owned());
        }
        // What it refuses, it only writes to the log.
        only_warns = name.eq_ignore_ascii_case("warn_if_reject");
    }
    found
}

pub(crate) fn milters(list: &str, queue: &Path) -> Vec<Asked> {
    let words = words(list);
    words.iter().filter_map(|word| Asked::new(word, None, queue)).collect()
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
