//! `member exec`: makes a member run a command. The command is stored; only a fixed line with its id is typed.

use std::time::Duration;

use caliban_store::Stamp;
use caliban_store::broker::{Exec, ExecId, ExecState, NewExec};
use serde_json::json;
use tokio::time::Instant;

use super::team;
use crate::answer::VerbAnswer;
use crate::args::MemberExecArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::input::{self, BodySource};
use crate::pane::deliver::deliver;
use crate::pane::deliverer;
use crate::pane::inspect::PaneTarget;
use crate::render::task::indented;
use crate::usage;

/// The interval at which the store is polled without a ring.
const SLOW_CHECK: Duration = Duration::from_secs(1);

pub(crate) async fn run(context: &mut VerbContext, args: &MemberExecArgs) -> Result<VerbAnswer, Failure> {
    let path = ["member", "exec"];
    if let Some(id) = &args.result {
        return result(context, args, id).await;
    }
    let command = match (&args.command, &args.file) {
        (Some(command), _) if command.trim().is_empty() => {
            return Err(usage::invalid_value(&path, "COMMAND", "it must not be empty."));
        }
        (Some(command), _) if command.contains(['\n', '\r']) => {
            return Err(usage::invalid_value(
                &path,
                "COMMAND",
                "it must be one line; use --file for several.",
            ));
        }
        (Some(command), _) => command.clone(),
        (None, Some(file)) => input::body(&BodySource::File(file.clone()))?,
        (None, None) => return Err(usage::missing_argument(&path, "COMMAND")),
    };
    let team = team::command(context, &args.agent_id, &args.member_id, "").await?;
    let target = team.member.placement.as_ref().and_then(PaneTarget::of);
    let target = target.ok_or_else(|| team::pending(&team.member, "run"))?;
    if !target.backend.has_shell_line {
        let words = format!("a member that runs {} takes no commands", target.backend.name);
        return Err(Failure::refused("no_shell_line", words).hint("send it a message instead"));
    }
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let id = ExecId::random();
    let new = NewExec {
        id,
        session: team.member.session,
        member: team.member.id,
        director: team.director.id,
        command,
    };
    broker.queue_exec(&new, Stamp::now()).await?;
    deliver(broker, &settings, &team.member).await?;
    deliverer::ensure(broker, &settings, team.member.session).await;
    let give_up = Instant::now() + Duration::from_secs(u64::from(args.timeout));
    loop {
        let exec = broker.exec(id).await?.ok_or_else(|| gone(&id.to_string()))?;
        let left = give_up.saturating_duration_since(Instant::now());
        if !args.wait || !exec.state.is_open() || left.is_zero() {
            return told(&exec, target.pane, args.wait);
        }
        broker.listen_for(&id.to_string(), left.min(SLOW_CHECK)).await;
        // A command with `--wait` types it itself and does not depend on a deliverer.
        if exec.state == ExecState::Queued {
            deliver(broker, &settings, &team.member).await?;
        }
    }
}

async fn result(
    context: &mut VerbContext,
    args: &MemberExecArgs,
    given: &str,
) -> Result<VerbAnswer, Failure> {
    let director = team::director(context, &args.agent_id).await?;
    let broker = context.broker().await?;
    let found = broker.execs_like(director.id, given).await?;
    match found.as_slice() {
        [exec] => told(exec, "", true),
        [] => Err(gone(given)),
        many => {
            let ids: Vec<String> = many.iter().map(|exec| exec.id.to_string()).collect();
            let words = format!("'{}' is ambiguous; it could be {}", shown(given), ids.join(", "));
            Err(Failure::refused("ambiguous_id", words))
        }
    }
}

fn gone(given: &str) -> Failure {
    Failure::refused("exec_not_found", format!("there is no exec {} of yours", shown(given)))
}

fn told(exec: &Exec, pane: &str, with_end: bool) -> Result<VerbAnswer, Failure> {
    let mut json = json!({
        "member_agent_id": exec.member.to_string(),
        "command": exec.command,
        "exec_id": exec.id.to_string(),
        "state": exec.state.as_str(),
    });
    if !pane.is_empty() {
        json["pane_id"] = json!(pane);
    }
    if with_end {
        json["exit_code"] = json!(exec.exit_code);
        json["output"] = json!(exec.output);
        json["note"] = json!(exec.note);
    }
    let line = match (exec.state, exec.exit_code) {
        (ExecState::Done, Some(code)) => format!("exec {} exit={code}", exec.id.short()),
        (state, _) => format!("exec {} {state}", exec.id.short()),
    };
    let why = exec.note.as_deref().map(shown);
    if exec.state == ExecState::Lost && with_end {
        let words = format!("{line}: {}", why.unwrap_or_default());
        return Err(Failure::refused("exec_lost", words));
    }
    let output = exec.output.as_deref().filter(|output| with_end && !output.is_empty());
    let text = match output {
        Some(output) => format!("{line}\n{}", indented(output, "")),
        None => line,
    };
    let note = why.filter(|_| exec.state == ExecState::Queued).map(|why| format!("it waits: {why}"));
    Ok(VerbAnswer::new(text, json).note(note))
}
