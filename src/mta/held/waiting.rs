//! The recipients of a message that wait by `exim/router_later.conf`, from the log that Exim keeps of
//! each message.
//!
//! ```text
//! 2026-11-30 00:14:02 89d6…7b59@exirate-later.invalid <bob@gmail.com> R=exirate_waits defer (-1): policy pace: 61.0 recipients, limit 60/1m, key destination:google
//! ```
//!
//! Each attempt to deliver the message writes a line for each address that waits, so the last attempt
//! is what is read, from the end. The first address is the child of the recipient that the router made, and
//! another one for each member of a list; a member that has left is counted until the next attempt.

use std::collections::HashSet;

use crate::standing::held::UNDECIDED;

/// What is between a recipient and why it waits.
const BY_ROUTER: &str = "> R=exirate_waits defer";
/// What follows that before Exim 4.100.
const NO_ERROR: &str = " (-1)";
/// What is between the address that the router made and the recipient.
const MADE: &str = "@exirate-later.invalid <";

/// Why recipients of a message wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WaitingAddresses<'a> {
    /// How many addresses wait.
    pub(super) addresses: u64,
    /// The policy by which the last of them waits.
    pub(super) policy: &'a str,
    /// Who was counted, as it is shown.
    pub(super) key: &'a str,
    /// Why.
    pub(super) why: &'a str,
}

/// What waits of a message of which these recipients have not got it; `log` is its log, or the end of that.
pub(super) fn waiting<'a>(
    log: &'a str,
    recipients: &HashSet<&[u8]>,
) -> Option<WaitingAddresses<'a>> {
    let (mut made, mut routed) = (HashSet::new(), HashSet::new());
    let mut last = None;
    for line in log.lines().rev() {
        let Some((address, recipient, text)) = by_router(line, recipients) else {
            routed.extend(by_another(line));
            continue;
        };
        // It has got the message since, or its delivery was tried.
        if !recipients.contains(recipient.as_bytes()) || routed.contains(recipient) {
            continue;
        }
        // An earlier attempt.
        if !made.insert(address) {
            break;
        }
        last.get_or_insert(text);
    }
    let text = last?;
    let undecided = ("", UNDECIDED, text);
    let (key, policy, why) = text
        .strip_prefix("policy ")
        .and_then(|text| text.split_once(": "))
        .map_or(undecided, |(policy, text)| match text.split_once(", key ") {
            Some((why, key)) => (key, policy, why),
            None => ("", policy, text),
        });
    Some(WaitingAddresses { addresses: made.len() as u64, policy, key, why })
}

/// The parts of a line that the router has made: its address, the recipient, and why that waits.
fn by_router<'a>(
    line: &'a str,
    recipients: &HashSet<&[u8]>,
) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, after) = line.split_once(MADE)?;
    let address = before.rsplit(' ').next()?;
    // A recipient may have this text in it, and so may a key.
    let ends = || after.match_indices(BY_ROUTER);
    let known = ends().find(|(at, _)| {
        after.get(..*at).is_some_and(|recipient| recipients.contains(recipient.as_bytes()))
    });
    let (at, _) = known.or_else(|| ends().next())?;
    let (recipient, text) = (after.get(..at)?, after.get(at + BY_ROUTER.len()..)?);
    let text = text.strip_prefix(NO_ERROR).unwrap_or(text);
    Some((address, recipient, text.trim_start_matches([' ', ':'])))
}

/// The recipient in the line of another router, which has tried to deliver to it.
fn by_another(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(" R=")?;
    match before.strip_suffix('>') {
        Some(before) => before.rsplit_once('<').map(|(_, recipient)| recipient),
        None => before.rsplit(' ').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "89d6918c89b7b38d9b19040f2aa97b59";
    const B: &str = "1e084577a066d6a0f8de53884eadd4aa";
    const C: &str = "16cc7d58a4be80e7177b5ef3026766cb";

    fn line(made: &str, recipient: &str, text: &str) -> String {
        format!("2026-11-30 00:14:02 {made}{MADE}{recipient}{BY_ROUTER}{NO_ERROR}: {text}\n")
    }

    fn of<'a>(log: &'a str, recipients: &[&str]) -> Option<WaitingAddresses<'a>> {
        waiting(log, &recipients.iter().map(|one| one.as_bytes()).collect())
    }

    #[test]
    fn the_last_attempt_says_what_waits() {
        let why = "policy pace: 61.0 recipients, limit 60/1m, key destination:google";
        let attempt = line(A, "bob@gmail.com", why) + &line(B, "list@here.test", why);
        let received = "2026-11-30 00:14:00 Received from a@b.test U=root P=local S=248\n";
        let log = format!("{received}{attempt}{}{attempt}", line(C, "gone@x.test", why));
        let all = ["bob@gmail.com", "list@here.test"];
        let found = of(&log, &all).unwrap();
        let expected = WaitingAddresses {
            addresses: 2,
            policy: "pace",
            key: "destination:google",
            why: "61.0 recipients, limit 60/1m",
        };
        assert_eq!(found, expected);
        assert_eq!(of(&log, &all[..1]).unwrap().addresses, 1);
        assert_eq!(of(&log, &[]), None);
        // It was routed since then, and its server does not answer.
        let refused = "R=dnslookup T=remote_smtp defer (111): Connection refused\n";
        for address in ["bob@gmail.com", "x@y.test <bob@gmail.com>"] {
            let log = format!("{log}2026-11-30 00:15:02 {address} {refused}");
            assert_eq!(of(&log, &all[..1]), None, "{log}");
        }
        let undecided = "no verdict from /var/lib/exirate/exim/policy";
        let log = line(A, "bob@gmail.com", undecided).replace(NO_ERROR, "");
        let found = of(&log, &all[..1]).unwrap();
        assert_eq!((found.policy, found.key, found.why), (UNDECIDED, "", undecided));
    }

    /// A recipient cannot make what is read of another.
    #[test]
    fn a_recipient_that_looks_like_a_line_is_one() {
        let bad = format!("\"x{BY_ROUTER}: policy p: y, key auth:bob\"@gmail.com");
        let log = line(A, &bad, "policy pace: 2.0 recipients, limit 1/1m, key auth:mallory");
        assert_eq!(of(&log, &[&bad]).unwrap().key, "auth:mallory");
        assert_eq!(of(&log, &["bob@gmail.com"]), None);
        assert_eq!(of("", &["bob@gmail.com"]), None);
    }
}
