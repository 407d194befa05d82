//! What a host needs of the agent that it serves: anything that writes our events can be one.

use std::{
    path::PathBuf,
    sync::{Arc, RwLock},
};

use caliban_agent::{
    Agent, AgentChange, TurnReport,
    background::Background,
    budget::Purse,
    event::{Author, Outcome},
    handle::Handle,
    mentions::Mentions,
};
use caliban_core::{
    BoxFuture,
    message::{Effort, Message},
    redact::Redactor,
};
use caliban_permissions::Policy;
use tokio_util::sync::CancellationToken;

/// An agent that a host can serve. What it does is in its feed; a host calls one method at a time.
pub trait Hosted: Send + 'static {
    /// What does not change about the session.
    fn about(&self) -> About;

    /// Its feed, its asks and its queue of messages.
    fn handle(&self) -> Handle;

    /// How many tokens its model can hold, as far as is known.
    fn window(&self) -> u64;

    /// Runs a turn.
    fn prompt<'a>(
        &'a mut self,
        message: Message,
        author: Author,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TurnReport>;

    /// Goes on with a turn that was cut short, or with the messages in the queue.
    fn go_on<'a>(&'a mut self, cancel: &'a CancellationToken) -> BoxFuture<'a, TurnReport>;

    /// Makes room in the model's window.
    fn compact<'a>(&'a mut self, cancel: &'a CancellationToken) -> BoxFuture<'a, Result<(), Outcome>>;

    /// Another model answers from the next turn on, or thinks as hard as this; why not, in words.
    fn configure(&mut self, _change: AgentChange) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Err("the model of this agent cannot be changed here".to_owned()) })
    }

    /// The session's background agents, where it can have any.
    fn background(&self) -> Option<Background> {
        None
    }

    /// Ends everything that it has started.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// What does not change about a session.
pub struct About {
    /// The session's id.
    pub id: String,
    /// Where the agent works.
    pub cwd: PathBuf,
    /// Its name for people.
    pub label: Option<String>,
    /// The model.
    pub model: String,
    /// How hard it thinks.
    pub effort: Effort,
    /// The model's provider.
    pub provider: String,
    /// What it may spend and has spent.
    pub purse: Purse,
    /// Takes secrets out of what is shown in lists.
    pub redactor: Redactor,
    /// What it may do.
    pub policy: Arc<RwLock<Policy>>,
    /// Brings the files along that a person's words name, where it can.
    pub mentions: Option<Mentions>,
    /// Where what a person chooses in the session is written down; nowhere when absent.
    pub directory: Option<PathBuf>,
    /// The models that can be chosen, the present one among them; none where it cannot be changed.
    pub models: Vec<String>,
}

impl Hosted for Agent {
    fn about(&self) -> About {
        let kit = self.kit();
        About {
            id: kit.wanted.session.clone(),
            cwd: kit.workspace.root().to_owned(),
            label: kit.wanted.label.clone(),
            model: kit.model.clone(),
            effort: kit.effort,
            provider: kit.provider.name().to_owned(),
            purse: kit.purse.clone(),
            redactor: kit.shared.redactor.clone(),
            policy: kit.policy.clone(),
            mentions: Some(kit.mentions()),
            directory: Some(kit.wanted.directory.clone()),
            models: models(&kit.model, kit.provider.name()),
        }
    }

    fn handle(&self) -> Handle {
        self.handle()
    }

    fn window(&self) -> u64 {
        self.window()
    }

    fn prompt<'a>(
        &'a mut self,
        message: Message,
        author: Author,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, TurnReport> {
        Box::pin(self.prompt(message, author, cancel))
    }

    fn go_on<'a>(&'a mut self, cancel: &'a CancellationToken) -> BoxFuture<'a, TurnReport> {
        Box::pin(self.go_on(cancel))
    }

    fn compact<'a>(&'a mut self, cancel: &'a CancellationToken) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(self.compact(cancel))
    }

    fn configure(&mut self, change: AgentChange) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.configure(&change).await.map_err(|error| error.to_string()) })
    }

    fn background(&self) -> Option<Background> {
        self.kit().background.clone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(Agent::close(*self))
    }
}

/// The models of the provider that the catalogue knows. A provider that it does not know has the present one.
fn models(model: &str, provider: &str) -> Vec<String> {
    let known = caliban_core::models::all().iter().map(|known| known.name.as_str());
    let mut models: Vec<String> = known
        .filter(|name| caliban_core::models::family(name).vendor == provider)
        .map(str::to_owned)
        .collect();
    if !models.iter().any(|known| known == model) {
        models.insert(0, model.to_owned());
    }
    models
}
