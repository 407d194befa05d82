//! `doctor`: which tmux pane this is, and what claude and codex lack to use cafleet in it.

use serde_json::json;

use super::setup;
use crate::answer::Answer;
use crate::context::Context;
use crate::failure::{Failure, shown};
use crate::pane::here;

pub(crate) async fn run(context: &mut Context) -> Result<Answer, Failure> {
    let here = here::find(&context.settings, "cafleet doctor").await?;
    let facts = here.facts;
    let variable = context.settings.tmux_pane.clone().unwrap_or_default();
    let setup = setup::looked(&context.settings);
    let mut answer = Answer::new(
        format!(
            "tmux:\n  session_name: {}\n  window_id: {}\n  pane_id: {}\n  TMUX_PANE: {}",
            shown(&facts.session),
            facts.window,
            facts.pane,
            shown(&variable),
        ),
        json!({"tmux": {
            "session_name": facts.session,
            "window_id": facts.window,
            "pane_id": facts.pane,
            "tmux_pane_env": variable,
        }}),
    );
    // Where neither program has ever run there is nothing to say.
    if let Some(setup) = &setup {
        answer = answer.with("setup", json!(setup));
    }
    for remark in setup.iter().flat_map(setup::remarks) {
        answer = answer.note(Some(remark));
    }
    Ok(answer)
}
