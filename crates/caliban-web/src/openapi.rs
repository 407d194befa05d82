//! `GET /openapi.json`: the routes for programs. Their JSON shapes are in `docs/reference/web-api.md`.

use axum::Json;
use serde_json::{Map, Value, json};

/// Method, path and summary.
const ROUTES: &[(&str, &str, &str)] = &[
    ("post", "/auth/link", "Swap a link's token for a cookie and a page key"),
    ("post", "/auth/leave", "Sign this device out"),
    ("get", "/api/v1/me", "Who asks, and whom"),
    ("get", "/api/v1/devices", "All devices that are signed in"),
    ("delete", "/api/v1/devices/{id}", "Sign a device out"),
    ("post", "/api/v1/links", "Another one-time link"),
    ("get", "/api/v1/fleet", "The agents of all repos"),
    ("get", "/api/v1/asks", "All open questions, with the whole call"),
    ("get", "/api/v1/events", "What happens, as server-sent events"),
    ("get", "/api/v1/repos/{repo}/new", "What the form of a new agent needs"),
    ("post", "/api/v1/repos/{repo}/agents", "A new agent"),
    ("get", "/api/v1/repos/{repo}/agents/{id}", "One agent"),
    ("delete", "/api/v1/repos/{repo}/agents/{id}", "Remove an agent"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/approve", "Allow exactly one call"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/deny", "Refuse exactly one call"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/send", "Say something to an agent"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/kill", "End an agent"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/cancel", "End its turn"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/resume", "Let an ended agent go on"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/respawn", "Start anew from its request"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/merge", "Land its work, or try to"),
    ("get", "/api/v1/repos/{repo}/agents/{id}/diff", "What it changed"),
    ("get", "/api/v1/repos/{repo}/agents/{id}/diff/file", "The rows of one changed file"),
    ("get", "/api/v1/repos/{repo}/agents/{id}/transcript", "A page of its transcript"),
    ("get", "/api/v1/repos/{repo}/agents/{id}/output/{call}", "What a call gave back, all of it"),
    ("post", "/api/v1/repos/{repo}/agents/{id}/seen", "So far somebody has read"),
    ("get", "/api/v1/repos/{repo}/agents/{id}/usage", "Tokens, context and cost over time"),
    ("get", "/ui/api/sessions", "The broker's sessions"),
    ("get", "/ui/api/agents", "The agents of a session"),
    ("get", "/ui/api/agents/{id}/inbox", "What an agent has got"),
    ("get", "/ui/api/agents/{id}/sent", "What an agent has sent"),
    ("get", "/ui/api/timeline", "The newest messages of a session"),
    ("post", "/ui/api/messages/send", "Send a message; stored when it answers"),
    ("get", "/api/v1/broker/sessions", "The broker's sessions"),
    ("get", "/api/v1/broker/sessions/{session}", "A session with its agents and messages"),
    ("post", "/api/v1/broker/sessions/{session}/send", "Send as Administrator"),
    ("get", "/api/v1/broker/sessions/{session}/members/{id}/pane", "What a member's pane shows"),
    ("get", "/api/v1/search", "Full text over transcripts and messages"),
    ("get", "/api/v1/timeline", "Who worked, waited and asked when"),
    ("get", "/api/v1/spend", "Tokens and cost by day, agent and model"),
    ("get", "/metrics", "Figures for Prometheus"),
];

/// The document.
pub(crate) async fn document() -> Json<Value> {
    let mut paths: Map<String, Value> = Map::new();
    for (method, path, summary) in ROUTES {
        let parameters: Vec<Value> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        let operation = json!({
            "summary": summary,
            "parameters": parameters,
            "responses": {"200": {"description": "done"}, "default": {"description": "{\"error\": {\"code\", \"message\", \"hint\"}}"}},
        });
        let known = paths.entry((*path).to_owned()).or_insert_with(|| json!({}));
        known[*method] = operation;
    }
    Json(json!({
        "openapi": "3.1.0",
        "info": {"title": "caliban dashboard", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": crate::guard::COOKIE},
            "page": {"type": "apiKey", "in": "header", "name": "X-Caliban-Page"},
        }},
        "security": [{"token": []}, {"cookie": [], "page": []}],
    }))
}
