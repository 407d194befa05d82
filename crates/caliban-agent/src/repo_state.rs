//! How the repository stands: what has changed, and the last commits.
//!
//! A look costs processes of git and a walk through the tree, so nobody looks before a model asks for its first calls: an
//! answer without a call needs none (adr 0220). All agents of one place share the look.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use tokio::sync::OnceCell;

type Look = dyn Fn() -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> + Send + Sync;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RepoState {
    look: Arc<Look>,
    seen: Arc<OnceCell<Vec<String>>>,
}

impl RepoState {
    /// What `look` sees when it is first wanted: one fact to a line, none where nothing can be seen.
    pub fn new<F>(look: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<String>> + Send + 'static,
    {
        Self { look: Arc::new(move || Box::pin(look())), seen: Arc::default() }
    }

    /// What the model is told, if there is anything to tell.
    pub(crate) async fn for_model(&self) -> Option<String> {
        let lines = self.seen.get_or_init(|| (self.look)()).await;
        (!lines.is_empty()).then(|| format!("[The repository before your first call:\n{}]", lines.join("\n")))
    }
}

impl fmt::Debug for RepoState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepoState").field("seen", &self.seen).finish_non_exhaustive()
    }
}
