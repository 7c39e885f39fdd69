//! `exirate set`: changes or creates the record of a key.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::{self, print_incidents};
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, note, noted};
use crate::cli::shared::{complete, times};
use crate::cli::{Failure, Json, Outcome};
use crate::engine::AlgorithmKind;
use crate::rate::Timestamp;
use crate::spec::{Context, Spec, StoredKey};
use crate::standing::exchange::range;
use crate::standing::in_force::InForce;
use crate::standing::key_state::{KeyState, KeyStateJson};
use crate::standing::{key_text, words};
use crate::store::{Edit, Edited, Inspect, OwnedKey};
use crate::text;
use crate::text::time::now;

/// Set the rate, limit or time of a key, or create it
#[derive(Debug, Args)]
#[command(after_help = help(), add = Json::of::<SetReport>())]
pub(in crate::cli) struct Set {
    /// Set this key
    #[arg(value_name = "KEY", add = complete::keys())]
    key: OsString,

    /// Set the rate at the time of --at
    #[arg(long, value_name = "N", value_parser = rate, allow_negative_numbers = true)]
    rate: Option<f64>,

    /// Set the limit, as in a spec; the next check that counts sets its own
    #[arg(long, value_name = "M", value_parser = limit, allow_negative_numbers = true)]
    limit: Option<f64>,

    /// Set when the last event was counted; the default with --rate is `now`
    #[arg(long, value_name = "TIME", value_parser = at)]
    at: Option<Timestamp>,

    /// Mark this unique event, such as a recipient, as counted
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    event: Option<OsString>,

    /// Create the record if it does not exist; KEY is then taken byte for byte
    #[arg(long, requires_all = ["rate", "limit", "mode", "period"])]
    create: bool,

    /// Select the record of this mode
    #[arg(long, value_name = "MODE", add = complete::modes())]
    mode: Option<String>,

    /// Select the record with this period; with --create, as the spec has it
    #[arg(long, value_name = "P", add = complete::periods())]
    period: Option<String>,

    /// Take KEY byte for byte: no globs, no escapes, no other notations
    #[arg(long)]
    exact: bool,

    /// With --create: create the record of a spec that has `unique=`
    #[arg(long, requires = "create")]
    unique: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Set bob's rate to 90 events an hour:
    exirate set bob@example.net --rate 90
  Mark a recipient as counted, so that it does not count again for carol:
    exirate set carol@example.org --event dave@example.net
  Block a client before Exim has seen it:
    exirate set 203.0.113.9 --create --mode per_conn --period 10m --rate 100 --limit 20

{key} It must match one record; --mode and --period select
it. To unblock a key, use `exirate unblock`.

Exit status: 0 changed; 1 KEY matches nothing; 2 an error.

{manual}

KEY must match one record; --mode and --period select it. The change is atomic, and
Exim may run meanwhile. It is printed, and logged to audit.log in the database's
directory and to syslog (facility mail). To unblock a key, use `exirate unblock`.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

/// A record before and after it was set.
#[derive(Serialize, JsonSchema)]
struct SetReport {
    /// Null for a new key.
    before: Option<KeyStateJson>,
    after: KeyStateJson,
    event_was_counted: Option<bool>,
}

impl Set {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.rate.is_none() && self.limit.is_none() && self.at.is_none() && self.event.is_none()
        {
            return Err(Failure::new(
                "nothing to set: use --rate, --limit, --at or --event; `exirate set --help` has \
                 examples",
            ));
        }
        let mut store = self.common.open_to_change()?;
        let Some(key) = self.selected(&mut *store)? else { return Ok(Outcome::Found) };
        if key.algorithm == AlgorithmKind::Share {
            return Err(Failure::new(
                "a share follows from what went out and what of it failed, and cannot be set; \
                 `exirate unblock` forgets both",
            ));
        }
        let period = key_text::period_seconds(&key.key());
        let edit = Edit {
            rate: self.rate,
            at: self.at,
            limit: self.limit,
            event: self.event.as_deref().map(|event| event.as_bytes()),
            period: period.unwrap_or_default(),
            create: self.create,
            now: now(),
        };
        let edited = store.set(key.key(), &edit)?;
        print_incidents(&mut *store);
        let Some(edited) = edited else {
            note("the record was removed meanwhile; --create creates it again");
            return Ok(Outcome::Found);
        };
        self.log(&mut *store, &edited);
        let in_force = noted(InForce::of(&mut *store, &self.common.directory()?));
        self.print(screen, edited, &in_force)?;
        Ok(Outcome::Fine)
    }

    /// The key that is selected; `None` if there is none, which is reported.
    fn selected(&self, store: &mut dyn Inspect) -> Result<Option<OwnedKey>, Failure> {
        if self.create {
            return self.new_key().map(Some);
        }
        let narrow = Narrow::of(self.mode.as_deref(), self.period.as_deref(), self.exact)
            .map_err(|what| Failure::new(format!("--mode or --period: {what}")))?;
        let mut selection =
            Selection::new(std::slice::from_ref(&self.key), &narrow, &self.common.folding()?)?;
        let (keys, unread) = selection.keys(store)?;
        match &*keys {
            [] => {
                selection.report_missing(store)?;
                database::incomplete(unread)?;
                Ok(None)
            }
            [key] => Ok(Some(key.clone())),
            keys => {
                let some: Vec<String> =
                    keys.iter().take(5).map(|key| key_text::stored(&key.name)).collect();
                let more = if keys.len() > some.len() { ", …" } else { "" };
                Err(Failure::new(format!(
                    "{} matches {} records: {}{more}; name one, with --mode and --period if needed",
                    text::printable(self.key.as_bytes()),
                    keys.len(),
                    some.join(", ")
                )))
            }
        }
    }

    /// The stored key of a spec with this mode and period.
    fn new_key(&self) -> Result<OwnedKey, Failure> {
        let mode = self.mode.as_deref().unwrap_or_default();
        let period = self.period.as_deref().unwrap_or_default();
        let unique = if self.unique { " / unique=x" } else { "" };
        let spec = format!("0 / {period} / {mode}{unique} / strict / x");
        let request = Spec::parse(spec.as_bytes())
            .and_then(|spec| spec.request(&Context::outside()))
            .map_err(|error| Failure::new(format!("--mode or --period: {error}")))?;
        let mut key = request.key;
        key.truncate(request.key_start);
        // A spec takes an unknown mode for a key.
        if StoredKey::parse(&key).is_none() || Narrow::of(Some(mode), Some(period), true).is_err() {
            return Err(Failure::new(format!(
                "--mode {mode}: expected per_mail, per_rcpt, per_addr, per_conn, per_cmd or \
                 per_byte"
            )));
        }
        key.extend_from_slice(self.key.as_bytes());
        Ok(StoredKey::record_key(&key).into())
    }

    fn log(&self, store: &mut dyn Inspect, edited: &Edited) {
        let was = edited.before.as_ref().map_or_else(
            || "new".to_owned(),
            |b| {
                format!(
                    "was rate={} limit={} at={}",
                    b.average.rate,
                    b.limit,
                    text::iso(b.average.at)
                )
            },
        );
        let event = self.event.as_deref().map_or_else(String::new, |event| {
            format!(" event={}", text::printable(event.as_bytes()))
        });
        AuditLog::new().add(
            store,
            format_args!(
                "set rate={} limit={} at={}{event} ({was}) key={}",
                edited.after.average.rate,
                edited.after.limit,
                text::iso(edited.after.average.at),
                key_text::stored(&edited.after.key)
            ),
        );
    }

    fn print(
        &self,
        screen: &mut Screen<'_>,
        edited: Edited,
        in_force: &InForce,
    ) -> Result<(), Failure> {
        let now = in_force.now;
        let after = KeyState::from(edited.after);
        let before = edited.before.map(KeyState::from);
        if self.common.json {
            return screen.json(&SetReport {
                before: before.map(|before| in_force.json(&before)),
                after: in_force.json(&after),
                event_was_counted: edited.seen,
            });
        }
        let cells = |r: &KeyState| {
            [format!("{:.1}", r.rate(now)), text::number(r.limit), text::local(r.average.at)]
        };
        let old = before.as_ref().map_or_else(|| ["-", "-", "-"].map(str::to_owned), cells);
        let new = cells(&after);
        let verb = if before.is_some() { "changed" } else { "created" };
        writeln!(screen, "{verb} {}", words::name(&after))?;
        for ((what, old), new) in ["rate now", "limit", "last seen"].iter().zip(old).zip(new) {
            match old == new {
                true => writeln!(screen, "  {what:<9}  {new}, as before")?,
                false => writeln!(screen, "  {what:<9}  {new}, was {old}")?,
            }
        }
        if let Some((event, seen)) = self.event.as_deref().zip(edited.seen) {
            let event = text::printable(event.as_bytes());
            let what = if seen { "was counted already" } else { "is marked as counted" };
            writeln!(screen, "  event      {event} {what}")?;
        }
        Ok(())
    }
}

/// A rate: a number, not negative.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>();
    rate.map_err(|_| "expected a number, such as 0, 12 or 2.5".to_owned()).and_then(range::rate)
}

/// A limit, as a spec has it.
fn limit(text: &str) -> Result<f64, String> {
    if text.trim().is_empty() {
        return Err("expected a number, such as 100 or 10k".to_owned());
    }
    let spec = format!("{} / 1h / strict / x", text.replace('/', "//"));
    Spec::parse(spec.as_bytes())
        .and_then(|spec| spec.request(&Context::outside()))
        .map_err(|error| error.to_string())
        .and_then(|request| range::limit(request.limit))
}

/// When the last event was counted.
fn at(text: &str) -> Result<Timestamp, String> {
    let at = times::at(text)?;
    range::time(at.seconds, now()).map(|_| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_a_spec() {
        assert_eq!(limit("10k"), Ok(10_240.0));
        assert_eq!(limit("0.5"), Ok(0.5));
        assert_eq!(limit("inf"), Ok(f64::INFINITY));
        for text in ["-1", "x", "", "1/2", "nan", "1e308", "-9e18"] {
            assert!(limit(text).is_err(), "{text}");
        }
        assert_eq!(rate("2.5"), Ok(2.5));
        assert!(at("@1795175437").is_ok() && at("now").is_ok());
        for text in ["@-1", "1969-12-31T00:00:00Z", "9999-01-01T00:00:00Z", "@253402207200"] {
            assert!(at(text).is_err(), "{text}");
        }
        for text in ["-1", "nan", "inf", "x", "1e308", "-9e18"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
