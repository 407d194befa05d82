//! A member's first prompt: from a file, from the command line, or our template.
//!
//! Owns the placeholders. `{session_id}`, `{agent_id}` and `{director_agent_id}` are filled in, a doubled brace is a
//! literal brace, and anything else in braces is refused, so that no member starts with a broken prompt.

use std::fs;
use std::path::Path;

use caliban_store::broker::{AgentId, SessionId};

use crate::failure::{Failure, shown};
use crate::input::MAX_TEXT_BYTES;
use crate::pane::backend::TextWay;
use crate::usage;

/// The subcommand that usage errors name.
const PATH: [&str; 2] = ["member", "create"];

/// The default prompt.
const TEMPLATE: &str = "\
You are a member of a cafleet team. Load the cafleet skill if you have it.
Your session is {session_id}, your agent id is {agent_id}, your Director is {director_agent_id}.
Messages for you are typed into this pane and begin with '[cafleet msg'. Read what waits for you with
  cafleet --session-id {session_id} message poll --agent-id {agent_id} --full
acknowledge each message that you have taken in with
  cafleet --session-id {session_id} message ack --agent-id {agent_id} --task-id <id>
and answer with
  cafleet --session-id {session_id} message send --agent-id {agent_id} --to {director_agent_id} --text \"...\"
Write the ids out as they are here, never as shell variables. Talk to your Director only, never to the user.
Begin: tell your Director that you are ready, then stop and wait for its first message.";

/// The default prompt of a member that receives its messages by itself.
const MAILBOX_TEMPLATE: &str = "\
You are a member of a cafleet team. Your Director is {director_agent_id}. Its messages come to you by themselves.
Answer with BrokerSend. Talk to your Director only, never to the user.
Begin: tell your Director with BrokerSend that you are ready, then stop and wait for its first message.";

/// The ids that a prompt can name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    pub(crate) session: SessionId,
    pub(crate) agent: AgentId,
    pub(crate) director: AgentId,
}

/// The prompt from the file, else from the arguments, else the template.
pub(crate) fn read(file: Option<&str>, words: &[String], way: TextWay, ids: Ids) -> Result<String, Failure> {
    let raw = match (file, words) {
        (Some(file), _) => from_file(file)?,
        (None, []) if way == TextWay::Mailbox => MAILBOX_TEMPLATE.to_owned(),
        (None, []) => TEMPLATE.to_owned(),
        (None, words) => words.join(" "),
    };
    let option = if file.is_some() { "--prompt-file" } else { "PROMPT" };
    let wrong = |why: &str| usage::invalid_value(&PATH, option, why);
    if raw.trim().is_empty() {
        return Err(wrong("it is blank."));
    }
    if raw.contains('\0') {
        return Err(wrong("it contains a NUL character."));
    }
    fill(&raw, ids).map_err(|why| wrong(&why))
}

fn from_file(file: &str) -> Result<String, Failure> {
    let wrong = |why: String| usage::invalid_value(&PATH, "--prompt-file", &why);
    if !Path::new(file).is_absolute() {
        return Err(wrong(format!("'{file}' is not an absolute path.")));
    }
    let about = fs::metadata(file).map_err(|error| wrong(format!("cannot read '{file}': {error}.")))?;
    if about.len() > MAX_TEXT_BYTES as u64 {
        return Err(wrong(format!("'{file}' is larger than {MAX_TEXT_BYTES} bytes.")));
    }
    let bytes = fs::read(file).map_err(|error| wrong(format!("cannot read '{file}': {error}.")))?;
    String::from_utf8(bytes).map_err(|_| wrong(format!("'{file}' is not UTF-8 text.")))
}

/// Fills the placeholders in.
fn fill(raw: &str, ids: Ids) -> Result<String, String> {
    let mut out = String::with_capacity(raw.len() + 128);
    let mut rest = raw;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let found = &rest[at..];
        if let Some(after) = found.strip_prefix("{{") {
            out.push('{');
            rest = after;
        } else if let Some(after) = found.strip_prefix("}}") {
            out.push('}');
            rest = after;
        } else if found.starts_with('}') {
            return Err("a single '}' stands alone; a literal brace is doubled.".to_owned());
        } else {
            let Some(end) = found.find('}') else {
                return Err("a '{' is not closed; a literal brace is doubled.".to_owned());
            };
            match &found[1..end] {
                "session_id" => out.push_str(&ids.session.to_string()),
                "agent_id" => out.push_str(&ids.agent.to_string()),
                "director_agent_id" => out.push_str(&ids.director.to_string()),
                other => {
                    return Err(format!(
                        "unknown placeholder '{{{}}}'; a literal brace is doubled.",
                        shown(other)
                    ));
                }
            }
            rest = &found[end + 1..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use caliban_store::broker::{AgentId, SessionId};

    use super::{Ids, TEMPLATE, fill};

    #[test]
    fn m10_placeholders_are_filled_in_and_others_refused() {
        let ids = Ids { session: SessionId::random(), agent: AgentId::random(), director: AgentId::random() };
        let (session, agent, director) = (ids.session, ids.agent, ids.director);
        assert_eq!(
            fill("s={session_id} a={agent_id} d={director_agent_id} {{x}}", ids),
            Ok(format!("s={session} a={agent} d={director} {{x}}"))
        );
        assert_eq!(fill("plain", ids), Ok("plain".to_owned()));
        for wrong in ["{name}", "{", "}", "{session_id", "a } b", "{}", "{agent_id!r}"] {
            assert!(fill(wrong, ids).is_err(), "{wrong}");
        }
        assert!(fill(TEMPLATE, ids).is_ok_and(|text| !text.contains(['{', '}'])));
    }
}
