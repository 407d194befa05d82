//! What others hold of a running agent: they watch, steer and answer through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{
    asks::Asks,
    conversation::Conversation,
    event::{Author, Event, QueuedMessage},
    feed::Feed,
    transcript::{Durability, Transcript, TranscriptError},
};

/// A handle to a running agent.
#[derive(Debug, Clone)]
pub struct Handle {
    transcript: Transcript,
    asks: Asks,
    queue: Arc<Mutex<Queue>>,
    /// Changes when somebody has spoken, or has given up.
    spoken: watch::Sender<()>,
}

/// What was said to the agent and not yet heard.
#[derive(Debug)]
struct Queue {
    waiting: BTreeMap<u64, QueuedMessage>,
    senders: BTreeSet<String>,
    /// The ids of what is on its way to the disk.
    speaking: BTreeSet<String>,
    next: u64,
}

impl Handle {
    /// For an agent that writes this transcript; `conversation` is what the transcript holds already.
    pub fn new(transcript: Transcript, asks: Asks, conversation: &Conversation) -> Self {
        let queue = Queue {
            waiting: conversation.queue().clone(),
            senders: conversation.senders().clone(),
            speaking: BTreeSet::new(),
            next: conversation.next_queued(),
        };
        Self { transcript, asks, queue: Arc::new(Mutex::new(queue)), spoken: watch::Sender::new(()) }
    }

    /// The live log.
    pub fn feed(&self) -> &Feed {
        self.transcript.feed()
    }

    /// The calls that wait for a person.
    pub fn asks(&self) -> &Asks {
        &self.asks
    }

    /// A person says something to the agent; it hears it before its next model request. When this returns, the message
    /// is on the disk and will be heard, whatever happens to the process. The same `sender` id twice is one message.
    pub async fn steer(
        &self,
        text: impl Into<String>,
        sender: Option<String>,
    ) -> Result<(), TranscriptError> {
        self.queue(text.into(), Author::User, sender).await
    }

    /// The same for any author.
    pub async fn queue(
        &self,
        text: String,
        author: Author,
        sender: Option<String>,
    ) -> Result<(), TranscriptError> {
        let mut spoken = self.spoken.subscribe();
        let number = loop {
            {
                let mut queue = self.lock();
                match &sender {
                    Some(sender) if queue.senders.contains(sender) => return Ok(()),
                    Some(sender) if !queue.speaking.insert(sender.clone()) => {}
                    _ => {
                        queue.next += 1;
                        break queue.next - 1;
                    }
                }
            }
            // The same was said a moment ago: when that is on the disk, this is.
            let _our_own_sender_lives = spoken.changed().await;
        };
        let _speaking = sender.clone().map(|sender| Speaking { handle: self, sender });
        let event =
            Event::Queued { number, text: text.clone(), sender: sender.clone(), author: author.clone() };
        self.transcript.append(event, Durability::Synced).await?;
        let mut queue = self.lock();
        queue.senders.extend(sender);
        queue.waiting.insert(number, QueuedMessage { text, author });
        drop(queue);
        self.spoken.send_replace(());
        Ok(())
    }

    /// Ends when somebody has said something that the agent has not heard.
    pub(crate) async fn spoken(&self) {
        let mut spoken = self.spoken.subscribe();
        while !self.is_queue_waiting() {
            let _our_own_sender_lives = spoken.changed().await;
        }
    }

    /// Takes what was said and not heard, by its number in the transcript.
    pub fn take_queue(&self) -> BTreeMap<u64, QueuedMessage> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Whether somebody has said something that the agent has not heard.
    pub fn is_queue_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Whether somebody has said something that begins a turn: what Caliban tells waits for one.
    pub fn is_turn_wanted(&self) -> bool {
        self.lock().waiting.values().any(|message| message.author != Author::Caliban)
    }

    /// Writes down something that people should know.
    pub async fn note(&self, text: String) -> Result<(), TranscriptError> {
        self.transcript.append(Event::Note { text }, Durability::Synced).await
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody whose words are on their way to the disk.
struct Speaking<'a> {
    handle: &'a Handle,
    sender: String,
}

impl Drop for Speaking<'_> {
    fn drop(&mut self) {
        self.handle.lock().speaking.remove(&self.sender);
        self.handle.spoken.send_replace(());
    }
}
