//! A command that its fence has stopped: a person is asked whether it runs again outside. It never does by itself.

use caliban_core::{
    access::Access,
    cap::{self, Cap},
    message::ResultPart,
};
use caliban_permissions::Verdict as Rules;
use caliban_tools::{StoppedByFence, ToolOutput};
use serde_json::{Value, json};

use super::{CallResult, Judgement, RuleQuestion, Runner, quote};
use crate::{conversation::OpenCall, event::Decision, transcript::TranscriptError};

/// Characters of its output that the question shows.
const SHOWN_CHARACTERS: usize = 2_000;

impl Runner<'_> {
    /// The decision by which the call runs again, outside; none when it does not.
    pub(super) async fn ask_outside(
        &self,
        ended: &mut CallResult,
        call: &OpenCall,
        input: &Value,
        accesses: &[Access],
        output: &mut ToolOutput,
        stopped: StoppedByFence,
    ) -> Result<Option<Decision>, TranscriptError> {
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        let Rules::Ask { outside, .. } = self.kit.decide(&call.name, &leaving(accesses)) else {
            return Ok(None);
        };
        if self.kit.asks_nobody().is_some() {
            ended.stopped = Some(remedy(&quote(input), &outside, &stopped));
            return Ok(None);
        }
        // Who has said no is not asked again about the same command.
        if self.asks.is_refused_outside(input) {
            return Ok(None);
        }
        let why = match &stopped.setting {
            Some(setting) => {
                format!("it failed in its fence; run it again outside? ({setting} would help, too)")
            }
            None => "it failed in its fence; run it again outside?".to_owned(),
        };
        let question = RuleQuestion { why, suggestions: Vec::new(), outside };
        let judgement = self.ask_person(call, &with_output(input, output), accesses, question).await?;
        let (said, decision) = match judgement {
            Judgement::May(decision) => (
                "[in the fence it failed, as above; the user let it run again outside:]".to_owned(),
                Some(decision),
            ),
            Judgement::MayNot(decision, _) => {
                self.asks.refuse_outside(input);
                (format!("[it was not run again outside of the fence: {}]", decision.why), None)
            }
        };
        output.content.push(ResultPart::Text { text: said });
        Ok(decision)
    }
}

/// The same accesses, outside of the fence.
fn leaving(accesses: &[Access]) -> Vec<Access> {
    let mut accesses = accesses.to_vec();
    for access in &mut accesses {
        if let Access::Command { outside, .. } = access {
            outside.get_or_insert_default();
        }
    }
    accesses
}

/// The call as the question shows it: with what it said when it failed.
fn with_output(input: &Value, output: &ToolOutput) -> Value {
    let mut shown = input.clone();
    if let Some(fields) = shown.as_object_mut() {
        let texts = output.content.iter().filter_map(|part| match part {
            ResultPart::Text { text } => Some(text.as_str()),
            ResultPart::Image { .. } => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        fields.insert("outside".to_owned(), json!(true));
        fields.insert("output".to_owned(), json!(cap::middle(&text, Cap::Chars(SHOWN_CHARACTERS))));
    }
    shown
}

/// What would have helped, in words.
fn remedy(what: &str, rules: &[String], stopped: &StoppedByFence) -> String {
    let rule = super::allowing_flags(rules).map(|flags| format!("{flags} runs it outside"));
    let setting =
        stopped.setting.as_ref().map(|setting| format!("the setting {setting} gives it what it missed"));
    let help: Vec<String> = rule.into_iter().chain(setting).collect();
    match help.as_slice() {
        [] => format!("`{what}` failed because of its fence"),
        help => format!("`{what}` failed because of its fence: {}", help.join(", or ")),
    }
}
