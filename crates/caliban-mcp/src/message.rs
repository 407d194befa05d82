//! JSON-RPC messages: made, and told apart when they come in.

use serde_json::{Value, json};

use crate::error::McpError;

/// The largest message that is taken in.
pub(crate) const MESSAGE_BYTES: usize = 32 << 20;
/// The longest error text of a server that is passed on.
const ERROR_CHARS: usize = 2_000;

/// What came in.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    /// The answer to a request of ours.
    Answer { id: u64, result: Result<Value, RpcError> },
    /// A request to us.
    Request { id: Value, method: String, params: Value },
    /// Something that the server says unasked.
    Notification { method: String, params: Value },
    /// Something without meaning for us.
    Other,
}

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl From<RpcError> for McpError {
    fn from(error: RpcError) -> Self {
        Self::Answer { code: error.code, message: error.message }
    }
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

pub(crate) fn cancelled(id: u64, reason: &str) -> String {
    notification("notifications/cancelled", &json!({"requestId": id, "reason": reason}))
}

/// Our answer to a server's request: we offer nothing, and are there.
pub(crate) fn reply(id: &Value, method: &str) -> String {
    match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "this client offers nothing of the kind"}}),
    }
    .to_string()
}

/// A result for a server's request.
pub(crate) fn result(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

/// All messages in a text: one, or a batch of an older server.
pub(crate) fn read(text: &[u8]) -> Result<Vec<Incoming>, serde_json::Error> {
    Ok(match serde_json::from_slice(text)? {
        Value::Array(batch) => batch.into_iter().map(one).collect(),
        value => vec![one(value)],
    })
}

fn one(mut value: Value) -> Incoming {
    let id = value.get_mut("id").map(Value::take).unwrap_or(Value::Null);
    if let Some(method) = value.get("method").and_then(Value::as_str) {
        let method = method.to_owned();
        let params = value.get_mut("params").map(Value::take).unwrap_or(Value::Null);
        return if id.is_null() {
            Incoming::Notification { method, params }
        } else {
            Incoming::Request { id, method, params }
        };
    }
    let Some(id) = id.as_u64() else { return Incoming::Other };
    if let Some(error) = value.get("error") {
        let words = error.get("message").and_then(Value::as_str).unwrap_or("no reason given");
        let message = words.chars().take(ERROR_CHARS).collect();
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        return Incoming::Answer { id, result: Err(RpcError { code, message }) };
    }
    match value.get_mut("result") {
        Some(result) => Incoming::Answer { id, result: Ok(result.take()) },
        None => Incoming::Other,
    }
}
