//! A background agent that has ended goes on where it stopped, with its number, its conversation and its account: one that
//! was at its budget (`/bg raise`), and one that was stopped for a fleet that then did not take it.

use caliban_contract::wall_ms;
use caliban_core::background::{BackgroundStatus, name};

use super::{
    Background, BackgroundRefusal, Ground, Spawner,
    rows::Again,
    run::{BackgroundTask, GoOn},
    text::grouped,
};

/// What one hears that was at its budget.
const RAISED: &str = "[Your token budget was used up, and has been raised. Go on where you stopped.]";
/// What one hears that was stopped and goes on.
const TAKEN_BACK: &str = "[You were stopped for a moment and go on now. What you were doing was cancelled: look how far it \
came before you do it again. Go on with your task.]";
/// The same in a worktree.
const ELSEWHERE: &str = " [You work in another worktree now. What you had changed is committed in it.]";

impl Background {
    /// Lets one spend so many tokens more, as many as each may when nobody says it. One that has ended at its budget goes
    /// on. What came of it, in words.
    pub async fn raise(&self, id: u32, tokens: Option<u64>) -> Result<String, BackgroundRefusal> {
        let inner = &self.0;
        let more = tokens.unwrap_or(inner.limits.per_agent);
        let tokens = grouped(more);
        if inner.board().running(id).is_ok() {
            self.allow(id, more);
            return Ok(format!("Background agent {id} may spend {tokens} tokens more."));
        }
        let cancel = inner.stop.child_token();
        let again = inner.board().raise(id, inner.limits.max_agents, cancel.clone(), wall_ms())?;
        self.allow(id, more);
        let people = format!("{} goes on with {tokens} tokens more", name(id));
        let task = task(id, again, RAISED, cancel);
        if let Err(problem) = self.begin(task, people).await {
            inner.board().ended(id, BackgroundStatus::BudgetExceeded, wall_ms());
            self.changed();
            return Err(BackgroundRefusal::NotAgain(id, problem));
        }
        self.changed();
        let model = format!("[The user lets {} go on. A message tells you when it ends.]", name(id));
        if let Err(error) = self.tell_model(model, Spawner::Person).await {
            tracing::warn!(id, %error, "that a background agent goes on could not be recorded");
        }
        Ok(format!("Background agent {id} goes on with {tokens} tokens more."))
    }

    /// What all may spend together grows only as far as it would be in the way.
    fn allow(&self, id: u32, more: u64) {
        if let Some(purse) = self.0.board().purse(id) {
            purse.raise_fresh(more);
        }
        self.0.starter.parent.purse.leave_fresh(more);
    }

    /// One that was stopped to leave, and that nobody has taken, goes on here. Why nobody has, and what came of it.
    pub(super) async fn takes_back(&self, id: u32, why: String) -> String {
        let cancel = self.0.stop.child_token();
        let again = self.0.board().again(id, cancel.clone(), wall_ms());
        let begun = match again {
            Ok(again) => {
                let people = format!("{} goes on here: the fleet did not take it", name(id));
                self.begin(task(id, again, TAKEN_BACK, cancel), people).await
            }
            Err(refusal) => Err(refusal.to_string()),
        };
        let Err(problem) = begun else {
            self.changed();
            return format!("{why}; it goes on here");
        };
        let text = format!("{} was stopped, and the fleet did not take it: {why}; {problem}", name(id));
        self.0.board().ended(id, BackgroundStatus::Killed, wall_ms());
        let told = async {
            self.record(id, BackgroundStatus::Killed, text.clone()).await?;
            self.tell_model(format!("[{} was stopped by the user.]", name(id)), Spawner::Person).await
        };
        if let Err(error) = told.await {
            tracing::warn!(id, %error, "the end of a background agent could not be recorded");
        }
        self.changed();
        format!("{why}; it was stopped for that and cannot go on here: {problem}")
    }
}

fn task(id: u32, again: Again, text: &str, cancel: tokio_util::sync::CancellationToken) -> BackgroundTask {
    let Again { assignment, branch, .. } = again;
    let elsewhere = if assignment.ground == Ground::Worktree { ELSEWHERE } else { "" };
    let go_on = GoOn { text: format!("{text}{elsewhere}"), branch };
    BackgroundTask { id, assignment, cancel, again: Some(go_on) }
}
