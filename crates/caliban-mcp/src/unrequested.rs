//! What a server says unasked: that a call goes on, that its tools are others now, and what it asks.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    elicitation::{Elicit, ServerQuestion},
    message,
};

/// Characters of a progress message that are passed on.
const MESSAGE_CHARS: usize = 500;

/// See the module. One for each connection.
#[derive(Default)]
pub(crate) struct Unrequested {
    beats: Mutex<HashMap<u64, mpsc::UnboundedSender<String>>>,
    has_other_tools: AtomicBool,
    /// The server's name, and who puts its questions to a person.
    elicit: Option<(String, Elicit)>,
    /// Questions that a person has not answered.
    open_questions: AtomicUsize,
}

/// Listens for the progress of one request; forgotten when this is dropped.
pub(crate) struct Beats<'a> {
    heard: &'a Unrequested,
    id: u64,
    pub(crate) next: mpsc::UnboundedReceiver<String>,
}

impl Unrequested {
    /// Listens for the progress of the request with this id, which is its token, too.
    pub(crate) fn beats(&self, id: u64) -> Beats<'_> {
        let (send, next) = mpsc::unbounded_channel();
        self.table().insert(id, send);
        Beats { heard: self, id, next }
    }

    /// For a server whose questions somebody puts.
    pub(crate) fn new(server: &str, elicit: Option<Elicit>) -> Self {
        Self { elicit: elicit.map(|elicit| (server.to_owned(), elicit)), ..Self::default() }
    }

    /// Whether the server may ask.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.elicit.is_some()
    }

    /// Whether a person has to answer something: that may take as long as it takes.
    pub(crate) fn is_somebody_thinking(&self) -> bool {
        self.open_questions.load(Ordering::Relaxed) > 0
    }

    /// Our answer to a server's request.
    pub(crate) async fn reply(&self, id: &Value, method: &str, params: &Value) -> String {
        let Some((server, elicit)) = self.elicit.as_ref().filter(|_| method == "elicitation/create") else {
            return message::reply(id, method);
        };
        let question = ServerQuestion::of(server, params);
        self.open_questions.fetch_add(1, Ordering::Relaxed);
        let said = elicit(question.clone()).await;
        self.open_questions.fetch_sub(1, Ordering::Relaxed);
        message::result(id, &question.result(said))
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
