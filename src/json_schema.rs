//! JSON whose schema is stated with its type: the fields, their types and what they mean are
//! written once, in a struct, and an OpenAPI document has them from there.

use serde_json::{Map, Value, json};

/// A type whose values in JSON have a schema.
pub(crate) trait Schema {
    /// Its schema; those of structs are added to `all`, and named.
    fn schema(all: &mut Schemas) -> Value;
}

/// The schemas of structs, by name.
#[derive(Debug, Default)]
pub(crate) struct Schemas(Map<String, Value>);

impl Schemas {
    /// What may be null in the struct `name` may be left out as well.
    pub(crate) fn null_is_absent(&mut self, name: &str) {
        let Some(object) = self.0.get_mut(name) else { return };
        let may_be_null = |schema: &Value| {
            schema["type"].as_array().is_some_and(|types| types.contains(&"null".into()))
        };
        let properties = object["properties"].clone();
        if let Some(required) = object["required"].as_array_mut() {
            required.retain(|name| !may_be_null(&properties[name.as_str().unwrap_or_default()]));
        }
    }

    /// A reference to the schema of the struct `name`, whose `fields` have a name, a description
    /// and a schema each.
    pub(crate) fn object(
        &mut self,
        name: &str,
        about: &str,
        fields: impl FnOnce(&mut Self) -> Vec<(&'static str, &'static str, Value)>,
    ) -> Value {
        if !self.0.contains_key(name) {
            // It may contain itself.
            self.0.insert(name.to_owned(), Value::Null);
            let fields = fields(self);
            let required: Vec<_> = fields.iter().map(|(name, ..)| *name).collect();
            let property = |(name, about, schema): &(&str, &str, Value)| {
                let mut schema = schema.clone();
                if let (Some(schema), false) = (schema.as_object_mut(), about.is_empty()) {
                    schema.insert("description".to_owned(), about.trim().into());
                }
                ((*name).to_owned(), schema)
            };
            let properties: Map<_, _> = fields.iter().map(property).collect();
            let schema = json!({
                "type": "object",
                "description": about.trim(),
                "properties": properties,
                "required": required,
            });
            self.0.insert(name.to_owned(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// All of them.
    pub(crate) fn all(self) -> Map<String, Value> {
        self.0
    }
}

/// Declares structs that are written as JSON, with their schemas. The comment of a field is its
/// description.
macro_rules! described {
    ($(
        $(#[doc = $about:literal])*
        $visible:vis struct $name:ident {
            $($(#[doc = $what:literal])* $seen:vis $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Debug, serde::Serialize)]
        $visible struct $name {
            $($(#[doc = $what])* $seen $field: $type,)*
        }

        impl $crate::json_schema::Schema for $name {
            fn schema(all: &mut $crate::json_schema::Schemas) -> serde_json::Value {
                all.object(stringify!($name), concat!($($about),*), |all| vec![$((
                    stringify!($field).trim_start_matches("r#"),
                    concat!($($what),*),
                    <$type as $crate::json_schema::Schema>::schema(all),
                ),)*])
            }
        }
    )*};
}
pub(crate) use described;

macro_rules! plain {
    ($($type:ty => $schema:tt,)*) => {$(
        impl Schema for $type {
            fn schema(_: &mut Schemas) -> Value {
                json!($schema)
            }
        }
    )*};
}

plain! {
    String => { "type": "string" },
    &'static str => { "type": "string" },
    bool => { "type": "boolean" },
    // What is infinite is null.
    f64 => { "type": ["number", "null"] },
    i64 => { "type": "integer" },
    u64 => { "type": "integer", "minimum": 0 },
    usize => { "type": "integer", "minimum": 0 },
}

impl<T: Schema> Schema for Vec<T> {
    fn schema(all: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(all) })
    }
}

impl<T: Schema> Schema for Option<T> {
    fn schema(all: &mut Schemas) -> Value {
        let schema = T::schema(all);
        match schema.get("type") {
            Some(Value::String(name)) => {
                let types = json!([name, "null"]);
                let mut schema = schema;
                schema["type"] = types;
                schema
            }
            Some(_) => schema,
            None => json!({ "anyOf": [schema, { "type": "null" }] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    described! {
        /// A leaf of a tree.
        struct Leaf {
            /// What it
            /// is called.
            name: String,
            weight: Option<u64>,
        }

        /// A tree.
        struct Tree {
            /// Its leaves.
            leaves: Vec<Leaf>,
            /// The first one.
            first: Option<Leaf>,
        }
    }

    #[test]
    fn a_struct_is_described_by_itself() {
        let mut all = Schemas::default();
        let tree = Tree::schema(&mut all);
        assert_eq!(tree, json!({ "$ref": "#/components/schemas/Tree" }));
        let all = Value::Object(all.all());
        assert_eq!(
            all["Leaf"],
            json!({
                "type": "object",
                "description": "A leaf of a tree.",
                "properties": {
                    "name": { "type": "string", "description": "What it is called." },
                    "weight": { "type": ["integer", "null"], "minimum": 0 },
                },
                "required": ["name", "weight"],
            })
        );
        assert_eq!(all["Tree"]["properties"]["first"]["anyOf"][1], json!({ "type": "null" }));
        let leaf = Leaf { name: "a".to_owned(), weight: None };
        let written = serde_json::to_value(Tree { leaves: vec![leaf], first: None }).unwrap();
        assert_eq!(written, json!({ "leaves": [{ "name": "a", "weight": null }], "first": null }));
    }
}
