//! How `exirate explain` shows a logged event, what would happen to the next, and a crossing.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::senders::events::{EventJson, decisive, key};
use crate::cli::senders::list::OVER;
use crate::cli::shared::screen::{Screen, note};
use crate::history::explain::crossing::{Crossing, Sender, Tally, span};
use crate::rate::Timestamp;
use crate::spool::{Enforcement, LoggedEvent};
use crate::standing::explained::{EventExplanation, NowExplanation};
use crate::standing::in_force::until;
use crate::standing::key_text;
use crate::standing::logged::{by, limit_text};
use crate::text;
use crate::text::time::now;
use crate::trace::{Access, TraceStore};

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

/// Prints them: each override that decides, and each remedy, once. `said` has those that were said.
pub(super) fn print_now(
    screen: &mut Screen<'_>,
    all: &[NowExplanation],
    said: &mut HashSet<String>,
) -> Result<(), Failure> {
    for one in all {
        writeln!(screen, "now, {}", one.title)?;
        let is_new = one.decides.as_ref().is_none_or(|decides| said.insert(decides.clone()));
        let text = if is_new { &one.text } else { &one.limit };
        writeln!(screen, "  {:<8}  {text}", "next")?;
        let new = one.remedies.iter().filter(|remedy| said.insert((*remedy).clone()));
        for (n, text) in new.enumerate() {
            writeln!(screen, "  {:<8}  {text}", if n == 0 { "to pass" } else { "or" })?;
        }
    }
    Ok(())
}

/// What drove a sender over, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(super) struct CrossingJson {
    event: EventJson,
    sender: Option<String>,
    judgement: Option<String>,
    /// The figures; null where no messages are recorded.
    crossing: Option<Crossing>,
}

/// Explains a crossing; returns whether messages are recorded of it.
pub(super) fn explain_crossing(
    screen: &mut Screen<'_>,
    directory: &Path,
    event: &LoggedEvent,
    (server, elsewhere): (&str, Option<&str>),
    json: bool,
) -> Result<bool, Failure> {
    let window = decisive(event);
    let sender = Sender::of_event(event);
    let store = TraceStore::open_if_any(directory, Access::Read)?;
    let crossing = match (&store, &sender) {
        (Some(store), Some(sender)) => Some(Crossing::of_event(store, sender, event, &window)?),
        _ => None,
    };
    let known = crossing.as_ref().is_some_and(|crossing| crossing.messages > 0);
    let judgement = crossing.as_ref().map(Crossing::judgement);
    let words = sender.as_ref().map(Sender::words);
    if json {
        let event = EventJson::on(server, event);
        screen.json(&CrossingJson { event, sender: words, judgement, crossing })?;
        return Ok(known);
    }
    let verdict = match (&judgement, &sender) {
        (Some(judgement), _) => judgement.clone(),
        (None, None) => "its key names no sender, so its messages are not known".to_owned(),
        (None, Some(_)) => "no messages are recorded here".to_owned(),
    };
    let shown = format!("{}: {}", key_text::title(key(event)), text::printable(verdict.as_bytes()));
    writeln!(screen, "{}", screen.paint(OVER.bold(), shown))?;
    let limit = limit_text(event, &window);
    let mut lines = vec![(
        "crossing",
        format!("{}, {limit}, rate {:.1} with the event", text::local(event.at), window.after),
    )];
    if let Some(words) = words {
        let (since, _) = span(event, &window);
        let since = text::local(Timestamp { seconds: since, micros: 0 });
        lines.push(("sender", format!("{}, since {since}", text::printable(words.as_bytes()))));
    }
    if let Some(crossing) = crossing.as_ref().filter(|_| known) {
        lines.extend(figures(crossing));
    }
    for (name, value) in &lines {
        writeln!(screen, "  {name:<10}  {value}")?;
    }
    if !known && let Some(other) = elsewhere {
        note(format_args!(
            "messages are recorded where they pass: on {}, run `exirate explain --crossing {}`",
            text::printable(other.as_bytes()),
            text::shell(&key_text::key(key(event)))
        ));
    } else if store.is_none() {
        note(
            "there is no trace store: let Exim record messages, by the function record in the ACL \
             for DATA, to know the next time: see docs/recording.md and man exirate-functions",
        );
    } else if !known && sender.is_some() {
        note(
            "the trace store has no message of this sender in that time: are all messages recorded, \
             and kept as long? See `exirate stats` and docs/recording.md",
        );
    }
    Ok(known)
}

fn figures(crossing: &Crossing) -> Vec<(&'static str, String)> {
    let Crossing { messages, recipients, different_recipients, recipient_domains, .. } = crossing;
    let mut lines = vec![
        ("messages", messages.to_string()),
        ("recipients", format!("{recipients}, {different_recipients} different")),
        ("domains", format!("{recipient_domains}: {}", listed(&crossing.domains))),
        ("clients", format!("{}: {}", crossing.client_networks, listed(&crossing.networks))),
        ("senders", format!("{}: {}", crossing.different_senders, listed(&crossing.senders))),
    ];
    if let Some(alike) = &crossing.alike {
        let texts = match alike.texts {
            1 => "one text".to_owned(),
            texts => format!(
                "{texts} different texts, the most frequent in {}",
                text::percent(alike.largest)
            ),
        };
        let likeness = text::percent(alike.likeness);
        lines.push((
            "alike",
            format!("{likeness} on average, of {} compared; {texts}", alike.compared),
        ));
    }
    lines.extend(crossing.unknown.iter().map(|why| ("not known", why.clone())));
    lines
}

/// `example.net 40, example.com 3`, each with its messages.
fn listed(tallies: &[Tally]) -> String {
    let one = |tally: &Tally| {
        let name = if tally.name.is_empty() { "<>" } else { &tally.name };
        format!("{} ({})", text::printable(name.as_bytes()), tally.messages)
    };
    tallies.iter().map(one).collect::<Vec<_>>().join(", ")
}
