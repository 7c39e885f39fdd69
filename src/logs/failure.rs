//! What a failed delivery is, and one that the receiver put off as too fast, by enhanced status code
//! (RFC 3463), reply code or text.
//!
//! The tables here are the ones in `docs/failed-deliveries.md` and `docs/later.md`.

use crate::event::Unit;

/// An attempt to deliver that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has failed for good: the recipient or its domain does not exist.
    Unknown,
    /// It has failed for good, for another reason.
    Other,
    /// The receiver put it off because too much came at once or too fast.
    Throttled,
}

impl Failure {
    /// What is counted for it.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Unknown => Unit::UnknownRecipients,
            Self::Other => Unit::FailedRecipients,
            Self::Throttled => Unit::ThrottledRecipients,
        }
    }
}

/// What a status says of the recipient.
type Meaning = Option<Failure>;

/// Enhanced status codes that are no plain failure, or whose text says nothing of the recipient:
/// subject and detail, after `5.`.
const STATUSES: [(u16, u16, Meaning, &str); 14] = [
    (1, 1, Some(Failure::Unknown), "no such mailbox"),
    (1, 2, Some(Failure::Unknown), "no such domain"),
    (1, 3, Some(Failure::Unknown), "not an address"),
    (1, 6, Some(Failure::Unknown), "the mailbox has moved"),
    (1, 10, Some(Failure::Unknown), "the domain accepts no mail (null MX)"),
    (4, 4, Some(Failure::Unknown), "no host for the domain"),
    (1, 7, Some(Failure::Other), "the sender's address"),
    (1, 8, Some(Failure::Other), "the sender's domain"),
    (2, 2, None, "the mailbox is full"),
    (2, 3, None, "the message is too long for the mailbox"),
    (3, 1, None, "the system is full"),
    (3, 4, None, "the message is too big for the system"),
    (4, 6, None, "a mail loop"),
    (4, 7, None, "it took too long: temporary failures until the end"),
];

/// Reply codes without an enhanced status that are no plain failure.
const REPLIES: [(u16, Meaning, &str); 2] = [
    (552, None, "the mailbox is full, or the message too big"),
    (556, Some(Failure::Unknown), "the domain accepts no mail"),
];

/// Texts, in lower case, that name a recipient or a domain that does not exist: of replies with no
/// enhanced status, or one that says little, and of Exim's own failures.
const UNKNOWN: [&str; 51] = [
    "user unknown",
    "unknown user",
    "user is unknown",
    "user not known",
    "user not found",
    "user not exist",
    "not a known user",
    "no such user",
    "no such mailbox",
    "no such recipient",
    "no such person",
    "no such address",
    "no such account",
    "no account by that name",
    "no one at this address",
    "recipient unknown",
    "unknown recipient",
    "recipient not found",
    "recipient not exist",
    "invalid recipient",
    "not a valid recipient",
    "addressee unknown",
    "address unknown",
    "unknown email address",
    "unknown e-mail address",
    "mailbox not found",
    "mailbox unknown",
    "unknown mailbox",
    "not a valid mailbox",
    "no mailbox here",
    "no mailbox by that name",
    "no mailbox found",
    "does not exist",
    "account or domain may not exist",
    "not present in directory",
    "not listed in domino directory",
    "not our customer",
    "not our user",
    "utilisateur inconnu",
    "destinataire inconnu",
    "unknown local part",
    "unknown local-part",
    "unrouteable address",
    "unroutable address",
    "no such domain",
    "host unknown",
    "unknown host",
    "host or domain name not found",
    "mx records point to non-existent hosts",
    "indicated no smtp service",
    "(null mx)",
];

/// What receivers reply for a recipient that does not exist, and other servers for other reasons:
/// the reply or the status with which it means that, and its text in lower case.
const RECEIVERS: [(Code, &str, &str); 10] = [
    (Code::Status(4, 1), "recipient address rejected: access denied", "Microsoft 365"),
    (Code::Status(5, 0), "requested action not taken: mailbox unavailable", "Outlook.com"),
    (Code::Status(1, 351), "unknown recipient or mailbox unavailable", "Microsoft 365"),
    (Code::Reply(550), "requested action not taken: mailbox unavailable", "GMX, WEB.DE, IONOS"),
    (Code::Status(1, 0), "address rejected", "Cisco Secure Email"),
    (Code::Status(1, 0), "recipient rejected", "Cox"),
    (Code::Reply(552), "mailbox not found", "Yahoo, AOL"),
    (Code::Reply(554), "this user doesn't have a", "Yahoo, AOL"),
    (Code::Status(1, 4), "reserved by rfc 2606", "Microsoft Exchange"),
    (Code::Reply(501), "invalid address", "Mimecast"),
];

/// The reply code of a reply without an enhanced status, or that status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Reply(u16),
    Status(u16, u16),
}

/// Texts, in lower case, with which a reply speaks of the sender, the client or the message,
/// whatever else it says.
const NOT_OF_THE_RECIPIENT: [&str; 16] = [
    "sender address",
    "sender verif",
    "sender domain",
    "sender rejected",
    "of sender",
    "verification failed for",
    "mail from",
    "from address",
    "reverse dns",
    "invalid dns",
    "client host",
    "spf",
    "dmarc",
    "too many recipients",
    "invalid recipients",
    "recipient preferences",
];

/// Texts, in lower case, of a mailbox that is full.
const FULL: [&str; 6] = [
    "quota exceeded",
    "over quota",
    "overquota",
    "mailbox full",
    "mailbox is full",
    "exceeded storage",
];

/// Texts, in lower case, of Exim's own failures that are no fault of a recipient: temporary ones
/// until the message was too old, and what has such a status where another server says it; and
/// the limits of a hosting panel, which refuse in a router.
const NOT_THE_RECIPIENTS: [&str; 11] = [
    "retry timeout exceeded",
    "failing for a long time",
    "retry time not reached",
    "message too big",
    "message is too big",
    "message too large",
    "message is too large",
    "too many \"received\" headers",
    "mail loop",
    "has exceeded the max",
    "too many bounces",
];

/// Temporary replies by which receivers say that too much comes at once or too fast: the reply code,
/// the enhanced status, and who says so in their own documentation.
const THROTTLED: [(u16, (u16, u16), &str); 7] = [
    (421, (7, 28), "Google: an unusual rate of mail"),
    (450, (2, 1), "Google: the mailbox receives too much"),
    (452, (3, 2), "Microsoft Exchange: the server receives too much"),
    (432, (3, 2), "Microsoft 365: the mailbox receives too much at once"),
    (451, (7, 500), "Microsoft 365: server busy"),
    (451, (7, 650), "Outlook.com: rate limited by reputation"),
    (451, (7, 652), "Outlook.com: too many connections"),
];

/// Texts, in lower case, of temporary replies that say the same, whatever the status.
const TOO_FAST: [&str; 14] = [
    "[tss04]",
    "too many connections",
    "too many concurrent",
    "too many messages",
    "too many mails",
    "maximum number of connections",
    "connections limit exceeded",
    "rate limit",
    "rate-limit",
    "ratelimit",
    "too fast",
    "too quickly",
    "throttl",
    "unusual rate of",
];

/// Texts, in lower case, of temporary replies that put off whoever comes for the first time.
const GREYLISTED: [&str; 2] = ["greylist", "graylist"];

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

/// What a reply was to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InReplyTo {
    /// The connection or the sender: nothing of a recipient.
    Sender,
    /// The recipient, or it is not known.
    #[default]
    Recipient,
    /// The message, after all recipients were accepted: words such as "unknown user" are what some
    /// receivers say to all that a recipient's filter refuses.
    Message,
}

/// A status, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The enhanced status code: `5.1.1`.
    pub enhanced: Option<(u16, u16, u16)>,
    /// The reply code: `550`.
    pub reply: Option<u16>,
    /// What the reply was to.
    pub to: InReplyTo,
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
        Some(Self { enhanced, reply: Some(reply), text, ..Self::default() })
    }

    /// What counts of a delivery that the server has given up, as this has failed.
    #[must_use]
    pub fn failure(&self, maker: Maker) -> Option<Failure> {
        match (self.enhanced.filter(|(_, a, b)| (*a, *b) != (0, 0)), self.reply) {
            (Some((5, subject, detail)), _) => self.of_status(subject, detail),
            (Some(_), _) | (None, Some(..500)) => None,
            (None, Some(reply)) => self.without_status(reply),
            (None, None) => self.own(maker),
        }
    }

    /// What counts of an attempt that the server repeats later, if the receiver said that it was too
    /// fast.
    #[must_use]
    pub fn throttled(&self) -> Option<Failure> {
        let reply = self.reply.filter(|reply| (400..500).contains(reply))?;
        let status = self.enhanced.map(|(_, subject, detail)| (subject, detail));
        let is_known = THROTTLED.iter().any(|one| one.0 == reply && Some(one.1) == status);
        let is_throttled = is_known || self.has(&TOO_FAST) && !self.has(&GREYLISTED);
        is_throttled.then_some(Failure::Throttled)
    }

    fn has(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.text.contains(text))
    }

    fn of_status(&self, subject: u16, detail: u16) -> Meaning {
        let known = STATUSES.iter().find(|one| (one.0, one.1) == (subject, detail));
        match known.map(|one| one.2) {
            Some(None) => None,
            _ if self.has(&FULL) => None,
            Some(Some(Failure::Unknown)) if self.to == InReplyTo::Sender => Some(Failure::Other),
            Some(Some(Failure::Unknown)) if self.has(&NOT_OF_THE_RECIPIENT) => Some(Failure::Other),
            Some(known) => known,
            // Of the message (`5.6`) or of security (`5.7.2` on).
            None if subject == 6 || subject == 7 && detail > 1 => Some(Failure::Other),
            None => self.by_text(Code::Status(subject, detail)).or(Some(Failure::Other)),
        }
    }

    fn without_status(&self, reply: u16) -> Meaning {
        if self.has(&FULL) {
            return None;
        }
        let known = REPLIES.iter().find(|one| one.0 == reply);
        let by_text = matches!(reply, 501 | 503 | 550..=554)
            .then(|| self.by_text(Code::Reply(reply)))
            .flatten();
        by_text.or(known.map_or(Some(Failure::Other), |one| one.1))
    }

    /// If another server's text says that the recipient does not exist.
    fn by_text(&self, code: Code) -> Meaning {
        if self.to == InReplyTo::Sender || self.has(&NOT_OF_THE_RECIPIENT) {
            return None;
        }
        let of_a_receiver = RECEIVERS.iter().any(|one| one.0 == code && self.text.contains(one.1));
        let is_unknown = of_a_receiver || self.to == InReplyTo::Recipient && self.has(&UNKNOWN);
        is_unknown.then_some(Failure::Unknown)
    }

    /// What counts of a failure that this server has found.
    fn own(&self, maker: Maker) -> Meaning {
        if self.has(&NOT_THE_RECIPIENTS) || self.has(&FULL) {
            return None;
        }
        if let Some(program) = self.text.strip_prefix(OF_A_PROGRAM.0) {
            let returned = program.split_once(OF_A_PROGRAM.1);
            let code = returned.and_then(|(_, code)| code.split(' ').next());
            return code.filter(|code| UNKNOWN_CODES.contains(code)).map(|_| Failure::Unknown);
        }
        let unknown = self.has(&UNKNOWN).then_some(Failure::Unknown);
        if maker == Maker::Transport { unknown } else { unknown.or(Some(Failure::Other)) }
    }
}

/// A text without the recipient, and without its local part, if that has spaces: only then can it
/// say anything.
fn without(text: String, recipient: &str) -> String {
    let local = recipient.rsplit_once('@').map_or(recipient, |(local, _)| local);
    let bare = local.trim_matches('"').replace('\\', "");
    [recipient, local, local.trim_matches('"'), &bare]
        .into_iter()
        .filter(|part| part.contains([' ', '@']))
        .fold(text, |text, part| if text.contains(part) { text.replace(part, "") } else { text })
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
mod tests;
