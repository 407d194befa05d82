//! The OpenAPI document, made from the table of routes and the types that they name.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    ErrorBody,
    routes::{ROUTES, Verb, schema},
};

/// Where OpenAPI keeps the schemas.
const SCHEMAS: &str = "/components/schemas";

/// The document.
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = SCHEMAS.into())
        .into_generator();
    let refused = schema::<ErrorBody>(&mut generator);
    let mut paths = Map::new();
    for route in &ROUTES {
        let mut parameters = Vec::new();
        if route.path.contains("{id}") {
            parameters.push(json!({
                "name": "id", "in": "path", "required": true, "schema": { "type": "string" },
                "description": "an id, a unique prefix of one, or a label",
            }));
        }
        for (kind, of_kind) in [("boolean", route.query), ("integer", route.numbers)] {
            for (name, meaning) in of_kind {
                parameters.push(json!({
                    "name": name, "in": "query", "schema": { "type": kind }, "description": meaning,
                }));
            }
        }
        let media = if route.verb == Verb::Events { "text/event-stream" } else { "application/json" };
        let answer = (route.answer)(&mut generator);
        let mut operation = json!({
            "operationId": format!("{:?}", route.verb).to_lowercase(),
            "summary": route.summary,
            "parameters": parameters,
            "responses": {
                "2XX": { "description": "done", "content": { media: { "schema": answer } } },
                "default": {
                    "description": "refused", "content": { "application/json": { "schema": refused } },
                },
            },
        });
        if let Some(body) = route.body {
            operation["requestBody"] =
                json!({ "content": { "application/json": { "schema": body(&mut generator) } } });
        }
        let path = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        path[route.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "caliband",
            "version": super::VERSION.to_string(),
            "description": format!("The fleet of one repo. Every answer has the header {}.", super::HEADER),
        },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_every_reference_resolves() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Array(all) => all.iter().for_each(|value| references(value, found)),
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                _ => {}
            }
        }
        let document = document();
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method.to_lowercase()];
            assert_eq!(operation["summary"], route.summary);
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > ROUTES.len());
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        let row = &document["components"]["schemas"]["AgentRow"];
        assert_eq!(row["properties"]["created_at"]["format"], "date-time", "{row}");
        assert_eq!(row["properties"]["state"]["enum"][0], "spawning");
        let required = row["required"].as_array().unwrap();
        assert!(required.contains(&json!("id")) && !required.contains(&json!("label")), "{required:?}");
    }
}
