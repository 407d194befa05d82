//! Runs one command hook: JSON on its stdin, a time limit, its exit code and output as the answer.
//!
//! Exit 0: fine; JSON on stdout is obeyed, other text is context where the event takes it. Exit 2: blocks, with
//! stderr as the reason. Anything else, and a hook that cannot run: a warning, and the step goes on.
//! The command has a process group of its own, which is killed when it is cut off, and when it ends.

use std::process::Stdio;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};
use tokio_util::sync::CancellationToken;

use super::{CommandHook, HookAnswer, HookEvent, HookPermission, HookPlace};

/// What is read of a hook's stdout and of its stderr.
const OUTPUT_BYTES: u64 = 64 * 1024;
/// The exit code that blocks.
const BLOCK: i32 = 2;

pub(super) async fn run(
    hook: &CommandHook,
    place: &HookPlace,
    input: &Value,
    cancel: &CancellationToken,
) -> HookAnswer {
    let finished = tokio::select! {
        finished = tokio::time::timeout(hook.timeout, execute(hook, place, input)) => finished,
        () = cancel.cancelled() => return HookAnswer::default(),
    };
    match finished {
        Ok(Ok(finished)) => judge(hook, &finished),
        Ok(Err(error)) => warning(hook, &format!("cannot run: {error}")),
        Err(_) => warning(hook, &format!("took longer than {} s and was ended", hook.timeout.as_secs())),
    }
}

/// Kills a process group when it goes.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // Nobody left to kill is what we want.
            let _gone = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

struct Finished {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn execute(hook: &CommandHook, place: &HookPlace, input: &Value) -> std::io::Result<Finished> {
    let mut child = Command::new("sh")
        .args(["-c", &hook.command])
        .process_group(0)
        .env_clear()
        .envs(place.env.iter().map(|(name, value)| (name, value)))
        .env("CALIBAN_PROJECT_DIR", &place.root)
        .env("CLAUDE_PROJECT_DIR", &place.root)
        .current_dir(&place.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Also when this future is dropped: on a time-out and on cancellation.
    let _group = Group(child.id());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A hook that does not read its input closes the pipe: that is its right.
            let _closed = stdin.write_all(input.to_string().as_bytes()).await;
        }
    };
    let (stdout, stderr, ()) = tokio::join!(read(stdout), read(stderr), feed);
    let code = child.wait().await?.code();
    Ok(Finished { code, stdout, stderr })
}

async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error is all there is.
        let _error = (&mut pipe).take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
        let _rest = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn judge(hook: &CommandHook, finished: &Finished) -> HookAnswer {
    match finished.code {
        Some(0) => success(hook.event, finished.stdout.trim()),
        Some(BLOCK) => {
            let reason = finished.stderr.trim();
            let reason = if reason.is_empty() { "blocked by a hook" } else { reason };
            HookAnswer { block: Some(reason.to_owned()), ..HookAnswer::default() }
        }
        Some(code) => warning(hook, &format!("exit {code}: {}", finished.stderr.trim())),
        None => warning(hook, "was killed"),
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
