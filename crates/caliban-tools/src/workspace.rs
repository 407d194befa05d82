//! What the tools of one agent share: where it works, what it knows, what it has running.
//!
//! One per agent. A sub-agent gets a [`Workspace::child`] with knowledge, jobs and todos of its own.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use caliban_contract::detached::DetachedRecord;
use caliban_core::address::AddressPolicy;
use caliban_http::HttpClient;
use caliban_rooted::{FoundEntry, Roots};

use crate::{
    ToolOutput,
    bash::{
        self,
        jobs::{JobInfo, Jobs},
    },
    editor_buffers::{Buffers, Unsaved},
    full_output::{FullOutputs, Redact},
    judged::{self, CallTarget, Judged},
    known_files::FileLedger,
    limits::ToolLimits,
    locks::PathLocks,
    todo::Todo,
};

/// What a workspace is made of; all of it is given, nothing is looked up.
#[derive(Clone)]
pub struct WorkspaceOptions {
    /// The directory the agent works in; must exist.
    pub root: PathBuf,
    /// Further directories that belong to the work (`--add-dir`).
    pub extra_dirs: Vec<PathBuf>,
    /// The project's directory: `root` is in it, or is a worktree of it.
    pub project: Option<PathBuf>,
    /// All these directories, each as it was when it was first looked at.
    pub roots: Roots,
    /// Where whole outputs are kept; made when first needed.
    pub output_dir: PathBuf,
    /// The environment of commands, already allow-listed.
    pub env: Vec<(OsString, OsString)>,
    /// The program whose hidden mode keeps commands (`caliban_contract::modes::REAP`): the own executable.
    pub helper: PathBuf,
    /// How pages are fetched (proxy, trusted certificates); its address policy is set by the next field.
    pub http: caliban_http::ClientOptions,
    /// Whether pages may be fetched from private addresses.
    pub private_addresses: AddressPolicy,
    /// Takes secrets out of what is written to `output_dir`.
    pub redact: Option<Redact>,
    /// Time limits and caps.
    pub limits: ToolLimits,
    /// Where WebSearch asks; none where there is no such tool.
    pub search: Option<SearchService>,
    /// Where commands are recorded that outlive the agent; none where the agent may have none.
    pub detach: Option<DetachPlace>,
    /// The editor that a person has files open in, if it can be asked.
    pub editor: Option<Arc<dyn Buffers>>,
}

/// A search service.
#[derive(Clone, PartialEq, Eq)]
pub struct SearchService {
    /// Its address, with `{query}` where the query goes.
    pub url: String,
    /// Headers of the request (`Authorization`).
    pub headers: Vec<(String, String)>,
}

/// Where detached commands are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachPlace {
    /// The directory of the repo's detached commands.
    pub jobs: PathBuf,
    /// The session or agent that starts them.
    pub agent: String,
}

/// Whether a file must not be shown, whatever directory it was found in.
pub type OffLimits = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Why a workspace could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The directory is missing or cannot be entered.
    #[error("cannot work in {}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is a file.
    #[error("cannot work in {}: it is not a directory", .0.display())]
    NotADirectory(PathBuf),
}

/// See the module.
pub struct Workspace {
    pub(crate) options: WorkspaceOptions,
    pub(crate) ledger: FileLedger,
    pub(crate) locks: PathLocks,
    pub(crate) judged: Judged,
    pub(crate) outputs: FullOutputs,
    pub(crate) jobs: Jobs,
    pub(crate) http: HttpClient,
    pub(crate) unsaved: Unsaved,
    cwd: Mutex<PathBuf>,
    todos: Mutex<Vec<Todo>>,
    off_limits: Mutex<Option<OffLimits>>,
}

impl Workspace {
    /// A workspace in `options.root`.
    pub fn new(options: WorkspaceOptions) -> Result<Arc<Self>, WorkspaceError> {
        let outputs = FullOutputs::new(options.output_dir.clone(), options.redact.clone());
        Self::with_outputs(options, outputs, Jobs::default())
    }

    /// A workspace for a sub-agent in another directory (or the same): same environment and limits, its
    /// own knowledge of files, working directory, jobs and todos. Shutting this one down ends the jobs of
    /// its children too.
    pub fn child(&self, root: &Path) -> Result<Arc<Self>, WorkspaceError> {
        let options = WorkspaceOptions { root: root.to_owned(), ..self.options.clone() };
        Self::with_outputs(options, self.outputs.clone(), self.jobs.child())
    }

    fn with_outputs(
        mut options: WorkspaceOptions,
        outputs: FullOutputs,
        jobs: Jobs,
    ) -> Result<Arc<Self>, WorkspaceError> {
        #[expect(clippy::disallowed_methods, reason = "before the agent's first command")]
        let root = fs::canonicalize(&options.root)
            .map_err(|source| WorkspaceError::Root { path: options.root.clone(), source })?;
        if !root.is_dir() {
            return Err(WorkspaceError::NotADirectory(options.root));
        }
        options.root = root.clone();
        options.http.address_policy = options.private_addresses;
        let http = HttpClient::new(options.http.clone());
        let unsaved = Unsaved::new(options.editor.clone());
        Ok(Arc::new(Self {
            options,
            ledger: FileLedger::default(),
            locks: PathLocks::default(),
            judged: Judged::default(),
            outputs,
            jobs,
            http,
            unsaved,
            cwd: Mutex::new(root),
            todos: Mutex::new(Vec::new()),
            off_limits: Mutex::new(None),
        }))
    }

    /// Where a directory that somebody reports really is, if it is one beneath a directory of the work and no link leads to it.
    /// A command can report anything. An error means that nobody can look now.
    pub fn place_in_work(&self, reported: &Path) -> io::Result<Option<PathBuf>> {
        let tops =
            [&self.options.root].into_iter().chain(&self.options.project).chain(&self.options.extra_dirs);
        for top in tops {
            let Ok(root) = self.options.roots.pin(top) else { continue };
            let Some(name) = root.name_of(reported) else { continue };
            if root.is_in_place()? && matches!(root.look(&name)?, FoundEntry::Directory(_)) {
                return Ok(Some(name.under(root.path())));
            }
        }
        Ok(None)
    }

    /// The directory the agent works in, links resolved.
    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// The program whose hidden mode keeps commands.
    pub fn helper(&self) -> &Path {
        &self.options.helper
    }

    /// Further directories that belong to the work.
    pub fn extra_dirs(&self) -> &[PathBuf] {
        &self.options.extra_dirs
    }

    /// Where whole outputs are; the agent should be allowed to read there.
    pub fn output_dir(&self) -> &Path {
        self.outputs.dir()
    }

    /// Where relative paths and the next command start.
    pub fn cwd(&self) -> PathBuf {
        self.cwd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next command starts there. For a resumed session and for Bash.
    pub fn set_cwd(&self, cwd: PathBuf) {
        *self.cwd.lock().unwrap_or_else(PoisonError::into_inner) = cwd;
    }

    /// From now on a search shows no line of a file of which this says so. A call is judged by the directory that
    /// it searches; this is for rules about files in it.
    pub fn set_off_limits(&self, is_off_limits: OffLimits) {
        *self.off_limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(is_off_limits);
    }

    pub(crate) fn off_limits(&self) -> Option<OffLimits> {
        self.off_limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The todo list.
    pub fn todos(&self) -> Vec<Todo> {
        self.todos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the todo list. For TodoWrite and for a resumed session.
    pub fn set_todos(&self, todos: Vec<Todo>) {
        *self.todos.lock().unwrap_or_else(PoisonError::into_inner) = todos;
    }

    /// Ends when one of the background jobs ends that run now; never when none does.
    pub async fn job_ended(&self) {
        self.jobs.one_ended().await;
    }

    /// How the background jobs have ended of whose end the model does not know, with their last output. It knows then.
    pub fn unreported_jobs(&self) -> Vec<String> {
        bash::unreported(self)
    }

    /// Whether a command of this agent, or of one that shares its process, runs in a fence and can change files.
    pub fn is_written_by_a_command(&self) -> bool {
        self.jobs.writes()
    }

    /// The background jobs, in the order in which they were started.
    pub fn jobs(&self) -> Vec<JobInfo> {
        self.jobs.list()
    }

    /// The detached commands of this agent that run: its end does not end them.
    pub fn detached(&self) -> Vec<DetachedRecord> {
        self.options.detach.as_ref().map(bash::detach::running).unwrap_or_default()
    }

    /// Ends every command that is still running, of child workspaces too, and waits until nothing of them
    /// is left. No command starts afterwards. Safe to call twice.
    pub async fn shutdown(&self) {
        self.jobs.shutdown().await;
    }

    /// The absolute path that a model means, links not resolved. A path below a root that is gone is
    /// refused (the repository was moved): writing there would create a second, partial copy of it. A working directory that is gone is left
    /// for the root.
    pub fn absolute(&self, given: &str) -> Result<PathBuf, String> {
        let (cwd, root) = (self.cwd(), self.root());
        let path = judged::absolute(&cwd, given)?;
        if !root.is_dir() && (path.starts_with(root) || path.starts_with(&cwd)) {
            return Err(format!("{} does not exist any more; was it moved?", root.display()));
        }
        if cwd == root || cwd.is_dir() || Path::new(given).is_absolute() {
            return Ok(path);
        }
        self.set_cwd(root.to_owned());
        judged::absolute(root, given)
    }

    /// The absolute path that a model means, noted for the call that follows the judgement.
    pub(crate) fn judge(&self, given: &str) -> Result<PathBuf, String> {
        let path = self.absolute(given)?;
        self.judged.note(given, &path);
        Ok(path)
    }

    /// What was judged for this path.
    pub(crate) fn claim(&self, given: &str) -> Result<CallTarget, String> {
        self.judged.claim(given, || self.absolute(given))
    }

    /// The output of a call, within the caller's cap.
    pub(crate) fn output(&self, kind: &str, text: &str, notes: &[String], summary: String) -> ToolOutput {
        let chars = self.options.limits.output_chars;
        ToolOutput { summary, ..self.outputs.output(kind, text, &notes.join("\n"), chars) }
    }

    /// The path as it is shown: relative to the working directory where it is below it.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let cwd = self.cwd();
        match path.strip_prefix(&cwd) {
            Ok(below) if below.as_os_str().is_empty() => ".".into(),
            Ok(below) => below.display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a18_a_reported_directory_counts_only_where_no_link_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        let root = base.join("root");
        for place in ["root/inside", "outside/inside"] {
            std::fs::create_dir_all(base.join(place)).unwrap();
        }
        symlink("../outside", root.join("link")).unwrap();
        symlink("inside", root.join("other")).unwrap();
        let workspace = Workspace::new(WorkspaceOptions {
            root: root.clone(),
            extra_dirs: Vec::new(),
            project: None,
            roots: Roots::default(),
            output_dir: base.join("outputs"),
            env: Vec::new(),
            helper: "/bin/false".into(),
            http: caliban_http::ClientOptions::default(),
            private_addresses: AddressPolicy::PublicOnly,
            redact: None,
            limits: ToolLimits::default(),
            search: None,
            detach: None,
            editor: None,
        })
        .unwrap();
        let place = |name: &str| workspace.place_in_work(&root.join(name)).unwrap();
        assert_eq!(place("inside"), Some(root.join("inside")));
        for lie in ["link", "link/inside", "other", "../outside", "nothing"] {
            assert_eq!(place(lie), None, "{lie}");
        }
    }
}
