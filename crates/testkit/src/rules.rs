//! Rules of the real services that a wrong client would violate: enforced here, too, they fail the test early.
//!
//! Only rules that the services are known to enforce; what a script's author may want to send is never judged.

use serde_json::Value;

use crate::request::Recorded;
use crate::wire::Protocol;

/// Anthropic's limit on cache marks.
const MAX_CACHE_MARKS: usize = 4;

/// The error text of the real service, if it would refuse the request.
pub(crate) fn check(protocol: Protocol, request: &Recorded) -> Result<(), String> {
    match protocol {
        Protocol::Anthropic => anthropic(request),
        Protocol::Responses => responses(&request.body),
        Protocol::Chat | Protocol::Ollama => chat(&request.body),
        Protocol::Gemini => gemini(&request.body),
    }
}

fn anthropic(request: &Recorded) -> Result<(), String> {
    if request.header("anthropic-version").is_none() {
        return Err("anthropic-version: header is required".to_owned());
    }
    let body = &request.body;
    for field in ["model", "max_tokens", "messages"] {
        require(body, field, &format!("{field}: Field required"))?;
    }
    let messages = list(&body["messages"]);
    match messages.first() {
        None => return Err("messages: at least one message is required".to_owned()),
        Some(first) if first["role"] != "user" => {
            return Err("messages: first message must use the \"user\" role".to_owned());
        }
        Some(_) => {}
    }
    let marks = marks(body);
    if marks > MAX_CACHE_MARKS {
        return Err(format!(
            "A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. Found {marks}."
        ));
    }
    for (number, message) in messages.iter().enumerate() {
        if message["content"] == ""
            || list(&message["content"]).iter().any(|b| b["type"] == "text" && b["text"] == "")
        {
            return Err("messages: text content blocks must be non-empty".to_owned());
        }
        let asked = if number == 0 { Vec::new() } else { ids(&messages[number - 1], "tool_use", "id") };
        let answered = ids(message, "tool_result", "tool_use_id");
        if let Some(stray) = answered.iter().find(|id| !asked.contains(id)) {
            return Err(format!(
                "messages.{number}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {stray}. \
                 Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if let Some(missing) = asked.iter().find(|id| !answered.contains(id)) {
            return Err(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}. \
                 Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
                number - 1
            ));
        }
    }
    Ok(())
}

fn responses(body: &Value) -> Result<(), String> {
    require(body, "model", "Missing required parameter: 'model'.")?;
    require(body, "input", "Missing required parameter: 'input'.")?;
    let input = list(&body["input"]);
    let call_ids = |kind: &str| -> Vec<&str> {
        input.iter().filter(|item| item["type"] == kind).filter_map(|item| item["call_id"].as_str()).collect()
    };
    let (asked, answered) = (call_ids("function_call"), call_ids("function_call_output"));
    if let Some(missing) = asked.iter().find(|id| !answered.contains(id)) {
        return Err(format!("No tool output found for function call {missing}."));
    }
    if let Some(stray) = answered.iter().find(|id| !asked.contains(id)) {
        return Err(format!("No tool call found for function call output with call_id {stray}."));
    }
    Ok(())
}

fn chat(body: &Value) -> Result<(), String> {
    require(body, "model", "you must provide a model parameter")?;
    require(body, "messages", "Missing required parameter: 'messages'.")?;
    let mut open: Vec<&str> = Vec::new();
    for (number, message) in list(&body["messages"]).iter().enumerate() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(at) = open.iter().position(|one| *one == id) else {
                return Err(format!(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
                     with 'tool_calls'. (messages.[{number}].role)"
                ));
            };
            open.remove(at);
            continue;
        }
        unanswered(&open)?;
        open = list(&message["tool_calls"]).iter().filter_map(|call| call["id"].as_str()).collect();
    }
    unanswered(&open)
}

fn unanswered(open: &[&str]) -> Result<(), String> {
    if open.is_empty() {
        return Ok(());
    }
    Err(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
         'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    ))
}

fn gemini(body: &Value) -> Result<(), String> {
    require(body, "contents", "* GenerateContentRequest.contents: contents is not specified")?;
    let contents = list(&body["contents"]);
    let count = |content: &Value, key: &str| {
        list(&content["parts"]).iter().filter(|part| part.get(key).is_some()).count()
    };
    for (number, content) in contents.iter().enumerate() {
        if list(&content["parts"]).is_empty() {
            return Err(format!(
                "* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty."
            ));
        }
        let before = if number == 0 { 0 } else { count(&contents[number - 1], "functionCall") };
        if before != count(content, "functionResponse") {
            return Err(
                "Please ensure that the number of function response parts is equal to the number of \
                function call parts of the function call turn."
                    .to_owned(),
            );
        }
    }
    Ok(())
}

fn require(body: &Value, field: &str, message: &str) -> Result<(), String> {
    if body.get(field).is_none_or(Value::is_null) { Err(message.to_owned()) } else { Ok(()) }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ids<'a>(message: &'a Value, kind: &str, key: &str) -> Vec<&'a str> {
    let blocks = list(&message["content"]).iter().filter(|block| block["type"] == kind);
    blocks.filter_map(|block| block[key].as_str()).collect()
}

/// The number of blocks with a cache mark: in tools, system and messages, not inside tool arguments.
fn marks(body: &Value) -> usize {
    let marked =
        |blocks: &Value| list(blocks).iter().filter(|block| block.get("cache_control").is_some()).count();
    let contents = list(&body["messages"]).iter().map(|message| marked(&message["content"])).sum::<usize>();
    marked(&body["tools"]) + marked(&body["system"]) + contents
}
