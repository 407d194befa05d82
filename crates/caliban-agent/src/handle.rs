//! What others hold of a running agent: they watch, steer and answer through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    asks::Asks,
    conversation::Conversation,
    event::Event,
    feed::Feed,
    transcript::{Durability, Transcript, TranscriptError},
};

/// A handle to a running agent.
#[derive(Debug, Clone)]
pub struct Handle {
    transcript: Transcript,
    asks: Asks,
    queue: Arc<Mutex<Queue>>,
}

/// What was said to the agent and not yet heard.
#[derive(Debug)]
struct Queue {
    waiting: BTreeMap<u64, String>,
    senders: BTreeSet<String>,
    next: u64,
}

impl Handle {
    pub(crate) fn new(transcript: Transcript, asks: Asks, conversation: &Conversation) -> Self {
        let queue = Queue {
            waiting: conversation.queue().clone(),
            senders: conversation.senders().clone(),
            next: conversation.next_queued(),
        };
        Self { transcript, asks, queue: Arc::new(Mutex::new(queue)) }
    }

    /// The live log.
    pub fn feed(&self) -> &Feed {
        self.transcript.feed()
    }

    /// The calls that wait for a person.
    pub fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Says something to the agent; it hears it before its next model request. When this returns, the message is on
    /// the disk and will be heard, whatever happens to the process. The same `sender` id twice is one message.
    pub async fn steer(
        &self,
        text: impl Into<String>,
        sender: Option<String>,
    ) -> Result<(), TranscriptError> {
        let text = text.into();
        let number = {
            let mut queue = self.lock();
            if sender.as_ref().is_some_and(|sender| !queue.senders.insert(sender.clone())) {
                return Ok(());
            }
            queue.next += 1;
            queue.next - 1
        };
        let event = Event::Queued { number, text: text.clone(), sender: sender.clone() };
        let recorded = self.transcript.append(event, Durability::Synced).await;
        let mut queue = self.lock();
        match recorded {
            Ok(()) => {
                queue.waiting.insert(number, text);
                Ok(())
            }
            Err(error) => {
                if let Some(sender) = sender {
                    queue.senders.remove(&sender);
                }
                Err(error)
            }
        }
    }

    pub(crate) fn take_queue(&self) -> BTreeMap<u64, String> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Whether somebody has said something that the agent has not heard.
    pub fn is_queue_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
