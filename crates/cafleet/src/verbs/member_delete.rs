//! `member delete`: asks a member to end; deregisters it only once its pane is closed.

use std::time::Duration;

use caliban_core::inert;
use caliban_store::Stamp;
use serde_json::json;

use super::team;
use crate::answer::{VerbAnswer, talk};
use crate::args::MemberDeleteArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::inspect::{PaneState, PaneTarget};
use crate::pane::leave;
use crate::worktree_hold;

/// Time limit for a member to end.
const LIMIT: Duration = Duration::from_secs(15);
/// Number of lines of its pane that are shown if it does not.
const TAIL: usize = 80;

pub(crate) async fn run(context: &mut VerbContext, args: &MemberDeleteArgs) -> Result<VerbAnswer, Failure> {
    let instead = "; use `cafleet agent deregister` for it";
    let team = team::command(context, &args.agent_id, &args.member_id, instead).await?;
    let settings = context.settings.clone();
    let member = &team.member;
    let broker = context.broker().await?;
    let status = match member.placement.as_ref().and_then(PaneTarget::of) {
        None => "pending — no pane",
        Some(target) if args.force => match target.look(&settings).await.state {
            PaneState::Gone => {
                leave::close_dead(&target).await;
                "closed"
            }
            _ => {
                let killed = leave::kill(&target).await;
                killed.map_err(|why| {
                    Failure::refused("pane", format!("cannot close the pane: {}", shown(&why)))
                })?;
                "killed"
            }
        },
        Some(target) => match leave::ask(broker, &settings, &target, LIMIT).await {
            Ok(()) => "closed",
            Err(why) => {
                let tail = target.tmux.capture(target.pane, 0, false).await.unwrap_or_default();
                let tail: Vec<&str> = tail.trim_end().lines().collect();
                let tail = tail[tail.len().saturating_sub(TAIL)..].join("\n");
                talk(&format!("{}\n", inert::block(&tail)));
                let words = format!(
                    "member {} did not leave within {} s: {}; it is still registered (pane {} (timeout))",
                    member.id,
                    LIMIT.as_secs(),
                    shown(&why),
                    target.pane
                );
                return Err(Failure::refused("timeout", words).exit(2).hint(
                    "answer its question with 'member send-input', or close it with 'member delete --force'",
                ));
            }
        },
    };
    broker.remove_member(&team.director, member.id, Stamp::now()).await?;
    worktree_hold::let_go(broker, &settings).await?;
    if let Some(target) = member.placement.as_ref().and_then(PaneTarget::of) {
        let window = member.placement.as_ref().map_or("", |placement| placement.tmux_window.as_str());
        // Best effort: the window may have been closed with its last pane.
        let _ = target.tmux.lay_out(window).await;
    }
    let header = if args.force { "Member deleted (--force)." } else { "Member deleted." };
    let pane = team::pane_of(member).map_or(String::new(), |pane| format!("{pane} "));
    let status_json = if status.starts_with("pending") { "pending" } else { status };
    Ok(VerbAnswer::new(
        format!("{header}\n  agent_id: {}\n  pane_id:  {pane}({status})", member.id),
        json!({"agent_id": member.id.to_string(), "pane_status": status_json}),
    ))
}
