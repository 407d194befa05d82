//! `AgentTool`: a fresh agent for one task, in the same process, made by the same composition.
//!
//! Owns what a sub-agent gets of its parent and what the parent gets back. A sub-agent never has `AgentTool`.

mod input;
mod report;
pub(crate) mod worktree;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use caliban_core::{
    access::Access,
    message::ToolSpec,
    model_alias,
    redact::Redactor,
    setup::AgentSetup,
    spec::{SpawnSpec, StartedBy},
};
use caliban_permissions::{Effect, Mode, Policy};
use caliban_tools::{BoxFuture, CallContext, Tool, ToolOutput, Workspace};
use serde_json::Value;

use crate::{
    agent::{Agent, AgentLimits},
    blueprint::{Blueprint, Kin, Parent, WantedAgent, WorkspaceSource},
    calls::APPROVED,
    event::{Author, Event},
    feed::{Cursor, FeedEntry},
    past_spending,
};
pub(crate) use report::ReportOutputs;
pub use worktree::WorktreeIsolation;

use input::{SubagentInput, SubagentPlace};

/// The tool's name.
pub const NAME: &str = "AgentTool";
/// A sub-agent's model requests; a hard limit.
pub const MAX_TURNS: u32 = 20;
/// The most characters of its answer that the parent gets.
pub const MAX_ANSWER_CHARS: usize = 5_000;

/// The source of the rule that lets an agent edit in its own worktree.
const OWN_WORKTREE: &str = "the agent's own worktree";

/// What starts sub-agents: the parent's blueprint and what is the parent's own.
pub struct Starter {
    /// The blueprint.
    pub blueprint: Blueprint,
    /// The parent's session.
    pub session: String,
    /// The parent's session directory; the sub-agents' are below it.
    pub directory: PathBuf,
    /// Where the parent works.
    pub workspace: Arc<Workspace>,
    /// What the sub-agents have of it.
    pub parent: Parent,
}

/// The tool.
pub struct AgentTool {
    spec: ToolSpec,
    starter: Starter,
}

impl AgentTool {
    /// The tool of one agent.
    pub fn new(starter: Starter) -> Self {
        Self { spec: input::spec(&starter.blueprint.definitions), starter }
    }
}

impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input = SubagentInput::parse(input)?;
        // One of the fleet has its own questions, and somebody to put them to.
        Ok(vec![match input.place {
            SubagentPlace::Worktree(_) if !input.background => Access::AgentInWorktree,
            _ => Access::Agent,
        }])
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let done = match SubagentInput::parse(&input).and_then(|input| self.starter.in_this_mode(input)) {
                Ok(input) if input.background => self.starter.hand_over(input).await,
                Ok(input) => self.starter.run(input, call).await,
                Err(problem) => Err(problem),
            };
            done.unwrap_or_else(ToolOutput::error)
        })
    }
}

impl Starter {
    /// A worktree is a branch, files and a setup command: nothing for an agent that may change nothing.
    fn in_this_mode(&self, input: SubagentInput) -> Result<SubagentInput, String> {
        let mode = self.parent.policy.read().unwrap_or_else(std::sync::PoisonError::into_inner).mode;
        match (&input.place, mode) {
            (SubagentPlace::Worktree(_), Mode::Plan) => {
                Err("plan mode changes nothing, so no worktree is made; leave out `isolation`".to_owned())
            }
            _ => Ok(input),
        }
    }

    async fn run(&self, mut input: SubagentInput, call: CallContext<'_>) -> Result<ToolOutput, String> {
        // It becomes the name of a directory and of a branch.
        input.label = input.label.map(|label| self.blueprint.redactor.redact(&label).into_owned());
        let definition = input.definition(&self.blueprint.definitions)?;
        let session = self.new_session(&input)?;
        let mut blueprint = self.blueprint.clone();
        blueprint.limits = AgentLimits { max_turns: MAX_TURNS.min(blueprint.limits.max_turns) };
        if let Some(model) = input.model.clone().or_else(|| definition.and_then(|it| it.model.clone())) {
            blueprint.model = model_alias::resolved(&model, &blueprint.model);
        }
        if !input.inherit_hooks {
            blueprint.hooks = blueprint.hooks.binding();
        }
        let worktree = match &input.place {
            SubagentPlace::Shared => None,
            SubagentPlace::Worktree(wanted) => {
                let name = worktree::name(input.label.as_deref(), &session);
                let (isolation, parent) = (&blueprint.isolation, self.workspace.root());
                Some(isolation.create(name, wanted, parent, &session, call.cancel, call.progress).await?)
            }
        };
        // Whatever goes wrong from here on: the worktree is finished.
        let outcome = self.work(blueprint, &session, &input, worktree.as_ref(), &call).await;
        let work = match worktree {
            Some(worktree) => {
                let who = format!("the sub-agent {}", input.label.as_deref().unwrap_or(&session));
                Some(worktree.finish(&who).await)
            }
            None => None,
        };
        let redactor = &self.blueprint.redactor;
        let keep =
            report::ReportOutputs { directory: self.workspace.output_dir(), session: &session, redactor };
        match (outcome, work) {
            (Ok(done), work) => Ok(report::answer(&done.turn, &done.dropped, work.as_ref(), &keep)),
            (Err(problem), Some(work)) => Err(format!("{problem}\n\n{work}")),
            (Err(problem), None) => Err(problem),
        }
    }

    /// Makes the sub-agent and lets it work, in the parent's directory or in this worktree.
    async fn work(
        &self,
        mut blueprint: Blueprint,
        session: &str,
        input: &SubagentInput,
        worktree: Option<&worktree::Made>,
        call: &CallContext<'_>,
    ) -> Result<SubagentDone, String> {
        let definition = input.definition(&self.blueprint.definitions)?;
        let parent_policy =
            self.parent.policy.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let workspace = match worktree {
            None => self.workspace.child(&self.workspace.cwd()),
            Some(made) => self.workspace.child(made.path()),
        };
        let workspace = workspace.map_err(|error| error.to_string())?;
        blueprint.policy = policy_below(&parent_policy, workspace.root(), worktree.is_some());
        let allowlist = input.tool_allowlist.clone().or_else(|| definition.and_then(|it| it.tools.clone()));
        let wanted = WantedAgent {
            label: input.label.clone(),
            kin: Kin::SubAgent(self.parent.clone()),
            tools: allowlist.clone(),
            role: definition.map(|it| it.role.clone()),
            ..WantedAgent::new(
                session.to_owned(),
                self.directory.join(past_spending::SUB_AGENTS).join(session),
                WorkspaceSource::Ready(workspace),
            )
        };
        let kit = blueprint.kit(wanted).map_err(|error| error.to_string())?;
        let dropped = unknown(allowlist.as_deref(), &kit.specs);
        // It has a clock of its own, which runs on into its parent's.
        let _waits_for_it = self.parent.purse.rest();
        let turn = drive(kit, &input.prompt, call).await?;
        Ok(SubagentDone { turn, dropped })
    }

    /// The rights of the parent for an agent of the fleet.
    pub(crate) fn rights(&self) -> Result<AgentSetup, String> {
        let policy = self.parent.policy.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        rights(&policy)
    }

    async fn hand_over(&self, input: SubagentInput) -> Result<ToolOutput, String> {
        let mut warning = String::new();
        if input.inherit_hooks && !self.blueprint.hooks.closures.is_empty() {
            let count = self.blueprint.hooks.closures.len();
            warning = format!(
                "\nwarning: {count} closure hook(s) cannot cross to the background agent and were dropped; \
                 pass inherit_hooks: false to say that this is fine"
            );
            tracing::warn!(count, "closure hooks dropped for a background agent");
        }
        let place = self.blueprint.isolation.apart_from(self.workspace.root(), input.place.clone()).await?;
        if place != input.place {
            warning
                .push_str("\nIt begins at your last commit; what you have not committed it does not have.");
        }
        let hooks = &self.blueprint.hooks;
        let hooks = if input.inherit_hooks { hooks.commands.clone() } else { hooks.binding().commands };
        let setup = AgentSetup {
            model: input.model.clone(),
            agent_type: input.agent.clone(),
            tools: input.tool_allowlist.clone(),
            account_above: self.parent.purse.ledger_name(),
            hooks: Some(hooks),
            ..self.rights()?
        };
        let spec = SpawnSpec {
            label: input.label.as_deref().map(caliban_core::names::Slug::slugify),
            setup,
            isolation: place.into_spec(),
            // The sessions of helpers begin with the id of the session that they work for.
            started_by: self.session.get(..8).and_then(|id| id.parse().ok()).map(StartedBy::Session),
            ..SpawnSpec::new(input.prompt.clone(), self.blueprint.cwd.clone())
        };
        let id = self.blueprint.spawner.spawn(spec).await?;
        Ok(report::handed_over(&id, &warning))
    }

    /// A name for the sub-agent's session that is new below this one.
    fn new_session(&self, input: &SubagentInput) -> Result<String, String> {
        let base = input.label.as_deref().unwrap_or("helper");
        let base = caliban_core::names::Slug::slugify(base);
        let parent = self.directory.join(past_spending::SUB_AGENTS);
        let cannot = |error: std::io::Error| {
            format!("the sub-agent's session cannot be made in {}: {error}", parent.display())
        };
        crate::transcript::make_private_directory(&parent).map_err(cannot)?;
        let mut number = 1_u32;
        loop {
            let session = format!("{}-{base}-{number}", self.session);
            // Making the directory is what takes the name, also among parallel calls.
            match std::fs::create_dir(parent.join(&session)) {
                Ok(()) => return Ok(session),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(cannot(error)),
            }
        }
    }
}

struct SubagentDone {
    turn: crate::agent::TurnReport,
    /// Tools that it was to have and that there are not.
    dropped: Vec<String>,
}

/// Runs the sub-agent to its end; what it does is shown to those who watch the parent.
async fn drive(
    kit: crate::agent::Kit,
    prompt: &str,
    call: &CallContext<'_>,
) -> Result<crate::agent::TurnReport, String> {
    let span = tracing::debug_span!("sub_agent", session = %kit.wanted.session);
    let (feed, redactor) = (kit.feed.clone(), kit.shared.redactor.clone());
    tracing::debug!(parent: &span, prompt = %redactor.redact(prompt), "started");
    let mut agent = Agent::new(kit).await.map_err(|error| error.to_string())?;
    let message = caliban_core::message::Message::user(prompt);
    let mut cursor = Cursor::default();
    let turn = {
        let work = agent.prompt(message, Author::Parent, call.cancel);
        tokio::pin!(work);
        loop {
            tokio::select! {
                turn = &mut work => break turn,
                entry = feed.wait(&mut cursor) => {
                    if let Some(entry) = entry {
                        show(&entry, &redactor, &span, call);
                    }
                }
            }
        }
    };
    while let Some(entry) = feed.next(&mut cursor) {
        show(&entry, &redactor, &span, call);
    }
    let outcome = format!("{:?}", turn.outcome);
    tracing::debug!(parent: &span, outcome = %redactor.redact(&outcome), turns = turn.turns, "ended");
    agent.close().await;
    Ok(turn)
}

/// Its turns go to the debug log, a line for each call to those who watch the parent.
fn show(entry: &FeedEntry, redactor: &Redactor, span: &tracing::Span, call: &CallContext<'_>) {
    if let FeedEntry::Record(record) = entry
        && let Event::Reply { message, .. } = &record.event
    {
        tracing::debug!(parent: span, text = %redactor.redact(&message.text()), "reply");
    }
    if let Some(line) = report::progress(entry) {
        tracing::debug!(parent: span, line = %redactor.redact(&line), "call");
        (call.progress)(&format!("{line}\n"));
    }
}

/// What an agent of this policy may do, for one of the fleet that goes on with its work: as it stands now, because a person
/// may have changed it since the agent began.
pub fn rights(policy: &Policy) -> Result<AgentSetup, String> {
    let inherited = serde_json::to_value(policy)
        .map_err(|error| format!("the agent's rights cannot be handed over: {error}"))?;
    let approved = policy.rules.iter().filter(|rule| rule.source == APPROVED);
    Ok(AgentSetup {
        permission_mode: Some(policy.mode),
        allow: approved.map(|rule| rule.rule.to_string()).collect(),
        inherited_policy: Some(inherited),
        ..AgentSetup::default()
    })
}

/// The parent's policy, as it stands, for a sub-agent.
fn policy_below(parent: &Policy, root: &Path, is_worktree: bool) -> Policy {
    let policy = parent.clone();
    if is_worktree { policy_in_worktree(policy, root) } else { policy }
}

/// A policy for an agent in a worktree that was made for it: files there can be edited without a question (that is what
/// it was made for), and nothing outside it can be written.
pub fn policy_in_worktree(mut policy: Policy, root: &Path) -> Policy {
    policy.worktree = Some(root.to_owned());
    // Its parent's own worktree is not its own.
    policy.rules.retain(|rule| rule.source != OWN_WORKTREE);
    allow_below(&mut policy, "Edit", root, OWN_WORKTREE);
    policy
}

/// The policy of an agent of this setup: its own, and where another agent has started it, no more than that one had at
/// that moment. What cannot be read is an error, in words: nobody knows what it would have forbidden.
pub fn inherit(setup: &AgentSetup, own: Policy) -> Result<Policy, String> {
    let Some(inherited) = &setup.inherited_policy else { return Ok(own) };
    let parent: Policy = serde_json::from_value(inherited.clone())
        .map_err(|error| format!("what the agent may do, by its spec, cannot be read: {error}"))?;
    let worktree = own.worktree.clone();
    let mut policy = caliban_permissions::inherit(&parent, own);
    Ok(match worktree {
        Some(root) if parent.lends_edits() => policy_in_worktree(policy, &root),
        // It writes nowhere else, and asks before it does.
        Some(root) => {
            policy.rules.retain(|rule| rule.source != OWN_WORKTREE);
            policy.worktree = Some(root);
            policy
        }
        None => policy,
    })
}

/// Allows a directory and all that is in it.
pub(crate) fn allow_below(policy: &mut Policy, verb: &str, directory: &Path, source: &str) {
    let escaped = directory.to_string_lossy().chars().fold(String::new(), |mut text, character| {
        if "*?[]{}\\".contains(character) {
            text.push('\\');
        }
        text.push(character);
        text
    });
    let text = format!("{verb}({escaped})");
    match text.parse() {
        Ok(rule) => policy.add(Effect::Allow, rule, source),
        Err(error) => tracing::warn!(text, %error, "a rule of our own does not parse"),
    }
}

fn unknown(allowlist: Option<&[String]>, specs: &[ToolSpec]) -> Vec<String> {
    let known = |name: &&String| !specs.iter().any(|spec| spec.name == **name);
    allowlist.unwrap_or_default().iter().filter(known).cloned().collect()
}
