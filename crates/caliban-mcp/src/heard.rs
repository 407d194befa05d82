//! What a server says unasked: that a call goes on, and that its tools are others now.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use tokio::sync::mpsc;

/// Characters of a progress message that are passed on.
const MESSAGE_CHARS: usize = 500;

/// See the module. One for each connection.
#[derive(Default)]
pub(crate) struct Heard {
    beats: Mutex<HashMap<u64, mpsc::UnboundedSender<String>>>,
    has_other_tools: AtomicBool,
}

/// Listens for the progress of one request; forgotten when this is dropped.
pub(crate) struct Beats<'a> {
    heard: &'a Heard,
    id: u64,
    pub(crate) next: mpsc::UnboundedReceiver<String>,
}

impl Heard {
    /// Listens for the progress of the request with this id, which is its token, too.
    pub(crate) fn beats(&self, id: u64) -> Beats<'_> {
        let (send, next) = mpsc::unbounded_channel();
        self.table().insert(id, send);
        Beats { heard: self, id, next }
    }

    /// Takes a notification in.
    pub(crate) fn take(&self, method: &str, params: &Value) {
        match method {
            "notifications/progress" => {
                let Some(token) = params.get("progressToken").and_then(Value::as_u64) else { return };
                if let Some(beats) = self.table().get(&token) {
                    let _nobody_waits = beats.send(words(params));
                }
            }
            "notifications/tools/list_changed" => self.has_other_tools.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Whether the server has said since the last time that its tools are others.
    pub(crate) fn take_other_tools(&self) -> bool {
        self.has_other_tools.swap(false, Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<String>>> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Beats<'_> {
    fn drop(&mut self) {
        self.heard.table().remove(&self.id);
    }
}

/// Progress in one line.
fn words(params: &Value) -> String {
    let number = |name: &str| params.get(name).and_then(Value::as_f64);
    let part = match (number("progress"), number("total")) {
        (Some(progress), Some(total)) => format!("{progress}/{total}"),
        (Some(progress), None) => progress.to_string(),
        (None, _) => String::new(),
    };
    let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
    let message: String = message.chars().take(MESSAGE_CHARS).collect();
    format!("{part} {message}").trim().to_owned()
}
