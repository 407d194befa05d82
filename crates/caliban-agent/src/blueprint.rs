//! The one composition: from settings to a [`Kit`].
//!
//! A foreground agent, a sub-agent, a background agent and a fleet worker are all made here, from the same
//! blueprint; what differs is said in [`WantedAgent`]. There is no second way.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use caliban_core::{
    access::Access,
    background::BackgroundLimits,
    budget,
    definition::Definition,
    message::Effort,
    price::{self, Billing, Price},
    quiet_hours::QuietHours,
    redact::Redactor,
    spec::AfterTurn,
};
use caliban_permissions::{Policy, Verdict};
use caliban_providers::Provider;
use caliban_tools::{OffLimits, Tool, Workspace, WorkspaceOptions};

use crate::{
    agent::{AgentLimits, Attendance, EarlierAnswers, Fallback, Kit, TurnCount},
    answer_form::AnswerForm,
    asks::Asks,
    background::{self, Background, tool::SpawnBackground},
    budget::{MachineLedger, Purse},
    checkpoint::Checkpoints,
    choices::KeepRules,
    feed::Feed,
    fence::Fences,
    hooks::Hooks,
    last_writers::Writers,
    prompt::{self, AgentStanding, ContextFiles, Instructions, Surroundings, SystemPrompt, WorkplaceFacts},
    repo_state::RepoState,
    spawner::Spawner,
    subagent::{self, AgentTool, WorktreeIsolation},
    telemetry::Observers,
};

/// What all agents of one setup have in common.
#[derive(Clone)]
pub struct Blueprint {
    /// The models.
    pub provider: Arc<dyn Provider>,
    /// The model.
    pub model: String,
    /// How hard it thinks.
    pub effort: Effort,
    /// The most tokens of one answer.
    pub max_output: Option<u32>,
    /// How many tokens the model can hold, where the catalogue is not to be trusted.
    pub window: Option<u64>,
    /// Whether its tokens cost money.
    pub billing: Billing,
    /// What the user adds to the system prompt.
    pub append: Option<String>,
    /// Which instruction files are read.
    pub context_files: ContextFiles,
    /// Where the user stands; background agents are started from there, with the same settings and trust.
    pub cwd: PathBuf,
    /// The top of the repository.
    pub repo: Option<PathBuf>,
    /// Today.
    pub date: String,
    /// What else is known of the place.
    pub surroundings: Surroundings,
    /// What has changed in the repository, and its last commits; none outside of one.
    pub repo_state: Option<RepoState>,
    /// Tools of MCP servers.
    pub foreign_tools: Vec<Arc<dyn Tool>>,
    /// What may be done.
    pub policy: Policy,
    /// What commands run in.
    pub fences: Arc<Fences>,
    /// The user's hooks.
    pub hooks: Hooks,
    /// What may be spent, by the agent and all that it starts.
    pub budget: budget::Limits,
    /// The machine's ledger, in which requests are reserved; without one (tests) only limits of time hold.
    pub ledger: Option<MachineLedger>,
    /// How far it may go.
    pub limits: AgentLimits,
    /// How long a run waits for its background commands before the model is asked what to do.
    pub job_wait: Duration,
    /// When it begins no model request; none for an agent that somebody waits for, and for a model that costs nothing.
    pub quiet_hours: QuietHours,
    /// Who can be asked.
    pub attendance: Attendance,
    /// Who writes rules down that a person keeps for longer than the session; where nobody does, they hold for the session.
    pub keep_rules: Option<KeepRules>,
    /// How long a question waits for an answer; for ever when absent.
    pub ask_time: Option<Duration>,
    /// Takes secrets out of what is written down.
    pub redactor: Redactor,
    /// Whether agents can start helpers.
    pub helpers: Helpers,
    /// Who answers when the model cannot.
    pub fallback: Option<Fallback>,
    /// Kinds of agents that a call can name.
    pub definitions: Arc<[Definition]>,
    /// How worktrees are made.
    pub isolation: WorktreeIsolation,
    /// What the session's background agents may spend; none where a session has none.
    pub background: Option<BackgroundLimits>,
    /// Who takes work that outlives the session.
    pub spawner: Arc<dyn Spawner>,
    /// Sees the records of every agent that is made from this.
    pub observers: Option<Observers>,
}

/// Whether agents can start helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helpers {
    /// The model sees `AgentTool`.
    Allowed,
    /// It never does.
    Off,
}

/// One agent that is wanted.
#[derive(Clone)]
pub struct WantedAgent {
    /// Its session's id.
    pub session: String,
    /// A name for people.
    pub label: Option<String>,
    /// Its session's directory.
    pub directory: PathBuf,
    /// Where it works; `output_dir` and `redact` are set here.
    pub workspace: WorkspaceSource,
    /// What it is: somebody's helper, or on its own.
    pub kin: Kin,
    /// The account that a helper had before, when it goes on in the process that it ended in.
    pub purse: Option<Purse>,
    /// Exactly these tools; all when absent.
    pub tools: Option<Vec<String>>,
    /// Its part of the system prompt.
    pub role: Option<String>,
    /// Tools that it has by itself; its sub-agents do not have them.
    pub own_tools: Vec<Arc<dyn Tool>>,
    /// What the system prompt says about those.
    pub instructions: Option<String>,
    /// The form that its answers must have.
    pub form: Option<AnswerForm>,
    /// What its turn limit counts.
    pub turn_count: TurnCount,
    /// Whether its process ends with the turn. A helper's work always does.
    pub after_turn: AfterTurn,
    /// Whether "always" answers of an earlier process of the conversation still hold.
    pub earlier_answers: EarlierAnswers,
}

impl WantedAgent {
    /// An agent with all tools of the blueprint and none of its own, on its own.
    pub fn new(session: String, directory: PathBuf, workspace: WorkspaceSource) -> Self {
        Self {
            session,
            label: None,
            directory,
            workspace,
            kin: Kin::Independent,
            purse: None,
            tools: None,
            role: None,
            own_tools: Vec::new(),
            instructions: None,
            form: None,
            turn_count: TurnCount::Prompt,
            after_turn: AfterTurn::Stay,
            earlier_answers: EarlierAnswers::Forgotten,
        }
    }
}

/// Where an agent works.
#[expect(clippy::large_enum_variant, reason = "made once for each agent and moved once")]
#[derive(Clone)]
pub enum WorkspaceSource {
    /// In a place of its own.
    New(WorkspaceOptions),
    /// In one that was derived from another agent's.
    Ready(Arc<Workspace>),
}

/// An agent's place in the family.
#[derive(Clone)]
pub enum Kin {
    /// It answers to a person.
    Independent,
    /// It was started by another agent and works for it.
    SubAgent(Parent),
    /// It was started in a session and works beside its main agent.
    Background(Parent),
}

impl Kin {
    /// The agent that started it.
    pub(crate) fn parent(&self) -> Option<&Parent> {
        match self {
            Self::Independent => None,
            Self::SubAgent(parent) | Self::Background(parent) => Some(parent),
        }
    }
}

/// What a sub-agent has of its parent.
#[derive(Clone)]
pub struct Parent {
    /// The parent's session.
    pub session: String,
    /// The account that pays.
    pub purse: Purse,
    /// The parent's asks: a sub-agent's are answered there.
    pub asks: Asks,
    /// The parent's live log, where those asks are shown.
    pub feed: Feed,
    /// What the parent may do, as it stands now.
    pub policy: Arc<RwLock<Policy>>,
    /// Keeps what files were before a tool changes them.
    pub checkpoints: Arc<Checkpoints>,
    /// Knows which agent of the session wrote a file last.
    pub writers: Arc<Writers>,
}

/// Why an agent cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// Its directory cannot be worked in.
    #[error(transparent)]
    Workspace(#[from] caliban_tools::WorkspaceError),
    /// Its account cannot be opened.
    #[error(transparent)]
    Account(#[from] caliban_core::budget::AccountError<String>),
}

/// Whether a model was taught to change files with patches: those of the GPT family, also behind a router
/// (`openai/gpt-5`).
fn knows_patches(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["gpt-", "codex"].iter().any(|start| name.starts_with(start))
}

impl Blueprint {
    /// The kit of one agent.
    pub fn kit(&self, mut wanted: WantedAgent) -> Result<Kit, ComposeError> {
        let feed = Feed::observed(self.observers.as_ref().map(|observe| observe()));
        let price = self.price();
        let parent = wanted.kin.parent();
        let (purse, asks, checkpoints, writers) = match parent {
            None => (
                match &self.ledger {
                    Some(ledger) => {
                        Purse::in_ledger(ledger, &wanted.session, wanted.label.clone(), self.budget, price)
                    }
                    None => Purse::new(&wanted.session, self.budget.wall_ms, price),
                },
                Asks::patient(self.ask_time),
                Arc::new(Checkpoints::new(&wanted.directory)),
                Arc::default(),
            ),
            Some(parent) => (
                match &wanted.purse {
                    Some(purse) => purse.clone(),
                    None => parent.purse.child(&wanted.session, self.budget, price)?,
                },
                parent.asks.clone(),
                parent.checkpoints.clone(),
                parent.writers.clone(),
            ),
        };
        let is_independent = parent.is_none();
        let workspace = match wanted.workspace {
            WorkspaceSource::New(options) => Workspace::new(options)?,
            WorkspaceSource::Ready(workspace) => workspace,
        };
        wanted.workspace = WorkspaceSource::Ready(workspace.clone());
        let mut policy = self.policy.clone();
        if let Some(names) = &wanted.tools {
            policy.keep_tools(names);
        }
        // Outputs that were too long for the model are kept there, for it to read in parts.
        subagent::allow_below(&mut policy, "Read", workspace.output_dir(), "whole outputs");
        let policy = Arc::new(RwLock::new(policy));
        let off_limits: OffLimits = Arc::new({
            let policy = policy.clone();
            move |path| {
                let policy = policy.read().unwrap_or_else(PoisonError::into_inner);
                matches!(policy.decide("Read", &[Access::Read(path.to_owned())]), Verdict::Deny { .. })
            }
        });
        workspace.set_off_limits(off_limits.clone());
        let mut tools = caliban_tools::builtin(&workspace);
        if knows_patches(&self.model) {
            tools.push(caliban_tools::apply_patch(&workspace));
        }
        tools.extend(self.foreign_tools.iter().cloned());
        let starter = || subagent::Starter {
            blueprint: self.clone(),
            session: wanted.session.clone(),
            directory: wanted.directory.clone(),
            workspace: workspace.clone(),
            parent: Parent {
                session: wanted.session.clone(),
                purse: purse.clone(),
                asks: asks.clone(),
                feed: feed.clone(),
                policy: policy.clone(),
                checkpoints: checkpoints.clone(),
                writers: writers.clone(),
            },
        };
        let has_helpers = self.helpers == Helpers::Allowed && is_independent;
        if has_helpers {
            tools.push(Arc::new(AgentTool::new(starter())));
        }
        let background = match self.background.filter(|_| is_independent) {
            Some(limits) => Some(Background::new(starter(), limits)?),
            None => None,
        };
        if let Some(background) = background.clone().filter(|_| has_helpers) {
            tools.push(Arc::new(SpawnBackground::new(background)));
        }
        tools.append(&mut wanted.own_tools);
        {
            let policy = policy.read().unwrap_or_else(PoisonError::into_inner);
            tools.retain(|tool| policy.has_tool(&tool.spec().name));
        }
        let has = |name: &str| tools.iter().any(|tool| tool.spec().name == name);
        let system = SystemPrompt {
            has_helpers: is_independent && has(subagent::NAME),
            has_background: is_independent && has(background::TOOL),
            is_alone: self.attendance == Attendance::Nobody,
            standing: match &wanted.kin {
                Kin::Independent => AgentStanding::Main,
                Kin::SubAgent(_) => AgentStanding::SubAgent,
                Kin::Background(_) => AgentStanding::Background,
            },
            role: wanted.role.take(),
            append: self.append.clone(),
        };
        let mut system = system.render();
        for instructions in
            wanted.instructions.iter().chain(wanted.form.iter().map(|form| &form.instructions))
        {
            system.push_str("\n\n");
            system.push_str(instructions);
        }
        let mode = policy.read().unwrap_or_else(PoisonError::into_inner).mode;
        let is_the_callers = workspace.root() == self.cwd || self.repo.as_deref() == Some(workspace.root());
        let place = WorkplaceFacts {
            directory: workspace.root().to_owned(),
            repo: self.repo.clone().filter(|repo| workspace.root().starts_with(repo)),
            date: self.date.clone(),
            model: self.model.clone(),
            mode: mode.name().to_owned(),
            surroundings: self.surroundings.clone(),
        };
        let top = place.repo.clone().unwrap_or_else(|| place.directory.clone());
        let instructions = Instructions::new(self.context_files.clone(), top);
        if !is_independent {
            wanted.after_turn = AfterTurn::End;
        }
        Ok(Kit {
            provider: self.provider.clone(),
            model: self.model.clone(),
            effort: self.effort,
            window: self.window,
            system,
            fallback: self.fallback.clone(),
            context: prompt::opening(&place, &instructions, &*off_limits),
            // A helper in a worktree of its own stands elsewhere.
            repo_state: self.repo_state.clone().filter(|_| is_the_callers),
            instructions: Arc::new(instructions),
            off_limits,
            specs: tools.iter().map(|tool| tool.spec().clone()).collect(),
            tools,
            policy,
            hooks: self.hooks.clone(),
            purse,
            workspace,
            feed,
            asks,
            background,
            checkpoints,
            writers,
            shared: Arc::new(self.clone()),
            wanted,
        })
    }

    fn price(&self) -> Option<Price> {
        price::of(&self.model, self.billing)
    }
}
