//! What the tests work with: a directory, a model that follows a script, and a tool that says when it runs.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use caliban_agent::{
    Agent, AgentLimits, Attendance, Kit, TurnReport,
    blueprint::{Blueprint, Helpers, WantedAgent, WorkspaceSource},
    budget::{MachineLedger, Terms},
    event::{Answer, Author},
    hooks::{ClosureHook, Hooks},
    prompt::ContextFiles,
    spawner::Spawner,
    subagent::WorktreeIsolation,
};
use caliban_core::{
    access::Access,
    address::AddressPolicy,
    budget,
    message::{Effort, Message, ToolSpec},
    price::Billing,
    redact::Redactor,
};
use caliban_permissions::Policy;
use caliban_providers::{RetryPolicy, script::Script, scripted::Scripted};
use caliban_tools::{BoxFuture, CallContext, StoppedByFence, Tool, ToolOutput, WorkspaceOptions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// See the module.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) stage: Stage,
    pub(crate) budget: budget::Limits,
    pub(crate) hooks: Vec<ClosureHook>,
    pub(crate) redactor: Redactor,
    pub(crate) spawner: Arc<Fleet>,
    pub(crate) background: Option<caliban_core::background::BackgroundLimits>,
    provider: Arc<Scripted>,
}

impl World {
    pub(crate) fn new(script: Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        let script: Script = serde_json::from_value(script).unwrap();
        Self {
            directory,
            stage: Stage::default(),
            budget: budget::Limits::NONE,
            hooks: Vec::new(),
            redactor: Redactor::default(),
            spawner: Arc::default(),
            background: None,
            provider: Arc::new(Scripted::new(script, RetryPolicy::default())),
        }
    }

    /// From now on another model answers.
    pub(crate) fn follow(&mut self, script: Value) {
        let script: Script = serde_json::from_value(script).unwrap();
        self.provider = Arc::new(Scripted::new(script, RetryPolicy::default()));
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("work").canonicalize().unwrap()
    }

    pub(crate) fn session(&self) -> PathBuf {
        self.directory.path().join("session")
    }

    pub(crate) fn kit(&self) -> Kit {
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
            date: "2026-11-16".into(),
            surroundings: Default::default(),
            fallback: None,
            foreign_tools: vec![Arc::new(Staged::new(self.stage.clone(), self.root()))],
            policy: Policy::new(self.root(), self.directory.path().join("home")),
            fences: Arc::new(caliban_agent::fence::Fences::off(PathBuf::from("/bin/false"))),
            hooks: Hooks { closures: self.hooks.clone(), ..Hooks::default() },
            // A limit of tokens is the machine's ledger's to hold; the tests of time have a clock of their own.
            ledger: self.budget.tokens.map(|_| {
                let (file, repo) = (self.directory.path().join("ledger.db"), self.root());
                MachineLedger::new(Terms { file, repo, repo_hash: "0123".into(), ..Terms::default() })
            }),
            budget: self.budget,
            limits: AgentLimits { max_turns: 50 },
            job_wait: std::time::Duration::from_secs(60),
            quiet_hours: caliban_core::quiet_hours::QuietHours::default(),
            attendance: Attendance::Somebody,
            keep_rules: None,
            ask_time: None,
            redactor: self.redactor.clone(),
            helpers: Helpers::Allowed,
            definitions: Arc::new([]),
            isolation: WorktreeIsolation::default(),
            cwd: self.root(),
            background: self.background,
            spawner: self.spawner.clone(),
            observers: None,
        };
        let wanted = WantedAgent::new(
            "session".into(),
            self.session(),
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
                detach: None,
                search: None,
                redact: None,
                limits: caliban_tools::ToolLimits::default(),
                editor: None,
            }),
        );
        blueprint.kit(wanted).unwrap()
    }
}

/// Says something to an agent and drives it to the end of the turn.
pub(crate) async fn prompt(agent: &mut Agent, text: &str) -> TurnReport {
    agent.prompt(Message::user(text), Author::User, &CancellationToken::new()).await
}

/// Waits until there is exactly one question, and gives its id.
pub(crate) async fn asked(kit: &Kit) -> String {
    loop {
        if let [ask] = &kit.asks.open()[..] {
            return ask.id.clone();
        }
        tokio::task::yield_now().await;
    }
}

/// Waits for the one question and answers it.
pub(crate) async fn answer(kit: &Kit, answer: Answer) {
    let id = asked(kit).await;
    assert!(kit.asks.answer(&id, answer));
}

/// Keeps what is handed over. While it is full it takes nothing, though it would.
#[derive(Default)]
pub(crate) struct Fleet(pub(crate) Mutex<Vec<caliban_core::spec::SpawnSpec>>, pub(crate) AtomicBool);

impl Spawner for Fleet {
    fn check<'a>(
        &'a self,
        _spec: &'a caliban_core::spec::SpawnSpec,
    ) -> caliban_tools::BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn spawn<'a>(&'a self, work: caliban_core::spec::SpawnSpec) -> BoxFuture<'a, Result<String, String>> {
        if self.1.load(Ordering::Relaxed) {
            return Box::pin(async { Err("the disk is full".to_owned()) });
        }
        self.0.lock().unwrap().push(work);
        Box::pin(async { Ok("a1b2c3d4".to_owned()) })
    }
}

/// What the staged tool has done, and which of its calls may end.
#[derive(Clone)]
pub(crate) struct Stage {
    log: watch::Sender<Vec<String>>,
    held: watch::Sender<Vec<String>>,
}

impl Default for Stage {
    fn default() -> Self {
        Self { log: watch::Sender::new(Vec::new()), held: watch::Sender::new(Vec::new()) }
    }
}

impl Stage {
    /// The call of this name does not end until it is let.
    pub(crate) fn hold(&self, name: &str) {
        self.held.send_modify(|held| held.push(name.to_owned()));
    }

    pub(crate) fn release(&self, name: &str) {
        self.held.send_modify(|held| held.retain(|other| other != name));
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Waits until the log has this line.
    pub(crate) async fn reached(&self, line: &str) {
        self.reached_times(line, 1).await;
    }

    /// Waits until the log has this line so many times.
    pub(crate) async fn reached_times(&self, line: &str, times: usize) {
        let is_there = |log: &Vec<String>| log.iter().filter(|other| *other == line).count() >= times;
        self.log.subscribe().wait_for(is_there).await.unwrap();
    }
}

/// `Staged {"name": …, "read": …, "write": …, "command": …, "says": …}`: touches what it says, and writes down when it begins and
/// ends. A command that runs in a fence fails because of it.
struct Staged {
    spec: ToolSpec,
    stage: Stage,
    root: PathBuf,
}

impl Staged {
    fn new(stage: Stage, root: PathBuf) -> Self {
        let spec = ToolSpec {
            name: "Staged".into(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
        };
        Self { spec, stage, root }
    }
}

impl Tool for Staged {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let path = |name: &str| Some(self.root.join(input.get(name)?.as_str()?));
        let command = input.get("command").and_then(Value::as_str).map(|line| Access::Command {
            line: line.to_owned(),
            cwd: self.root.clone(),
            outside: None,
        });
        let paths = [path("read").map(Access::Read), path("write").map(Access::Write)];
        Ok(paths.into_iter().flatten().chain(command).collect())
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let name = input["name"].as_str().unwrap().to_owned();
            self.stage.log.send_modify(|log| log.push(format!("{name} begins")));
            self.stage.held.subscribe().wait_for(|held| !held.contains(&name)).await.unwrap();
            self.stage.log.send_modify(|log| log.push(format!("{name} ends")));
            if call.fence.is_some() {
                let stopped = StoppedByFence { setting: Some("fence.network = \"on\"".into()) };
                return ToolOutput { stopped: Some(stopped), ..ToolOutput::error("no network here") };
            }
            ToolOutput::text(input["says"].as_str().unwrap_or("ok"), "ok")
        })
    }
}
