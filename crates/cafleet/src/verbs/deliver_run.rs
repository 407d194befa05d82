//! `deliver-run`: the process of a session's deliverer. Users never type it.

use serde_json::json;

use crate::answer::VerbAnswer;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::pane::deliverer::{self, DelivererEnd};

pub(crate) async fn run(context: &mut VerbContext) -> Result<VerbAnswer, Failure> {
    let session = context.session().await?;
    let settings = context.settings.clone();
    let left = deliverer::serve(context.broker().await?, &settings, session).await?;
    let why = match left {
        DelivererEnd::Another => "another process delivers for this session",
        DelivererEnd::NoTmux => "tmux cannot be reached from here",
        DelivererEnd::DirectorGone => "the Director's pane is gone",
        DelivererEnd::SessionGone => "the session is deleted",
        DelivererEnd::DatabaseGone => "the database is gone",
        DelivererEnd::NothingToDo => "no agent of the session has a pane",
    };
    Ok(VerbAnswer::new(why, json!({"left": why})))
}
