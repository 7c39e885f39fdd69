//! `exirate check`: what Exim would answer.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::database::{Common, now};
use super::screen::{Screen, note};
use super::{Failure, Outcome, spool_dir, text};
use crate::engine::Decision;
use crate::spec::{Context, Request, Spec, Update};
use crate::spool::{Options, Spool, SpoolError};
use crate::store::{Memory, Store as _};

/// Asks what Exim would answer, and counts it as Exim would
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would the next recipient of alice get? Nothing is changed:
    exirate check '100 / 1h / per_addr / strict / alice' --dry-run
  Is this spec what I mean?
    exirate check '10k / 1d / per_byte / leaky / web' --count 2500 --dry-run
  Count five messages against a key of my own:
    exirate check '20 / 1h / strict' --key backup --count 5

The answer is that of ${dlfunc{...}{ratelimit}{SPEC}} outside Exim's ACLs: every
mode counts, and every call anew.

Exit status: 0 under the limit; 1 at or over it; 2 an error.

JSON: `retry_after` is null where no wait helps; `limit` and `remaining` are
null where they are infinite. `key` is null where it is not UTF-8; `key_hex`
has its bytes in any case.")]
pub(super) struct Check {
    /// `m / p / options / key`, as in Exim's configuration; nothing is expanded
    spec: OsString,

    /// The key, in place of that in SPEC; slashes need not be doubled
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    key: Option<OsString>,

    /// How much this event counts
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    count: Option<f64>,

    /// The recipient, for `per_addr`
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    recipient: Option<OsString>,

    /// Changes nothing: looks at what the answer would be
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Common,
}

/// The answer, as JSON has it.
#[derive(Serialize)]
struct Answer<'a> {
    over: bool,
    rate: f64,
    limit: f64,
    period: f64,
    mode: &'static str,
    update: &'static str,
    key: Option<&'a str>,
    key_hex: String,
    count: f64,
    remaining: f64,
    retry_after: Option<u64>,
    dry_run: bool,
}

impl Check {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let request = self.request()?;
        let dir = spool_dir::find(self.common.spool.as_deref())?;
        let decision = if self.dry_run { look(&dir, &request)? } else { decide(&dir, &request)? };
        if self.common.json {
            screen.json(&self.answer(&request, &decision))?;
        } else {
            self.tell(screen, &request, &decision)?;
        }
        Ok(Outcome::found_if(decision.over))
    }

    /// What SPEC asks for, with what the options replace.
    fn request(&self) -> Result<Request, Failure> {
        let spec =
            Spec::parse(self.spec.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
        for doubt in spec.lints() {
            note(doubt);
        }
        let recipient = self.recipient.as_deref().unwrap_or_default().as_bytes();
        let (local_part, domain) = split_address(recipient);
        let context = Context { local_part, domain, ..Context::outside() };
        let mut request =
            spec.request(&context).map_err(|error| Failure::new(error.to_string()))?;
        if let Some(key) = &self.key {
            request.key.truncate(request.key_start);
            request.key.extend_from_slice(key.as_bytes());
        }
        match self.count {
            Some(_) if request.update == Update::ReadOnly => {
                note("a readonly check counts nothing, so --count has no effect");
            }
            Some(count) => request.count = count,
            None => {}
        }
        Ok(request)
    }

    fn answer<'a>(&self, request: &'a Request, decision: &Decision) -> Answer<'a> {
        let key = request.written_key();
        Answer {
            over: decision.over,
            rate: decision.rate,
            limit: decision.limit,
            period: decision.period,
            mode: request.mode.word(),
            update: request.update.word(),
            key: std::str::from_utf8(key).ok(),
            key_hex: text::hex(key),
            count: decision.count,
            remaining: decision.remaining(decision.at),
            retry_after: text::whole_seconds(decision.retry_after(decision.at)),
            dry_run: self.dry_run,
        }
    }

    fn tell(
        &self,
        screen: &mut Screen<'_>,
        request: &Request,
        decision: &Decision,
    ) -> Result<(), Failure> {
        let verdict = if decision.over { "over the limit" } else { "under the limit" };
        let note = match (self.dry_run, request.update) {
            (true, _) => " (dry run: nothing was counted)",
            (false, Update::ReadOnly) => " (readonly: nothing was counted)",
            (false, Update::Leaky) if decision.over => " (leaky: what is over is not counted)",
            (false, Update::Leaky | Update::Strict) => "",
        };
        writeln!(screen, "{verdict}{note}")?;
        let free = if decision.over { "free again" } else { "next one passes" };
        for (name, value) in [
            ("key", text::printable(request.written_key())),
            ("rate", format!("{:.1}", decision.rate)),
            ("limit", text::number(decision.limit)),
            ("period", text::duration(decision.period)),
            ("mode", format!("{}, {}", request.mode.word(), request.update.word())),
            ("counted", text::number(decision.count)),
            ("remaining", text::number(decision.remaining(decision.at))),
            (free, text::wait(decision.retry_after(decision.at))),
        ] {
            writeln!(screen, "  {name:<15}  {value}")?;
        }
        Ok(())
    }
}

/// Decides as Exim does, and remembers it.
fn decide(dir: &Path, request: &Request) -> Result<Decision, Failure> {
    let mut spool = Spool::open(dir, Options::default())?;
    let decision = spool.decide_one(&request.check(), now);
    for incident in spool.take_incidents() {
        note(incident);
    }
    Ok(decision?)
}

/// Decides as Exim would, and remembers nothing.
fn look(dir: &Path, request: &Request) -> Result<Decision, Failure> {
    match Spool::open_existing(dir, Options::default()) {
        Ok(mut spool) => Ok(spool.preview(&request.check(), now)?),
        // Where nothing is remembered, an empty store answers the same.
        Err(SpoolError::Absent { .. }) => {
            let Ok(decision) = Memory::new().decide_one(&request.check(), now);
            Ok(decision)
        }
        Err(error) => Err(error.into()),
    }
}

/// `local@domain` at its last `@`; without one, all of it is the local part.
fn split_address(address: &[u8]) -> (&[u8], &[u8]) {
    let at = address.iter().rposition(|&b| b == b'@');
    let (local_part, rest) =
        address.split_at_checked(at.unwrap_or(address.len())).unwrap_or_default();
    (local_part, rest.get(1..).unwrap_or_default())
}

/// A count as a spec takes it: a number, not negative.
fn count(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(count) if count >= 0.0 => Ok(count),
        _ => Err("it takes a number that is not negative, such as 1, 0 or 2.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_at_their_last_at() {
        assert_eq!(split_address(b"a@b"), (&b"a"[..], &b"b"[..]));
        assert_eq!(split_address(b"\"a@b\"@c"), (&b"\"a@b\""[..], &b"c"[..]));
        assert_eq!(split_address(b"a"), (&b"a"[..], &b""[..]));
        assert_eq!(split_address(b""), (&b""[..], &b""[..]));
    }

    #[test]
    fn counts_are_numbers_that_are_not_negative() {
        assert_eq!(count("2.5"), Ok(2.5));
        for text in ["-1", "nan", "x", ""] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
