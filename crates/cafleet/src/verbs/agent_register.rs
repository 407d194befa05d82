//! `agent register`: a new mailbox with a name.

use caliban_store::Stamp;
use caliban_store::broker::{BrokerError, NewAgent};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::AgentRegisterArgs;
use crate::context::{VerbContext, session_prefix};
use crate::failure::{Failure, shown};
use crate::input;

pub(crate) async fn run(context: &mut VerbContext, args: &AgentRegisterArgs) -> Result<VerbAnswer, Failure> {
    let given = context.session_given()?.to_owned();
    let not_found =
        || Failure::refused("session_not_found", format!("Session '{}' not found.", shown(&given)));
    let session = session_prefix(&given).map_err(|_| not_found())?;
    let new = NewAgent {
        name: input::name("--name", &args.name)?,
        description: input::description(&args.description)?,
        skills: input::skills(args.skills.as_deref())?,
    };
    let agent = match context.broker().await?.register(&session, &new, Stamp::now()).await {
        Err(BrokerError::SessionNotFound(_)) => return Err(not_found()),
        other => other?,
    };
    Ok(VerbAnswer::new(
        format!("Agent registered successfully!\nagent_id: {}\nname: {}", agent.id, shown(&agent.name)),
        json!({
            "agent_id": agent.id.to_string(),
            "name": agent.name,
            "registered_at": agent.registered_at.to_string(),
            "number": agent.number,
        }),
    ))
}
