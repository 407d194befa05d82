//! `caliban demo`: a fleet at work, from start to end, with nothing but this program, git and sh.
//!
//! Every command is run for real, as a process of its own, on a scratch repo; only the model is a script. At the end
//! everything that was started is gone. Owns the story; `stage.rs` owns the place that it plays in.

mod stage;

use std::time::Duration;

use caliban_core::lifecycle::State;
use caliban_fleet::protocol::AgentRow;

use self::stage::Stage;
use crate::{
    report::{Code, Failure, Result},
    settings::Environment,
};

/// How long one scene may take on a machine that is busy with other things.
const SCENE_LIMIT: Duration = Duration::from_secs(90);

/// Plays it. Whatever happens, nothing stays behind.
pub(crate) async fn demo(environment: &Environment) -> Result<Code> {
    let stage = Stage::set(environment)?;
    let played = tokio::select! {
        played = play(&stage) => played.map(|()| Code::Done),
        _ = tokio::signal::ctrl_c() => Ok(Code::Interrupted),
    };
    let cleared = stage.clear().await;
    let code = played?;
    cleared?;
    Ok(code)
}

async fn play(stage: &Stage) -> Result<()> {
    stage.say("A scratch repo with a bug in it.")?;
    if stage.try_run("sh", &["test.sh"]).await? {
        return Err(Failure::new("the demo's project has no bug in it"));
    }

    stage.say("Three agents in the background, each in a worktree of its own. The model is a script.")?;
    for (label, task) in [
        ("fix", "Fix the failing test, and add a line to the release notes"),
        ("shout", "Add a function shout that prints its arguments in capitals, with a test"),
        ("awk", "Rewrite sum as one line of awk"),
    ] {
        stage.caliban(&["--bg", task, "--label", label]).await?;
    }
    stage.watch(SCENE_LIMIT, |rows| rows.iter().any(|row| !row.asks.is_empty())).await?;

    stage
        .say("One asks for something that no rule allows, and waits. Meanwhile somebody kills the daemon.")?;
    let before = stage.agent("fix").await?;
    let daemon = stage.daemon_pid().await?;
    stage.kill_hard(daemon)?;
    stage.say("The agents live on. The next command starts another daemon, which finds them.")?;
    stage.caliban(&["agents", "list"]).await?;
    let after = stage.agent("fix").await?;
    let lived_on = (before.id, before.pid) == (after.id, after.pid) && before.pid.is_some();
    if !lived_on || stage.daemon_pid().await? == daemon {
        return Err(Failure::new(format!(
            "the agents did not outlive the daemon: {before:?}, now {after:?}"
        )));
    }
    stage.caliban(&["approvals"]).await?;
    stage.caliban(&["approve", "fix"]).await?;
    stage.watch(SCENE_LIMIT, |rows| rows.iter().all(|row| is_over(row.state))).await?;
    stage.caliban(&["agents", "wait", "fix", "shout", "awk"]).await?;

    stage.say("What one of them did, and landing it.")?;
    stage.caliban(&["logs", "fix"]).await?;
    stage.caliban(&["agents", "diff", "fix"]).await?;
    for label in ["fix", "shout"] {
        stage.caliban(&["agents", "merge", label]).await?;
    }

    stage.say("The third committed nothing, and changed the same line. The conflict is reported before anything changes.")?;
    if stage.try_caliban(&["agents", "merge", "awk", "--commit", "sum: one line of awk"]).await? {
        return Err(Failure::new("the merge of `awk` should have been refused"));
    }
    stage.run("git", &["diff", "--stat", "--exit-code", "HEAD"]).await?;
    stage.run("sh", &["test.sh"]).await?;

    stage.say("All of them go. Work that is on no branch is saved first, and can come back.")?;
    let unmerged = stage.agent("awk").await?.id.to_string();
    stage.caliban(&["rm", "fix", "shout", "awk"]).await?;
    stage.caliban(&["worktrees", "rescue", "restore", &unmerged]).await?;
    stage.run("git", &["-C", &format!(".caliban/worktrees/{unmerged}"), "diff", "HEAD"]).await?;

    stage.say("Tidying up.")?;
    stage.caliban(&["worktrees", "rm", &unmerged]).await?;
    stage.caliban(&["daemon", "stop"]).await?;
    Ok(())
}

fn is_over(state: State) -> bool {
    match state {
        State::Spawning | State::Running | State::Idle => false,
        State::Done | State::Failed | State::Killed | State::Crashed => true,
    }
}

/// What a scene waits for.
type Scene = fn(&[AgentRow]) -> bool;
