//! From settings to the blueprint of an agent: the one composition of the whole program.
//!
//! Every way to run an agent (print mode, editor, sub-agents, the fleet's worker) goes through
//! [`compose`]. What it returns holds everything; nobody reads settings after it.

mod fences;
mod hooks;
pub(crate) mod model;
pub(crate) mod spending;
mod surroundings;

use std::{
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use caliban_agent::{
    Agent, AgentLimits, Attendance, Fallback, Kit,
    answer_form::AnswerForm,
    blueprint::{Blueprint, Helpers, WantedAgent, WorkspaceSource},
    choices::{Choices, ChosenNow, KeepRules},
    feed::{Feed, FeedEntry},
    hooks::HookPlace,
    prompt::{ContextFiles, Surroundings},
    subagent::{WorktreeIsolation, inherit},
};
use caliban_contract::{ancestry::AgentAbove, detached};
use caliban_core::{
    address::AddressPolicy, background::BackgroundLimits, definition::Definition, ids::AgentId,
    kept_rules::KeptRules, mode::Mode, model_alias, price::Billing, quiet_hours::QuietHours,
    redact::Redactor, setup::AgentSetup, spec::AfterTurn, wait::Wait,
};
use caliban_fence::ProgramFence;
use caliban_keeper::Variables;
use caliban_mcp::ConnectedServer;
use caliban_tools::{Buffers, DetachPlace, SearchService, WorkspaceOptions};
use caliban_worktrees::{AcceptedGit, KeepWorktrees, Setup};
use tokio_util::sync::CancellationToken;

pub(crate) use caliban_fleet::refusal::chain;
pub(crate) use fences::program_fence;

use crate::{
    below_agent, broker,
    commands::{self, custom::Custom},
    fleet::spawner::FleetSpawner,
    mcp::{self, questions::Questions},
    report::{Failure, Result},
    session_places::{FoundSession, Sessions},
    settings::{
        Environment, Files, Loaded, agent_types,
        provider::OutagePatience,
        schema::{FleetSettings, GitPrograms, Settings},
        tool_environment::{Breadth, left_out, secrets, tool_environment, with_set},
    },
    skills::{self, Skill},
    telemetry,
};
use fences::{fences, policy};
use hooks::{hook_problems, hooks};
use model::{FALLBACK_PATIENCE, claude_names, model, provider};
use spending::{Hours, agent_above, budget_limits, ledger, standing};
use surroundings::{canonical, repo_state, same_place, users_files};

/// Whole outputs of tools, in a session's directory.
const OUTPUTS: &str = "outputs";

/// What is needed to make agents in one place.
pub(crate) struct Composition {
    pub blueprint: Blueprint,
    /// How a workspace in this place is made; `output_dir` is the session's.
    pub workspace: WorkspaceOptions,
    /// The only tools that the agent has; all when absent.
    tools: Option<Vec<String>>,
    /// What the agent type adds to the system prompt.
    role: Option<String>,
    /// Everything about this repo on disk.
    pub repo_dir: PathBuf,
    /// Lines for people.
    pub notes: Vec<String>,
    /// Whether the process ends with the turn.
    after_turn: AfterTurn,
    /// The fleet's settings.
    pub fleet: FleetSettings,
    /// What the background agents of a session may spend, for a session that lives longer than one prompt.
    pub background: BackgroundLimits,
    /// Commands that people wrote.
    pub commands: Vec<Custom>,
    /// Skills, by which the model does special tasks.
    skills: Vec<Skill>,
    /// The form that the answers must have.
    pub form: Option<AnswerForm>,
    /// Connected MCP servers; they end with the last who holds them.
    servers: Vec<Arc<ConnectedServer>>,
    /// Where their questions go.
    questions: Questions,
    /// What was said on the command line: it counts more than what was chosen in a session before.
    pub chosen: ChosenNow,
    /// The mode of the session before, of the same person: `unattended` goes on only from there.
    pub in_force: Option<Mode>,
}

/// What an agent is composed for.
pub(crate) struct ComposeRequest<'a> {
    /// Where the user stands: whose settings count.
    pub cwd: &'a Path,
    /// A worktree of the agent's own, when it does not work in `cwd`.
    pub worktree: Option<&'a Path>,
    /// The part of the caller's directory below `cwd` that is not there any more.
    pub missing: &'a Path,
    /// How it is set up.
    pub setup: &'a AgentSetup,
    /// Who can be asked.
    pub attendance: Attendance,
    /// How long a server is waited for that cannot be reached.
    pub patience: OutagePatience,
    /// Whether the process ends with the turn.
    pub after_turn: AfterTurn,
    /// MCP servers that a client brings along.
    pub mcp_servers: &'a [caliban_acp::v1::McpServer],
    /// The editor that a person has files open in.
    pub editor: Option<Arc<dyn Buffers>>,
    /// Which agent of the fleet this is, and how many are above it.
    pub fleet_agent: Option<(AgentId, u32)>,
    /// The settings files to use; those of now when absent.
    pub files: Option<Files>,
}

impl<'a> ComposeRequest<'a> {
    /// An agent in the user's own directory, for a command that somebody waits for.
    pub(crate) fn here(cwd: &'a Path, setup: &'a AgentSetup, attendance: Attendance) -> Self {
        Self {
            cwd,
            worktree: None,
            missing: Path::new(""),
            setup,
            attendance,
            patience: OutagePatience::Short,
            after_turn: AfterTurn::End,
            mcp_servers: &[],
            editor: None,
            fleet_agent: None,
            files: None,
        }
    }
}

/// Writes rules that a person keeps into the user's own settings.
fn keep_rules(loaded: &Loaded) -> KeepRules {
    let (paths, root) = (loaded.paths.clone(), loaded.root.clone());
    Arc::new(move |kept: &KeptRules| {
        crate::settings::keep(&paths, &root, kept).map_err(|error| error.to_string())
    })
}

/// Reads the settings and puts everything together.
pub(crate) async fn compose(environment: &Environment, request: ComposeRequest<'_>) -> Result<Composition> {
    let ComposeRequest { cwd, setup, attendance, patience, fleet_agent, .. } = request;
    let loaded = crate::settings::load_with(environment, cwd, setup.into(), request.files)?;
    let (definitions, problems) = agent_types::known(&loaded);
    let kind = setup.agent_type.as_deref().map(|name| named_type(&definitions, name)).transpose()?;
    let target = loaded.decide().await?;
    let above = agent_above();
    let account_above = setup.account_above.clone().or_else(|| above.as_ref().and_then(AgentAbove::account));
    let ledger = ledger(&loaded, account_above.as_deref());
    // Those who have a person waiting for them come first.
    let (standing, hours) = standing(setup, fleet_agent.is_some(), above.as_ref());
    let governed = (&ledger, standing);
    let fallback_model = loaded.settings.fallback_model.clone();
    let fallback = match &fallback_model {
        Some(model) => {
            let provider = provider(&loaded, &target, environment, patience, None, governed)?;
            Some(Fallback { provider, model: model_alias::resolved(model, claude_names(&target)) })
        }
        None => None,
    };
    // With another model at hand, a limited one is not waited for as long.
    let limit = fallback_model.map(|_| FALLBACK_PATIENCE);
    let provider = provider(&loaded, &target, environment, patience, limit, governed)?;
    // A model that was asked for is stronger than that of the agent type.
    let model = match kind.and_then(|kind| kind.model.clone()).filter(|_| setup.model.is_none()) {
        Some(model) => model_alias::resolved(&model, claude_names(&target)),
        None => model(&target, provider.as_ref()).await?,
    };
    let tools = setup.tools.clone().or_else(|| kind.and_then(|kind| kind.tools.clone()));
    let role = kind.map(|kind| kind.role.clone());
    let settings = &loaded.settings;
    let breadth = Breadth::of(&loaded);
    let env = tool_environment(environment, settings, breadth);
    let env = with_set(env, &settings.bash.env);
    let helper = own_program()?;
    let fences = fences(&loaded, &env, helper.clone(), fleet_agent.is_some())?;
    let redactor = Redactor::new(secrets(environment, settings));
    let tree = request.worktree.map(canonical).transpose()?;
    let root = match &tree {
        Some(tree) => same_place(tree, cwd, request.missing, &loaded.root)?,
        None => canonical(cwd)?,
    };
    let is_repo = loaded.root.join(".git").symlink_metadata().is_ok();
    let repo = is_repo.then(|| loaded.root.clone());
    let mut notes = loaded.notes.clone();
    let (mut policy, not_added) = policy(&loaded, tree.as_deref());
    notes.extend(not_added);
    let workspace = WorkspaceOptions {
        root: root.clone(),
        extra_dirs: policy.extra_dirs.clone(),
        project: Some(loaded.root.clone()),
        roots: policy.roots.clone(),
        output_dir: PathBuf::new(),
        env: env.clone(),
        helper,
        private_addresses: AddressPolicy::with_private(settings.web.allow_private),
        redact: Some(Arc::new({
            let redactor = redactor.clone();
            move |text: &str| redactor.redact(text).into_owned()
        })),
        limits: tool_limits(settings, fleet_agent.is_none()),
        search: search(settings),
        detach: detach_place(&loaded.paths.repo(&loaded.root)),
        http: caliban_http::ClientOptions { proxy: environment.proxy(), ..Default::default() },
        editor: request.editor,
    };
    notes.extend(problems);
    notes.extend(hook_problems(settings));
    let (commands, problems) = commands::custom::all(&loaded);
    notes.extend(problems);
    let (skills, problems) = skills::all(&loaded);
    notes.extend(problems);
    // Their further files can be read like the project's, wherever they are.
    policy.read_dirs.extend(skills.iter().map(|skill| skill.directory.clone()));
    let spawner = FleetSpawner::new(environment.clone(), setup.clone());
    let spawner = match fleet_agent {
        Some((id, depth)) => spawner.child_of(id, depth),
        None => spawner,
    };
    let policy = inherit(setup, policy).map_err(Failure::new)?;
    let policy = if fleet_agent.is_none() { below_agent::narrowed(policy)? } else { policy };
    // Before a command can put something else in their place; what cannot be found then is in no fence.
    for place in [&policy.root].into_iter().chain(&policy.worktree).chain(&policy.read_dirs) {
        let _is_none = policy.roots.pin(place);
    }
    let repo_state =
        tree.as_ref().or(repo.as_ref()).map(|_| repo_state(&root, loaded.paths.repo(&loaded.root)));
    let fences = Arc::new(fences);
    let hook_fence = fences.program(settings.fence.hooks, &policy, &loaded.root);
    let mcp_fence = fences.program(settings.fence.mcp, &policy, &root);
    let setup_fence = fences.program(settings.fence.setup, &policy, &root);
    let (observers, problem) = telemetry::observers(environment);
    notes.extend(problem);
    let blueprint = Blueprint {
        billing: target.billing(),
        provider,
        model,
        effort: settings.effort,
        max_output: settings.max_output_tokens.map(Into::into),
        window: settings.context_window.map(NonZeroU64::get),
        append: setup.system_prompt_append.clone(),
        context_files: ContextFiles {
            names: settings.context.files.clone(),
            max_bytes: usize::try_from(settings.context.max_bytes).unwrap_or(usize::MAX),
            user_directory: Some(loaded.paths.config.clone()),
            more_of_the_user: environment.absolute("HOME").as_deref().map(users_files).unwrap_or_default(),
        },
        cwd: canonical(cwd)?,
        // In a worktree, its own files are the project's.
        repo: tree.clone().or_else(|| repo.clone()),
        date: caliban_contract::local_time::now().date().to_string(),
        surroundings: Surroundings {
            shell: "bash".to_owned(),
            left_out: left_out(environment, settings, breadth),
        },
        repo_state,
        foreign_tools: Vec::new(),
        policy,
        fences,
        hooks: hooks(
            settings,
            setup,
            HookPlace {
                root: loaded.root.clone(),
                env,
                fence: hook_fence,
                limits: settings.fleet.tree_limits(),
                ..HookPlace::default()
            },
        ),
        budget: match account_above {
            Some(_) => budget_limits(settings),
            None => budget_limits(settings).narrower(settings.budget.per_tree.limits()),
        },
        ledger: Some(ledger),
        limits: AgentLimits { max_turns: settings.limits.max_turns.get() },
        job_wait: Duration::from_secs(settings.bash.job_wait_seconds),
        quiet_hours: match hours {
            Hours::Kept if target.billing() != Billing::Local => settings.fleet.quiet_hours.clone(),
            Hours::Kept | Hours::Ignored => QuietHours::default(),
        },
        attendance,
        keep_rules: Some(keep_rules(&loaded)),
        ask_time: settings.approvals.timeout_seconds.map(|seconds| Duration::from_secs(seconds.get())),
        redactor,
        helpers: if settings.sub_agents.0 { Helpers::Allowed } else { Helpers::Off },
        fallback,
        definitions: definitions.into(),
        isolation: isolation(&loaded, repo, &workspace, setup_fence),
        background: None,
        spawner: Arc::new(spawner),
        observers,
    };
    let mut configs = mcp::configured(settings, &workspace, mcp_fence.as_ref());
    configs.extend(mcp::brought(request.mcp_servers, &workspace, mcp_fence.as_ref()));
    let questions = Questions::default();
    let elicit = questions.elicit(attendance);
    let (servers, without) = mcp::connect(&configs, &workspace.http, elicit.as_ref()).await;
    notes.extend(without);
    Ok(Composition {
        blueprint,
        workspace,
        tools,
        role,
        repo_dir: loaded.paths.repo(&loaded.root),
        notes,
        fleet: settings.fleet.clone(),
        background: settings.background_agents.limits(),
        commands,
        skills,
        form: None,
        servers,
        questions,
        after_turn: request.after_turn,
        chosen: ChosenNow {
            mode: request.setup.permission_mode.is_some(),
            model: request.setup.model.is_some(),
            effort: request.setup.effort.is_some(),
        },
        in_force: None,
    })
}

/// The search service that the settings name.
fn search(settings: &Settings) -> Option<SearchService> {
    let url = settings.web.search_url.clone()?;
    let headers = settings.web.search_headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect();
    Some(SearchService { url, headers })
}

/// Where detached commands are recorded. An agent that runs inside another one, in a command of it, may have none: that one's
/// user would not be asked.
fn detach_place(repo_dir: &Path) -> Option<DetachPlace> {
    spending::may_ask()
        .then(|| DetachPlace { jobs: repo_dir.join(detached::DIRECTORY), agent: String::new() })
}

/// Resources of MCP servers, which hold the servers.
#[derive(Clone)]
pub(crate) struct Resources(Vec<Arc<ConnectedServer>>);

impl Resources {
    /// One text for each that these words name as `@server:uri`.
    pub(crate) async fn named_in(&self, words: &str) -> Vec<String> {
        caliban_mcp::expanded(&self.0, words, &CancellationToken::new()).await
    }
}

pub(crate) enum WantedConversation {
    New,
    /// This one, to be gone on with.
    Old(FoundSession),
}

impl Composition {
    /// The agent that the setup asks for.
    pub(crate) fn wanted(&self, session: String, directory: PathBuf) -> WantedAgent {
        let workspace = WorkspaceSource::New(self.workspace.clone());
        WantedAgent {
            tools: self.tools.clone(),
            role: self.role.clone(),
            form: self.form.clone(),
            after_turn: self.after_turn,
            ..WantedAgent::new(session, directory, workspace)
        }
    }

    /// A prompt as the model gets it: a command that somebody wrote (`/fix 12`) is its text, and the MCP resources that it names
    /// as `@server:uri` stand behind it.
    pub(crate) async fn prompt(&self, prompt: String) -> String {
        let prompt = commands::custom::expanded(&self.commands, prompt);
        let texts = self.resources().named_in(&prompt).await;
        if texts.is_empty() { prompt } else { format!("{prompt}\n\n{}", texts.join("\n\n")) }
    }

    /// The resources of its MCP servers.
    pub(crate) fn resources(&self) -> Resources {
        Resources(self.servers.clone())
    }

    /// The kit of one agent, with the tools of MCP servers. Whole outputs are kept in the agent's directory.
    pub(crate) fn kit(&mut self, mut wanted: WantedAgent) -> Result<Kit> {
        let outputs = wanted.directory.join(OUTPUTS);
        self.blueprint.foreign_tools = mcp::tools(&self.servers, &outputs, &self.workspace);
        self.blueprint.foreign_tools.extend(skills::tool(&self.skills));
        if let WorkspaceSource::New(options) = &mut wanted.workspace {
            options.output_dir = outputs;
            if let Some(place) = &mut options.detach {
                place.agent.clone_from(&wanted.session);
            }
        }
        let kit = self.blueprint.kit(wanted).map_err(|error| Failure::new(chain(&error)))?;
        self.questions.go_to(&kit);
        Ok(kit)
    }

    /// The agent of one conversation of this repo. With a mailbox it has the tools to write letters.
    pub(crate) async fn open(
        mut self,
        which: WantedConversation,
        mailbox: Option<&broker::Identity>,
    ) -> Result<Agent> {
        let sessions = Sessions::new(self.repo_dir.clone());
        let (session, directory, is_old) = match which {
            WantedConversation::Old(found) => (found.id, found.directory, true),
            WantedConversation::New => {
                let repo = self.blueprint.repo.clone().unwrap_or_else(|| self.workspace.root.clone());
                let (session, directory) = sessions.create(&repo)?;
                (session, directory, false)
            }
        };
        if is_old {
            Choices::read(&directory).take_up(&mut self.blueprint, self.chosen, self.in_force);
        }
        if self.chosen.mode || self.in_force.is_some() {
            let policy = &self.blueprint.policy;
            Choices::note(&directory, |choices| {
                choices.mode = Some(policy.mode);
                choices.rules = policy.rules.iter().filter(|rule| rule.given_at.is_some()).cloned().collect();
            });
        }
        let mut wanted = self.wanted(session.to_string(), directory);
        if let Some(identity) = mailbox {
            wanted.own_tools = broker::tools(identity, &self.blueprint.redactor);
            wanted.instructions = Some(identity.instructions());
        }
        let kit = self.kit(wanted)?;
        let (feed, directory) = (kit.feed.clone(), kit.wanted.directory.clone());
        let opening = async { if is_old { Agent::resume(kit).await } else { Agent::new(kit).await } };
        tokio::select! {
            biased;
            agent = opening => agent.map_err(|error| Failure::new(chain(&error))),
            path = full_disk(&feed) => {
                if !is_old {
                    // Nothing is in it: it would only be in the way of `--continue`.
                    let _best_effort = std::fs::remove_dir_all(directory);
                }
                Err(Failure::new(format!("the disk is full ({}): nothing was begun", path.display()))
                    .hint("make room, then run it again"))
            }
        }
    }
}

/// The file that a full disk keeps from being written, as soon as there is one. New work does not wait for room.
async fn full_disk(feed: &Feed) -> PathBuf {
    let mut cursor = feed.end();
    while let Some(entry) = feed.wait(&mut cursor).await {
        if let FeedEntry::Waiting(Wait::DiskFull { path }) = entry {
            return path;
        }
    }
    std::future::pending().await
}

fn named_type<'a>(definitions: &'a [Definition], name: &str) -> Result<&'a Definition> {
    definitions.iter().find(|definition| definition.name == name).ok_or_else(|| {
        Failure::new(format!("there is no agent type {name:?}")).hint("`caliban agents types` lists them")
    })
}

/// Our own program: it has a hidden mode that keeps the commands of tools and hooks.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Failure::new(format!("cannot find our own program: {error}")))
}

fn isolation(
    loaded: &Loaded,
    repo: Option<PathBuf>,
    workspace: &WorkspaceOptions,
    fence: Option<ProgramFence>,
) -> WorktreeIsolation {
    let settings = &loaded.settings;
    let worktrees = &settings.worktrees;
    let accepted = (settings.git_programs == GitPrograms::Ask).then(|| loaded.paths.repo(&loaded.root));
    WorktreeIsolation {
        repo,
        accepted,
        accepted_git: AcceptedGit::read(&loaded.paths.repo(&loaded.root)),
        env: workspace.env.clone(),
        keep: if worktrees.keep { KeepWorktrees::All } else { KeepWorktrees::Remove },
        setup: setup(settings, workspace.env.clone(), workspace.helper.clone(), fence),
    }
}

/// The setup command of worktrees, if the settings name one.
pub(crate) fn setup(
    settings: &Settings,
    environment: Variables,
    helper: PathBuf,
    fence: Option<ProgramFence>,
) -> Option<Setup> {
    let worktrees = &settings.worktrees;
    let timeout_seconds = worktrees.setup_timeout.get();
    worktrees.setup.clone().map(|command| Setup { command, timeout_seconds, environment, helper, fence })
}

fn tool_limits(settings: &Settings, holds_all: bool) -> caliban_tools::ToolLimits {
    caliban_tools::ToolLimits {
        command_time: Duration::from_millis(settings.bash.timeout_ms.get()),
        taken: settings.fleet.tree_limits(),
        holds_all,
        ..caliban_tools::ToolLimits::default()
    }
}

/// No command of an agent can look into the process that runs the agent. Best effort: a command that nobody approved sees no
/// other process anyway.
pub(crate) fn hide_memory() {
    if let Err(error) = caliban_fence::hide_memory() {
        tracing::warn!(%error, "other processes of this user can look into this one");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use caliban_settings::tool_names;

    #[test]
    fn every_tool_of_ours_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let options = caliban_tools::WorkspaceOptions {
            root: dir.path().to_owned(),
            extra_dirs: Vec::new(),
            project: None,
            roots: Default::default(),
            output_dir: dir.path().join("outputs"),
            env: Vec::new(),
            helper: "/bin/false".into(),
            private_addresses: caliban_core::address::AddressPolicy::PublicOnly,
            detach: None,
            search: None,
            redact: None,
            limits: caliban_tools::ToolLimits::default(),
            http: caliban_http::ClientOptions::default(),
            editor: None,
        };
        let workspace: Arc<_> = caliban_tools::Workspace::new(options).unwrap();
        let mut names: Vec<String> =
            caliban_tools::builtin(&workspace).iter().map(|tool| tool.spec().name.clone()).collect();
        names.push(caliban_agent::subagent::NAME.to_owned());
        assert!(names.iter().all(|name| tool_names::is_for_all(name)), "{names:?}");
        let sometimes = [
            caliban_tools::APPLY_PATCH,
            crate::skills::TOOL,
            caliban_mcp::RESOURCE_TOOL,
            "WebSearch",
            caliban_agent::background::TOOL,
        ];
        assert!(!sometimes.into_iter().any(tool_names::is_for_all));
        names.extend(sometimes.map(str::to_owned));
        names.extend(crate::broker::tool_names().map(str::to_owned));
        assert_eq!(names, tool_names::all());
    }
}
