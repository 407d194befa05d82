//! The OpenAPI document, made from the table of routes. The schemas name every field; a test compares them with
//! what the types really write.

use serde_json::{Map, Value, json};

use super::routes::ROUTES;

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let mut parameters = Vec::new();
        if route.path.contains("{id}") {
            parameters.push(json!({
                "name": "id", "in": "path", "required": true, "schema": { "type": "string" },
                "description": "an id, a unique prefix of one, or a label",
            }));
        }
        for (name, meaning) in route.query {
            parameters.push(json!({
                "name": name, "in": "query", "schema": { "type": "boolean" }, "description": meaning,
            }));
        }
        let media = if route.answer == "FleetEvent" { "text/event-stream" } else { "application/json" };
        let mut operation = json!({
            "operationId": format!("{:?}", route.verb).to_lowercase(),
            "summary": route.summary,
            "parameters": parameters,
            "responses": {
                "2XX": { "description": "done", "content": { media: { "schema": reference(route.answer) } } },
                "default": {
                    "description": "refused",
                    "content": { "application/json": { "schema": reference("ErrorBody") } },
                },
            },
        });
        if let Some(body) = route.body {
            operation["requestBody"] =
                json!({ "content": { "application/json": { "schema": reference(body) } } });
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
        "components": { "schemas": schemas() },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Name, required fields, optional fields; each field with its kind.
type Schema =
    (&'static str, &'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const SCHEMAS: [Schema; 17] = [
    (
        "SpawnRequest",
        &[("spec", "object")],
        &[("secrets", "object"), ("program", "string?"), ("key", "string?")],
    ),
    ("Spawned", &[("id", "id"), ("dir", "string")], &[]),
    ("KillRequest", &[], &[("grace_ms", "integer?")]),
    ("RespawnRequest", &[], &[("secrets", "object"), ("program", "string?")]),
    ("Respawned", &[("id", "id"), ("old", "id"), ("archived", "string"), ("work", "strings")], &[]),
    (
        "ResumeRequest",
        &[],
        &[("secrets", "object"), ("program", "string?"), ("prompt", "string?"), ("limits", "object")],
    ),
    ("WakeRequest", &[], &[("secrets", "object")]),
    ("Removed", &[("id", "id"), ("work", "strings")], &[]),
    ("Awake", &[("id", "id"), ("socket", "string")], &[]),
    ("AgentList", &[("agents", "AgentRow[]")], &[]),
    (
        "AgentRow",
        &[
            ("id", "id"),
            ("label", "string?"),
            ("state", "state"),
            ("waiting_for", "object?"),
            ("activity", "string?"),
            ("asks", "objects"),
            ("turns", "integer"),
            ("usage", "object"),
            ("micro_usd", "integer?"),
            ("created_at", "integer"),
            ("age_ms", "integer"),
            ("updated_at", "integer"),
            ("branch", "string?"),
            ("worktree", "string?"),
            ("base_commit", "string?"),
            ("cwd", "string"),
            ("prompt", "string"),
            ("pid", "integer?"),
            ("shim_pid", "integer?"),
            ("socket", "string"),
            ("dir", "string"),
            ("ending", "object?"),
            ("note", "string?"),
            ("model", "string?"),
            ("last_text", "string?"),
            ("parent", "string?"),
            ("after", "strings"),
            ("queued_behind", "integer?"),
            ("hibernated", "boolean"),
            ("runs", "integer"),
        ],
        &[],
    ),
    (
        "DaemonStatus",
        &[
            ("health", "string"),
            ("pid", "integer"),
            ("version", "string"),
            ("protocol", "integer"),
            ("uptime_ms", "integer"),
            ("agents", "integer"),
            ("states", "object"),
            ("queued", "integer"),
            ("max_running", "integer"),
            ("socket", "string"),
            ("repo", "string"),
            ("base", "string"),
            ("log", "string"),
            ("found", "object"),
        ],
        &[],
    ),
    ("FleetEvent", &[("event", "string"), ("data", "object")], &[]),
    ("Stopping", &[("stopping", "boolean")], &[]),
    (
        "OpenApi",
        &[("openapi", "string"), ("info", "object"), ("paths", "object"), ("components", "object")],
        &[],
    ),
    ("ErrorBody", &[("error", "ApiError")], &[]),
    ("ApiError", &[("code", "string"), ("message", "string")], &[("hint", "string")]),
];

fn schemas() -> Value {
    let mut all = Map::new();
    for (name, required, optional) in SCHEMAS {
        let fields = required.iter().chain(optional);
        let properties: Map<String, Value> =
            fields.map(|(field, what)| ((*field).to_owned(), kind(what))).collect();
        let required: Vec<&str> = required.iter().map(|(field, _)| *field).collect();
        all.insert(
            name.to_owned(),
            json!({ "type": "object", "properties": properties, "required": required }),
        );
    }
    Value::Object(all)
}

fn kind(what: &str) -> Value {
    match what {
        "id" => json!({ "type": "string", "pattern": "^[0-9a-f]{8}$" }),
        "state" => {
            let words: Vec<&str> =
                caliban_core::lifecycle::State::ALL.iter().map(|state| state.word()).collect();
            json!({ "type": "string", "enum": words })
        }
        "strings" => json!({ "type": "array", "items": { "type": "string" } }),
        "objects" => json!({ "type": "array", "items": { "type": "object" } }),
        "AgentRow[]" => json!({ "type": "array", "items": reference("AgentRow") }),
        "ApiError" => reference("ApiError"),
        other => match other.strip_suffix('?') {
            Some(base) => json!({ "type": [base, "null"] }),
            None => json!({ "type": other }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_schema_that_a_route_names_is_there() {
        let names: BTreeSet<&str> = SCHEMAS.iter().map(|(name, ..)| *name).collect();
        let used = ROUTES.iter().flat_map(|route| route.body.into_iter().chain([route.answer]));
        assert_eq!(used.filter(|name| !names.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
        let document = document();
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method.to_lowercase()];
            assert_eq!(operation["summary"], route.summary);
        }
    }

    #[track_caller]
    fn check(name: &str, value: &impl serde::Serialize) {
        let value = serde_json::to_value(value).unwrap();
        let written: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let (_, required, optional) = SCHEMAS.iter().find(|(found, ..)| *found == name).unwrap();
        let named: BTreeSet<&str> = required.iter().chain(*optional).map(|(field, _)| *field).collect();
        assert_eq!(written, named, "{name}");
    }

    #[test]
    fn schemas_name_exactly_the_fields_that_are_written() {
        let id: caliban_core::ids::AgentId = "0a1b2c3d".parse().unwrap();
        let row = AgentRow {
            id,
            label: None,
            state: caliban_core::lifecycle::State::Spawning,
            waiting_for: None,
            activity: None,
            asks: Vec::new(),
            turns: 0,
            usage: Default::default(),
            micro_usd: None,
            created_at: 0,
            age_ms: 0,
            updated_at: 0,
            branch: None,
            worktree: None,
            base_commit: None,
            cwd: "/".into(),
            prompt: String::new(),
            pid: None,
            shim_pid: None,
            socket: "/".into(),
            dir: "/".into(),
            ending: None,
            note: None,
            model: None,
            last_text: None,
            parent: None,
            after: Vec::new(),
            queued_behind: None,
            hibernated: false,
            runs: 1,
        };
        let spec = caliban_core::spec::SpawnSpec::new("p", "/");
        check("SpawnRequest", &SpawnRequest { spec, secrets: Default::default(), program: None, key: None });
        check("Spawned", &Spawned { id, dir: "/".into() });
        check("KillRequest", &KillRequest::default());
        check("RespawnRequest", &RespawnRequest::default());
        check("Respawned", &Respawned { id, old: id, archived: "/".into(), work: Vec::new() });
        check("ResumeRequest", &ResumeRequest::default());
        check("WakeRequest", &WakeRequest::default());
        check("Removed", &Removed { id, work: Vec::new() });
        check("Awake", &Awake { id, socket: "/".into() });
        check("FleetEvent", &FleetEvent::Agent(Box::new(row.clone())));
        check("AgentList", &AgentList { agents: vec![row.clone()] });
        check("AgentRow", &row);
        let error = ApiError::new(ErrorCode::Busy, "x").hint("y");
        check("ApiError", &error);
        check("ErrorBody", &ErrorBody { error });
        let status = DaemonStatus {
            health: "ok".into(),
            pid: 1,
            version: "0".into(),
            protocol: VERSION,
            uptime_ms: 0,
            agents: 0,
            states: Default::default(),
            queued: 0,
            max_running: 1,
            socket: "/".into(),
            repo: "/".into(),
            base: "/".into(),
            log: "/".into(),
            found: FoundAtStart::default(),
        };
        check("DaemonStatus", &status);
    }
}
