//! `GET /v1/history`: how agents stood when, as the registry has it. Read by its one writer, so it is never behind a commit.

use tokio::sync::mpsc;

use super::{DaemonAnswer, DaemonRequest, Msg, answers};
use crate::protocol::{ApiError, ErrorCode, History, StateChange};

pub(super) async fn history(from: u64, to: u64, inbox: &mpsc::Sender<Msg>) -> Result<History, ApiError> {
    let internal = |text: String| ApiError::new(ErrorCode::Internal, text);
    let DaemonAnswer::Reader(registry) = answers::ask(inbox, DaemonRequest::Reader).await? else {
        return Err(internal("the registry cannot be read".to_owned()));
    };
    let changes = registry.history(from, to).await.map_err(internal)?;
    let told = changes.into_iter().map(|change| StateChange {
        agent: change.agent,
        at: change.at,
        status: change.status,
    });
    Ok(History { changes: told.collect() })
}
