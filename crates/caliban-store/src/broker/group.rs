//! Many messages in one transaction: one sync makes all of them durable.
//!
//! A message that is refused does not keep the others from being stored. If the store fails, none is stored.

use std::collections::{BTreeSet, HashMap};

use super::ids::{AgentId, IdPrefix, SessionId, TaskId};
use super::resolve::{PrefixMatch, agents_by_id};
use super::send::{
    Freshness, NewMessage, ROWS, SentMessage, active_sender, destination, found, insert_tasks, known_message,
    message,
};
use super::speaker::Speaker;
use super::types::{Agent, Task};
use super::{Broker, BrokerError, limits};
use crate::Stamp;
use crate::open::Tx;

/// The agents that were resolved within one transaction.
#[derive(Default)]
struct Known {
    /// By session, and by the id or prefix as given.
    senders: HashMap<(SessionId, String), Agent>,
    recipients: HashMap<(SessionId, String), Agent>,
    /// The agents that are named by a whole id, read with one statement.
    by_id: HashMap<AgentId, Agent>,
}

impl Known {
    /// Reads all agents that the messages name by a whole id.
    async fn of(tx: &mut Tx<'_>, all: &[NewMessage]) -> Result<Self, BrokerError> {
        let named = all.iter().flat_map(|new| [&new.from, &new.to]).filter_map(IdPrefix::whole);
        let named = named.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        let mut known = Self::default();
        for some in named.chunks(ROWS) {
            let agents = agents_by_id(tx, some).await?;
            known.by_id.extend(agents.into_iter().map(|agent| (agent.id, agent)));
        }
        Ok(known)
    }

    async fn found(
        &self,
        tx: &mut Tx<'_>,
        session: SessionId,
        given: &IdPrefix,
    ) -> Result<PrefixMatch<Agent>, BrokerError> {
        match given.whole().and_then(|id| self.by_id.get(&id)) {
            Some(agent) if agent.session == session => Ok(PrefixMatch::One(agent.clone())),
            _ => found(tx, session, given).await,
        }
    }

    /// Checks a message; returns the row to store, and its recipient.
    async fn judge(
        &mut self,
        tx: &mut Tx<'_>,
        speaker: &Speaker,
        id: TaskId,
        new: &NewMessage,
        now: Stamp,
    ) -> Result<(Task, Agent), BrokerError> {
        let key = (new.session, new.from.given().to_owned());
        let from = match self.senders.get(&key) {
            Some(known) => known.clone(),
            None => {
                let from = active_sender(self.found(tx, new.session, &new.from).await?, &new.from)?;
                speaker.check(tx, &from).await?;
                self.senders.entry(key).or_insert(from).clone()
            }
        };
        let key = (new.session, new.to.given().to_owned());
        let recipient = match self.recipients.get(&key) {
            Some(known) => known.clone(),
            None => {
                let to = self.found(tx, new.session, &new.to).await?;
                let to = destination(tx, to, &new.to).await?;
                self.recipients.entry(key).or_insert(to).clone()
            }
        };
        let hops = limits::hops(tx, speaker).await?;
        limits::take_one(tx, speaker, now).await?;
        let task = Task { hops, ..message(id, &from, &recipient, &new.text, None, now) };
        Ok((task, recipient))
    }
}

impl Broker {
    /// Stores messages in one transaction, and rings the bells of their recipients. Returns one result per message, in
    /// the same order.
    ///
    /// # Errors
    /// When the store fails; then nothing is stored.
    pub async fn send_all(
        &mut self,
        all: &[NewMessage],
        now: Stamp,
    ) -> Result<Vec<Result<SentMessage, BrokerError>>, BrokerError> {
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<_, BrokerError> = async {
            let mut known = Known::of(&mut tx, all).await?;
            let mut judged = Vec::with_capacity(all.len());
            let first = TaskId::random();
            for new in all {
                let id = new.id.unwrap_or_else(|| first.beside());
                match known.judge(&mut tx, &speaker, id, new, now).await {
                    Err(BrokerError::Store(error)) => return Err(BrokerError::Store(error)),
                    outcome => judged.push((id, outcome)),
                }
            }
            let tasks = judged.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
            let tasks = tasks.map(|(task, recipient)| (recipient.session, task.clone())).collect();
            let mut stored = insert_tasks(&mut tx, tasks, all.iter().filter_map(|new| new.id).collect())
                .await?
                .into_iter();
            let mut answers = Vec::with_capacity(all.len());
            for (new, (id, outcome)) in all.iter().zip(judged) {
                answers.push(match outcome {
                    Ok((_, recipient)) => match stored.next().flatten() {
                        Some(task) => Ok(SentMessage { task, recipient, freshness: Freshness::New }),
                        None => known_message(&mut tx, id, new, BrokerError::IdTaken(id)).await,
                    },
                    Err(refusal @ BrokerError::NotYours { .. }) => Err(refusal),
                    // A retry succeeds even if the sender or recipient has left in the meantime, or the sender may not
                    // send any more.
                    Err(refusal) => known_message(&mut tx, id, new, refusal).await,
                });
            }
            Ok(answers)
        }
        .await;
        let answers = tx.finish(outcome).await?;
        let rung: BTreeSet<AgentId> = answers.iter().flatten().map(|sent| sent.recipient.id).collect();
        for agent in rung {
            self.signals.ring(&agent.to_string()).await;
        }
        Ok(answers)
    }
}
