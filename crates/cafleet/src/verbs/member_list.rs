//! `member list`: the members of a Director, oldest first.

use caliban_store::Stamp;

use super::team;
use crate::answer::VerbAnswer;
use crate::args::MemberListArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render;

pub(crate) async fn run(context: &mut VerbContext, args: &MemberListArgs) -> Result<VerbAnswer, Failure> {
    let director = team::director(context, &args.agent_id).await?;
    let broker = context.broker().await?;
    let mut rows = Vec::new();
    for member in broker.members(director.session, director.id).await? {
        let activity = if args.activity { Some(broker.activity(member.id).await?) } else { None };
        rows.push((member, activity));
    }
    let now = Stamp::now();
    Ok(VerbAnswer::new(render::member::list_text(&rows, now), render::member::list_json(&rows, now)))
}
