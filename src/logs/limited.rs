//! Which refusals in Exim's log are those of a limit.
//!
//! exirate's policies and ACL files log a line of their own right before the refusal, and
//! the texts of their replies are known. Of native `ratelimit`, only the usual text is known.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::rate::Timestamp;
use crate::text::OVER_THE_LIMIT;

/// A refusal follows its line within this time, in seconds: an ACL may wait in between.
const WITHIN: i64 = 120;
/// At most so many lines wait for their refusal.
const WAITING_MAX: usize = 4096;

/// How the texts of limits begin, as clients see them and `rejected …` lines have them; the last is
/// that of a hosting panel's connections.
const TEXTS: [&str; 4] =
    ["Sender rate ", "Over the limit of ", "over the limit: ", "Host is ratelimited ("];

/// The number of the host that wrote a line, and the process.
pub(super) type Writer = (u32, Option<u32>);

/// Lines that announce a refusal by a limit, by client; `None` is local.
#[derive(Debug, Default)]
pub(super) struct Announced {
    waiting: HashMap<(Option<IpAddr>, Writer), Timestamp>,
}

impl Announced {
    /// Whether the line announces a refusal: `policy NAME: defer [192.0.2.7]: …`, or `over the
    /// limit: [192.0.2.7]: …`. It is the next one of this client, by this process.
    pub(super) fn line(&mut self, at: Timestamp, by: Writer, text: &str) -> Option<bool> {
        let client = announcement(text)?;
        let Some(client) = client else { return Some(false) };
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.retain(|_, since| at.seconds - since.seconds <= WITHIN);
            if self.waiting.len() >= WAITING_MAX {
                self.waiting.clear();
            }
        }
        self.waiting.insert((client, by), at);
        Some(true)
    }

    /// Whether a refusal of this client, for this reason, is that of a limit.
    pub(super) fn is_limited(
        &mut self,
        at: Timestamp,
        by: Writer,
        client: Option<IpAddr>,
        reason: &str,
    ) -> bool {
        let announced = match self.waiting.is_empty() {
            true => None,
            false => self.waiting.remove(&(client, by)),
        };
        announced.is_some_and(|since| (0..=WITHIN).contains(&(at.seconds - since.seconds)))
            || TEXTS.iter().any(|start| reason.trim_start_matches('"').starts_with(start))
            || reason == OVER_THE_LIMIT
            || is_of_an_account(reason)
    }
}

/// Whether a reply of Postfix is that of a limit: `450 4.7.1 <r@x>: Recipient address rejected:
/// Over the limit of …`; of a milter, `4.7.1 Over the limit of …`.
pub(super) fn mentions(reply: &str) -> bool {
    reply.split(": ").any(|part| {
        let part = part.trim_start_matches(|c: char| c.is_ascii_digit() || ". ".contains(c));
        part == OVER_THE_LIMIT
            || TEXTS.iter().any(|start| part.starts_with(start.trim_end_matches(": ")))
    })
}

/// The client whose refusal is announced; `Some(None)` for a line of a policy that refuses
/// nothing.
#[expect(clippy::option_option, reason = "whose refusal is announced; whether it is one")]
fn announcement(text: &str) -> Option<Option<Option<IpAddr>>> {
    let client = |text: &str| match text.strip_prefix("local: ") {
        Some(_) => Some(None),
        None => text.strip_prefix('[')?.split_once("]: ")?.0.parse().ok().map(Some),
    };
    if let Some(after) = text.strip_prefix("over the limit: ") {
        return client(after).map(Some);
    }
    let (_name, after) = text.strip_prefix("policy ")?.split_once(": ")?;
    let (verdict, after) = after.split_once(' ')?;
    let client = client(after)?;
    Some(matches!(verdict, "defer" | "reject").then_some(client))
}

/// `account www-data sent 31.0 messages / 1h`, of `acl_not_smtp.conf`.
fn is_of_an_account(reason: &str) -> bool {
    reason.starts_with("account ") && reason.contains(" sent ") && reason.contains(" messages / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, micros: 0 }
    }

    #[test]
    fn a_line_announces_the_next_refusal_of_its_client_and_process() {
        let client: Option<IpAddr> = Some("192.0.2.7".parse().unwrap());
        let mut announced = Announced::default();
        for text in [
            "policy inbound: defer [192.0.2.7]: 1001.0 recipients, limit 1000/1h, key x (default)",
            "policy in: reject [192.0.2.7]: 1.0 recipients",
            "over the limit: [192.0.2.7]: 61.0 connections, limit 60 / 1m",
        ] {
            assert_eq!(announced.line(at(9), (0, Some(1)), text), Some(true), "{text}");
            assert!(!announced.is_limited(at(9), (0, Some(2)), client, ""), "another process");
            assert!(!announced.is_limited(at(9), (0, Some(1)), None, ""), "a local one");
            assert!(announced.is_limited(at(10), (0, Some(1)), client, ""), "{text}");
            assert!(!announced.is_limited(at(10), (0, Some(1)), client, ""), "it is one refusal");
        }
        announced.line(at(9), (0, None), "policy web: defer local: 51.0 recipients");
        assert!(announced.is_limited(at(9), (0, None), None, "x"));
        announced.line(at(9), (0, None), "over the limit: [192.0.2.7]: x");
        assert!(!announced.is_limited(at(9 + WITHIN + 1), (0, None), client, "x"), "too late");
    }

    #[test]
    fn other_lines_announce_nothing() {
        let mut announced = Announced::default();
        for (text, known) in [
            ("policy inbound: log [192.0.2.7]: 801.0 recipients", Some(false)),
            ("policy inbound: delay local: 801.0 recipients", Some(false)),
            ("policy inbound: defer [x]: 801.0 recipients", None),
            ("policy inbound: defer", None),
            ("policy", None),
            ("H=(policy in: defer [192.0.2.7]: ) [192.0.2.8] Warning: x", None),
        ] {
            assert_eq!(announced.line(at(1), (0, None), text), known, "{text}");
        }
        assert!(announced.waiting.is_empty());
    }

    #[test]
    fn the_usual_texts_are_known() {
        let mut announced = Announced::default();
        for (reason, limited) in [
            ("Sender rate 12.3 / 1h", true),
            ("Over the limit of 100 recipients in 1h; try again in 5m", true),
            ("account www-data sent 31.0 messages / 1h", true),
            ("Over the limit", true),
            ("\"Host is ratelimited (1.9/1h max:1.2)\"", true),
            ("Over the limit, says somebody else", false),
            ("no such user", false),
            ("", false),
        ] {
            assert_eq!(announced.is_limited(at(1), (0, None), None, reason), limited, "{reason}");
        }
    }

    #[test]
    fn replies_of_both_front_ends_of_postfix_are_known() {
        let text = "Over the limit of 100 recipients in 1h; try again in 5m";
        for before in
            ["", "4.7.1 ", "451 4.7.1 ", "450 4.7.1 <r@x.test>: Recipient address rejected: "]
        {
            assert!(mentions(&format!("{before}{text}")), "{before}");
            assert!(mentions(&format!("{before}Over the limit")), "{before}");
        }
        assert!(!mentions(
            "4.7.1 <r@x.test>: Recipient address rejected: not over the limit of us"
        ));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut announced = Announced::default();
        for n in 0..=u16::MAX {
            let [a, b] = n.to_be_bytes();
            announced.line(at(1), (0, None), &format!("over the limit: [10.0.{a}.{b}]: x"));
        }
        assert!(announced.waiting.len() <= WAITING_MAX);
    }
}
