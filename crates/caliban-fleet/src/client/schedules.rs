//! Asking about time: schedules, and an agent's place in the queue.

use super::{Client, ClientError, RouteCall, body};
use crate::protocol::routes::Verb;
use crate::protocol::{
    AgentRow, KeysRequest, PauseRequest, RequeueRequest, ScheduleList, ScheduleRequest, ScheduleRow, Spawned,
};

impl Client {
    /// All schedules.
    pub async fn schedules(&mut self) -> Result<Vec<ScheduleRow>, ClientError> {
        let list: ScheduleList = self.again(&RouteCall::new(Verb::Schedules), None).await?;
        Ok(list.schedules)
    }

    /// Makes a schedule. When this returns it is on the disk.
    pub async fn schedule(&mut self, request: &ScheduleRequest) -> Result<ScheduleRow, ClientError> {
        self.once(&RouteCall::new(Verb::Schedule), Some(body(request)?)).await
    }

    /// Removes a schedule; the agents that it started stay.
    pub async fn unschedule(&mut self, name: &str) -> Result<ScheduleRow, ClientError> {
        self.once(&RouteCall::on(Verb::Unschedule, name)?, None).await
    }

    /// Pauses a schedule, or lets it go on.
    pub async fn pause_schedule(&mut self, name: &str, paused: bool) -> Result<ScheduleRow, ClientError> {
        let request = PauseRequest { paused };
        self.again(&RouteCall::on(Verb::PauseSchedule, name)?, Some(body(&request)?)).await
    }

    /// Starts an agent of a schedule now, beside its times.
    pub async fn run_schedule(&mut self, name: &str) -> Result<Spawned, ClientError> {
        self.once(&RouteCall::on(Verb::RunSchedule, name)?, None).await
    }

    /// Hands keys to the schedules that have lost theirs.
    pub async fn schedule_keys(&mut self, request: &KeysRequest) -> Result<Vec<ScheduleRow>, ClientError> {
        let list: ScheduleList =
            self.again(&RouteCall::new(Verb::ScheduleKeys), Some(body(request)?)).await?;
        Ok(list.schedules)
    }

    /// Changes when a queued agent starts.
    pub async fn requeue(&mut self, agent: &str, request: RequeueRequest) -> Result<AgentRow, ClientError> {
        self.again(&RouteCall::on(Verb::Requeue, agent)?, Some(body(&request)?)).await
    }
}
