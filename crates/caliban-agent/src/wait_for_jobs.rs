//! Background commands when the model has nothing more to do: a run that ends with its turn waits for them.

use caliban_contract::detached::left_running;
use caliban_core::{spec::AfterTurn, wait::Wait};
use caliban_tools::{JobInfo, JobState};
use tokio_util::sync::CancellationToken;

use crate::{agent::Agent, event::Outcome, feed::FeedEntry, turn::Halt};

/// Characters of a command that are quoted.
const QUOTED_CHARACTERS: usize = 80;

/// What the background commands mean for the end of a run.
pub(crate) enum Jobs {
    /// It may end.
    Over,
    /// The model has to hear this first. Where they still run after the wait, it is told once and decides.
    News { text: String, are_running: bool },
    /// Somebody has said something meanwhile.
    Interrupted,
}

impl Agent {
    /// Waits until a background command of a run has ended, for as long as the settings say.
    pub(crate) async fn wait_for_jobs(
        &self,
        was_told: bool,
        cancel: &CancellationToken,
    ) -> Result<Jobs, Halt> {
        if self.kit.wanted.after_turn == AfterTurn::Stay {
            return Ok(Jobs::Over);
        }
        let workspace = &self.kit.workspace;
        let ended = || self.news_of_jobs().map(|text| Jobs::News { text, are_running: false });
        if let Some(news) = ended() {
            return Ok(news);
        }
        // One in a terminal waits for the model, not the other way round.
        let mut jobs = workspace.jobs();
        jobs.retain(|job| !job.has_terminal);
        let running = running(&jobs);
        if running.is_empty() || was_told {
            return Ok(Jobs::Over);
        }
        self.transcript.feed().push(FeedEntry::Waiting(Wait::Jobs { commands: running.clone() }));
        let limit = self.kit.shared.job_wait;
        tokio::select! {
               () = workspace.job_ended() => Ok(ended().unwrap_or(Jobs::Over)),
            () = self.handle.spoken() => Ok(Jobs::Interrupted),
            () = cancel.cancelled() => Err(Halt::Outcome(Outcome::Cancelled)),
            () = self.kit.purse.out_of_time() => {
                let limit = self.kit.purse.time_is_up().map(|refusal| refusal.to_string()).unwrap_or_default();
                Err(Halt::Outcome(Outcome::Budget { limit }))
            }
               () = tokio::time::sleep(limit) => {
                let text = format!(
                 "[After {} s these background commands still run: {}. They are ended when this run ends. To wait for \
                  one, call BashOutput with wait_ms; end what nobody needs any more with KillShell. If you answer \
                  without a call, the run ends.]",
                 limit.as_secs(),
                 running.join("; "),
                );
                Ok(Jobs::News { text, are_running: true })
               }
        }
    }

    /// What the model has not heard of background commands that have ended.
    pub(crate) fn news_of_jobs(&self) -> Option<String> {
        let ended = self.kit.workspace.unreported_jobs();
        (!ended.is_empty()).then(|| {
            format!("[Background commands have ended; say what follows from that.]\n{}", ended.join("\n"))
        })
    }

    /// What is said about commands that end with the run, and about those that outlive it.
    pub(crate) fn about_commands(&self) -> Vec<String> {
        if self.kit.wanted.after_turn == AfterTurn::Stay {
            return Vec::new();
        }
        let running = running(&self.kit.workspace.jobs());
        let ended = (!running.is_empty())
            .then(|| format!("background commands still ran and were ended: {}", running.join("; ")));
        // A helper's are its parent's, who says it.
        let is_helper = self.kit.parent().is_some();
        let left = if is_helper { None } else { left_running(&self.kit.workspace.detached()) };
        ended.into_iter().chain(left).collect()
    }
}

fn quoted(command: &str) -> String {
    caliban_core::inert::line(command).chars().take(QUOTED_CHARACTERS).collect()
}

fn running(jobs: &[JobInfo]) -> Vec<String> {
    let running = jobs.iter().filter(|job| job.state == JobState::Running);
    running.map(|job| format!("{} ({})", job.id, quoted(&job.command))).collect()
}
