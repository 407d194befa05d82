//! What the tests work with: a directory, a model that follows a script, and clients that write down what they see.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use caliban_acp::{
    AcpClient, AcpEvents, ClientEvent, TurnEndedNotice,
    client::Question,
    v1::{ContentBlock, McpServer, PromptResponse, SessionInfo, SessionUpdate, ToolCall, ToolCallStatus},
};
use caliban_acp_host::{
    AcpFailure, Clients, Factory, FailureKind, Hosted, LoadSession, NewSession, OpenedSession, ServeOptions,
    SessionHost, Sessions, serve,
};
use caliban_agent::{
    Agent, AgentLimits, Attendance, Kit,
    blueprint::{Blueprint, Helpers, WantedAgent, WorkspaceSource},
    budget::{MachineLedger, Terms},
    hooks::Hooks,
    prompt::ContextFiles,
    spawner::Spawner,
    subagent::WorktreeIsolation,
};
use caliban_core::address::AddressPolicy;
use caliban_core::{BoxFuture, budget, message::Effort, price::Billing, redact::Redactor};
use caliban_permissions::Policy;
use caliban_providers::{
    ModelReply, ModelRequest, Provider, ProviderError, RetryPolicy, Watch, script::Script, scripted::Scripted,
};
use caliban_tools::WorkspaceOptions;
use serde_json::Value;
use tokio::{io::DuplexStream, sync::Semaphore};
use tokio_util::sync::CancellationToken;

/// The size of a pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// A model that answers when it is let.
pub(crate) struct Gated {
    model: Scripted,
    pub(crate) gate: Arc<Semaphore>,
}

impl Provider for Gated {
    fn name(&self) -> &str {
        "gated"
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest<'a>,
        watch: &'a mut dyn Watch,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ModelReply, ProviderError>> {
        Box::pin(async move {
            if let Ok(permit) = self.gate.acquire().await {
                permit.forget();
            }
            self.model.respond(request, watch, cancel).await
        })
    }
}

pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    provider: Arc<dyn Provider>,
    budget: budget::Limits,
    max_turns: u32,
    helpers: Helpers,
    made: Mutex<u32>,
    pub(crate) wanted: Mutex<Vec<NewSession>>,
}

impl World {
    pub(crate) fn new(script: Value) -> Self {
        Self::with(Arc::new(scripted(script)))
    }

    pub(crate) fn gated(script: Value) -> (Self, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        (Self::with(Arc::new(Gated { model: scripted(script), gate: gate.clone() })), gate)
    }

    fn with(provider: Arc<dyn Provider>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        let budget = budget::Limits::NONE;
        Self {
            directory,
            provider,
            budget,
            max_turns: 50,
            helpers: Helpers::Off,
            made: Mutex::default(),
            wanted: Mutex::default(),
        }
    }

    pub(crate) fn with_budget(mut self, budget: budget::Limits) -> Self {
        self.budget = budget;
        self
    }

    pub(crate) fn with_max_turns(mut self, max_turns: u32) -> Self {
        self.max_turns = max_turns;
        self
    }

    pub(crate) fn with_helpers(mut self) -> Self {
        self.helpers = Helpers::Allowed;
        self
    }

    /// Where the agents work.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("work").canonicalize().unwrap()
    }

    pub(crate) fn kit(&self, session: &str) -> Kit {
        let blueprint = Blueprint {
            repo_state: None,
            provider: self.provider.clone(),
            model: "scripted".into(),
            effort: Effort::Default,
            max_output: None,
            window: Some(100_000),
            billing: Billing::Local,
            append: None,
            context_files: ContextFiles::default(),
            repo: None,
            date: "2026-11-15".into(),
            surroundings: Default::default(),
            fallback: None,
            foreign_tools: Vec::new(),
            policy: Policy::new(self.root(), self.directory.path().join("home")),
            fences: Arc::new(caliban_agent::fence::Fences::off(PathBuf::from("/bin/false"))),
            hooks: Hooks::default(),
            // A limit of tokens is the machine's ledger's to hold; the tests of time have a clock of their own.
            ledger: self.budget.tokens.map(|_| {
                let (file, repo) = (self.directory.path().join("ledger.db"), self.root());
                MachineLedger::new(Terms { file, repo, repo_hash: "0123".into(), ..Terms::default() })
            }),
            budget: self.budget,
            limits: AgentLimits { max_turns: self.max_turns },
            job_wait: std::time::Duration::from_secs(60),
            quiet_hours: caliban_core::quiet_hours::QuietHours::default(),
            attendance: Attendance::Somebody,
            keep_rules: None,
            ask_time: None,
            redactor: Redactor::new(Vec::<(String, String)>::new()),
            helpers: self.helpers,
            definitions: Arc::new([]),
            isolation: WorktreeIsolation::default(),
            cwd: self.root().to_owned(),
            background: None,
            spawner: Arc::new(NoFleet),
            observers: None,
        };
        let wanted = WantedAgent::new(
            session.to_owned(),
            self.directory.path().join(session),
            WorkspaceSource::New(WorkspaceOptions {
                root: self.root(),
                extra_dirs: Vec::new(),
                project: None,
                roots: Default::default(),
                output_dir: self.directory.path().join("outputs"),
                env: Vec::new(),
                helper: PathBuf::from("/bin/false"),
                http: Default::default(),
                private_addresses: AddressPolicy::PublicOnly,
                editor: None,
                detach: None,
                search: None,
                redact: None,
                limits: caliban_tools::ToolLimits::default(),
            }),
        );
        blueprint.kit(wanted).unwrap()
    }

    /// One session that any number of clients can share.
    pub(crate) async fn host(&self, session: &str) -> SessionHost {
        SessionHost::start(Agent::new(self.kit(session)).await.unwrap(), Clients::Many)
    }
}

impl Factory for World {
    fn create(&self, wanted: NewSession) -> BoxFuture<'_, Result<OpenedSession, AcpFailure>> {
        Box::pin(async move {
            if wanted.cwd != self.root() {
                let failure = AcpFailure::new(FailureKind::Invalid, "no such directory");
                return Err(failure.with_hint("make it"));
            }
            self.wanted.lock().unwrap().push(wanted);
            let number = {
                let mut made = self.made.lock().unwrap();
                *made += 1;
                *made
            };
            let agent = Agent::new(self.kit(&format!("s{number}"))).await.unwrap();
            Ok((Box::new(agent) as Box<dyn Hosted>).into())
        })
    }

    fn load(&self, wanted: LoadSession) -> BoxFuture<'_, Result<OpenedSession, AcpFailure>> {
        Box::pin(async move {
            Agent::resume(self.kit(&wanted.id))
                .await
                .map(|agent| (Box::new(agent) as Box<dyn Hosted>).into())
                .map_err(|error| AcpFailure::new(FailureKind::NotFound, error.to_string()))
        })
    }

    fn list(&self, _cwd: Option<PathBuf>) -> BoxFuture<'_, Result<Vec<SessionInfo>, AcpFailure>> {
        Box::pin(async move { Ok(vec![SessionInfo::new("s1", self.root())]) })
    }
}

fn scripted(script: Value) -> Scripted {
    let wait = Duration::from_millis(1);
    let policy = RetryPolicy { first_wait: wait, longest_wait: wait, ..RetryPolicy::default() };
    Scripted::new(Script::parse(&script.to_string()).unwrap(), policy)
}

/// The other end of a connection to these sessions.
pub(crate) fn pipe(sessions: &Arc<Sessions>) -> DuplexStream {
    pipe_as(sessions, ServeOptions::socket("0"))
}

fn pipe_as(sessions: &Arc<Sessions>, options: ServeOptions) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (reader, writer) = tokio::io::split(theirs);
    let sessions = sessions.clone();
    tokio::spawn(async move { serve(reader, writer, sessions, options).await });
    ours
}

/// A client that writes down what it sees.
pub(crate) struct Watcher {
    pub(crate) client: AcpClient,
    pub(crate) events: AcpEvents,
    pub(crate) updates: Vec<SessionUpdate>,
    pub(crate) questions: Vec<Question>,
    pub(crate) ends: Vec<TurnEndedNotice>,
    pub(crate) closed: Vec<String>,
}

impl Watcher {
    pub(crate) async fn connect(sessions: &Arc<Sessions>) -> Self {
        Self::connect_as(sessions, ServeOptions::socket("0")).await
    }

    pub(crate) async fn connect_as(sessions: &Arc<Sessions>, options: ServeOptions) -> Self {
        let (reader, writer) = tokio::io::split(pipe_as(sessions, options));
        let (client, events) = AcpClient::connect(reader, writer, "0").await.unwrap();
        Self { client, events, updates: vec![], questions: vec![], ends: vec![], closed: vec![] }
    }

    /// Connects and loads the session.
    pub(crate) async fn attach(sessions: &Arc<Sessions>, host: &SessionHost) -> Self {
        let mut watcher = Self::connect(sessions).await;
        let client = watcher.client.clone();
        watcher.run(client.load_session(host.id(), host.cwd())).await.unwrap();
        watcher
    }

    /// Makes a session.
    pub(crate) async fn new_session(&mut self, world: &World, servers: Vec<McpServer>) -> String {
        let client = self.client.clone();
        let made = self.run(client.new_session(&world.root(), servers)).await.unwrap();
        made.session_id.to_string()
    }

    /// Takes events until the answer is there.
    pub(crate) async fn run<T>(&mut self, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                event = self.events.next() => {
                    let event = event.unwrap().expect("the agent hung up");
                    self.note(event);
                }
            }
        }
    }

    /// Takes events until something is true.
    pub(crate) async fn until(&mut self, is_true: impl Fn(&Self) -> bool) {
        while !is_true(self) {
            let event = self.events.next().await.unwrap().expect("the agent hung up");
            self.note(event);
        }
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> PromptResponse {
        let client = self.client.clone();
        self.run(client.prompt(session, vec![ContentBlock::from(text)])).await.unwrap()
    }

    /// A prompt whose answer is not waited for here.
    pub(crate) fn begin(
        &self,
        session: &str,
        text: &str,
    ) -> impl Future<Output = Result<PromptResponse, caliban_acp::ClientError>> + use<> {
        let (client, session, text) = (self.client.clone(), session.to_owned(), text.to_owned());
        async move { client.prompt(&session, vec![ContentBlock::from(text)]).await }
    }

    fn note(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Update(notification) => self.updates.push(notification.update),
            ClientEvent::Permission(question) => self.questions.push(question),
            ClientEvent::TurnEnded(end) => self.ends.push(end),
            ClientEvent::Background(_) | ClientEvent::Heard(_) => {}
            ClientEvent::Closed(session) => self.closed.push(session),
        }
    }

    pub(crate) fn view(&self) -> Vec<Item> {
        fold(&self.updates)
    }

    pub(crate) fn text(&self) -> String {
        let texts = self.view().into_iter().filter_map(|item| match item {
            Item::Agent(text) => Some(text),
            _ => None,
        });
        texts.collect()
    }
}

/// What a person sees of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    User(String),
    Agent(String),
    Thought(String),
    Tool(Box<ToolCall>),
    Plan(Vec<(String, String)>),
    Title(String),
    Notice(String),
}

/// Puts updates together as a client would.
pub(crate) fn fold(updates: &[SessionUpdate]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut tools: BTreeMap<String, usize> = BTreeMap::new();
    // Two answers in a row are two, whatever stands between them.
    let mut last_id = None;
    let text = |content: &ContentBlock| match content {
        ContentBlock::Text(text) => text.text.clone(),
        other => format!("<{other:?}>"),
    };
    for update in updates {
        match update {
            SessionUpdate::UserMessageChunk(chunk) => items.push(Item::User(text(&chunk.content))),
            SessionUpdate::AgentMessageChunk(chunk) => {
                let is_same = last_id.replace(chunk.message_id.clone()) == Some(chunk.message_id.clone());
                match items.last_mut() {
                    Some(Item::Agent(last)) if is_same => last.push_str(&text(&chunk.content)),
                    _ => items.push(Item::Agent(text(&chunk.content))),
                }
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                let is_same = last_id.replace(chunk.message_id.clone()) == Some(chunk.message_id.clone());
                match items.last_mut() {
                    Some(Item::Thought(last)) if is_same => last.push_str(&text(&chunk.content)),
                    _ => items.push(Item::Thought(text(&chunk.content))),
                }
            }
            SessionUpdate::ToolCall(call) => {
                tools.insert(call.tool_call_id.to_string(), items.len());
                items.push(Item::Tool(Box::new(call.clone())));
            }
            SessionUpdate::ToolCallUpdate(update) => {
                let at = tools[&update.tool_call_id.to_string()];
                let Item::Tool(call) = &mut items[at] else { unreachable!("an index of a tool") };
                call.update(update.fields.clone());
            }
            SessionUpdate::Plan(plan) => {
                let entries =
                    plan.entries.iter().map(|entry| (entry.content.clone(), format!("{:?}", entry.status)));
                items.push(Item::Plan(entries.collect()));
            }
            SessionUpdate::SessionInfoUpdate(info) => {
                items.push(Item::Title(info.title.clone().take().unwrap_or_default()));
            }
            SessionUpdate::Notice(notice) => items.push(Item::Notice(notice.title.clone())),
            _ => {}
        }
    }
    for item in &mut items {
        // How long it took differs from run to run.
        if let Item::Tool(call) = item
            && let Some(Value::Object(output)) = &mut call.raw_output
        {
            output.remove("ms");
        }
    }
    items
}

/// The tool calls of a view: title and status.
pub(crate) fn calls(items: &[Item]) -> Vec<(String, ToolCallStatus)> {
    let call = |item: &Item| match item {
        Item::Tool(call) => Some((call.title.clone(), call.status)),
        _ => None,
    };
    items.iter().filter_map(call).collect()
}

/// There is no fleet behind these agents.
struct NoFleet;

impl Spawner for NoFleet {
    fn check<'a>(
        &'a self,
        _spec: &'a caliban_core::spec::SpawnSpec,
    ) -> caliban_tools::BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn spawn<'a>(
        &'a self,
        _work: caliban_core::spec::SpawnSpec,
    ) -> caliban_tools::BoxFuture<'a, Result<String, String>> {
        Box::pin(async { Err("no fleet here".to_owned()) })
    }
}
