//! Many messages in one transaction: they become durable together, so that the disk is asked once for all of them.
//!
//! A message that is refused keeps no other from being stored. When the store fails, none is stored.

use std::collections::{BTreeSet, HashMap};

use super::ids::{AgentId, SessionId, TaskId};
use super::send::{
    Freshness, NewMessage, Sent, active_sender, destination, insert_task, known_message, message,
};
use super::types::{Agent, Task};
use super::{Broker, BrokerError, limits};
use crate::Stamp;

/// Who is who within one transaction, by session and what was given.
type Known = HashMap<(SessionId, String), Agent>;

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
            let (mut senders, mut recipients) = (Known::new(), Known::new());
            let mut answers = Vec::with_capacity(all.len());
            for new in all {
                let id = new.id.unwrap_or_else(TaskId::random);
                let stored: Result<Option<Sent>, BrokerError> = async {
                    let tx = &mut tx;
                    let key = (new.session, new.from.given().to_owned());
                    let from = match senders.get(&key) {
                        Some(known) => known.clone(),
                        None => {
                            let from = active_sender(tx, new.session, &new.from).await?;
                            speaker.check(tx, &from).await?;
                            senders.entry(key).or_insert(from).clone()
                        }
                    };
                    let key = (new.session, new.to.given().to_owned());
                    let recipient = match recipients.get(&key) {
                        Some(known) => known.clone(),
                        None => {
                            let found = destination(tx, new.session, &new.to).await?;
                            recipients.entry(key).or_insert(found).clone()
                        }
                    };
                    let hops = limits::hops(tx, &speaker).await?;
                    limits::take_one(tx, &speaker, now).await?;
                    let task = Task { hops, ..message(id, &from, &recipient, &new.text, None, now) };
                    let stored = insert_task(tx, task).await?;
                    Ok(stored.map(|task| Sent { task, recipient, freshness: Freshness::New }))
                }
                .await;
                answers.push(match stored {
                    Ok(Some(sent)) => Ok(sent),
                    Ok(None) => known_message(&mut tx, id, new, BrokerError::IdTaken(id)).await,
                    Err(BrokerError::Store(error)) => return Err(BrokerError::Store(error)),
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
