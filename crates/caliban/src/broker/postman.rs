//! Brings an agent its mail, and its senders their receipts.
//!
//! One task of the worker. A message goes into the conversation once, under an id that never changes, and is on disk
//! there before anything else happens; it begins a turn or joins the one that runs. Its receipt (the broker's
//! acknowledgement) is given when it was taken into a turn, never before: a worker that is killed in between finds it in
//! its transcript and gives the receipt then. Refuses: to lose mail over a store that fails; it tries again.

use std::time::Duration;

use caliban_acp_host::SessionHost;
use caliban_agent::feed::{Cursor, Feed, FeedEntry};
use caliban_store::{
    Stamp,
    broker::{
        AgentId, AgentStatus, Broker, BrokerError, Delivery, DeliveryState, MailboxScope, PollQuery, Task,
        TaskId,
    },
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Identity, SenderRole,
    delivered::{LedgerChange, MailLedger, MessageStanding, sender_id},
    frame,
};

/// How long one wait for mail takes; then it is looked whether the agent is still registered.
const LOOK: Duration = Duration::from_secs(60);
/// The first pause after a failure of the store; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the last receipts and the farewell may take.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Delivers to one conversation.
pub(crate) struct Postman {
    identity: Identity,
    host: SessionHost,
    over: CancellationToken,
    stop: CancellationToken,
    task: Option<AbortOnDropHandle<()>>,
}

/// Whether the agent takes part in the session after its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// It has ended.
    Leave,
    /// Its mail waits for it.
    Stay,
}

/// What the last mail did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// There was none.
    AtRest,
    /// The agent works on it.
    AtWork,
}

impl Postman {
    /// Begins to deliver, as soon as the conversation has begun.
    pub(crate) fn start(identity: Identity, host: SessionHost) -> Self {
        let (stop, over) = (CancellationToken::new(), CancellationToken::new());
        let mut postman = Self { identity, host, over, stop, task: None };
        postman.go_on();
        postman
    }

    /// Delivers again after [`Postman::settle`]; does nothing while it delivers.
    pub(crate) fn go_on(&mut self) {
        if self.task.is_none() && !self.over.is_cancelled() {
            self.stop = CancellationToken::new();
            self.task = Some(walk(&self.identity, &self.host, &self.stop, &self.over));
        }
    }

    /// Cancelled when no mail can come any more: the agent was deregistered, or its session deleted.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Delivers what is there, and stops.
    pub(crate) async fn settle(&mut self) -> Settled {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the postman has crashed");
        }
        if self.host.is_running() || self.host.handle().is_queue_waiting() {
            Settled::AtWork
        } else {
            Settled::AtRest
        }
    }

    /// Ends the delivery, and with [`Farewell::Leave`] the agent's part in the session. What was delivered and not heard
    /// is heard when the agent is resumed.
    pub(crate) async fn finish(self, farewell: Farewell) {
        drop(self.task);
        if farewell == Farewell::Leave {
            let _late = tokio::time::timeout(LAST_WORDS, self.identity.leave()).await;
        }
    }
}

fn walk(
    identity: &Identity,
    host: &SessionHost,
    stop: &CancellationToken,
    over: &CancellationToken,
) -> AbortOnDropHandle<()> {
    let round = Round {
        feed: host.handle().feed().clone(),
        cursor: Cursor::default(),
        ledger: MailLedger::default(),
        owed: Vec::new(),
        mailboxes: identity.former.iter().chain([&identity.me.id]).map(|id| (*id, 0)).collect(),
        // What an earlier worker was at, nobody has told the store.
        is_answering: true,
        is_holding: false,
        broker: None,
        identity: identity.clone(),
        host: host.clone(),
        stop: stop.clone(),
    };
    let (stop, over) = (stop.clone(), over.clone());
    AbortOnDropHandle::new(tokio::spawn(async move {
        round.run().await;
        if !stop.is_cancelled() {
            over.cancel();
        }
    }))
}

/// What comes after a step.
enum NextStep {
    Again,
    Over,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The transcript cannot be written, or the session is closed; then the worker is about to end.
    #[error("{0}")]
    Unsaid(String),
}

/// The task's state.
struct Round {
    identity: Identity,
    host: SessionHost,
    feed: Feed,
    cursor: Cursor,
    ledger: MailLedger,
    /// Receipts that are due.
    owed: Vec<TaskId>,
    /// Former mailboxes, then the one that mail comes into; each with the last place that was looked at.
    mailboxes: Vec<(AgentId, i64)>,
    /// Whether the store may think that the agent answers something.
    is_answering: bool,
    /// Whether messages were passed over because too many came in a row.
    is_holding: bool,
    /// Closed after every failure.
    broker: Option<Broker>,
    /// Ends the round where it would wait; a delivery is never cut short, or the conversation on disk and the one in
    /// memory would differ.
    stop: CancellationToken,
}

impl Round {
    async fn run(mut self) {
        self.read_feed();
        // Receipts that an earlier worker owed are those for what is still open: the first look finds them.
        self.owed.clear();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.step().await {
                Ok(NextStep::Again) => pause = FIRST_PAUSE,
                Ok(NextStep::Over) => break,
                Err(error) => {
                    tracing::warn!(%error, "the broker's mail waits");
                    self.broker = None;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.stop.cancelled() => break,
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn read_feed(&mut self) {
        while let Some(entry) = self.feed.next(&mut self.cursor) {
            take(&mut self.ledger, &entry);
        }
        self.owed.extend(self.ledger.take_owed());
    }

    async fn broker(&mut self) -> Result<&mut Broker, BrokerError> {
        let broker = match self.broker.take() {
            Some(broker) => broker,
            None => self.identity.open().await?,
        };
        Ok(self.broker.insert(broker))
    }

    async fn step(&mut self) -> Result<NextStep, Trouble> {
        self.read_feed();
        self.give_receipts().await?;
        self.end_answers().await?;
        if self.is_holding && self.ledger.admits(SenderRole::Agent) {
            self.is_holding = false;
            self.mailboxes.iter_mut().for_each(|(_, after)| *after = 0);
        }
        for at in 0..self.mailboxes.len() {
            if self.ledger.room() == 0 {
                break;
            }
            let query = self.query(at);
            let page = self.broker().await?.poll(&query).await?;
            if !page.tasks.is_empty() {
                for task in page.tasks {
                    self.deliver(&task).await?;
                    self.mailboxes[at].1 = task.seq;
                }
                return Ok(NextStep::Again);
            }
        }
        self.wait().await
    }

    fn query(&self, at: usize) -> PollQuery {
        let (agent, after) = self.mailboxes[at];
        let page_size = u32::try_from(self.ledger.room()).unwrap_or(u32::MAX);
        PollQuery { agent, scope: MailboxScope::Open, since: None, after: Some(after), page_size }
    }

    /// Puts one open message of a mailbox into the conversation, unless it is there.
    async fn deliver(&mut self, task: &Task) -> Result<(), Trouble> {
        match self.ledger.standing(task.id) {
            MessageStanding::Waiting => return Ok(()),
            MessageStanding::Heard => {
                if !self.owed.contains(&task.id) {
                    self.owed.push(task.id);
                }
                return Ok(());
            }
            MessageStanding::New => {}
        }
        let session = self.identity.session.clone();
        let (sender, role) = super::sender(self.broker().await?, &session, task).await?;
        if !self.ledger.admits(role) {
            if !std::mem::replace(&mut self.is_holding, true) {
                crate::report::note(
                    "too many messages of agents in a row: more of them wait in the mailbox until somebody else says \
                     something to this agent",
                );
            }
            return Ok(());
        }
        let text = frame::message(task, sender.as_ref(), role, 0);
        let said = self.host.deliver(text, Some(sender_id(task.id, role))).await;
        said.map_err(|error| Trouble::Unsaid(error.to_string()))?;
        // It is in the feed now, and counts for the next one.
        self.read_feed();
        Ok(())
    }

    async fn give_receipts(&mut self) -> Result<(), Trouble> {
        while let Some(&task) = self.owed.first() {
            let (session, is_member) = (self.identity.session.id, self.identity.member().is_some());
            let broker = self.broker().await?;
            if is_member {
                // It is in the transcript and in a turn: that is the evidence which others look for on a screen.
                let confirmed = Delivery { state: DeliveryState::Confirmed, note: None };
                broker.record_delivery(task, &confirmed).await?;
            }
            let result = match broker.task(session, &task.into()).await {
                Ok(found) => broker.ack(session, &found.context.into(), &task.into(), Stamp::now()).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(_) => {}
                Err(BrokerError::Store(error)) => return Err(BrokerError::Store(error).into()),
                // Acknowledged by the model before, or taken back by its sender: then it is settled.
                Err(settled) => tracing::debug!(%task, %settled, "no receipt"),
            }
            self.owed.remove(0);
        }
        Ok(())
    }

    /// Tells the store when the agent is done with what it has heard, so that what it says next answers nothing.
    async fn end_answers(&mut self) -> Result<(), Trouble> {
        if self.is_answering && !self.ledger.is_answering() {
            self.broker().await?.answered().await?;
            self.is_answering = false;
        }
        self.is_answering |= self.ledger.is_answering();
        Ok(())
    }

    /// Until mail comes, or the conversation gives a reason to act.
    async fn wait(&mut self) -> Result<NextStep, Trouble> {
        let (room, query) = (self.ledger.room(), self.query(self.mailboxes.len().saturating_sub(1)));
        self.broker().await?;
        let Self { feed, cursor, ledger, broker: Some(broker), stop, .. } = self else {
            return Ok(NextStep::Again);
        };
        tokio::select! {
            page = broker.wait(&query, LOOK), if room > 0 => if !page?.tasks.is_empty() {
                return Ok(NextStep::Again);
            },
            change = heard_or_closed(feed, cursor, ledger) => return Ok(match change {
                LedgerChange::Act => NextStep::Again,
                LedgerChange::None => NextStep::Over,
            }),
            () = stop.cancelled() => return Ok(NextStep::Over),
        }
        let (session, me) = (self.identity.session.id, self.identity.me.id);
        let me = self.broker().await?.member(session, &me.into()).await?;
        if me.status == AgentStatus::Active {
            return Ok(NextStep::Again);
        }
        crate::report::note("the agent is no longer registered with the broker: no more mail");
        Ok(NextStep::Over)
    }
}

/// Reads on until there is something to do; [`LedgerChange::None`] when the conversation is closed.
async fn heard_or_closed(feed: &Feed, cursor: &mut Cursor, ledger: &mut MailLedger) -> LedgerChange {
    while let Some(entry) = feed.wait(cursor).await {
        if take(ledger, &entry) == LedgerChange::Act {
            return LedgerChange::Act;
        }
    }
    LedgerChange::None
}

fn take(ledger: &mut MailLedger, entry: &FeedEntry) -> LedgerChange {
    match entry {
        FeedEntry::Record(record) => ledger.take(&record.event),
        _ => LedgerChange::None,
    }
}
