//! `member create`: a coding agent in a pane beside its Director's, all or nothing.
//!
//! The order makes it atomic: everything that can be wrong with the command line is checked first; then the member is
//! written with a pending placement; then the pane is made, whose first process claims that placement and becomes the
//! program. A command that is killed in between leaves a pending member, which the next command undoes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use caliban_contract::ancestry::{self, Ancestry};
use caliban_contract::member;
use caliban_contract::process_mark::{self, AgentMark};
use caliban_contract::records::{self, Rights};
use caliban_core::mode::Mode;
use caliban_core::names::Slug;
use caliban_store::Stamp;
use caliban_store::broker::{Agent, AgentId, Broker, IdPrefix, NewMember, Placement};
use caliban_worktrees::{CreateRequest, GitOptions, Repo};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::team::{self, MEMBER_COMMANDS};
use crate::answer::VerbAnswer;
use crate::args::MemberCreateArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::backend::{Backend, Start};
use crate::pane::inspect::{PaneState, PaneTarget, look_at};
use crate::pane::launch::{self, Launch};
use crate::pane::own_pane::{self, Here};
use crate::pane::tmux::Tmux;
use crate::pane::{deliverer, leave, process};
use crate::prompt::{self, Ids};
use crate::{input, render, usage, worktree_hold};

/// Time limit for a pane to start its program.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a program must run to count as started: one that rejects its arguments exits sooner.
const STAYS: Duration = Duration::from_millis(250);
/// The interval at which it is checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// The program of a Director that did not name one.
const DEFAULT_BACKEND: &str = "claude";

pub(crate) async fn run(context: &mut VerbContext, args: &MemberCreateArgs) -> Result<VerbAnswer, Failure> {
    let here = own_pane::find(&context.settings, MEMBER_COMMANDS).await?;
    let director = team::director(context, &args.agent_id).await?;
    if let Some(given) = &args.recover {
        return recover(context, &here, &director, given, args.full).await;
    }
    lent().covers_a_member()?;
    let name = input::name("--name", args.name.as_deref().unwrap_or_default())?;
    let description = input::description(args.description.as_deref().unwrap_or_default())?;
    let (full_name, backend) = backend_of(args, &director)?;
    if args.effort.is_some() && !backend.has_effort {
        let words = format!("{} cannot be told how hard to think.", backend.name);
        return Err(usage::invalid_value(&["member", "create"], "--effort", &words));
    }
    let ids = Ids { session: director.session, agent: AgentId::random(), director: director.id };
    let prompt = prompt::read(args.prompt_file.as_deref(), &args.prompt, backend.text, ids)?;
    let database_dir = context.settings.database_dir()?;
    let start = Start {
        name: &name,
        member: &ids.agent.to_string(),
        model: args.model.as_deref(),
        effort: args.effort.as_deref(),
        prompt: &prompt,
        database_dir: &database_dir,
    };
    let (program, arguments) = backend.command_line(&full_name, &start);
    let program = launch::find_program(&context.settings, &program).ok_or_else(|| {
        let words = format!("binary {program} not found on PATH");
        let failure = Failure::refused("no_program", words);
        Failure { hint_text: Some(format!("install it: {}", backend.install)), ..failure }
    })?;
    let mut cwd = directory(args.cwd.as_deref())?;
    let holder = worktree_hold::path(&database_dir, ids.agent);
    let mut worktree = None;
    if args.worktree {
        let made = make_worktree(&cwd, &name, ids.agent, &holder).await?;
        cwd.clone_from(&made.created.path);
        worktree = Some(made);
    }
    let launch = Launch {
        program: program.display().to_string(),
        arguments,
        cwd: cwd
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| Failure::refused("bad_cwd", "the member's directory is not UTF-8"))?,
        worktree: worktree.as_ref().map(|made| made.created.name.to_string()),
    };
    let placement = Placement {
        host: own_pane::host()
            .map_err(|error| Failure::internal(format!("cannot tell this machine: {error}")))?,
        director: Some(director.id),
        tmux_session: here.facts.session.clone(),
        tmux_window: here.facts.window.clone(),
        tmux_pane: None,
        coding_agent: full_name,
        created_at: Stamp::now(),
        identity: None,
    };
    let new = NewMember {
        id: ids.agent,
        session: director.session,
        name,
        description,
        placement,
        launch: launch.to_text(),
        maker: maker()?,
    };
    let broker = context.broker().await?;
    let member = broker.create_member(&new, Stamp::now()).await?;
    if worktree.is_some()
        && let Err(error) = worktree_hold::hold(&holder)
    {
        broker.undo_member(member.id, Stamp::now()).await?;
        let words = format!("cannot hold the member's worktree: {}: {error}", holder.display());
        return Err(Failure::refused("worktree", shown(&words)));
    }
    // Until now our own process held the worktree.
    drop(worktree);
    start_in_pane(context, &here, &director, &member, &launch, args.full).await
}

/// What this process may hand over. A command of an agent in the foreground runs out of its fence by a person's word.
fn lent() -> Lent {
    let own = i32::try_from(std::process::id()).map_or(Ancestry::Unknown, ancestry::fleet_above);
    lent_by(own, process_mark::found())
}

/// The same of a process below these, with this mark. Whoever cannot be seen is never taken for a person.
fn lent_by(above: Ancestry, mark: Option<AgentMark>) -> Lent {
    let agent = match (above, mark) {
        (Ancestry::Agents(agents), _) => agents.into_iter().next(),
        (Ancestry::Unknown, _) | (_, Some(AgentMark::Agent)) => None,
        (Ancestry::Person | Ancestry::Member, Some(AgentMark::Member | AgentMark::Command) | None) => {
            return Lent::Anything;
        }
    };
    let mode = agent.and_then(|agent| {
        let rights = records::read::<Rights>(&agent.dir, records::RIGHTS)?;
        (rights.nonce == agent.nonce).then_some(rights.mode)
    });
    Lent::ByAgent(mode)
}

/// Who may hand over what.
#[derive(Debug, PartialEq, Eq)]
enum Lent {
    /// A person's process, or a member's.
    Anything,
    /// An agent of the fleet in this mode; unknown when it has no record.
    ByAgent(Option<Mode>),
}

impl Lent {
    /// A member edits unasked, so an agent starts one only if it may do that itself.
    fn covers_a_member(&self) -> Result<(), Failure> {
        let mode = match self {
            Self::Anything => return Ok(()),
            Self::ByAgent(Some(mode)) if mode.narrower(member::MODE) == member::MODE => return Ok(()),
            Self::ByAgent(mode) => mode.map_or("unknown", Mode::name),
        };
        let words = format!(
            "a member works in the mode {}, and an agent cannot hand over more than it has: its own is {mode}",
            member::MODE
        );
        let hint_text = Some("ask the person to create the member".to_owned());
        Err(Failure { hint_text, ..Failure::refused("not_allowed", words) })
    }
}

/// The program that the member runs: the one given, else its Director's.
fn backend_of(args: &MemberCreateArgs, director: &Agent) -> Result<(String, &'static Backend), Failure> {
    let own = director.placement.as_ref().map(|placement| placement.coding_agent.clone());
    let full = args.coding_agent.clone().or(own).unwrap_or_else(|| DEFAULT_BACKEND.to_owned());
    let backend = Backend::parse(&full).ok_or_else(|| {
        let names: Vec<String> = Backend::names().iter().map(|name| format!("'{name}'")).collect();
        let why = format!("'{full}' is not one of {}.", names.join(", "));
        usage::invalid_value(&["member", "create"], "--coding-agent", &why)
    })?;
    Ok((full, backend))
}

fn maker() -> Result<String, Failure> {
    process::own().ok_or_else(|| Failure::internal("cannot tell this process from others"))
}

fn directory(given: Option<&str>) -> Result<PathBuf, Failure> {
    let refused = |dir: &Path, why: &str| {
        Failure::refused(
            "bad_cwd",
            format!("cannot work in {}: {}", shown(&dir.display().to_string()), shown(why)),
        )
    };
    let dir = match given {
        Some(dir) => PathBuf::from(dir),
        None => std::env::current_dir().map_err(|error| refused(Path::new("."), &error.to_string()))?,
    };
    let dir = dir.canonicalize().map_err(|error| refused(&dir, &error.to_string()))?;
    if dir.is_dir() { Ok(dir) } else { Err(refused(&dir, "it is not a directory")) }
}

/// Makes a worktree of the repository of `cwd`, held by this process.
async fn make_worktree(
    cwd: &Path,
    name: &str,
    member: AgentId,
    holder: &Path,
) -> Result<caliban_worktrees::Worktree, Failure> {
    let failed = |error: caliban_worktrees::Error| {
        let failure = Failure::refused("worktree", shown(&error.to_string()));
        Failure { hint_text: error.hint(), ..failure }
    };
    let slug = Slug::parse(name).or_else(|_| Slug::parse(&format!("member-{}", member.short())));
    let slug = slug.map_err(|error| Failure::refused("worktree", shown(&error.to_string())))?;
    let cancel = CancellationToken::new();
    let repo = Repo::open(cwd, GitOptions::default(), &cancel).await.map_err(failed)?;
    let request = CreateRequest {
        owner: Some(member.to_string()),
        holder: Some(holder.to_owned()),
        ..CreateRequest::new(slug)
    };
    repo.create(request, &|_| {}, &cancel).await.map_err(failed)
}

/// Makes the pane of a pending member and waits until its program runs.
async fn start_in_pane(
    context: &mut VerbContext,
    here: &Here,
    director: &Agent,
    member: &Agent,
    launch: &Launch,
    full: bool,
) -> Result<VerbAnswer, Failure> {
    let settings = context.settings.clone();
    let (tmux, beside) = beside(here, director, &settings).await;
    let broker = context.broker().await?;
    let started = match launch::open_pane(&settings, &tmux, &beside, launch, member.id).await {
        Ok(pane) => wait_for(broker, &tmux, member, &pane).await.map_err(|failure| (failure, Some(pane))),
        Err(failure) => Err((failure, None)),
    };
    let started = match started {
        Ok(started) => started,
        Err((failure, pane)) => {
            if let Some(pane) = pane {
                // Best effort: usually the pane has closed already, because its program ended.
                let _ = tmux.kill_pane(&pane, &format!("#{{==:#{{pane_id}},{pane}}}")).await;
            }
            broker.unplace_member(member.id, Stamp::now()).await?;
            worktree_hold::let_go(broker, &settings).await?;
            let message = format!("{}. Rolled back registration of {}.", failure.message, member.id);
            return Err(Failure { message, ..failure });
        }
    };
    let window = started.placement.as_ref().map_or("", |placement| placement.tmux_window.as_str());
    let note = tmux.lay_out(window).await.err().map(|error| format!("layout: {}", shown(&error.words())));
    deliverer::ensure(broker, &settings, member.session).await;
    Ok(VerbAnswer::new(render::member::created_text(&started, full), render::member::created_json(&started))
        .note(note))
}

/// The pane beside which to open the member's: the Director's, or our own if the Director has none here.
async fn beside(here: &Here, director: &Agent, settings: &crate::settings::Settings) -> (Tmux, String) {
    let ours = (Tmux::at(&here.socket), here.facts.pane.clone());
    let Some(target) = director.placement.as_ref().and_then(PaneTarget::of) else { return ours };
    match target.look(settings).await.state {
        PaneState::Gone | PaneState::Unreachable => ours,
        _ => (target.tmux.clone(), target.pane.to_owned()),
    }
}

/// Waits until the pane's first process has claimed the placement and become the program.
async fn wait_for(broker: &mut Broker, tmux: &Tmux, member: &Agent, pane: &str) -> Result<Agent, Failure> {
    let failed = |why: &str| {
        Failure::refused("start", format!("the member's program did not start in pane {pane}: {why}"))
    };
    let own = std::env::current_exe().ok();
    let give_up = Instant::now() + START_LIMIT;
    let mut runs_since: Option<Instant> = None;
    loop {
        let now = broker.find_member(member.session, &IdPrefix::from(member.id)).await?;
        let now = now.ok_or_else(|| failed("it could not be executed"))?;
        let identity = now.placement.as_ref().and_then(|placement| placement.identity.clone());
        let is_placed = now.placement.as_ref().is_some_and(|placement| placement.tmux_pane.is_some());
        if let (true, Some(identity)) = (is_placed, identity) {
            let program = std::fs::read_link(format!("/proc/{}/exe", identity.pane_pid)).ok();
            match process::started(identity.pane_pid) {
                None => return Err(failed(&ended_at_once(tmux, pane).await)),
                Some(_) if program == own => {}
                Some(_) if runs_since.get_or_insert_with(Instant::now).elapsed() >= STAYS => return Ok(now),
                Some(_) => {}
            }
        } else if matches!(tmux.look(pane, "").await, Ok(None)) {
            return Err(failed("it ended before it could take its place"));
        }
        if Instant::now() >= give_up {
            return Err(failed("it takes too long"));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// How a program ended that never came to work, with its last lines where its pane is still there.
async fn ended_at_once(tmux: &Tmux, pane: &str) -> String {
    let facts = tmux.look(pane, "").await.ok().flatten().filter(|facts| facts.dead);
    let Some(facts) = facts else { return "it ended at once".to_owned() };
    let how = facts.ended.unwrap_or_else(|| "it ended at once".to_owned());
    match tmux.last_words(pane).await {
        last if last.is_empty() => how,
        last => format!("{how}; its last lines: {}", last.join(" ⏎ ")),
    }
}

/// Recovers a member that lost its pane: the same identity and mailbox, the same program and prompt, another pane.
async fn recover(
    context: &mut VerbContext,
    here: &Here,
    director: &Agent,
    given: &str,
    full: bool,
) -> Result<VerbAnswer, Failure> {
    let settings = context.settings.clone();
    let team = team::command(context, &director.id.to_string(), given, "").await?;
    let member = team.member;
    let seen = look_at(&member, &settings).await;
    match seen.state {
        PaneState::Gone => {}
        PaneState::Unreachable | PaneState::Pending => {
            return Err(Failure::refused(
                "not_gone",
                format!("member {} cannot be recovered: {}", member.id, seen.why),
            ));
        }
        _ => {
            let words =
                format!("member {} is not gone: its pane is there ({})", member.id, seen.state.word());
            return Err(Failure::refused("not_gone", words)
                .hint("'cafleet member delete --force' closes it, and 'member create' makes a new one"));
        }
    }
    let broker = context.broker().await?;
    let launch = broker.launch(member.id).await?.and_then(|(launch, _)| Launch::from_text(&launch));
    let launch = launch.ok_or_else(|| {
        Failure::refused("no_launch", format!("it is not known how member {} was started", member.id))
    })?;
    // Its last lines have been told; a new pane takes its place.
    if let Some(target) = member.placement.as_ref().and_then(PaneTarget::of) {
        leave::close_dead(&target).await;
    }
    let moved = move_director(broker, here, director, &settings).await?;
    // Before the new pane exists, because everything typed after that is typed into the new one.
    broker.give_up_typed(member.id).await?;
    broker.place_again(member.id, &maker()?, Stamp::now()).await?;
    let answer = start_in_pane(context, here, director, &member, &launch, full).await?;
    let broker = context.broker().await?;
    broker.hold_again(member.id).await?;
    broker.wake_deliverer(member.session).await;
    Ok(answer.note(moved))
}

/// Moves a Director whose own pane is gone, too, to the pane of this command.
async fn move_director(
    broker: &mut Broker,
    here: &Here,
    director: &Agent,
    settings: &crate::settings::Settings,
) -> Result<Option<String>, Failure> {
    let Some(placement) = &director.placement else { return Ok(None) };
    if look_at(director, settings).await.state != PaneState::Gone {
        return Ok(None);
    }
    let placement = Placement {
        tmux_session: here.facts.session.clone(),
        tmux_window: here.facts.window.clone(),
        tmux_pane: Some(here.facts.pane.clone()),
        identity: here.identity(),
        created_at: Stamp::now(),
        ..placement.clone()
    };
    broker.give_up_typed(director.id).await?;
    broker.move_to(director.id, &placement).await?;
    broker.hold_again(director.id).await?;
    Ok(Some(format!("the Director's pane was gone, too; it is {} now", here.facts.pane)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a19_an_agent_creates_a_member_only_if_it_may_edit_unasked_itself() {
        let may = |lent: Lent| lent.covers_a_member().is_ok();
        assert!(may(Lent::Anything));
        assert!(may(Lent::ByAgent(Some(Mode::AcceptEdits))) && may(Lent::ByAgent(Some(Mode::Unattended))));
        for mode in [None, Some(Mode::Plan), Some(Mode::Default)] {
            assert!(!may(Lent::ByAgent(mode)), "{mode:?}");
        }
    }
}
