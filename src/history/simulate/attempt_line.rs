//! An attempt that would be refused, as a line.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::attempt::AttemptPart;
use super::decided::Decided;
use crate::event::Event;
use crate::event::fields::{EventField, FieldValue};
use crate::logs::item::Text;
use crate::policy::decided::DecidingLimit;
use crate::policy::word::Word as _;
use crate::text::{iso_exact, printable, utc};

/// An attempt that would be refused, as JSON has it.
#[derive(serde::Serialize)]
pub struct AttemptLine<'a> {
    time: String,
    stage: &'static str,
    verdict: &'static str,
    measured: &'static str,
    observed: bool,
    retry: u32,
    session: u64,
    /// What is known of it, without its recipient.
    #[serde(flatten)]
    event: LoggedFields<'a>,
    recipients: Vec<&'a str>,
    size: Option<u64>,
    #[serde(flatten)]
    by: DecidingLimit<'a>,
    rate: Option<f64>,
    limit: Option<f64>,
    text: &'a str,
}

/// The fields of an event that a log can show, as JSON has them.
struct LoggedFields<'a>(&'a Event<Text>);

impl Serialize for LoggedFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, value) in self.0.values().filter(|(field, _)| is_logged(field)) {
            match value {
                FieldValue::Text(text) => {
                    map.serialize_entry(field.name, &text.map(|one| &**one))?
                }
                FieldValue::Client(client) => {
                    map.serialize_entry(field.name, &client.address())?;
                }
            }
        }
        map.end()
    }
}

/// Whether logs show a field: no front end writes these into them, and the recipient is one of
/// several.
fn is_logged(field: &EventField) -> bool {
    !["script", "package", "recipient"].contains(&field.name)
}

fn stage(part: &AttemptPart) -> &'static str {
    match part {
        AttemptPart::Connect => "connect",
        AttemptPart::Auth => "auth",
        AttemptPart::Mail => "mail",
        AttemptPart::Rcpt { .. } => "rcpt",
        AttemptPart::Data { .. } => "data",
        AttemptPart::NotSmtp { .. } => "not-smtp",
        AttemptPart::Failed { .. } => "delivery",
        AttemptPart::Incomplete | AttemptPart::Close => "end",
    }
}

/// `TIME VERDICT STAGE [CLIENT] auth=… sender=… recipient=…: RATE UNIT, limit …, key …`
pub fn attempt_in_words(decided: &Decided<'_>) -> String {
    let (attempt, outcome) = (decided.attempt, &decided.decisions.outcome);
    let event = &attempt.event;
    let mut parts = vec![
        utc(attempt.at),
        match decided.would_be_refused() {
            true => format!("({})", outcome.measured.word()),
            false => outcome.verdict.word().to_owned(),
        },
        stage(&attempt.part).to_owned(),
    ];
    parts.push(match event.client.address() {
        Some(client) => format!("[{client}]"),
        None => "local".to_owned(),
    });
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            parts.push(format!("{name}=<{}>", printable(value.as_bytes())));
        }
    };
    add("auth", event.auth.as_deref());
    add("account", event.local_account.as_deref());
    add("from", event.sender.as_deref());
    match &attempt.part {
        AttemptPart::Rcpt { recipient } => add("for", Some(recipient)),
        AttemptPart::NotSmtp { recipients, .. } => {
            recipients.iter().for_each(|to| add("for", Some(to)))
        }
        _ => {}
    }
    if decided.retry > 0 {
        parts.push(format!("retry {}", decided.retry));
    }
    let mut text = parts.join(" ");
    if let (Some(policy), Some(reason)) = (&decided.decisions.policy, &outcome.reason) {
        let more = format!(
            ": policy {policy}: {}, key {} ({})",
            reason.measured(),
            reason.key(),
            reason.rule,
        );
        text.push_str(&printable(more.as_bytes()));
    }
    text
}

impl<'a> AttemptLine<'a> {
    /// Of this one.
    pub fn of(decided: &'a Decided<'_>) -> Self {
        let (attempt, outcome) = (decided.attempt, &decided.decisions.outcome);
        let reason = outcome.reason.as_deref();
        let (recipients, size) = match &attempt.part {
            AttemptPart::Rcpt { recipient } => (vec![&**recipient], None),
            AttemptPart::Data { size } => (Vec::new(), *size),
            AttemptPart::NotSmtp { recipients, size } => {
                (recipients.iter().map(|to| &**to).collect(), *size)
            }
            _ => (Vec::new(), None),
        };
        Self {
            time: iso_exact(attempt.at),
            stage: stage(&attempt.part),
            verdict: outcome.verdict.word(),
            measured: outcome.measured.word(),
            observed: outcome.observed,
            retry: decided.retry,
            session: attempt.session,
            event: LoggedFields(&attempt.event),
            recipients,
            size,
            by: DecidingLimit::of(decided.decisions),
            rate: reason.map(|reason| reason.decision.rate),
            limit: reason.map(|reason| reason.decision.limit),
            text: &outcome.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::fields::FIELDS;

    #[test]
    fn the_documentation_lists_the_fields_in_their_order() {
        let words: Vec<&str> =
            include_str!("../../../docs/simulate.md").split_whitespace().collect();
        let logged = FIELDS.iter().filter(|field| is_logged(field));
        let names: Vec<String> = logged.map(|field| format!("`{}`,", field.name)).collect();
        let listed = format!("`session` (a number), {} `recipients`", names.join(" "));
        assert!(words.join(" ").contains(&listed), "docs/simulate.md does not have {listed}");
        let event = Event { client: crate::event::Origin::Unknown, ..Event::default() };
        let json = serde_json::to_value(LoggedFields(&event)).unwrap();
        assert_eq!(json.as_object().unwrap().len(), names.len());
        assert!(json.as_object().unwrap().values().all(serde_json::Value::is_null));
    }
}
