//! At a limit with `on_limit = "ask"`: a person is asked whether the agent goes on with more.
//!
//! The question is an ask like those of calls, so it is listed and answered wherever asks are. Of all agents that come to one
//! limit one asks; a yes raises the limit in the ledger and is everybody's, a no ends all who waited for it.

use std::time::Duration;

use caliban_contract::wall_ms;
use caliban_core::wait::Wait;
use caliban_providers::ProviderError;
use caliban_store::ledger::{AskTurn, QuestionEnd};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, Attendance},
    budget::{AtLimit, Purse, Raisable},
    event::{Answer, Ask},
    feed::FeedEntry,
    hooks::HookEvent,
    request::Failed,
};

/// The name under which the question is asked, where a call has that of its tool.
const NAME: &str = "Budget";
/// How often it is looked what came of another agent's question.
const LOOK: Duration = Duration::from_millis(500);

impl Agent {
    /// Whether the request may be tried again: the limit was raised, or somebody has changed it.
    pub(crate) async fn asks_for_more(
        &self,
        limit: &AtLimit,
        cancel: &CancellationToken,
    ) -> Result<bool, Failed> {
        let kit = &self.kit;
        let Some(about) = kit.purse.raisable(limit).filter(|_| kit.shared.attendance == Attendance::Somebody)
        else {
            return Ok(false);
        };
        let _resting = kit.purse.rest();
        let since_ms = wall_ms();
        let mut has_waited = false;
        loop {
            match kit.purse.take_question(&about, since_ms).await.map_err(unwritten)? {
                AskTurn::Denied => return Ok(false),
                AskTurn::Ours if has_waited => {
                    kit.purse.close_question(&about, QuestionEnd::Open).await;
                    return Ok(true);
                }
                AskTurn::Ours => return self.put(limit, about, cancel).await,
                AskTurn::Others(who) => {
                    if !has_waited {
                        let asked_by = who.to_string();
                        self.transcript.feed().push(FeedEntry::Waiting(Wait::Budget { asked_by }));
                    }
                    has_waited = true;
                    tokio::select! {
                        () = tokio::time::sleep(LOOK) => {}
                        () = cancel.cancelled() => return Err(Failed::Model(ProviderError::Cancelled)),
                    }
                }
            }
        }
    }

    async fn put(
        &self,
        limit: &AtLimit,
        about: Raisable,
        cancel: &CancellationToken,
    ) -> Result<bool, Failed> {
        let kit = &self.kit;
        let mut asking = Asking { purse: kit.purse.clone(), about: Some(about.clone()) };
        let ask = Ask {
            id: format!("budget-{}-{}", kit.wanted.session, about.key()),
            agent: kit.asks_as(),
            name: NAME.to_owned(),
            input: json!({"prompt": about.question()}),
            why: limit.to_string(),
            suggestions: Vec::new(),
            outside: Vec::new(),
            preview: None,
            expires_at: None,
        };
        let details = json!({"message": about.question()});
        let notify = kit.hooks.ask(HookEvent::Notification, None, details, cancel);
        let (_warned, answer) = tokio::join!(notify, kit.asks.put(ask, cancel));
        asking.about = None;
        let is_yes =
            matches!(answer, Some(Answer::Once | Answer::Always | Answer::AlwaysOutside | Answer::Keep(_)));
        let raised = if is_yes { kit.purse.raise(&about).await } else { Ok(()) };
        let closed =
            if is_yes || cancel.is_cancelled() { QuestionEnd::Open } else { QuestionEnd::Denied(wall_ms()) };
        kit.purse.close_question(&about, closed).await;
        raised.map_err(unwritten)?;
        if cancel.is_cancelled() {
            return Err(Failed::Model(ProviderError::Cancelled));
        }
        Ok(is_yes)
    }
}

/// A question that others wait for; closed also when the agent goes away with it.
struct Asking {
    purse: Purse,
    about: Option<Raisable>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let (Some(about), Ok(runtime)) = (self.about.take(), tokio::runtime::Handle::try_current()) {
            let purse = self.purse.clone();
            runtime.spawn(async move { purse.close_question(&about, QuestionEnd::Open).await });
        }
    }
}

fn unwritten(error: caliban_store::StoreError) -> Failed {
    Failed::Ledger(format!("the ledger: {error}"))
}
