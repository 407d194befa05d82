//! `member capture`: exactly the last lines of a member's pane.

use caliban_core::inert;
use serde_json::json;

use super::team;
use crate::answer::VerbAnswer;
use crate::args::MemberCaptureArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::inspect::{PaneState, PaneTarget};
use crate::pane::tmux::without_epitaph;

pub(crate) async fn run(context: &mut VerbContext, args: &MemberCaptureArgs) -> Result<VerbAnswer, Failure> {
    let lines = match usize::try_from(args.lines) {
        Ok(lines @ 1..) => lines,
        _ => {
            return Err(Failure::refused(
                "bad_lines",
                format!("--lines must be positive, not {}", args.lines),
            ));
        }
    };
    let team = team::command(context, &args.agent_id, &args.member_id, "").await?;
    let target = team.member.placement.as_ref().and_then(PaneTarget::of);
    let target = target.ok_or_else(|| team::pending(&team.member, "capture"))?;
    let failed = |why: &str| Failure::refused("capture", format!("capture failed: {}", shown(why)));
    let seen = target.look(&context.settings).await;
    // A dead pane that is still there is read like another.
    let is_readable = seen.state != PaneState::Gone || seen.facts.is_some();
    if seen.state == PaneState::Unreachable || !is_readable {
        return Err(failed(&seen.why));
    }
    let above = u32::try_from(lines).unwrap_or(u32::MAX).min(50_000);
    let said = target.tmux.capture(target.pane, above, args.ansi).await;
    let said = said.map_err(|error| failed(&error.words()))?;
    let said = if seen.state == PaneState::Gone { without_epitaph(&said) } else { &said };
    let content = last_lines(said, lines, args.ansi);
    let json = json!({
        "member_agent_id": team.member.id.to_string(),
        "pane_id": target.pane,
        "lines": lines,
        "content": content,
    });
    let text = if args.ansi { content } else { inert::block(&content).into_owned() };
    Ok(VerbAnswer::new(text, json))
}

/// The last lines before the empty end of the screen. If a line was overwritten, its last version.
fn last_lines(screen: &str, count: usize, ansi: bool) -> String {
    let lines: Vec<&str> = screen
        .trim_end()
        .lines()
        .map(|line| if ansi { line } else { line.rsplit('\r').next().unwrap_or_default() })
        .collect();
    let skip = lines.len().saturating_sub(count);
    lines.iter().skip(skip).map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn m10_exactly_the_last_lines_without_the_empty_tail() {
        assert_eq!(last_lines("a\nb\nc\nd\n\n\n\n", 2, false), "c\nd");
        assert_eq!(last_lines("a\nb\n", 9, false), "a\nb");
        assert_eq!(last_lines("10%\r20%\r30%  \n", 1, false), "30%");
        assert_eq!(last_lines("\n\n", 3, false), "");
    }
}
