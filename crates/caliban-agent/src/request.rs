//! One model request and what it takes: reserved and recorded before it is sent, settled when it is over.
//!
//! What was sent counts. An attempt that ends without a whole answer counts as what the stream has said so far, at
//! least as what was reserved for it; one that the server did not begin to answer counts nothing. The records say the
//! same, so a process that is killed in the middle leaves a request that counts, too.

use std::time::Instant;

use caliban_core::{
    message::{Effort, Message, ToolSpec},
    usage::Usage,
    wait::{Pause, Wait},
};
use caliban_providers::{
    Billed, BoxFuture, Calls, Delta, ModelReply, ModelRequest, ProviderError, Stopped, WaitCause, Watch,
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, Kit},
    budget::{AtLimit, BudgetAttempt, Estimated, LEDGER_PAUSE, NotReserved, Reserved},
    event::{Event, Outcome},
    feed::{Feed, FeedEntry},
    transcript::{Durability, Transcript, TranscriptError},
    turn::{Halt, milliseconds},
};

/// What a request is made of beside the agent's own parts.
#[derive(Clone, Copy)]
pub(crate) struct RequestParts<'a> {
    /// The messages; the conversation when absent.
    pub(crate) messages: Option<&'a [Message]>,
    pub(crate) tools: &'a [ToolSpec],
    pub(crate) calls: Calls,
    pub(crate) max_output: Option<u32>,
    pub(crate) effort: Effort,
    pub(crate) audience: Audience,
}

/// Who sees an answer come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All who watch the agent.
    Everybody,
    /// Nobody; only waits are shown.
    Nobody,
}

#[derive(Debug)]
pub(crate) enum Failed {
    Model(ProviderError),
    Budget(AtLimit),
    /// The ledger cannot be written: nothing may be sent.
    Ledger(String),
    Storage(TranscriptError),
}

impl From<NotReserved> for Failed {
    fn from(error: NotReserved) -> Self {
        match error {
            NotReserved::Limit(limit) => Self::Budget(limit),
            NotReserved::Ledger(_) => Self::Ledger(error.to_string()),
        }
    }
}

impl Failed {
    pub(crate) fn into_halt(self) -> Halt {
        Halt::Outcome(match self {
            Self::Model(ProviderError::Cancelled) => Outcome::Cancelled,
            Self::Model(error) => Outcome::Failed { error: error.to_string(), hint: error.hint() },
            Self::Budget(limit) => Outcome::Budget { limit: limit.to_string() },
            Self::Ledger(error) => Outcome::failed(error),
            Self::Storage(error) => return Halt::Storage(error),
        })
    }
}

impl Agent {
    /// Asks the model once, retries included. How long the answer took is in milliseconds. At a limit a person may be asked,
    /// and the same request goes on.
    pub(crate) async fn request(
        &mut self,
        question: RequestParts<'_>,
        cancel: &CancellationToken,
    ) -> Result<(ModelReply, u64), Failed> {
        loop {
            match self.request_in_budget(question, cancel).await {
                Err(Failed::Budget(limit)) if !self.asks_for_more(&limit, cancel).await? => {
                    return Err(Failed::Budget(limit));
                }
                Err(Failed::Budget(_)) => {}
                other => return other,
            }
        }
    }

    async fn request_in_budget(
        &mut self,
        question: RequestParts<'_>,
        cancel: &CancellationToken,
    ) -> Result<(ModelReply, u64), Failed> {
        self.keep_quiet(cancel).await?;
        let mut meter = Meter::new(&self.kit, &self.transcript, self.estimate(), question.audience, cancel);
        let request = ModelRequest {
            model: &self.kit.model,
            system: &self.kit.system,
            tools: question.tools,
            calls: question.calls,
            messages: question.messages.unwrap_or(self.conversation.messages()),
            max_output: question.max_output,
            effort: question.effort,
            session: &self.kit.wanted.session,
        };
        let mut reserving = meter.reserving.subscribe();
        let out_of_time = async {
            // Disk latency is not model time; a wait for its turn is the request's.
            while reserving.wait_for(|is_reserving| !is_reserving).await.is_ok() {
                tokio::select! {
                    () = self.kit.purse.out_of_time() => return,
                    _ = reserving.wait_for(|is_reserving| *is_reserving) => {}
                }
            }
        };
        let result = tokio::select! {
            result = self.kit.provider.respond(request, &mut meter, cancel) => result,
            () = cancel.cancelled() => Err(ProviderError::Cancelled),
            () = out_of_time => Err(ProviderError::Cancelled),
        };
        let settled = meter.settle(&result).await;
        let (recorded, stopped, sent_at) = (meter.recorded, meter.stopped, meter.sent_at);
        for event in &recorded {
            self.conversation.apply(event);
        }
        settled.map_err(Failed::Storage)?;
        match (result, stopped) {
            // Neither a queue nor the disk is the model's time.
            (Ok(reply), _) => Ok((reply, sent_at.map_or(0, |sent| milliseconds(sent.elapsed())))),
            (Err(_), Some(failed)) => Err(failed),
            // The end of the time that the agent may take shows as a cancelled request.
            (Err(error), None) => match self.kit.purse.time_is_up() {
                Some(refusal) if !cancel.is_cancelled() => Err(Failed::Budget(refusal.into())),
                _ => Err(Failed::Model(error)),
            },
        }
    }
}

/// A reservation, with limits that are nearly reached; or why there is none.
type LedgerAnswer = Result<(Reserved, Vec<String>), NotReserved>;

struct Meter<'a> {
    kit: &'a Kit,
    transcript: &'a Transcript,
    cancel: &'a CancellationToken,
    feed: Feed,
    audience: Audience,
    estimate: Estimated,
    /// Asks the ledger; ends by itself when the request is dropped meanwhile.
    asking: Option<JoinHandle<LedgerAnswer>>,
    /// Held while an attempt is under way: a request that waits for its turn, or for a server, holds nothing.
    reservation: Option<Reserved>,
    /// Writes down that the request takes more than was reserved.
    counting: Option<JoinHandle<()>>,
    /// Whether an attempt is under way.
    is_sent: bool,
    /// When the first one was sent.
    sent_at: Option<Instant>,
    /// Whether one is being reserved and recorded.
    reserving: watch::Sender<bool>,
    /// What the attempt counts.
    attempt: BudgetAttempt,
    recorded: Vec<Event>,
    stopped: Option<Failed>,
}

impl<'a> Meter<'a> {
    fn new(
        kit: &'a Kit,
        transcript: &'a Transcript,
        estimate: Estimated,
        audience: Audience,
        cancel: &'a CancellationToken,
    ) -> Self {
        let feed = transcript.feed().clone();
        Self {
            kit,
            transcript,
            cancel,
            feed,
            audience,
            estimate,
            asking: None,
            reservation: None,
            counting: None,
            is_sent: false,
            sent_at: None,
            reserving: watch::Sender::new(false),
            attempt: BudgetAttempt::new(estimate),
            recorded: Vec::new(),
            stopped: None,
        }
    }

    async fn record(&mut self, event: Event) -> Result<(), TranscriptError> {
        self.transcript.append(event.clone(), Durability::Written).await?;
        self.recorded.push(event);
        Ok(())
    }

    /// Reserves an attempt that is about to be sent, and records it. May be dropped at any moment: [`Self::settle`] knows how far it
    /// came.
    async fn begin(&mut self) -> Result<(), Failed> {
        let (reserved, near) = self.reserve().await?;
        self.reservation = Some(reserved);
        let mut events: Vec<Event> = near.into_iter().map(|text| Event::Note { text }).collect();
        events.push(Event::Asked { estimate: self.estimate.usage(), model: Some(self.kit.model.clone()) });
        for event in events {
            self.record(event).await.map_err(Failed::Storage)?;
        }
        (self.is_sent, self.attempt) = (true, BudgetAttempt::new(self.estimate));
        self.sent_at.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Waits while the ledger has no room or is not there: nothing is sent meanwhile.
    async fn reserve(&mut self) -> Result<(Reserved, Vec<String>), Failed> {
        loop {
            let asking = self.asking.get_or_insert_with(|| {
                let (purse, model, estimate) =
                    (self.kit.purse.clone(), self.kit.model.clone(), self.estimate);
                tokio::spawn(async move { purse.reserve(estimate, &model).await })
            });
            let asked = asking.await;
            self.asking = None;
            let refused = match asked.map_err(|error| Failed::Ledger(error.to_string()))? {
                Ok(granted) => return Ok(granted),
                Err(refused) => refused,
            };
            let Some(wait) = refused.wait() else { return Err(refused.into()) };
            self.feed.push(FeedEntry::Waiting(wait));
            tokio::select! {
                () = tokio::time::sleep(LEDGER_PAUSE) => {}
                () = self.cancel.cancelled() => return Err(Failed::Model(ProviderError::Cancelled)),
            }
        }
    }

    /// The request took this much.
    async fn book(&mut self, reserved: Reserved, usage: Usage) {
        if let Some(counting) = self.counting.take() {
            // It only writes, and what it would have written is known better now.
            let _ended = counting.await;
        }
        let feed = self.feed.clone();
        self.kit.purse.settle(reserved, usage, &|wait| feed.push(FeedEntry::Waiting(wait))).await;
    }

    /// The attempt is over without an answer.
    async fn fail(&mut self, billed: Billed) -> Result<(), TranscriptError> {
        self.is_sent = false;
        let counts = match (billed, self.attempt.so_far()) {
            (Billed::Perhaps, _) => Some(self.attempt.unknown()),
            (Billed::No, so_far) => so_far,
        };
        let Some(usage) = counts else { return self.give_back().await };
        if let Some(reserved) = self.reservation.take() {
            self.book(reserved, usage).await;
        }
        self.record(Event::Unanswered { usage }).await
    }

    /// Nothing is billed for what was reserved.
    async fn give_back(&mut self) -> Result<(), TranscriptError> {
        let Some(reserved) = self.reservation.take() else { return Ok(()) };
        self.kit.purse.release(reserved).await;
        self.record(Event::Unanswered { usage: Usage::default() }).await
    }

    /// The request is over.
    async fn settle(&mut self, result: &Result<ModelReply, ProviderError>) -> Result<(), TranscriptError> {
        if let Ok(reply) = result {
            match self.reservation.take() {
                Some(reserved) => self.book(reserved, reply.usage).await,
                // A provider that asks nobody before its attempts.
                None => self.kit.purse.carry_over(reply.usage, self.kit.purse.cost(reply.usage)),
            }
            return Ok(());
        }
        // Dropped while the ledger was asked.
        if let Some(asking) = self.asking.take()
            && let Ok(Ok((reserved, _))) = asking.await
        {
            self.kit.purse.release(reserved).await;
        }
        // Nobody told how the attempt ended: it was dropped.
        if self.is_sent
            && let Err(ProviderError::Cancelled | ProviderError::Cut { .. } | ProviderError::Stalled { .. }) =
                result
        {
            self.fail(Billed::Perhaps).await?;
        }
        self.give_back().await
    }
}

impl Watch for Meter<'_> {
    fn see(&mut self, delta: Delta) {
        match &delta {
            Delta::Text(text) | Delta::Thinking(text) => self.attempt.says(text.len() as u64),
            Delta::Usage(usage) => {
                if self.attempt.counted(*usage) {
                    // A process that is killed now leaves a request that counts as much.
                    self.transcript.append_soon(Event::Counted { usage: *usage });
                    self.recorded.push(Event::Counted { usage: *usage });
                    if let Some(reserved) = self.reservation.clone() {
                        let (purse, usage) = (self.kit.purse.clone(), *usage);
                        self.counting =
                            Some(tokio::spawn(async move { purse.count(&reserved, usage).await }));
                    }
                }
            }
            Delta::ToolUse { .. } | Delta::Restart { .. } | Delta::Waiting { .. } => {}
        }
        if let Some(entry) = entry(delta, self.audience) {
            self.feed.push(entry);
        }
    }

    fn before_attempt<'a>(&'a mut self) -> BoxFuture<'a, Result<(), Stopped>> {
        Box::pin(async move {
            self.reserving.send_replace(true);
            let begun = self.begin().await;
            self.reserving.send_replace(false);
            begun.map_err(|failed| {
                self.stopped = Some(failed);
                Stopped
            })
        })
    }

    fn attempt_failed<'a>(&'a mut self, billed: Billed) -> BoxFuture<'a, Result<(), Stopped>> {
        Box::pin(async move {
            self.fail(billed).await.map_err(|error| {
                self.stopped = Some(Failed::Storage(error));
                Stopped
            })
        })
    }
}

fn entry(delta: Delta, audience: Audience) -> Option<FeedEntry> {
    let is_shown = audience == Audience::Everybody;
    match delta {
        Delta::Text(text) => is_shown.then_some(FeedEntry::Text(text)),
        Delta::Thinking(text) => is_shown.then_some(FeedEntry::Thinking(text)),
        Delta::ToolUse { id, name } => is_shown.then_some(FeedEntry::ToolUse { id, name }),
        Delta::Restart { reason } => is_shown.then_some(FeedEntry::Restart { reason }),
        Delta::Waiting { reason, wait, cause } => {
            let ms = milliseconds(wait);
            let now = caliban_contract::wall_ms();
            let pause = Pause { reason, ms, until_ms: now.saturating_add(ms) };
            Some(FeedEntry::Waiting(match cause {
                WaitCause::RateLimit => Wait::RateLimit(pause),
                WaitCause::Outage => Wait::Outage(pause),
                WaitCause::Retry => Wait::Retry(pause),
            }))
        }
        Delta::Usage(_) => None,
    }
}
