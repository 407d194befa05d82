//! From settings to the blueprint of an agent: the one composition of the whole program.
//!
//! Every way to run an agent (print mode, editor, sub-agents, later the fleet's worker) goes through
//! [`compose`]. What it returns holds everything; nobody reads settings after it.

use std::{
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use caliban_agent::{
    Attendance, Limits,
    blueprint::{Blueprint, Helpers},
    definitions,
    hooks::{CommandHook, HookEvent, HookPlace, Hooks},
    prompt::ContextFiles,
    spawner::NoSpawner,
};
use caliban_core::{
    budget,
    price::{Billing, MicroUsd},
    redact::Redactor,
};
use caliban_permissions::{Effect, Mode, Policy};
use caliban_providers::{Config, Provider, ProviderKind, ScriptSource};
use caliban_tools::{PrivateAddresses, WorkspaceOptions};

use crate::{
    cli::AgentFlags,
    report::Failure,
    settings::{
        Environment, Loaded, Source,
        provider::{Choice, Endpoint, Target, nothing_set},
        schema::Settings,
        tool_environment::{secrets, tool_environment},
        values::PermissionMode,
    },
    trust::Trust,
};

/// What is needed to make agents in one place.
pub(crate) struct Composition {
    /// The blueprint.
    pub blueprint: Blueprint,
    /// How a workspace in this place is made; `output_dir` is the session's.
    pub workspace: WorkspaceOptions,
    /// Everything about this repo on disk.
    pub repo_dir: PathBuf,
    /// Lines for people.
    pub notes: Vec<String>,
}

/// Reads the settings and puts everything together.
pub(crate) async fn compose(
    environment: &Environment,
    cwd: &Path,
    flags: &AgentFlags,
    append: Option<String>,
    attendance: Attendance,
) -> Result<Composition, Failure> {
    let loaded = crate::settings::load(environment, cwd, flags.layer())?;
    let target = decide(&loaded).await?;
    let provider = provider(&loaded, &target, environment)?;
    let model = model(&target, provider.as_ref()).await?;
    let settings = &loaded.settings;
    let env = tool_environment(environment, &settings.bash.env_allow);
    let helper = own_program()?;
    let redactor = Redactor::new(secrets(environment, settings));
    let cwd = canonical(cwd)?;
    let home = loaded.paths.home.clone().unwrap_or_else(|| PathBuf::from("/"));
    let is_repo = loaded.root.join(".git").symlink_metadata().is_ok();
    let repo = is_repo.then(|| loaded.root.clone());
    let mut notes = loaded.notes.clone();
    let workspace = WorkspaceOptions {
        root: cwd.clone(),
        extra_dirs: settings.permissions.add_dirs.clone(),
        output_dir: PathBuf::new(),
        env: env.clone(),
        helper,
        private_addresses: if settings.web.allow_private { PrivateAddresses::Allow } else { PrivateAddresses::Refuse },
        redact: Some(Arc::new({
            let redactor = redactor.clone();
            move |text: &str| redactor.redact(text).into_owned()
        })),
        limits: tool_limits(settings),
        proxy: environment.proxy(),
    };
    let (definitions, problems) = definitions::load(&definition_directories(&loaded, repo.as_deref()));
    notes.extend(problems);
    let blueprint = Blueprint {
        billing: billing(&target),
        provider,
        model,
        effort: settings.effort,
        max_output: settings.max_output_tokens.map(Into::into),
        window: settings.context_window.map(NonZeroU64::get),
        append,
        context_files: ContextFiles {
            names: settings.context.files.clone(),
            max_bytes: usize::try_from(settings.context.max_bytes).unwrap_or(usize::MAX),
            user_directory: Some(loaded.paths.config.clone()),
        },
        repo: repo.clone(),
        date: jiff::Zoned::now().date().to_string(),
        foreign_tools: Vec::new(),
        policy: policy(&loaded, &home)?,
        hooks: hooks(settings, HookPlace { root: loaded.root.clone(), env, ..HookPlace::default() }),
        budget: budget_limits(settings),
        limits: Limits { max_turns: settings.limits.max_turns.get() },
        attendance,
        redactor,
        helpers: if settings.sub_agents { Helpers::Allowed } else { Helpers::Off },
        definitions: definitions.into(),
        isolation: isolation(&loaded, repo.as_deref(), environment),
        spawner: Arc::new(NoSpawner),
    };
    let repo_dir = loaded.paths.repo(&loaded.root);
    Ok(Composition { blueprint, workspace, repo_dir, notes })
}

/// The directories of agent definitions: the repo's when it is trusted, and the user's own.
pub(crate) fn definition_directories(loaded: &Loaded, repo: Option<&Path>) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    if let (Some(repo), Trust::Trusted(_)) = (repo, &loaded.trust) {
        directories.extend([repo.join(".caliban/agents"), repo.join(".claude/agents")]);
    }
    directories.push(loaded.paths.config.join("agents"));
    if let Some(home) = &loaded.paths.home {
        directories.push(home.join(".claude/agents"));
    }
    directories
}

/// Our own program: it has a hidden mode that keeps the commands of tools and hooks.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::new(format!("cannot find our own program: {error}")))
}

async fn decide(loaded: &Loaded) -> Result<Target, Failure> {
    match loaded.choose()? {
        Choice::Use(target) => Ok(target),
        Choice::IfRunning(target) => match &target.endpoint {
            Endpoint::Http { base_url, .. }
                if caliban_providers::ollama_running(base_url.value.as_str()).await =>
            {
                Ok(target)
            }
            _ => Err(nothing_set().into()),
        },
    }
}

fn provider(
    loaded: &Loaded,
    target: &Target,
    environment: &Environment,
) -> Result<Arc<dyn Provider>, Failure> {
    let kind: ProviderKind = target.provider.value.as_str().parse().map_err(from_provider)?;
    let mut config = Config::new(kind);
    let retry = &loaded.settings.retry;
    config.retry.attempts = retry.retries.saturating_add(1);
    config.retry.patience = Duration::from_secs(retry.patience_seconds.into());
    config.retry.stall = Duration::from_secs(u64::from(retry.stall_seconds.get()));
    config.proxy = environment.proxy();
    match &target.endpoint {
        Endpoint::Http { base_url, key } => {
            config.base_url = Some(base_url.value.as_str().to_owned());
            config.api_key = key.as_ref().map(|key| key.value.reveal().to_owned());
        }
        Endpoint::Script(Some(script)) => config.script = ScriptSource::File(script.value.clone()),
        Endpoint::Script(None) => {}
    }
    caliban_providers::build(config).map_err(from_provider)
}

async fn model(target: &Target, provider: &dyn Provider) -> Result<String, Failure> {
    if let Some(model) = &target.model {
        return Ok(model.value.clone());
    }
    let models = provider.list_models().await.map_err(from_provider)?;
    models.into_iter().next().ok_or_else(|| {
        Failure::new(format!("{} has no model", target.provider.value))
            .hint("name one with --model, or give it one first (for Ollama: `ollama pull qwen3`)")
    })
}

fn billing(target: &Target) -> Billing {
    let kind: Option<ProviderKind> = target.provider.value.as_str().parse().ok();
    match kind {
        Some(kind) if kind.is_local() => Billing::Local,
        _ => Billing::Listed,
    }
}

fn from_provider(error: caliban_providers::ProviderError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn policy(loaded: &Loaded, home: &Path) -> Result<Policy, Failure> {
    let permissions = &loaded.settings.permissions;
    let mut policy = Policy::new(&loaded.root, home);
    policy.mode = match permissions.mode {
        PermissionMode::Default => Mode::Default,
        PermissionMode::AcceptEdits => Mode::AcceptEdits,
        PermissionMode::Plan => Mode::Plan,
        PermissionMode::Unattended => Mode::Unattended,
    };
    policy.extra_dirs.clone_from(&permissions.add_dirs);
    let lists = [
        (Effect::Allow, "allow", &permissions.allow),
        (Effect::Ask, "ask", &permissions.ask),
        (Effect::Deny, "deny", &permissions.deny),
    ];
    for (effect, key, rules) in lists {
        for (index, text) in rules.iter().enumerate() {
            let source = loaded.source_of(&["permissions", key, &index.to_string()]);
            let rule = text.parse().map_err(|error: caliban_permissions::RuleError| {
                wrong_rule(&error, &source)
            })?;
            policy.add(effect, rule, source.to_string());
        }
    }
    Ok(policy)
}

fn wrong_rule(error: &caliban_permissions::RuleError, source: &Source) -> Failure {
    let failure = Failure::usage(format!("{source}: {error}"));
    failure.hint("rules look like `Bash(git *)`, `Edit(src/**)`, `Read(~/notes/**)`, `WebFetch(domain:example.org)`")
}

fn hooks(settings: &Settings, place: HookPlace) -> Hooks {
    let events = [
        HookEvent::SessionStart,
        HookEvent::UserPromptSubmit,
        HookEvent::PreToolUse,
        HookEvent::PostToolUse,
        HookEvent::Stop,
        HookEvent::SubagentStop,
        HookEvent::Notification,
    ];
    let mut commands = Vec::new();
    for (name, hooks) in settings.hooks.by_event() {
        let Some(event) = events.into_iter().find(|event| event.name() == name) else { continue };
        commands.extend(hooks.iter().map(|hook| CommandHook {
            event,
            matcher: hook.matcher.clone(),
            command: hook.command.clone(),
            timeout: Duration::from_secs(hook.timeout.get().into()),
        }));
    }
    Hooks { commands, closures: Vec::new(), place }
}

fn budget_limits(settings: &Settings) -> budget::Limits {
    let limits = &settings.limits;
    budget::Limits {
        tokens: limits.budget_tokens.map(NonZeroU64::get),
        usd: limits.budget_usd.map(|usd| MicroUsd::from_dollars(usd.dollars())),
        turns: None,
        wall_ms: limits.wall_seconds.map(|seconds| seconds.get().saturating_mul(1000)),
    }
}

fn tool_limits(settings: &Settings) -> caliban_tools::Limits {
    caliban_tools::Limits {
        command_timeout: Duration::from_millis(settings.bash.timeout_ms.get()),
        ..caliban_tools::Limits::default()
    }
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize()
        .map_err(|error| Failure::new(format!("cannot work in {}: {error}", path.display())))
}
