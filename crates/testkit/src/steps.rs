//! Scripts written in Rust: `script![text("hi"), tool("Read", json!({…})).chunks(3)]`.
//!
//! Owns only the shorthand; the format is `caliban_providers::script`.

use caliban_providers::script::{
    Fault, FaultKind, ScriptStep, ScriptStop, StepCondition, StepUsage, ToolCall,
};
use serde_json::Value;

/// A [`Script`](crate::script::Script) of these steps.
#[macro_export]
macro_rules! script {
    ($($step:expr),* $(,)?) => {
        $crate::script::Script { steps: vec![$($step),*] }
    };
}

/// The model says this.
pub fn text(text: impl Into<String>) -> ScriptStep {
    ScriptStep::say(text)
}

/// The model calls one tool.
pub fn tool(name: impl Into<String>, input: Value) -> ScriptStep {
    ScriptStep::call(name, input)
}

/// The model calls several tools at once.
pub fn tools<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> ScriptStep {
    calls.into_iter().fold(ScriptStep::default(), |step, (name, input)| step.and_tool(name, input))
}

/// The model thinks, and then does what is chained to this.
pub fn think(thought: impl Into<String>) -> ScriptStep {
    ScriptStep { thinking: Some(thought.into()), ..ScriptStep::default() }
}

/// Only an HTTP error, every time: `status(401)`. Chain `.times(n)` to limit it, `.retry_after("1")`.
pub fn status(status: u16) -> ScriptStep {
    ScriptStep::default().status(status).times(u32::MAX)
}

/// Further parts of a step, to be chained.
pub trait StepExt: Sized {
    /// Says this too (after the thinking, before the tool calls).
    fn and_text(self, text: impl Into<String>) -> ScriptStep;
    /// Calls this tool too.
    fn and_tool(self, name: impl Into<String>, input: Value) -> ScriptStep;
    /// Calls this tool with arguments that are not JSON.
    fn and_broken_tool(self, name: impl Into<String>, raw_input: impl Into<String>) -> ScriptStep;
    /// Gives the last tool call this id.
    fn call_id(self, id: impl Into<String>) -> ScriptStep;
    /// Thinks this first.
    fn thinking(self, thought: impl Into<String>) -> ScriptStep;
    /// Has this usage, without cached tokens.
    fn costs(self, input: u64, output: u64) -> ScriptStep;
    /// Has this usage; the four counts are disjoint.
    fn costs_cached(self, usage: StepUsage) -> ScriptStep;
    /// Stops for this reason.
    fn stopping(self, stop: ScriptStop) -> ScriptStep;
    /// Answers only requests for which this holds.
    fn when(self, when: StepCondition) -> ScriptStep;
    /// Answers only requests whose last user message contains this (text or tool results).
    fn on(self, contains: impl Into<String>) -> ScriptStep;
    /// Answers only conversations whose first prompt contains this.
    fn on_first(self, contains: impl Into<String>) -> ScriptStep;
    /// Is never used up.
    fn forever(self) -> ScriptStep;
    /// Sends the text in this many pieces.
    fn in_chunks(self, chunks: usize) -> ScriptStep;
    /// Waits before anything is answered.
    fn delay(self, millis: u64) -> ScriptStep;
    /// Waits before each piece of the text.
    fn chunk_delay(self, millis: u64) -> ScriptStep;
    /// Fails like this first.
    fn fault(self, fault: Fault) -> ScriptStep;
    /// Is cut off once after so many pieces: those of the text, then two for each call's arguments.
    fn cut(self, after_chunks: usize) -> ScriptStep;
    /// Falls silent once after so many pieces, with the connection open.
    fn stall(self, after_chunks: usize) -> ScriptStep;
    /// Sends an error event once after so many pieces.
    fn error_event(self, after_chunks: usize, message: impl Into<String>) -> ScriptStep;
    /// Answers with an HTTP error once.
    fn status(self, status: u16) -> ScriptStep;
    /// Closes the connection once before anything is answered.
    fn refuse(self) -> ScriptStep;
    /// Fails so many times.
    fn times(self, times: u32) -> ScriptStep;
    /// The `Retry-After` of the HTTP error.
    fn retry_after(self, value: impl Into<String>) -> ScriptStep;
    /// The whole body of the HTTP error, see [`Protocol::error_body`](crate::Protocol::error_body).
    fn body(self, body: impl Into<String>) -> ScriptStep;
}

impl StepExt for ScriptStep {
    fn and_text(self, text: impl Into<String>) -> ScriptStep {
        ScriptStep { text: Some(text.into()), ..self }
    }

    fn and_tool(mut self, name: impl Into<String>, input: Value) -> ScriptStep {
        self.tool_calls.push(ToolCall { name: name.into(), input, ..ToolCall::default() });
        self
    }

    fn and_broken_tool(mut self, name: impl Into<String>, raw_input: impl Into<String>) -> ScriptStep {
        let call = ToolCall { name: name.into(), raw_input: Some(raw_input.into()), ..ToolCall::default() };
        self.tool_calls.push(call);
        self
    }

    #[track_caller]
    fn call_id(mut self, id: impl Into<String>) -> ScriptStep {
        self.tool_calls.last_mut().expect("call_id needs a tool call before it").id = Some(id.into());
        self
    }

    fn thinking(self, thought: impl Into<String>) -> ScriptStep {
        ScriptStep { thinking: Some(thought.into()), ..self }
    }

    fn costs(self, input: u64, output: u64) -> ScriptStep {
        self.costs_cached(StepUsage { input, output, ..StepUsage::default() })
    }

    fn costs_cached(self, usage: StepUsage) -> ScriptStep {
        ScriptStep { usage: Some(usage), ..self }
    }

    fn stopping(self, stop: ScriptStop) -> ScriptStep {
        ScriptStep { stop: Some(stop), ..self }
    }

    fn when(self, when: StepCondition) -> ScriptStep {
        ScriptStep { when: Some(when), ..self }
    }

    fn on(self, contains: impl Into<String>) -> ScriptStep {
        let when = self.when.clone().unwrap_or_default();
        self.when(StepCondition { contains: Some(contains.into()), ..when })
    }

    fn on_first(self, contains: impl Into<String>) -> ScriptStep {
        let when = self.when.clone().unwrap_or_default();
        self.when(StepCondition { first_prompt_contains: Some(contains.into()), ..when })
    }

    fn forever(self) -> ScriptStep {
        ScriptStep { repeat: true, ..self }
    }

    fn in_chunks(self, chunks: usize) -> ScriptStep {
        ScriptStep { chunks: Some(chunks), ..self }
    }

    fn delay(self, millis: u64) -> ScriptStep {
        ScriptStep { delay_ms: Some(millis), ..self }
    }

    fn chunk_delay(self, millis: u64) -> ScriptStep {
        ScriptStep { chunk_delay_ms: Some(millis), ..self }
    }

    fn fault(self, fault: Fault) -> ScriptStep {
        ScriptStep { fault: Some(fault), ..self }
    }

    fn cut(self, after_chunks: usize) -> ScriptStep {
        self.fault(Fault { after_chunks, ..Fault::once(FaultKind::Cut) })
    }

    fn stall(self, after_chunks: usize) -> ScriptStep {
        self.fault(Fault { after_chunks, ..Fault::once(FaultKind::Stall) })
    }

    fn error_event(self, after_chunks: usize, message: impl Into<String>) -> ScriptStep {
        let body = Some(message.into());
        self.fault(Fault { after_chunks, body, ..Fault::once(FaultKind::ErrorEvent) })
    }

    fn status(self, status: u16) -> ScriptStep {
        self.fault(Fault { status: Some(status), ..Fault::once(FaultKind::Status) })
    }

    fn refuse(self) -> ScriptStep {
        self.fault(Fault::once(FaultKind::Refuse))
    }

    #[track_caller]
    fn times(mut self, times: u32) -> ScriptStep {
        self.fault.as_mut().expect("times needs a fault before it").times = times;
        self
    }

    #[track_caller]
    fn retry_after(mut self, value: impl Into<String>) -> ScriptStep {
        self.fault.as_mut().expect("retry_after needs a status before it").retry_after = Some(value.into());
        self
    }

    #[track_caller]
    fn body(mut self, body: impl Into<String>) -> ScriptStep {
        self.fault.as_mut().expect("body needs a status before it").body = Some(body.into());
        self
    }
}
