//! `caliban agents send`: returns when the agent has the message on disk.

use std::{
    io::{Read as _, Write},
    time::Duration,
};

use caliban_core::lifecycle::State;
use caliban_supervisor::{Client, protocol::AgentRow};
use serde_json::json;
use tokio::time::{Instant, sleep};

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

/// How long an idle agent may take to be seen at work; the message is safe in any case.
const TAKEN_UP_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

pub(super) async fn send(fleet: &Fleet<'_>, args: &SendArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let text = if args.text == "-" { from_stdin()? } else { args.text.clone() };
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say"));
    }
    let mut client = fleet.client().await?;
    let awake = client.wake(&args.agent.id).await.map_err(worded)?;
    let before = client.show(&awake.id.to_string()).await.map_err(worded)?;
    let mut link = Link::open(&awake.socket).await?;
    // With an id of ours, so that a message which is sent twice is said once.
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Failure::new(format!("no random numbers: {error}")))?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    link.call(SEND, json!({"text": text, "id": id})).await?;
    if before.state == State::Idle {
        taken_up(&mut client, &before).await?;
    }
    writeln!(out, "{} has it", awake.id)?;
    Ok(Code::Done)
}

/// Waits a moment until the list shows that an idle agent is at work, so that a `wait` which follows waits for this.
async fn taken_up(client: &mut Client, before: &AgentRow) -> Result<(), Failure> {
    let give_up = Instant::now() + TAKEN_UP_LIMIT;
    while Instant::now() < give_up {
        let row = client.show(&before.id.to_string()).await.map_err(worded)?;
        if row.state != State::Idle || row.turns != before.turns {
            break;
        }
        sleep(LOOK).await;
    }
    Ok(())
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
