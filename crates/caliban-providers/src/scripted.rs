//! The scripted provider: answers from a script, in this process, with no network.
//!
//! Delays are real, faults become the failures that a network would have made, and those go through
//! the same retries.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use caliban_core::message::Block;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    BoxFuture, Delta, ModelReply, ModelRequest, Provider, ProviderError, Watch,
    error::AttemptFailure,
    kind::ProviderKind,
    retry::{self, Attempt, RetryPolicy, RetryTarget},
    script::{Fault, FaultKind, Script, ScriptState, ScriptStep, ScriptView},
    wire::{self, Observe, arguments},
};

/// What the demo model says to everything.
const DEMO_ANSWER: &str = "Hello! I am the scripted demo model of Caliban: I always give this answer, and I run no \
tools.\nTo talk to a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or start a local Ollama \
(`ollama serve`) and name a model with `--provider ollama --model <name>`.";
/// In how many pieces it says so.
const DEMO_CHUNKS: usize = 24;

/// The script that is used when none is given.
pub fn demo() -> Script {
    let step = ScriptStep { repeat: true, chunks: Some(DEMO_CHUNKS), ..ScriptStep::say(DEMO_ANSWER) };
    Script { steps: vec![step] }
}

/// A provider that follows a script.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    state: Mutex<ScriptState>,
    policy: RetryPolicy,
}

impl Scripted {
    /// A provider that follows this script.
    pub fn new(script: Script, policy: RetryPolicy) -> Self {
        Self { script, state: Mutex::default(), policy }
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        ProviderKind::Scripted.name()
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest<'a>,
        watch: &'a mut dyn Watch,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ModelReply, ProviderError>> {
        Box::pin(async move {
            let target = RetryTarget {
                provider: ProviderKind::Scripted,
                url: "the script",
                policy: &self.policy,
                governor: None,
            };
            retry::run(target, self, &request, watch, cancel).await
        })
    }
}

impl Attempt for Scripted {
    fn attempt<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        observe: &'a mut Observe<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, AttemptFailure>> {
        Box::pin(async move {
            let view = ScriptView::of(request);
            let step = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.script.next(&mut state, &view).map_err(AttemptFailure::Script)?
            };
            pause(step.delay_ms).await;
            if let Some(fault) = &step.fault
                && matches!(fault.kind, FaultKind::Status | FaultKind::Refuse)
            {
                return Err(self.failure(fault).await);
            }
            if let Some(thinking) = &step.thinking {
                observe(Delta::Thinking(thinking.clone()));
            }
            for (sent, piece) in step.pieces().into_iter().enumerate() {
                if let Some(fault) = &step.fault
                    && sent >= fault.after_chunks
                {
                    return Err(self.failure(fault).await);
                }
                pause(step.chunk_delay_ms).await;
                observe(Delta::Text(piece));
            }
            if let Some(fault) = &step.fault {
                return Err(self.failure(fault).await);
            }
            for (id, name, _) in step.calls(view.turn) {
                observe(Delta::ToolUse { id, name });
            }
            Ok(reply(&step, &view))
        })
    }
}

impl Scripted {
    async fn failure(&self, fault: &Fault) -> AttemptFailure {
        let body = fault.body.as_deref();
        match fault.kind {
            FaultKind::Cut => AttemptFailure::Cut,
            FaultKind::Stall => {
                tokio::time::sleep(self.policy.stall).await;
                AttemptFailure::Stalled(self.policy.stall)
            }
            FaultKind::Status => {
                let asked = fault.retry_after.as_deref();
                let asked = asked.and_then(|value| retry::retry_after(value, jiff::Timestamp::now()));
                let body = body.unwrap_or("the script says so");
                AttemptFailure::from_body(fault.status.unwrap_or(500), body.as_bytes(), asked)
            }
            FaultKind::ErrorEvent => {
                let message = body.unwrap_or("the script says so");
                AttemptFailure::from_event(
                    &json!({"error": {"type": "overloaded_error", "message": message}}),
                )
            }
            FaultKind::Refuse => {
                AttemptFailure::Network(caliban_http::HttpError::Refused { host: "the script".to_owned() })
            }
        }
    }
}

fn reply(step: &ScriptStep, view: &ScriptView) -> ModelReply {
    let mut blocks = Vec::new();
    if let Some(thinking) = &step.thinking {
        blocks.push(Block::Thinking {
            text: thinking.clone(),
            provider: ProviderKind::Scripted.name().to_owned(),
            raw: json!({"thinking": thinking}),
        });
    }
    if let Some(text) = step.text.clone().filter(|text| !text.is_empty()) {
        blocks.push(Block::Text { text });
    }
    blocks.extend(step.calls(view.turn).into_iter().map(|(id, name, text)| Block::ToolUse {
        id,
        name,
        input: arguments(&text),
        extra: None,
    }));
    wire::reply(step.stop_reason(), blocks, step.usage(view), None, view.model.clone())
}

async fn pause(milliseconds: Option<u64>) {
    if let Some(milliseconds) = milliseconds {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}
