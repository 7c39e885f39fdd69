//! An event as a line of JSON.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::event::{RECIPIENTS_MAX, Recipients, ReplayEvent, ReplayOutcome, Stage};
use crate::event::fields::{FIELDS, FieldPlace, FieldValue};
use crate::event::{Event, Origin};
use crate::policy::key;
use crate::policy::word::Word;
use crate::rate::Timestamp;
use crate::toml_file::diagnostic::similar;

/// The fields before and after those of [`FIELDS`](crate::event::fields::FIELDS).
const FIRST: [&str; 3] = ["time", "stage", "session"];
const LAST: [&str; 6] = ["recipients", "size", "local", "system", "outcome", "comment"];

/// The names of all fields.
fn names() -> impl Iterator<Item = &'static str> {
    FIRST.into_iter().chain(FIELDS.iter().map(|field| field.name)).chain(LAST)
}

impl ReplayEvent {
    /// Reads a JSON object. A field that is `null` is as one that is missing; `comment` is
    /// whatever it is.
    ///
    /// # Errors
    /// The field that is wrong, and what would be right.
    pub fn from_json(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| not_json(&error))?;
        let Value::Object(fields) = value else {
            return Err(format!("expected a JSON object, not {}", kind(&value)));
        };
        if let Some(unknown) = fields.keys().find(|name| names().all(|known| known != *name)) {
            return Err(match similar(unknown, names()) {
                Some(known) => format!("unknown field {unknown:?}; did you mean {known:?}?"),
                None => format!(
                    "unknown field {unknown:?}; the fields are {}",
                    names().collect::<Vec<_>>().join(", ")
                ),
            });
        }
        let mut known = Event::default();
        for (field, place) in known.places() {
            match place {
                FieldPlace::Text(value) => *value = text(&fields, field.name)?,
                FieldPlace::Client(origin) => {
                    *origin = Origin::of_client(address(&fields, field.name)?);
                }
            }
        }
        let event = Self {
            time: time(field(&fields, "time"))?,
            stage: word(&fields, "stage")?.unwrap_or_default(),
            session: name(&fields, "session")?,
            recipients: recipients(&fields, known.recipient.take())?,
            event: known,
            size: size(&fields)?,
            local: flag(&fields, "local")?,
            system: flag(&fields, "system")?,
            outcome: word::<ReplayOutcome>(&fields, "outcome")?,
        };
        event.checked()
    }

    /// The JSON object that is read as this event, which has no outcome.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut fields = Map::new();
        let Timestamp { seconds, micros } = self.time;
        let time = seconds as f64 + f64::from(micros) / 1e6;
        let mut set = |name: &str, value: Value| {
            if !value.is_null() {
                fields.insert(name.to_owned(), value);
            }
        };
        set("time", time.into());
        set("stage", self.stage.word().into());
        set("session", self.session.clone().into());
        for (field, value) in self.event.values() {
            match value {
                FieldValue::Text(text) => set(field.name, text.cloned().into()),
                FieldValue::Client(origin) => {
                    set(field.name, origin.address().map(|client| client.to_string()).into());
                }
            }
        }
        match &self.recipients {
            Recipients::Addresses(all) => set("recipients", all.clone().into()),
            Recipients::Count(count) => set("recipients", (*count).into()),
        }
        set("size", self.size.into());
        set("local", self.local.into());
        set("system", self.system.into());
        Value::Object(fields).to_string()
    }

    /// The event, if its fields agree with each other.
    fn checked(self) -> Result<Self, String> {
        if let Some(outcome) = self.outcome.filter(|outcome| outcome.stage() != self.stage) {
            return Err(format!(
                "\"outcome\": {:?} is of the stage {:?}, not {:?}",
                outcome.word(),
                outcome.stage().word(),
                self.stage.word()
            ));
        }
        let is_of_one = matches!(self.stage, Stage::Rcpt | Stage::Router | Stage::Delivery);
        if is_of_one && matches!(self.recipients, Recipients::Count(_)) {
            return Err(format!(
                "\"recipients\": the stage {:?} takes addresses, not their number",
                self.stage.word()
            ));
        }
        Ok(self)
    }
}

fn not_json(error: &serde_json::Error) -> String {
    // `expected … at line 1 column 5`: the line is known to the reader.
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("not JSON: {text} at column {}", error.column())
}

/// A field that is there, and not `null`.
fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn wrong(name: &str, value: &Value, expected: &str) -> String {
    let mut shown = value.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).chain("…".chars()).collect();
    }
    format!("{name:?}: expected {expected}, not {shown}")
}

/// `a number`, for an error.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match field(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(name, other, "a string")),
    }
}

/// A name: a string, or a number that stands for one.
fn name(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match field(fields, name) {
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) if !other.is_string() => Err(wrong(name, other, "a string or a number")),
        _ => text(fields, name),
    }
}

fn flag(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, String> {
    match field(fields, name) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(wrong(name, other, "true or false")),
    }
}

fn word<W: Word>(fields: &Map<String, Value>, name: &str) -> Result<Option<W>, String> {
    let Some(value) = field(fields, name) else { return Ok(None) };
    let known = value.as_str().and_then(W::of);
    let expected = || format!("one of {}", W::words().join(", "));
    known.map(Some).ok_or_else(|| wrong(name, value, &expected()))
}

fn address(fields: &Map<String, Value>, name: &str) -> Result<Option<IpAddr>, String> {
    let Some(value) = field(fields, name) else { return Ok(None) };
    let address = value.as_str().and_then(key::address);
    let expected = "an IP address, such as \"192.0.2.7\" or \"2001:db8::7\"";
    address.map(Some).ok_or_else(|| wrong(name, value, expected))
}

fn size(fields: &Map<String, Value>) -> Result<Option<u64>, String> {
    let Some(value) = field(fields, "size") else { return Ok(None) };
    let expected = "a number of bytes, such as 2500";
    value.as_u64().map(Some).ok_or_else(|| wrong("size", value, expected))
}

fn recipients(fields: &Map<String, Value>, one: Option<String>) -> Result<Recipients, String> {
    let Some(value) = field(fields, "recipients") else {
        return Ok(Recipients::Addresses(one.into_iter().collect()));
    };
    if one.is_some() {
        return Err("\"recipient\" and \"recipients\" are both there; expected one of them".into());
    }
    let expected = "an array of addresses, or their number";
    let too_many = || format!("\"recipients\": more than {RECIPIENTS_MAX}");
    match value {
        Value::Array(all) if all.len() > RECIPIENTS_MAX => Err(too_many()),
        Value::Array(all) => {
            let one = |value: &Value| value.as_str().map(str::to_owned).ok_or(value.clone());
            let addresses: Result<Vec<String>, Value> = all.iter().map(one).collect();
            addresses.map(Recipients::Addresses).map_err(|value| {
                wrong("recipients", &value, "addresses in the array, each a string")
            })
        }
        value => match value.as_u64() {
            Some(count) if count > RECIPIENTS_MAX as u64 => Err(too_many()),
            Some(count) => Ok(Recipients::Count(count as u32)), // small
            None => Err(wrong("recipients", value, expected)),
        },
    }
}

/// The time: RFC 3339, or seconds since 1970.
fn time(value: Option<&Value>) -> Result<Timestamp, String> {
    let expected = "a time, such as \"2026-11-20T11:50:37Z\" or 1795175437.5 (seconds since 1970)";
    let value = value.ok_or_else(|| format!("\"time\" is missing; expected {expected}"))?;
    let parsed = match value {
        Value::String(text) => text.parse::<jiff::Timestamp>().ok(),
        Value::Number(number) => number.as_f64().and_then(|seconds| {
            // Exact for more than two hundred years, to the microsecond.
            let micros = (seconds * 1e6).round();
            (0.0..=253_402_207_200e6)
                .contains(&micros)
                .then(|| jiff::Timestamp::from_microsecond(micros as i64).ok())?
        }),
        _ => None,
    };
    let micros = parsed.map(jiff::Timestamp::as_microsecond);
    // The engine counts from 1970 on.
    let micros = micros.filter(|&micros| micros >= 0);
    let micros = micros.ok_or_else(|| wrong("time", value, expected))?;
    Ok(Timestamp {
        seconds: micros.div_euclid(1_000_000),
        micros: u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_what_its_fields_say() {
        let line = r#"{"time":"2026-11-20T10:50:37.5Z","auth":"alice","client":"2001:db8::7",
            "recipients":["a@x.test","b@x.test"],"size":2500,"sender":"","session":7,
            "outcome":null,"comment":{"line":1}}"#;
        let event = ReplayEvent::from_json(line).unwrap();
        let expected = ReplayEvent {
            time: Timestamp { seconds: 1_795_171_837, micros: 500_000 },
            session: Some("7".into()),
            event: Event {
                auth: Some("alice".into()),
                client: Origin::Client("2001:db8::7".parse().unwrap()),
                sender: Some(String::new()),
                ..Event::default()
            },
            recipients: Recipients::Addresses(vec!["a@x.test".into(), "b@x.test".into()]),
            size: Some(2500),
            ..ReplayEvent::default()
        };
        assert_eq!(event, expected);
        assert_eq!(ReplayEvent::from_json(&expected.to_json()).unwrap(), expected);
        let line = r#"{"time":1795171837.25,"stage":"auth","outcome":"failed","recipients":3}"#;
        let event = ReplayEvent::from_json(line).unwrap();
        assert_eq!(event.time, Timestamp { seconds: 1_795_171_837, micros: 250_000 });
        assert_eq!(event.recipients, Recipients::Count(3));
        assert_eq!((event.stage, event.outcome), (Stage::Auth, Some(ReplayOutcome::Failed)));
    }

    #[test]
    fn an_error_names_the_field_and_what_would_be_right() {
        for (line, error) in [
            ("", "not JSON: EOF while parsing a value at column 0"),
            ("{\"time\":1", "not JSON: EOF while parsing an object at column 9"),
            ("[]", "expected a JSON object, not an array"),
            (
                "{}",
                "\"time\" is missing; expected a time, such as \"2026-11-20T11:50:37Z\" or \
                 1795175437.5 (seconds since 1970)",
            ),
            (r#"{"time":1,"clinet":"x"}"#, "unknown field \"clinet\"; did you mean \"client\"?"),
            (
                r#"{"time":1,"client":"x"}"#,
                "\"client\": expected an IP address, such as \"192.0.2.7\" or \"2001:db8::7\", \
                 not \"x\"",
            ),
            (r#"{"time":1,"auth":7}"#, "\"auth\": expected a string, not 7"),
            (
                r#"{"time":1,"size":-1}"#,
                "\"size\": expected a number of bytes, such as 2500, not -1",
            ),
            (
                r#"{"time":1,"recipients":[1]}"#,
                "\"recipients\": expected addresses in the array, each a string, not 1",
            ),
            (
                r#"{"time":1,"recipient":"a","recipients":2}"#,
                "\"recipient\" and \"recipients\" are both there; expected one of them",
            ),
            (
                r#"{"time":1,"outcome":"failed"}"#,
                "\"outcome\": \"failed\" is of the stage \"auth\", not \"message\"",
            ),
            (
                r#"{"time":1,"outcome":"ok","stage":"auth"}"#,
                "\"outcome\": expected one of failed, rejected, undeliverable, unknown, not \"ok\"",
            ),
            (
                r#"{"time":1,"stage":"rcpt","recipients":3}"#,
                "\"recipients\": the stage \"rcpt\" takes addresses, not their number",
            ),
            (r#"{"time":1,"local":"yes"}"#, "\"local\": expected true or false, not \"yes\""),
            (r#"{"time":1,"recipients":100001}"#, "\"recipients\": more than 100000"),
        ] {
            assert_eq!(ReplayEvent::from_json(line).unwrap_err(), error, "{line}");
        }
        for time in ["-1", "1e300", "\"11:50\"", "\"2026-11-20 11:50:37\"", "true"] {
            let error = ReplayEvent::from_json(&format!("{{\"time\":{time}}}")).unwrap_err();
            assert!(error.starts_with("\"time\": expected a time, such as"), "{error}");
            assert!(error.ends_with(&format!("not {time}")) || time == "1e300", "{error}");
        }
    }
}
