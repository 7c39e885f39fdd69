//! Schemas of what is written as JSON, made of the types and their comments: the document of the
//! API has them, and manual pages list the fields.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

/// The schema of a type; those of the structs that it contains are kept in the generator.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Makes schemas as the document of the API has them.
pub(crate) fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .with_transform(plain)
        .for_serialize()
}

/// A schema that contains those of all structs in it.
pub(crate) fn inline(schema: SchemaOf) -> Value {
    let mut settings = settings();
    settings.inline_subschemas = true;
    let mut schema = schema(&mut settings.into_generator());
    plain(&mut schema);
    schema.to_value()
}

/// Says of a type what holds in JSON, whatever the program is written in.
fn plain(schema: &mut Schema) {
    schema.remove("format");
    schema.remove("additionalProperties");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    // What is infinite is null.
    if schema.get("type").is_some_and(|kind| kind == "number") {
        schema.insert("type".to_owned(), ["number", "null"].as_slice().into());
    }
    transform_subschemas(&mut plain, schema);
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde_json::json;

    use super::*;

    /// A leaf of a tree.
    #[derive(JsonSchema)]
    #[expect(dead_code)]
    struct Leaf {
        /// What it
        /// is called.
        name: String,
        weight: Option<u64>,
        height: f64,
    }

    #[test]
    fn a_struct_is_described_by_itself() {
        let mut all = settings().into_generator();
        let leaves = all.subschema_for::<Vec<Leaf>>().to_value();
        assert_eq!(leaves["items"], json!({ "$ref": "#/components/schemas/Leaf" }));
        assert_eq!(
            all.take_definitions(true)["Leaf"],
            json!({
                "type": "object",
                "description": "A leaf of a tree.",
                "properties": {
                    "name": { "type": "string", "description": "What it is called." },
                    "weight": { "type": ["integer", "null"], "minimum": 0 },
                    "height": { "type": ["number", "null"] },
                },
                "required": ["name", "weight", "height"],
            })
        );
    }
}
