//! Slash commands that need settings, files or other sessions. They go over ACP, so that the screen, `attach` and an
//! editor all have them. What only the screen can do is in `caliban-tui`; `/bg`, `/compact`, `/help` and `/status` are the
//! host's.

pub(crate) mod custom;
mod detach;
pub(crate) mod report;

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use caliban_acp_host::{CommandAnswer, CommandInfo, Commands, SessionHost};
use caliban_agent::{Agent, AgentChange, background::Background, checkpoint, event::Author, fork};
use caliban_core::{
    BoxFuture, background::BackgroundStatus, definition::Definition, message::Effort, model_alias,
};
use caliban_fleet::Client;
use caliban_permissions::{Effect, SourcedRule};
use caliban_providers::Provider;
use tokio_util::sync::CancellationToken;

use self::custom::Custom;
use crate::{
    compose::{Composition, Resources},
    fleet::Fleet,
    session_places::{FoundSession, Sessions},
    settings::{Environment, values::close_match},
};

/// Name, arguments, what it does.
const OWN: [(&str, Option<&str>, &str); 15] = [
    ("model", Some("[name]"), "Show the models, or let another one answer"),
    (
        "effort",
        Some("[default | none | low | medium | high | xhigh | max]"),
        "Show or change how hard the model thinks",
    ),
    ("diff", None, "Show what the tools of this session have changed"),
    ("undo", None, "Bring the files of the last turn back that tools have changed"),
    ("rewind", Some("[prompt]"), "Go back to before a prompt: its files and the conversation"),
    ("fork", Some("[prompt]"), "Go on in a copy of the conversation, whole or up to a prompt"),
    ("sessions", None, "List the sessions of this repo"),
    ("permissions", Some("[allow RULE | deny RULE]"), "Show the rules, or add one for this session"),
    ("detach", None, "Send the conversation to the fleet, where it goes on, and leave"),
    ("mcp", None, "Show the MCP servers and their tools"),
    ("agents", None, "List the agent types, and how to see the fleet"),
    ("approvals", None, "List what agents of the fleet ask"),
    ("memory", None, "Show which instruction files the model was given"),
    ("init", Some("[what matters]"), "Let the agent write an AGENTS.md for this repo"),
    ("review", Some("[what]"), "Let the agent review the uncommitted changes, or what you name"),
];

const INIT: &str = "Look at this repository and write AGENTS.md at its top, or improve the one that is there: how to \
build, test and lint it; where things are; the conventions that a newcomer would get wrong. Only what you have seen in \
the files or tried; at most 80 lines.";
const REVIEW: &str = "Review the changes and change nothing. Look for faults first (wrong results, lost data, races, \
security), then for what is missing (tests, error handling), then for what could be simpler. For each finding give the \
file and line, what goes wrong and in which case, and how to mend it; the worst first. Say so if there is nothing.";

/// What the commands of one session need.
pub(crate) struct SessionCommands {
    environment: Environment,
    repo: PathBuf,
    repo_dir: PathBuf,
    /// The session's directory.
    directory: PathBuf,
    provider: Arc<dyn Provider>,
    custom: Vec<Custom>,
    resources: Resources,
    types: Arc<[Definition]>,
    mcp: Vec<String>,
    memory: Vec<String>,
    forks: Forks,
    handover: detach::Handover,
}

/// Whether the client can go on in another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forks {
    /// It makes and loads sessions itself.
    Possible,
    /// It is at one agent of the fleet.
    Not,
}

impl SessionCommands {
    /// Those of an agent of this composition.
    pub(crate) fn of(
        environment: &Environment,
        composition: &Composition,
    ) -> impl FnOnce(&Agent, Forks) -> Arc<dyn Commands> + use<> {
        let environment = environment.clone();
        let blueprint = &composition.blueprint;
        let repo = blueprint.repo.clone().unwrap_or_else(|| composition.workspace.root.clone());
        let (repo_dir, provider) = (composition.repo_dir.clone(), blueprint.provider.clone());
        let (custom, types) = (composition.commands.clone(), blueprint.definitions.clone());
        let resources = composition.resources();
        let left_out = composition.notes.iter().filter(|note| note.starts_with("the MCP server")).cloned();
        let left_out: Vec<String> = left_out.collect();
        let handover = detach::Handover::of(blueprint);
        move |agent, forks| {
            let kit = agent.kit();
            Arc::new(Self {
                environment,
                repo,
                repo_dir,
                directory: kit.wanted.directory.clone(),
                provider,
                custom,
                resources,
                types,
                mcp: report::mcp(kit.specs.iter().map(|spec| spec.name.as_str()), left_out),
                memory: report::memory(&kit.context),
                forks,
                handover,
            })
        }
    }

    fn offers(&self, name: &str) -> bool {
        self.forks == Forks::Possible || !matches!(name, "rewind" | "fork" | "sessions" | "detach")
    }

    async fn own(&self, name: &str, arguments: &str, host: &SessionHost) -> Result<CommandAnswer, String> {
        let text = match name {
            "model" => self.model(arguments, host).await?,
            "effort" => effort(arguments, host).await?,
            "diff" => report::diff(&self.directory, host.cwd()),
            "undo" => self.undo(host).await?,
            "rewind" => return self.fork(arguments, host, Files::Back).await,
            "fork" => return self.fork(arguments, host, Files::Stay).await,
            "detach" => return self.handover.detach(&self.directory, host).await,
            "sessions" => report::sessions(&Sessions::new(self.repo_dir.clone())),
            "permissions" => permissions(arguments, host)?,
            "mcp" => {
                report::lines(&self.mcp, "There is no MCP server. `caliban config` shows where to name one.")
            }
            "agents" => report::agents(&self.types),
            "approvals" => self.approvals().await?,
            "memory" => report::lines(
                &self.memory,
                "The model was given no instruction file. /init writes AGENTS.md.",
            ),
            "init" => return Ok(CommandAnswer::Prompt(with(INIT, "What matters most: ", arguments))),
            _ => {
                let what = if arguments.is_empty() {
                    "the uncommitted changes (git status, git diff HEAD)"
                } else {
                    arguments
                };
                return Ok(CommandAnswer::Prompt(with(REVIEW, "What to review: ", what)));
            }
        };
        Ok(CommandAnswer::Text(text))
    }

    async fn model(&self, name: &str, host: &SessionHost) -> Result<String, String> {
        let now = host.settings().borrow().model.clone();
        let known = self.provider.list_models(&CancellationToken::new()).await;
        if name.is_empty() {
            let known =
                known.map_err(|error| format!("{now} answers; the others cannot be listed: {error}"))?;
            let mark = |model: &String| format!("{} {model}", if *model == now { "*" } else { " " });
            let lines: Vec<String> = known.iter().map(mark).collect();
            return Ok(format!("{now} answers. /model NAME changes that.\n{}", lines.join("\n")));
        }
        let name = model_alias::resolved(name, &now);
        match &known {
            // A name without its date is taken by some providers, and a proxy may not list all that it has.
            Ok(known)
                if !known.is_empty()
                    && !known.iter().any(|model| model.starts_with(&name))
                    && !caliban_core::models::is_known(&name) =>
            {
                let close = close_match(&name, known.iter().map(String::as_str));
                let close = close.map_or_else(String::new, |close| format!("; did you mean {close}?"));
                return Err(format!(
                    "the provider has no model {name}{close} /model lists those that it has"
                ));
            }
            _ => {}
        }
        host.configure(AgentChange { model: Some(name.clone()), effort: None }).await?;
        Ok(format!("From the next request on {name} answers."))
    }

    async fn undo(&self, host: &SessionHost) -> Result<String, String> {
        check_rest(host)?;
        let turn = checkpoint::last_turn(&self.directory)
            .ok_or("no tool has changed a file in this session, or all of it is undone")?;
        let directory = self.directory.clone();
        // Another client's prompt begins no turn meanwhile: it would write the files that are brought back.
        let undone = host.while_at_rest(move || checkpoint::undo(&directory, turn)).await;
        let undone = undone.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let text = report::undone(&undone, host.cwd());
        let told = format!("[the user has undone your last changes of files. {text}]");
        host.handle().queue(told, Author::Caliban, None).await.map_err(|error| error.to_string())?;
        Ok(format!(
            "{text}\nWhat commands have changed is not undone. The model is told with your next message."
        ))
    }

    async fn fork(&self, arguments: &str, host: &SessionHost, files: Files) -> Result<CommandAnswer, String> {
        match files {
            Files::Back => check_rest(host)?,
            Files::Stay if host.is_running() => {
                return Err("the agent is at work: interrupt it first".to_owned());
            }
            Files::Stay => {}
        }
        let points = fork::points(&host.records());
        let before = match (arguments, files) {
            ("", Files::Stay) => None,
            ("", Files::Back) => Some(points.last().ok_or("nothing was said yet")?.turn),
            (number, _) => {
                let number: usize = number.parse().map_err(|_| report::points(&points))?;
                let point = number.checked_sub(1).and_then(|at| points.get(at));
                Some(point.ok_or_else(|| report::points(&points))?.turn)
            }
        };
        let found = FoundSession {
            id: host.id().parse().map_err(|_| "this session has no id")?,
            directory: self.directory.clone(),
            changed: std::time::SystemTime::now(),
        };
        let (sessions, repo) = (Sessions::new(self.repo_dir.clone()), self.repo.clone());
        let taken = host.while_at_rest(move || take_back(&sessions, &found, &repo, before, files)).await;
        let forked = taken.map_err(|error| error.to_string())??;
        let mut text =
            format!("This is session {}, forked from {}, which stays as it is.", forked.id, host.id());
        if let Some(undone) = &forked.undone {
            text = format!("{}\n{text}", report::undone(undone, host.cwd()));
        }
        Ok(CommandAnswer::Load { session: forked.id, draft: forked.prompt.unwrap_or_default(), text })
    }

    async fn approvals(&self) -> Result<String, String> {
        let fleet = Fleet::open(&self.environment, &self.repo).map_err(|failure| failure.message)?;
        // No daemon: nobody asks. It is not started for that.
        let open = match Client::connect(fleet.places()).await {
            Ok(mut client) => client.approvals().await.map_err(|error| error.to_string())?,
            Err(_) => Vec::new(),
        };
        Ok(report::approvals(&open))
    }
}

impl Commands for SessionCommands {
    fn named_in<'a>(&'a self, words: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(self.resources.named_in(words))
    }

    fn list(&self) -> Vec<CommandInfo> {
        let own = OWN.iter().filter(|(name, ..)| self.offers(name)).map(|(name, input, about)| CommandInfo {
            name: (*name).to_owned(),
            about: (*about).to_owned(),
            input: input.map(str::to_owned),
        });
        let custom = self.custom.iter().filter(|custom| OWN.iter().all(|(name, ..)| *name != custom.name));
        let custom = custom.map(|custom| CommandInfo {
            name: custom.name.clone(),
            about: custom.about.clone(),
            input: Some(custom.hint.clone().unwrap_or_else(|| "[arguments]".to_owned())),
        });
        own.chain(custom).collect()
    }

    fn run<'a>(
        &'a self,
        name: &'a str,
        arguments: &'a str,
        host: &'a SessionHost,
    ) -> BoxFuture<'a, Result<CommandAnswer, String>> {
        Box::pin(async move {
            if OWN.iter().any(|(own, ..)| *own == name) {
                return self.own(name, arguments, host).await;
            }
            match self.custom.iter().find(|custom| custom.name == name) {
                Some(custom) => Ok(CommandAnswer::Prompt(custom.prompt(arguments))),
                None => Err(format!("there is no command /{name}")),
            }
        })
    }
}

/// Whether the files come back with the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    /// They are brought back.
    Back,
    /// They stay as they are.
    Stay,
}

/// A session that was forked.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Forked {
    /// The new session.
    pub id: String,
    /// What the prompt said before which it ends.
    pub prompt: Option<String>,
    /// What became of the files.
    pub undone: Option<checkpoint::Undone>,
}

/// Makes a session of what happened before a turn, and brings the files back when that is wanted. `/fork`, `/rewind`,
/// `caliban sessions fork` and `caliban sessions rewind` are all this.
pub(crate) fn take_back(
    sessions: &Sessions,
    found: &FoundSession,
    repo: &std::path::Path,
    before: Option<u32>,
    files: Files,
) -> Result<Forked, String> {
    let (id, directory) = sessions.create(repo).map_err(|failure| failure.message)?;
    let forked = fork::fork(&found.directory, &directory, &id.to_string(), before);
    let prompt = forked.map_err(|error| {
        // Nothing is in it: it would only be in the way.
        let _best_effort = std::fs::remove_dir_all(&directory);
        error.to_string()
    })?;
    let undone = match (files, before) {
        (Files::Back, Some(turn)) => {
            Some(checkpoint::undo(&found.directory, turn).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    Ok(Forked { id: id.to_string(), prompt, undone })
}

/// Files are brought back only while nobody of this session writes.
fn check_rest(host: &SessionHost) -> Result<(), String> {
    if host.is_running() {
        return Err("the agent is at work: interrupt it first".to_owned());
    }
    let rows = host.background().map(Background::rows).unwrap_or_default();
    match rows.iter().find(|row| row.status == BackgroundStatus::Running) {
        Some(row) => Err(format!("background agent {0} is at work: /bg kill {0} ends it", row.id)),
        None => Ok(()),
    }
}

async fn effort(word: &str, host: &SessionHost) -> Result<String, String> {
    let words = || Effort::ALL.map(Effort::word).join(", ");
    if word.is_empty() {
        let now = host.settings().borrow().effort.word();
        return Ok(format!("Effort is {now}. /effort with one of {} changes that.", words()));
    }
    let effort: Effort =
        serde_json::from_value(word.into()).map_err(|_| format!("there is no effort {word}: {}", words()))?;
    host.configure(AgentChange { model: None, effort: Some(effort) }).await?;
    Ok(format!("From the next request on the effort is {}.", effort.word()))
}

fn permissions(arguments: &str, host: &SessionHost) -> Result<String, String> {
    let (verb, rule) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    let effect = match verb {
        "" => {
            let policy = host.policy().read().unwrap_or_else(PoisonError::into_inner);
            return Ok(report::permissions(&policy));
        }
        "allow" => Effect::Allow,
        "deny" => Effect::Deny,
        _ => return Err("/permissions, /permissions allow RULE or /permissions deny RULE".to_owned()),
    };
    let parsed = crate::settings::parse_rule(rule.trim()).map_err(|(wrong, hint)| match hint {
        Some(hint) => format!("{wrong}; {hint}"),
        None => wrong,
    })?;
    if effect == Effect::Deny && parsed.is_outside() {
        return Err("only a rule that allows can be `outside`".to_owned());
    }
    let given_at = Some(caliban_contract::wall_ms());
    host.add_rule(SourcedRule { effect, rule: parsed, source: "/permissions".to_owned(), given_at });
    Ok(format!("{verb} {} holds for this session.", rule.trim()))
}

fn with(prompt: &str, label: &str, text: &str) -> String {
    if text.is_empty() { prompt.to_owned() } else { format!("{prompt}\n\n{label}{text}") }
}
