//! Many messages in one transaction: they become durable together, so that the disk is asked once for all of them.
//!
//! A message that is refused keeps no other from being stored. When the store fails, none is stored.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use super::ids::{AgentId, SessionId, TaskId};
use super::send::{
    Freshness, NewMessage, Sent, active_sender, destination, insert_tasks, known_message, message,
};
use super::speaker::Speaker;
use super::types::{Agent, Task};
use super::{Broker, BrokerError, limits};
use crate::Stamp;
use crate::open::Tx;

/// Who is who within one transaction, by session and what was given.
#[derive(Default)]
struct Known {
    senders: HashMap<(SessionId, String), Agent>,
    recipients: HashMap<(SessionId, String), Agent>,
}

impl Known {
    /// What is to be stored of a message, and for whom.
    async fn judge(
        &mut self,
        tx: &mut Tx<'_>,
        speaker: &Speaker,
        id: TaskId,
        new: &NewMessage,
        now: Stamp,
    ) -> Result<(Task, Agent), BrokerError> {
        let key = (new.session, new.from.given().to_owned());
        let from = match self.senders.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let from = active_sender(tx, new.session, &new.from).await?;
                speaker.check(tx, &from).await?;
                place.insert(from)
            }
        };
        let key = (new.session, new.to.given().to_owned());
        let recipient = match self.recipients.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(destination(tx, new.session, &new.to).await?),
        };
        let hops = limits::hops(tx, speaker).await?;
        limits::take_one(tx, speaker, now).await?;
        let task = Task { hops, ..message(id, from, recipient, &new.text, None, now) };
        Ok((task, recipient.clone()))
    }
}

impl Broker {
    /// Stores messages in one transaction, and rings the bells of their recipients. Each gets its own answer, in the same order.
    ///
    /// # Errors
    /// The store's: then nothing is stored.
    pub async fn send_all(
        &mut self,
        all: &[NewMessage],
        now: Stamp,
    ) -> Result<Vec<Result<Sent, BrokerError>>, BrokerError> {
        let speaker = self.speaker.clone();
        let mut tx = self.db.begin().await?;
        let outcome: Result<_, BrokerError> = async {
            let mut known = Known::default();
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
                        Some(task) => Ok(Sent { task, recipient, freshness: Freshness::New }),
                        None => known_message(&mut tx, id, new, BrokerError::IdTaken(id)).await,
                    },
                    Err(refusal @ BrokerError::NotYours { .. }) => Err(refusal),
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
