//! A workspace in a temporary directory and its tools.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use caliban_core::access::Access;
use caliban_core::address::AddressPolicy;
use caliban_tools::{
    CallContext, DetachPlace, Tool, ToolLimits, ToolOutput, Workspace, WorkspaceOptions, builtin,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) struct Bench {
    _dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) workspace: Arc<Workspace>,
    tools: Vec<Arc<dyn Tool>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) seen: Mutex<String>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut WorkspaceOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let root = base.join("root");
        fs::create_dir(&root).unwrap();
        let mut options = WorkspaceOptions {
            editor: None,
            root: root.clone(),
            extra_dirs: Vec::new(),
            project: None,
            roots: Default::default(),
            output_dir: base.join("outputs"),
            env: vec![(OsString::from("PATH"), OsString::from("/usr/local/bin:/usr/bin:/bin"))],
            helper: helper(),
            http: caliban_http::ClientOptions::default(),
            private_addresses: AddressPolicy::PublicOnly,
            search: None,
            detach: Some(DetachPlace { jobs: base.join("data/caliban/repos/0/jobs"), agent: "a1".into() }),
            redact: None,
            limits: ToolLimits::default(),
        };
        change(&mut options);
        let workspace = Workspace::new(options).unwrap();
        let tools = builtin(&workspace);
        Self { _dir: dir, root, workspace, tools, cancel: CancellationToken::new(), seen: Mutex::default() }
    }

    /// A second agent in the same directory.
    pub(crate) fn sibling(&self) -> Vec<Arc<dyn Tool>> {
        builtin(&self.workspace.child(&self.root).unwrap())
    }

    pub(crate) fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }

    pub(crate) fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).unwrap()
    }

    /// Judged and called, as the loop does it.
    pub(crate) async fn call(&self, name: &str, input: Value) -> ToolOutput {
        if let Err(error) = self.tool(name).access(&input) {
            return ToolOutput::error(error);
        }
        self.call_only(name, input).await
    }

    pub(crate) async fn call_only(&self, name: &str, input: Value) -> ToolOutput {
        let progress = |text: &str| self.seen.lock().unwrap().push_str(text);
        let call = CallContext { id: "c1", cancel: &self.cancel, progress: &progress, fence: None };
        self.tool(name).call(input, call).await
    }

    /// The text of a call that must succeed.
    pub(crate) async fn ok(&self, name: &str, input: Value) -> String {
        let output = self.call(name, input).await;
        assert!(!output.is_error, "{}", output.joined_text());
        output.joined_text()
    }

    /// The text of a call that must fail.
    pub(crate) async fn err(&self, name: &str, input: Value) -> String {
        let output = self.call(name, input).await;
        assert!(output.is_error, "{}", output.joined_text());
        output.joined_text()
    }

    pub(crate) fn access(&self, name: &str, input: Value) -> Result<Vec<Access>, String> {
        self.tool(name).access(&input)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

/// The example `reap` of this crate: cargo builds it beside the tests.
pub(crate) fn helper() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let helper = exe.parent().and_then(Path::parent).unwrap().join("examples/reap");
    assert!(helper.exists(), "{} is missing: cargo build -p caliban-tools --examples", helper.display());
    helper
}
