//! An answer that did not come as a stream, taken apart into the events of one: some servers do not stream, or not
//! always.

use serde_json::{Value, json};

use crate::wire::Wire;

/// The events that would have made this answer; nothing when it is none of the protocol.
pub(crate) fn events(wire: Wire, answer: &Value) -> Option<Vec<Value>> {
    match wire {
        Wire::Responses => answer["output"]
            .is_array()
            .then(|| vec![json!({"type": "response.completed", "response": answer})]),
        Wire::Chat(_) => {
            let message = answer["choices"].get(0)?.get("message")?.clone();
            let mut event = answer.clone();
            event["choices"][0]["delta"] = message;
            if event["choices"][0]["finish_reason"].is_null() {
                event["choices"][0]["finish_reason"] = json!("stop");
            }
            Some(vec![event])
        }
        Wire::Anthropic => {
            let blocks = answer["content"].as_array()?;
            let mut events = vec![json!({"type": "message_start", "message": answer})];
            for (index, block) in blocks.iter().enumerate() {
                events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
            }
            events.push(json!({"type": "message_delta", "usage": answer["usage"],
                "delta": {"stop_reason": answer["stop_reason"]}}));
            events.push(json!({"type": "message_stop"}));
            Some(events)
        }
        Wire::Gemini => {
            let events = answer.as_array().cloned().unwrap_or_else(|| vec![answer.clone()]);
            events.iter().any(|event| event["candidates"].is_array()).then_some(events)
        }
    }
}
