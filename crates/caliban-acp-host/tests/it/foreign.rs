//! An agent that is not ours: it writes the same events, and clients see no difference.

use std::sync::{Arc, RwLock};

use caliban_acp::v1::StopReason;
use caliban_acp_host::{Clients, Hosted, SessionHost, Sessions, host::About};
use caliban_agent::{
    TurnReport,
    asks::Asks,
    budget::Purse,
    conversation::Conversation,
    event::{Author, Event, Header, Outcome, TRANSCRIPT_VERSION},
    feed::Feed,
    handle::Handle,
    transcript::{Durability, Transcript},
};
use caliban_core::{
    BoxFuture,
    message::{Message, Role, StopReason as Stop},
    redact::Redactor,
    usage::Usage,
};
use caliban_permissions::Policy;
use tokio_util::sync::CancellationToken;

use crate::world::{Item, Watcher};

/// Says what it is told.
struct Echo {
    directory: tempfile::TempDir,
    transcript: Transcript,
    handle: Handle,
}

impl Echo {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let redactor = Redactor::new(Vec::<(String, String)>::new());
        let transcript = Transcript::create(directory.path(), redactor, Feed::default()).unwrap();
        let header = Header {
            version: TRANSCRIPT_VERSION,
            session: "echo".into(),
            cwd: directory.path().into(),
            provider: "echo".into(),
            model: "echo".into(),
            label: None,
            parent: None,
        };
        transcript.append(Event::Started(header), Durability::Written).await.unwrap();
        let handle = Handle::new(transcript.clone(), Asks::default(), &Conversation::default());
        Self { directory, transcript, handle }
    }

    async fn record(&self, event: Event) {
        self.transcript.append(event, Durability::Written).await.unwrap();
    }

    async fn turn(&mut self, said: Vec<(Message, Author, Option<u64>)>) -> TurnReport {
        for (message, author, queued) in said {
            let echo = Message { role: Role::Assistant, ..message.clone() };
            self.record(Event::Prompt { message, author, context: 0, queued }).await;
            let reply = Event::Reply {
                message: echo,
                usage: Usage::default(),
                stop: Stop::EndTurn,
                model: "echo".into(),
                ms: 0,
            };
            self.record(reply).await;
        }
        let (outcome, usage) = (Outcome::Done, Usage::default());
        self.record(Event::TurnEnded { outcome: outcome.clone(), usage, micro_usd: None, turns: 1 }).await;
        TurnReport {
            outcome,
            text: String::new(),
            usage,
            micro_usd: None,
            turns: 1,
            refused: Vec::new(),
            structured: None,
            notes: Vec::new(),
            elapsed: std::time::Duration::ZERO,
        }
    }
}

impl Hosted for Echo {
    fn about(&self) -> About {
        let root = self.directory.path().to_owned();
        About {
            id: "echo".into(),
            cwd: root.clone(),
            label: None,
            model: "echo".into(),
            effort: Default::default(),
            provider: "echo".into(),
            purse: Purse::new("echo", None, None),
            redactor: Redactor::new(Vec::<(String, String)>::new()),
            policy: Arc::new(RwLock::new(Policy::new(root.clone(), root))),
            mentions: None,
            directory: None,
            models: Vec::new(),
        }
    }

    fn handle(&self) -> Handle {
        self.handle.clone()
    }

    fn window(&self) -> u64 {
        0
    }

    fn prompt<'a>(
        &'a mut self,
        message: Message,
        author: Author,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TurnReport> {
        Box::pin(self.turn(vec![(message, author, None)]))
    }

    fn go_on<'a>(&'a mut self, _cancel: &'a CancellationToken) -> BoxFuture<'a, TurnReport> {
        let queue = self.handle.take_queue().into_iter();
        let said = queue.map(|(number, said)| (Message::user(said.text), said.author, Some(number)));
        Box::pin(self.turn(said.collect()))
    }

    fn compact<'a>(&'a mut self, _cancel: &'a CancellationToken) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Err(Outcome::failed("an echo forgets nothing")) })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.transcript.close().await })
    }
}

#[tokio::test]
async fn an_agent_that_is_not_ours_is_served_all_the_same() {
    let host = SessionHost::start(Echo::start().await, Clients::Many);
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut author = Watcher::attach(&sessions, &host).await;
    let mut bystander = Watcher::attach(&sessions, &host).await;
    let answer = author.prompt("echo", "hello").await;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    bystander.until(|watcher| watcher.ends.len() == 1).await;
    let shown = [Item::Title("hello".into()), Item::User("hello".into()), Item::Agent("hello".into())];
    assert_eq!(bystander.view(), shown);
    assert_eq!(author.view(), [shown[0].clone(), shown[2].clone()]);
    host.deliver("again".into(), None).await.unwrap().ended().await.unwrap();
    bystander.until(|watcher| watcher.ends.len() == 2).await;
    assert_eq!(bystander.text(), "helloagain");
    host.close().await;
}
