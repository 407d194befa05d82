//! `caliban acp`: the same agent for an editor, over stdin and stdout.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use caliban_acp::v1::SessionInfo;
use caliban_acp_host::{
    AcpFailure, ClientFiles, Factory, FailureKind, LoadSession, NewSession, OpenedSession,
};
use caliban_agent::{
    Attendance,
    choices::{ChosenNow, keep_narrow},
};

use caliban_core::{BoxFuture, spec::AfterTurn};
use caliban_permissions::Policy;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    broker::Identity,
    cli::AgentFlags,
    commands::{Forks, SessionCommands},
    compose::{ComposeRequest, WantedConversation, compose},
    report::{Code, Failure, Result, note},
    session_places::{FoundSession, Sessions, Shelf},
    sessions::summary::{Summaries, Summary},
    settings::{Environment, provider::OutagePatience},
};

/// Serves the client that started us.
pub(crate) async fn acp(flags: &AgentFlags, environment: &Environment) -> Result<Code> {
    let factory = Editor {
        flags: flags.clone(),
        environment: environment.clone(),
        append: None,
        noted: None,
        resumes: Resumes::Nothing,
        mailbox: None,
        before: Mutex::default(),
    };
    caliban_acp_host::serve_stdio(Arc::new(factory), env!("CARGO_PKG_VERSION"))
        .await
        .map_err(|error| Failure::new(crate::compose::chain(&error)))?;
    Ok(Code::Done)
}

/// Makes the sessions that an editor or the screen asks for.
pub(crate) struct Editor {
    /// How agents are set up.
    pub flags: AgentFlags,
    pub environment: Environment,
    /// What is appended to the system prompt.
    pub append: Option<String>,
    /// Where notes about the settings go; stderr when absent.
    pub noted: Option<UnboundedSender<String>>,
    /// What happens when a session is loaded.
    pub resumes: Resumes,
    /// Who the agents are in a broker session.
    pub mailbox: Option<Identity>,
    /// What the session before may do, once there was one.
    pub before: Mutex<Option<Arc<RwLock<Policy>>>>,
}

/// What happens when a session is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumes {
    /// The agent goes on with a turn that a crash or a kill cut short.
    UnfinishedTurns,
    /// Nothing, before somebody speaks.
    Nothing,
}

impl Editor {
    async fn open(&self, place: &NewSession, id: Option<&str>) -> Result<OpenedSession, AcpFailure> {
        if !place.cwd.is_absolute() {
            return Err(AcpFailure::new(FailureKind::Invalid, "cwd must be an absolute path"));
        }
        let mut setup = self.flags.setup(&place.cwd);
        setup.add_dirs.extend(place.additional_directories.iter().cloned());
        setup.system_prompt_append.clone_from(&self.append);
        let request = ComposeRequest {
            mcp_servers: &place.mcp_servers,
            editor: place.files.as_ref().map(ClientFiles::buffers),
            patience: OutagePatience::Long,
            after_turn: AfterTurn::Stay,
            ..ComposeRequest::here(&place.cwd, &setup, Attendance::Somebody)
        };
        let mut composition = compose(&self.environment, request).await.map_err(|error| {
            let loaded = crate::settings::load(&self.environment, &place.cwd, (&setup).into());
            // The protocol's own word for it: a client can say what to do instead of showing a failure.
            let kind = match loaded {
                Ok(loaded) if loaded.lacks_key() => FailureKind::AuthRequired,
                _ => FailureKind::Internal,
            };
            AcpFailure { kind, ..failure(error) }
        })?;
        composition.blueprint.background = Some(composition.background);
        for text in &composition.notes {
            match &self.noted {
                // A screen that is gone shows nothing.
                Some(noted) => drop(noted.send(text.clone())),
                None => note(text),
            }
        }
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(before) = &before {
            let before = before.read().unwrap_or_else(PoisonError::into_inner);
            // The flags were for the first session; since then the person has chosen.
            composition.chosen = ChosenNow::default();
            composition.in_force = Some(before.mode);
            keep_narrow(&before, &mut composition.blueprint.policy);
        }
        let which = match id {
            Some(id) => {
                let sessions = Sessions::new(composition.repo_dir.clone());
                WantedConversation::Old(
                    sessions
                        .find(id)
                        .map_err(|error| AcpFailure { kind: FailureKind::NotFound, ..failure(error) })?,
                )
            }
            None => WantedConversation::New,
        };
        let commands = SessionCommands::of(&self.environment, &composition);
        let agent = composition.open(which, self.mailbox.as_ref()).await.map_err(failure)?;
        let commands = Some(commands(&agent, Forks::Possible));
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.kit().policy.clone());
        let goes_on = self.resumes == Resumes::UnfinishedTurns && agent.conversation().is_turn_open();
        Ok(OpenedSession { agent: Box::new(agent), commands, goes_on })
    }

    fn recorded(&self, cwd: &Path) -> Result<Vec<SessionInfo>> {
        // What was done in a directory that is gone is still on record, under its path.
        let root = if cwd.exists() { crate::settings::project_root(cwd)? } else { cwd.to_owned() };
        let sessions = Sessions::new(self.environment.paths()?.repo(&root));
        let (present, mut summaries) = (sessions.list(), Summaries::open(&sessions, Shelf::Sessions));
        let infos = present.iter().filter_map(|found| info(found, summaries.get(found).ok()?)).collect();
        summaries.keep(&present);
        Ok(infos)
    }
}

impl Factory for Editor {
    fn create(&self, wanted: NewSession) -> BoxFuture<'_, Result<OpenedSession, AcpFailure>> {
        Box::pin(async move { self.open(&wanted, None).await })
    }

    fn load(&self, wanted: LoadSession) -> BoxFuture<'_, Result<OpenedSession, AcpFailure>> {
        Box::pin(async move { self.open(&wanted.place, Some(&wanted.id)).await })
    }

    fn list(&self, cwd: Option<PathBuf>) -> BoxFuture<'_, Result<Vec<SessionInfo>, AcpFailure>> {
        Box::pin(async move {
            let cwd = match cwd {
                Some(cwd) => cwd,
                None => std::env::current_dir()
                    .map_err(|error| AcpFailure::new(FailureKind::Internal, error.to_string()))?,
            };
            self.recorded(&cwd).map_err(failure)
        })
    }

    fn takes_mcp_over_http(&self) -> bool {
        true
    }
}

/// What a list of sessions says about one; nothing when it cannot be read.
fn info(found: &FoundSession, summary: Summary) -> Option<SessionInfo> {
    let info = SessionInfo::new(found.id.to_string(), summary.cwd?);
    Some(info.title(summary.title).updated_at(summary.last_at?.to_string()))
}

fn failure(failure: Failure) -> AcpFailure {
    AcpFailure { kind: FailureKind::Internal, message: failure.message, hint: failure.hint }
}
