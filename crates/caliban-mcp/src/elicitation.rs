//! Questions of a server to a person, in the middle of a call (elicitation). Whoever embeds the client puts them; without
//! somebody who does, servers are not told that they could ask.

use std::sync::Arc;

use caliban_tools::BoxFuture;
use serde_json::{Map, Value, json};

/// Characters of a question that are passed on.
const MESSAGE_CHARS: usize = 2_000;

/// Puts a question to a person.
pub type Elicit = Arc<dyn Fn(ServerQuestion) -> BoxFuture<'static, ElicitationReply> + Send + Sync>;

/// A question of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerQuestion {
    /// The server.
    pub server: String,
    /// Its words.
    pub message: String,
    /// What kind of answer it wants.
    pub form: ElicitationForm,
}

/// What kind of answer a server wants.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationForm {
    /// Yes or no.
    Confirm(Map<String, Value>),
    /// One value, as text.
    Text {
        /// The field's name.
        name: String,
        /// Its type: `string`, `number` or `integer`.
        kind: String,
        /// The only values; any when empty.
        choices: Vec<String>,
    },
    /// More than can be asked here.
    Other,
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElicitationReply {
    /// Yes.
    Yes,
    /// This.
    Text(String),
    /// No.
    No,
}

impl ServerQuestion {
    /// The question in a server's request.
    pub(crate) fn of(server: &str, params: &Value) -> Self {
        let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
        let message = message.chars().take(MESSAGE_CHARS).collect();
        Self { server: server.to_owned(), message, form: form(params.get("requestedSchema")) }
    }

    /// The result for the server.
    pub(crate) fn result(&self, reply: ElicitationReply) -> Value {
        match (&self.form, reply) {
            (ElicitationForm::Confirm(content), ElicitationReply::Yes) => {
                json!({"action": "accept", "content": content})
            }
            (ElicitationForm::Text { name, kind, choices }, ElicitationReply::Text(text)) => {
                match value(&text, kind, choices) {
                    Some(value) => json!({"action": "accept", "content": {name: value}}),
                    None => json!({"action": "decline"}),
                }
            }
            _ => json!({"action": "decline"}),
        }
    }
}

fn form(schema: Option<&Value>) -> ElicitationForm {
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let Some(properties) = properties else { return ElicitationForm::Confirm(Map::new()) };
    let kind = |field: &Value| field.get("type").and_then(Value::as_str).unwrap_or("string").to_owned();
    if properties.values().all(|field| kind(field) == "boolean") {
        return ElicitationForm::Confirm(
            properties.keys().map(|name| (name.clone(), Value::Bool(true))).collect(),
        );
    }
    let mut fields = properties.iter();
    match (fields.next(), fields.next()) {
        (Some((name, field)), None) if ["string", "number", "integer"].contains(&kind(field).as_str()) => {
            let choices = field.get("enum").and_then(Value::as_array).into_iter().flatten();
            let choices = choices.filter_map(Value::as_str).map(str::to_owned).collect();
            ElicitationForm::Text { name: name.clone(), kind: kind(field), choices }
        }
        _ => ElicitationForm::Other,
    }
}

/// A text as the value that the server wants.
fn value(text: &str, kind: &str, choices: &[String]) -> Option<Value> {
    let text = text.trim();
    match kind {
        "integer" => text.parse::<i64>().ok().map(Value::from),
        "number" => text.parse::<f64>().ok().map(Value::from),
        _ if choices.is_empty() || choices.iter().any(|choice| choice == text) => Some(text.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(schema: Value) -> ServerQuestion {
        ServerQuestion::of("hub", &json!({"message": "sure?", "requestedSchema": schema}))
    }

    #[test]
    fn what_was_said_becomes_what_the_server_wants() {
        let decline = json!({"action": "decline"});
        let confirm = question(json!({"type": "object", "properties": {"ok": {"type": "boolean"}}}));
        assert_eq!(
            confirm.result(ElicitationReply::Yes),
            json!({"action": "accept", "content": {"ok": true}})
        );
        assert_eq!(confirm.result(ElicitationReply::No), decline);
        let bare = question(json!({"type": "object", "properties": {}}));
        assert_eq!(bare.result(ElicitationReply::Yes), json!({"action": "accept", "content": {}}));
        let name = question(json!({"properties": {"name": {"type": "string", "enum": ["a", "b"]}}}));
        assert_eq!(
            name.result(ElicitationReply::Text(" b".into())),
            json!({"action": "accept", "content": {"name": "b"}})
        );
        assert_eq!(name.result(ElicitationReply::Text("c".into())), decline);
        assert_eq!(name.result(ElicitationReply::Yes), decline);
        let count = question(json!({"properties": {"count": {"type": "integer"}}}));
        assert_eq!(
            count.result(ElicitationReply::Text("3".into())),
            json!({"action": "accept", "content": {"count": 3}})
        );
        assert_eq!(count.result(ElicitationReply::Text("x".into())), decline);
        let two = question(json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}));
        assert_eq!((two.form.clone(), two.result(ElicitationReply::Yes)), (ElicitationForm::Other, decline));
    }
}
