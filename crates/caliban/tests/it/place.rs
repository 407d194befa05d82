//! A repo and a model server, and caliban run in the one against the other.

use std::path::PathBuf;

use testkit::{Env, ModelServer, Output, ProgramRun, Protocol, script::Script};

/// See the module.
pub(crate) struct Place {
    pub(crate) env: Env,
    pub(crate) repo: PathBuf,
    pub(crate) server: ModelServer,
    pub(crate) protocol: Protocol,
}

impl Place {
    pub(crate) fn new(script: Script) -> Self {
        Self::with(ModelServer::start(script), Protocol::Anthropic)
    }

    pub(crate) fn with(server: ModelServer, protocol: Protocol) -> Self {
        let mut env = Env::new();
        env.set_all(server.envs(protocol));
        let repo = env.repo();
        // Retries in a test shall not wait like those of a person.
        env.write(
            env.config().join("caliban/settings.toml"),
            "[retry]\nattempts = 2\noutage_seconds = 2\nprint_outage_seconds = 1\n",
        );
        Self { env, repo, server, protocol }
    }

    /// caliban with the provider's flags, ready for more.
    pub(crate) fn caliban(&self) -> ProgramRun {
        self.env.start("caliban", self.server.args(self.protocol)).dir(&self.repo)
    }

    /// `caliban -p PROMPT` and more flags.
    pub(crate) fn ask<'a>(&self, prompt: &'a str, more: impl IntoIterator<Item = &'a str>) -> Output {
        self.caliban().args(["-p", prompt]).args(more).output()
    }

    /// A verb, which takes no provider's flags.
    pub(crate) fn verb<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Output {
        self.env.run_in(&self.repo, args)
    }

    /// The directories of the sessions of the one repo that was worked in.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let repos = children(&self.env.data().join("caliban/repos"));
        repos.last().map(|repo| children(&repo.join("sessions"))).unwrap_or_default()
    }

    /// The id of the only session.
    pub(crate) fn session_id(&self) -> String {
        self.session().file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// The directory of the only session.
    pub(crate) fn session(&self) -> PathBuf {
        let sessions = self.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        sessions[0].clone()
    }

    /// The directory of this session.
    pub(crate) fn session_dir(&self, id: &str) -> PathBuf {
        self.sessions().into_iter().find(|dir| dir.ends_with(id)).unwrap()
    }

    /// Its transcript, line by line.
    pub(crate) fn transcript(&self) -> Vec<serde_json::Value> {
        let text = self.env.read(self.session().join("transcript.jsonl"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn children(directory: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut children: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    children.sort();
    children
}
