//! `session delete`: softly, in one transaction, as often as one likes.

use caliban_store::Stamp;
use serde_json::json;

use crate::answer::Answer;
use crate::args::SessionDeleteArgs;
use crate::context::{Context, session_prefix};
use crate::failure::Failure;

pub(crate) async fn run(context: &mut Context, args: &SessionDeleteArgs) -> Result<Answer, Failure> {
    let prefix = session_prefix(&args.id)?;
    let broker = context.broker().await?;
    let session = broker.session(&prefix).await?;
    let deleted = broker.delete_session(session.id, Stamp::now()).await?;
    Ok(Answer::new(
        format!("Deleted session {}. Deregistered {} agents.", deleted.id, deleted.deregistered),
        json!({"session_id": deleted.id.to_string(), "deregistered": deleted.deregistered}),
    ))
}
