//! Questions of MCP servers, put to whoever answers the agent's own asks.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use caliban_agent::{
    Attendance, Kit,
    asks::Asks,
    event::{Answer, Ask},
};
use caliban_core::inert;
use caliban_mcp::{Elicit, ElicitationForm, ElicitationReply, ServerQuestion};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Where the questions of a composition's servers go: to the first agent that is made of it.
#[derive(Clone, Default)]
pub(crate) struct Questions(Arc<QuestionsInner>);

#[derive(Default)]
struct QuestionsInner {
    asks: OnceLock<Asks>,
    asked: AtomicU64,
}

impl Questions {
    /// From now on they go to whoever answers this agent's asks.
    pub(crate) fn go_to(&self, kit: &Kit) {
        let _the_first = self.0.asks.set(kit.asks.clone());
    }

    /// How a server's question is put; none where nobody can be asked.
    pub(crate) fn elicit(&self, attendance: Attendance) -> Option<Elicit> {
        let questions = self.clone();
        (attendance != Attendance::Nobody).then(|| -> Elicit {
            Arc::new(move |question| {
                let questions = questions.clone();
                Box::pin(async move { questions.put(question).await })
            })
        })
    }

    async fn put(&self, question: ServerQuestion) -> ElicitationReply {
        let Some(asks) = self.0.asks.get() else { return ElicitationReply::No };
        let how = match &question.form {
            ElicitationForm::Confirm(_) => String::new(),
            ElicitationForm::Text { name, choices, .. } if choices.is_empty() => {
                format!("; type the {}", inert::line(name))
            }
            ElicitationForm::Text { choices, .. } => {
                format!("; type one of {}", inert::line(&choices.join(", ")))
            }
            ElicitationForm::Other => return ElicitationReply::No,
        };
        let number = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let server = inert::line(&question.server).into_owned();
        let ask = Ask {
            id: format!("mcp-{server}-{number}"),
            agent: None,
            name: format!("mcp__{server}"),
            input: json!({"prompt": question.message}),
            why: format!("the MCP server {server} asks{how}"),
            suggestions: Vec::new(),
            outside: Vec::new(),
            preview: None,
            expires_at: None,
        };
        // A server that goes away with its agent drops the question.
        match asks.put(ask, &CancellationToken::new()).await {
            Some(Answer::Once | Answer::Always | Answer::AlwaysOutside | Answer::Keep(_)) => {
                ElicitationReply::Yes
            }
            Some(Answer::No(Some(text))) => ElicitationReply::Text(text),
            Some(Answer::No(None)) | None => ElicitationReply::No,
        }
    }
}
