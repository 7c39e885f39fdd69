//! Lines of Exim's main log.

use jiff::civil;
use jiff::tz::Offset;

use super::time;
use crate::rate::Timestamp;

/// The identity that a line counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// The envelope sender
    Sender,
    /// The client's IP address
    Host,
    /// The authenticated user (A=)
    Auth,
    /// The local user, or the ident of a client (U=)
    User,
    /// All messages together
    All,
}

/// What of a message counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum What {
    /// Each one once
    Messages,
    /// Its size (S=)
    Bytes,
    /// Its recipients (for log_selector = +received_recipients)
    Recipients,
}

/// The moment at the start of a line, and what follows. Exim's zone is unknown
/// unless the line has it; without, the times are as far apart as if in UTC.
pub(super) fn time(line: &str) -> Option<(Timestamp, &str)> {
    let (date, rest) = line.split_once(' ')?;
    let (clock, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let digits = date.bytes().next().is_some_and(|b| b.is_ascii_digit());
    if !digits || date.len() != 10 || clock.len() < 8 {
        return None;
    }
    let time: civil::DateTime = format!("{date}T{clock}").parse().ok()?;
    let zone = rest.split(' ').next().and_then(time::offset);
    let rest =
        if zone.is_some() { rest.split_once(' ').map_or("", |(_, rest)| rest) } else { rest };
    let at = zone.unwrap_or(Offset::UTC).to_timestamp(time).ok()?;
    Some((time::timestamp(at), rest))
}

/// The parts of a line `… <= sender H=… S=…`, after its time; `None` for any
/// other line.
pub(super) fn received(rest: &str) -> Option<&str> {
    // `[pid]`, if it is logged, and the message's id come before.
    let (before, after) = rest.split_once(" <= ")?;
    let id = before.rsplit(' ').next()?;
    let is_id = id.contains('-') && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let pid = before.strip_suffix(id)?.trim_end();
    (is_id && (pid.is_empty() || pid.starts_with('[') && !pid.contains(' '))).then_some(after)
}

/// The identity of the message; `None` where the line has none.
pub(super) fn key(received: &str, by: By) -> Option<&str> {
    let fields = fields(received);
    match by {
        By::All => Some(""),
        By::Sender => received.split(' ').next(),
        By::Host => {
            let host = fields.split_once(" H=")?.1;
            let (_, address) = host.split_once('[')?;
            address.split_once(']').map(|(address, _)| address)
        }
        By::Auth => {
            // `A=driver:id`
            let field = field(fields, " A=")?;
            field.split_once(':').map(|(_, id)| id).filter(|id| !id.is_empty())
        }
        By::User => field(fields, " U="),
    }
}

/// How much the message counts; `None` where the line does not say.
pub(super) fn count(received: &str, what: What) -> Option<f64> {
    match what {
        What::Messages => Some(1.0),
        What::Bytes => field(fields(received), " S=")?.parse::<u32>().ok().map(f64::from),
        What::Recipients => {
            let (_, recipients) = received.rsplit_once(" for ")?;
            Some(recipients.split_whitespace().count() as f64)
        }
    }
}

/// The part of a line before the subject, which is the sender's to choose.
fn fields(received: &str) -> &str {
    received.split_once(" T=\"").map_or(received, |(fields, _)| fields)
}

fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split_once(name)?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "2026-11-20 11:50:37 1tDabc-000000001-AbCd <= alice@example.org \
         H=(laptop) [192.0.2.7]:4711 I=[10.0.0.1]:587 P=esmtpsa A=plain:alice S=1234 id=x@y \
         T=\"hello H=[1.2.3.4] S=99\" from <alice@example.org> for bob@x.test carol@x.test";

    #[test]
    fn a_line_contains_user_and_count() {
        let (at, rest) = time(LINE).unwrap();
        assert_eq!(at, Timestamp { seconds: 1_795_175_437, micros: 0 });
        let received = received(rest).unwrap();
        for (by, expected) in [
            (By::Sender, Some("alice@example.org")),
            (By::Host, Some("192.0.2.7")),
            (By::Auth, Some("alice")),
            (By::User, None),
            (By::All, Some("")),
        ] {
            assert_eq!(key(received, by), expected, "{by:?}");
        }
        assert_eq!(count(received, What::Messages), Some(1.0));
        assert_eq!(count(received, What::Bytes), Some(1234.0));
        assert_eq!(count(received, What::Recipients), Some(2.0));
    }

    #[test]
    fn times_may_have_a_zone_and_milliseconds() {
        let at = |line| time(line).map(|(at, _)| (at.seconds, at.micros));
        assert_eq!(at("2026-11-20 11:50:37.250 [12] x"), Some((1_795_175_437, 250_000)));
        assert_eq!(at("2026-11-20 12:50:37 +0100 x"), Some((1_795_175_437, 0)));
        assert_eq!(time("2026-11-20 12:50:37 +0100 x").unwrap().1, "x");
        assert_eq!(at("2026-11-20 07:20:37.5 -0430 x"), Some((1_795_175_437, 500_000)));
        for line in
            ["", "x", "+++ 1tDabc has not completed +++", "2026-11-20", "2026-13-20 11:50:37 x"]
        {
            assert_eq!(at(line), None, "{line}");
        }
    }

    #[test]
    fn only_messages_that_came_in_count() {
        assert!(received("1tDabc-000000001-AbCd => bob@x.test R=r T=t").is_none());
        assert!(received("[12] 1tDabc-000000001-AbCd <= a@b").is_some());
        assert!(received("1tDabc-000000001-AbCd => <= a@b and so on").is_none());
        assert!(received("rejected connection from H=x <= y").is_none());
    }
}
