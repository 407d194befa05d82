//! Every setting, its type and its default: the one place where each is written, unless the crate that
//! uses it has a constant for it already.
//!
//! The same struct checks a single file (unknown keys and wrong types are errors there) and holds the
//! merged result. It refuses to know where a value came from: that is `merge`'s.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
};

use caliban_contract::{DaemonOptions, Sweep, tree_limits::TreeLimits};
use caliban_core::{
    background::{BackgroundLimits, Ground},
    budget::OnLimit,
    defaults,
    fence::{Profile, Sandbox},
    hook,
    message::Effort,
    quiet_hours::QuietHours,
};
use caliban_permissions::Mode;
use caliban_providers::{ProviderKind, RetryPolicy};
use serde::{Deserialize, Serialize};

use super::values::{self, AtLeastOne, BaseUrl, DiskMax, OnByDefault, Secret, Size, Usd};

/// The effective settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Who answers; found from the keys in the environment when not set.
    #[serde(with = "values::provider_name")]
    pub provider: Option<ProviderKind>,
    /// The model's name as the provider knows it; the provider's usual one when not set.
    pub model: Option<String>,
    /// The model that answers when that one is overloaded, limited or not there; none when not set.
    pub fallback_model: Option<String>,
    /// How hard the model shall think.
    pub effort: Effort,
    /// The most tokens that one answer may have.
    pub max_output_tokens: Option<NonZeroU32>,
    /// The model's window in tokens, where the built-in table does not know it.
    pub context_window: Option<NonZeroU64>,
    /// Whether the model may start sub-agents.
    pub sub_agents: OnByDefault,
    /// Keys and addresses, one table for each provider.
    pub providers: Providers,
    /// Where a run ends.
    pub limits: LimitSettings,
    /// What agents may spend, over the whole fleet.
    pub budget: Budget,
    /// What the agent may do.
    pub permissions: Permissions,
    /// Questions to a person.
    pub approvals: Approvals,
    /// Whether commands that nobody has approved are fenced; `required` for background agents and `auto` in the foreground
    /// when not set.
    pub sandbox: Option<Sandbox>,
    /// What is done about programs that the repo's own git configuration makes git run.
    pub git_programs: GitPrograms,
    /// What fenced commands find.
    pub fence: FenceSettings,
    /// Commands that run at certain events.
    pub hooks: HookSettings,
    /// Servers that bring tools of their own.
    pub mcp: Mcp,
    /// The files that tell the model about the project.
    pub context: ContextSettings,
    /// Fetching pages.
    pub web: Web,
    /// Running commands.
    pub bash: Bash,
    /// Worktrees of sub-agents.
    pub worktrees: Worktrees,
    /// Background agents of a session.
    pub background_agents: BackgroundAgents,
    /// Agents that outlive a session.
    pub fleet: FleetSettings,
    /// The screen.
    pub ui: Ui,
    /// What is done about a model that does not answer.
    pub retry: Retry,
    /// What is taken over from Claude Code.
    pub claude: Claude,
}

/// `[claude]`: what is taken over from Claude Code. What a trusted repo has for it is used in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Claude {
    /// Whether `~/.claude/settings.json` counts: its permissions, hooks and variables. Only in the user's own settings.
    pub user_settings: bool,
}

/// `[providers.NAME]`: one table for each provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Providers {
    /// Anthropic.
    pub anthropic: ApiProvider,
    /// OpenAI, its Responses API.
    pub openai: ApiProvider,
    /// Servers that speak the Chat API of OpenAI.
    pub openai_chat: ApiProvider,
    /// Gemini.
    pub gemini: ApiProvider,
    /// OpenRouter.
    pub openrouter: ApiProvider,
    /// Ollama.
    pub ollama: ApiProvider,
    /// llama.cpp.
    pub llamacpp: ApiProvider,
    /// vLLM.
    pub vllm: ApiProvider,
    /// LM Studio.
    pub lmstudio: ApiProvider,
    /// Answers from a script.
    pub scripted: ScriptedProvider,
}

impl Providers {
    /// The table of a provider that is reached over HTTP; `None` for the scripted one.
    pub fn api(&self, name: ProviderKind) -> Option<&ApiProvider> {
        Some(match name {
            ProviderKind::Anthropic => &self.anthropic,
            ProviderKind::OpenAi => &self.openai,
            ProviderKind::OpenAiChat => &self.openai_chat,
            ProviderKind::Gemini => &self.gemini,
            ProviderKind::OpenRouter => &self.openrouter,
            ProviderKind::Ollama => &self.ollama,
            ProviderKind::LlamaCpp => &self.llamacpp,
            ProviderKind::Vllm => &self.vllm,
            ProviderKind::LmStudio => &self.lmstudio,
            ProviderKind::Scripted => return None,
        })
    }

    /// The variables that are named as holding a key: they are secret, whatever they are called.
    pub fn key_variables(&self) -> impl Iterator<Item = &str> {
        ProviderKind::all().filter_map(|kind| self.api(kind)?.api_key_env.as_deref())
    }
}

/// One provider that is reached over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiProvider {
    /// Its address; the usual one when not set.
    pub base_url: Option<BaseUrl>,
    /// The key. Better kept in the environment.
    #[serde(deserialize_with = "values::key")]
    pub api_key: Option<Secret>,
    /// The variable that holds the key, instead of the usual one.
    pub api_key_env: Option<String>,
    /// The model to use with this provider when nothing else names one.
    pub model: Option<String>,
}

/// `[providers.scripted]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedProvider {
    /// The script's file; the built-in script when not set.
    pub script: Option<PathBuf>,
}

/// `[limits]`: where a run ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Model requests in one run.
    pub max_turns: AtLeastOne<200>,
    /// Tokens, cache reads and writes included.
    pub budget_tokens: Option<NonZeroU64>,
    /// US dollars, by the price table.
    pub budget_usd: Option<Usd>,
    /// Seconds.
    pub wall_seconds: Option<NonZeroU64>,
}

/// `[budget]`: what agents may spend, over the whole fleet. No amount is no limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Each agent by itself.
    pub per_agent: Amount,
    /// An agent that a person starts, with all that it starts.
    pub per_tree: Amount,
    /// All agents of a repo, each day.
    pub per_repo_day: Amount,
    /// All agents of the user on this machine, each day.
    pub per_day: Amount,
    /// What an agent does that comes to one of these, or to a budget of its own: it ends, or a person is asked whether it goes
    /// on with more.
    pub on_limit: OnLimit,
}

/// An amount of `[budget]`: `{ tokens = 500000, usd = 5.0 }`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Amount {
    /// Tokens, cache reads and writes included.
    pub tokens: Option<NonZeroU64>,
    /// US dollars, by the price table.
    pub usd: Option<Usd>,
}

impl Amount {
    /// As the ledger has it.
    pub fn limits(self) -> caliban_core::budget::Limits {
        caliban_core::budget::Limits {
            tokens: self.tokens.map(NonZeroU64::get),
            usd: self.usd.map(Usd::micro),
            ..caliban_core::budget::Limits::NONE
        }
    }
}

/// `[permissions]`: what the agent may do. The lists add up across layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Permissions {
    /// What happens where no rule decides.
    pub mode: Mode,
    /// Rules for calls that need no question.
    pub allow: Vec<String>,
    /// Rules for calls that always ask.
    pub ask: Vec<String>,
    /// Rules for calls that are refused.
    pub deny: Vec<String>,
    /// More directories that the agent works in; absolute once loaded.
    pub add_dirs: Vec<PathBuf>,
}

/// `[approvals]`: questions to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Approvals {
    /// Seconds after which a question that nobody has answered counts as refused, and the agent goes on; none when not set.
    pub timeout_seconds: Option<NonZeroU64>,
}

/// `[fence]`: what fenced commands find. The lists add up across layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FenceSettings {
    /// Whether they have the machine's network.
    pub network: FenceNetwork,
    /// With `network = "domains"`: the hosts that they can reach, through a proxy of ours; `*.example.org` are those below.
    pub domains: Vec<String>,
    /// More files and directories that they can read; absolute once loaded.
    pub show: Vec<PathBuf>,
    /// The fence of hooks.
    pub hooks: Profile,
    /// The fence of MCP servers that are programs.
    pub mcp: Profile,
    /// The fence of the setup command of worktrees.
    pub setup: Profile,
    /// The fence of `fleet.notify`.
    pub notify: Profile,
}

/// The network of fenced commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceNetwork {
    /// A loopback of their own.
    #[default]
    Off,
    /// The machine's.
    On,
    /// Some hosts, through a proxy.
    Domains,
}

/// `[hooks]`: commands by event. The lists add up across layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "PascalCase")]
pub struct HookSettings {
    /// When a conversation begins or goes on.
    pub session_start: Vec<Hook>,
    /// When a person has said something.
    pub user_prompt_submit: Vec<Hook>,
    /// Before a call.
    pub pre_tool_use: Vec<Hook>,
    /// After a call.
    pub post_tool_use: Vec<Hook>,
    /// When the agent wants to stop.
    pub stop: Vec<Hook>,
    /// When a sub-agent wants to stop.
    pub subagent_stop: Vec<Hook>,
    /// When somebody is told something.
    pub notification: Vec<Hook>,
}

impl HookSettings {
    /// The hooks of each event, under the event's name.
    pub fn by_event(&self) -> [(&'static str, &[Hook]); 7] {
        [
            ("SessionStart", &self.session_start),
            ("UserPromptSubmit", &self.user_prompt_submit),
            ("PreToolUse", &self.pre_tool_use),
            ("PostToolUse", &self.post_tool_use),
            ("Stop", &self.stop),
            ("SubagentStop", &self.subagent_stop),
            ("Notification", &self.notification),
        ]
    }
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Which tools it is for: a name, names with `*`, alternatives with `|`, or a regular expression; all when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matcher: Option<String>,
    /// The command line, run by the shell with the event as JSON on stdin.
    pub command: String,
    /// Seconds until it is ended.
    #[serde(default)]
    pub timeout: AtLeastOne<{ hook::DEFAULT_TIMEOUT.as_secs() as u32 }>,
    /// Whether a model may start a sub-agent without it (`inherit_hooks: false`), though it can refuse calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// `[mcp]`: servers that bring tools of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mcp {
    /// By name; the name is part of the tools' names.
    pub servers: BTreeMap<String, McpServer>,
}

/// One MCP server: a command (stdio) or an address (HTTP).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpServer {
    /// The program to start.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables it gets besides the usual ones.
    pub env: BTreeMap<String, Secret>,
    /// Its working directory; absolute once loaded.
    pub cwd: Option<PathBuf>,
    /// The address of a server that is reached over HTTP.
    pub url: Option<String>,
    /// How the server at the address speaks.
    pub transport: McpTransport,
    /// Headers that go with each request.
    pub headers: BTreeMap<String, Secret>,
    /// Seconds until a start or a call is given up.
    pub timeout: AtLeastOne<60>,
    /// Whether it is used.
    pub enabled: OnByDefault,
}

/// How a server at an address speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// Streamable HTTP.
    #[default]
    Http,
    /// The older way: a stream of events, and requests to an address that it names.
    Sse,
}

/// `[context]`: the files that tell the model about the project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContextSettings {
    /// The most bytes that all of them may have together.
    pub max_bytes: u64,
    /// Their names, looked for in each directory up the tree.
    pub files: Vec<String>,
}

impl Default for ContextSettings {
    fn default() -> Self {
        Self {
            max_bytes: defaults::CONTEXT_BYTES as u64,
            files: defaults::CONTEXT_FILES.map(str::to_owned).to_vec(),
        }
    }
}

/// `[web]`: fetching pages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Web {
    /// Whether addresses of this machine and of private networks may be fetched.
    pub allow_private: bool,
    /// Where WebSearch asks: an address with `{query}` in it. Without one there is no WebSearch.
    pub search_url: Option<String>,
    /// Headers that go with each search.
    pub search_headers: BTreeMap<String, Secret>,
}

/// `[bash]`: running commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bash {
    /// Milliseconds until a command is ended, when the call names no time of its own.
    pub timeout_ms: NonZeroU64,
    /// Seconds that a run waits at its end for background commands before the model is asked what to do with them.
    pub job_wait_seconds: u64,
    /// More variables that commands get: names, or prefixes that end in `*`. Adds up across layers.
    pub env_allow: Vec<String>,
    /// Variables that are set for commands, over those of the environment.
    pub env: BTreeMap<String, Secret>,
}

impl Default for Bash {
    fn default() -> Self {
        let time = defaults::COMMAND_TIME.as_millis();
        let time = u64::try_from(time).ok().and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN);
        Self { timeout_ms: time, job_wait_seconds: 120, env_allow: Vec::new(), env: BTreeMap::new() }
    }
}

/// `[worktrees]`: worktrees of sub-agents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Worktrees {
    /// Whether they stay when their task has ended.
    pub keep: bool,
    /// A command line that is run in a fresh worktree.
    pub setup: Option<String>,
    /// Seconds until it is ended.
    pub setup_timeout: AtLeastOne<{ caliban_worktrees::SETUP_SECONDS }>,
}

/// What is done about programs that the repo's own git configuration makes git run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitPrograms {
    /// They are named, and asked about once.
    #[default]
    Ask,
    /// They run.
    Allow,
}

/// `[background_agents]`: agents of a session, started with `/bg` or by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundAgents {
    /// How many work at the same time.
    pub max_agents: NonZeroU32,
    /// Tokens of each of them, cache reads and writes included.
    pub per_agent_budget: NonZeroU64,
    /// Tokens of all of them together, those that have ended included.
    pub global_budget: NonZeroU64,
    /// Where they work: in the session's directory, or each in a git worktree of its own.
    pub isolation: Ground,
}

impl Default for BackgroundAgents {
    /// Those of the limits themselves.
    fn default() -> Self {
        let limits = BackgroundLimits::default();
        let tokens = |tokens| NonZeroU64::new(tokens).unwrap_or(NonZeroU64::MIN);
        Self {
            max_agents: NonZeroU32::new(limits.max_agents).unwrap_or(NonZeroU32::MIN),
            per_agent_budget: tokens(limits.per_agent),
            global_budget: tokens(limits.global),
            isolation: limits.ground,
        }
    }
}

impl BackgroundAgents {
    /// The same as limits.
    pub fn limits(&self) -> BackgroundLimits {
        BackgroundLimits {
            max_agents: self.max_agents.get(),
            per_agent: self.per_agent_budget.get(),
            global: self.global_budget.get(),
            ground: self.isolation,
        }
    }
}

/// `[ui]`: the screen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ui {
    /// What `caliban` without a prompt opens on a terminal.
    pub start: UiStart,
    /// Colours for which ground.
    pub theme: UiTheme,
    /// Whether the terminal's alternate screen is used; else what is finished goes into its own scrollback.
    pub alt_screen: bool,
    /// Labelled lines and nothing that moves by itself, for a screen reader.
    pub screen_reader: bool,
    /// Whether the wheel scrolls and dragging selects; else the mouse is the terminal's.
    pub mouse: bool,
    /// Rows that one notch of the wheel moves.
    pub wheel_rows: std::num::NonZeroU16,
    /// Whether what is selected is copied at once.
    pub copy_on_select: bool,
    /// What becomes of `/bg` agents at work when their session is left: ask, keep (in the fleet) or end.
    pub on_leave: UiOnLeave,
    /// How the terminal tells of a question, and of the end of a turn that nobody watches.
    pub notify: UiNotify,
}

impl Default for Ui {
    fn default() -> Self {
        Self {
            start: UiStart::default(),
            theme: UiTheme::default(),
            alt_screen: defaults::ALT_SCREEN,
            screen_reader: false,
            mouse: defaults::MOUSE,
            wheel_rows: std::num::NonZeroU16::new(defaults::WHEEL_ROWS).unwrap_or(std::num::NonZeroU16::MIN),
            copy_on_select: defaults::COPY_ON_SELECT,
            on_leave: UiOnLeave::default(),
            notify: UiNotify::default(),
        }
    }
}

/// How the terminal tells the person something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UiNotify {
    /// As the terminal is known to do it; else the bell.
    #[default]
    Auto,
    /// It rings.
    Bell,
    /// OSC 9.
    Osc9,
    /// OSC 777.
    Osc777,
    /// Not at all.
    Off,
}

/// What becomes of `/bg` agents at work when their session is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UiOnLeave {
    /// The person is asked.
    #[default]
    Ask,
    /// They go on in the fleet.
    Keep,
    /// They end.
    End,
}

/// What the screen shows first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UiStart {
    /// A new session.
    #[default]
    Session,
    /// The agent view.
    Agents,
}

/// Colours for which ground.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UiTheme {
    /// The terminal's: it is asked.
    #[default]
    Auto,
    /// A light one.
    Light,
    /// A dark one.
    Dark,
}

/// `[fleet]`: agents in the background.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetSettings {
    /// How many work at the same time; more wait in order.
    pub max_running: AtLeastOne<8>,
    /// How many of yours work at the same time, over all repos; no limit when not set.
    pub max_running_user: Option<NonZeroU32>,
    /// How many living agents of the fleet the model of one agent or session may have started; further ones are refused.
    pub max_by_model: AtLeastOne<{ caliban_contract::daemon_options::MAX_BY_MODEL }>,
    /// How many processes a command, and all of a background agent, may have at the same time.
    pub pids_max: AtLeastOne<8192>,
    /// The memory of all processes of a command, and of all of a background agent, together: `4 GB`; three quarters of the machine's when not set.
    pub memory_max: Option<Size>,
    /// What a command may have in its own `/tmp` and change in places that it can write.
    pub disk_max: DiskMax,
    /// When agents in the background begin no model request that costs: `23:00-07:00`, `sat,sun 00:00-24:00`; several are
    /// separated by `;`. Those with `--priority high` or `--ignore-quiet-hours` work on.
    pub quiet_hours: QuietHours,
    /// Where agents that are started from the shell work, in a repo with commits.
    pub isolation: FleetIsolation,
    /// Seconds that an agent gets between TERM and KILL.
    pub grace_seconds: AtLeastOne<5>,
    /// Minutes after which an idle interactive agent leaves memory; it comes back when it is needed.
    pub idle_minutes: AtLeastOne<10>,
    /// Whether worktrees of agents that nobody knows any more go when the daemon starts.
    pub sweep: OnByDefault,
    /// Days for which removed and respawned agents are kept in the archive.
    pub archive_days: AtLeastOne<{ caliban_contract::archive::DAYS }>,
    /// Megabytes (MiB) that they may have together; the oldest go first.
    pub archive_mb: AtLeastOne<{ caliban_contract::archive::MEBIBYTES }>,
    /// A command line that is run when an agent needs a person, comes near a limit, is idle or has ended: `CALIBAN_EVENT` is
    /// `needs_you`, `budget`, `idle`, `done`, `failed`, `killed` or `crashed`, `CALIBAN_AGENT` its id, `CALIBAN_LABEL` its label, `CALIBAN_TEXT`
    /// what it is about.
    pub notify: Option<String>,
    /// The broker session in which agents get a mailbox, unless `--session` names another.
    pub broker_session: Option<String>,
}

impl FleetSettings {
    /// What a command, and an agent with all that it started, may take.
    #[must_use]
    pub fn tree_limits(&self) -> TreeLimits {
        TreeLimits {
            pids: Some(self.pids_max.get().into()),
            memory: self.memory_max.map(|size| size.0).or(TreeLimits::usual().memory),
            disk: Some(self.disk_max.bytes()),
        }
    }

    /// What they say to a daemon; `keeps_worktrees` is a setting of worktrees.
    #[must_use]
    pub fn daemon_options(&self, keeps_worktrees: bool) -> DaemonOptions {
        DaemonOptions {
            max_running: self.max_running.get(),
            max_running_user: self.max_running_user.map(NonZeroU32::get),
            max_by_model: self.max_by_model.get(),
            quiet_hours: self.quiet_hours.clone(),
            grace_ms: u64::from(self.grace_seconds.get()) * 1000,
            sweep: if self.sweep.0 { Sweep::Remove } else { Sweep::Off },
            keep_worktrees: keeps_worktrees,
            limits: self.tree_limits(),
            archive_days: self.archive_days.get(),
            archive_bytes: u64::from(self.archive_mb.get()) * caliban_contract::archive::MIB,
            ..DaemonOptions::default()
        }
    }
}

/// Where a background agent works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetIsolation {
    /// In a worktree of its own.
    #[default]
    Worktree,
    /// In the caller's directory.
    None,
}

/// `[retry]`: what is done about a model that does not answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// How often a request is tried when the server or the stream fails.
    pub attempts: NonZeroU32,
    /// Seconds that background agents, the screen and editors wait for a server that cannot be reached.
    pub outage_seconds: u64,
    /// The same for `-p`, whose caller waits.
    pub print_outage_seconds: u64,
    /// Seconds that rate limits and overload are waited out, in total.
    pub patience_seconds: u64,
    /// Seconds after which a silent server or stream is given up and asked again; 120, and 600 for a model on this machine,
    /// when not set.
    pub stall_seconds: Option<NonZeroU64>,
}

impl Default for Retry {
    /// The policy's own defaults, which are written there.
    fn default() -> Self {
        let policy = RetryPolicy::default();
        Self {
            attempts: NonZeroU32::new(policy.attempts).unwrap_or(NonZeroU32::MIN),
            outage_seconds: 600,
            print_outage_seconds: policy.outage.as_secs(),
            patience_seconds: policy.patience.as_secs(),
            stall_seconds: None,
        }
    }
}
