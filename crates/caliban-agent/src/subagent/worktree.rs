//! A sub-agent's worktree: made before it starts, its work kept when it ends.

use std::path::{Path, PathBuf};

use caliban_core::spec::WorktreeSpec;
use tokio_util::sync::CancellationToken;

/// How worktrees are made.
#[derive(Debug, Clone, Default)]
pub struct Isolation {}

pub(super) struct Made {
    path: PathBuf,
}

impl Made {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn finish(self, _label: &str) -> Work {
        Work {}
    }
}

pub(super) struct Work {}

impl std::fmt::Display for Work {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

pub(super) fn name(label: &Option<String>, session: &str) -> String {
    label.clone().unwrap_or_else(|| session.to_owned())
}

impl Isolation {
    pub(super) async fn create(
        &self,
        _name: &str,
        _wanted: &WorktreeSpec,
        _cancel: &CancellationToken,
        _progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Made, String> {
        Err("not yet".to_owned())
    }
}
