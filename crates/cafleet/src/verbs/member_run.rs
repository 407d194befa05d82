//! `member-run`: the first process of a member's pane. It claims the member's placement in the store, and becomes the
//! member's program only if that succeeds. If the member was undone meanwhile, the pane closes at once.

use std::os::unix::process::CommandExt;
use std::process::Command;

use caliban_contract::process_mark::{self, AgentMark};
use caliban_store::Stamp;
use caliban_store::broker::AgentId;

use crate::answer::VerbAnswer;
use crate::args::MemberRunArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::launch::Launch;
use crate::pane::own_pane;
use crate::pane::tmux::Tmux;

use super::team::MEMBER_COMMANDS;

pub(crate) async fn run(context: &mut VerbContext, args: &MemberRunArgs) -> Result<VerbAnswer, Failure> {
    let over = || Failure::refused("member_gone", format!("there is no member {} to start", shown(&args.id)));
    let member = AgentId::parse(&args.id).ok_or_else(over)?;
    let here = own_pane::find(&context.settings, MEMBER_COMMANDS).await?;
    let identity = here.identity().ok_or_else(|| Failure::internal("cannot tell this pane from others"))?;
    if identity.pane_pid != i64::from(std::process::id()) {
        return Err(Failure::refused("member_gone", "this is not the first process of a pane"));
    }
    let facts = &here.facts;
    let broker = context.broker().await?;
    let claimed =
        broker.claim_placement(member, &facts.pane, &facts.window, &facts.session, &identity).await?;
    let launch = claimed.as_deref().and_then(Launch::from_text).ok_or_else(over)?;
    let mut program = Command::new(&launch.program);
    program.args(&launch.arguments).current_dir(&launch.cwd);
    // Marks every process that the member starts as not a person's, even after a double fork with an empty environment.
    // Best effort: if the system refuses, the ancestor processes still identify the member.
    let _unmarked = process_mark::put(AgentMark::Member);
    Tmux::at(&here.socket).stay_if_failed(&facts.pane).await;
    // Returns only on failure.
    let error = program.exec();
    let why = format!("cannot start {}: {error}", shown(&launch.program));
    broker.unplace_member(member, Stamp::now()).await?;
    Err(Failure::refused("program", why))
}
