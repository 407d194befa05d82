//! The daemon as a client of an agent's socket, for the process that asks it. It decides nothing itself: the agent judges
//! that process as if it had connected itself (ADR 0041).

use caliban_acp::extension::Behalf;
use caliban_acp::{Link, Unreached};
use caliban_core::ids::AgentId;
use tokio::sync::mpsc;

use super::{DaemonAnswer, DaemonRequest, Msg, answers, stopping, wake};
use crate::protocol::{AgentRow, ApiError, Awake, ErrorCode, WakeRequest};

/// A caller that cannot be seen: no process has this pid.
const NOBODY: Behalf = Behalf { pid: 0, start_time: 0 };

/// A way to the owner and to the agents, for one caller.
pub(super) struct Speaker<'a> {
    pub(super) inbox: &'a mpsc::Sender<Msg>,
    /// The process that asks. None when it cannot be seen: then it decides nothing.
    pub(super) caller: Option<Behalf>,
}

impl Speaker<'_> {
    pub(super) async fn row(&self, id: AgentId) -> Result<AgentRow, ApiError> {
        self.show(id.to_string()).await
    }

    pub(super) async fn show(&self, query: String) -> Result<AgentRow, ApiError> {
        match answers::ask(self.inbox, DaemonRequest::Show(query)).await? {
            DaemonAnswer::Row(row) => Ok(*row),
            _ => Err(stopping()),
        }
    }

    pub(super) async fn wake(&self, query: &str) -> Result<Awake, ApiError> {
        wake::until_awake(query.to_owned(), WakeRequest::default(), self.inbox).await
    }

    pub(super) async fn link(&self, awake: &Awake) -> Result<Link, Unreached> {
        // Always said: without it an agent that does not know us would judge us, and not the one who asks.
        let caller = self.caller.unwrap_or(NOBODY);
        Link::open(&awake.socket, env!("CARGO_PKG_VERSION"), Some(caller), |_| {}).await
    }
}

/// The refusal of an agent, or that it cannot be reached.
pub(super) fn refusal(unreached: Unreached) -> ApiError {
    let code = if unreached.is_gone { ErrorCode::Timeout } else { ErrorCode::Conflict };
    ApiError { code, message: unreached.message, hint: unreached.hint }
}
