//! The broker's tools for the model: who is there, send, broadcast, read, acknowledge.
//!
//! They act as the one agent that the worker is (a11): no argument names a sender, and the store wants to see the
//! worker's capability. They touch nothing but the broker, so
//! no permission is asked for; rules by the tool's name apply.

use std::sync::Arc;

use caliban_core::{access::Access, inert, message::ToolSpec, redact::Redactor};
use caliban_store::{
    Stamp,
    broker::{
        Agent, Broker, BrokerError, IdPrefix, MailboxScope, NewBroadcast, NewMessage, PollQuery, Task,
        TaskState,
    },
};
use caliban_tools::{BoxFuture, CallContext, Tool, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Identity, SenderRole, frame,
    limits::{DESCRIPTION_CHARS, INBOX, LISTED, SENT_BYTES},
};

/// The tools of the agent with this identity.
pub(crate) fn tools(identity: &Identity, redactor: &Redactor) -> Vec<Arc<dyn Tool>> {
    let desk = Arc::new(BrokerTools {
        identity: identity.clone(),
        redactor: redactor.clone(),
        broker: tokio::sync::Mutex::new(None),
    });
    Verb::ALL
        .into_iter()
        .map(|verb| Arc::new(BrokerTool { desk: desk.clone(), verb, spec: verb.spec() }) as Arc<dyn Tool>)
        .collect()
}

/// What the five share.
struct BrokerTools {
    identity: Identity,
    redactor: Redactor,
    /// Opened by the first call, and anew after one that failed or was cancelled.
    broker: tokio::sync::Mutex<Option<Broker>>,
}

struct BrokerTool {
    desk: Arc<BrokerTools>,
    verb: Verb,
    spec: ToolSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Agents,
    Send,
    Broadcast,
    Inbox,
    Ack,
}

/// A call whose arguments make sense.
#[derive(Debug, PartialEq)]
enum BrokerCall {
    Agents,
    Send { to: String, text: String },
    Broadcast { text: String },
    Inbox,
    Show { id: IdPrefix, offset: usize },
    Ack { id: IdPrefix },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BrokerToolInput {
    to: Option<String>,
    text: Option<String>,
    id: Option<String>,
    offset: Option<Value>,
}

/// What they are called.
#[cfg(test)]
pub(crate) fn tool_names() -> impl Iterator<Item = &'static str> {
    Verb::ALL.into_iter().map(Verb::name)
}

impl Verb {
    const ALL: [Self; 5] = [Self::Agents, Self::Send, Self::Broadcast, Self::Inbox, Self::Ack];

    fn name(self) -> &'static str {
        match self {
            Self::Agents => "BrokerAgents",
            Self::Send => "BrokerSend",
            Self::Broadcast => "BrokerBroadcast",
            Self::Inbox => "BrokerInbox",
            Self::Ack => "BrokerAck",
        }
    }

    fn spec(self) -> ToolSpec {
        let text = json!({"type": "string", "description": "the message"});
        let (description, properties, required) = match self {
            Self::Agents => (
                "List the agents of your broker session: id, name, role, what each is for.",
                json!({}),
                vec![],
            ),
            Self::Send => (
                "Send a message to one agent. It is stored when this returns; an agent of the fleet hears it at its next \
                 turn, and is woken when it is idle. Answers come to you by themselves: do not wait for them.",
                json!({"to": {"type": "string", "description": "name or id of the agent"}, "text": text}),
                vec!["to", "text"],
            ),
            Self::Broadcast => {
                ("Send a message to every other agent of your session.", json!({"text": text}), vec!["text"])
            }
            Self::Inbox => (
                "Without id: your messages that you have not heard yet (they come by themselves). With id: one message \
                 that you sent or got, and whether its recipient has it.",
                json!({
                    "id": {"type": "string", "description": "a message's id"},
                    "offset": {"type": "integer", "description": "read a long body from this character on"},
                }),
                vec![],
            ),
            Self::Ack => (
                "Acknowledge a message that you have read with BrokerInbox. What came to you by itself is acknowledged \
                 already.",
                json!({"id": {"type": "string", "description": "the message's id"}}),
                vec!["id"],
            ),
        };
        ToolSpec {
            name: self.name().into(),
            description: description.into(),
            input_schema: json!({"type": "object", "properties": properties, "required": required}),
        }
    }

    fn order(self, input: &Value) -> Result<BrokerCall, String> {
        let name = self.name();
        let input = match input {
            Value::Null => BrokerToolInput::default(),
            Value::Object(_) => {
                BrokerToolInput::deserialize(input).map_err(|error| format!("{name}: {error}"))?
            }
            _ => return Err(format!("{name}: the arguments must be one JSON object")),
        };
        let missing = |field: &str| format!("{name}: `{field}` is missing");
        let text = || checked(name, input.text.clone().ok_or_else(|| missing("text"))?);
        let id = |id: &str| IdPrefix::parse(id.trim()).map_err(|error| format!("{name}: {error}"));
        Ok(match self {
            Self::Agents => BrokerCall::Agents,
            Self::Send => {
                BrokerCall::Send { to: input.to.clone().ok_or_else(|| missing("to"))?, text: text()? }
            }
            Self::Broadcast => BrokerCall::Broadcast { text: text()? },
            Self::Inbox => match input.id.as_deref().filter(|id| !id.trim().is_empty()) {
                Some(given) => {
                    BrokerCall::Show { id: id(given)?, offset: offset(name, input.offset.as_ref())? }
                }
                None => BrokerCall::Inbox,
            },
            Self::Ack => BrokerCall::Ack { id: id(input.id.as_deref().ok_or_else(|| missing("id"))?)? },
        })
    }
}

impl Tool for BrokerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        self.verb.order(input).map(|_| vec![Access::Nothing])
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let order = match self.verb.order(&input) {
                Ok(order) => order,
                Err(problem) => return ToolOutput::error(problem),
            };
            tokio::select! {
                output = self.desk.carry_out(order) => output,
                // The connection goes with the call: what was half done is rolled back.
                () = call.cancel.cancelled() => {
                    ToolOutput::error("cancelled; whether anything was sent is not known")
                }
            }
        })
    }
}

impl BrokerTools {
    async fn carry_out(&self, order: BrokerCall) -> ToolOutput {
        let mut slot = self.broker.lock().await;
        // Taken out: a call that is cancelled takes its connection with it.
        let opened = match slot.take() {
            Some(broker) => Ok(broker),
            None => self.identity.open().await,
        };
        let mut broker = match opened {
            Ok(broker) => broker,
            Err(error) => return ToolOutput::error(format!("the broker's store: {error}")),
        };
        let result = match order {
            BrokerCall::Agents => self.agents(&mut broker).await,
            BrokerCall::Send { to, text } => self.send(&mut broker, &to, &text).await,
            BrokerCall::Broadcast { text } => self.broadcast(&mut broker, &text).await,
            BrokerCall::Inbox => self.inbox(&mut broker).await,
            BrokerCall::Show { id, offset } => self.show(&mut broker, &id, offset).await,
            BrokerCall::Ack { id } => self.ack(&mut broker, &id).await,
        };
        let words = match result {
            Err(BrokerError::Store(error)) => {
                return ToolOutput::error(format!("the broker's store: {error}"));
            }
            Ok(output) => Ok(output),
            Err(BrokerError::Ambiguous { given, candidates }) => {
                Err(format!("'{given}' could be any of these: {}", candidates.join(", ")))
            }
            Err(other) => Err(other.to_string()),
        };
        *slot = Some(broker);
        words.unwrap_or_else(ToolOutput::error)
    }

    async fn agents(&self, broker: &mut Broker) -> Result<ToolOutput, BrokerError> {
        let session = &self.identity.session;
        let agents = broker.agents(session.id).await?;
        let mut text = String::new();
        for agent in agents.iter().take(LISTED) {
            let you = if agent.id == self.identity.me.id { " (you)" } else { "" };
            let description: String =
                inert::line(&agent.description).chars().take(DESCRIPTION_CHARS).collect();
            let (name, role) =
                (frame::quoted(&agent.name), SenderRole::of(agent.id, agent.kind, session).name());
            text.push_str(&format!("{} {role} {name}{you}: {description}\n", agent.id));
        }
        if agents.len() > LISTED {
            text.push_str(&format!("[and {} more]\n", agents.len() - LISTED));
        }
        Ok(ToolOutput::text(text, format!("{} agents", agents.len())))
    }

    async fn send(&self, broker: &mut Broker, to: &str, text: &str) -> Result<ToolOutput, BrokerError> {
        let (session, me) = (self.identity.session.id, self.identity.me.id);
        let to = match recipient(broker.agents(session).await?, to) {
            Ok(to) => to,
            Err(words) => return Ok(ToolOutput::error(words)),
        };
        if to == me.into() {
            return Ok(ToolOutput::error("that is you; nothing was sent"));
        }
        let text = self.redactor.redact(text).into_owned();
        let sent =
            broker.send(&NewMessage { session, from: me.into(), to, text, id: None }, Stamp::now()).await?;
        let name = frame::quoted(&sent.recipient.name);
        let words = format!("sent to {name} ({}); message {}", sent.recipient.id, sent.task.id);
        Ok(ToolOutput::text(words, format!("sent to {name}")))
    }

    async fn broadcast(&self, broker: &mut Broker, text: &str) -> Result<ToolOutput, BrokerError> {
        let (session, from) = (self.identity.session.id, self.identity.me.id.into());
        let text = self.redactor.redact(text).into_owned();
        let sent = broker.broadcast(&NewBroadcast { session, from, text, id: None }, Stamp::now()).await?;
        let names: Vec<String> =
            sent.recipients.iter().take(LISTED).map(|agent| frame::quoted(&agent.name)).collect();
        let summary = format!("sent to {} agents", sent.recipients.len());
        Ok(ToolOutput::text(format!("{summary}: {}", names.join(", ")), summary))
    }

    async fn inbox(&self, broker: &mut Broker) -> Result<ToolOutput, BrokerError> {
        let query = PollQuery {
            agent: self.identity.me.id,
            scope: MailboxScope::Open,
            since: None,
            after: Some(0),
            page_size: INBOX,
        };
        let page = broker.poll(&query).await?;
        if page.tasks.is_empty() {
            return Ok(ToolOutput::text("no message that you have not heard", "no messages"));
        }
        let mut parts = Vec::new();
        for task in &page.tasks {
            parts.push(self.framed(broker, task, 0).await?);
        }
        if page.more {
            parts.push("[and more: acknowledge these to see them]".to_owned());
        }
        Ok(ToolOutput::text(parts.join("\n"), format!("{} messages", page.tasks.len())))
    }

    async fn show(
        &self,
        broker: &mut Broker,
        id: &IdPrefix,
        offset: usize,
    ) -> Result<ToolOutput, BrokerError> {
        let task = broker.task(self.identity.session.id, id).await?;
        let me = |id| id == self.identity.me.id || self.identity.former.contains(&id);
        if !me(task.from) && !me(task.context) {
            return Ok(ToolOutput::error(format!("message {} is not yours", task.id)));
        }
        let state = match task.state {
            TaskState::InputRequired => "its recipient has not heard it yet".to_owned(),
            TaskState::Completed => format!("acknowledged {}", task.status_at),
            TaskState::Canceled => format!("taken back by its sender {}", task.status_at),
        };
        let text = format!("{}\n[{state}]", self.framed(broker, &task, offset).await?);
        Ok(ToolOutput::text(text, state))
    }

    async fn ack(&self, broker: &mut Broker, id: &IdPrefix) -> Result<ToolOutput, BrokerError> {
        let (session, me) = (self.identity.session.id, self.identity.me.id);
        match broker.ack(session, &me.into(), id, Stamp::now()).await {
            Ok(task) => Ok(ToolOutput::text(format!("message {} is acknowledged", task.id), "acknowledged")),
            Err(BrokerError::CannotAck(TaskState::Completed)) => {
                Ok(ToolOutput::text("it is acknowledged already", "acknowledged already"))
            }
            Err(error) => Err(error),
        }
    }

    async fn framed(&self, broker: &mut Broker, task: &Task, offset: usize) -> Result<String, BrokerError> {
        let (sender, role) = super::sender(broker, &self.identity.session, task).await?;
        Ok(frame::message(task, sender.as_ref(), role, offset))
    }
}

/// Who is meant: a name that one active agent has, or an id.
fn recipient(agents: Vec<Agent>, to: &str) -> Result<IdPrefix, String> {
    let to = to.trim();
    let named: Vec<&Agent> = agents.iter().filter(|agent| agent.name == to).collect();
    match named[..] {
        [agent] => Ok(agent.id.into()),
        [] => IdPrefix::parse(to)
            .map_err(|_| format!("no agent is called {}; BrokerAgents lists them", inert::quoted(to))),
        _ => {
            let ids: Vec<String> = named.iter().map(|agent| agent.id.to_string()).collect();
            Err(format!("several agents are called {}: {}", inert::quoted(to), ids.join(", ")))
        }
    }
}

fn checked(tool: &str, text: String) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(format!("{tool}: the text is empty"));
    }
    if text.contains('\0') {
        return Err(format!("{tool}: the text contains a NUL character"));
    }
    if text.len() > SENT_BYTES {
        return Err(format!(
            "{tool}: the text has {} bytes, at most {SENT_BYTES} are sent; put it in a file and name that",
            text.len()
        ));
    }
    Ok(text)
}

/// A whole number, also as text: many models quote them.
fn offset(tool: &str, value: Option<&Value>) -> Result<usize, String> {
    let found = match value {
        None | Some(Value::Null) => return Ok(0),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    found.ok_or_else(|| format!("{tool}: `offset` must be a whole number"))
}
