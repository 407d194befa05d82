//! `exec-run`: runs a command that a Director stored, in the member's pane, and records how it ended.
//!
//! The output goes to standard output at once, so that the member sees it; its last part goes into the store.

use std::process::Stdio;

use caliban_store::Stamp;
use caliban_store::broker::{ExecEnd, ExecId, Notice};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::answer::VerbAnswer;
use crate::args::ExecRunArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::process;

/// Maximum number of bytes at the end of the output that are recorded.
pub(super) const OUTPUT_BYTES: usize = 64 * 1024;
/// Added to the signal number for a command that a signal killed, as in a shell.
const SIGNALLED: i64 = 128;

pub(crate) async fn run(context: &mut VerbContext, args: &ExecRunArgs) -> Result<VerbAnswer, Failure> {
    let unknown =
        || Failure::refused("exec_not_found", format!("there is no command {} to run", shown(&args.id)));
    let id = ExecId::parse(&args.id).ok_or_else(unknown)?;
    let broker = context.broker().await?;
    let exec = broker.exec(id).await?.ok_or_else(unknown)?;
    let runner = process::own().ok_or_else(|| Failure::internal("cannot tell this process from others"))?;
    if !broker.begin_exec(id, &runner, Stamp::now()).await? {
        let words = format!("command {} is {} and is not run again", id.short(), exec.state);
        return Err(Failure::refused("exec_over", words));
    }
    let end = carry_out(&exec.command).await;
    let words = match &end {
        ExecEnd::Done { exit_code, .. } => format!("exit code {exit_code}"),
        ExecEnd::Lost(why) => format!("lost: {why}"),
    };
    broker.end_exec(id, &end, Stamp::now()).await?;
    let notice = Notice {
        session: exec.session,
        subject: format!("exec:{id}"),
        director: Some(exec.director),
        to_user: false,
        text: format!(
            "exec {} for member {} ended: {words}. Its output: cafleet --session-id {} member exec --agent-id {} \
             --member-id {} --result {}",
            id.short(),
            exec.member.short(),
            exec.session,
            exec.director,
            exec.member,
            id.short()
        ),
    };
    broker.notice(&notice, Stamp::now()).await?;
    broker.wake_deliverer(exec.session).await;
    match end {
        ExecEnd::Done { exit_code, .. } => {
            let code = u8::try_from(exit_code).unwrap_or(1);
            Ok(VerbAnswer::new(format!("[exec {} {words}]", id.short()), json!({"exit_code": exit_code}))
                .exit(code))
        }
        ExecEnd::Lost(why) => Err(Failure::refused("exec_lost", shown(&why))),
    }
}

async fn carry_out(command: &str) -> ExecEnd {
    let mut shell = Command::new("/bin/sh");
    // Both streams in one pipe, to keep their order.
    shell.args(["-c", "exec 2>&1\neval \"$1\"", "sh", command]);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match shell.spawn() {
        Ok(child) => child,
        Err(error) => return ExecEnd::Lost(format!("cannot start a shell: {error}")),
    };
    let mut kept: Vec<u8> = Vec::new();
    let mut own = tokio::io::stdout();
    if let Some(mut pipe) = child.stdout.take() {
        let mut bytes = vec![0; 8192];
        while let Ok(count) = pipe.read(&mut bytes).await {
            if count == 0 {
                break;
            }
            let part = bytes.get(..count).unwrap_or_default();
            // A closed pipe does not stop the command.
            let _ = own.write_all(part).await;
            let _ = own.flush().await;
            kept.extend_from_slice(part);
            if kept.len() > 2 * OUTPUT_BYTES {
                kept.drain(..kept.len() - OUTPUT_BYTES);
            }
        }
    }
    let status = match child.wait().await {
        Ok(status) => status,
        Err(error) => return ExecEnd::Lost(format!("its end is not known: {error}")),
    };
    use std::os::unix::process::ExitStatusExt;
    let signalled = || status.signal().map(|signal| SIGNALLED + i64::from(signal));
    let exit_code = status.code().map(i64::from).or_else(signalled).unwrap_or(1);
    if kept.len() > OUTPUT_BYTES {
        kept.drain(..kept.len() - OUTPUT_BYTES);
    }
    ExecEnd::Done { exit_code, output: String::from_utf8_lossy(&kept).into_owned() }
}
