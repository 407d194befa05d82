//! `member ping`: types the member's own poll command. It contains no text of the caller, so it can be allowed in
//! advance.

use serde_json::json;

use super::team;
use crate::answer::VerbAnswer;
use crate::args::MemberPingArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::compose;
use crate::pane::deliver::{WriteResult, type_text};
use crate::pane::inspect::{PaneState, PaneTarget};

/// Maximum time to wait for another process that types into the pane.
const LOCK_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

pub(crate) async fn run(context: &mut VerbContext, args: &MemberPingArgs) -> Result<VerbAnswer, Failure> {
    let team = team::command(context, &args.agent_id, &args.member_id, "").await?;
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let skipped = match team.member.placement.as_ref().and_then(PaneTarget::of) {
        None => Some("it has no pane yet (pending placement)".to_owned()),
        Some(target) => match broker.lock_pane(&target.lock_name(), LOCK_LIMIT).await {
            None => Some("another cafleet is typing into the pane".to_owned()),
            Some(_lock) => {
                let seen = target.look(&settings).await;
                match seen.state {
                    PaneState::Gone | PaneState::Unreachable => {
                        return Err(Failure::refused("send", format!("send failed: {}", shown(&seen.why))));
                    }
                    PaneState::Free => {
                        let line = compose::ping_line(team.member.session, team.member.id);
                        let buffer = format!("cafleet-ping-{}", team.member.id.short());
                        match type_text(&target, &settings, seen, &line, &buffer).await {
                            WriteResult::Sent => None,
                            WriteResult::NotNow(why) => Some(why),
                            WriteResult::Failed(why) => {
                                return Err(Failure::refused(
                                    "send",
                                    format!("send failed: {}", shown(&why)),
                                ));
                            }
                        }
                    }
                    _ => Some(seen.why),
                }
            }
        },
    };
    let (id, pane) = (team.member.id, team::pane_of(&team.member));
    let json = json!({
        "member_agent_id": id.to_string(),
        "pane_id": pane,
        "sent": skipped.is_none(),
        "skipped": skipped,
    });
    let text = match (&skipped, args.quiet) {
        (_, true) => id.short(),
        (None, false) => format!("Pinged {} pane={}", id.short(), pane.unwrap_or_default()),
        (Some(why), false) => format!("Skipped {}: {}", id.short(), shown(why)),
    };
    let note = skipped.filter(|_| args.quiet).map(|why| format!("nothing was typed: {}", shown(&why)));
    Ok(VerbAnswer::new(text, json).note(note))
}
