//! `member send-input`: answers the question that a member's pane shows. Nothing is typed into a pane without a
//! question.

use std::time::Duration;

use serde_json::json;

use super::team;
use crate::answer::VerbAnswer;
use crate::args::MemberSendInputArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::backend::TextWay;
use crate::pane::classify;
use crate::pane::inspect::{PaneState, PaneTarget};
use crate::pane::tmux::Pasted;
use crate::{input, usage};

/// Maximum time to wait for another process that types into the pane.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// How the choice for a free-text answer begins. A question without such a choice takes no text: its fourth choice
/// would be pressed, and Enter could answer whatever comes next.
const FREE_TEXT: [&str; 3] = ["Type something", "Other", "Something else"];
/// Time limit for the question's text field to open.
const FIELD: Duration = Duration::from_millis(400);

pub(crate) async fn run(
    context: &mut VerbContext,
    args: &MemberSendInputArgs,
) -> Result<VerbAnswer, Failure> {
    let path = ["member", "send-input"];
    let words = args.freetext.as_deref();
    if let Some(words) = words {
        if words.trim().is_empty() || words.contains(['\n', '\r']) {
            return Err(usage::invalid_value(&path, "--freetext", "it must be one line that is not empty."));
        }
        if words.trim_start().starts_with('!') {
            return Err(usage::invalid_value(&path, "--freetext", "it must not begin with '!'."));
        }
        input::harmless("--freetext", words)?;
    }
    let team = team::command(context, &args.agent_id, &args.member_id, "").await?;
    let target = team.member.placement.as_ref().and_then(PaneTarget::of);
    let target = target.ok_or_else(|| team::pending(&team.member, "answer"))?;
    if target.backend.text != TextWay::Paste {
        let words = format!("nothing is typed into a member that runs {}", target.backend.name);
        let hint = format!("answer it in its pane: tmux select-pane -t '{}'", target.pane);
        return Err(Failure { hint_text: Some(hint), ..Failure::refused("no_keys", words) });
    }
    let settings = context.settings.clone();
    let failed = |why: &str| Failure::refused("send", format!("send failed: {}", shown(why)));
    let broker = context.broker().await?;
    let lock = broker.lock_pane(&target.lock_name(), LOCK_LIMIT).await;
    let _lock = lock.ok_or_else(|| failed("another cafleet is typing into the pane"))?;
    let seen = target.look(&settings).await;
    let facts = match (seen.state, seen.facts) {
        (PaneState::Asking, Some(facts)) => facts,
        (PaneState::Gone | PaneState::Unreachable, _) => return Err(failed(&seen.why)),
        (state, _) => {
            return Err(Failure::refused(
                "no_question",
                format!("the pane shows no question ({}); nothing was sent", state.word()),
            )
            .hint("look with 'cafleet member capture'; a message goes with 'cafleet message send'"));
        }
    };
    let choices = classify::choices(target.backend, &facts.screen);
    let digit = match args.choice {
        Some(choice) => choice,
        None => {
            let own =
                choices.iter().find(|(_, label)| FREE_TEXT.iter().any(|words| label.starts_with(words)));
            own.map(|(number, _)| *number).ok_or_else(|| {
                Failure::refused("no_freetext", "the question takes no answer in words; nothing was sent")
                    .hint("answer with --choice, or in its pane")
            })?
        }
    };
    if !choices.iter().any(|(number, _)| *number == digit) {
        let words = format!("the question has no choice {digit}; nothing was sent");
        return Err(Failure::refused("no_such_choice", words));
    }
    // The question must still be the one that was seen when the key is pressed.
    let condition = target.condition(&facts);
    match target.tmux.press(target.pane, &format!("-l {digit}"), &condition).await {
        Ok(Pasted::Sent) => {}
        Ok(Pasted::Refused) => return Err(failed("the question changed just before the key")),
        Err(error) => return Err(failed(&error.words())),
    }
    if let Some(words) = words {
        tokio::time::sleep(FIELD).await;
        let buffer = format!("cafleet-answer-{}", team.member.id.short());
        match target.tmux.paste(target.pane, &buffer, words, Some("Enter"), &target.is_same()).await {
            Ok(Pasted::Sent) => {}
            Ok(Pasted::Refused) => return Err(failed("the pane changed after the choice")),
            Err(error) => return Err(failed(&error.words())),
        }
    }
    let (action, value) = match words {
        Some(words) => ("freetext", words.to_owned()),
        None => ("choice", digit.to_string()),
    };
    Ok(VerbAnswer::new(
        format!("Sent {action} to {} pane={}", team.member.id.short(), target.pane),
        json!({
            "member_agent_id": team.member.id.to_string(),
            "pane_id": target.pane,
            "action": action,
            "value": value,
        }),
    ))
}
