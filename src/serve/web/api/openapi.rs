//! The schema of the API, of its routes and types.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::route::{Parameter, Route};
use super::types::{Change, Crossing, Missed};
use crate::json_schema;
use crate::serve::web::http::problem::ProblemJson;
use crate::toml_file::Word as _;

/// The document of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let settings = json_schema::settings();
    let mut replies = settings.clone().into_generator();
    // What may be null in a request may be left out.
    let mut requests = settings.for_deserialize().into_generator();
    let problem = replies.subschema_for::<ProblemJson>();
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        let method = route.method.as_str().to_lowercase();
        path[&method] = operation(route, &problem, &mut replies);
        if let Some(schema) = route.body {
            let content = json!({ "application/json": { "schema": schema(&mut requests) } });
            path[method]["requestBody"] = json!({ "required": true, "content": content });
        }
    }
    let mut schemas = replies.take_definitions(true);
    schemas.append(&mut requests.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "exirate",
            "summary": "Rates, limits and overrides of a mail server",
            "version": "1",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "exirate",
                    "description": "Over TLS it is called __Host-exirate.",
                },
            },
        },
    })
}

fn operation(route: &Route, problem: &Schema, all: &mut SchemaGenerator) -> Value {
    let parameter = |&(name, needed, about): &Parameter| {
        json!({
            "name": name,
            "in": "query",
            "required": needed,
            "description": about,
            "schema": { "type": "string" },
        })
    };
    let parameters: Vec<_> = route.query.iter().map(parameter).collect();
    let good = match route.reply {
        Some(schema) => json!({ "application/json": { "schema": schema(all) } }),
        None if route.path.ends_with("/events") => {
            // What `data` has is in the components.
            let _: [Schema; 3] = [
                all.subschema_for::<Missed>(),
                all.subschema_for::<Crossing>(),
                all.subschema_for::<Change>(),
            ];
            json!({ "text/event-stream": { "schema": { "type": "string" } } })
        }
        None => json!({ "application/json": {} }),
    };
    let mut operation = json!({
        "summary": route.about,
        "operationId": route.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".json"),
        "parameters": parameters,
        "responses": {
            "200": { "description": "It was done.", "content": good },
            "default": {
                "description": "A problem.",
                "content": { "application/problem+json": { "schema": problem } },
            },
        },
        "security": [],
    });
    if let Some(role) = route.role {
        operation["security"] = json!([{ "token": [] }, { "cookie": [] }]);
        operation["description"] = format!("Role: {}.", role.word()).into();
    }
    operation
}
