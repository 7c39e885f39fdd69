//! `exirate check SPEC`: what Exim would decide.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::spool_dir;
use crate::cli::{Failure, Outcome};
use crate::engine::{Decision, Overridden};
use crate::mta::exim::SpecReport;
use crate::spec::{Context, Spec, SpecRequest, Update};
use crate::spool::{EventDetails, Options, Spool, SpoolError};
use crate::standing::exchange::range;
use crate::store::{Memory, Store as _};
use crate::text;
use crate::text::time::now;

/// The options of a check by a spec.
#[derive(Debug, Args)]
pub(super) struct SpecOptions {
    /// Take this key, not that in SPEC; it is never parsed
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    key: Option<OsString>,

    /// Take this for the size of the event: 1 unless SPEC has a count
    #[arg(long, value_name = "N", value_parser = cost, allow_negative_numbers = true)]
    cost: Option<f64>,

    /// Count the event, as Exim would
    #[arg(long)]
    count: bool,
}

/// The decision, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(super) struct DecisionJson<'a> {
    /// Whether the event is over the limit.
    over: bool,
    /// The rate with the event.
    rate: f64,
    limit: f64,
    /// In seconds.
    period: f64,
    /// The mode: per_rcpt, and so on.
    mode: &'static str,
    /// The update mode.
    update: &'static str,
    /// Null where it is not UTF-8.
    key: Option<&'a str>,
    /// The bytes of the key, in hexadecimal.
    key_hex: String,
    /// What the event counts.
    count: f64,
    /// How many more would pass; null if that is infinite.
    remaining: f64,
    /// In how many seconds it would pass; null where waiting does not help.
    retry_after: Option<u64>,
    /// Whether it was counted, as with --count.
    counted: bool,
    /// allow or deny, where one decides.
    #[serde(rename = "override")]
    overridden: Option<&'static str>,
}

impl SpecOptions {
    /// The name of an option that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given =
            [("key", self.key.is_some()), ("cost", self.cost.is_some()), ("count", self.count)];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    /// Decides the event by `spec`.
    pub(super) fn check(
        &self,
        spec: &OsStr,
        recipients: &[String],
        common: &Common,
        screen: &mut Screen<'_>,
    ) -> Result<Outcome, Failure> {
        let recipient = match recipients {
            [] => &[][..],
            [one] => one.as_bytes(),
            _ => return Err(Failure::new("a check by a spec has one --recipient")),
        };
        let request = self.request(spec, recipient)?;
        let dir = spool_dir::find(common.spool.as_deref())?;
        let decision =
            if self.count { decide(&dir, &request, recipient)? } else { look(&dir, &request)? };
        if common.json {
            screen.json(&self.as_json(&request, &decision))?;
        } else {
            self.print(screen, &request, &decision)?;
        }
        Ok(Outcome::found_if(decision.over))
    }

    /// The check of SPEC, with what the options replace.
    fn request(&self, text: &OsStr, recipient: &[u8]) -> Result<SpecRequest, Failure> {
        let spec = Spec::parse(text.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
        for lint in spec.lints() {
            note(lint);
        }
        // A spec that was copied from a configuration, with what Exim expands there.
        if let Some(text) = text.to_str().filter(|text| text.contains('$')) {
            SpecReport::of(text, None).warnings.iter().for_each(note);
        }
        let (local_part, domain) = split_address(recipient);
        let context = Context { local_part, domain, ..Context::outside() };
        let mut request =
            spec.request(&context).map_err(|error| Failure::new(error.to_string()))?;
        if let Some(key) = &self.key {
            request.key.truncate(request.key_start);
            request.key.extend_from_slice(key.as_bytes());
        }
        if request.update == Update::ReadOnly && (self.count || self.cost.is_some()) {
            note("a readonly check counts nothing, so --count and --cost have no effect");
        } else if let Some(cost) = self.cost {
            request.count = cost;
        }
        Ok(request)
    }

    fn as_json<'a>(&self, request: &'a SpecRequest, decision: &Decision) -> DecisionJson<'a> {
        let key = request.written_key();
        DecisionJson {
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
            retry_after: decision.retry_after(decision.at).whole_seconds(),
            counted: self.count,
            overridden: decision.overridden.map(Overridden::word),
        }
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        request: &SpecRequest,
        decision: &Decision,
    ) -> Result<(), Failure> {
        let verdict = match decision.overridden {
            Some(Overridden::Allow) => "allowed, whatever the rate",
            Some(Overridden::Deny | Overridden::Reject) => "denied, whatever the rate",
            None if decision.over => "over the limit",
            None => "under the limit",
        };
        let note = match (self.count, request.update) {
            (false, _) => " (nothing was counted)",
            (true, Update::ReadOnly) => " (readonly: nothing was counted)",
            (true, Update::Leaky) if decision.over => " (leaky: what is over is not counted)",
            (true, Update::Leaky | Update::Strict) => "",
        };
        writeln!(screen, "{verdict}{note}")?;
        let free = if decision.over { "free again" } else { "next one passes" };
        for (name, value) in [
            ("key", text::printable(request.written_key())),
            ("rate", format!("{:.1}", decision.rate)),
            ("limit", text::number(decision.limit)),
            ("period", text::whole_period(decision.period)),
            ("mode", format!("{}, {}", request.mode.word(), request.update.word())),
            ("cost", text::number(decision.count)),
            ("remaining", text::number(decision.remaining(decision.at))),
            (free, free_at(decision)),
        ] {
            writeln!(screen, "  {name:<15}  {value}")?;
        }
        if let Some(overridden) = decision.overridden {
            let value = format!("{}: see `exirate overrides`", overridden.word());
            writeln!(screen, "  {:<15}  {value}", "override")?;
        }
        Ok(())
    }
}

/// When one more event would pass.
fn free_at(decision: &Decision) -> String {
    match decision.overridden {
        Some(Overridden::Deny | Overridden::Reject) => "when the override ends".to_owned(),
        _ => text::wait(decision.retry_after(decision.at)),
    }
}

/// Decides as Exim does, and remembers it.
fn decide(dir: &Path, request: &SpecRequest, recipient: &[u8]) -> Result<Decision, Failure> {
    let mut spool = Spool::open(dir, Options::default())?;
    let decision = spool.decide_one(&request.check(), now);
    if spool.has_events() {
        spool.describe(&EventDetails { recipient, ..EventDetails::default() });
    }
    for incident in spool.take_incidents() {
        note(incident);
    }
    Ok(decision?)
}

/// Decides as Exim would, and remembers nothing.
fn look(dir: &Path, request: &SpecRequest) -> Result<Decision, Failure> {
    match Spool::open_existing(dir, Options::default()) {
        Ok(mut spool) => Ok(spool.preview(&request.check(), now)?),
        // Where nothing is remembered, an empty store decides the same.
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

/// The size of an event as a spec takes it: a number, not negative.
fn cost(text: &str) -> Result<f64, String> {
    let cost = text.parse::<f64>();
    cost.map_err(|_| "expected a number, such as 1, 0 or 2.5".to_owned()).and_then(range::rate)
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
    fn costs_are_numbers_that_are_not_negative() {
        assert_eq!(cost("2.5"), Ok(2.5));
        for text in ["-1", "nan", "inf", "1e308", "x", ""] {
            assert!(cost(text).is_err(), "{text}");
        }
    }
}
