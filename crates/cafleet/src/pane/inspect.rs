//! The state of an agent's pane: whether it is the same pane that was recorded, whether the agent runs in it, and
//! whether it can take a text.

use std::time::Duration;

use caliban_acp::extension::AgentState;
use caliban_contract::member;
use caliban_store::broker::{Agent, PaneIdentity, Placement};

use super::backend::{Backend, Knows, TextWay};
use super::classify::{self, Composer};
use super::tmux::{PaneFacts, Tmux, TmuxError};
use super::{evidence, own_pane, process};
use crate::settings::Settings;

/// Time limit for an agent's answer about its state.
const SAYS_WITHIN: Duration = Duration::from_millis(500);

/// The state of a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaneState {
    /// It can take a text.
    Free,
    /// The agent works.
    Working,
    /// The input line has unfinished text.
    Draft,
    /// The agent waits for an answer.
    Asking,
    /// A person scrolls back in the pane.
    CopyMode,
    /// The screen is not recognized.
    Unknown,
    /// Another program is in the foreground.
    OtherProgram,
    /// The agent reads its messages by itself.
    OnItsOwn,
    /// The pane does not exist yet.
    Pending,
    /// tmux cannot be reached from here.
    Unreachable,
    /// The pane no longer exists, or is a different one.
    Gone,
}

impl PaneState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Working => "working",
            Self::Draft => "draft",
            Self::Asking => "asking",
            Self::CopyMode => "copy-mode",
            Self::Unknown => "unknown",
            Self::OtherProgram => "other-program",
            Self::OnItsOwn => "running",
            Self::Pending => "pending",
            Self::Unreachable => "unreachable",
            Self::Gone => "gone",
        }
    }
}

/// The result of a look at a pane.
#[derive(Debug, Clone)]
pub(crate) struct PaneLook {
    pub(crate) state: PaneState,
    /// Why nothing can be typed; empty if something can.
    pub(crate) why: String,
    pub(crate) facts: Option<PaneFacts>,
    /// The agent's processes in the foreground.
    pub(crate) agents: Vec<i64>,
}

impl PaneLook {
    fn not(state: PaneState, why: impl Into<String>) -> Self {
        Self { state, why: why.into(), facts: None, agents: Vec::new() }
    }
}

/// A pane that an agent was placed in.
pub(crate) struct PaneTarget<'a> {
    pub(crate) tmux: Tmux,
    pub(crate) pane: &'a str,
    pub(crate) identity: &'a PaneIdentity,
    pub(crate) backend: &'static Backend,
    /// Whether the pane is on this machine.
    pub(crate) is_here: bool,
}

impl<'a> PaneTarget<'a> {
    /// `None` for a placement whose pane does not exist yet.
    pub(crate) fn of(placement: &'a Placement) -> Option<Self> {
        let pane = placement.tmux_pane.as_deref().filter(|pane| own_pane::is_pane_id(pane))?;
        let identity = placement.identity.as_ref()?;
        Some(Self {
            tmux: Tmux::at(&identity.socket),
            pane,
            identity,
            backend: Backend::named(&placement.coding_agent)?,
            is_here: own_pane::host().is_ok_and(|host| host == placement.host),
        })
    }

    /// The name of the pane's lock; the same for all agents that are placed in it.
    pub(crate) fn lock_name(&self) -> String {
        format!("pane-{}-{}", self.identity.server_pid, self.pane.trim_start_matches('%'))
    }

    /// A tmux format that checks that this is still the same pane, and alive.
    pub(crate) fn is_same(&self) -> String {
        self.is_same_and(0)
    }

    /// A tmux format that checks that this is still the same pane, whose program has ended (`remain-on-exit`).
    pub(crate) fn is_same_and_dead(&self) -> String {
        self.is_same_and(1)
    }

    fn is_same_and(&self, dead: u8) -> String {
        format!(
            "#{{==:#{{pid}}/#{{pane_id}}/#{{pane_pid}}/#{{pane_dead}},{}/{}/{}/{dead}}}",
            self.identity.server_pid, self.pane, self.identity.pane_pid
        )
    }

    /// Everything that tmux itself can check at the moment of typing.
    pub(crate) fn condition(&self, facts: &PaneFacts) -> String {
        format!("#{{&&:{},{}}}", self.is_same(), self.backend.condition(facts))
    }

    /// Looks at the pane.
    pub(crate) async fn look(&self, settings: &Settings) -> PaneLook {
        if !self.is_here {
            return PaneLook::not(PaneState::Unreachable, "its pane is on another machine");
        }
        match self.tmux.look(self.pane, &self.backend.watched()).await {
            Ok(Some(facts)) => {
                let seen = self.judge(facts, settings);
                let asks = self.backend.knows == Knows::Itself && seen.state == PaneState::OnItsOwn;
                if asks { self.said_itself(seen, settings).await } else { seen }
            }
            Ok(None) => PaneLook::not(PaneState::Gone, format!("there is no pane {} any more", self.pane)),
            Err(TmuxError::Failed(why)) if proves_the_end(&why, self.identity) => {
                PaneLook::not(PaneState::Gone, format!("the tmux server is gone ({why})"))
            }
            Err(error) => PaneLook::not(PaneState::Unreachable, error.words()),
        }
    }

    /// The agent's own report over its socket. If it does not answer, only that it runs is known.
    async fn said_itself(&self, seen: PaneLook, settings: &Settings) -> PaneLook {
        let Ok(database_dir) = settings.database_dir() else { return seen };
        let socket = member::socket(&database_dir, self.identity.pane_pid);
        let asked = caliban_acp::state_at(&socket, env!("CARGO_PKG_VERSION"));
        let (state, why) = match tokio::time::timeout(SAYS_WITHIN, asked).await {
            Ok(Ok(AgentState::Idle)) => (PaneState::Free, "it takes its messages by itself"),
            Ok(Ok(AgentState::Working)) => (PaneState::Working, "it is at work"),
            Ok(Ok(AgentState::Asking)) => (PaneState::Asking, "it waits for an answer from its user"),
            Ok(Err(_)) | Err(_) => return seen,
        };
        PaneLook { state, why: why.to_owned(), ..seen }
    }

    /// Judges the pane from what tmux and the system report.
    fn judge(&self, facts: PaneFacts, settings: &Settings) -> PaneLook {
        let identity = self.identity;
        if facts.server_pid != identity.server_pid {
            return PaneLook::not(PaneState::Gone, "another tmux server has the socket now");
        }
        if facts.dead {
            let why = facts.ended.clone().unwrap_or_else(|| "the pane is dead".to_owned());
            let facts = Some(facts).filter(|facts| facts.pane_pid == identity.pane_pid);
            return PaneLook { facts, ..PaneLook::not(PaneState::Gone, why) };
        }
        let same = facts.pane_pid == identity.pane_pid
            && process::started(facts.pane_pid).is_some_and(|started| started == identity.pane_started);
        if !same {
            return PaneLook::not(PaneState::Gone, "the pane has another process now");
        }
        let seen = |state, why: &str, facts, agents| PaneLook {
            state,
            why: why.to_owned(),
            facts: Some(facts),
            agents,
        };
        match self.backend.text {
            TextWay::Paste => {}
            TextWay::Mailbox => {
                return seen(PaneState::OnItsOwn, "it takes its messages by itself", facts, Vec::new());
            }
            TextWay::Polls => {
                return seen(
                    PaneState::OnItsOwn,
                    "nothing is typed into it; it reads by polling",
                    facts,
                    Vec::new(),
                );
            }
        }
        let agents = process::foreground_agents(facts.pane_pid, &facts.tty, self.backend);
        if agents.is_empty() {
            let why = format!("{} is not the pane's foreground program", self.backend.name);
            return seen(PaneState::OtherProgram, &why, facts, agents);
        }
        if facts.in_mode {
            return seen(PaneState::CopyMode, "the pane is in copy mode", facts, agents);
        }
        let status = match self.backend.knows {
            Knows::ClaudeStatus => evidence::claude_status(settings, &agents),
            Knows::CodexTitle | Knows::GeminiTitle | Knows::Screen | Knows::Itself | Knows::Nothing => None,
        };
        let (state, why) = match classify::composer(self.backend, &facts, status.as_deref()) {
            Composer::Free => (PaneState::Free, ""),
            Composer::Working => (PaneState::Working, "it is at work"),
            Composer::Draft => (PaneState::Draft, "there is a draft in its input line"),
            Composer::Dialog => (PaneState::Asking, "it waits for an answer from its user"),
            Composer::Elsewhere => {
                (PaneState::Unknown, "its keys go elsewhere: a search field, a picker or a list is open")
            }
            Composer::Unknown => (PaneState::Unknown, "its input line is not to be seen"),
        };
        seen(state, why, facts, agents)
    }
}

/// Looks at an agent's pane, which may not exist yet.
pub(crate) async fn look_at(agent: &Agent, settings: &Settings) -> PaneLook {
    let Some(placement) = &agent.placement else {
        return PaneLook::not(PaneState::Unknown, "it has no pane");
    };
    match PaneTarget::of(placement) {
        Some(target) => target.look(settings).await,
        None => PaneLook::not(PaneState::Pending, "its pane is not there yet"),
    }
}

/// Whether tmux's error proves that the server is gone: no process listens on its socket, or the machine was rebooted.
/// A socket that is invisible or inaccessible proves nothing: we may be in a sandbox.
fn proves_the_end(why: &str, identity: &PaneIdentity) -> bool {
    let boot = identity.pane_started.split('/').next().unwrap_or_default();
    why.starts_with("no server running") || process::boot().is_some_and(|now| now != boot)
}
