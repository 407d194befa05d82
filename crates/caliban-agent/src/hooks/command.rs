//! Runs one command hook: JSON on its stdin, a time limit, its exit code and output as the answer.
//!
//! Exit 0: fine; JSON on stdout is obeyed, other text is context where the event takes it. Exit 2: blocks, with
//! stderr as the reason. Anything else, and a hook that cannot run: a warning, and the step goes on.
//! The command runs under a reaper, as the commands of tools do: it ends what the hook leaves running, even when we are
//! killed.

use caliban_keeper::{CommandEnd, KeptOutput, Launch, Streams, Supervised, SupervisedEnd, Variables};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{CommandHook, HookAnswer, HookEvent, HookPermission, HookPlace};

/// What is read of a hook's stdout and of its stderr.
const OUTPUT_BYTES: usize = 64 * 1024;
/// The exit code that blocks.
const BLOCK: i32 = 2;
/// How the last line of one begins that took too much.
const EXCEEDED: &str = "[killed: ";
/// Codes above this are those of signals.
const SIGNALS: i32 = 128;

pub(super) async fn run(
    hook: &CommandHook,
    place: &HookPlace,
    input: &Value,
    cancel: &CancellationToken,
) -> HookAnswer {
    let fence = match place.fence.as_ref().map(caliban_fence::ProgramFence::judge).transpose() {
        Ok(fence) => fence,
        Err(error) => return warning(hook, &format!("cannot run: {error}")),
    };
    let streams = Streams::Apart { input: input.to_string().into() };
    let command = Supervised {
        helper: place.helper.clone(),
        // Never where the agent works: the files there may be the agent's, and a hook is the user's.
        launch: Launch {
            fence,
            limits: place.limits.without_disk(),
            ..Launch::shell(&hook.command, place.root.clone(), environment(place), streams)
        },
        limit: hook.timeout,
        keep: KeptOutput::First(OUTPUT_BYTES),
    };
    let ended = match command.run(cancel).await {
        Ok(ended) => ended,
        Err(error) => return warning(hook, &format!("cannot run: {error}")),
    };
    match (ended.why, ended.code) {
        // The hook's own exit code counts, even where a process that it left running used up the rest of its time.
        (CommandEnd::Itself, _) | (CommandEnd::Timeout, Some(0 | BLOCK)) => judge(hook, &ended),
        (CommandEnd::Timeout, _) => {
            warning(hook, &format!("took longer than {} s and was ended", hook.timeout.as_secs()))
        }
        (CommandEnd::Cancelled, _) => HookAnswer::default(),
    }
}

fn environment(place: &HookPlace) -> Variables {
    let ours = [
        ("CALIBAN_PROJECT_DIR", &place.root),
        ("CLAUDE_PROJECT_DIR", &place.root),
        ("CALIBAN_WORK_DIR", &place.works_in),
    ];
    let given = place.env.iter().filter(|(name, _)| !ours.iter().any(|(own, _)| name == own)).cloned();
    given.chain(ours.into_iter().map(|(name, path)| (name.into(), path.into()))).collect()
}

fn judge(hook: &CommandHook, ended: &SupervisedEnd) -> HookAnswer {
    let stderr = String::from_utf8_lossy(&ended.stderr);
    match ended.code {
        Some(0) => success(hook.event, String::from_utf8_lossy(&ended.stdout).trim()),
        Some(BLOCK) => {
            let reason = if stderr.trim().is_empty() { "blocked by a hook" } else { stderr.trim() };
            HookAnswer { block: Some(reason.to_owned()), ..HookAnswer::default() }
        }
        Some(code) if code <= SIGNALS => warning(hook, &format!("exit {code}: {}", stderr.trim())),
        Some(_) | None => match stderr.trim_end().lines().last() {
            // Its keeper says why.
            Some(last) if last.starts_with(EXCEEDED) => warning(hook, last),
            _ => warning(hook, "was killed"),
        },
    }
}

fn success(event: HookEvent, stdout: &str) -> HookAnswer {
    let Some(Value::Object(output)) =
        stdout.starts_with('{').then(|| serde_json::from_str(stdout).ok()).flatten()
    else {
        let context = if event.output_is_context() && !stdout.is_empty() {
            vec![stdout.to_owned()]
        } else {
            Vec::new()
        };
        return HookAnswer { context, ..HookAnswer::default() };
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let specific = output.get("hookSpecificOutput").and_then(Value::as_object);
    let field = |name: &str| specific.and_then(|specific| specific.get(name));
    let mut answer = HookAnswer::default();
    let reason = || text(output.get("reason")).unwrap_or_else(|| "blocked by a hook".to_owned());
    match output.get("decision").and_then(Value::as_str) {
        Some("block" | "deny") => answer.block = Some(reason()),
        Some("approve" | "allow") => answer.permission = Some(HookPermission::Allow),
        _ => {}
    }
    match field("permissionDecision").and_then(Value::as_str) {
        Some("deny") => {
            answer.block = Some(text(field("permissionDecisionReason")).unwrap_or_else(reason));
        }
        Some("allow") => answer.permission = Some(HookPermission::Allow),
        Some("ask") => answer.permission = Some(HookPermission::Ask),
        _ => {}
    }
    answer.input = field("updatedInput").cloned();
    answer.context.extend(text(field("additionalContext")));
    if output.get("continue") == Some(&Value::Bool(false)) {
        answer.stop = Some(text(output.get("stopReason")).unwrap_or_else(|| "stopped by a hook".to_owned()));
    }
    answer
}

fn warning(hook: &CommandHook, text: &str) -> HookAnswer {
    let warning = format!("hook {} `{}`: {text}", hook.event.name(), hook.command);
    HookAnswer { warnings: vec![warning], ..HookAnswer::default() }
}
