//! `caliban demo`: a fleet at work, from start to end, with nothing but this program, git and sh.
//!
//! Every command is run for real, as a process of its own, on a scratch repo; only the model is a script. At the end
//! everything that was started is gone. Owns the story; `stage.rs` owns the place that it plays in.

mod stage;

use std::time::Duration;

use caliban_control::protocol::AgentRow;
use caliban_core::lifecycle::State;

use self::stage::Stage;
use crate::{
    report::{Code, Failure},
    settings::Environment,
};

/// How long one scene may take on a machine that is busy with other things.
const SCENE_LIMIT: Duration = Duration::from_secs(90);

/// Plays it. Whatever happens, nothing stays behind.
pub(crate) async fn demo(environment: &Environment) -> Result<Code, Failure> {
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

async fn play(stage: &Stage) -> Result<(), Failure> {
    stage.say("A scratch repo with a bug in it.")?;
    stage.run("git", &["log", "--oneline"]).await?;
    if stage.try_run("sh", &["test.sh"]).await? {
        return Err(Failure::new("the demo's project has no bug in it"));
    }

    stage.say("Three agents in the background, each in a worktree of its own. The model is a script.")?;
    for (label, task) in [
        ("fix", "Fix the failing test, and add a line to the release notes"),
        ("shout", "Add a function shout that prints its arguments in capitals, with a test"),
        ("longest", "Add a function that prints the longest word of its arguments, with a test"),
    ] {
        stage.caliban(&["--bg", task, "--label", label]).await?;
    }
    stage.watch(SCENE_LIMIT, |rows| rows.iter().any(|row| !row.asks.is_empty())).await?;

    stage.say("One asks for something that no rule allows. It waits for as long as it takes.")?;
    stage.caliban(&["approvals"]).await?;
    stage.caliban(&["approve", "fix"]).await?;
    stage.watch(SCENE_LIMIT, |rows| rows.iter().all(|row| is_over(row.state))).await?;
    stage.caliban(&["agents", "wait", "fix", "shout", "longest"]).await?;

    stage.say("What they did, and landing it.")?;
    stage.caliban(&["logs", "fix"]).await?;
    stage.caliban(&["agents", "diff", "fix"]).await?;
    for label in ["shout", "longest"] {
        stage.caliban(&["agents", "diff", label, "--stat"]).await?;
    }
    for label in ["fix", "shout", "longest"] {
        stage.caliban(&["agents", "merge", label]).await?;
    }
    stage.run("git", &["log", "--oneline", "--graph"]).await?;
    stage.run("sh", &["test.sh"]).await?;

    stage.say("Tidying up.")?;
    stage.caliban(&["rm", "fix", "shout", "longest"]).await?;
    stage.caliban(&["daemon", "stop"]).await?;
    stage.run("git", &["worktree", "list"]).await?;
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
