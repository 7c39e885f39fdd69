//! The fields of `--json` for the manual pages, from the types that are printed.

use clap::builder::CommandExt;
use clap_mangen::roff::{Roff, bold, roman};
use schemars::JsonSchema;
use serde_json::Value;

use crate::json_schema::{self, SchemaOf};

/// What a command prints with `--json`; its attribute `add` says it.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Json(Vec<(&'static str, SchemaOf)>);

impl CommandExt for Json {}

impl Json {
    /// It prints a `T`.
    pub(in crate::cli) fn of<T: JsonSchema>() -> Self {
        Self::when::<T>("")
    }

    /// It prints a `T` in this case: `With --end`.
    pub(in crate::cli) fn when<T: JsonSchema>(case: &'static str) -> Self {
        Self(Vec::new()).or::<T>(case)
    }

    /// In this case it prints a `T` instead.
    pub(in crate::cli) fn or<T: JsonSchema>(mut self, case: &'static str) -> Self {
        self.0.push((case, |all| all.subschema_for::<T>()));
        self
    }

    /// Writes the section of a manual page.
    pub(super) fn write(&self, roff: &mut Roff) {
        roff.control("SH", ["JSON"]);
        for (case, schema) in &self.0 {
            let schema = json_schema::inline(*schema);
            roff.control("PP", []);
            roff.text([roman(match *case {
                "" => format!("{}.", sentence(&kind(&schema))),
                case => format!("{case}: {}.", kind(&schema)),
            })]);
            write_fields(roff, &schema, &mut Vec::new());
        }
    }
}

/// `text` with a capital letter.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// What a value is, for people: `array of objects`.
fn kind(schema: &Value) -> String {
    let word = |kind: &Value| match kind.as_str() {
        Some("string") => "text".to_owned(),
        Some("integer") => "number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("array") => match kind_of_elements(schema) {
            Some(elements) => format!("array of {elements}s"),
            None => "array".to_owned(),
        },
        other => other.unwrap_or("text").to_owned(),
    };
    match (&schema["anyOf"][0], &schema["type"]) {
        (Value::Null, Value::Array(kinds)) => {
            kinds.iter().map(word).collect::<Vec<_>>().join(" or ")
        }
        (Value::Null, one) => word(one),
        (one, _) => format!("{} or null", kind(one)),
    }
}

fn kind_of_elements(schema: &Value) -> Option<String> {
    let elements = kind(schema.get("items")?);
    Some(elements.trim_end_matches(" or null").to_owned())
}

/// Writes the fields of an object, or of the objects of an array, unless these are `written`.
fn write_fields(roff: &mut Roff, schema: &Value, written: &mut Vec<Value>) {
    let inner = [&schema["items"], &schema["anyOf"][0]].into_iter().find(|one| one.is_object());
    if let Some(inner) = inner {
        return write_fields(roff, inner, written);
    }
    let Some(fields) = schema["properties"].as_object() else { return };
    if written.contains(&schema["properties"]) {
        return;
    }
    written.push(schema["properties"].clone());
    // Those that are always there first, in the order in which they are printed.
    let always = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names: Vec<&str> = always.collect();
    let is_other = |name: &&str| !names.contains(name);
    let others: Vec<&str> = fields.keys().map(String::as_str).filter(is_other).collect();
    names.extend(others);
    for name in names {
        let field = &fields[name];
        let about = field["description"].as_str().unwrap_or_default();
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(format!("{}. {about}", sentence(&kind(field))).trim_end())]);
        roff.control("RS", []);
        write_fields(roff, field, written);
        roff.control("RE", []);
    }
}
