//! An event that was logged, explained.

use std::io::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use super::remedies;
use crate::cli::Failure;
use crate::cli::senders::events::key;
use crate::cli::senders::list::OVER;
use crate::cli::shared::screen::Screen;
use crate::policy::explain::Measured;
use crate::rate::{Timestamp, Wait};
use crate::spool::{Enforcement, LoggedEvent};
use crate::standing::in_force::until;
use crate::standing::key_state::later;
use crate::standing::key_text;
use crate::standing::logged::{LoggedLimits, by};
use crate::text;
use crate::text::time::now;

/// An event that was logged, explained, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventExplanation {
    /// Its limits; what is not known of them is null.
    windows: Vec<WindowJson>,
    /// When it would have passed all of them.
    passes_at: Option<String>,
    /// The same in words.
    text: Vec<String>,
    /// What would let it pass.
    remedies: Vec<String>,
}

/// A limit, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct WindowJson {
    window: String,
    /// average, bucket, calendar or share.
    algorithm: &'static str,
    limit: f64,
    /// What the event counted.
    count: Option<f64>,
    rate_before: Option<f64>,
    rate: f64,
    over: bool,
    /// In seconds; null: never, or not known.
    retry_after: Option<u64>,
    /// The smallest whole limit that would let it pass.
    least_limit: f64,
}

/// Whether an event was refused, as far as the logs here say.
#[derive(Clone, Copy)]
pub(super) enum WasRefused {
    /// It was.
    Yes,
    /// No refusal is logged.
    NotLogged,
    /// It was on another server, and so is the log.
    Elsewhere,
}

impl EventExplanation {
    pub(super) fn of(event: &LoggedEvent) -> Self {
        let limits = LoggedLimits::of(event);
        let (measured, waits): (Vec<Measured<'_>>, Vec<Option<Wait>>) = limits.measured().unzip();
        // What ends a block is said of now.
        let is_blocked = event.blocked().is_some();
        let wait = limits.wait().and_then(Wait::whole_seconds).filter(|_| !is_blocked);
        let at = Timestamp { micros: 0, ..event.at };
        let passes = wait.map(|seconds| later(at, seconds + 1));
        let when = passes.zip(wait).map(|(at, seconds)| {
            let (at, wait) = (text::local(at), text::duration(seconds as f64));
            format!("at {at}, {wait} after the event, if nothing else was counted")
        });
        let windows = waits.iter().zip(&measured).map(|(wait, measured)| WindowJson {
            window: measured.window.to_owned(),
            algorithm: measured.algorithm.word(),
            limit: measured.limit,
            count: measured.count,
            rate_before: measured.before,
            rate: measured.after,
            over: measured.over,
            retry_after: wait.and_then(Wait::whole_seconds),
            least_limit: measured.least_limit(),
        });
        Self {
            windows: windows.collect(),
            passes_at: passes.map(text::iso),
            text: measured.iter().map(ToString::to_string).collect(),
            remedies: match is_blocked {
                true => Vec::new(),
                false => remedies::then(&measured, event.record_key().kind, when.as_deref()),
            },
        }
    }

    pub(super) fn print(
        &self,
        screen: &mut Screen<'_>,
        event: &LoggedEvent,
        server: &str,
        refused: WasRefused,
    ) -> Result<(), Failure> {
        let shown = key_text::title(key(event));
        let (at, age) = (text::local(event.at), text::age(event.at, now()));
        let what = match refused {
            _ if event.enforcement == Enforcement::Waits => "over its limit, waits",
            WasRefused::Yes => "refused",
            _ if event.enforcement != Enforcement::Enforced => "over its limit, not refused,",
            WasRefused::NotLogged => "over its limit, no refusal is logged,",
            WasRefused::Elsewhere => "over its limit",
        };
        let line = format_args!("{shown}: {what} at {at} ({age})");
        writeln!(screen, "{}", screen.paint(OVER.bold(), line))?;
        let mut line = |name: &str, value: &str| writeln!(screen, "  {name:<8}  {value}");
        line("by", &by(event))?;
        if let Some(block) = event.blocked() {
            line("blocked", &until(block))?;
        }
        let texts = event.texts.map(|text| text::printable(text));
        let parts = [
            ("message", texts.message_id),
            ("login", texts.login),
            ("client", texts.client),
            ("script", texts.script),
            ("from", texts.sender),
            ("to", texts.recipient),
            ("server", text::printable(server.as_bytes())),
        ];
        let facts: Vec<String> = parts
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if !facts.is_empty() {
            line("event", &facts.join(", "))?;
        }
        for (n, text) in self.text.iter().enumerate() {
            line(if n == 0 { "limits" } else { "" }, text)?;
        }
        match refused {
            _ if event.enforcement == Enforcement::Waits => {
                line("why", "it is sent later: docs/later.md")?;
            }
            WasRefused::Yes => {}
            _ if event.enforcement == Enforcement::Observed => {
                line("why", "the policy only observed")?;
            }
            _ if event.enforcement == Enforcement::Exempt => {
                line("why", "the policy exempted the key")?;
            }
            WasRefused::NotLogged => {
                let why = "it was only counted, or the log of refusals does not go back so far";
                line("why", why)?;
            }
            WasRefused::Elsewhere => {
                let key = text::shell(&key_text::key(key(event)));
                line(
                    "why",
                    &format!(
                        "see there, `exirate explain {key}`: refusals are logged where they happen"
                    ),
                )?;
            }
        }
        for (n, text) in self.remedies.iter().enumerate() {
            line(if n == 0 { "to pass" } else { "or" }, text)?;
        }
        Ok(())
    }
}
