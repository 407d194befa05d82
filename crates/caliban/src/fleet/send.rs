//! `caliban agents send`: returns when the agent has the message on disk, without the secrets of our shell. The agent
//! finds those in our process and hears them all the same; where it does not look, it gets the message without them (a12).

use std::io::{Read as _, Write};

use caliban_core::{lifecycle::State, redact::Redactor};
use caliban_fleet::protocol::SendRequest;

use super::{Fleet, PATIENCE, say};
use crate::{
    cli::fleet::SendArgs,
    report::{Code, Failure, Result},
};

/// The longest message that is read from stdin.
const MESSAGE_CAP: u64 = caliban_core::spec::MAX_PROMPT_BYTES as u64;

pub(super) async fn send(fleet: &Fleet<'_>, args: &SendArgs, out: &mut dyn Write) -> Result<Code> {
    let text = if args.text == "-" { from_stdin()? } else { args.text.clone() };
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say"));
    }
    let veiled = Redactor::new(crate::settings::tool_environment::spoken_secrets(fleet.environment))
        .redact(&text)
        .into_owned();
    let mut client = fleet.client().await?;
    let row = client.show(&args.agent.id).await?;
    // One that runs need not be woken, and may not listen yet: then the daemon says what it waits for.
    let runs = row.state == State::Running && !row.hibernated;
    let id = if runs { row.id } else { fleet.wake(&mut client, &args.agent.id).await?.id }.to_string();
    let request = SendRequest { text, veiled: Some(veiled), id: None };
    let sent = client.send(&id, request);
    tokio::pin!(sent);
    let sent = match tokio::time::timeout(PATIENCE, &mut sent).await {
        Ok(sent) => sent,
        Err(_) => {
            say(&format!("waiting for agent {id} to take the message"));
            sent.await
        }
    };
    let sent = sent?;
    if sent.veiled {
        say("without what looks like secrets of this shell: they would be in its transcript");
    }
    writeln!(out, "{} has it", sent.id)?;
    Ok(Code::Done)
}

fn from_stdin() -> Result<String> {
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
