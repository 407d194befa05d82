//! `caliban agents send`: returns when the agent has the message on disk.

use std::io::{Read as _, Write};

use serde_json::json;

use super::{
    Fleet,
    link::{Link, SEND},
    worded,
};
use crate::{
    cli::fleet::SendArgs,
    report::{Code, Failure},
};

/// The longest message that is read from stdin.
const MESSAGE_CAP: u64 = caliban_core::spec::MAX_PROMPT_BYTES as u64;

pub(super) async fn send(fleet: &Fleet<'_>, args: &SendArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let text = if args.text == "-" { from_stdin()? } else { args.text.clone() };
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say"));
    }
    let awake = fleet.client().await?.wake(&args.agent.id).await.map_err(worded)?;
    let mut link = Link::open(&awake.socket).await?;
    // With an id of ours, so that a message which is sent twice is said once.
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Failure::new(format!("no random numbers: {error}")))?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    link.call(SEND, json!({"text": text, "id": id})).await?;
    writeln!(out, "{} has it", awake.id)?;
    Ok(Code::Done)
}

fn from_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MESSAGE_CAP + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?;
    if text.len() as u64 > MESSAGE_CAP {
        return Err(Failure::usage(format!("the message has more than {MESSAGE_CAP} bytes")));
    }
    Ok(text)
}
