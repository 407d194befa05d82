//! `session list`: the sessions that are not deleted, oldest first.

use crate::answer::VerbAnswer;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render;

pub(crate) async fn run(context: &mut VerbContext) -> Result<VerbAnswer, Failure> {
    let sessions = context.broker().await?.sessions().await?;
    Ok(VerbAnswer::new(render::session::list_text(&sessions), render::session::list_json(&sessions)))
}
