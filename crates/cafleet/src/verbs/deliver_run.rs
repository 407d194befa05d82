//! `deliver-run`: what the deliverer of a session runs. Nobody types it.

use serde_json::json;

use crate::answer::Answer;
use crate::context::Context;
use crate::failure::Failure;
use crate::pane::deliverer::{self, Left};

pub(crate) async fn run(context: &mut Context) -> Result<Answer, Failure> {
    let session = context.session().await?;
    let settings = context.settings.clone();
    let left = deliverer::serve(context.broker().await?, &settings, session).await?;
    let why = match left {
        Left::Another => "another process delivers for this session",
        Left::NoTmux => "tmux cannot be reached from here",
        Left::DirectorGone => "the Director's pane is gone",
        Left::SessionGone => "the session is deleted",
        Left::DatabaseGone => "the database is gone",
        Left::NothingToDo => "no agent of the session has a pane",
    };
    Ok(Answer::new(why, json!({"left": why})))
}
