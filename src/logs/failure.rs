//! What a failed delivery is, by enhanced status code (RFC 3463), reply code or text.
//!
//! The tables here are the ones in `docs/failed-deliveries.md`.

use crate::event::Unit;

/// A delivery that has failed for good, and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The recipient or its domain does not exist.
    Unknown,
    /// Another reason.
    Other,
}

impl Failure {
    /// What is counted for it.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Unknown => Unit::UnknownRecipients,
            Self::Other => Unit::FailedRecipients,
        }
    }
}

/// What a status says of the recipient.
type Counts = Option<Failure>;

/// Enhanced status codes that are no plain failure: subject and detail, after `5.`.
const STATUSES: [(u16, u16, Counts, &str); 12] = [
    (1, 1, Some(Failure::Unknown), "no such mailbox"),
    (1, 2, Some(Failure::Unknown), "no such domain"),
    (1, 3, Some(Failure::Unknown), "not an address"),
    (1, 6, Some(Failure::Unknown), "the mailbox has moved"),
    (1, 10, Some(Failure::Unknown), "the domain accepts no mail (null MX)"),
    (4, 4, Some(Failure::Unknown), "no host for the domain"),
    (2, 2, None, "the mailbox is full"),
    (2, 3, None, "the message is too long for the mailbox"),
    (3, 1, None, "the system is full"),
    (3, 4, None, "the message is too big for the system"),
    (4, 6, None, "a mail loop"),
    (4, 7, None, "it took too long: temporary failures until the end"),
];

/// Reply codes without an enhanced status that are no plain failure.
const REPLIES: [(u16, Counts, &str); 2] = [
    (552, None, "the mailbox is full, or the message too big"),
    (556, Some(Failure::Unknown), "the domain accepts no mail"),
];

/// Texts, in lower case, of replies with 550, 551 or 553 and no enhanced status, and of Exim's own
/// failures, that name a recipient or a domain that does not exist.
const UNKNOWN: [&str; 18] = [
    "user unknown",
    "unknown user",
    "no such user",
    "no such mailbox",
    "no such recipient",
    "no such person",
    "recipient unknown",
    "unknown recipient",
    "mailbox not found",
    "user not found",
    "does not exist",
    "no mailbox here",
    "unknown local part",
    "unknown local-part",
    "unrouteable address",
    "mx records point to non-existent hosts",
    "indicated no smtp service",
    "(null mx)",
];

/// Texts, in lower case, of Exim's own failures that are no fault of a recipient: temporary ones
/// until the message was too old, and what has such a status where another server says it; and
/// the limits of a hosting panel, which refuse in a router.
const NOT_THE_RECIPIENTS: [&str; 13] = [
    "retry timeout exceeded",
    "failing for a long time",
    "retry time not reached",
    "quota exceeded",
    "over quota",
    "mailbox is full",
    "message too big",
    "message is too big",
    "message too large",
    "message is too large",
    "too many \"received\" headers",
    "mail loop",
    "has exceeded the max",
];

/// How Exim begins what it says of a program that a transport runs, and how a line goes on that
/// says what the program returned.
const OF_A_PROGRAM: (&str, &str) = ("child process of ", " transport returned ");
/// What a program returns for a recipient or a host that does not exist (`sysexits.h`).
const UNKNOWN_CODES: [&str; 2] = ["67", "68"];

/// What has made a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// A router, or another server: what it says is of the recipient, if nothing else.
    RouterOrServer,
    /// A transport of this server. Where no other server has replied, it is at fault itself.
    Transport,
}

/// A status, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The enhanced status code: `5.1.1`.
    pub enhanced: Option<(u16, u16, u16)>,
    /// The reply code: `550`.
    pub reply: Option<u16>,
    /// What follows, in lower case.
    text: String,
}

impl Status {
    /// Of the first reply in a text, at its start or after `: `: `550 5.1.1 no such user`. What
    /// quotes the recipient is the client's text, and says nothing.
    #[must_use]
    pub fn in_text(text: &str, recipient: &str) -> Self {
        let text = without(text.to_lowercase(), &recipient.to_lowercase());
        let starts = text.match_indices(": ").map(|(at, sign)| at + sign.len());
        let reply = std::iter::once(0).chain(starts).find_map(|at| Self::of_reply(text.get(at..)?));
        reply.unwrap_or(Self { text, ..Self::default() })
    }

    fn of_reply(text: &str) -> Option<Self> {
        let (code, rest) = text.split_at_checked(3)?;
        let is_end = rest.is_empty() || rest.starts_with([' ', '-', ',']);
        let reply: u16 = code.parse().ok().filter(|code| (400..600).contains(code) && is_end)?;
        let rest = rest.get(1..).unwrap_or_default().trim_start_matches('#');
        let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let enhanced = enhanced(first);
        let text = if enhanced.is_some() { after } else { rest }.to_owned();
        Some(Self { enhanced, reply: Some(reply), text })
    }

    /// What counts of a delivery that the server has given up, as this has failed.
    #[must_use]
    pub fn failure(&self, maker: Maker) -> Option<Failure> {
        if let Some((class, subject, detail)) = self.enhanced.filter(|(_, a, b)| (*a, *b) != (0, 0))
        {
            let known = STATUSES.iter().find(|one| (one.0, one.1) == (subject, detail));
            return known.map_or(Some(Failure::Other), |one| one.2).filter(|_| class == 5);
        }
        let has = |texts: &[&str]| texts.iter().any(|text| self.text.contains(text));
        let is_unknown = || has(&UNKNOWN).then_some(Failure::Unknown);
        match self.reply {
            // Beside a reply, the text is another server's.
            None if has(&NOT_THE_RECIPIENTS) => None,
            None => match self.text.strip_prefix(OF_A_PROGRAM.0) {
                Some(program) => {
                    let returned = program.split_once(OF_A_PROGRAM.1);
                    let code = returned.and_then(|(_, code)| code.split(' ').next());
                    code.filter(|code| UNKNOWN_CODES.contains(code)).map(|_| Failure::Unknown)
                }
                None if maker == Maker::Transport => is_unknown(),
                None => is_unknown().or(Some(Failure::Other)),
            },
            Some(..500) => None,
            Some(reply) => {
                let by_text = matches!(reply, 550 | 551 | 553).then(is_unknown).flatten();
                let known = REPLIES.iter().find(|one| one.0 == reply);
                by_text.or(known.map_or(Some(Failure::Other), |one| one.1))
            }
        }
    }
}

/// A text without those parts that are a recipient, or its local part: only one with spaces can
/// say anything.
fn without(text: String, recipient: &str) -> String {
    if !recipient.contains(' ') {
        return text;
    }
    let local = recipient.rsplit_once('@').map_or(recipient, |(local, _)| local);
    let bare = local.trim_matches('"').replace('\\', "");
    [recipient, local, local.trim_matches('"'), &bare]
        .into_iter()
        .filter(|part| part.contains(' '))
        .fold(text, |text, part| text.replace(part, ""))
}

/// `5.1.1`
#[must_use]
pub fn enhanced(text: &str) -> Option<(u16, u16, u16)> {
    let mut parts = text.splitn(3, '.');
    let mut next = || parts.next()?.parse::<u16>().ok().filter(|part| *part < 1000);
    let (class, subject, detail) = (next()?, next()?, next()?);
    [2, 4, 5].contains(&class).then_some((class, subject, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_by_their_status() {
        use Failure::{Other, Unknown};
        for (text, expected) in [
            ("SMTP error from remote mail server after RCPT TO:<b@x>: 550 5.1.1 no", Some(Unknown)),
            ("H=h [::1]:587: LMTP error after RCPT TO:<b@x>: 550-5.7.1 spam\\n550 x", Some(Other)),
            ("x: 452 4.2.2 full: retry timeout exceeded", None),
            ("x: 552 5.2.2 full", None),
            ("x: 450 4.1.1 try again: retry timeout exceeded", None),
            ("x: 550 No such user here", Some(Unknown)),
            ("x: 550 5.0.0 No Such User here", Some(Unknown)),
            ("x: 550 5.0.0 spam", Some(Other)),
            ("x: 554 No such user here", Some(Other)),
            ("x: 550", Some(Other)),
            ("x: 552 too much", None),
            ("x: 556 no", Some(Unknown)),
            ("x: 421 user unknown", None),
            ("Unrouteable address", Some(Unknown)),
            ("all relevant MX records point to non-existent hosts", Some(Unknown)),
            (
                "all hosts for 'x' have been failing for a long time (and retry time not reached)",
                None,
            ),
            ("retry timeout exceeded", None),
            ("x: 5501 user", Some(Other)),
            ("é: 55é", Some(Other)),
            ("", Some(Other)),
        ] {
            let status = Status::in_text(text, "b@x");
            assert_eq!(status.failure(Maker::RouterOrServer), expected, "{text}");
        }
        for (text, expected) in [
            ("DKIM signing failed", None),
            ("user unknown", Some(Unknown)),
            ("x: 550 5.7.1 spam", Some(Other)),
            ("x: 554 spam", Some(Other)),
            (
                "Child process of t transport returned 127 (could mean unable to exec or command does \
              not exist) from command: /d",
                None,
            ),
            (
                "Child process of t transport returned 67 (could mean addressee unknown) from command: \
              /d",
                Some(Unknown),
            ),
            (
                "Child process of t transport returned 70 from command: /d u transport returned 67 (",
                None,
            ),
        ] {
            assert_eq!(Status::in_text(text, "b@x").failure(Maker::Transport), expected, "{text}");
        }
        // A recipient that looks like a reply, or like what Exim says of old messages.
        for (text, recipient) in [
            ("no user \"a: 452 full\"@x: 550 5.1.1 no", "\"a: 452 full\"@x"),
            ("unknown user a: 452 full", "\"a: 452 full\"@x"),
            ("Unrouteable address (A\" : 452 B)", "\"a\\\" : 452 b\"@x"),
            ("Unrouteable address: Retry Timeout Exceeded", "retry\\ timeout\\ exceeded@x"),
            ("x: 550 no such user retry timeout exceeded", "\"retry timeout exceeded\"@x"),
            ("x: 550 no such user, sender \"retry timeout exceeded\"@y", "b@x"),
        ] {
            let status = Status::in_text(text, recipient);
            assert_eq!(status.failure(Maker::RouterOrServer), Some(Unknown), "{text}");
        }
        for text in ["5.1", "5..1", "3.1.1", "5.1.1.1", "5.1.1000", "é"] {
            assert_eq!(enhanced(text), None, "{text}");
        }
    }

    #[test]
    fn the_documentation_has_the_tables() {
        let documented = include_str!("../../docs/failed-deliveries.md");
        let counted = |counts| match counts {
            Some(Failure::Unknown) => "both",
            Some(Failure::Other) => "`failed_recipients`",
            None => "neither",
        };
        let statuses = STATUSES.iter().map(|(subject, detail, counts, about)| {
            format!("| `5.{subject}.{detail}` | {about} | {} |\n", counted(*counts))
        });
        let replies = REPLIES.iter().map(|(reply, counts, about)| {
            format!("| `{reply}` | {about} | {} |\n", counted(*counts))
        });
        for table in [statuses.collect::<String>(), replies.collect()] {
            assert!(documented.contains(&table), "docs/failed-deliveries.md lacks\n{table}");
        }
        for text in UNKNOWN.iter().chain(&NOT_THE_RECIPIENTS) {
            assert!(documented.contains(&format!("`{text}`")), "{text}");
        }
    }
}
